"""Expressions: frozen values that compute one column from the columns of a batch.

An expression is a column, a literal, or a function applied to expressions. Two are equal when their parts are equal,
so the
nodes of a circuit that hold them are too; the operators a user writes (`==`, `+`) live in `dbsp.expr.build.Expr`
instead. A function says
in one value (`Function`) how its arguments are fitted to each other, what type comes out, and how whole columns are
computed.

Invariants:
1. An expression inside a node is resolved (`resolve`): every literal has a type and every conversion is a visible cast.
2. `evaluate` returns exactly the type that `type` promised, one value per row.
3. A row fails only if a branch it needs fails: a `when` or `&` never computes what its condition excludes.
"""

from __future__ import annotations

import datetime
import decimal
import importlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from dbsp.errors import CircuitError, InternalError
from dbsp.expr.names import missing_column
from dbsp.expr.type_names import type_name
from dbsp.zset.calendar import check_days
from dbsp.zset.schema import DATE, DURATION, NO_COLUMNS, TIME, TIMESTAMP, TIMESTAMP_UTC, Schema

Datum = Any  # pa.Array | pa.Scalar; pyarrow has no type stubs
ROW_ERRORS = (pa.ArrowInvalid, ArithmeticError, UnicodeError)


class Rows(Protocol):
    """What an expression reads: columns by name, all of one length. A `Batch` is one."""

    def column(self, name: str) -> pa.Array:
        """The values of one column."""

    def __len__(self) -> int:
        """How many rows there are."""


@dataclass(frozen=True, slots=True, eq=False)
class Subset:
    """Some rows of other rows, taken column by column when asked."""

    rows: Rows
    positions: pa.Array
    taken: dict[str, pa.Array] = field(default_factory=dict)

    def column(self, name: str) -> pa.Array:
        """The values of one column at the chosen positions."""
        if name not in self.taken:
            self.taken[name] = self.rows.column(name).take(self.positions)
        return self.taken[name]

    def __len__(self) -> int:
        """How many rows were chosen."""
        return len(self.positions)


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """The column of this name."""

    name: str

    def type(self, schema: Schema) -> pa.DataType:
        """The column's type."""
        if self.name not in schema:
            raise missing_column(self.name, schema)
        return schema[self.name].type

    def nullable(self, schema: Schema) -> bool:
        """Whether the schema allows nulls here."""
        return schema[self.name].nullable

    def columns(self) -> frozenset[str]:
        """The columns that are read."""
        return frozenset([self.name])

    def substitute(self, mapping: Mapping[str, Expression]) -> Expression:
        """What stands for this name in `mapping`, else the column itself."""
        return mapping.get(self.name, self)

    def datum(self, rows: Rows) -> Datum:
        """The column."""
        return rows.column(self.name)

    def evaluate(self, rows: Rows) -> pa.Array:
        """The column."""
        return rows.column(self.name)

    def token(self) -> str:
        """Canonical text."""
        return f"(col {json.dumps(self.name)})"

    def __str__(self) -> str:
        """The name."""
        return self.name


@dataclass(frozen=True, slots=True)
class OwnedColumn(ColumnRef):
    """The column of this name of one stream, whose node is the `owner`; a stream that takes it makes a plain reference of it."""

    owner: object


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A constant; `dtype` None until `resolve` has fitted it to its surroundings."""

    value: Any
    dtype: pa.DataType | None = None

    def type(self, schema: Schema) -> pa.DataType:  # noqa: ARG002 (one signature for all expressions)
        """Its type, or the natural one of the Python value."""
        return self.dtype if self.dtype is not None else natural_type(self.value)

    def nullable(self, schema: Schema) -> bool:  # noqa: ARG002 (one signature for all expressions)
        """Whether it is null."""
        return self.value is None

    def columns(self) -> frozenset[str]:
        """None are read."""
        return frozenset()

    def substitute(self, mapping: Mapping[str, Expression]) -> Expression:  # noqa: ARG002 (one signature for all expressions)
        """Itself."""
        return self

    def datum(self, rows: Rows) -> Datum:  # noqa: ARG002 (one signature for all expressions)
        """The constant as an Arrow scalar."""
        return pa.scalar(self.value, self.type(NO_COLUMNS))

    def evaluate(self, rows: Rows) -> pa.Array:
        """The constant, once per row."""
        return broadcast(self.datum(rows), len(rows))

    def token(self) -> str:
        """Canonical text: the type, then the value in a form that no Python version changes."""
        name = type_name(self.dtype) if self.dtype is not None else type(self.value).__name__
        return f"(lit {name} {canonical(self.value)})"

    def __eq__(self, other: object) -> bool:
        """Equal text: unlike values, this tells 1 from True and knows that NaN is itself."""
        return isinstance(other, Literal) and self.token() == other.token()

    def __hash__(self) -> int:
        """Hash of the text."""
        return hash(self.token())

    def __str__(self) -> str:
        """As a reader would write it."""
        value = self.value
        return str(value) if isinstance(value, bool | int | float | decimal.Decimal | type(None)) else canonical(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """What can be applied to expressions: one value per function, listed in `dbsp.expr.catalog`.

    `fit` receives the operands and returns them with literals typed and casts added, or raises `CircuitError`;
    `result` is the
    type of the value for fitted argument types; `compute` works on whole columns (at least one argument is an array).
    `lazy`, where
    given, computes row by need when `compute` failed on some row. `nulls`: the result may be null if "any" argument
    may, "never", "always", if "all" may, or by
    the rule of "case" and "cast". `fails` tells rows that are sure to fail, all of them with one and the same error; it
    saves finding each by itself. `coded` gives the texts of `compute` as a batch may hold them (`dbsp.zset.coded`).
    `costly`: a value costs so much that finding out who needs it costs less; `spare` then computes costly arguments for
    the rows alone that take them, or returns None where that would not pay.
    """

    name: str
    fit: Callable[[Operands], tuple[Expression, ...]]
    result: Callable[..., pa.DataType]
    compute: Callable[..., Datum]
    lazy: Callable[[Call, Rows], pa.Array] | None = None
    nulls: str = "any"
    text: str = ""
    fails: Callable[..., Datum] | None = None
    coded: Callable[..., pa.Array] | None = None
    costly: bool = False
    spare: Callable[[Call, Rows], Datum | None] | None = None

    def __eq__(self, other: object) -> bool:
        """One function has one name."""
        return isinstance(other, Function) and self.name == other.name

    def __hash__(self) -> int:
        """Hash of the name."""
        return hash(self.name)

    def __reduce__(self) -> tuple[Callable[[str], Function], tuple[str]]:
        """Pickled by name."""
        return find_function, (self.name,)


def find_function(name: str) -> Function:
    """The function of this name in the catalog (imported late: the catalog is made of functions)."""
    functions: dict[str, Function] = importlib.import_module("dbsp.expr.catalog").FUNCTIONS
    return functions[name]


@dataclass(frozen=True, slots=True)
class Call:
    """A function applied to expressions; `options` are its constant parameters."""

    function: Function
    args: tuple[Expression, ...]
    options: tuple[Any, ...] = ()

    def type(self, schema: Schema) -> pa.DataType:
        """The function's result type for these arguments."""
        result: pa.DataType = self.function.result(*(arg.type(schema) for arg in self.args), *self.options)
        return result

    def nullable(self, schema: Schema) -> bool:
        """By the function's rule, from its arguments."""
        match self.function.nulls:
            case "never":
                return False
            case "always":
                return True
            case "all":
                return all(arg.nullable(schema) for arg in self.args)
            case "case":
                return any(arg.nullable(schema) for arg in branch_values(self.args))
            case "cast":
                return not self.options[1] or self.args[0].nullable(schema)
            case _:
                return any(arg.nullable(schema) for arg in self.args)

    def columns(self) -> frozenset[str]:
        """The columns that are read."""
        return frozenset[str]().union(*(arg.columns() for arg in self.args))

    def substitute(self, mapping: Mapping[str, Expression]) -> Expression:
        """The same with columns replaced; replacements must have the types of what they replace."""
        return Call(self.function, tuple(arg.substitute(mapping) for arg in self.args), self.options)

    def datum(self, rows: Rows) -> Datum:
        """The values: an array, or a scalar where no column is read."""
        try:
            spared = self.function.spare(self, rows) if self.function.spare else None
            return self.compute([arg.datum(rows) for arg in self.args]) if spared is None else spared
        except ROW_ERRORS:
            if self.function.lazy is None:
                raise
            return self.function.lazy(self, rows)

    def compute(self, data: list[Datum]) -> Datum:
        """The function over these values of the arguments, as the type that it promises, all days of the calendar."""
        constant = all(isinstance(datum, pa.Scalar) for datum in data)
        if constant:
            data = [broadcast(datum, 1) for datum in data]
        values = self.function.compute(*data, *self.options)
        promised = self.function.result(*(datum.type for datum in data), *self.options)
        if values.type != promised:
            values = values.cast(promised)
        check_days(values)
        return values[0] if constant else values

    def evaluate(self, rows: Rows) -> pa.Array:
        """One value per row; raises one of `ROW_ERRORS` when a row fails."""
        if len(rows) == 0:
            empty = self.compute([pa.array([], self._type_of(arg, rows)) for arg in self.args])
            return empty.slice(0, 0)
        return broadcast(self.datum(rows), len(rows))

    def held(self, rows: Rows) -> pa.Array:
        """The same, texts perhaps coded."""
        if self.function.coded is None:
            return self.evaluate(rows)
        data = [arg.datum(rows) for arg in self.args]
        if any(isinstance(datum, pa.Scalar) for datum in data):
            return self.evaluate(rows)
        return self.function.coded(*data, *self.options)

    @staticmethod
    def _type_of(arg: Expression, rows: Rows) -> pa.DataType:
        return arg.evaluate(rows).type

    def token(self) -> str:
        """Canonical text: name, options, arguments."""
        options = "".join(f" {canonical(option)}" for option in self.options)
        return f"({self.function.name}{options}{''.join(' ' + arg.token() for arg in self.args)})"

    def __str__(self) -> str:
        """As a reader would write it."""
        args = [str(arg) for arg in self.args]
        if self.function.text:
            return self.function.text.format(*args, *map(shown, self.options))
        return f"{self.function.name}({', '.join(args + [shown(option) for option in self.options])})"


Expression = ColumnRef | Literal | Call


def branch_values(args: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """The values of a `case` call, whose arguments are condition, value, …, condition, value, otherwise."""
    return (*args[1:-1:2], args[-1])


def is_costly(expression: Expression) -> bool:
    """Whether a costly function is applied in it."""
    return isinstance(expression, Call) and (expression.function.costly or any(map(is_costly, expression.args)))


def conjuncts(predicate: Expression) -> Iterator[Expression]:
    """The parts that a chain of `&` joins, left to right."""
    if isinstance(predicate, Call) and predicate.function.name == "and":
        for arg in predicate.args:
            yield from conjuncts(arg)
    else:
        yield predicate


def broadcast(datum: Datum, rows: int) -> pa.Array:
    """An array of `rows` values from a scalar or an array."""
    if isinstance(datum, pa.ChunkedArray):
        datum = datum.combine_chunks()
    if isinstance(datum, pa.Scalar):
        return pa.repeat(datum, rows)
    if len(datum) != rows:
        raise InternalError(f"an expression returned another number of rows: want={rows} got={len(datum)}")
    return datum


@dataclass(frozen=True, slots=True)
class Operands:
    """The arguments of a call while it is resolved: `types` holds None where a literal has not got its type yet."""

    function: str
    args: tuple[Expression, ...]
    types: tuple[pa.DataType | None, ...]
    options: tuple[Any, ...]

    def refuse(self, hint: str) -> CircuitError:
        """The error for arguments that do not fit; the hint says what to write."""
        operands = " and ".join(
            f"{arg} ({'constant' if type_ is None else type_})"
            for arg, type_ in zip(self.args, self.types, strict=True)
        )
        return CircuitError(f"{self.function} does not work on these types: operands={operands}", hint)


def resolve(expression: Expression, schema: Schema) -> Expression:
    """The same expression with every literal typed and every implicit conversion made a cast (invariant 1)."""
    resolved = _resolve(expression, schema)
    if isinstance(resolved, Literal) and resolved.dtype is None:
        return Literal(resolved.value, natural_type(resolved.value))
    return resolved


def _resolve(expression: Expression, schema: Schema) -> Expression:
    if isinstance(expression, ColumnRef):
        path = importlib.import_module("dbsp.expr.struct_functions").path_of(expression.name, schema)
        if path is not None:
            return _resolve(path, schema)
        expression.type(schema)
        return ColumnRef(expression.name)
    if not isinstance(expression, Call):
        return expression
    args = tuple(_resolve(arg, schema) for arg in expression.args)
    types = tuple(arg.dtype if isinstance(arg, Literal) else arg.type(schema) for arg in args)
    operands = Operands(expression.function.name, args, types, expression.options)
    try:
        call = Call(expression.function, expression.function.fit(operands), expression.options)
    except CircuitError as error:
        named = [a.value for a in args if isinstance(a, Literal) and isinstance(a.value, str) and a.value in schema]
        if not named:
            raise
        hint = f'a text is itself here: write dbsp.col("{named[0]}") for the column'
        raise CircuitError(error.message, hint) from error
    call.type(schema)
    return call


_NATURAL: tuple[tuple[type, pa.DataType], ...] = (
    (bool, pa.bool_()),
    (int, pa.int64()),
    (float, pa.float64()),
    (str, pa.string()),
    (bytes, pa.binary()),
    (datetime.date, DATE),
    (datetime.time, TIME),
    (datetime.timedelta, DURATION),
)


def check_constant(value: Any) -> None:
    """Refuse a value of a kind that no column can hold."""
    kinds = (*(kind for kind, _ in _NATURAL), decimal.Decimal, type(None))
    if not isinstance(value, kinds):
        hint = "use a bool, int, float, Decimal, str, bytes, date, time, datetime or timedelta"
        if isinstance(value, dict):
            hint = 'write dbsp.struct(a=1, b=dbsp.lit("x")) for a struct'
        if isinstance(value, list | tuple | set):
            hint = 'name columns one by one, .select("id", "a"); a row per constant comes from .flat_map(function, schema={…})'
        raise CircuitError(f"not a constant that a column can hold: type={type(value).__name__}", hint)


def natural_type(value: Any) -> pa.DataType:
    """The column type that a Python constant has on its own."""
    check_constant(value)
    if value is None:
        raise CircuitError("a null constant has no type here", "give it one, such as dbsp.lit(None, dbsp.INT64)")
    if isinstance(value, datetime.datetime):
        return TIMESTAMP if value.tzinfo is None else TIMESTAMP_UTC
    if isinstance(value, decimal.Decimal):
        return decimal_type(value)
    for kind, type_ in _NATURAL:
        if isinstance(value, kind):
            if kind is int and not in_int64(value):
                raise CircuitError(
                    f"constant outside the range of int64: value={value}", "use dbsp.lit(value, dbsp.UINT64)"
                )
            return type_
    raise InternalError(f"a constant without a type: type={type(value).__name__}")


def in_int64(value: Any) -> bool:
    """Whether a whole number fits a signed 64-bit integer."""
    return -(2**63) <= int(value) < 2**63


def decimal_type(value: decimal.Decimal) -> pa.DataType:
    """The smallest decimal type that holds the value."""
    if not value.is_finite():
        raise CircuitError(f"a decimal column holds finite numbers only: value={value}")
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    precision = max(len(digits) + max(0, int(exponent)), scale, 1)
    if precision > 38:  # noqa: PLR2004 (the digits of a 128-bit decimal)
        raise CircuitError(f"a decimal has at most 38 digits: value={value}")
    return pa.decimal128(precision, scale)


def shown(value: Any) -> str:
    """Text of an option for people."""
    return f"[{', '.join(map(canonical, value))}]" if isinstance(value, tuple) else canonical(value)


def canonical(value: Any) -> str:
    """Text of a constant that is the same in every Python version, -0.0 as 0.0 and every NaN alike."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else repr(value + 0.0)
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, datetime.timedelta):
        return f"{value // datetime.timedelta(microseconds=1)}us"
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, pa.DataType):
        return type_name(value)
    if isinstance(value, tuple):
        return "[" + " ".join(canonical(item) for item in value) + "]"
    return str(value)
