"""Kept views are read while the backfill step of a changed circuit runs, as of the step before it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

import dbsp
from dbsp.coordinator.answers import ViewRows
from dbsp.coordinator.config import Config
from dbsp.coordinator.decisions.states import Facts
from dbsp.coordinator.service import Service
from dbsp.errors import UnavailableError
from dbsp.io.embedded_output import EmbeddedOutputLog
from dbsp.logs import DeadLetter
from dbsp.runtime.runtime import Runtime
from dbsp.zset.batch import Batch
from tests.coordinator.shop import CIRCUIT, answering
from tests.coordinator.test_edited_views import EDITED, HALVES
from tests.coordinator.test_evolving import MORE, changed, content, pushed, ran, write
from tests.spark.waiting import until

pytestmark = pytest.mark.timeout(300)

KEPT = {("a", 1, 10): 1, ("b", 2, 601): 1}


class Held:
    """Stops the backfill step where it writes its outputs, when it has added to the traces of the first worker."""

    def __init__(self) -> None:
        self.reached, self.may_go_on = threading.Event(), threading.Event()
        self.fails = False


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    found, write_part = Held(), EmbeddedOutputLog.write

    def stopped(
        self: EmbeddedOutputLog, epoch: int, step: int, parts: Mapping[str, Batch], dead: Sequence[DeadLetter]
    ) -> None:
        if step == 1 and not found.may_go_on.is_set():
            found.reached.set()
            assert found.may_go_on.wait(60)
            if found.fails:
                raise UnavailableError("the place of the outputs is away")
        write_part(self, epoch, step, parts, dead)

    monkeypatch.setattr(EmbeddedOutputLog, "write", stopped)
    yield found
    found.may_go_on.set()


@pytest.fixture
def config(tmp_path: Path) -> Config:
    ran(write(tmp_path, CIRCUIT))
    return write(tmp_path, EDITED, more="[checkpoint]\ninterval_s = 3600\n[query]\nlease_s = 1")


def check_kept(service: Service) -> None:
    found = service.read_view("per_customer", 10)
    assert found.step == 1
    assert {tuple(row.values())[:-1]: row["weight"] for row in found.table.to_pylist()} == KEPT


def check_reads(service: Service) -> None:
    """A view, a key, a page and a query are as of the step before; a view that is not filled yet is waited for."""
    check_kept(service)
    assert service.read_view("per_customer", 10, key={"customer": "b"}).table.num_rows == 1
    with answering(service) as client:
        asked = dbsp.Client(url=str(client.base_url))
        assert asked.query("select sum(amount) as a from per_customer").to_pylist() == [{"a": 611}]
        assert len(asked.view("per_customer").to_pylist()) == 2
    with pytest.raises(UnavailableError, match="no answer in time"):
        service.read_view("large", 0.2)
    with pytest.raises(UnavailableError, match="no answer in time"):
        service.read_views(("per_customer", "large"), 0.2)


def test_kept_views_are_read_while_the_edited_one_is_filled(config: Config, held: Held) -> None:
    """However long it takes: the lease of these reads has no end of its own, and no reader of it outlives the step by much."""
    service = changed(config)
    service.start(wait=False)
    assert held.reached.wait(60)
    assert service.snapshot.state == "Filling"
    check_reads(service)
    threading.Event().wait(1.5 * service.config.query.lease_s)
    check_kept(service)
    held.may_go_on.set()
    service.start(timeout_s=60)
    assert content(service, "large") == HALVES
    assert service.read_view("per_customer", 10).step == 2
    pushed(service, MORE)
    until(lambda: service.leases.count == 0, "the lease beside the step has ended")
    service.stop()


def test_and_when_it_runs_again(config: Config, held: Held) -> None:
    """After an error, which is a rollback with an epoch of its own, and after a process that ended in the step."""
    service = changed(config)
    service.start(wait=False)
    assert held.reached.wait(60)
    held.reached.clear()
    held.fails = True
    held.may_go_on.set()
    until(lambda: service.snapshot.rollbacks > 0, "it rolled back")
    held.fails = False
    service.start(timeout_s=60)
    assert content(service, "large") == HALVES
    service.stop(now=True)

    held.may_go_on.clear()
    again = Service(config)
    again.start(wait=False)
    assert held.reached.wait(60)
    assert again.snapshot.state == "Replaying"
    check_reads(again)
    held.may_go_on.set()
    again.start(timeout_s=60)
    assert content(again, "large") == HALVES
    again.stop()


def test_a_reader_that_came_just_before_is_served_beside_the_step(config: Config, held: Held) -> None:
    """Its question is behind the step in the loop's queue; one that has gone meanwhile leaves no lease."""
    service = changed(config)
    begins, answers = service._loop.backfill_begins, list[ViewRows]()

    def read() -> None:
        answers.append(service.read_view("per_customer", 30))

    reader = threading.Thread(target=read)

    def late(runtime: Runtime, facts: Facts) -> None:
        reader.start()
        until(lambda: bool(service.leases._waiting), "it waits")
        begins(runtime, facts)

    service._loop.backfill_begins = late
    service.start(wait=False)
    assert held.reached.wait(60)
    reader.join(30)
    assert [answer.step for answer in answers] == [1]
    with pytest.raises(UnavailableError, match="no answer in time"):
        service.read_view("large", 0.1)
    held.may_go_on.set()
    service.start(timeout_s=60)
    until(lambda: service.leases.count == 0, "all leases have ended")
    service.stop()
