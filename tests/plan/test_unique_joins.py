"""Where a join is a unique one, and where it must not be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import dbsp
from dbsp import core
from dbsp.operators.joins.unique_join import UniqueJoin
from dbsp.plan.explain import explain
from dbsp.plan.planner import plan

ITEM = {"id": dbsp.INT64, "part": dbsp.INT64, "seller": dbsp.INT64}
many = dbsp.table("many", {"of": dbsp.INT64, "x": dbsp.INT64})
item = dbsp.table("item", ITEM, primary_key="id", append_only=True)
pair = dbsp.table("pair", ITEM, primary_key=["id", "part"], append_only=True)
Make = Callable[[], Any]
UNIQUE: dict[str, Make] = {
    "the key": lambda: many.join(item, left_on="of", right_on="id"),
    "on the left": lambda: item.join(many, left_on="id", right_on="of"),
    "below filters and new names": lambda: many.join(
        item.filter(dbsp.col("part") > 1).rename({"id": "number"}), left_on="of", right_on="number"
    ),
    "of two columns": lambda: many.join(pair, left_on=["of", "x"], right_on=["id", "part"]),
}
PLAIN: dict[str, Make] = {
    "another column": lambda: many.join(item, left_on="of", right_on="seller"),
    "half of a key": lambda: many.join(pair, left_on="of", right_on="id"),
    "a changed key": lambda: many.join(item.with_columns(id=dbsp.col("id") + 1), left_on="of", right_on="id"),
    "another column under the key's name": lambda: many.join(
        item.select("part", id="seller"), left_on="of", right_on="id"
    ),
    "rows more than once": lambda: many.join(item.union(item), left_on="of", right_on="id"),
    "rows that may be replaced": lambda: many.join(
        dbsp.table("upserted", ITEM, primary_key="id"), left_on="of", right_on="id"
    ),
    "no key": lambda: many.join(dbsp.table("bag", ITEM, append_only=True), left_on="of", right_on="id"),
    "null-safe": lambda: many.join(item, left_on="of", right_on="id", null_safe=True),
    "a left join": lambda: many.join(item, left_on="of", right_on="id", how="left"),
    "within a step": lambda: core.lifted_join(many, item, on={"of": "id"}),
}


def uniques(make: Make) -> int:
    """How many joins of the plan are unique ones."""
    made = plan(dbsp.circuit("c", {"v": make()}, materialize=False))
    return sum(isinstance(node.operator, UniqueJoin) for node in made.nodes)


@pytest.mark.parametrize("name", UNIQUE)
def test_a_join_on_a_tables_key_is_a_unique_one(name: str) -> None:
    assert uniques(UNIQUE[name]) == 1


@pytest.mark.parametrize("name", PLAIN)
def test_others_are_not(name: str) -> None:
    assert uniques(PLAIN[name]) == 0


def test_explain_says_what_is_kept_and_whose_the_keys_are() -> None:
    circuit = dbsp.circuit(
        "c", {"v": many.join(item, left_on="of", right_on="id").select("x", "part")}, materialize=False
    )
    lines = [line.strip().split("  at ")[0] for line in explain(plan(circuit)).splitlines()]
    first = next(at for at, line in enumerate(lines) if " first of each (id) of " in line)
    assert lines[first + 1] == "trace 0 by (id)"
    join = next(at for at, line in enumerate(lines) if " unique join on (of = id): left rows wait" in line)
    assert lines[join + 1 : join + 4] == [
        "trace 1 by (of) with (x)",
        "trace 2 by (id) with (part)",
        "trace 0 of #4, by (id)",
    ]
