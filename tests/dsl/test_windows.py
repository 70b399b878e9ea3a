"""Windows as users write them: refusals that say what to do, types, the error policy, how rows travel."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

import dbsp
from dbsp.errors import CircuitError

t = dbsp.table("t", {"k": dbsp.STRING, "at": dbsp.TIMESTAMP, "day": dbsp.DATE, "x": dbsp.INT64, "f": dbsp.FLOAT64})


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda: t.window("k").with_columns(n=dbsp.row_number()), "row_number needs an order"),
        (lambda: t.window("k").with_columns(n=dbsp.rolling(dbsp.sum("x"), rows=2)), "sum needs an order"),
        (lambda: t.with_row_number("n", order_by=[]), "with_row_number needs an order"),
        (lambda: t.limit(3, by=[]), "top_k needs an order"),
        (lambda: t.limit(3, by="x", offset=-1), "offset=-1"),
        (lambda: t.window("z", "x"), 'no such column: column="z"'),
        (lambda: t.window("k", "x").with_columns(), "a window without a function"),
        (lambda: t.window("k", "x").with_columns(n=dbsp.sum("x")), "an aggregate over a window needs a frame"),
        (lambda: t.window("k", "x").with_columns(n=dbsp.col("x")), "not a window function"),
        (lambda: t.window("k", "x").with_columns(x=dbsp.rank()), "under the name of a column"),
        (lambda: t.window("k", "x").with_columns(n=dbsp.lag("z")), 'no such column: column="z"'),
        (lambda: t.window("k", "x").with_columns(n=dbsp.lag("x", default="none")), "default has another type"),
        (lambda: dbsp.lag("x", 0, ignore_nulls=True), "lag takes a whole number: got=0 least=1"),
        (lambda: dbsp.nth_value("x", 0), "nth_value takes a whole number: got=0 least=1"),
        (lambda: dbsp.lag("x", -1), "lag takes a whole number: got=-1"),
        (lambda: dbsp.ntile(0), "ntile takes a whole number: got=0"),
        (lambda: dbsp.rolling(dbsp.sum("x")), "either rows or a range"),
        (lambda: dbsp.rolling(dbsp.sum("x"), rows=1, range=1), "either rows or a range"),
        (lambda: dbsp.rolling(dbsp.sum("x"), rows=(1, -2)), "a frame ends before it starts"),
        (lambda: dbsp.rolling(dbsp.sum("x"), rows=1.5), "counted in whole numbers"),
        (
            lambda: dbsp.rolling(dbsp.linear_aggregate("x", map=abs, finish=abs, type=dbsp.INT64), rows=1),
            "rolling takes an aggregate of these: got=abs",
        ),
        (lambda: dbsp.rolling("x", rows=1), "rolling takes an aggregate"),
        (lambda: rolled("f", 1), "values have distances"),
        (lambda: rolled("k", 1), "values have distances"),
        (lambda: rolled("at", 5), "does not fit the order column"),
        (lambda: rolled("x", dbsp.minutes(5)), "does not fit the order column"),
        (lambda: rolled("day", dbsp.hours(5)), "does not fit the order column"),
        (lambda: rolled("x", (5, -6)), "a frame ends before it starts: range=(5, -6)"),
        (lambda: rolled("day", (-dbsp.days(3), dbsp.days(2))), "a frame ends before it starts"),
    ],
)
def test_it_is_refused_where_it_is_written(write: Callable[[], Any], message: str) -> None:
    with pytest.raises(CircuitError) as refused:
        write()
    assert message in str(refused.value)
    assert "test_windows.py" in str(refused.value)


def rolled(order: str, bound: Any) -> Any:
    return t.window("k", order).with_columns(n=dbsp.rolling(dbsp.count(), range=bound))


def test_types_and_nulls() -> None:
    seen = t.window("k", "x").with_columns(
        n=dbsp.row_number(),
        prev=dbsp.lag(dbsp.col("x") * 2),
        sure=dbsp.lead("k", default="none"),
        part=dbsp.percent_rank(),
        s=dbsp.rolling(dbsp.sum("x"), rows=1),
        m=dbsp.rolling(dbsp.min("at").where(dbsp.col("x") > 1), rows=(None, 0)),
    )
    assert str(seen.schema) == (
        "(k: string, at: timestamp[us], day: date32[day], x: int64, f: double, n: int64 not null, prev: int64,"
        " sure: string, part: double not null, s: int64, m: timestamp[us])"
    )


def test_a_range_of_time_counts_what_lies_in_it() -> None:
    view = t.window("k", "at").select("k", n=dbsp.rolling(dbsp.count(), range=dbsp.minutes(5)))
    days = t.window("k", dbsp.desc("day")).select("k", n=dbsp.rolling(dbsp.count(), range=(0, dbsp.days(1))))
    start = dt.datetime(2024, 1, 1, 9)
    with dbsp.open(dbsp.circuit("demo", {"v": view, "d": days})) as run:
        for minute in (0, 5, 6, 30):
            at = start + dt.timedelta(minutes=minute)
            day = start.date() + dt.timedelta(days=minute // 6)
            run.push("t", [{"k": "a", "at": at, "day": day, "x": 1, "f": 0.0}])
        got = run.step()
        assert got["v"].to_rows() == [(("a", 1), 2), (("a", 2), 2)]
        assert sorted(got["d"].to_rows()) == [(("a", 1), 1), (("a", 2), 2), (("a", 3), 1)]


def test_a_window_without_an_order_is_the_whole_partition() -> None:
    view = t.window("k").select("k", "x", total=dbsp.rolling(dbsp.sum("x"), rows=(None, None)))
    with dbsp.open(dbsp.circuit("demo", {"v": view})) as run:
        run.push("t", [row("a", 1), row("a", 2), row("b", 5)])
        assert sorted(run.step()["v"].to_rows()) == [(("a", 1, 3), 1), (("a", 2, 3), 1), (("b", 5, 5), 1)]
        run.delete("t", [row("a", 1)])
        assert sorted(run.step()["v"].to_rows()) == [(("a", 1, 3), -1), (("a", 2, 2), 1), (("a", 2, 3), -1)]


def row(k: str, x: int) -> dict[str, Any]:
    return {"k": k, "at": None, "day": None, "x": x, "f": None}


def test_lists_and_structs_are_counted_and_the_commonest_struct_is_found() -> None:
    kinds = {"at": dbsp.INT64, "names": dbsp.list_of(dbsp.STRING), "place": dbsp.struct_of({"x": dbsp.INT64})}
    table = dbsp.table("seen", kinds)
    view = table.window(order_by="at").select(
        "at",
        names=dbsp.rolling(dbsp.count_distinct("names"), rows=2),
        places=dbsp.rolling(dbsp.count_distinct("place"), rows=2),
        usual=dbsp.rolling(dbsp.mode("place"), rows=2),
    )
    rows = [
        {"at": 1, "names": ["a", None], "place": {"x": 1}},
        {"at": 2, "names": [], "place": {"x": None}},
        {"at": 3, "names": ["a", None], "place": {"x": None}},
        {"at": 4, "names": None, "place": None},
    ]
    with dbsp.open(dbsp.circuit("demo", {"v": view})) as run:
        run.push("seen", rows)
        run.step()
        one, none = {"x": 1}, {"x": None}
        assert [r for r, _ in run.view("v").to_rows()] == [
            (1, 1, 1, one),
            (2, 2, 2, one),
            (3, 2, 2, none),
            (4, 2, 1, none),
        ]
        run.delete("seen", rows[1:2])
        run.step()
        assert [r for r, _ in run.view("v").to_rows()] == [(1, 1, 1, one), (3, 1, 2, one), (4, 1, 2, one)]


BIG = 2**63 - 1


def test_a_sum_that_does_not_fit_leaves_and_comes_back() -> None:
    view = t.window("k", "x").select("k", "x", total=dbsp.rolling(dbsp.sum("x"), rows=1))
    with dbsp.open(dbsp.circuit("demo", {"v": view})) as run:
        run.push("t", [row("a", 5), row("a", BIG)])
        assert run.step()["v"].to_rows() == [(("a", 5, 5), 1)]
        letters = run.dead_letters()
        assert len(letters) == 1
        run.push("t", [row("a", 7), row("b", 1)])
        assert sorted(run.step()["v"].to_rows()) == [(("a", 7, 12), 1), (("b", 1, 1), 1)]
        assert len(run.dead_letters()) == 1
        run.delete("t", [row("a", 7), row("a", 5)])
        assert sorted(run.step()["v"].to_rows()) == [(("a", 5, 5), -1), (("a", 7, 12), -1), (("a", BIG, BIG), 1)]


def test_a_sum_that_does_not_fit_is_null_if_so_asked() -> None:
    view = t.window("k", "x").select("k", "x", total=dbsp.rolling(dbsp.sum("x"), rows=1))
    with dbsp.open(dbsp.circuit("demo", {"v": view}, error_policy="null")) as run:
        run.push("t", [row("a", 5), row("a", BIG)])
        assert sorted(run.step()["v"].to_rows()) == [(("a", 5, 5), 1), (("a", BIG, None), 1)]
        assert not run.dead_letters()


def test_the_first_of_all_rows_are_first_taken_in_parts() -> None:
    top = t.top_k(3, by=dbsp.desc("x"), rank="place")
    with dbsp.open(dbsp.circuit("demo", {"v": top}), workers=3, partitions=3) as run:
        for partition in range(3):
            run.push("t", [row(f"{partition}", x) for x in range(partition, 3000, 3)], partition=partition)
        assert [r[3] for r, _ in sorted(run.step()["v"].to_rows(), key=str)] == [2997, 2998, 2999]
        run.delete("t", [row("2", 2999)], partition=0)
        changed = {(r[3], r[5]): w for r, w in run.step()["v"].to_rows()}
        assert changed == {(2999, 1): -1, (2998, 2): -1, (2998, 1): 1, (2997, 3): -1, (2997, 2): 1, (2996, 3): 1}
        parts, last = (node for node in run.plan.nodes if node.name.startswith("top_k"))
        spread, gathered = ([total.rows_in for total in run.totals.of(node.id)] for node in (parts, last))
    assert sum(spread) == 3001
    assert max(spread) < 3001 / 2, "the rows are spread over the workers"
    assert sum(gathered) <= 64 * 3 + 2, "only the first ones of each part meet on one worker"
