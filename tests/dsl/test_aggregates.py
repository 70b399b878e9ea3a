"""Aggregates as users write them: what is refused and how, filters, the one row without keys, failures by the policy."""

from __future__ import annotations

import datetime as dt
import math
import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dbsp
from dbsp.errors import CircuitError
from dbsp.operators.groups.limbs import joined, nearest_quotients
from dbsp.plan.planner import plan

t = dbsp.table(
    "t", {"k": dbsp.STRING, "x": dbsp.INT64, "f": dbsp.FLOAT64, "s": dbsp.STRING, "b": dbsp.BOOL, "u": dbsp.UINT8}
)
x = dbsp.col("x")

REFUSED: dict[str, tuple[Any, str]] = {
    "first without an order": (lambda: dbsp.first("x"), 'needs an order.*dbsp.first\\("x", order_by="at"\\)'),
    "last without an order": (lambda: dbsp.last("x", order_by=[]), "needs an order"),
    "first by no column": (lambda: t.aggregate(a=dbsp.first("x", order_by="nope")), "no such column: column=.?nope"),
    "a quantile above one": (lambda: dbsp.quantile_cont("x", 95), "between 0 and 1: got=95.*write 0.95"),
    "a quantile that is no number": (lambda: dbsp.quantile_disc("x", "0.5"), "a quantile is a number"),
    "a fine quantile": (lambda: dbsp.quantile_cont("x", 0.12345678901), "at most 9 decimal places"),
    "the median of a text": (lambda: t.aggregate(a=dbsp.median("s")), "quantile_cont is for numbers"),
    "the spread of spans": (
        lambda: t.aggregate(a=dbsp.stddev(dbsp.lit(dt.timedelta(1)))),
        "write dbsp.stddev.*/ dbsp.seconds\\(1\\)",
    ),
    "the variance of a text": (lambda: t.aggregate(a=dbsp.stddev("s")), "stddev_samp is for numbers"),
    "the correlation of a text": (lambda: t.aggregate(a=dbsp.corr("f", "s")), "corr is for numbers: argument=s"),
    "a correlation of one column": (lambda: dbsp.corr("f"), "corr.*missing.*x"),  # type: ignore[call-arg]
    "bool_and of a number": (lambda: t.aggregate(a=dbsp.bool_and("x")), 'bool_and is for conditions.*col\\("x"\\) != 0'),
    "bit_or of a float": (lambda: t.aggregate(a=dbsp.bit_or("f")), "bit_or is for integers"),
    "string_agg of a number": (lambda: t.aggregate(a=dbsp.string_agg("x")), "string_agg is for texts.*cast\\(dbsp.STRING\\)"),
    "a separator that is none": (lambda: dbsp.string_agg("s", 1), "a separator is a text"),  # type: ignore[arg-type]
    "a filter that is no condition": (lambda: t.aggregate(a=dbsp.sum("x").where(x + 1)), "where takes a condition"),
    "a filter that is a text": (lambda: dbsp.sum("x").where("x > 1"), "where takes an expression"),  # type: ignore[arg-type]
    "the sum of a builtin": (lambda: t.aggregate(a=sum), "not an aggregate: name=a"),  # type: ignore[arg-type]
    "a pivot without values": (lambda: t.group_by("k").pivot("s", [], n=dbsp.count()), "pivot takes a list of values"),
    "a pivot of one value twice": (lambda: t.group_by("k").pivot("s", ["a", "a"], n=dbsp.count()), "makes a column twice"),
    "a big cube": (lambda: t.cube(*[f"c{i}" for i in range(9)]), "no such column"),
    "sets that are no lists": (lambda: t.grouping_sets(["k"]), "takes a list of lists"),
    "a grouping id that is a key": (lambda: t.rollup("k", grouping="k").aggregate(n=dbsp.count()), "a name of its own"),
    "a linear one without a type": (
        lambda: dbsp.linear_aggregate("x", map=len, finish=len, type=None),  # type: ignore[arg-type]
        "needs the type of its result",
    ),
    "a wide vector": (
        lambda: dbsp.linear_aggregate("x", map=first_column, finish=first_sum, type=dbsp.INT64, width=65),
        "1 to 64 numbers",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_the_cure(case: str) -> None:
    make, message = REFUSED[case]
    with pytest.raises(CircuitError, match=message) as caught:
        make()
    assert "test_aggregates.py" in str(caught.value) or case == "a big cube"


def first_column(rows: Any) -> Any:
    return [rows.column(0).fill_null(0).to_numpy()]


def first_sum(sums: Any) -> Any:
    return sums[:, 0]


def test_types() -> None:
    stream = t.group_by("k").aggregate(
        a=dbsp.bit_xor("u"), b=dbsp.arg_max("s", "x"), c=dbsp.median("u"), d=dbsp.quantile_disc("s", 0.5),
        e=dbsp.array_agg("x"), f=dbsp.count().where(x > 1), g=dbsp.first("b", order_by="x"), h=dbsp.var_pop("u"),
    )  # fmt: skip
    assert str(stream.schema) == (
        "(k: string, a: uint8, b: string, c: double, d: string, e: list<item: int64>, f: int64 not null, g: bool, h: double)"
    )


def fed(view: Any, *steps: list[tuple[int, dict[str, Any]]], workers: int = 2, policy: str = "dead-letter") -> Any:
    """A run that was given rows (weight 1 or -1) step by step."""
    run = dbsp.open(dbsp.circuit("c", {"v": view}, error_policy=policy), workers=workers)
    for step in steps:
        for weight, row in step:
            (run.push if weight > 0 else run.delete)("t", [row])
        run.step()
    return run


def rows_of(run: Any) -> list[tuple[Any, ...]]:
    return sorted((row for row, weight in run.view("v").to_rows() for _ in range(weight)), key=repr)


EMPTY = {"k": None, "x": None, "f": None, "s": None, "b": None, "u": None}


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_the_one_row_without_keys_is_there_from_the_first_step_on(workers: int) -> None:
    view = t.filter(x > 100).aggregate(n=dbsp.count(), s=dbsp.sum("x"), m=dbsp.median("x"), c=dbsp.count_distinct("x"))
    empty = [(0, None, None, 0)]
    with fed(view, [], workers=workers) as run:
        assert rows_of(run) == empty
        run.restart()
        assert rows_of(run) == empty
        run.checkpoint()
        run.rescale(workers + 2)
        assert rows_of(run) == empty
        assert run.step()["v"].to_rows() == []
        run.push("t", [EMPTY | {"x": 200}])
        run.step()
        assert rows_of(run) == [(1, 200, 200.0, 1)]
        run.rescale(1)
        run.delete("t", [EMPTY | {"x": 200}])
        run.step()
        run.restart()
        assert rows_of(run) == empty


def test_the_one_row_of_groups_of_groups() -> None:
    view = t.group_by("k").aggregate(n=dbsp.count()).aggregate(most=dbsp.max("n"), groups=dbsp.count())
    with fed(view, [], [(1, EMPTY | {"k": "a"}), (1, EMPTY | {"k": "a"}), (1, EMPTY | {"k": "b"})]) as run:
        assert rows_of(run) == [(2, 2)]
    joined = t.aggregate(n=dbsp.count()).with_columns(one=dbsp.lit(1)).join(
        t.aggregate(s=dbsp.sum("x")).with_columns(one=dbsp.lit(1)), on="one"
    )  # fmt: skip
    with fed(joined.select("n", "s"), []) as run:
        assert rows_of(run) == [(0, None)]


def test_filters_are_of_each_aggregate_alone() -> None:
    view = t.group_by("k").aggregate(
        n=dbsp.count(), big=dbsp.sum("x").where(x > 10), small=dbsp.array_agg("x").where(x <= 10).where(x != 1),
        first=dbsp.first("s", order_by="x").where(dbsp.col("s").is_not_null()),
    )  # fmt: skip
    row = EMPTY | {"k": "a"}
    steps = [(1, row | {"x": 20}), (1, row | {"x": 5, "s": "five"}), (1, row | {"x": 1}), (1, row)]
    with fed(view, steps, [(-1, row | {"x": 20})]) as run:
        assert rows_of(run) == [("a", 3, None, [5], "five")]


def test_an_argument_that_a_filter_excludes_is_not_computed() -> None:
    with fed(t.group_by("k").aggregate(a=dbsp.sum(dbsp.lit(12) // x).where(x != 0)), [(1, EMPTY | {"x": 0})]) as run:
        assert rows_of(run) == [(None, None)]
        assert run.dead_letters() == []


def odd_only(rows: Any) -> Any:
    values = rows.column(0).to_numpy()
    if (values % 2 == 0).any():
        raise ValueError("even")
    return np.column_stack([values])


def below_ten(sums: Any) -> Any:
    if (sums >= 10).any():
        raise ValueError("too much")
    return sums[:, 0]


ODD = dbsp.linear_aggregate("x", map=odd_only, finish=below_ten, type=dbsp.INT64)


def shortest(rows: list[dict[str, Any]]) -> int:
    return min(len(row["s"]) for row in rows)


@pytest.mark.parametrize("policy", ["dead-letter", "null"])
def test_failures_of_user_aggregates_go_by_the_policy(policy: str) -> None:
    def rows(*numbers: int) -> list[tuple[int, dict[str, Any]]]:
        return [(1, EMPTY | {"k": "a", "x": n}) for n in numbers]

    view = t.group_by("k").aggregate(n=dbsp.count(), odd=ODD)
    with fed(view, rows(1, 2, 3), policy=policy) as run:
        dead = policy == "dead-letter"
        assert rows_of(run) == [("a", 2 if dead else 3, 4)]
        assert [("ValueError: even" in letter.reason) for letter in run.dead_letters()] == [True] * dead
        run.push("t", [row for _, row in rows(9)])
        run.step()
        assert rows_of(run) == ([] if dead else [("a", 4, None)])
        assert len(run.dead_letters()) == 2 * dead
        run.delete("t", [row for _, row in rows(9)])
        run.step()
        letters = run.dead_letters()
        assert [letter.weight for letter in letters] == [1, 1, -1] * dead
        run.restart()
        assert rows_of(run) == [("a", 2 if dead else 3, 4)]
        assert run.dead_letters() == letters


@pytest.mark.parametrize("policy", ["dead-letter", "null"])
def test_a_fold_that_fails_goes_by_the_policy_and_comes_back(policy: str) -> None:
    view = t.group_by("k").aggregate(a=dbsp.fold_aggregate("s", function=shortest, type=dbsp.INT64))
    good, bad = EMPTY | {"k": "a", "s": "abc"}, EMPTY | {"k": "a"}
    with fed(view, [(1, good)], [(1, bad)], policy=policy) as run:
        dead = policy == "dead-letter"
        assert rows_of(run) == ([] if dead else [("a", None)])
        assert [("TypeError" in letter.reason) for letter in run.dead_letters()] == [True] * dead
        run.delete("t", [bad])
        run.step()
        assert rows_of(run) == [("a", 3)]


def test_vectors_that_overflow_fail_their_group_alone() -> None:
    view = t.group_by("k").aggregate(a=dbsp.linear_aggregate("x", map=first_column, finish=first_sum, type=dbsp.INT64))
    big = [(1, EMPTY | {"k": "a", "x": 2**62})] * 2
    with fed(view, [*big, (1, EMPTY | {"k": "b", "x": 3})]) as run:
        assert rows_of(run) == [("b", 3)]
        assert "does not fit 64 bits" in run.dead_letters()[0].reason
        run.delete("t", [EMPTY | {"k": "a", "x": 2**62}])
        run.step()
        assert rows_of(run) == [("a", 2**62), ("b", 3)]


@pytest.mark.parametrize(("workers", "empty"), [(1, True), (3, True), (3, False)])
def test_grouping_sets_with_and_without_rows(workers: int, empty: bool) -> None:
    view = t.cube("k", "s", grouping="g").aggregate(n=dbsp.count())
    step = [] if empty else [(1, EMPTY | {"k": "a"})]
    with fed(view, step, workers=workers) as run:
        total = (None, None, 3, len(step))
        rest = [] if empty else [("a", None, 0, 1), ("a", None, 1, 1), (None, None, 2, 1)]
        assert rows_of(run) == sorted([total, *rest], key=repr)


def test_a_plan_with_every_aggregate_travels() -> None:
    view = t.group_by("k").aggregate(
        a=ODD, b=dbsp.fold_aggregate("s", function=shortest, type=dbsp.INT64), c=dbsp.median("x"), d=dbsp.var_pop("f"),
        e=dbsp.string_agg("s", order_by="x"), f=dbsp.bit_or("x"), g=dbsp.last("s", order_by="f"), h=dbsp.bool_or("b"),
        i=dbsp.corr("f", "x"),
    )  # fmt: skip
    made = plan(dbsp.circuit("c", {"v": view, "w": t.aggregate(n=dbsp.count())}))
    again = pickle.loads(pickle.dumps(made))
    assert [str(node.operator) for node in again.nodes] == [str(node.operator) for node in made.nodes]
    assert [node.operator == other.operator for node, other in zip(made.nodes, again.nodes, strict=True)] == [
        True
    ] * len(made.nodes)


def test_distinct_counts_of_one_column_share_their_values() -> None:
    """Under `where` and as a choice; not those of an argument that may fail where its condition does not hold."""
    view = t.group_by("k").aggregate(
        all=dbsp.count_distinct("x"),
        some=dbsp.count_distinct("x").where(dbsp.col("b")),
        chosen=dbsp.count_distinct(dbsp.when(dbsp.col("f") > 0, x).otherwise(None)),
        apart=dbsp.count_distinct(10 // x).where(x != 0),
    )
    made = plan(dbsp.circuit("c", {"v": view}))
    (node,) = (node for node in made.nodes if str(node.operator).startswith("group by"))
    assert [trace.arrangement.weights for trace in node.traces] == [1, 3, 3, 1, 1]
    with dbsp.open(dbsp.circuit("c", {"v": view}), workers=2) as run:
        rows = [{"k": "a", "x": 5, "b": True, "f": 1.0}, {"k": "a", "x": 0, "b": None, "f": 2.0}]
        run.push("t", rows)
        assert run.step()["v"].to_rows() == [(("a", 2, 1, 2, 1), 1)]
        run.delete("t", rows[:1])
        run.push("t", [{"k": "a", "x": 0, "b": True, "f": -1.0}])
        assert dict(run.step()["v"].to_rows())["a", 1, 1, 1, 0] == 1


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5))
@example([1, 2]).via("halves go away from zero")
@example([-1, -2]).via("halves go away from zero")
@example([2, 3]).via("halves go away from zero")
@example([2**63 - 1, 2**63 - 1]).via("the sum does not fit, the mean does")
@example([-(2**63)]).via("the least span")
def test_a_mean_of_spans_is_the_nearest_span(micros: list[int]) -> None:
    mean = Fraction(sum(micros), len(micros))
    wanted = math.floor(abs(mean) + Fraction(1, 2)) * (-1 if mean < 0 else 1)
    low, high, fits = joined(np.array([[sum(v & 0xFFFFFFFF for v in micros), sum(v >> 32 for v in micros)]]))
    assert fits.all()
    assert nearest_quotients(low, high, np.array([len(micros)])).tolist() == [wanted]


@pytest.mark.parametrize("workers", [1, 3])
def test_spans_of_time_have_a_mean(workers: int) -> None:
    """In groups as in frames, also where their sum does not fit."""
    spans = dbsp.table("spans", {"k": dbsp.INT64, "n": dbsp.INT32, "d": dbsp.DURATION})
    means = spans.group_by("k").aggregate(mean=dbsp.avg("d"))
    frames = spans.window(partition_by="k", order_by="n").select("n", mean=dbsp.rolling(dbsp.avg("d"), rows=1))
    second, century = dt.timedelta(seconds=1), dt.timedelta(days=36525)
    with dbsp.open(dbsp.circuit("c", {"means": means, "frames": frames}), workers=workers) as run:
        run.push("spans", [{"k": 1, "n": i, "d": i * second if i else None} for i in range(4)])
        run.push("spans", [{"k": 2, "n": 9, "d": 2000 * century}] * 2)
        run.step()
        assert run.view("means").to_rows() == [((1, 2 * second), 1), ((2, 2000 * century), 1)]
        rows = [((0, None), 1), ((1, second), 1), ((2, 1.5 * second), 1), ((3, 2.5 * second), 1)]
        assert run.view("frames").to_rows() == [*rows, ((9, 2000 * century), 2)]
        run.delete("spans", [{"k": 1, "n": 3, "d": 3 * second}] + [{"k": 2, "n": 9, "d": 2000 * century}] * 2)
        run.step()
        assert run.view("means").to_rows() == [((1, 1.5 * second), 1)]
        assert run.view("frames").to_rows() == rows[:3]


@pytest.mark.parametrize("workers", [1, 3])
def test_spans_of_time_add_up(workers: int) -> None:
    """Their sum is a span, in groups as in frames; one that does not fit fails its group until it does."""
    spans = dbsp.table("spans", {"k": dbsp.INT64, "n": dbsp.INT32, "d": dbsp.DURATION})
    d, n = dbsp.col("d"), dbsp.col("n")
    sums = spans.group_by("k").aggregate(total=dbsp.sum("d"), hours=dbsp.avg(d / dbsp.hours(1)))
    frames = spans.window(partition_by="k", order_by="n").select("n", sum=dbsp.rolling(dbsp.sum("d"), rows=1))
    products = spans.select(x=n * dbsp.days(1), y=dbsp.days(1) * n, z=d * 2)
    circuit = dbsp.circuit("c", {"sums": sums, "frames": frames, "products": products})
    hour, century = dt.timedelta(hours=1), dt.timedelta(days=36525)
    with dbsp.open(circuit, workers=workers) as run:
        run.push("spans", [{"k": 1, "n": i, "d": i * hour if i else None} for i in range(4)])
        run.step()
        assert run.view("sums").to_rows() == [((1, 6 * hour, 2.0), 1)]
        assert run.view("frames").to_rows() == [((0, None), 1), ((1, hour), 1), ((2, 3 * hour), 1), ((3, 5 * hour), 1)]
        assert ((dt.timedelta(3), dt.timedelta(3), 6 * hour), 1) in run.view("products").to_rows()
        run.delete("spans", [{"k": 1, "n": 3, "d": 3 * hour}])
        run.push("spans", [{"k": 2, "n": 0, "d": 2000 * century}] * 2)
        run.step()
        assert run.view("sums").to_rows() == [((1, 3 * hour, 1.5), 1)]
        run.delete("spans", [{"k": 2, "n": 0, "d": 2000 * century}])
        run.step()
        assert run.view("sums").to_rows()[1] == ((2, 2000 * century, 2000 * century / hour), 1)
