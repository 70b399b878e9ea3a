"""What joins refuse, what their outputs look like, and how whole circuits with them behave over restarts and rescales."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

import dbsp
from dbsp.errors import CircuitError
from dbsp.plan.explain import explain
from dbsp.plan.planner import plan

left = dbsp.table("a", {"k": dbsp.INT64, "at": dbsp.TIMESTAMP, "x": dbsp.INT64})
right = dbsp.table("b", {"k": dbsp.INT32, "at": dbsp.TIMESTAMP, "y": dbsp.INT64}, primary_key="k")
START = dt.datetime(2024, 1, 1)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: left.join(right, on="k", how="outer"), "no such join: how='outer'"),
        (lambda: left.join(right, on="k", where="x > 1"), "where takes an expression"),
        (lambda: left.join(right, on="k", where=dbsp.col("x") + 1), "where takes a condition"),
        (lambda: left.join(right, on="k", where=dbsp.col("z") > 1), "no such column"),
        (lambda: left.join(right, on="k", how="full", suffix=None), "both sides of a join have this column: column=at"),
        (lambda: left.join(right, on=[]), "as many left as right keys"),
        (lambda: dbsp.join_all([left], on="k"), "at least two streams"),
        (lambda: dbsp.join_all([left, 5], on="k"), "join_all takes streams"),
        (lambda: left.asof_join(right, on="x"), "no such column"),
        (lambda: left.asof_join(right, on=["at", "k"]), "compares one column of each side"),
        (lambda: left.asof_join(right, on="at", tolerance=5), "tolerance must be a duration"),
        (lambda: left.asof_join(right, on="at", tolerance=dbsp.seconds(-5)), "must not be negative"),
        (lambda: left.asof_join(right, on="at", direction="sideways"), "no such direction"),
        (lambda: left.asof_join(right, on="at", how="full"), "no such how"),
        (lambda: left.interval_join(right, on="at"), "needs a bound"),
        (lambda: left.interval_join(right, on="at", within=dbsp.seconds(1), lower=dbsp.seconds(1)), "bounds twice"),
        (lambda: left.interval_join(right, on={"x": "y"}, lower=3, upper=1), "holds nothing"),
        (lambda: left.interval_join(right, on={"x": "y"}, within=dbsp.seconds(1)), "within must be a whole number"),
        (lambda: left.lookup_join(right, on="k", how="right"), "no such how"),
        (left.intersect, "intersect needs another stream"),
        (lambda: left.with_weight("x"), "a name that no column has"),
    ],
)
def test_refusals_name_the_line_and_say_what_to_do(make: Any, says: str) -> None:
    with pytest.raises(CircuitError, match=says) as caught:
        make()
    assert "test_joins.py" in str(caught.value)


@pytest.mark.parametrize(
    ("how", "schema"),
    [
        ("inner", "(k: int64 not null, x: int64, y: int64 not null)"),
        ("left", "(k: int64, x: int64, y: int64)"),
        ("right", "(k: int64 not null, x: int64, y: int64 not null)"),
        ("full", "(k: int64, x: int64, y: int64)"),
        ("semi", "(k: int64 not null, x: int64)"),
        ("anti", "(k: int64, x: int64)"),
    ],
)
def test_nulls_of_the_output(how: str, schema: str) -> None:
    counted = right.select("k", y=dbsp.coalesce(dbsp.col("y"), dbsp.lit(0)))
    assert str(left.select("k", "x").join(counted, on="k", how=how).schema) == schema


def explained(stream: Any) -> str:
    return explain(plan(dbsp.circuit("demo", {"v": stream})))


def test_filters_go_below_where_they_mean_the_same() -> None:
    """A condition on the side that may be null stays above; one on the key of a full join goes to both sides."""
    kept = explained(left.join(right, on="k", how="left").filter(dbsp.col("y").is_null()))
    assert kept.index("left join") < kept.index("filter y.is_null()")
    full = explained(left.join(right, on="k", how="full").filter(dbsp.col("k") > 3))
    assert full.count("(k > 3)") == 2
    one = explained(left.join(right, on="k", how="left").filter(dbsp.col("x") > 3))
    assert one.index("(x > 3)") < one.index("left join")


def test_a_lookup_gives_the_same_after_a_restart_and_at_any_scale() -> None:
    answers = []
    for workers in (1, 3):
        seen: list[Any] = []
        with dbsp.open(dbsp.circuit("demo", {"v": left.lookup_join(right, on="k")}), workers=workers) as run:
            for round_ in range(6):
                run.push("b", [{"k": key, "at": START, "y": round_ * 10 + key} for key in range(round_ % 3, 4)])
                run.push("a", [{"k": key, "at": START, "x": round_} for key in range(5)])
                seen.append(sorted(run.step()["v"].to_rows(), key=str))
                if round_ == 2:
                    run.restart()
                if round_ == 3:
                    run.rescale(2)
            assert not run.dead_letters()
        answers.append(seen)
    assert answers[0] == answers[1]
    assert [len(seen) for seen in answers[0]] == [4] * 6


@pytest.mark.parametrize("kind", ["interval", "left interval"])
def test_rows_too_old_for_any_partner_are_dropped(kind: str) -> None:
    """Under watermarks on both times what a step keeps does not grow with what has passed."""
    a = dbsp.table("p", {"k": dbsp.INT64, "at": dbsp.TIMESTAMP}, watermark={"at": dbsp.seconds(1)})
    b = dbsp.table("q", {"k": dbsp.INT64, "at": dbsp.TIMESTAMP}, watermark={"at": dbsp.seconds(1)})
    how = "left" if "left" in kind else "inner"
    near = a.interval_join(b, on="at", by="k", lower=dbsp.seconds(-2), upper=dbsp.seconds(1), how=how)
    with dbsp.open(dbsp.circuit("demo", {"v": near.group_by("k").aggregate(n=dbsp.count())})) as run:
        kept = []
        for second in range(400):
            rows = [{"k": key, "at": START + dt.timedelta(seconds=second)} for key in range(50)]
            run.push("p", rows)
            run.push("q", rows)
            run.step()
            kept.append(sum(node.state_rows for node in run.totals.by_node.values()))
        answers = sum(n for (_, n), _ in run.view("v").to_rows())
        assert answers >= 50 * 4 * 390
        assert max(kept[200:]) < 1.5 * max(kept[:200])
        assert max(kept) < 400 * 50


@pytest.mark.parametrize("type_", [dbsp.DATE, dbsp.TIMESTAMP, dbsp.UINT64])
def test_the_nearest_row_for_every_type_of_time(type_: pa.DataType) -> None:
    left = dbsp.table("left", {"k": dbsp.STRING, "at": type_})
    right = dbsp.table("right", {"key": dbsp.STRING, "at": type_, "x": dbsp.INT64})
    whole = type_ == dbsp.UINT64
    near = left.asof_join(
        right, on="at", by={"k": "key"}, direction="nearest", tolerance=3 if whole else dbsp.days(3), how="left"
    )
    assert near.columns == ("k", "at", "at_right", "x")

    def at(day: int) -> object:
        return day if whole else f"2024-05-{day:02}"

    with dbsp.open(dbsp.circuit("c", {"near": near.select("k", "x")}), workers=2) as run:
        run.push("left", [{"k": "a", "at": at(5)}, {"k": "b", "at": at(5)}])
        run.push(
            "right",
            [{"key": "a", "at": at(4), "x": 4}, {"key": "a", "at": at(6), "x": 6}, {"key": "b", "at": at(9), "x": 9}],
        )
        assert sorted(run.step()["near"].to_rows()) == [(("a", 4), 1), (("b", None), 1)]
        run.delete("right", [{"key": "a", "at": at(4), "x": 4}])
        assert sorted(run.step()["near"].to_rows()) == [(("a", 4), -1), (("a", 6), 1)]


@pytest.mark.parametrize(
    ("type_", "before", "at", "behind"),
    [
        (dbsp.INT8, -100, 50, 90),
        (dbsp.INT32, -(2**31), 0, 2**31 - 1),
        (dbsp.INT64, -(2**63), 0, 2**63 - 1),
        (dbsp.UINT64, 0, 2**63 + 5, 2**64 - 1),
    ],
)
def test_the_nearest_row_where_no_distance_fits_the_type(type_: pa.DataType, before: int, at: int, behind: int) -> None:
    left, right = dbsp.table("left", {"at": type_}), dbsp.table("right", {"at": type_})
    with dbsp.open(dbsp.circuit("c", {"near": left.asof_join(right, on="at", direction="nearest")})) as run:
        run.push("right", [{"at": before}, {"at": behind}])
        run.push("left", [{"at": at}])
        assert run.step()["near"].to_rows() == [((at, behind), 1)]
        assert run.dead_letters() == []


@pytest.mark.parametrize("by", ["k", None])
@pytest.mark.parametrize("how", ["left", "full", "semi", "anti"])
def test_a_row_leaves_a_key_of_many_thousand_rows(how: str, by: str | None) -> None:
    """Where traces begin to keep live starts, on rows that carry what they are paired with."""
    a = dbsp.table("a", {"id": dbsp.INT64, "at": dbsp.INT64, "k": dbsp.STRING})
    b = dbsp.table("b", {"at": dbsp.INT64, "k": dbsp.STRING})
    near = a.interval_join(b, on="at", by=by, within=2, how=how)
    with dbsp.open(dbsp.circuit("demo", {"v": near})) as run:
        run.push("a", [{"id": n, "at": n, "k": "x"} for n in range(6000)])
        run.push("b", [{"at": 5, "k": "x"}])
        run.step()
        run.delete("a", [{"id": n, "at": n, "k": "x"} for n in range(4)])
        run.step()
        run.delete("b", [{"at": 5, "k": "x"}])
        run.step()
        ids = sorted(row[0] for row, _ in run.view("v").to_rows())
        assert ids == ([] if how == "semi" else list(range(4, 6000)))
