"""Rows on which an operator fails: what stays in the view, what is noted, and that every run notes the same.

One table of row-wise failures and one of failures of groups, joins and partitions. Plain Python says what is left.
"""

from __future__ import annotations

import datetime
import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import dbsp
from dbsp import col
from dbsp.plan.planner import plan

BIG = 2**63 - 1
COLUMNS = {"id": dbsp.INT64, "k": dbsp.STRING, "x": dbsp.INT64, "f": dbsp.FLOAT64, "s": dbsp.STRING,
           "d": dbsp.decimal(38, 0)}  # fmt: skip
t = dbsp.table("t", COLUMNS)
keyed = dbsp.table("keyed", COLUMNS, primary_key="id")

Row = dict[str, Any]
Letters = Counter[tuple[int, str, str, str]]


def row(number: int, **values: Any) -> Row:
    return {"id": number, "k": "a", "x": 1, "f": 1.0, "s": "1", "d": Decimal(1)} | values


def inverse(one: Row) -> Row:
    return {"id": one["id"], "v": 12 // one["x"]}


def unfit(one: Row) -> Row:
    return {"id": one["id"], "v": "text" if one["x"] == 0 else 12 // one["x"]}


def inverses(one: Row) -> list[Row]:
    return [inverse(one)]


def batch_inverses(rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([rows["id"], pc.divide(12, rows["x"])], names=["id", "v"])


LAST_SECOND = 253_402_300_799


def moments(stream: Any) -> Any:
    return stream.with_columns(at=dbsp.from_epoch(col("x"), "second"))


def with_x(name: str) -> dbsp.Expr:
    """A column, made so that x is read too, and shown where the row fails."""
    return dbsp.when(col("x").is_null(), None).otherwise(col(name))


USER = {"id": dbsp.INT64, "v": dbsp.INT64}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A stream with columns id and v, values of one column that work and some that fail, and the same in Python."""

    view: Callable[[Any], Any]
    column: str
    good: tuple[Any, ...]
    bad: tuple[Any, ...]
    says: Callable[[Any], Any]
    nulls: bool = True

    def rows(self) -> tuple[list[Row], list[Row]]:
        made = [row(n, **{self.column: value}) for n, value in enumerate((*self.good, *self.bad))]
        return made[: len(self.good)], made[len(self.good) :]

    def expected(self, rows: list[Row]) -> Counter[tuple[Any, ...]]:
        return Counter((one["id"], self.says(one[self.column])) for one in rows)


def value(expression: Any) -> Callable[[Any], Any]:
    return lambda stream: stream.select("id", v=expression)


CASES: dict[str, Case] = {
    "addition": Case(view=value(col("x") + 1), column="x", good=(1, 2), bad=(BIG,), says=lambda x: x + 1),
    "multiplication": Case(view=value(col("x") * 4), column="x", good=(3,), bad=(2**61, -(2**62)), says=lambda x: x * 4),
    "negation": Case(view=value(-col("x")), column="x", good=(3, BIG), bad=(-(2**63),), says=lambda x: -x),
    "division": Case(view=value(12 // col("x")), column="x", good=(3, 5), bad=(0,), says=lambda x: 12 // x),
    "remainder": Case(view=value(12 % col("x")), column="x", good=(5,), bad=(0,), says=lambda x: 12 % x),
    "text to number": Case(
        view=value(col("s").cast(dbsp.INT64)), column="s", good=("7", "-3"), bad=("", "7x", "9" * 30), says=int
    ),
    "narrower number": Case(
        view=value(col("x").cast(dbsp.INT8)), column="x", good=(127, -128), bad=(128, -129), says=lambda x: x
    ),
    "float to number": Case(
        view=value(col("f").cast(dbsp.INT64)), column="f", good=(2.0,), bad=(math.nan, math.inf, 1e300), says=int
    ),
    "decimal": Case(
        view=value(col("d") * col("d")), column="d", good=(Decimal(3),), bad=(Decimal(10**30),), says=lambda d: d * d
    ),
    "shift": Case(
        view=value(dbsp.lit(1).shift_left(col("x"))), column="x", good=(3,), bad=(64, -1), says=lambda x: 1 << x
    ),
    "sqrt": Case(view=value(col("f").sqrt()), column="f", good=(4.0,), bad=(-1.0,), says=math.sqrt),
    "ln": Case(view=value(col("f").ln()), column="f", good=(1.0,), bad=(0.0, -1.0), says=math.log),
    "strptime": Case(
        view=value(col("s").strptime("%Y-%m-%d")), column="s", good=("2026-01-02",), bad=("2026-13-02", "x"),
        says=lambda s: datetime.datetime.strptime(s, "%Y-%m-%d").replace(tzinfo=None),
    ),
    "day of no calendar": Case(
        view=value(dbsp.lit(datetime.datetime(2024, 1, 1)) + col("x") * dbsp.days(1)), column="x", good=(3, -3),
        bad=(3_000_000, -739_000), says=lambda x: datetime.datetime(2024, 1, 1) + datetime.timedelta(x),
    ),
    "month of no calendar": Case(
        view=value(dbsp.lit(datetime.date(2024, 1, 31)).add_months(col("x"))), column="x", good=(1,), bad=(100_000, -25_000),
        says=lambda x: datetime.date(2024, 1 + x, 29),
    ),
    "hop": Case(
        view=lambda s: moments(s).hop("at", dbsp.days(2), dbsp.days(2)).select("id", v=with_x("window_end")), column="x",
        good=(5, 200_000), bad=(LAST_SECOND,), says=lambda x: datetime.datetime(1970, 1, 3 if x == 5 else 5),
    ),
    "session": Case(
        view=lambda s: moments(s).session("at", dbsp.days(2), "id").select("id", v=with_x("window_end")), column="x",
        good=(5,), bad=(LAST_SECOND,), says=lambda x: datetime.datetime(1970, 1, 3, second=x),
    ),
    "filter": Case(
        view=lambda s: s.filter(12 // col("x") > 2).select("id", v="x"), column="x", good=(3, 4), bad=(0,),
        says=lambda x: x, nulls=False,
    ),
    "user row": Case(
        view=lambda s: s.map(inverse, schema=USER), column="x", good=(3,), bad=(0,), says=lambda x: 12 // x, nulls=False
    ),
    "user row that does not fit": Case(
        view=lambda s: s.map(unfit, schema=USER), column="x", good=(3,), bad=(0,), says=lambda x: 12 // x, nulls=False
    ),
    "user rows": Case(
        view=lambda s: s.flat_map(inverses, schema=USER), column="x", good=(3,), bad=(0,), says=lambda x: 12 // x,
        nulls=False,
    ),
    "user batch": Case(
        view=lambda s: s.map_batches(batch_inverses, schema=USER), column="x", good=(3, 4), bad=(0,),
        says=lambda x: 12 // x, nulls=False,
    ),
}  # fmt: skip


def letters(run: Any) -> Letters:
    """What was noted, whichever worker noted it: step, reason, payload and node, with weights added up."""
    found: Letters = Counter()
    for one in run.dead_letters():
        found[one.step, one.origin, one.reason, one.payload] += one.weight
    return found


def payloads_of(found: Letters, column: str) -> list[tuple[int, str, int]]:
    """The id, the value that failed, and the weight of each letter."""
    read = ((json.loads(payload), weight) for (_, _, _, payload), weight in found.items())
    return [(one["id"], str(one[column]), weight) for one, weight in read]


def shown(run: Any) -> Counter[tuple[Any, ...]]:
    return Counter({tuple(values): weight for values, weight in run.view("v").to_rows()})


def run_of(view: Any, workers: int, policy: str = "dead-letter") -> Any:
    return dbsp.open(dbsp.circuit("c", {"v": view}, error_policy=policy), workers=workers, partitions=2)


def lived(view: Any, workers: int, policy: str, good: list[Row], bad: list[Row]) -> tuple[Any, ...]:
    """Views and letters after rows came, after a replay from a checkpoint in between, and after the failed rows went."""
    with run_of(view, workers, policy) as run:
        run.push("t", good)
        run.step()
        run.checkpoint()
        run.push("t", bad)
        run.step()
        first = shown(run), letters(run)
        run.restart()
        assert (shown(run), letters(run)) == first
        run.delete("t", bad)
        run.step()
        return *first, shown(run), letters(run)


def over_steps(found: Letters) -> Counter[tuple[str, str, str]]:
    added: Counter[tuple[str, str, str]] = Counter()
    for (_, origin, reason, payload), weight in found.items():
        added[origin, reason, payload] += weight
    return Counter({key: weight for key, weight in added.items() if weight})


@pytest.mark.parametrize("policy", ["dead-letter", "null"])
@pytest.mark.parametrize("name", CASES)
def test_rows_that_fail_leave_and_leave_nothing(name: str, policy: str) -> None:
    case = CASES[name]
    good, bad = case.rows()
    one, three = (lived(case.view(t), workers, policy, good, bad) for workers in (1, 3))
    assert one == three
    came, noted, gone, noted_in_all = one
    becomes_null = policy == "null" and case.nulls
    left = case.expected(good)
    assert came == left + Counter((each["id"], None) for each in bad if becomes_null)
    silent = becomes_null or (policy == "null" and name == "filter")
    assert Counter(payloads_of(noted, case.column)) == Counter(
        [] if silent else [(each["id"], str(each[case.column]), 1) for each in bad]
    )
    assert all(step == 1 and reason and "#" in origin for step, origin, reason, _ in noted)
    assert gone == left
    assert over_steps(noted_in_all) == Counter()


@pytest.mark.parametrize("name", CASES)
def test_any_split_into_steps_notes_the_same(name: str) -> None:
    good, bad = CASES[name].rows()
    found = []
    for size in (1, 2, len(good) + len(bad)):
        rows = [*bad, *good]
        with run_of(CASES[name].view(t), 2) as run:
            for start in range(0, len(rows), size):
                run.push("t", rows[start : start + size])
                run.step()
            found.append((shown(run), over_steps(letters(run))))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("name", CASES)
def test_stop_names_the_row_and_nothing_of_the_step_is_kept(name: str) -> None:
    case = CASES[name]
    good, bad = case.rows()
    with run_of(case.view(t), 2, "stop") as run:
        run.push("t", good)
        run.step()
        run.push("t", bad)
        with pytest.raises(dbsp.errors.RowsError, match="a row failed") as caught:
            run.step()
        assert caught.value.count >= 1
        named = {json.loads(payload)["id"] for payload, _, _ in caught.value.rows}
        assert named
        assert named <= {each["id"] for each in bad}
        assert shown(run) == case.expected(good)
        assert run.dead_letters() == []


@pytest.mark.parametrize("name", CASES)
def test_a_failing_row_replaced_under_its_key_leaves_nothing(name: str) -> None:
    case = CASES[name]
    good, bad = case.rows()
    with run_of(case.view(keyed), 3) as run:
        run.push("keyed", bad)
        run.step()
        mended = [each | {case.column: good[0][case.column]} for each in bad]
        run.push("keyed", mended)
        run.step()
        assert shown(run) == case.expected(mended)
        assert over_steps(letters(run)) == Counter()


def one_alone(rows: list[Row]) -> int:
    if len(rows) > 1:
        raise ValueError("more than one")
    return BIG


def first_column(rows: Any) -> Any:
    return rows.column(0).to_numpy().reshape(-1, 1)


def first_sum(sums: Any) -> Any:
    return sums[:, 0]


HELD: dict[str, tuple[Callable[[], Any], str, set[Any]]] = {
    "sum": (lambda: t.group_by("k").aggregate(v=dbsp.sum("x")), "does not fit", set()),
    "rolling": (
        lambda: t.window("k", "id").select("id", v=dbsp.rolling(dbsp.sum("x"), rows=1)), "does not fit", {(0, BIG)}
    ),
    "running": (
        lambda: t.window("k", "id").select("id", v=dbsp.rolling(dbsp.sum("x"), rows=(None, 0))), "does not fit", {(0, BIG)}
    ),
    "total": (
        lambda: t.window("k").select("id", v=dbsp.rolling(dbsp.sum("x"), rows=(None, None))), "does not fit", set()
    ),
    "join": (
        lambda: t.join(t.select("k", y="x"), on="k", where=col("x") + col("y") > 0).select("id", "y"), "", set()
    ),
    "left join": (
        lambda: t.join(t.select("k", y="x"), on="k", how="left", where=col("x") + col("y") > 0).select("id", "y"), "",
        {(0, None), (1, None)},
    ),
    "fold": (
        lambda: t.group_by("k").aggregate(v=dbsp.fold_aggregate("x", function=one_alone, type=dbsp.INT64)), "ValueError",
        set(),
    ),
    "linear": (
        lambda: t.group_by("k").aggregate(
            v=dbsp.linear_aggregate("x", map=first_column, finish=first_sum, type=dbsp.INT64)
        ), "does not fit 64 bits", set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HELD)
def test_groups_and_pairs_that_fail_come_back(name: str) -> None:
    make, reason, left = HELD[name]
    stays, goes = row(0, x=BIG), row(1, x=BIG)
    found = []
    for workers in (1, 3):
        with run_of(make(), workers) as run:
            run.step()
            run.checkpoint()
            run.push("t", [stays, goes])
            run.step()
            noted = letters(run)
            assert noted
            assert all(reason in key[2] for key in noted)
            assert set(shown(run)) == left
            run.delete("t", [goes])
            run.step()
            before = shown(run), letters(run)
            run.restart()
            assert (shown(run), letters(run)) == before
            found.append(before)
            if "join" not in name:
                assert len(before[0]) == 1
    assert found[0] == found[1]


def test_a_row_that_fails_in_a_loop_is_noted_alike_and_leaves_nothing() -> None:
    loop = dbsp.recursive(t.select("x"), lambda r: r.filter(12 // col("x") > 0).select(x=col("x") - 1))
    found = []
    for workers in (1, 3):
        with run_of(loop, workers) as run:
            run.step()
            run.checkpoint()
            run.push("t", [row(0, x=2), row(1, x=1)])
            run.step()
            noted = letters(run), shown(run)
            run.restart()
            assert (letters(run), shown(run)) == noted
            assert set(noted[1]) == {(2,), (1,), (0,)}
            assert list(over_steps(noted[0]).values()) == [1]
            run.delete("t", [row(0, x=2), row(1, x=1)])
            run.step()
            assert (shown(run), over_steps(letters(run))) == (Counter(), Counter())
            found.append(noted)
    assert found[0][1] == found[1][1]
    assert over_steps(found[0][0]) == over_steps(found[1][0])


def passed(view: Any, workers: int, came: list[Row], went: list[Row]) -> tuple[bool, Any]:
    """Rows that come through one partition and go through the other in one step, under `stop`: whether it ran, and the view."""
    with run_of(view, workers, "stop") as run:
        run.push("t", [row(7, x=-1)])
        run.step()
        run.push("t", came, partition=0)
        run.delete("t", went, partition=1)
        try:
            run.step()
        except dbsp.errors.RowsError as error:
            return False, (error.message, error.rows, shown(run))
        return True, shown(run)


HALVES = t.select("k", half=12 // col("x"))
PLACES: dict[str, Callable[[], Any]] = {
    "rows as they are read": lambda: HALVES,
    "behind an exchange, without its key": lambda: t.group_by("id").aggregate(x=dbsp.min("x")).select(v=12 // col("x")),
    "a join's rows": lambda: t.join(t.select("id", y="x"), on="id").select(v=12 // col("y")),
    "in a recursion": lambda: dbsp.recursive(
        t.select("x"), lambda r: r.filter(12 // col("x") > 0).select(x=col("x") - 1)
    ),
}


@pytest.mark.parametrize("name", PLACES)
def test_stop_judges_rows_over_all_workers(name: str) -> None:
    """What comes and goes in one step is no reason to stop, wherever it is read; a row too many is, with the same words."""
    bad, other = row(0, x=0), row(1, x=0)
    assert len({repr(passed(PLACES[name](), workers, [bad], [bad])) for workers in (1, 2, 3, 5)}) == 1
    assert passed(PLACES[name](), 2, [bad], [bad])[0]
    stopped = [passed(PLACES[name](), workers, [bad, other], [bad]) for workers in (1, 2, 3, 5)]
    assert not stopped[0][0]
    assert len(set(map(repr, stopped))) == 1


def test_nothing_is_written_of_a_step_that_is_refused_in_its_last_segment() -> None:
    """All workers know what failed before any of them writes."""
    circuit = dbsp.circuit("c", {"v": HALVES, "n": t.group_by("k").aggregate(n=dbsp.sum("x"))}, error_policy="stop")
    for materialize in (True, False):
        made = plan(replace(circuit, materialized=circuit.materialized if materialize else frozenset()))
        last = [node for node in made.nodes if node.segment == made.segments - 1]
        assert not last
        assert plan(replace(circuit, error_policy="null")).segments == made.segments - 1
