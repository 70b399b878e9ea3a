"""Window functions: `stream.window(...).with_columns(...)` computes them for each row from the rows around it.

Every function reads the rows of one partition in the order of the window. All columns break ties, so every result is
deterministic. Each of several equal rows takes a place of its own.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from dbsp.aggregates import Aggregate
from dbsp.aggregates.counts import Count, CountDistinct, Mode
from dbsp.aggregates.covariances import Paired
from dbsp.aggregates.lists import ArrayAgg, StringAgg
from dbsp.aggregates.logic import Bit, Bool
from dbsp.aggregates.positions import ArgExtreme, Extreme, FirstInOrder
from dbsp.aggregates.quantiles import Quantile
from dbsp.aggregates.shapes import HistogramAgg, Shape
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
FOLDED = (StringAgg, ArrayAgg, Shape, HistogramAgg, FoldRows)
"""The kinds of aggregates that are made of all rows of a frame."""
FOLDS = ("string_agg", "array_agg", "skewness", "kurtosis", "histogram", "fold_aggregate")
_ROLLED = (
    *(Count, Sum, Avg, Extreme, Variance),
    *(CountDistinct, Mode, Quantile, Paired, ArgExtreme, Bool, Bit, FirstInOrder),
    *FOLDED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowFunction(NotAValue):
    """A function over a window, not yet bound to a stream; `dbsp.lag`, `dbsp.rank` and the other functions here make it."""

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
    relative: bool = False


def row_number() -> WindowFunction:
    """Return the place of the row in its partition, from 1; int64.

    **Cost** an inserted or deleted row changes the result of all rows after it.

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
    """Return 1 plus the number of rows strictly before the row: ties share a rank and leave a gap; int64.

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
    """Return 1 plus the number of distinct order values before the row: ties share a rank and leave no gap; int64.

    **State** the rows, and each distinct order value of a partition once.

    **Cost** a change among rows that tie touches only these rows. A new or vanished order value changes all rows after it.

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
    """Return (rank - 1) / (rows - 1) in the partition, or 0 for a single row; float64.

    **Cost** a change recomputes its whole partition, because every result depends on the number of rows.

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
    """Return the fraction of the partition's rows that are before the row or tie with it; float64.

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
    """Return the number, from 1, of the row's part in its partition; int64.

    The partition is cut into `parts` parts of equal length; if that leaves a remainder, the first parts have one row more.

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
    """Return the value in the row `offset` places before; without such a row return `default`, or null if none is given.

    With `ignore_nulls`, rows whose value is null are skipped. To fill gaps with the last known value, first add
    `before=dbsp.lag("x", ignore_nulls=True)`, then compute `dbsp.coalesce(dbsp.col("x"), dbsp.col("before"))`.

    **Cost** a changed row touches the `offset` rows after it, whatever the size of the partition. With `ignore_nulls` it touches
    the rows up to the `offset`-th one with a value.

    **State** the rows. With `ignore_nulls` also the partition and order of the rows with a value.

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
    """Return the value in the row `offset` places after; without such a row return `default`, or null if none is given.

    `ignore_nulls`, **State** and **Cost** as `lag`; a changed row touches the rows before it.

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


def pct_change(argument: str | Expr, offset: int = 1) -> WindowFunction:
    """Return by which part the value differs from the one `offset` rows before: (x - before) / before; float64.

    Null where there is no such row, where a value is null, and where the value before is 0.

    **State** and **Cost** as `lag`.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"at": dbsp.INT64, "price": dbsp.INT64})
    >>> moves = t.window(order_by="at").select("price", move=dbsp.pct_change("price"))
    >>> with dbsp.open(dbsp.circuit("demo", {"moves": moves})) as run:
    ...     run.push("t", [{"at": 1, "price": 4}, {"at": 2, "price": 5}, {"at": 3, "price": 6}])
    ...     print(run.step()["moves"].to_rows())
    ...     run.delete("t", [{"at": 2, "price": 5}])
    ...     print(run.step()["moves"].to_rows())
    [((4, None), 1), ((5, 0.25), 1), ((6, 0.2), 1)]
    [((5, 0.25), -1), ((6, 0.2), -1), ((6, 0.5), 1)]
    """
    return replace(lag(argument, offset), relative=True)


def first_value(argument: str | Expr, *, ignore_nulls: bool = False) -> WindowFunction:
    """Return the value in the first row of the partition; with `ignore_nulls` the first value that is not null.

    **Cost** a change of the first value changes every row of the partition; another change touches only its own row. With
    `ignore_nulls` the rows before the first value are read.

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
    """Return the value in the last row of the whole partition; SQL without a frame stops at the row's ties instead.

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
    """Return the value in the n-th row of the whole partition, from 1; null if the partition has fewer rows.

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
    """Return an aggregate over a frame around each row: a number of `rows`, or a `range` of the order column.

    **Shape** before and after follow the order of the window: in a descending order, "before" means greater.

    | frame | rows in the frame |
    | --- | --- |
    | `rows=2` | the row and the 2 before it |
    | `rows=(2, 1)` | from 2 before to 1 after |
    | `rows=(5, -1)` | from 5 before to 1 before: a negative bound is on the other side |
    | `rows=(None, 0)` | a running total, row by row: None is no bound |
    | `rows=(None, None)` | all rows of the partition; needs no order |
    | `range=dbsp.minutes(5)` | from 5 minutes before up to the row's own time, both included, with ties |
    | `range=(dbsp.days(7), -dbsp.days(1))` | the week before the row's day |
    | `range=(None, 0)` | a running total that includes all rows that tie |

    A range with distances needs one ordering column:

    - a timestamp or a duration takes spans;
    - a date takes spans of whole days, or numbers of days;
    - an integer takes numbers.

    A range whose bounds are None or 0 takes any order. Rows whose order is null are a frame of their own.

    These aggregates can be used, each with `.where(condition)`:

    - count, count_distinct, sum, avg, min, max, mode, median and quantiles;
    - variances and standard deviations, covariances and regression;
    - arg_min, arg_max; first and last by an order of their own;
    - bool_and, bool_or, bit_and, bit_or, bit_xor;
    - string_agg and array_agg in an order of their own; fold_aggregate.

    **State** the rows. For frames without a bound, a partition of more than a few hundred rows keeps a summary for every few
    hundred. A count_distinct over such a frame keeps the rows once more, by partition and value.

    **Cost** a changed row touches the rows whose frame contains it, and reads the rows that these frames contain.

    - A frame from the partition's start: the touched rows are those after the first change. A frame to the partition's end: the
      touched rows are those before the last change. Of the other rows only summaries are read, one for a few hundred rows.
    - A total of the partition touches only the changed row while the total stays the same, and reads some hundred rows near it.
    - A count_distinct without a bound looks for the neighbours of a changed row among the rows with its value. It is then a count
      of the rows that are the first with their value.
    - Without a bound, mode, median, quantiles, string_agg, array_agg and fold_aggregate recompute the whole partition.
    - string_agg, array_agg and fold_aggregate rebuild every frame that they touch, a fold_aggregate in Python. The cost is the
      number of rows in all these frames; without a bound it grows with the square of the partition.
    - For other aggregates each row read enters and leaves the frame once, however long frames are.
    - Extremes, first, last, count_distinct, mode and quantiles also sort the rows read by their values.
    - Covariances take some microseconds a row.
    - Sums, variances and covariances of floats are exact.

    **Errors** the error policy handles a sum that does not fit its type, and a frame on which a fold_aggregate fails.

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
    """Return the SQL name of an aggregate, or the `repr` of any other value."""
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
    """Return whether the value is an aggregate that `rolling` takes."""
    return isinstance(value, Aggregate) and isinstance(value.kind, _ROLLED)


def frame_of(function: WindowFunction, unit: str | None) -> Frame | None:
    """Return the frame with whole numbers as bounds, or None for a function without a frame.

    A bound counts rows, or units of the order column: `unit` is "us", "day" or "1", and None for an order without distances.
    **Errors** `CircuitError` for a distance over an order without distances, or a bound of a type that does not fit.
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
    """Return a bound as a number of units of the order column; None for no bound."""
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
    """Return how many rows the frame takes before and after the row; check both bounds."""
    before, behind = _pair("rows", rows, zero=0)
    for bound in (before, behind):
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int)):
            raise CircuitError(f"rows are counted in whole numbers: got={bound!r}", "rows=2 or rows=(2, 1)")
    if before is not None and behind is not None and before + behind < 0:
        raise CircuitError(f"a frame ends before it starts: rows={rows}", "rows=(5, -1) is from 5 before to 1 before")
    return before, behind


def _pair(what: str, bounds: Any, zero: Any) -> tuple[Any, Any]:
    """Return the two bounds of a frame; a single bound is the preceding one, and `zero` the following one."""
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
