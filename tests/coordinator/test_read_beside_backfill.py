"""Views are read while the backfill step of a changed circuit runs, as of the step before it: edited ones with their old rows."""

from __future__ import annotations

import base64
import os
import pickle
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import dbsp
from dbsp.coordinator.build import close_resources, resources_of
from dbsp.coordinator.decisions.states import Facts
from dbsp.coordinator.service import Service
from dbsp.coordinator.serving.answers import ViewRows
from dbsp.coordinator.settings.config import Config
from dbsp.errors import DataError, UnavailableError
from dbsp.io.embedded_output import EmbeddedOutputLog
from dbsp.logs import DeadLetter
from dbsp.plan import stored_views
from dbsp.plan.planner import plan
from dbsp.runtime.runtime import Runtime
from dbsp.store import RETAINED_TRACES
from dbsp.zset.batch import Batch
from tests.coordinator.shop import CIRCUIT, ORDERS, answering
from tests.coordinator.test_edited_views import EDITED, HALVES
from tests.coordinator.test_evolving import MORE, changed, content, pushed, ran, write
from tests.pace import rotating
from tests.spark.waiting import until

pytestmark = pytest.mark.timeout(300)

OLD = {(2, "b", 600): 1}
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
    return write(tmp_path, EDITED, more="[checkpoint]\ninterval_s = 3600\n[query]\nlease_s = 5")


def check_kept(service: Service) -> None:
    found = service.read_view("per_customer", 10)
    assert found.step == 1
    assert {tuple(row.values())[:-1]: row["weight"] for row in found.table.to_pylist()} == KEPT


def check_reads(service: Service) -> None:
    """A view, a key, a page and a query are as of the step before; so is the edited view, with the columns that it had."""
    check_kept(service)
    assert content(service, "large") == OLD
    assert service.read_view("large", 10, key={"customer": "b"}, columns=["amount"]).table.to_pylist() == [
        {"amount": 600, "weight": 1}
    ]
    assert [found.step for found in service.read_views(("per_customer", "large"), 10)] == [1, 1]
    assert service.read_view("per_customer", 10, key={"customer": "b"}).table.num_rows == 1
    with answering(service) as client:
        asked = dbsp.Client(url=str(client.base_url))
        assert asked.query("select sum(amount) as a from per_customer").to_pylist() == [{"a": 611}]
        assert len(asked.view("per_customer").to_pylist()) == 2
        assert asked.query("select customer, orders from large join per_customer using (customer)").to_pylist() == [
            {"customer": "b", "orders": 2}
        ]
        assert asked.view("large").to_pylist() == [{"id": 2, "customer": "b", "amount": 600, "weight": 1}]
    assert service.view_schema("large").names == ["id", "customer", "amount"]


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
    assert content(service, "large") == OLD
    held.may_go_on.set()
    service.start(timeout_s=60)
    until(lambda: service.leases.count == 0, "all leases have ended")
    service.stop()


GROUPED = CIRCUIT.replace("amount=total", "paid=total")
WHOLE = CIRCUIT.replace('"large": large', '"large": large, "all": orders')
WHOLE_EDITED = CIRCUIT.replace('"large": large', '"large": large, "all": orders.filter(col("id") > 1)')
SORTED = CIRCUIT.replace('"large": large}', '"large": large}, sorted_by={"large": "amount"}')


@pytest.mark.parametrize(
    ("before", "after", "view"),
    rotating(
        [
            (CIRCUIT, EDITED, "large"),
            (CIRCUIT, GROUPED, "per_customer"),
            (CIRCUIT, SORTED, "large"),
            (WHOLE, WHOLE_EDITED, "all"),
        ],
        2,
    ),
)
def test_at_any_moment_a_read_gives_the_old_view_or_the_new_one(
    tmp_path: Path, held: Held, before: str, after: str, view: str
) -> None:
    """Also where the view was read from another operator's trace, and where it is only stored otherwise."""
    with Service(write(tmp_path, before)) as service:
        pushed(service, ORDERS)
        old = seen(service, view)
    service = changed(write(tmp_path, after))
    found, refused = list[Any](), list[str]()
    ends, filled = threading.Event(), threading.Event()

    def read(what: Callable[[Service, str], Any]) -> None:
        while not ends.is_set():
            try:
                begins_late = filled.is_set()
                found.append((begins_late, what(service, view)))
            except UnavailableError as error:  # before it has recovered, or at the moment of the change of columns
                refused.append(error.message)

    readers = [threading.Thread(target=read, args=[what]) for what in (seen, asked)]
    service.start(wait=False)
    for reader in readers:
        reader.start()
    assert held.reached.wait(60)
    first = len(found)
    until(lambda: len(found) > first + 4, "both are read while the step runs")
    assert seen(service, view) == asked(service, view) == old
    held.may_go_on.set()
    service.start(timeout_s=60)
    new = seen(service, view)
    filled.set()
    until(lambda: sum(late for late, _ in found) > 4, "both are read after the step")
    ends.set()
    for reader in readers:
        reader.join(60)
    assert new[0] == 2
    wrong = [(late, each) for late, each in found if each not in ((new,) if late else (old, new))]
    assert not wrong
    assert len(refused) <= 2, refused
    service.stop()
    assert retained(service) == set(), "the next version has no old traces"


def retained(service: Service) -> set[int]:
    """The numbers of the traces in the newest version that no step uses."""
    resources = resources_of(service.config, service.built.plan)
    found: set[int] = set()
    for worker in (0, 1):
        database = resources.database(worker)
        newest = max(info.version for info in database.versions())
        with database.read_version(newest) as view:
            assert view.traces
            found |= {number for number in view.traces if number >= RETAINED_TRACES}
    close_resources(service.config.data_dir)
    return found


def seen(service: Service, view: str) -> tuple[int, list[Any]]:
    rows = service.read_view(view, 30)
    return rows.step, sorted(map(repr, rows.table.drop_columns(["weight"]).to_pylist()))


def asked(service: Service, view: str) -> tuple[int, list[Any]]:
    step, table = service.query(f'select * from "{view}"', 30)
    return step, sorted(map(repr, table.to_pylist()))


class Planted:
    """A value whose reading would run a function."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("true",)


def test_a_text_of_anything_but_values_of_the_engine_is_refused() -> None:
    t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.decimal(9, 2)}, primary_key="k")
    views = {"t": t, "sums": t.group_by("x").aggregate(n=dbsp.count(), a=dbsp.avg("x"))}
    made = plan(dbsp.circuit("c", views)).views
    found = stored_views.views_of(stored_views.stored_views(made))
    assert found == {view.name: view for view in made}
    bad = base64.b64encode(zlib.compress(pickle.dumps({"t": pickle.dumps(Planted())}))).decode()
    with pytest.raises(DataError, match=r"not a value of a view: class=posix\.system"):
        stored_views.views_of(bad)
