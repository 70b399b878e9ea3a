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
from dbsp.errors import DbspError
from dbsp.plan.changes import CircuitChange
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
