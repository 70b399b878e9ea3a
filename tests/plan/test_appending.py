"""Append-only tables in plans: the same answers as without the declaration, from less state."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import dbsp
from dbsp.circuit.circuit import Circuit
from dbsp.plan.explain import explain
from dbsp.plan.planner import plan

COLUMNS = {"k": dbsp.STRING, "x": dbsp.INT64, "y": dbsp.INT64}
Make = Callable[[dbsp.Stream], dbsp.Stream]
KEEPS_LESS: dict[str, Make] = {
    "min": lambda t: t.group_by("k").aggregate(v=dbsp.min("x")),
    "max": lambda t: t.group_by("k").aggregate(v=dbsp.max("x")),
    "arg_min": lambda t: t.group_by("k").aggregate(v=dbsp.arg_min("y", "x")),
    "arg_max": lambda t: t.group_by("k").aggregate(v=dbsp.arg_max("y", "x")),
    "first": lambda t: t.group_by("k").aggregate(v=dbsp.first("x", order_by=["y", "x"])),
    "last": lambda t: t.group_by("k").aggregate(v=dbsp.last("x", order_by="y")),
    "where": lambda t: t.group_by("k").aggregate(v=dbsp.max("x").where(dbsp.col("y") > 2)),
    "both ends": lambda t: t.group_by("k").aggregate(v=dbsp.min("x"), w=dbsp.max("x")),
    "both ends, ties": lambda t: t.group_by("k").aggregate(v=dbsp.arg_max("x", "y"), w=dbsp.arg_min("x", "y")),
    "both ends, nulls": lambda t: t.group_by("k").aggregate(
        v=dbsp.first("x", order_by="y"), w=dbsp.last("x", order_by="y")
    ),
    "no keys": lambda t: t.group_by().aggregate(v=dbsp.min("x")),
    "top_k": lambda t: t.top_k(2, by=dbsp.desc("x"), partition_by="k"),
    "top_k with rank and offset": lambda t: t.top_k(2, by="x", partition_by="k", rank="n", offset=1),
    "top_k of all": lambda t: t.top_k(2, by="x", offset=1),
    "after a union and a filter": lambda t: (
        t.union(t.filter(dbsp.col("x") > 3)).group_by("k").aggregate(v=dbsp.max("x"))
    ),
    "after a join": lambda t: t.join(t, on="k", suffix="_2").top_k(1, by=["x", "x_2"], partition_by="k"),
    "after a distinct": lambda t: t.distinct().top_k(1, by="x", partition_by="k"),
}


def circuit(make: Make, append_only: bool) -> Circuit:
    return dbsp.circuit("c", {"v": make(dbsp.table("t", COLUMNS, append_only=append_only))}, materialize=False)


def row(random: Random) -> dict[str, Any]:
    return {
        "k": random.choice(["a", "b", None]),
        "x": random.choice([None, *range(40)]),
        "y": random.choice([None, *range(6)]),
    }


def played(make: Make, append_only: bool, seed: int) -> tuple[list[Any], int]:
    """The bytes of every step's answer, and the rows of state at the end."""
    random, answers = Random(seed), []
    with dbsp.open(circuit(make, append_only), workers=1) as run:
        for step in range(12):
            run.push("t", [row(random) for _ in range(30)])
            answers.append(run.step()["v"].batch.to_rows())
            if step == 6:
                run.checkpoint()
                run.restart()
        run.push("t", [row(random)])
        answers.append(run.step()["v"].batch.to_rows())
        return answers, sum(total.state_rows for total in run.totals.by_node.values())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", KEEPS_LESS)
def test_the_same_answers_from_less_state(name: str, seed: int) -> None:
    whole, rows = played(KEEPS_LESS[name], False, seed)
    less, fewer = played(KEEPS_LESS[name], True, seed)
    assert less == whole
    assert fewer < rows


def test_a_first_row_that_another_one_displaces_is_not_kept() -> None:
    """Each step has a row that comes before those that there were."""
    table = dbsp.table("t", COLUMNS, append_only=True)
    view = table.group_by("k").aggregate(v=dbsp.first("x", order_by="y"))
    with dbsp.open(dbsp.circuit("c", {"v": view}, materialize=False)) as run:
        for step in range(60):
            run.push("t", [{"k": "a", "x": step, "y": -step}])
            run.step()
        assert sum(total.state_rows for total in run.totals.by_node.values()) < 15


LOSES: dict[str, Make] = {
    "group_by": lambda t: t.group_by("k").aggregate(v=dbsp.count()),
    "top_k": lambda t: t.top_k(1, by="x", partition_by="k"),
    "left join": lambda t: t.join(t.select("k", z="x"), on="k", how="left"),
    "anti join": lambda t: t.join(t.filter(dbsp.col("x") > 1), on="k", how="anti"),
    "difference": lambda t: t.difference(t.filter(dbsp.col("x") > 1)),
}
KEEPS: dict[str, Make] = {
    "select": lambda t: t.select("k", z=dbsp.col("x") + 1),
    "filter": lambda t: t.filter(dbsp.col("x") > 1),
    "union": lambda t: t.union(t),
    "join": lambda t: t.join(t, on="k", suffix="_2"),
    "semi join": lambda t: t.join(t.filter(dbsp.col("x") > 1), on="k", how="semi"),
    "distinct": lambda t: t.distinct(),
}


@pytest.mark.parametrize("name", [*LOSES, *KEEPS])
def test_what_keeps_the_fact(name: str) -> None:
    make = (LOSES | KEEPS)[name]
    view = plan(circuit(make, True)).views[0].node
    assert plan(circuit(make, True)).nodes[view].appends == (name in KEEPS)
    assert not any(node.appends for node in plan(circuit(make, False)).nodes)


def test_explain_shows_it() -> None:
    top = explain(plan(circuit(KEEPS_LESS["top_k"], True)))
    assert [line.split(" ")[2] for line in top.splitlines() if "append-only" in line.split("  at ")[0]] == ["#0", "#1"]
    windows = dbsp.table("t", {"at": dbsp.TIMESTAMP}, watermark={"at": dbsp.minutes(1)}, append_only=True)
    counts = windows.tumble("at", dbsp.minutes(1)).group_by("window_end").aggregate(n=dbsp.count())
    text = explain(plan(dbsp.circuit("c", {"v": counts.final()}, materialize=False)))
    assert "closes by at" in text
    assert "until window_end is closed" in text
