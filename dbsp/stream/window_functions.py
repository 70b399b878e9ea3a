"""Window functions: what `stream.window(...).with_columns(...)` computes per row from the rows around it.

All look at the rows of one partition in the order of the window; ties are broken by all columns, so every answer is
determined. Rows that are equal in all columns take one place each.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any, ClassVar

from dbsp.aggregates import Aggregate
from dbsp.aggregates.counts import Count, CountDistinct, Mode
from dbsp.aggregates.covariances import Paired
from dbsp.aggregates.lists import ArrayAgg, StringAgg
from dbsp.aggregates.logic import Bit, Bool
from dbsp.aggregates.positions import ArgExtreme, Extreme, FirstInOrder
from dbsp.aggregates.quantiles import Quantile
from dbsp.aggregates.sums import Avg, Sum
from dbsp.aggregates.unique import Unique
from dbsp.aggregates.user import FoldRows
from dbsp.aggregates.variances import Variance
from dbsp.diagnostics.source_lines import located, user_line
from dbsp.errors import CircuitError
from dbsp.expr.answering import NotAValue
from dbsp.expr.build import Expr
from dbsp.expr.durations import micros
from dbsp.expr.expression import ColumnRef, Expression
from dbsp.expr.methods.applied import unwrap
from dbsp.operators.order.window_calls import AGGREGATES
from dbsp.operators.order.window_places import Frame

Bound = int | datetime.timedelta | None
NOTHING = object()
FOLDED = (StringAgg, ArrayAgg, FoldRows)
"""The kinds of aggregates that are made of all rows of a frame."""
FOLDS = ("string_agg", "array_agg", "fold_aggregate")
_ROLLED = (
    *(Count, Sum, Avg, Extreme, Variance),
    *(CountDistinct, Mode, Quantile, Paired, ArgExtreme, Bool, Bit, FirstInOrder),
    *FOLDED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowFunction(NotAValue):
    """A function over a window, not yet bound to a stream; made by `dbsp.lag` and its like."""

    _CALLED: ClassVar[str] = "a window function"
    _OTHERS: ClassVar[tuple[str, ...]] = ("window function",)
    PLACE: ClassVar[str] = (
        'name it, .window(partition_by="k", order_by="at").with_columns(n=dbsp.row_number()), and compute with its column'
        " after that"
    )

    function: str
    argument: Expression | None = None
    aggregate: Aggregate | None = None
    offset: int = 0
    default: Expression | None = None
    rows: tuple[Any, Any] | None = None
    range: tuple[Any, Any] | None = None
    skips: bool = False


def row_number() -> WindowFunction:
    """The place of the row in its partition, from 1; int64.

    **Cost** a row that comes or goes moves all rows behind it.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
    >>> numbered = t.window(partition_by="k", order_by="x").with_columns(n=dbsp.row_number())
    >>> with dbsp.open(dbsp.circuit("demo", {"numbered": numbered})) as run:
    ...     run.push("t", [{"k": "a", "x": 5}, {"k": "a", "x": 7}])
    ...     print(run.step()["numbered"].to_rows())
    ...     run.delete("t", [{"k": "a", "x": 5}])
    ...     print(sorted(run.step()["numbered"].to_rows()))
    [(('a', 5, 1), 1), (('a', 7, 2), 1)]
    [(('a', 5, 1), -1), (('a', 7, 1), 1), (('a', 7, 2), -1)]
    """
    return WindowFunction(function="row_number")


def rank() -> WindowFunction:
    """1 more than the rows that come before in the order itself: ties have one rank, and leave a gap; int64.

    **Cost** as `row_number`.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
    >>> seen = t.window("k", order_by="x").with_columns(r=dbsp.rank())
    >>> with dbsp.open(dbsp.circuit("demo", {"seen": seen})) as run:
    ...     run.push("t", [{"k": "a", "x": x} for x in (4, 4, 7)])
    ...     print(run.step()["seen"].to_rows())
    ...     run.delete("t", [{"k": "a", "x": 4}])
    ...     print(run.step()["seen"].to_rows())
    [(('a', 4, 1), 2), (('a', 7, 3), 1)]
    [(('a', 4, 1), -1), (('a', 7, 2), 1), (('a', 7, 3), -1)]
    """
    return WindowFunction(function="rank")


def dense_rank() -> WindowFunction:
    """1 more than the different values that come before: ties have one rank, and leave no gap; int64.

    **State** beside the rows each different value of a partition's order, once.

    **Cost** a change among rows that tie touches these alone; a value that comes or goes moves all rows behind it.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"name": dbsp.STRING, "points": dbsp.INT64})
    >>> places = t.window(order_by=dbsp.desc("points")).with_columns(place=dbsp.dense_rank())
    >>> with dbsp.open(dbsp.circuit("demo", {"places": places})) as run:
    ...     run.push("t", [{"name": "ann", "points": 9}, {"name": "bo", "points": 9}, {"name": "cy", "points": 5}])
    ...     print(sorted(run.step()["places"].to_rows()))
    ...     run.delete("t", [{"name": "ann", "points": 9}])
    ...     print(sorted(run.step()["places"].to_rows()))
    ...     run.delete("t", [{"name": "bo", "points": 9}])
    ...     print(sorted(run.step()["places"].to_rows()))
    [(('ann', 9, 1), 1), (('bo', 9, 1), 1), (('cy', 5, 2), 1)]
    [(('ann', 9, 1), -1)]
    [(('bo', 9, 1), -1), (('cy', 5, 1), 1), (('cy', 5, 2), -1)]
    """
    return WindowFunction(function="dense_rank")


def percent_rank() -> WindowFunction:
    """(rank - 1) / (rows - 1), 0 for a single row; float64.

    **Cost** a change computes its whole partition anew, because the number of rows is in every answer.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
    >>> seen = t.window("k", order_by="x").with_columns(r=dbsp.percent_rank())
    >>> with dbsp.open(dbsp.circuit("demo", {"seen": seen})) as run:
    ...     run.push("t", [{"k": "a", "x": x} for x in (4, 5, 7)])
    ...     print(run.step()["seen"].to_rows())
    ...     run.delete("t", [{"k": "a", "x": 4}])
    ...     print(run.step()["seen"].to_rows())
    [(('a', 4, 0.0), 1), (('a', 5, 0.5), 1), (('a', 7, 1.0), 1)]
    [(('a', 4, 0.0), -1), (('a', 5, 0.0), 1), (('a', 5, 0.5), -1)]
    """
    return WindowFunction(function="percent_rank")


def cume_dist() -> WindowFunction:
    """The part of the rows that come before or tie; float64.

    **Cost** as `percent_rank`.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
    >>> seen = t.window("k", order_by="x").with_columns(r=dbsp.cume_dist())
    >>> with dbsp.open(dbsp.circuit("demo", {"seen": seen})) as run:
    ...     run.push("t", [{"k": "a", "x": x} for x in (4, 5, 7)])
    ...     print(run.step()["seen"].to_rows())
    ...     run.delete("t", [{"k": "a", "x": 4}])
    ...     print(run.step()["seen"].to_rows())
    [(('a', 4, 0.3333333333333333), 1), (('a', 5, 0.6666666666666666), 1), (('a', 7, 1.0), 1)]
    [(('a', 4, 0.3333333333333333), -1), (('a', 5, 0.5), 1), (('a', 5, 0.6666666666666666), -1)]
    """
    return WindowFunction(function="cume_dist")


def ntile(parts: int) -> WindowFunction:
    """The number, from 1, of the part when the partition is cut into `parts` of one length, the first ones longer by one.

    **Cost** as `percent_rank`.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
    >>> seen = t.window("k", order_by="x").with_columns(r=dbsp.ntile(2))
    >>> with dbsp.open(dbsp.circuit("demo", {"seen": seen})) as run:
    ...     run.push("t", [{"k": "a", "x": x} for x in (4, 5, 7)])
    ...     print(run.step()["seen"].to_rows())
    ...     run.delete("t", [{"k": "a", "x": 4}])
    ...     print(run.step()["seen"].to_rows())
    [(('a', 4, 1), 1), (('a', 5, 1), 1), (('a', 7, 2), 1)]
    [(('a', 4, 1), -1)]
    """
    return WindowFunction(function="ntile", offset=_count("ntile", parts, least=1))


def lag(argument: str | Expr, offset: int = 1, default: Any = NOTHING, *, ignore_nulls: bool = False) -> WindowFunction:
    """The value in the row `offset` places before; `default`, else null, where there is none.

    With `ignore_nulls` rows where it is null are passed over: the value before that is none. So the last known value, a gap
    filled forward, is `dbsp.coalesce(dbsp.col("x"), dbsp.col("before"))` after `before=dbsp.lag("x", ignore_nulls=True)`.

    **Cost** a changed row touches the `offset` rows behind it, however large the partition; with `ignore_nulls`, those up to
    the `offset`-th one with a value. **State** with `ignore_nulls`, beside the rows, partition and order of those with a value.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"at": dbsp.INT64, "x": dbsp.INT64})
    >>> steps = t.window(order_by="at").with_columns(before=dbsp.lag("x", default=0))
    >>> with dbsp.open(dbsp.circuit("demo", {"steps": steps})) as run:
    ...     run.push("t", [{"at": 1, "x": 10}, {"at": 2, "x": 11}, {"at": 3, "x": 12}])
    ...     print(sorted(run.step()["steps"].to_rows()))
    ...     run.delete("t", [{"at": 2, "x": 11}])
    ...     print(sorted(run.step()["steps"].to_rows()))
    [((1, 10, 0), 1), ((2, 11, 10), 1), ((3, 12, 11), 1)]
    [((2, 11, 10), -1), ((3, 12, 10), 1), ((3, 12, 11), -1)]
    """
    return _neighbour("lag", argument, offset, default, ignore_nulls)


def lead(
    argument: str | Expr, offset: int = 1, default: Any = NOTHING, *, ignore_nulls: bool = False
) -> WindowFunction:
    """The value in the row `offset` places behind; `default`, else null, where there is none. `ignore_nulls` and
    **Cost** as `lag`.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
    >>> seen = t.window("k", order_by="x").with_columns(r=dbsp.lead("x"))
    >>> with dbsp.open(dbsp.circuit("demo", {"seen": seen})) as run:
    ...     run.push("t", [{"k": "a", "x": x} for x in (4, 5, 7)])
    ...     print(run.step()["seen"].to_rows())
    ...     run.delete("t", [{"k": "a", "x": 4}])
    ...     print(run.step()["seen"].to_rows())
    [(('a', 4, 5), 1), (('a', 5, 7), 1), (('a', 7, None), 1)]
    [(('a', 4, 5), -1)]
    """
    return _neighbour("lead", argument, offset, default, ignore_nulls)


def first_value(argument: str | Expr, *, ignore_nulls: bool = False) -> WindowFunction:
    """The value in the first row of the partition; with `ignore_nulls` the first that is not null.

    **Cost** a change of that value changes every row of the partition; other changes touch their row alone. With
    `ignore_nulls` the rows before that value are read.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
    >>> seen = t.window("k", order_by="x").with_columns(r=dbsp.first_value("x"))
    >>> with dbsp.open(dbsp.circuit("demo", {"seen": seen})) as run:
    ...     run.push("t", [{"k": "a", "x": x} for x in (4, 5, 7)])
    ...     print(run.step()["seen"].to_rows())
    ...     run.delete("t", [{"k": "a", "x": 4}])
    ...     print(run.step()["seen"].to_rows())
    [(('a', 4, 4), 1), (('a', 5, 4), 1), (('a', 7, 4), 1)]
    [(('a', 4, 4), -1), (('a', 5, 4), -1), (('a', 5, 5), 1), (('a', 7, 4), -1), (('a', 7, 5), 1)]
    """
    return WindowFunction(function="first_value", argument=_argument(argument), skips=_skips(ignore_nulls))


def last_value(argument: str | Expr, *, ignore_nulls: bool = False) -> WindowFunction:
    """The value in the last row of the partition: of all of it, not, as in SQL without a frame, up to the row's ties.

    `ignore_nulls` and **Cost** as `first_value`.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
    >>> seen = t.window("k", order_by="x").with_columns(r=dbsp.last_value("x"))
    >>> with dbsp.open(dbsp.circuit("demo", {"seen": seen})) as run:
    ...     run.push("t", [{"k": "a", "x": x} for x in (4, 7)])
    ...     print(run.step()["seen"].to_rows())
    ...     run.delete("t", [{"k": "a", "x": 7}])
    ...     print(run.step()["seen"].to_rows())
    [(('a', 4, 7), 1), (('a', 7, 7), 1)]
    [(('a', 4, 4), 1), (('a', 4, 7), -1), (('a', 7, 7), -1)]
    """
    return WindowFunction(function="last_value", argument=_argument(argument), skips=_skips(ignore_nulls))


def nth_value(argument: str | Expr, n: int, *, ignore_nulls: bool = False) -> WindowFunction:
    """The value in the n-th row of the partition, from 1; null if it has fewer. Of all of it, as `last_value`.

    `ignore_nulls` as `first_value`. **Cost** as `first_value`, and the first n rows are read.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "at": dbsp.INT64, "x": dbsp.INT64})
    >>> seen = t.window(partition_by="k", order_by="at").select("at", second=dbsp.nth_value("x", 2))
    >>> with dbsp.open(dbsp.circuit("demo", {"seen": seen})) as run:
    ...     run.push("t", [{"k": "a", "at": at, "x": 10 * at} for at in (1, 2, 3)])
    ...     print(sorted(run.step()["seen"].to_rows()))
    ...     run.delete("t", [{"k": "a", "at": 1, "x": 10}])
    ...     print(sorted(run.step()["seen"].to_rows()))
    [((1, 20), 1), ((2, 20), 1), ((3, 20), 1)]
    [((1, 20), -1), ((2, 20), -1), ((2, 30), 1), ((3, 20), -1), ((3, 30), 1)]
    """
    place = _count("nth_value", n, least=1)
    return WindowFunction(function="nth_value", argument=_argument(argument), offset=place, skips=_skips(ignore_nulls))


def rolling(
    aggregate: Aggregate,
    rows: int | tuple[int | None, int | None] | None = None,
    range: Bound | tuple[Bound, Bound] = None,  # noqa: A002 (SQL's name)
) -> WindowFunction:
    """An aggregate over a frame around each row: so many `rows`, or the rows within a `range` of the order column.

    **Shape** `rows=2`: the row and the 2 before it. `rows=(2, 1)`: from 2 before to 1 behind; a negative number lies on the
    other side, so `rows=(5, -1)` leaves the row itself out; None is no bound. `range=dbsp.minutes(5)`: from 5 minutes
    before up to the row's own time, both included, ties too; `range=(before, behind)`, where a negative bound lies on the
    other side too: `range=(dbsp.days(7), -dbsp.days(1))` is the week before the row's day. A range needs one ordering
    column: a timestamp or a duration with spans, a date with spans of whole days or numbers of days, integers with
    numbers; with the bounds None and 0, all rows and those that tie, any order. Before and behind follow the order, so in a
    descending one "before" is greater. Rows whose order is null are a frame of their own. Aggregates: count, sum, avg, min,
    max, variances and standard deviations, covariances and regression, count_distinct, mode, median and quantiles, arg_min,
    arg_max, first and last by an order of their own, bool_and, bool_or, bit_and, bit_or, bit_xor, string_agg and array_agg in
    an order of their own, fold_aggregate; each with
    `.where(condition)`. `rows=(None, 0)` is a running total, row by row, `range=(None, 0)` one for all that tie, and
    `rows=(None, None)` the total of the partition, which needs no order.

    **State** beside the rows, for frames without a bound, a summary for every few hundred rows of a partition that has more;
    for a count_distinct of such a frame the rows once more, by partition and value.

    **Cost** a changed row touches the rows whose frame holds it, and reads those that these frames hold. With a frame from
    the partition's start these are the rows behind the first change, with one to its end those in front of the last: of the
    others it reads summaries, one for a few hundred. A total of the partition touches the changed row alone while it stays
    the same, and reads some hundred rows near it; a count_distinct looks for the neighbours of a changed row among those of
    its value, and is then a count of the rows that are the first with theirs. Without a bound mode, median, quantiles,
    string_agg, array_agg and fold_aggregate compute the whole partition anew. string_agg, array_agg and fold_aggregate put
    every frame together anew that they touch: so many rows as all these frames hold, a fold_aggregate in Python; without a
    bound that grows with the square of the partition. Of others each row read enters and leaves the frame once, however long
    frames are; extremes, first, last, count_distinct, mode and quantiles sort the rows read by their values too, covariances
    take some microseconds a row. Sums, variances and covariances of floats are exact.

    **Errors** A sum that does not fit its type, or a frame that a fold_aggregate fails on, leaves by the error policy.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"at": dbsp.INT64, "x": dbsp.INT64})
    >>> sums = t.window(order_by="at").with_columns(total=dbsp.rolling(dbsp.sum("x"), range=10))
    >>> with dbsp.open(dbsp.circuit("demo", {"sums": sums})) as run:
    ...     run.push("t", [{"at": 1, "x": 1}, {"at": 9, "x": 2}, {"at": 12, "x": 4}])
    ...     print(sorted(run.step()["sums"].to_rows()))
    ...     run.delete("t", [{"at": 9, "x": 2}])
    ...     print(sorted(run.step()["sums"].to_rows()))
    [((1, 1, 1), 1), ((9, 2, 3), 1), ((12, 4, 6), 1)]
    [((9, 2, 3), -1), ((12, 4, 4), 1), ((12, 4, 6), -1)]

    >>> usual = t.window(order_by="at").select("at", middle=dbsp.rolling(dbsp.median("x"), rows=2))
    >>> with dbsp.open(dbsp.circuit("demo", {"usual": usual})) as run:
    ...     run.push("t", [{"at": 1, "x": 1}, {"at": 2, "x": 90}, {"at": 3, "x": 4}, {"at": 4, "x": 5}])
    ...     print(sorted(run.step()["usual"].to_rows()))
    ...     run.delete("t", [{"at": 2, "x": 90}])
    ...     print(sorted(run.step()["usual"].to_rows()))
    [((1, 1.0), 1), ((2, 45.5), 1), ((3, 4.0), 1), ((4, 5.0), 1)]
    [((2, 45.5), -1), ((3, 2.5), 1), ((3, 4.0), -1), ((4, 4.0), 1), ((4, 5.0), -1)]

    >>> w = t.window(order_by="at")
    >>> lately, running = dbsp.rolling(dbsp.array_agg("x"), rows=1), dbsp.rolling(dbsp.count_distinct("x"), rows=(None, 0))
    >>> kinds = w.select("at", lately=lately, n=running)
    >>> with dbsp.open(dbsp.circuit("demo", {"kinds": kinds})) as run:
    ...     run.push("t", [{"at": 1, "x": 7}, {"at": 2, "x": 5}, {"at": 3, "x": 7}])
    ...     print(sorted(run.step()["kinds"].to_rows()))
    ...     run.delete("t", [{"at": 1, "x": 7}])
    ...     print(sorted(run.step()["kinds"].to_rows()))
    [((1, [7], 1), 1), ((2, [5, 7], 2), 1), ((3, [5, 7], 2), 1)]
    [((1, [7], 1), -1), ((2, [5], 1), 1), ((2, [5, 7], 2), -1)]
    """
    with located(user_line()):
        function = aggregate_name(aggregate)
        if not rolls(aggregate):
            hint = (
                'for all of a partition group by it and join that, .join(grouped, on="k"); else '
                f"one of dbsp.{', dbsp.'.join((*AGGREGATES, *FOLDS))}; for another join the rows with those near them, "
                '.interval_join(same, on="at", by="k", lower=-dbsp.hours(1), upper=dbsp.hours(0)), and group by the row;'
                ' for so many rows number them before, .with_row_number("n", …), and join on="n" with lower=-3, upper=0'
            )
            raise CircuitError(f"rolling takes an aggregate of these: got={function}", hint)
        if (rows is None) == (range is None):
            hint = "rows=2, rows=(2, 1), range=dbsp.minutes(5), range=(10, 0); rows=(None, None) for all rows"
            raise CircuitError("rolling takes either rows or a range", hint)
        if range == (None, None):  # every row of the partition, in whichever order
            rows, range = (None, None), None  # noqa: A001 (SQL's name)
        return WindowFunction(
            function=function,
            aggregate=aggregate,
            rows=None if rows is None else _rows_bounds(rows),
            range=None if range is None else _pair("range", range, zero=0),
        )


def aggregate_name(value: Any) -> str:
    """What SQL calls an aggregate; of anything else how Python shows it."""
    if not isinstance(value, Aggregate):
        return repr(value)
    match value.kind:
        case Count():
            return "count"
        case Sum():
            return "sum"
        case Avg():
            return "avg"
        case Extreme(greatest=greatest):
            return "max" if greatest else "min"
        case CountDistinct():
            return "count_distinct"
        case Unique():
            return value.kind.sql(("…",))
    return value.kind.sql(("…",) * len(value.arguments)).partition("(")[0]


def rolls(value: Any) -> bool:
    """Whether it is an aggregate that `rolling` takes."""
    return isinstance(value, Aggregate) and isinstance(value.kind, _ROLLED)


def frame_of(function: WindowFunction, unit: str | None) -> Frame | None:
    """The frame with its bounds as whole numbers: of rows, or of the order column's `unit` (us, day, or 1; None: no unit).

    **Errors** `CircuitError` for a distance over an order that has none, or a bound of another kind.
    """
    if function.rows is not None:
        return Frame(kind="rows", preceding=function.rows[0], following=function.rows[1])
    if function.range is None:
        return None
    if unit is None and any(bound not in (None, 0) for bound in function.range):
        hint = "order by one timestamp, date, duration or integer column, or give rows= instead of range="
        raise CircuitError("a range needs one ordering column whose values have distances", hint)
    unit = unit or "1"
    preceding, following = (_distance(bound, unit) for bound in function.range)
    if preceding is not None and following is not None and preceding + following < 0:
        hint = "range=(dbsp.days(7), -dbsp.days(1)) is from 7 days before to 1 day before"
        raise CircuitError(f"a frame ends before it starts: range={function.range}", hint)
    return Frame(kind="range", preceding=preceding, following=following)


def _distance(bound: Any, unit: str) -> int | None:
    """A bound as a number of units of the order column."""
    if bound is None:
        return None
    span = isinstance(bound, datetime.timedelta)
    number = isinstance(bound, int) and not isinstance(bound, bool)
    day = micros(datetime.timedelta(days=1))
    if unit == "us" and span:
        distance = micros(bound)
    elif unit == "day" and span and micros(bound) % day == 0:
        distance = micros(bound) // day
    elif number and (unit != "us" or bound == 0):
        distance = bound
    else:
        hint = {
            "us": "a span such as dbsp.minutes(5)",
            "day": "whole days, such as dbsp.days(7)",
            "1": "a whole number",
        }
        raise CircuitError(f"a range that does not fit the order column: got={bound!r}", hint[unit])
    return distance


def _rows_bounds(rows: Any) -> tuple[Any, Any]:
    """How many rows before and behind."""
    before, behind = _pair("rows", rows, zero=0)
    for bound in (before, behind):
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int)):
            raise CircuitError(f"rows are counted in whole numbers: got={bound!r}", "rows=2 or rows=(2, 1)")
    if before is not None and behind is not None and before + behind < 0:
        raise CircuitError(f"a frame ends before it starts: rows={rows}", "rows=(5, -1) is from 5 before to 1 before")
    return before, behind


def _pair(what: str, bounds: Any, zero: Any) -> tuple[Any, Any]:
    """A frame's two bounds; one alone is the preceding one."""
    if not isinstance(bounds, tuple):
        return bounds, zero
    if len(bounds) != 2:  # noqa: PLR2004 (before and behind)
        raise CircuitError(f"{what} takes one bound or two: got={bounds!r}", f"{what}=(before, behind)")
    return bounds


def _skips(ignore_nulls: Any) -> bool:
    if isinstance(ignore_nulls, bool):
        return ignore_nulls
    with located(user_line()):
        raise CircuitError(f"ignore_nulls is True or False: got={ignore_nulls!r}")


def _neighbour(function: str, argument: Any, offset: int, default: Any, ignore_nulls: bool) -> WindowFunction:
    return WindowFunction(
        function=function,
        argument=_argument(argument),
        offset=_count(function, offset, least=1 if ignore_nulls else 0),
        skips=_skips(ignore_nulls),
        default=None if default is NOTHING or default is None else unwrap(default),
    )


def _argument(value: Any) -> Expression:
    if isinstance(value, str):
        return ColumnRef(value)
    if isinstance(value, Expr):
        return unwrap(value)
    with located(user_line()):
        raise CircuitError(f"it takes a column name or an expression: got={value!r}", 'such as dbsp.lag("x")')


def _count(what: str, number: Any, least: int) -> int:
    if isinstance(number, int) and not isinstance(number, bool) and least <= number < 1 << 31:
        return number
    with located(user_line()):
        raise CircuitError(f"{what} takes a whole number: got={number!r} least={least}", f"such as dbsp.{what}(…, 1)")
