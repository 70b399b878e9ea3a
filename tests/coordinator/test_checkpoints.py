"""Checkpoints beside the steps in a whole service: a gate holds the copy back for as long as a test wants."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dbsp.coordinator.build import build
from dbsp.coordinator.checks.doctor import diagnose
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import Config, load_config
from dbsp.errors import FencedError, InternalError, UnavailableError
from dbsp.layout import initial
from dbsp.runtime import tasks
from dbsp.runtime.copying import Copier
from dbsp.runtime.inprocess import InProcessRuntime
from dbsp.runtime.work import Work
from dbsp.store import CheckpointId, CommitReport
from tests.coordinator.shop import settings_text

CIRCUIT = """
import dbsp
orders = dbsp.table("orders", {"id": dbsp.INT64, "amount": dbsp.INT64}, primary_key=["id"])
totals = orders.group_by("amount").aggregate(orders=dbsp.count())
pipeline = dbsp.circuit("shop", {"totals": totals})
"""
SETTINGS = settings_text("[checkpoint]\ninterval_s = 1000\n")


class Gate:
    """Pieces of the copy wait here; `reached` says that one does."""

    def __init__(self) -> None:
        self.open, self.reached = threading.Event(), threading.Event()
        self.open.set()
        self.fails = False

    def hold(self) -> None:
        self.reached.clear()
        self.open.clear()

    def piece(self, *arguments: Any) -> CommitReport | None:
        self.reached.set()
        assert self.open.wait(60)
        if self.fails:
            self.fails = False
            raise UnavailableError("the disk is away")
        return ORIGINAL(*arguments)


ORIGINAL = tasks.copy


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    made = Gate()
    monkeypatch.setattr(tasks, "copy", made.piece)
    return made


@pytest.fixture
def settings(tmp_path: Path) -> Config:
    (tmp_path / "circuit.py").write_text(CIRCUIT)
    (tmp_path / "pipeline.toml").write_text(SETTINGS)
    return load_config(tmp_path / "pipeline.toml", environment={})


@pytest.fixture
def service(settings: Config, gate: Gate) -> Iterator[Service]:
    made = Service(settings)
    made.start(timeout_s=60)
    yield made
    gate.open.set()
    made.stop(now=True, quiet=True)


def push(service: Service, number: int) -> None:
    rows = {"id": range(10 * number, 10 * number + 10), "amount": [number] * 10}
    service.wait_until_processed(service.push("orders", pa.table(rows)), 60)


def totals(service: Service) -> dict[int, int]:
    return {row["amount"]: row["orders"] for row in service.read_view("totals").table.to_pylist()}


def begin(service: Service, gate: Gate) -> tuple[threading.Thread, list[int]]:
    """Ask for a checkpoint that will not end; whoever asked waits."""
    gate.hold()
    answers: list[int] = []
    asker = threading.Thread(target=lambda: answers.append(service.checkpoint(60)))
    asker.start()
    assert gate.reached.wait(60)
    return asker, answers


def test_steps_go_on_and_the_version_is_the_cut(service: Service, gate: Gate, settings: Config) -> None:
    push(service, 1)
    asker, answers = begin(service, gate)
    for number in (2, 3, 4):
        push(service, number)
    assert totals(service) == {1: 10, 2: 10, 3: 10, 4: 10}
    assert (service.snapshot.version, service.snapshot.checkpoint_step, answers) == (0, 0, [])
    gate.open.set()
    asker.join(60)
    assert answers == [1]
    assert (service.snapshot.version, service.snapshot.checkpoint_step, service.snapshot.step) == (1, 1, 4)
    push(service, 5)
    service.stop(now=True)
    assert diagnose(settings).findings == ()
    with Service(settings) as again:
        assert again.snapshot.checkpoint_step == 1, "three steps are replayed on the cut"
        assert totals(again) == {1: 10, 2: 10, 3: 10, 4: 10, 5: 10}


def test_a_request_meanwhile_is_met_by_the_next_checkpoint(service: Service, gate: Gate) -> None:
    push(service, 1)
    asker, _ = begin(service, gate)
    push(service, 2)
    later: list[int] = []
    second = threading.Thread(target=lambda: later.append(service.checkpoint(60)))
    second.start()
    push(service, 3)
    gate.open.set()
    asker.join(60)
    second.join(60)
    assert later == [2]
    assert service.snapshot.checkpoint_step >= 2


def test_stop_publishes_the_copy_in_flight_and_one_more(service: Service, gate: Gate, settings: Config) -> None:
    push(service, 1)
    asker, _ = begin(service, gate)
    push(service, 2)
    service.ask_to_stop()
    gate.open.set()
    asker.join(60)
    assert service.wait_for_end(60) is not None
    assert (service.snapshot.version, service.snapshot.checkpoint_step) == (2, 2)
    service.stop()
    with Service(settings) as again:
        assert totals(again) == {1: 10, 2: 10}


def test_stop_now_does_not_wait_for_it(settings: Config, gate: Gate) -> None:
    service = Service(settings)
    service.start(timeout_s=60)
    push(service, 1)
    gate.hold()
    waiting = service._loop.submit(_ask(), lambda _state: None)
    assert gate.reached.wait(60)
    service.ask_to_stop(now=True)
    gate.open.set()  # the piece under way ends; no further one begins
    service.stop(now=True, timeout_s=60)
    assert waiting.exception(60) is not None
    with Service(settings) as again:
        assert totals(again) == {1: 10}


def _ask() -> Any:
    from dbsp.coordinator.decisions.events import CheckpointAsked  # noqa: PLC0415 - only here

    return CheckpointAsked()


def test_a_rescale_waits_for_it(service: Service, gate: Gate) -> None:
    push(service, 1)
    asker, answers = begin(service, gate)
    push(service, 2)
    opener = threading.Timer(0.2, gate.open.set)
    opener.start()
    assert service.rescale(3, 60) is not None
    asker.join(60)
    assert answers
    assert len(service.layout().workers) == 3
    assert totals(service) == {1: 10, 2: 10}


def test_a_copy_that_fails_rolls_back_and_the_next_one_succeeds(service: Service, gate: Gate, settings: Config) -> None:
    push(service, 1)
    asker, _ = begin(service, gate)
    push(service, 2)
    gate.fails = True
    gate.open.set()
    asker.join(60)
    assert service.live_status.wait_for(lambda now: now.rollbacks == 1 and now.state == "Running", 60)
    assert service.live_status.wait_for(lambda now: now.past_error is not None, 60), "when the next copy is published"
    past = service.snapshot.past_error
    assert past is not None
    assert "the disk is away" in past.message
    told = [json.loads(line) for line in (settings.data_dir / "coordinator.log").read_text().splitlines()]
    assert [each["code"] for each in told if each.get("command") == "Copy"] == ["unavailable"]
    assert totals(service) == {1: 10, 2: 10}
    push(service, 3)
    service.checkpoint(60)
    assert service.snapshot.checkpoint_step == 3


def test_a_rollback_ends_the_copy(settings: Config, gate: Gate) -> None:
    """A step fails while a checkpoint is copied: its epoch is over, what it copied is swept, the same version is made anew."""
    failing = threading.Event()

    class Fails:
        def __init__(self, runtime: Any) -> None:
            self._runtime = runtime

        def __getattr__(self, name: str) -> Any:
            if name == "run_step" and failing.is_set():
                failing.clear()
                threading.Timer(0.1, gate.open.set).start()
                raise UnavailableError("planted")
            return getattr(self._runtime, name)

    service = Service(settings, build(settings, wrap=lambda name, part: Fails(part) if name == "runtime" else part))
    service.start(timeout_s=60)
    push(service, 1)
    asker, _ = begin(service, gate)
    failing.set()
    push(service, 2)
    asker.join(60)
    assert service.snapshot.rollbacks == 1
    assert service.checkpoint(60) >= 1
    assert totals(service) == {1: 10, 2: 10}
    service.stop(timeout_s=60)
    assert diagnose(settings).findings == ()


ID = CheckpointId(run="run", epoch=1, step=0, layout_version=1, fingerprint="f")
REPORT = CommitReport(version=1, chunks_written=0, bytes_written=0, state_bytes=0)


def test_a_copier_copies_until_all_have_the_version() -> None:
    asked: list[tuple[int, ...]] = []

    def piece(workers: tuple[int, ...]) -> dict[int, CommitReport | None]:
        asked.append(workers)
        return {worker: REPORT if len(asked) > worker else None for worker in workers}

    assert Copier().start((0, 1, 2), piece).result(60) == dict.fromkeys((0, 1, 2), REPORT)
    assert asked == [(0, 1, 2), (1, 2), (2,)]


def test_a_copy_begins_right_after_the_one_before_it_is_told() -> None:
    copier, told, go_on = Copier(), threading.Event(), threading.Event()
    first_may_end = threading.Event()

    def slow_to_end(_: Future[Any]) -> None:
        told.set()
        go_on.wait(60)

    def first(workers: tuple[int, ...]) -> dict[int, CommitReport | None]:
        first_may_end.wait(60)
        return dict.fromkeys(workers, REPORT)

    future: Future[Any] = copier.start((0,), first)
    future.add_done_callback(slow_to_end)
    first_may_end.set()
    assert told.wait(60)
    assert future.done()
    threading.Timer(0.2, go_on.set).start()
    assert copier.start((1,), lambda workers: dict.fromkeys(workers, REPORT)).result(60) == {1: REPORT}


def test_threads_of_a_copy_have_a_share_of_the_workers_each() -> None:
    meeting, seen = threading.Barrier(2, timeout=60), list[tuple[int, ...]]()

    def piece(workers: tuple[int, ...]) -> dict[int, CommitReport | None]:
        seen.append(workers)
        meeting.wait()  # nobody comes here alone
        return dict.fromkeys(workers, REPORT)

    found = Copier().start((0, 1, 2, 3, 4, 5), piece, 1, threads=2).result(60)
    assert found == dict.fromkeys(range(6), REPORT)
    assert sorted(seen) == [(worker,) for worker in range(6)]


def test_the_first_error_of_a_copy_is_told_at_once_and_ends_its_other_threads() -> None:
    inside, go_on, pieces = threading.Event(), threading.Event(), list[int]()

    def piece(workers: tuple[int, ...]) -> dict[int, CommitReport | None]:
        (worker,) = workers
        pieces.append(worker)
        if worker == 0:
            assert inside.wait(60)
            raise UnavailableError("the disk is away")
        inside.set()
        assert go_on.wait(60)
        return {worker: None}

    copier = Copier()
    with pytest.raises(UnavailableError, match="the disk is away"):
        copier.start((0, 1), piece, threads=2).result(60)
    copier.end(go_on.set)
    assert sorted(pieces) == [0, 1]


def test_a_checkpoint_of_several_workers_is_copied_by_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = threading.Barrier(2, timeout=60)

    def piece(_work: Work, _worker: int, *_: Any) -> CommitReport:
        meeting.wait()
        return REPORT

    monkeypatch.setattr(tasks, "copy", piece)
    work: Any = None
    found = InProcessRuntime(work, copies_at_once=2).copy(1, ID, initial(4)).result(60)
    assert found == dict.fromkeys(range(4), REPORT)


def test_a_copier_ends_when_told_and_tells_errors() -> None:
    copier, inside, go_on = Copier(), threading.Event(), threading.Event()

    def piece(workers: tuple[int, ...]) -> dict[int, CommitReport | None]:
        inside.set()
        go_on.wait(60)
        return dict.fromkeys(workers)

    future: Future[Any] = copier.start((0,), piece)
    assert inside.wait(60)
    with pytest.raises(InternalError, match="another one is copied"):
        copier.start((0,), piece)
    copier.end(go_on.set)
    with pytest.raises(UnavailableError, match="the copying was stopped"):
        future.result(60)

    def fenced(_workers: tuple[int, ...]) -> dict[int, CommitReport | None]:
        raise FencedError("newer")

    with pytest.raises(FencedError):
        copier.start((0,), fenced).result(60)
