"""A whole service with the in-process runtime: the Python interface."""

from __future__ import annotations

import errno
import json
import shutil
import threading
from collections.abc import Callable
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import lmdb
import pyarrow as pa
import pytest

from dbsp.coordinator import build as build_module
from dbsp.coordinator.build import check_start, load_plan
from dbsp.coordinator.running.clock import SystemClock
from dbsp.coordinator.running.control import Control, Ledger, standing
from dbsp.coordinator.running.events_log import EventsLog
from dbsp.coordinator.running.notices import RolledBack
from dbsp.coordinator.running.status import LiveStatus
from dbsp.coordinator.service import Service
from dbsp.errors import CircuitError, ConfigError, DataError, FencedError, OverloadedError, UnavailableError
from dbsp.io.embedded_input import EmbeddedInputLog
from dbsp.io.embedded_output import EmbeddedOutputLog, output_workers, read_outputs
from dbsp.io.pushed import Position, Producer
from tests.coordinator.shop import CIRCUIT, ORDERS, answering, rows, settings


def test_rows_in_views_out(service: Service) -> None:
    position = service.push("orders", ORDERS)
    service.wait_until_processed(position, 60)
    assert rows(service) == {"a": (1, 10, 1), "b": (2, 601, 1)}
    position = service.push("orders", ORDERS.slice(1, 1), delete=True)
    service.wait_until_processed(position, 60)
    assert rows(service) == {"a": (1, 10, 1), "b": (1, 1, 1)}
    found = service.completion("orders", 0, position.first)
    assert (found.durable, found.processed, found.delivered) == (True, True, True)
    assert found.step == service.snapshot.step - 1
    assert not service.completion("orders", 0, position.last).durable


def test_it_goes_on_where_it_was(folder: Path) -> None:
    with Service(settings(folder)) as first:
        first.wait_until_processed(first.push("orders", ORDERS), 60)
    with Service(settings(folder)) as second:
        assert rows(second) == {"a": (1, 10, 1), "b": (2, 601, 1)}
        assert second.snapshot.checkpoint_step == second.snapshot.step == 1
        assert second.snapshot.epoch == 2


@pytest.mark.parametrize("other", ["output.kind=files", "input.kind=files"])
def test_logs_of_another_kind_are_refused_before_anything_is_done(folder: Path, other: str) -> None:
    with Service(settings(folder)) as first:
        first.wait_until_processed(first.push("orders", ORDERS), 60)
    changed = settings(folder, other, "input.directory=files")
    kind = other.partition(".")[0]
    with pytest.raises(ConfigError, match=f"its {kind} in another kind of log: .*{kind}.kind=embedded wanted=files"):
        check_start(changed, load_plan(changed))
    with pytest.raises(ConfigError, match=f'write kind = "embedded" in .{kind}.'):
        Service(changed)
    with Service(settings(folder)) as second:
        assert rows(second) == {"a": (1, 10, 1), "b": (2, 601, 1)}


def test_steps_since_the_checkpoint_are_replayed(folder: Path) -> None:
    first = Service(settings(folder))
    first.start(timeout_s=60)
    first.wait_until_processed(first.push("orders", ORDERS), 60)
    first.stop(now=True)
    with Service(settings(folder)) as second:
        assert rows(second) == {"a": (1, 10, 1), "b": (2, 601, 1)}
        assert (second.snapshot.checkpoint_step, second.snapshot.step) == (0, 1)


def test_rows_of_partitions_that_the_settings_do_not_have_any_more_are_read(folder: Path) -> None:
    """Of those in partition 2 a step was logged that is replayed; those in partition 1 came when no step was taken any more."""
    first = Service(settings(folder, "input.partitions=3"))
    first.start(timeout_s=60)
    first.wait_until_processed(first.push("orders", ORDERS.slice(0, 1), partition=2), 60)
    first.pause(60)
    waiting = first.push("orders", ORDERS.slice(1), partition=1)
    first.stop(now=True)
    with Service(settings(folder, "input.partitions=1")) as second:
        second.wait_until_processed(waiting, 60)
        assert rows(second) == {"a": (1, 10, 1), "b": (2, 601, 1)}
        with pytest.raises(ConfigError, match="no such partition: table=orders partition=1 partitions=1"):
            second.push("orders", ORDERS, partition=1)


def with_checkpoints(folder: Path, *overrides: str, more: int = 0) -> None:
    """Three steps, a checkpoint after each; `more` is added to the amounts."""
    amounts = [amount + more for amount in ORDERS["amount"].to_pylist()]
    orders = ORDERS.set_column(2, "amount", pa.array(amounts))
    with Service(settings(folder, *overrides)) as service:
        for number in range(3):
            service.wait_until_processed(service.push("orders", orders.slice(number, 1)), 60)
            service.checkpoint(60)


def refused(folder: Path, *overrides: str) -> str:
    """Why the service does not start."""
    with (
        closing(Service(settings(folder, "step.failures_max=0", *overrides))) as service,
        pytest.raises(DataError) as caught,
    ):
        service.start(timeout_s=60)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["embedded", "files"])
def test_lost_outputs_are_an_error(folder: Path, kind: str) -> None:
    chosen = f"output.kind={kind}"
    with_checkpoints(folder, chosen)
    place = folder / "data" / ("outputs/1" if kind == "embedded" else "files/.progress/1")
    kept = place.with_name("kept")
    place.rename(kept)
    found = refused(folder, chosen)
    assert "a worker's outputs are gone: worker=1 wanted=3" in found
    assert f"file={place}" in found
    assert not place.exists(), "nothing empty is put in its place"
    kept.rename(place)
    with Service(settings(folder, chosen)) as again:
        assert rows(again) == {"a": (1, 10, 1), "b": (2, 601, 1)}


def still_open(folder: Path) -> list[str]:
    """Files of the data folder that this process holds open, and threads of the service."""
    files = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            files.append(str(link.readlink()))
    mine = [file for file in files if file.startswith(str(folder / "data"))]
    return mine + [thread.name for thread in threading.enumerate() if thread.name == "dbsp-event-loop"]


@pytest.mark.parametrize("cause", ["broken", "interrupted"])
def test_a_failed_start_closes_everything(folder: Path, cause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recovery opens databases, logs and outputs before it fails; an interrupt comes while it is at it."""
    with_checkpoints(folder)
    assert still_open(folder) == []
    expected: type[BaseException] = DataError
    if cause == "broken":
        shutil.rmtree(folder / "data" / "outputs" / "1")
    else:
        expected = KeyboardInterrupt
        monkeypatch.setattr(LiveStatus, "wait_for", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    failing = Service(settings(folder, "step.failures_max=0"))
    assert still_open(folder) != []
    with pytest.raises(expected), failing:
        raise AssertionError("it started")
    assert still_open(folder) == []


def test_outputs_of_an_older_backup_are_an_error(folder: Path) -> None:
    place = folder / "data" / "outputs" / "1"
    with_checkpoints(folder)
    shutil.copytree(place, folder / "backup")
    with_checkpoints(folder)
    shutil.rmtree(place)
    (folder / "backup").rename(place)
    found = refused(folder)
    assert f"end below the checkpoint: worker=1 folder={place} found=3 wanted=6" in found
    assert "restore the outputs" in found


def test_a_worker_that_joins_begins_its_outputs_there(folder: Path) -> None:
    with_checkpoints(folder)
    for workers in (3, 1, 3):
        with Service(settings(folder)) as service:
            service.rescale(workers, 60)
            service.wait_until_processed(service.push("orders", ORDERS), 60)
    with closing(EmbeddedOutputLog(folder / "data", 2)) as log:
        assert log.bounds() == (5, 6)
    shutil.rmtree(folder / "data" / "outputs" / "2")
    assert "worker=2 wanted=6" in refused(folder)


def test_logs_are_trimmed_below_the_oldest_openable_version(folder: Path) -> None:
    with Service(settings(folder)) as service:
        for number in range(3):
            service.wait_until_processed(service.push("orders", ORDERS.slice(number, 1)), 60)
            service.checkpoint(60)
        steps: Any = service.built.parts.steps
        inputs: Any = service.built.parts.inputs
        with pytest.raises(DataError, match="missing"):
            steps.read(0)
        assert [record.step for record in steps.read(2)] == [2]
        assert inputs.floors()["orders", 0] == 2
    with Service(settings(folder)) as again:
        assert rows(again) == {"a": (1, 10, 1), "b": (2, 601, 1)}


def output_steps(folder: Path) -> tuple[set[int], set[int]]:
    """Steps with rows, steps with checksums, of all workers."""
    found: set[int] = set()
    for worker in output_workers(folder / "data"):
        path = folder / "data" / "outputs" / str(worker)
        with lmdb.open(str(path), max_dbs=4, readonly=True, lib_version=0) as env:  # noqa: TID251 - as another program
            checksums = env.open_db(b"checksums", create=False)
            with env.begin() as txn:
                found |= {int.from_bytes(key, "big") for key in txn.cursor(checksums).iternext(values=False)}
    return {step for step, _, _ in read_outputs(folder / "data", "per_customer")}, found


def test_checksums_are_kept_from_the_oldest_openable_version_on(folder: Path) -> None:
    with_checkpoints(folder)
    assert output_steps(folder) == ({0, 1, 2}, {2})
    with_checkpoints(folder, "output.retention_steps=1", more=1)
    kept, checksums = output_steps(folder)
    assert (kept, checksums) == ({4, 5}, {5})
    with Service(settings(folder)) as again:
        assert rows(again) == {"a": (1, 11, 1), "b": (2, 603, 1)}


def test_retention_of_other_outputs_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"output\.kind=files"):
        settings(folder, "output.kind=files", "output.retention_steps=1")


def test_retention_keeps_them(folder: Path) -> None:
    with Service(settings(folder, "checkpoint.retention_s=1000")) as service:
        for number in range(3):
            service.wait_until_processed(service.push("orders", ORDERS.slice(number, 1)), 60)
            service.checkpoint(60)
        assert [record.step for record in service.built.parts.steps.read(0)] == [0, 1, 2]


def test_rescale_keeps_the_answers(service: Service) -> None:
    service.wait_until_processed(service.push("orders", ORDERS), 60)
    for workers in (3, 1, 4, 4):
        planned = service.plan_rescale(workers)
        service.rescale(workers, 60)
        assert len(service.layout().workers) == workers == planned.workers
        assert rows(service) == {"a": (1, 10, 1), "b": (2, 601, 1)}
    more = pa.table({"id": [9], "customer": ["a"], "amount": [5]})
    service.wait_until_processed(service.push("orders", more), 60)
    assert rows(service)["a"] == (2, 15, 1)


def test_a_rescale_that_finds_its_number_there_has_moved_nothing(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one before it has brought it about while this one waited; what that has moved is not told again."""
    for workers in (3, 2):
        moved = service.rescale(workers, 60)
        assert moved is not None
        assert (moved.workers_before, moved.workers) == (5 - workers, workers)
    changing = replace(service.plan_rescale(2), shards_moved=1)
    monkeypatch.setattr(service, "plan_rescale", lambda _workers, _hosts: changing)
    assert service.rescale(2, 60) is None


def test_steps_that_run_again_are_not_counted_for_the_readers(folder: Path) -> None:
    """After a restart no rows of partitions are known, although the last steps were replayed."""
    more = pa.table({"id": [7, 8], "customer": ["a", "b"], "amount": [5, 6]})
    with Service(settings(folder)) as first:
        first.wait_until_processed(first.push("orders", more), 60)
        step = first.snapshot.step
        assert first._loop.runner.partitions["orders"] == (2,)
        first.stop(now=True)
    with Service(settings(folder)) as second:
        assert second.live_status.wait_for(lambda now: now.state == "Running" and now.step >= step, 60)
        assert second._loop.runner.partitions["orders"] == (0,)


def test_a_rescale_that_cannot_be_is_refused(service: Service) -> None:
    with pytest.raises(ConfigError):
        service.rescale(5000)
    assert service.status()["workers"] == 2


def test_a_rescale_requested_at_rest(folder: Path) -> None:
    with Service(settings(folder)) as first:
        first.wait_until_processed(first.push("orders", ORDERS), 60)
    second = Service(settings(folder))
    second.request_rescale(3)
    with second:
        assert second.live_status.wait_for(lambda now: now.layout is not None and len(now.layout.workers) == 3, 60)
        assert rows(second) == {"a": (1, 10, 1), "b": (2, 601, 1)}


def test_a_rescale_requested_while_an_epoch_is_claimed(folder: Path) -> None:
    """A start and a rollback raise the epoch in the ledger before the status shows it: a request at that moment is noted."""
    requests: list[int] = []
    noted: list[int | None] = []
    failing = threading.Event()

    class Requesting:
        """The ledger, with a request right after a change that raises the epoch."""

        def __init__(self, control: Control) -> None:
            self._control = control

        def __getattr__(self, name: str) -> Any:
            return getattr(self._control, name)

        def change(self, epoch: int | None, action: Callable[[Ledger], Ledger]) -> Ledger:
            before = self._control.load()
            changed = self._control.change(epoch, action)
            if before is not None and changed.epoch > before.epoch and requests:
                service.request_rescale(requests.pop())
                noted.append(standing(self._control.load() or changed).rescale)
            return changed

    class Fails:
        """The runtime, one of whose steps fails."""

        def __init__(self, runtime: Any) -> None:
            self._runtime = runtime

        def __getattr__(self, name: str) -> Any:
            if name == "run_step" and failing.is_set():
                failing.clear()
                raise UnavailableError("planted")
            return getattr(self._runtime, name)

    wrappers: dict[str, Any] = {"control": Requesting, "runtime": Fails}
    config = settings(folder)
    with Service(config) as first:
        first.wait_until_processed(first.push("orders", ORDERS), 60)
    service = Service(
        config, build_module.build(config, wrap=lambda name, part: wrappers.get(name, lambda it: it)(part))
    )
    requests.append(3)
    service.start()
    try:
        service.rescale(3, 60)  # which hands the noted request to the event loop
        requests.append(4)
        failing.set()
        service.wait_until_processed(service.push("orders", ORDERS), 60)
        assert service.snapshot.rollbacks == 1
        service.rescale(4, 60)
        assert noted == [3, 4]
        assert service.status()["workers"] == 4
        service.built.parts.control.change(None, lambda ledger: replace(ledger, epoch=ledger.epoch + 1))
        with pytest.raises(FencedError):
            service.request_rescale(2)
        ended = service.wait_for_end(60)
        assert ended is not None
        assert ended.code == FencedError.code
    finally:
        service.stop(quiet=True)


def test_pause_keeps_rows_waiting(service: Service) -> None:
    service.pause(60)
    position = service.push("orders", ORDERS)
    with pytest.raises(UnavailableError, match="not processed in time"):
        service.wait_until_processed(position, 0.3)
    assert rows(service) == {}
    service.resume(60)
    service.wait_until_processed(position, 60)


@pytest.mark.parametrize("setting", ["max_backlog_rows=3", "max_backlog_bytes=1"])
def test_a_producer_that_is_too_fast_is_told_to_wait(folder: Path, setting: str) -> None:
    """Nothing is lost: what was answered is there, what was refused is not, and is taken when it comes again."""
    with Service(settings(folder, f"input.{setting}")) as service, answering(service) as client:
        service.pause(60)
        taken, waiting = 0, [json.dumps({"id": n, "customer": "c", "amount": n}) for n in range(30)]
        limit = 3 if "rows" in setting else 1
        while waiting:
            answer = client.post("/v1/tables/orders/rows", content=waiting[0])
            if answer.status_code == 200:
                waiting.pop(0)
                taken += 1
                continue
            assert answer.status_code == 429
            assert int(answer.headers["Retry-After"]) > 0
            assert answer.json()["error"]["code"] == "overloaded"
            assert setting in answer.json()["error"]["message"]
            assert taken % limit == 0, "it is refused when the bound is reached, not before"
            assert service.built.parts.inputs.ends()["orders", 0] == taken
            service.resume(60)
            service.wait_until_processed(Position(table="orders", partition=0, first=taken - 1, last=taken), 60)
            service.pause(60)
        with pytest.raises(OverloadedError) if taken % limit == 0 else nullcontext():
            service.push("orders", ORDERS.slice(0, 1))
        service.resume(60)
        last = service.built.parts.inputs.ends()["orders", 0]
        service.wait_until_processed(Position(table="orders", partition=0, first=last - 1, last=last), 60)
        assert rows(service) == {"c": (30, sum(range(30)), 1)}


def test_a_backlog_survives_a_restart(folder: Path) -> None:
    """Rows that wait in the log still count, before the first step and after it."""
    with Service(settings(folder)) as first:
        first.pause(60)
        first.push("orders", ORDERS)
        first.stop(now=True)
    second = Service(settings(folder, "input.max_backlog_rows=3"))
    with pytest.raises(OverloadedError, match="backlog_rows=3 max_backlog_rows=3"):
        second.push("orders", ORDERS)
    second.start(timeout_s=60)
    second.wait_until_processed(Position(table="orders", partition=0, first=2, last=3), 60)
    second.wait_until_processed(second.push("orders", ORDERS), 60)
    second.stop()


def test_a_repeated_push_counts_once(service: Service) -> None:
    first = service.push("orders", ORDERS, producer=Producer(id="p", sequence=1))
    again = service.push("orders", ORDERS, producer=Producer(id="p", sequence=1))
    assert again == first
    assert again.repeated


def test_another_circuit_is_refused_with_the_node(folder: Path) -> None:
    with Service(settings(folder)):
        pass
    (folder / "circuit2.py").write_text(CIRCUIT.replace("> 500", "> 501"))
    with pytest.raises(CircuitError, match="501"):
        Service(settings(folder, "pipeline.circuit=circuit2.py:pipeline"))


def test_an_ended_service_says_so(folder: Path) -> None:
    service = Service(settings(folder))
    with pytest.raises(UnavailableError, match="not started"):
        service.read_view("large")
    service.start(timeout_s=60)
    service.stop()
    with pytest.raises(UnavailableError, match="has ended"):
        service.read_view("large")


def test_two_services_on_one_pipeline(folder: Path) -> None:
    """The second fences the first, which ends with the fact and does no harm."""
    first = Service(settings(folder))
    first.start(timeout_s=60)
    second = Service(settings(folder))
    second.start(timeout_s=60)
    first.push("orders", ORDERS)
    finish = first.wait_for_end(60)
    assert finish is not None
    assert finish.code == "fenced"
    second.wait_until_processed(second.push("orders", ORDERS.slice(0, 1)), 60)
    assert rows(second) == {"a": (1, 10, 1), "b": (2, 601, 1)}
    second.stop()
    first.close()


def test_who_claims_late_knows_what_others_have_done_since_it_was_made(folder: Path) -> None:
    late = Service(settings(folder))
    with Service(settings(folder)) as first:
        first.wait_until_processed(first.push("orders", ORDERS), 60)
        first.rescale(3, timeout_s=60)
        first.rescale(1, timeout_s=60)
    with late:
        assert len(late.layout().workers) == 1
        assert rows(late) == {"a": (1, 10, 1), "b": (2, 601, 1)}


def test_a_coordinator_that_idles_sees_that_it_was_replaced(folder: Path) -> None:
    first = Service(settings(folder))
    first.start(timeout_s=60)
    with Service(settings(folder)):
        finish = first.wait_for_end(60)
    assert finish is not None
    assert finish.code == "fenced"
    first.close()


def test_a_log_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    log = EventsLog(tmp_path / "log", SystemClock())
    log._lines.stream.close()
    log._lines.stream = Path("/dev/full").open("a")  # type: ignore[assignment]  # noqa: SIM115 - closed by the log
    log.noted(RolledBack(failures=1))
    log.noted(RolledBack(failures=2))
    log.close()
    assert '"failures": 2' in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (['input.topics={ordrs = "x"}', "input.bootstrap=x"], "input.topics names ordrs"),
        (['input.topics={ordrs = "x"}'], "topics need the addresses of brokers"),
        (['output.topics={nothing = "x"}'], "output.topics names nothing"),
        (['output.keys={large = "nothing"}'], "output.keys names large.nothing"),
    ],
)
def test_settings_name_tables_and_views_that_are_there(folder: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_module.load_plan(settings(folder, *overrides))
    build_module.load_plan(settings(folder, 'output.topics={dead_letters = "x", large = "y"}'))


def test_whatever_a_look_for_input_raises_is_a_failure_like_others(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, planted = EmbeddedInputLog.ends, ["planted"]

    def ends(self: EmbeddedInputLog) -> Any:
        if planted and threading.current_thread().name == "dbsp-event-loop":
            raise KeyError(planted.pop())
        return real(self)

    monkeypatch.setattr(EmbeddedInputLog, "ends", ends)
    assert service.live_status.wait_for(lambda now: now.past_error is not None or now.ended, 60)
    past = service.snapshot.past_error
    assert past is not None
    assert (past.message, service.snapshot.last_error, service.snapshot.rollbacks) == ("KeyError: 'planted'", None, 1)
    service.wait_until_processed(service.push("orders", ORDERS), 60)
    assert rows(service) == {"a": (1, 10, 1), "b": (2, 601, 1)}


def test_a_disk_without_room_is_said_to_be_one(folder: Path) -> None:
    """It is no bug of ours, and what to do stands there; what was pushed is there when there is room again."""

    class Full:
        def __init__(self, runtime: Any) -> None:
            self._runtime = runtime

        def __getattr__(self, name: str) -> Any:
            if name == "run_step":
                raise OSError(errno.ENOSPC, "No space left on device")
            return getattr(self._runtime, name)

    config = settings(folder, "step.failures_max=0")
    service = Service(
        config, build_module.build(config, wrap=lambda name, part: Full(part) if name == "runtime" else part)
    )
    service.start(timeout_s=60)
    position = service.push("orders", ORDERS)
    finish = service.wait_for_end(60)
    assert finish is not None
    assert finish.code == "unavailable"
    assert "No space left on device; free space on the disks of data_dir" in finish.message
    service.stop(quiet=True)
    with Service(settings(folder)) as again:
        again.wait_until_processed(position, 60)
        assert again.read_view("large", 60).table.num_rows == 1
