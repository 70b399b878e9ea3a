"""An edited view in outputs whose readers add up the changes: one step retracts its old rows and inserts the new ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbsp
from dbsp.circuit.names import view_of
from dbsp.errors import CircuitError, DbspError
from dbsp.io.connectors.kafka import KafkaOutput
from dbsp.io.formats.json_output import upsert_messages
from dbsp.io.output_part import by_view
from dbsp.plan.changes import CircuitChange
from dbsp.plan.planner import plan
from dbsp.plan.stored_views import retained, retained_traces, stored_views
from dbsp.runtime import backfill as backfilling
from dbsp.runtime import session
from dbsp.runtime.backfill import BackfillSegment
from dbsp.runtime.memory_logs import MemoryOutputLog
from dbsp.store import RETAINED_TRACES
from dbsp.trace import memory
from dbsp.trace.relabel import relabel
from dbsp.zset.batch import Batch
from tests.laws.circuits import relations
from tests.laws.relation import Relation, u
from tests.laws.test_equalities import World, act, actions
from tests.laws.test_evolving import WHOLE, Rows, circuit, is_timed, real_change, weighed
from tests.pace import examples

pytestmark = pytest.mark.timeout(900)


def retracting(run: Any, circuit: Any) -> CircuitChange:
    """Change the circuit as for an output whose readers add up the changes: old rows are retracted, none are forgotten."""
    old: dict[str, Any] = {}

    def change(*given: Any) -> CircuitChange:
        found = real_change(*given)
        old.update(retained({view.name: view for view in run.plan.views}, found.views_edited))
        assert old.keys() == set(found.views_edited), "all are materialized, without functions of a user"
        return replace(found, backfill=replace(found.backfill, taken_back=stored_views(old.values())))

    def relabelled(database: Any, version: int, checkpoint: Any, kept: Any, narrowed: Any) -> Any:
        return relabel(database, version, checkpoint, {**kept, **retained_traces(old.values())}, narrowed)

    with (
        patch.object(session, "change", change),
        patch.object(session, "relabel", relabelled),
        patch.object(MemoryOutputLog, "forget_views", lambda *_: None),
    ):
        return run.evolve(circuit)  # type: ignore[no-any-return]


def named(rows: Any, names: tuple[str, ...]) -> Rows:
    """Rows with the names of their columns, as a reader of JSON sees them."""
    found: Rows = Counter()
    for row, weight in weighed(rows).items():
        found[tuple(zip(names, row[: len(names)], strict=True))] += weight
    return found


def added_up(run: Any, view: str) -> Rows:
    """All changes of a view from the beginning, from every worker that there was."""
    total: Rows = Counter()
    for log in run._resources.outputs.values():
        for parts in log.parts.values():
            for name, part in parts.items():
                if view_of(name) == view:
                    total.update(named(part, part.schema.names))
    return Counter({row: weight for row, weight in total.items() if weight})


def retracted(views: list[Any], history: list[tuple[Any, ...]], every: int, workers: int) -> None:
    """Play the history with an edit of the view `v` after every few steps; readers that only add up have it after each step."""
    first, *later = [circuit({**WHOLE, "v": view}) for view in views]
    with dbsp.open(first, workers=workers, partitions=2) as run:
        run._runtime.encode_parcels, steps = True, 0
        for action in [("step",), *history, *[("step",)] * every * len(later)]:
            act(World(run), action)
            if action != ("step",):
                continue
            steps += 1
            if later and steps % every == 0:
                retracting(run, later.pop(0))
            spec = run.view("v").batch
            assert added_up(run, "v") == named(spec, spec.schema.names)
        assert not later
        run.checkpoint()
        for worker in run.layout.workers:
            newest = max(info.version for info in run._resources.database(worker).versions())
            with run._resources.database(worker).read_version(newest) as view:
                assert all(number < RETAINED_TRACES for number in view.traces), "old traces are kept for one step"
        run.restart()
        run.step()
        spec = run.view("v").batch
        assert added_up(run, "v") == named(spec, spec.schema.names)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(relations().filter(lambda r: not is_timed(r)), min_size=2, max_size=3), st.lists(actions, max_size=25),
    st.integers(1, 4), st.integers(1, 3),
)  # fmt: skip
def test_all_changes_of_an_edited_view_add_up_to_it(
    made: list[Relation], history: list[tuple[Any, ...]], every: int, workers: int
) -> None:
    """Whatever its columns were before and are now, and however often it is edited; restarts and rescales between."""
    retracted([relation.stream for relation in made], history, every, workers)


EDITS = [
    u.filter(dbsp.col("a") > 0), u.filter(dbsp.col("a") > 1), u.group_by("b").aggregate(n=dbsp.count()),
    u.group_by("b").aggregate(n=dbsp.max("a")),
]  # fmt: skip
"""Other rows under the same columns, and other columns; read from a trace of its own, and from that of an aggregate."""
UNRETRACTED: dict[str, tuple[Any, str, Any]] = {
    "old rows are not retracted": (BackfillSegment, "outputs", lambda _self, made, _begun: made),
    "old rows are inserted once more": (Batch, "negate", lambda self: self),
    "old rows under other columns are lost": (backfilling, "former", lambda _view: "elsewhere"),
    "the next version keeps the old traces": (memory, "RETAINED_TRACES", 1 << 40),
}


@pytest.mark.parametrize("plant", UNRETRACTED)
def test_old_rows_that_are_not_retracted_once_are_seen(plant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"f": 0.25}
    history = [("upsert", key, {**row, "b": "xyx"[key], "a": key + 1}) for key in (0, 1, 2)]
    retracted(EDITS, [*history, *[("step",)] * 4], 1, 2)
    monkeypatch.setattr(*UNRETRACTED[plant])
    with pytest.raises((AssertionError, DbspError)):
        retracted(EDITS, [*history, *[("step",)] * 4], 1, 2)


# --- topics in which a message says what the row of a key is now ----------------------------------------------------


def output(*keys: str) -> KafkaOutput:
    return KafkaOutput(bootstrap="nowhere:1", format="upsert", keys={"v": ", ".join(keys), "u": "id"})


def as_tables(run: Any, keys: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The newest messages of all keys where the workers of a step write in one order, or in the other."""
    tables: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    logs = [run._resources.outputs[worker] for worker in sorted(run._resources.outputs)]
    for step in range(run.step_number):
        for table, order in zip(tables, (logs, logs[::-1]), strict=True):
            for log in order:
                for part in by_view(log.parts.get(step, {})).get("v", []):
                    names, rows = upsert_messages(part, keys)
                    table.update(zip(names.to_pylist(), rows.to_pylist(), strict=True))
    return tables


def upserted(first: Any, second: Any, keys: tuple[str, ...]) -> tuple[str | None, bool]:
    """Why the edit is refused, and whether readers have the view, if it is made all the same, in any order of the workers."""
    old, new = (output(*keys).check_circuit(circuit({"u": u, "v": view})) for view in (first, second))
    with dbsp.open(old, workers=3) as run:
        rows = [{"id": key, "b": "xyz"[key % 3], "a": key % 4, "f": 0.5} for key in range(24)]
        run.push("u", rows)
        run.step()
        (before,) = (view for view in run.plan.views if view.name == "v")
        retracting(run, new)
        (now,) = (view for view in run.plan.views if view.name == "v")
        run.push("u", [{**row, "a": row["a"] + 1} for row in rows[::5]])
        run.step()
        whole = run.view("v").batch
        names, expected = upsert_messages(whole, keys)
        view = dict(zip(names.to_pylist(), expected.to_pylist(), strict=True))
        tables = [{key: row for key, row in table.items() if row is not None} for table in as_tables(run, keys)]
        return output(*keys).no_retraction(before, now), all(table == view for table in tables)


STAYS = [
    (u.filter(dbsp.col("a") > 0), u.select("id", twice=dbsp.col("a") * 2), ("id",)),
    (u.select("id", "a"), u.filter(dbsp.col("a") > 2).select("id", "a"), ("id",)),
    (u.group_by("b").aggregate(n=dbsp.count()), u.group_by("b").aggregate(m=dbsp.max("a")), ("b",)),
]
MOVES = (u.group_by("b", "a").aggregate(n=dbsp.count()), u.group_by("b").aggregate(a=dbsp.max("a")), ("b", "a"))


@pytest.mark.parametrize(("first", "second", "keys"), STAYS)
def test_a_key_that_stays_on_its_worker_has_its_row_last(first: Any, second: Any, keys: tuple[str, ...]) -> None:
    assert upserted(first, second, keys) == (None, True)


def test_a_key_that_moves_is_refused_and_would_lose_its_row() -> None:
    assert upserted(*MOVES) == ("the rows of a key move to another worker", False)


def test_another_key_is_refused() -> None:
    def spec(*keys: str) -> Any:
        views = plan(output(*keys).check_circuit(circuit({"u": u, "v": u}))).views
        return next(view for view in views if view.name == "v")

    assert output("id", "b").no_retraction(spec("id"), spec("id", "b")) == "the key of its messages changed"
    assert output("id").no_retraction(spec("id"), spec("id")) is None


def test_an_order_that_moves_rows_of_a_key_is_refused() -> None:
    """Sorted by the amount first, two workers would write the messages of a key whose amount changes."""

    def sorted_by(*columns: str) -> Any:
        return plan(output("id").check_circuit(dbsp.circuit("o", {"v": u}, sorted_by={"v": list(columns)})))

    with pytest.raises(CircuitError, match=r"distributed by the first column of its order.*sorted_by=a,id key=id"):
        sorted_by("a", "id")
    assert sorted_by("id", "a").views
    assert sorted_by("a").views
