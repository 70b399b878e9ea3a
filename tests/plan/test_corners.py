"""Circuits at the edges: no columns, no keys, one stream twice, tables alone."""

from __future__ import annotations

from typing import Any

import pytest

import dbsp

t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
u = dbsp.table("u", {"id": dbsp.INT64, "k": dbsp.STRING}, primary_key="id")
ROWS = [{"k": "a", "x": 1}, {"k": "a", "x": 2}, {"k": "b", "x": 1}, {"k": None, "x": 1}]


def run_views(workers: int, **views: Any) -> dict[str, list[tuple[Any, ...]]]:
    with dbsp.open(dbsp.circuit("c", views), workers=workers) as run:
        names = {table.name for table in run.plan.tables}
        for _ in range(2):
            if "t" in names:
                run.push("t", ROWS)
            if "u" in names:
                run.push("u", [{"id": 1, "k": "a"}, {"id": 2, "k": None}])
            run.step()
        if "t" in names:
            run.delete("t", ROWS)
        run.step()
        run.step()
        assert run.dead_letters() == []
        return {name: sorted((row for row, _ in run.view(name).to_rows()), key=repr) for name in views}


@pytest.mark.parametrize("workers", [1, 3])
def test_counts_need_no_columns(workers: int) -> None:
    found = run_views(workers, n=t.aggregate(n=dbsp.count()), m=t.join(u, on="k").aggregate(n=dbsp.count()),
                      p=u.aggregate(n=dbsp.count()))  # fmt: skip
    assert found == {"n": [(4,)], "m": [(2,)], "p": [(2,)]}


@pytest.mark.parametrize("workers", [1, 3])
def test_groups_without_aggregates_are_the_distinct_keys(workers: int) -> None:
    groups = t.group_by("k").aggregate()
    unused = t.group_by("k").aggregate(n=dbsp.count(), s=dbsp.sum("x")).select("k")
    found = run_views(workers, g=groups, h=unused)
    assert found["g"] == found["h"] == [("a",), ("b",), (None,)]


@pytest.mark.parametrize("workers", [1, 3])
def test_a_stream_joined_with_itself_and_added_to_itself(workers: int) -> None:
    found = run_views(workers, j=t.join(t, on="k").aggregate(n=dbsp.count()), w=t.union(t).aggregate(n=dbsp.count()),
                      e=t.difference(t))  # fmt: skip
    assert found == {"j": [(5,)], "w": [(8,)], "e": []}


@pytest.mark.parametrize("workers", [1, 3])
def test_tables_and_one_node_under_two_names_are_views(workers: int) -> None:
    joined = t.join(u, on="k")
    found = run_views(workers, t=t, u=u, a=joined, b=joined)
    assert found["u"] == [(1, "a"), (2, None)]
    assert len(found["t"]) == 4
    assert found["a"] == found["b"] == [("a", 1, 1), ("a", 2, 1)]


@pytest.mark.parametrize("workers", [1, 3])
def test_streams_of_different_depths_meet(workers: int) -> None:
    deep = t.group_by("k").aggregate(n=dbsp.count()).group_by("n").aggregate(groups=dbsp.count())
    shallow = t.select(n="x", groups=dbsp.col("x"))
    top = t.top_k(1, by="x").join(u, on="k").select("k")
    found = run_views(
        workers, u=deep.union(shallow), j=deep.join(t, left_on="groups", right_on="x").select("n", "k"), d=top
    )
    assert found["u"] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert found["j"] == [(1, "a"), (2, "a"), (2, "b"), (2, None)]
    assert found["d"] == [("a",)]
