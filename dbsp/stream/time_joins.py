"""Joins on time: as of a time, within a span of time, and with a table as it is in the current step."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

import pyarrow as pa

from dbsp.algebra.side_join import SEMI, AsofJoin, LookupJoin, SideJoin
from dbsp.diagnostics.source_lines import SourceLine, located, user_line
from dbsp.errors import CircuitError
from dbsp.expr.build import Expr, col, when
from dbsp.expr.durations import MICROSECOND
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.resolving import resolve
from dbsp.expr.types import is_integer
from dbsp.operators.joins.conditional_join import TimeInterval
from dbsp.stream.computed_keys import only, with_fields, with_hidden, with_hidden_fields
from dbsp.stream.handle import check_streams
from dbsp.stream.join_keys import HOWS, Pairs, Sides, condition_of, keys_of, output, reads_of, sides_of
from dbsp.stream.rows import RowMethods
from dbsp.zset.schema import DATE, INT64, TIMES, WHOLE, Schema

Distance = int | datetime.timedelta
By = str | Sequence[str] | Mapping[str, str] | None
DAY = datetime.timedelta(days=1)
BEFORE, BEHIND = "__before_", "__behind_"


class TimeJoinMethods(RowMethods):
    """As-of, interval and lookup joins."""

    __slots__ = ()

    def asof_join(  # noqa: PLR0913 (all by keyword)
        self,
        other: Self,
        on: str | Mapping[str, str],
        *,
        by: By = None,
        tolerance: Distance | None = None,
        direction: str = "backward",
        allow_exact_matches: bool = True,
        how: str = "left",
        null_safe: bool = False,
        suffix: str | None = "_right",
    ) -> Self:
        """Join each row with the latest row of the other stream that is not later, by the time columns `on`.

        **Law** Candidates are the other's rows with equal `by` and time <= the row's time (`allow_exact_matches=False`:
        <), at most `tolerance` before it. The match is the latest; of several at that time, the first by all its
        columns, ascending, nulls last, as `top_k` orders them. With `direction="forward"` it is the earliest one that
        is not earlier. With `"nearest"` it is the nearer of the two, or the earlier one if both are equally near. A row
        without a match has nulls, or is dropped with `how="inner"`. A null time or `by` matches nothing.

        **Shape** All columns, then the other's without its `by`; names as in `join`. The times `on` are two columns, or fields of
        structs (`"call.at"`), of one type: whole numbers, dates or times. A `tolerance` is in the same unit: a number, or
        a span such as `dbsp.minutes(5)`.

        **State** Both sides, sorted by time within `by`; all columns of the other, which decide ties. Under watermarks
        on both times, this side's rows are dropped once no row that could change their match can still arrive.

        **Cost** Per changed row a search. A change on the other side affects the rows of this side between the changed
        row and its neighbour in time. Only these are looked up again. Without `by` all rows are on one worker. A join
        with `"nearest"` is two such joins, one after the other, with the state of both.

        **Example**

        >>> import dbsp
        >>> trades = dbsp.table("trades", {"at": dbsp.INT64, "share": dbsp.STRING})
        >>> quotes = dbsp.table("quotes", {"at": dbsp.INT64, "share": dbsp.STRING, "price": dbsp.INT64})
        >>> priced = trades.asof_join(quotes, on="at", by="share", tolerance=10)
        >>> print(priced.schema)
        (at: int64, share: string, at_right: int64, price: int64)
        >>> with dbsp.open(dbsp.circuit("demo", {"priced": priced})) as run:
        ...     run.push("trades", [{"at": 7, "share": "x"}])
        ...     run.push("quotes", [{"at": 1, "share": "x", "price": 5}, {"at": 6, "share": "x", "price": 8}])
        ...     print(run.step()["priced"].to_rows())
        ...     run.delete("quotes", [{"at": 6, "share": "x", "price": 8}])
        ...     print(sorted(run.step()["priced"].to_rows()))
        [((7, 'x', 6, 8), 1)]
        [((7, 'x', 1, 5), 1), ((7, 'x', 6, 8), -1)]
        """
        source = user_line()
        with located(source):
            check_streams("asof_join", [other])
            _one_of("how", how, ("left", "inner"))
            _one_of("direction", direction, ("backward", "forward", "nearest"))
            fields = _Fields.of(self, other, on, by, source)
            if fields is not None:
                made = fields.left.asof_join(
                    fields.right, fields.on, by=fields.by, tolerance=tolerance, direction=direction,
                    allow_exact_matches=allow_exact_matches, how=how, null_safe=null_safe, suffix=suffix,
                )  # fmt: skip
                return fields.shown(made, source)
            sides, left, right = _timed("asof_join", self, other, on, by, source)
            unit = sides.left.schema[left].type
            columns, schema = output(sides, how, suffix, null_safe=null_safe)
            if direction == "nearest":
                ways = self._both_ways(other, sides, (left, right), tolerance, allow_exact_matches, null_safe)
                return _nearer(ways, columns, (left, right), how)
            node = AsofJoin(
                left=sides.left, right=sides.right, left_on=sides.left_on, right_on=sides.right_on, left_time=left,
                right_time=right, forward=direction == "forward", exact=bool(allow_exact_matches),
                tolerance=None if tolerance is None else _distance("tolerance", tolerance, unit, least=0),
                outer=how == "left", columns=columns, schema=schema, null_safe=null_safe, source=source,
            )  # fmt: skip
            return self._made(node)

    def _both_ways(
        self,
        other: Self,
        sides: Sides,
        times: tuple[str, str],
        tolerance: Distance | None,
        exact: bool,
        null_safe: bool,
    ) -> Self:
        """Return each row with the other's last row before it, and with the other's first row after it."""
        joined = self
        for direction, prefix in (("backward", BEFORE), ("forward", BEHIND)):
            renamed = other.rename({name: prefix + name for name in other.columns})
            keys = {left: prefix + right for left, right in zip(sides.left_on, sides.right_on, strict=True)}
            joined = joined.asof_join(
                renamed, {times[0]: prefix + times[1]}, by=keys, tolerance=tolerance, direction=direction,
                allow_exact_matches=exact, null_safe=null_safe,
            )  # fmt: skip
        return joined

    def interval_join(  # noqa: PLR0913 (all by keyword)
        self,
        other: Self,
        on: str | Mapping[str, str],
        *,
        by: By = None,
        lower: Distance | None = None,
        upper: Distance | None = None,
        within: Distance | None = None,
        how: str = "inner",
        where: Expr | None = None,
        null_safe: bool = False,
        suffix: str | None = "_right",
    ) -> Self:
        """Join rows with equal `by` whose times `on` are near each other: lower <= other's time - this time <= upper.

        **Law** Bilinear if inner; `how` and `where` as in `join`. `within=d` means lower = -d and upper = d; an absent
        bound is infinite. A null time matches nothing.

        **Shape** As `asof_join`; bounds are numbers, or spans such as `dbsp.minutes(5)`.

        **State** Both sides, sorted by time within `by`. Outer, semi and anti joins also keep the number of pairs of
        each row that may have none. Under watermarks on both times, and with both bounds, rows are dropped when they
        are too old for rows that can still arrive.

        **Cost** Per changed row a search, and the rows of the other side in its span. Without `by` all rows are on one
        worker.

        **Errors** As in `join`.

        **Example**

        >>> import dbsp
        >>> clicks = dbsp.table("clicks", {"at": dbsp.INT64, "user": dbsp.STRING})
        >>> orders = dbsp.table("orders", {"at": dbsp.INT64, "user": dbsp.STRING})
        >>> led = clicks.interval_join(orders, on="at", by="user", lower=0, upper=10, how="left")
        >>> with dbsp.open(dbsp.circuit("demo", {"led": led})) as run:
        ...     run.push("clicks", [{"at": 5, "user": "ann"}])
        ...     print(run.step()["led"].to_rows())
        ...     run.push("orders", [{"at": 12, "user": "ann"}, {"at": 16, "user": "ann"}])
        ...     print(sorted(run.step()["led"].to_rows(), key=str))
        [((5, 'ann', None), 1)]
        [((5, 'ann', 12), 1), ((5, 'ann', None), -1)]
        """
        source = user_line()
        with located(source):
            check_streams("interval_join", [other])
            _one_of("how", how, HOWS)
            fields = _Fields.of(self, other, on, by, source)
            if fields is not None:
                made = fields.left.interval_join(
                    fields.right, fields.on, by=fields.by, lower=lower, upper=upper, within=within, how=how, where=where,
                    null_safe=null_safe, suffix=suffix,
                )  # fmt: skip
                return only(made, self.columns, source) if how in SEMI else fields.shown(made, source)
            sides, left, right = _timed("interval_join", self, other, on, by, source)
            least, most = _bounds(lower, upper, within, sides.left.schema[left].type)
            naming = suffix if how not in ("semi", "anti") else suffix or "_right"
            pairs, pair_schema = output(sides, "inner", naming, null_safe=null_safe)
            condition = None if where is None else condition_of(where, sides, pairs, pair_schema)
            columns, schema = output(sides, how, suffix, null_safe=null_safe)
            node = SideJoin(
                left=sides.left, right=sides.right, how=how, left_on=sides.left_on, right_on=sides.right_on,
                columns=columns, schema=schema, where=condition, reads=reads_of(sides, pairs, condition),
                interval=TimeInterval(left=left, right=right, lower=least, upper=most), null_safe=null_safe, source=source,
            )  # fmt: skip
            return self._made(node)

    def lookup_join(
        self,
        other: Self,
        on: str | Sequence[str] | Mapping[str, str],
        *,
        how: str = "inner",
        null_safe: bool = False,
        suffix: str | None = "_right",
    ) -> Self:
        """Join each new row with the other's rows of its key as of the row's step; later changes there have no effect.

        An ordinary `join` retracts earlier results when the other side changes.

        **Law** The output of a step is the step's new rows joined with the other side after the step's changes. So the
        result depends on how changes are cut into steps. The step log records the steps, so a replay gives the same
        rows.

        **Shape** As `join` with `how` "inner" or "left".

        **State** The other side, by key; nothing of this side.

        **Cost** Per new row a look-up, and the pairs that it makes.

        **Errors** This side takes new rows only. A row that is retracted, or replaced under a primary key, goes to the
        dead-letter log, and its earlier results stay.

        **Example**

        >>> import dbsp
        >>> bids = dbsp.table("bids", {"euros": dbsp.INT64, "kind": dbsp.STRING})
        >>> rates = dbsp.table("rates", {"kind": dbsp.STRING, "rate": dbsp.INT64}, primary_key="kind")
        >>> with dbsp.open(dbsp.circuit("demo", {"rated": bids.lookup_join(rates, on="kind")})) as run:
        ...     run.push("rates", [{"kind": "a", "rate": 2}])
        ...     run.push("bids", [{"euros": 5, "kind": "a"}])
        ...     print(run.step()["rated"].to_rows())
        ...     run.push("rates", [{"kind": "a", "rate": 3}])
        ...     run.push("bids", [{"euros": 6, "kind": "a"}])
        ...     print(run.step()["rated"].to_rows())
        ...     run.delete("bids", [{"euros": 5, "kind": "a"}])
        ...     print(run.step()["rated"].to_rows(), run.dead_letters()[0].reason)
        [((5, 'a', 2), 1)]
        [((6, 'a', 3), 1)]
        [] a lookup join takes new rows only: this one was taken back
        """
        source = user_line()
        with located(source):
            check_streams("lookup_join", [other])
            _one_of("how", how, ("inner", "left"))
            left_side, right_side, keys = _by_fields(self, other, on, source)
            if keys is not None:
                return left_side.lookup_join(right_side, keys, how=how, null_safe=null_safe, suffix=suffix)
            sides = sides_of(self.node, other.node, keys_of(on), source)
            columns, schema = output(sides, how, suffix, null_safe=null_safe)
            node = LookupJoin(
                left=sides.left, right=sides.right, left_on=sides.left_on, right_on=sides.right_on,
                outer=how == "left", columns=columns, schema=schema, null_safe=null_safe, source=source,
            )  # fmt: skip
            return self._made(node)


J = TypeVar("J", bound=TimeJoinMethods)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fields(Generic[J]):
    """Two sides of a time join with struct fields among their keys added as columns.

    The time columns added this way, `hidden`, are not part of the result.
    """

    left: J
    right: J
    on: Any
    by: By
    hidden: tuple[str, ...]

    @staticmethod
    def of(left: J, right: J, on: Any, by: By, source: SourceLine | None) -> _Fields[J] | None:
        """Return the sides with their struct fields as columns, or None if no key and no time is a field."""
        left_side, right_side, keys = _by_fields(left, right, by, source)
        times, hidden = keys_of(on), []
        if len(times[0]) == 1:
            left_side, own = with_hidden(left_side, times[0][0], right_side.columns, source)
            right_side, other = with_hidden(right_side, times[1][0], left_side.columns, source)
            hidden = [name for name, time in ((own, times[0][0]), (other, times[1][0])) if name != time]
        if keys is None and not hidden:
            return None
        return _Fields(
            left=left_side, right=right_side, on={own: other} if hidden else on, by=by if keys is None else keys,
            hidden=tuple(hidden),
        )  # fmt: skip

    def shown(self, made: J, source: SourceLine | None) -> J:
        """Return the result without the time columns that were added."""
        return only(made, [name for name in made.columns if name not in self.hidden], source)


def _by_fields(left: J, right: J, by: By, source: SourceLine | None) -> tuple[J, J, dict[str, str] | None]:
    """Return both sides with struct fields among their keys as columns, and the new keys, or None if no key is a field."""
    same = left, right, None
    if by is None or (not isinstance(by, str) and not len(by)):
        return same
    left_keys, right_keys = keys_of(by)
    made, left_names = with_fields(left, left_keys, source)
    other, right_names = with_hidden_fields(right, right_keys, source)
    if left_names == left_keys and right_names == right_keys:
        return same
    return made, other, dict(zip(left_names, right_names, strict=True))


def _nearer(ways: J, columns: Pairs, times: tuple[str, str], how: str) -> J:
    """Return each row with the columns of the nearer of its two matches, before and after."""
    before, behind = col(BEFORE + times[1]), col(BEHIND + times[1])
    at, one, other = _with_room([col(times[0]), before, behind], ways.schema)
    later = before.is_null() | (behind.is_not_null() & (other - at < at - one))
    chosen = {
        out: when(later, col(BEHIND + name)).otherwise(col(BEFORE + name)) if side else col(name)
        for side, name, out in columns
    }
    found = ways.filter(before.is_not_null() | behind.is_not_null()) if how == "inner" else ways
    return found.select(**chosen)


def _with_room(values: list[Expr], schema: Schema) -> list[Expr]:
    """Return times unchanged, and signed integers cast to a type that holds the distance of any two of them."""
    types = [resolve(unwrap(value), schema).type(schema) for value in values]
    if not any(pa.types.is_signed_integer(type_) for type_ in types):
        return values
    room = INT64 if all(type_.bit_width < INT64.bit_width for type_ in types) else WHOLE
    return [value.cast(room) for value in values]


def _one_of(what: str, value: Any, known: Sequence[str]) -> None:
    if value not in known:
        raise CircuitError(f"no such {what}: {what}={value!r}", f"one of {', '.join(known)}")


def _timed(
    what: str, left: RowMethods, right: RowMethods, on: Any, by: By, source: SourceLine | None
) -> tuple[Sides, str, str]:
    """Return the sides, keyed by `by`, and the names of their time columns, which have one type."""
    keys = ((), ()) if by is None or (not isinstance(by, str) and not len(by)) else keys_of(by)
    sides = sides_of(left.node, right.node, keys, source)
    times = keys_of(on)
    if len(times[0]) != 1:
        raise CircuitError(f"{what} compares one column of each side: on={on!r}", "equal keys go to by=")
    sides_of(left.node, right.node, times, source)
    (own,), (other,) = times
    sides = sides.met(own, other, source)
    type_ = sides.left.schema[own].type
    if not is_integer(type_) and type_ not in TIMES:
        hint = "cast both sides to dbsp.TIMESTAMP, dbsp.DATE or a whole number"
        raise CircuitError(f"{what} compares times or whole numbers: column={own} type={type_}", hint)
    return sides, own, other


def _bounds(lower: Any, upper: Any, within: Any, type_: pa.DataType) -> tuple[int | None, int | None]:
    """Return both bounds of an interval in the unit of the times; None is unbounded."""
    if within is not None:
        if lower is not None or upper is not None:
            raise CircuitError("an interval has its bounds twice", "give within=, or lower= and upper=")
        distance = _distance("within", within, type_, least=0)
        return -distance, distance
    if lower is None and upper is None:
        raise CircuitError("an interval join needs a bound", "give within=, or lower= and upper=")
    least = None if lower is None else _distance("lower", lower, type_)
    most = None if upper is None else _distance("upper", upper, type_)
    if least is not None and most is not None and least > most:
        raise CircuitError(
            f"an interval that holds nothing: lower={lower} upper={upper}", "lower must not be above upper"
        )
    return least, most


def _distance(name: str, value: Any, type_: pa.DataType, least: int | None = None) -> int:
    """Return a distance between two values of this type, in the type's unit: a number, days or microseconds."""
    if is_integer(type_):
        if isinstance(value, bool) or not isinstance(value, int):
            raise CircuitError(
                f"{name} must be a whole number, because the columns are: {name}={value!r}", "such as 10"
            )
        distance = value
    else:
        if not isinstance(value, datetime.timedelta):
            raise CircuitError(
                f"{name} must be a duration, because the columns are times: {name}={value!r}",
                "such as dbsp.minutes(10)",
            )
        unit = DAY if type_ == DATE else MICROSECOND
        if value % unit:
            raise CircuitError(
                f"{name} is not a whole number of days, as the columns are: {name}={value}", "such as dbsp.days(1)"
            )
        distance = value // unit
    if least is not None and distance < least:
        raise CircuitError(f"{name} must not be negative: {name}={value}", "such as 0")
    return distance
