"""Deletes that overtake their inserts: a row arrives by another partition than its delete, steps later.

Until then it has a weight below zero. **Law** what the steps have given so far is what one step over the net input gives to a
fresh run, whatever that answer is; and once every row has come, it is what DuckDB computes of the tables.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import dbsp
from tests.laws.circuits import each_on_top
from tests.laws.relation import Relation, canonical, recomputed
from tests.laws.relation import t as keyless
from tests.laws.test_equalities import FLOATS, INTEGERS, STRINGS
from tests.pace import examples

STEPS = 5
COLUMNS = {"g": dbsp.INT64, "x": dbsp.INT64, "s": dbsp.STRING, "f": dbsp.FLOAT64}
t, r = dbsp.table("t", COLUMNS), dbsp.table("r", COLUMNS)
window = t.window(partition_by="g", order_by="x")
backward = t.window(partition_by="g", order_by=dbsp.OrderBy("x", True, True))
VIEWS: dict[str, dict[str, Any]] = {
    "places": {
        "number": t.with_row_number("n", "x", "g"),
        "rank": window.with_columns(n=dbsp.rank()),
        "backward": backward.with_columns(n=dbsp.row_number(), m=dbsp.lag("f")),
        "whole": window.with_columns(n=dbsp.dense_rank(), m=dbsp.cume_dist()),
    },
    "windows": {
        "lag": window.with_columns(n=dbsp.lag("f", 2), m=dbsp.lead("s")),
        "edges": window.with_columns(n=dbsp.first_value("f"), m=dbsp.last_value("s")),
        "rolling": window.with_columns(
            n=dbsp.rolling(dbsp.sum("g"), rows=(2, 1)), m=dbsp.rolling(dbsp.max("s"), range=(2, 0))
        ),
        "running": window.with_columns(
            n=dbsp.rolling(dbsp.sum("f"), rows=(None, 0)), m=dbsp.rolling(dbsp.max("s"), range=(None, -1))
        ),
        "remaining": backward.with_columns(
            n=dbsp.rolling(dbsp.avg("g"), rows=(-1, None)), m=dbsp.rolling(dbsp.arg_min("s", "f"), range=(0, None))
        ),
        "totals": window.with_columns(
            n=dbsp.rolling(dbsp.count("s"), rows=(None, None)), m=dbsp.rolling(dbsp.min("x"), rows=(None, None))
        ),
    },
    "top-k": {
        "first": t.top_k(2, by="x", partition_by="g"),
        "offset": t.top_k(2, by=[dbsp.OrderBy("s", True), "x"], partition_by="g", offset=1),
        "ranked": t.top_k(3, by="f", partition_by="g", rank="n"),
        "all": t.limit(3, by=["x", "g"]),
    },
    "as-of": {
        "backward": t.asof_join(r, on="x", by="g"),
        "forward": t.asof_join(r, on="x", by="g", direction="forward", tolerance=2),
        "strict": t.asof_join(r, on="x", by="g", allow_exact_matches=False, how="inner"),
        "by_text": t.asof_join(r, on="x", by="s", direction="forward"),
    },
    "session": {
        "session": t.select("g", "s", at=dbsp.from_epoch(dbsp.col("x") % 100)).session("at", dbsp.seconds(1), "g")
    },
    "joins": {
        "inner": t.join(r, on="g"),
        "full": t.join(r, on="s", how="full"),
        "where": t.join(r, on="g", how="left", suffix="_r", where=dbsp.col("x") < dbsp.col("x_r")),
        "anti": t.join(r, on="g", how="anti"),
        "self": t.join(t, on={"g": "x"}, how="left"),
    },
    "aggregates": {
        "some": t.group_by("g").aggregate(
            n=dbsp.count(), s=dbsp.sum("g"), low=dbsp.min("x"), high=dbsp.max("s"), d=dbsp.count_distinct("s")
        ),
        "ordered": t.group_by("g").aggregate(at=dbsp.arg_min("s", "x"), last=dbsp.last("f", order_by="x")),
        "whole": t.aggregate(n=dbsp.count(), low=dbsp.min("f")),
    },
    "sets": {
        "distinct": t.select("g", "s").distinct(),
        "except": t.select("g", "x").difference(r.select("g", "x"), all=True),
        "both": t.select("g", "x").intersect(r.select("g", "x")),
    },
}
rows = st.fixed_dictionaries({
    "g": st.sampled_from([1, 1, 1, 2, None]),
    "x": st.sampled_from([0, 1, 2, 3, 3, 4, 5, None, 2**63 - 1, -(2**63)]),
    "s": st.sampled_from(["a", "b", "a longer text", "a longer one", None]),
    "f": st.sampled_from([0.0, -0.0, 1.5, float("nan"), None]),
})  # fmt: skip
some_step = st.integers(0, STEPS - 1)
lives = st.lists(st.tuples(st.sampled_from("tr"), rows, st.lists(some_step, max_size=2), st.lists(some_step, max_size=2)),
                 min_size=1, max_size=12)  # fmt: skip
"""Rows of a table, in which steps they come, and in which they go; be it before they come."""


def at_time(table: str, x: int, comes: list[int], goes: list[int]) -> Any:
    return table, {"g": 1, "x": x, "s": "a", "f": 1.5}, comes, goes


IN_FRONT = [at_time("t", 1, [3], [0]), at_time("t", 3, [1], []), at_time("t", 4, [2], []), at_time("t", 0, [4], [])]
"""A delete waits for its insert in front of what is numbered."""
TWICE = [at_time("t", 1, [0], []), at_time("t", 4, [0], []), at_time("r", 0, [0], [1]), at_time("r", 3, [0], [1, 1])]
"""Of two right rows one goes more often than it came, where the other one's reach ends."""
AT_THE_END = [
    at_time("t", 1, [0], []), at_time("t", 2**63 - 1, [0], []), at_time("r", 0, [1], []), at_time("r", 2**63 - 1, [1], []),
    ("r", {"g": 1, "x": 2**63 - 1, "s": "b", "f": 1.5}, [], [0, 0]),
]  # fmt: skip
"""The same at the greatest time, where reach and end are one."""


def play(run: Any, life: list[Any], steps: range) -> Counter[tuple[Any, ...]]:
    """All that happens in these steps as one step; what the views gave."""
    known = {table.name for table in run.plan.tables}
    for wanted, row, comes, goes in life:
        table = wanted if wanted in known else "t"
        for come in (row for step in comes if step in steps):
            run.push(table, [come], partition=0)
        for gone in (row for step in goes if step in steps):
            run.delete(table, [gone], partition=1)
    given: Counter[tuple[Any, ...]] = Counter()
    for view, delta in run.step().items():
        for row, weight in delta.batch.to_rows():
            given[(view, *canonical(row))] += weight
    return given


@pytest.mark.parametrize("family", VIEWS)
@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
@example(life=IN_FRONT, workers=2, at=2)
@example(life=TWICE, workers=1, at=1)
@example(life=AT_THE_END, workers=1, at=1)
@given(life=lives, workers=st.integers(1, 2), at=some_step)
def test_steps_are_one_step_over_the_net_input(family: str, life: list[Any], workers: int, at: int) -> None:
    """After one of the steps, and after the last.

    Medians are left to the law below: where rows are below zero the middle of a group has no meaning, and depends on the steps.
    """
    circuit = dbsp.circuit("overtaken", VIEWS[family])
    seen: Counter[tuple[Any, ...]] = Counter()
    with dbsp.open(circuit, workers=workers, partitions=2) as run:
        for step in range(STEPS):
            for row, weight in play(run, life, range(step, step + 1)).items():
                seen[row] += weight
            if step in (at, STEPS - 1):
                with dbsp.open(circuit, partitions=2) as fresh:
                    expected = play(fresh, life, range(step + 1))
                assert {row: weight for row, weight in seen.items() if weight} == dict(expected)


relations = st.one_of(each_on_top(("t",)))


def history(seed: int) -> tuple[list[tuple[list[dict[str, Any]], list[dict[str, Any]]]], list[dict[str, Any]]]:
    """For each step what comes and what goes, a third of it before it comes; and what is there when all of it has come."""
    random = Random(seed)
    steps: list[tuple[list[dict[str, Any]], list[dict[str, Any]]]] = [([], []) for _ in range(STEPS)]
    there = []
    for _ in range(24):
        row = {"b": random.choice(STRINGS), "a": random.choice(INTEGERS), "f": random.choice(FLOATS)}
        come, go = sorted(random.sample(range(2 * STEPS), 2))
        if random.random() < 1 / 3:
            come, go = go, come
        if come >= STEPS:
            come = STEPS - 1
        steps[come][0].append(row)
        if go < STEPS:
            steps[go][1].append(row)
        else:
            there.append(row)
    return steps, there


@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(relation=relations, seed=st.integers(0, 2**32), workers=st.integers(1, 2))
def test_once_every_row_has_come_the_answer_is_recomputation(relation: Relation, seed: int, workers: int) -> None:
    steps, there = history(seed)
    seen: Counter[tuple[Any, ...]] = Counter()
    with dbsp.open(
        dbsp.circuit("overtaken", {"v": relation.stream, "t": keyless}), workers=workers, partitions=2
    ) as run:
        for came, went in steps:
            run.push("t", came, partition=0)
            run.delete("t", went, partition=1)
            for row, weight in run.step()["v"].batch.to_rows():
                seen[canonical(row)] += weight
    assert {row: weight for row, weight in seen.items() if weight} == recomputed(relation.sql, {"t": there})
