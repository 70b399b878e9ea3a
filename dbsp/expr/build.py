"""Expressions as a user writes them: `dbsp.col("x") + 1`, `dbsp.when(...)`.

`Expr` carries an `Expression` and overloads Python's operators. Its `==` builds a comparison, so it is no value: it
has no hash and no truth value. Streams take an `Expr`, resolve its expression against their schema, and keep only
that.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NoReturn

import pyarrow as pa

from dbsp.diagnostics.source_lines import located, user_line
from dbsp.errors import CircuitError
from dbsp.expr import (
    arithmetic,
    conditional,
    dates,
    digests,
    element_functions,
    logic,
    mathematics,
    strings,
    struct_functions,
)
from dbsp.expr import catalog as _catalog  # noqa: F401 - functions are pickled by it
from dbsp.expr.answering import Answering
from dbsp.expr.cast import CAST
from dbsp.expr.expression import Call, ColumnRef, Expression, Function, Literal
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.methods.lists import ListMethods
from dbsp.expr.methods.moments import MomentMethods
from dbsp.expr.methods.numbers import NumberMethods
from dbsp.expr.methods.structs import StructMethods
from dbsp.expr.methods.texts import TextMethods
from dbsp.expr.now import NOW
from dbsp.expr.sequences import SEQUENCE
from dbsp.expr.type_names import spelled
from dbsp.expr.types import adopt


class Expr(NumberMethods, TextMethods, MomentMethods, ListMethods, StructMethods):
    """A column, a constant, or an expression that operators make of them.

    **Shape** One value per row; null in, null out, unless a method says otherwise. The stream that takes the
    expression checks its types.

    **Errors** A row fails if its value cannot be computed: an overflow, a division by zero, a strict cast that does
    not fit. The error policy decides what happens to the row.

    **Example**

    >>> import dbsp
    >>> (dbsp.col("dep_delay") > 15) & dbsp.col("origin").is_in(["JFK", "LGA"])
    ((dep_delay > 15) & origin.is_in(["JFK", "LGA"]))
    """

    __slots__ = ()

    _CALLED: ClassVar[str] = "an expression"
    _OTHERS: ClassVar[tuple[str, ...]] = ("value", "expression")

    def __repr__(self) -> str:
        """Return the expression as text."""
        return str(self._expression)

    def __bool__(self) -> NoReturn:
        """Refuse a truth value: `and`, `or`, `not` and chained comparisons would silently drop a part."""
        hint = (
            "write & for and, | for or, ~ for not, each side in brackets; .between(a, b) for a <= x <= b; .is_in([…]) for in;"
            " dbsp.when for if, dbsp.greatest and dbsp.least for max and min"
        )
        with located(user_line()):
            raise CircuitError(f"an expression is not true or false, but a value per row: expression={self}", hint)

    __hash__ = None  # type: ignore[assignment]  # `==` builds an expression, so there is no equality to hash by

    def _compare(self, function: Function, other: Any) -> Expr:
        if other is None:
            with located(user_line()):
                hint = "write .is_null() or .is_not_null()"
                raise CircuitError(f"a comparison with None is never true: expression={self}", hint)
        return self._call(function, other)

    def _reversed(self, function: Function, other: Any) -> Expr:
        return Expr(Call(function, (unwrap(other), self._expression)))

    def __add__(self, other: Any) -> Expr:
        """Return the sum: texts are joined, and a duration is added to a date or time."""
        return self._call(arithmetic.ADD, other)

    def __radd__(self, other: Any) -> Expr:
        """Return the sum with a constant on the left."""
        return self._reversed(arithmetic.ADD, other)

    def __sub__(self, other: Any) -> Expr:
        """Return the difference; between two dates or times, the difference is a duration."""
        return self._call(arithmetic.SUBTRACT, other)

    def __rsub__(self, other: Any) -> Expr:
        """Return a constant minus this expression."""
        return self._reversed(arithmetic.SUBTRACT, other)

    def __mul__(self, other: Any) -> Expr:
        """Return the product."""
        return self._call(arithmetic.MULTIPLY, other)

    def __rmul__(self, other: Any) -> Expr:
        """Return the product with a constant on the left."""
        return self._reversed(arithmetic.MULTIPLY, other)

    def __truediv__(self, other: Any) -> Expr:
        """Return the quotient as float64, or decimal for decimals; a zero divisor fails the row."""
        return self._call(arithmetic.DIVIDE, other)

    def __rtruediv__(self, other: Any) -> Expr:
        """Return a constant divided by this expression."""
        return self._reversed(arithmetic.DIVIDE, other)

    def __floordiv__(self, other: Any) -> Expr:
        """Return the integer quotient, rounded down as in Python."""
        return self._call(arithmetic.FLOOR_DIVIDE, other)

    def __rfloordiv__(self, other: Any) -> Expr:
        """Return the integer quotient of a constant and this expression, rounded down."""
        return self._reversed(arithmetic.FLOOR_DIVIDE, other)

    def __mod__(self, other: Any) -> Expr:
        """Return the remainder with the sign of the divisor, as in Python."""
        return self._call(arithmetic.MODULO, other)

    def __rmod__(self, other: Any) -> Expr:
        """Return the remainder of a constant divided by this expression."""
        return self._reversed(arithmetic.MODULO, other)

    def __pos__(self) -> Expr:
        """Return the expression itself."""
        return self

    def __lshift__(self, bits: Any) -> Expr:
        """Return `shift_left(bits)`."""
        return self.shift_left(bits)

    def __rshift__(self, bits: Any) -> Expr:
        """Return `shift_right(bits)`."""
        return self.shift_right(bits)

    def __getitem__(self, place: Any) -> Expr:
        """Return a field of a struct, by name; refuse positions, because they count from 1 here, as in SQL."""
        if isinstance(place, str):
            return self.field(place)
        hint = 'write .element(1) for the first of a list, .substr(1, 1) of a text, .json_value("$.a") of JSON'
        with located(user_line()):
            raise CircuitError(f"an expression cannot be indexed by a number: expression={self} got={place!r}", hint)

    def __abs__(self) -> Expr:
        """Return `abs()`."""
        return self.abs()

    def __round__(self, digits: int = 0) -> Expr:
        """Return `round(digits)`."""
        return self.round(digits)

    def _no_number(self) -> NoReturn:
        """Refuse a conversion to a number: the expression has a value per row, not one value."""
        hint = "write .cast(dbsp.INT64) or .cast(dbsp.FLOAT64); .length() of a text, .list_length() of a list"
        with located(user_line()):
            raise CircuitError(f"an expression is not one number, but a value per row: expression={self}", hint)

    __int__ = __float__ = __len__ = _no_number

    def __neg__(self) -> Expr:
        """Return the negative."""
        return self._call(arithmetic.NEGATE)

    def hash(self, *others: Any) -> Expr:
        """Return a whole number of 64 bits (uint64) made of this value and the others; a null has a hash too.

        The hash is the same on every machine, in every version and for every number of workers. Whole numbers of equal
        value have equal hashes, whatever their width, and so have floats of equal value.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"user": dbsp.STRING})
        >>> tenth = t.select("user", part=dbsp.col("user").hash() % 10)
        >>> with dbsp.open(dbsp.circuit("demo", {"tenth": tenth})) as run:
        ...     run.push("t", [{"user": "ann"}, {"user": None}])
        ...     print(run.step()["tenth"].to_rows())
        ...     run.delete("t", [{"user": "ann"}])
        ...     print(run.step()["tenth"].to_rows())
        [(('ann', 8), 1), ((None, 5), 1)]
        [(('ann', 8), -1)]
        """
        return self._call(digests.HASH, *others)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        """Return whether both sides are equal; null if a side is null."""
        return self._compare(logic.EQUAL, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        """Return whether the sides differ; null if a side is null."""
        return self._compare(logic.NOT_EQUAL, other)

    def __lt__(self, other: Any) -> Expr:
        """Return whether this is less than the other; NaN is above every number."""
        return self._compare(logic.LESS, other)

    def __le__(self, other: Any) -> Expr:
        """Return whether this is less than or equal to the other."""
        return self._compare(logic.LESS_EQUAL, other)

    def __gt__(self, other: Any) -> Expr:
        """Return whether this is greater than the other."""
        return self._compare(logic.GREATER, other)

    def __ge__(self, other: Any) -> Expr:
        """Return whether this is greater than or equal to the other."""
        return self._compare(logic.GREATER_EQUAL, other)

    def __and__(self, other: Any) -> Expr:
        """Return whether both sides are true; false if one side is false.

        A row needs the right side only if its left side is not false.
        """
        return self._call(logic.AND, other)

    def __rand__(self, other: Any) -> Expr:
        """Return whether both sides are true, with a constant on the left."""
        return self._reversed(logic.AND, other)

    def __or__(self, other: Any) -> Expr:
        """Return whether a side is true; true even if the other side is null.

        A row needs the right side only if its left side is not true.
        """
        return self._call(logic.OR, other)

    def __ror__(self, other: Any) -> Expr:
        """Return whether a side is true, with a constant on the left."""
        return self._reversed(logic.OR, other)

    def __invert__(self) -> Expr:
        """Return the negation of a condition; null stays null."""
        return self._call(logic.NOT)

    def is_null(self) -> Expr:
        """Return whether the value is null; the result itself is never null."""
        return self._call(logic.IS_NULL)

    def is_not_null(self) -> Expr:
        """Return whether the value is not null; the result itself is never null."""
        return self._call(logic.IS_NOT_NULL)

    def is_distinct_from(self, other: Any) -> Expr:
        """Return whether the values differ, where two nulls are equal and a null differs from every value.

        The result is never null. SQL's `is not distinct from` is `~x.is_distinct_from(y)`.
        """
        if other is None:
            return self.is_not_null()
        missing = self.is_null() != Expr(unwrap(other)).is_null()
        return self._compare(logic.NOT_EQUAL, other)._call(conditional.COALESCE, missing)

    def between(self, low: Any, high: Any) -> Expr:
        """Return whether `low <= x <= high`, both ends included."""
        return Expr(Call(logic.AND, (unwrap(self >= low), unwrap(self <= high))))

    def is_in(self, values: Iterable[Any]) -> Expr:
        """Return whether the value equals one of these constants.

        With a None among the constants, the result is true or null, as in SQL.
        """
        with located(user_line()):
            if isinstance(values, str | bytes) or not isinstance(values, Iterable):
                hint = 'such as .is_in([1, 2]); rows that another stream has: .join(other, on="k", how="semi")'
                raise CircuitError(f"is_in takes several constants: got={values!r}", hint)
        return self._call(logic.IS_IN, options=(tuple(values),))

    def fill_null(self, value: Any) -> Expr:
        """Return this value, or `value` where this is null."""
        return self._call(conditional.COALESCE, value)

    def or_null(self) -> Expr:
        """Return this value, or null on a row where it fails: `(col("a") / col("b")).or_null()`."""
        return self._call(conditional.TRY)

    def nullif(self, value: Any) -> Expr:
        """Return null where `value` equals this, else this."""
        return self._call(mathematics.NULLIF, value)

    def try_cast(self, type_: pa.DataType) -> Expr:
        """Convert to another type; a value that does not fit becomes null."""
        return self.cast(type_, strict=False)

    def cast(self, type_: pa.DataType, strict: bool = True) -> Expr:
        """Convert to another type; a value that does not fit fails its row, or becomes null if not `strict`."""
        return self._call(CAST, options=(type_, bool(strict)))


class When(Answering):
    """The cases of a `when` so far; `otherwise` ends it, with `otherwise(None)` for null."""

    __slots__ = ("_cases",)

    _CALLED: ClassVar[str] = "a when"
    _OTHERS: ClassVar[tuple[str, ...]] = ("when",)

    def __init__(self, cases: tuple[Expression, ...]) -> None:
        """Create it from its cases: condition, value, …; users call `dbsp.when`."""
        self._cases = cases

    def _no_value(self) -> CircuitError:
        """Return the error for a `when` without its `otherwise`."""
        return CircuitError(
            "a when() without otherwise()", "end it with .otherwise(value), or .otherwise(None) for null"
        )

    def when(self, condition: Any, value: Any) -> When:
        """Return the `when` with another case, for rows that no earlier case takes."""
        return When((*self._cases, unwrap(condition), unwrap(value)))

    def otherwise(self, value: Any) -> Expr:
        """Return the whole expression; `value` is the value of all other rows."""
        return Expr(Call(conditional.CASE, (*self._cases, unwrap(value))))


_MISSING: Any = object()
BEFORE = "add it as a column before: .with_columns(x=…), then name x here"
"""The hint where only names of columns are accepted."""


def column_name(column: Any, hint: str | None = None) -> str:
    """Return the name of a column given as text or as a bare column expression.

    `hint` says what to write for other expressions; without it, the hint is to give the expression a name.
    """
    if isinstance(column, str):
        return column
    if isinstance(column, Expr):
        expression = unwrap(column)
        if isinstance(expression, ColumnRef):
            return expression.name
        raise CircuitError(f"an expression needs a name: expression={expression}", hint or f"write name={expression}")
    raise CircuitError(f"not a column: got={column!r}", "give column names, or name=expression")


def col(name: str) -> Expr:
    """Return the column of this name.

    **Example**

    >>> import dbsp
    >>> dbsp.col("distance") * 2
    (distance * 2)
    """
    if not isinstance(name, str):
        with located(user_line()):
            raise CircuitError(f"a column name is a str: name={name!r}", "write dbsp.lit(value) for a constant")
    return Expr(ColumnRef(name))


def lit(value: Any, type_: pa.DataType | None = None) -> Expr:
    """Return a constant; without a given type, the constant takes the type that its context needs.

    **Example**

    >>> import dbsp
    >>> dbsp.lit(1, dbsp.INT8)
    1
    """
    if type_ is None:
        return Expr(unwrap(value))
    literal = adopt(value, type_)
    if literal is None:
        with located(user_line()):
            shown = f"value={value!r} type={spelled(type_)}"
            raise CircuitError(f"the constant does not fit its type: {shown}", "give another type")
    return Expr(literal)


def when(condition: Any, value: Any = _MISSING) -> When:
    """Return the first value whose condition is true; a null condition counts as not true.

    **Example**

    >>> import dbsp
    >>> dbsp.when(dbsp.col("visib") < 3, "low").when(dbsp.col("visib") < 8, "fair").otherwise("good")
    case((visib < 3), "low", (visib < 8), "fair", "good")
    """
    if value is _MISSING:
        with located(user_line()):
            hint = "write dbsp.when(condition, value).when(…, …).otherwise(other)"
            raise CircuitError(f"a when() without a value: condition={condition}", hint)
    return When((unwrap(condition), unwrap(value)))


def struct(*columns: str | Expr, **named: Any) -> Expr:
    """Return a struct of columns under their names, and of expressions under new names.

    A text means a column, as in `select`.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"street": dbsp.STRING, "zip": dbsp.INT64})
    >>> print(t.select(address=dbsp.struct("street", code=dbsp.col("zip") + 1)).schema)
    (address: struct<street: string, code: int64> not null)
    """
    with located(user_line()):
        if any(isinstance(column, Mapping) for column in columns):
            raise CircuitError("struct makes a value, not a type", "write dbsp.struct_of({…}) for the type of a column")
        pairs = [*((column_name(column), column) for column in columns), *named.items()]
        names = tuple(name for name, _ in pairs)
        if not names or len(set(names)) < len(names):
            hint = 'such as dbsp.struct("street", zip=dbsp.col("code"))'
            raise CircuitError(f"a struct needs fields of different names: fields={list(names)}", hint)
    values = (ColumnRef(value) if isinstance(value, str) else unwrap(value) for _, value in pairs)
    return Expr(Call(struct_functions.STRUCT, tuple(values), (names,)))


def coalesce(*values: Any) -> Expr:
    """Return the first value that is not null.

    **Example**

    >>> import dbsp
    >>> dbsp.coalesce(dbsp.col("dep_delay"), 0)
    coalesce(dep_delay, 0)
    """
    with located(user_line()):
        if not values:
            raise CircuitError("coalesce needs at least one value", 'such as dbsp.coalesce(dbsp.col("x"), 0)')
        for value in values[:-1]:
            if isinstance(value, str):
                raise CircuitError(f"coalesce takes nothing after a text: text={value!r}", _meant(value))
    return Expr(Call(conditional.COALESCE, tuple(map(unwrap, values))))


def _several(function: Function, values: tuple[Any, ...]) -> Expr:
    with located(user_line()):
        if len(values) < 2:  # noqa: PLR2004 (one value is no choice)
            hint = f'such as dbsp.{function.name}(dbsp.col("x"), 0)'
            raise CircuitError(f"{function.name} needs at least two values", hint)
        if not any(isinstance(value, Expr) for value in values):
            raise CircuitError(f"{function.name} of constants alone: constants={values}", _meant(values[0]))
    return Expr(Call(function, tuple(map(unwrap, values))))


def _meant(constant: object) -> str:
    """Return the hint for a constant given instead of a column."""
    if isinstance(constant, str):
        return f'a text is itself here: write dbsp.col("{constant}") for the column'
    return 'such as dbsp.col("x") for a column'


def greatest(*values: Any) -> Expr:
    """Return the greatest of the values that are not null; NaN is above every number.

    **Example**

    >>> import dbsp
    >>> dbsp.greatest(dbsp.col("a"), dbsp.col("b"), 0)
    greatest(a, b, 0)
    """
    return _several(mathematics.GREATEST, values)


def least(*values: Any) -> Expr:
    """Return the least of the values that are not null; NaN is above every number."""
    return _several(mathematics.LEAST, values)


def concat_ws(separator: str, *values: Any) -> Expr:
    """Join the texts that are not null, with the separator between them.

    **Example**

    >>> import dbsp
    >>> dbsp.concat_ws(", ", dbsp.col("name"), dbsp.col("city"))
    concat_ws(name, city, ", ")
    """
    with located(user_line()):
        if not isinstance(separator, str) or not values:
            raise CircuitError("concat_ws takes a separator and texts", 'such as dbsp.concat_ws(", ", dbsp.col("x"))')
        if not any(isinstance(value, Expr) for value in values):
            raise CircuitError(f"concat_ws of constants alone: constants={values}", _meant(values[0]))
    return Expr(Call(strings.CONCAT_WS, (*map(unwrap, values), Literal(separator))))


def date_diff(unit: str, start: Any, end: Any) -> Expr:
    """Count the boundaries of the unit from start to end.

    Units are year, quarter, month, week, day, hour, minute, second, millisecond and microsecond.

    **Example**

    >>> import dbsp
    >>> dbsp.date_diff("day", dbsp.col("ordered"), dbsp.col("shipped"))
    date_diff(ordered, shipped, "day")
    """
    with located(user_line()):
        if not isinstance(unit, str):
            hint = 'write date_diff("day", a, b), the unit first'
            raise CircuitError(f"the unit is a constant text: unit={unit!r}", hint)
    return Expr(Call(dates.DATE_DIFF, (unwrap(start), unwrap(end)), (unit,)))


def sequence(start: Any, end: Any, step: int | datetime.timedelta | str = 1) -> Expr:
    """Return a list of every `step` from `start` to `end`, both included, as SQL's `generate_series`.

    `explode` makes a row of each element.

    **Shape** Whole numbers, dates or timestamps. A step may be negative. The list is empty where `end` is before
    `start`, and null where `start` or `end` is null.

    | values | step |
    | --- | --- |
    | whole numbers | a whole number (1) |
    | dates | a span of whole days, or "month", "quarter", "year" |
    | timestamps | a span, or "month", "quarter", "year" |

    A step in months gives the same day of the month, or the last day of a shorter month.

    **Limit** A million elements in a row; a row with more fails.

    **Example** nights of bookings

    >>> import dbsp
    >>> stays = dbsp.table("stays", {"id": dbsp.INT64, "first": dbsp.DATE, "last": dbsp.DATE}, primary_key="id")
    >>> nights = stays.explode(dbsp.sequence(dbsp.col("first"), dbsp.col("last"), dbsp.days(1)), "night").select("id", "night")
    >>> with dbsp.open(dbsp.circuit("demo", {"nights": nights})) as run:
    ...     run.push("stays", [{"id": 1, "first": "2024-02-28", "last": "2024-02-29"}])
    ...     print(run.step()["nights"].to_rows())
    ...     run.push("stays", [{"id": 1, "first": "2024-02-29", "last": "2024-02-29"}])
    ...     print(run.step()["nights"].to_rows())
    [((1, datetime.date(2024, 2, 28)), 1), ((1, datetime.date(2024, 2, 29)), 1)]
    [((1, datetime.date(2024, 2, 28)), -1)]
    """
    return Expr(Call(SEQUENCE, (unwrap(start), unwrap(end)), (step,)))


def list_value(*values: Any) -> Expr:
    """Return the list of these values of a row, nulls among them, in their common type.

    **Example**

    >>> import dbsp
    >>> dbsp.list_value(dbsp.col("a"), dbsp.col("b"), 0).list_max()
    list_value(a, b, 0).list_max()
    """
    with located(user_line()):
        if not any(isinstance(value, Expr) for value in values):
            hint = 'such as dbsp.list_value(dbsp.col("a"), 1); dbsp.lit([1, 2], dbsp.list_of(dbsp.INT64)) is a constant'
            raise CircuitError(f"list_value of constants alone: constants={values}", hint)
    return Expr(Call(element_functions.LIST_VALUE, tuple(map(unwrap, values))))


def now() -> Expr:
    """Return the clock of the step, logged with it and so equal at every replay; only filters may use it.

    **Shape** A timestamp without zone, in UTC, that never goes back.

    **Errors** `CircuitError` anywhere but in a filter that compares a timestamp of the row with `now()`, plus or minus
    a constant.

    **Example** the last hour

    >>> import datetime as dt, dbsp
    >>> t = dbsp.table("t", {"x": dbsp.INT64, "at": dbsp.TIMESTAMP})
    >>> recent = t.filter(dbsp.col("at") > dbsp.now() - dbsp.hours(1)).select("x")
    >>> with dbsp.open(dbsp.circuit("demo", {"recent": recent})) as run:
    ...     run.push("t", [{"x": 1, "at": dt.datetime(2024, 1, 1, 9, 0)}])
    ...     print(run.step(clock=dt.datetime(2024, 1, 1, 9, 30))["recent"].to_rows())
    ...     print(run.step(clock=dt.datetime(2024, 1, 1, 10, 0))["recent"].to_rows())
    [((1,), 1)]
    [((1,), -1)]
    """
    return Expr(Call(NOW, ()))


def from_epoch(value: Any, unit: str = "second") -> Expr:
    """Return the timestamp that is `value` seconds, milliseconds or microseconds after 1970.

    **Example**

    >>> import dbsp
    >>> dbsp.from_epoch(dbsp.col("ms"), "millisecond")
    from_epoch(ms, "millisecond")
    """
    return Expr(Call(dates.FROM_EPOCH, (unwrap(value),), (unit,)))
