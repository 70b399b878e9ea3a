"""The same rows by the same key are kept once: the answers stay right, and the state falls."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbsp
from dbsp.plan.explain import explain
from dbsp.plan.plan import Plan
from dbsp.plan.planner import plan
from dbsp.steps.segment import _NodeState
from dbsp.trace.spine import Spine
from dbsp.zset.hashing import narrow_hash
from tests.laws.families import indexes
from tests.laws.relation import Relation, base
from tests.laws.test_equalities import FULL_HASH, compare, storm
from tests.pace import examples

leaves = st.sampled_from(["t", "u"]).map(base)
shared = st.one_of(indexes.extend(leaves))


def borrowed(made: Plan) -> int:
    """How many traces nodes read that are not theirs."""
    return sum(trace_owner is not None for node in made.nodes for trace_owner in node.trace_owners)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(shared, st.integers(0, 2**32), st.integers(2, 6), st.integers(1, 5), st.sampled_from([FULL_HASH, FULL_HASH, 2]))
def test_shared_traces_in_storms(relation: Relation, seed: int, steps: int, workers: int, bits: int) -> None:
    """Restarts, rescales and colliding hashes among them; every one of these plans shares something or is over a table's key."""
    made = plan(dbsp.circuit("generated", {"v": relation.stream}))
    if not relation.operators[-1].startswith("keyed"):
        assert borrowed(made) > 0, relation.operators
    with narrow_hash(bits) if bits < FULL_HASH else nullcontext():
        compare(relation, storm(seed, steps), workers)


def replayed(make: Any) -> None:
    for seed in range(4):
        compare(make(), storm(seed, 4), 2)


@pytest.mark.parametrize(
    "make", [lambda: indexes.itself(base("t"), False), lambda: indexes.star(base("t"), base("u"), "left")]
)
def test_a_borrower_that_sees_the_step_too_early_is_found(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: what was added to a trace in this step is in what its borrowers read."""
    honest = _NodeState.spine

    def early(self: _NodeState, index: int) -> Spine:
        spine, trace = honest(self, index), self.node.traces[index]
        late = self.node.trace_owner(index) is None or trace.id not in self.changes
        return spine if late else spine.with_batch(self.changes[trace.id])

    replayed(make)
    monkeypatch.setattr(_NodeState, "spine", early)
    with pytest.raises(AssertionError):
        replayed(make)


t = dbsp.table("t", {"k": dbsp.INT64, "x": dbsp.INT64, "y": dbsp.STRING, "z": dbsp.STRING})
s = dbsp.table("s", {"k": dbsp.INT64, "w": dbsp.INT64})
u = dbsp.table("u", {"k": dbsp.INT64, "v": dbsp.STRING, "n": dbsp.INT64}, primary_key="k")
ROWS = 100
BY = dbsp.OrderBy("x")
KEPT: dict[str, tuple[dict[str, Any], int]] = {
    "both sides of a self join": ({"v": t.join(t, on="k").select("x", "y_right")}, 1),
    "joins with columns of their own": (
        {"a": t.join(s, on="k").select("x", "w"), "b": s.join(t, on="k", how="left").select("w", "y")}, 3  # and rows per key
    ),
    "a semi join's left side and a join's": (
        {"a": t.join(s, on="k", how="semi").select("x"), "b": t.join(s, on="k").select("z", "w")}, 3  # and rows per key
    ),
    "a table by its primary key": ({"a": t.join(u, on="k").select("x", "n")}, 2),
    "a table by its primary key, read two segments later": ({"a": u.join(u, on={"n": "k"}).select("v", "v_right")}, 2),
    "two fronts": ({"a": t.top_k(1, by=BY, partition_by="k"), "b": t.top_k(2, by=BY, partition_by="k")}, 1),
    "a row number and a front": (
        {"a": t.top_k(1, by=BY, partition_by="k"), "b": t.with_row_number("n", BY, "k")}, 1
    ),
    "not where one needs the key alone": ({"a": t.join(s, on="k").select("x"), "b": s.join(t, on="k").select("w")}, 4),
    "not where nulls count": (
        {"a": t.join(s, on="k").select("x", "w"), "b": t.join(s, on="k", null_safe=True).select("x", "w")}, 4
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_rows_are_kept_as_often_as_needed(name: str) -> None:
    """Each table holds 100 rows with keys of their own, so 100 rows of state are one trace."""
    views, times = KEPT[name]
    with dbsp.open(dbsp.circuit("kept", views, materialize=False), workers=2) as run:
        for table in run.plan.tables:
            values = {"k": range(ROWS), "x": range(ROWS), "n": range(ROWS), "w": range(ROWS)}
            texts = {key: [f"text {number}" for number in range(ROWS)] for key in ("y", "z", "v")}
            columns = {name: list((values | texts)[name]) for name in table.schema.names}
            run.push(table.name, [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)])
        run.step()
        run.step()
        assert sum(total.state_rows for total in run.totals.by_node.values()) == times * ROWS


def test_explain_says_whose_trace_it_is() -> None:
    text = explain(plan(dbsp.circuit("c", {"a": u.join(u, on={"n": "k"}).select("v", "v_right")}, materialize=False)))
    lines = [line.strip().split("  at ")[0] for line in text.splitlines()]
    at = next(index for index, line in enumerate(lines) if " join on " in line)
    assert lines[at + 1 : at + 3] == ["trace 1 by (n) with (v)", "trace 0 of #2, by (k)"]
