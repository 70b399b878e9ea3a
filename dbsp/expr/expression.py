"""Expressions: frozen values that compute one column from the columns of a batch.

An expression is a column, a literal, or a function applied to expressions. Two expressions are equal when their parts
are equal, so the circuit nodes that hold them are too. The operators that users write (`==`, `+`) are in
`dbsp.expr.build.Expr` instead. A function is one value (`Function`): how its arguments are fitted to each other, the
type of its result, and how it computes whole columns.

Invariants:
1. An expression inside a node is resolved (`dbsp.expr.resolving`): every literal has a type, every conversion is a
   visible cast.
2. `evaluate` returns exactly the type that `type` promised, one value per row.
3. A row fails only if a branch that the row needs fails: a `when` or `&` never computes what its condition excludes.
"""

from __future__ import annotations

import datetime
import decimal
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from dbsp.errors import CircuitError, InternalError
from dbsp.expr.constants import canonical
from dbsp.expr.names import missing_column
from dbsp.expr.rows import ROW_ERRORS, STRIDE, ColumnReader, Known, Schedule, schedule_of
from dbsp.expr.texts import shared_token, shown_parts, token_parts
from dbsp.expr.type_names import type_name
from dbsp.expr.walking import arguments_of, fold, in_order, written
from dbsp.zset.calendar import check_days
from dbsp.zset.schema import DATE, DURATION, NO_COLUMNS, TIME, TIMESTAMP, TIMESTAMP_UTC, Schema

Datum = Any  # pa.Array | pa.Scalar; pyarrow has no type stubs
TEXT_NODES_MAX = 200_000
"""The text of an expression with more nodes contains each shared node once. A shared node counts at every use."""
REMEMBERED_MIN = 32
"""Intermediate results are kept only for expressions with at least this many nodes."""


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A reference to the column of this name."""

    name: str

    def type(self, schema: Schema) -> pa.DataType:
        """Return the column's type; raise a `CircuitError` if the schema has no such column."""
        if self.name not in schema:
            raise missing_column(self.name, schema)
        return schema[self.name].type

    def nullable(self, schema: Schema) -> bool:
        """Return whether the schema allows nulls here."""
        return schema[self.name].nullable

    def columns(self) -> frozenset[str]:
        """Return the names of the columns that are read."""
        return frozenset([self.name])

    def substitute(self, mapping: Mapping[str, Expression]) -> Expression:
        """Return the expression that `mapping` has for this name, else the column itself."""
        return mapping.get(self.name, self)

    def datum(self, rows: ColumnReader) -> Datum:
        """Return the column's values."""
        return rows.column(self.name)

    def evaluate(self, rows: ColumnReader) -> pa.Array:
        """Return the column's values."""
        return rows.column(self.name)

    def token(self) -> str:
        """Return the canonical text."""
        return f"(col {json.dumps(self.name)})"

    def __str__(self) -> str:
        """Return the name."""
        return self.name


@dataclass(frozen=True, slots=True)
class OwnedColumn(ColumnRef):
    """A reference to the column of this name of one stream, whose node is the `owner`.

    A stream that takes the reference replaces it by a plain `ColumnRef` with the column's name in that stream.
    """

    owner: object


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A constant; `dtype` is None until `resolve` has fitted the constant to its context."""

    value: Any
    dtype: pa.DataType | None = None

    def type(self, schema: Schema) -> pa.DataType:  # noqa: ARG002 (one signature for all expressions)
        """Return the constant's type, or the natural one of the Python value."""
        return self.dtype if self.dtype is not None else natural_type(self.value)

    def nullable(self, schema: Schema) -> bool:  # noqa: ARG002 (one signature for all expressions)
        """Return whether the constant is null."""
        return self.value is None

    def columns(self) -> frozenset[str]:
        """Return the empty set: a constant reads no column."""
        return frozenset()

    def substitute(self, mapping: Mapping[str, Expression]) -> Expression:  # noqa: ARG002 (one signature for all expressions)
        """Return the constant itself."""
        return self

    def datum(self, rows: ColumnReader) -> Datum:  # noqa: ARG002 (one signature for all expressions)
        """Return the constant as an Arrow scalar."""
        return pa.scalar(self.value, self.type(NO_COLUMNS))

    def evaluate(self, rows: ColumnReader) -> pa.Array:
        """Return the constant, once per row."""
        return broadcast(self.datum(rows), len(rows))

    def token(self) -> str:
        """Return the canonical text: the type, then the value in a form that no Python version changes."""
        name = type_name(self.dtype) if self.dtype is not None else type(self.value).__name__
        return f"(lit {name} {canonical(self.value)})"

    def __eq__(self, other: object) -> bool:
        """Return whether the texts are equal: unlike values, they tell 1 from True, and NaN equals itself."""
        return isinstance(other, Literal) and self.token() == other.token()

    def __hash__(self) -> int:
        """Return the hash of the text."""
        return hash(self.token())

    def __str__(self) -> str:
        """Return the constant as a user would write it."""
        value = self.value
        return str(value) if isinstance(value, bool | int | float | decimal.Decimal | type(None)) else canonical(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function that can be applied to expressions; `dbsp.expr.catalog` lists and pickles every one.

    - `fit` receives the operands and returns them with literals typed and casts added, or raises `CircuitError`.
    - `result` returns the type of the value for fitted argument types.
    - `compute` works on whole columns; at least one argument is an array.
    - `lazy` computes by need, row by row, after `compute` failed on some row.
    - `nulls` says when the result may be null: if "any" or "all" arguments may, "never", "always", or by the rule of
      "case" and "cast".
    - `fails` returns the rows that are sure to fail, all with the same error; that saves finding each by bisection.
    - `coded` returns the texts of `compute` in dictionary form, as a batch may hold them (`dbsp.zset.coded`).
    - `expensive` says that a value costs more than finding the rows that need it.
    - `spare` computes expensive arguments only for the rows that take them, or returns None if that would not pay.
    """

    name: str
    fit: Callable[[Operands], tuple[Expression, ...]]
    result: Callable[..., pa.DataType]
    compute: Callable[..., Datum]
    lazy: Callable[[Call, ColumnReader], pa.Array] | None = None
    nulls: str = "any"
    text: str = ""
    fails: Callable[..., Datum] | None = None
    coded: Callable[..., pa.Array] | None = None
    expensive: bool = False
    spare: Callable[[Call, ColumnReader], Datum | None] | None = None

    def __eq__(self, other: object) -> bool:
        """Return whether the names are equal: each function has one name."""
        return isinstance(other, Function) and self.name == other.name

    def __hash__(self) -> int:
        """Return the hash of the name."""
        return hash(self.name)


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A function applied to expressions; `options` are its constant parameters.

    `depth`, `nodes`, `expensive` and `moving` are facts about the whole expression; `nodes` counts a shared node at
    each place. The private fields cache derived facts.
    """

    function: Function
    args: tuple[Expression, ...]
    options: tuple[Any, ...] = ()
    depth: int = field(init=False, repr=False, default=1)
    nodes: int = field(init=False, repr=False, default=1)
    expensive: bool = field(init=False, repr=False, default=False)
    moving: bool = field(init=False, repr=False, default=False)
    _key: bytes = field(init=False, repr=False, default=b"")
    _type: tuple[Schema, pa.DataType] | None = field(init=False, repr=False, default=None)
    _resolved: tuple[Schema, Expression] | None = field(init=False, repr=False, default=None)
    _schedule: Schedule | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        """Derive the facts from those of the arguments."""
        depth, nodes = 0, 1
        expensive, moving = self.function.expensive, self.function.name == "now"
        for arg in self.args:
            if isinstance(arg, Call):
                depth, nodes = max(depth, arg.depth), nodes + arg.nodes
                expensive, moving = expensive or arg.expensive, moving or arg.moving
            else:
                nodes += 1
        for name, value in (("depth", depth + 1), ("nodes", nodes), ("expensive", expensive), ("moving", moving)):
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a deep expression as a list, because a pickler nests a call for every level."""
        if self.depth <= STRIDE:
            return Call, (self.function, self.args, self.options)
        numbers: dict[int, int] = {}
        steps: list[Any] = []
        for node in in_order(self):
            numbers[id(node)] = len(steps)
            of = tuple(numbers[id(arg)] for arg in arguments_of(node))
            steps.append((node.function, of, node.options) if isinstance(node, Call) else node)
        return _rebuilt, (steps,)

    @property
    def key(self) -> bytes:
        """Return a hash of the text; equal expressions have equal keys."""
        return fold(self, _key_of, lambda node: node._key or None if isinstance(node, Call) else None)

    def __eq__(self, other: object) -> bool:
        """Return whether function, options and arguments are equal."""
        return self is other or (isinstance(other, Call) and self.nodes == other.nodes and self.key == other.key)

    def __hash__(self) -> int:
        """Return the hash of the key."""
        return hash(self.key)

    def type(self, schema: Schema) -> pa.DataType:
        """Return the function's result type for these arguments."""
        if self._type is not None and self._type[0] is schema:
            return self._type[1]

        def known(node: Expression) -> pa.DataType | None:
            if isinstance(node, Call):
                return node._type[1] if node._type is not None and node._type[0] is schema else None
            return node.type(schema)

        def made(node: Expression, types: list[pa.DataType]) -> pa.DataType:
            if not isinstance(node, Call):
                return node.type(schema)
            result = node.function.result(*types, *node.options)
            object.__setattr__(node, "_type", (schema, result))
            return result

        return fold(self, made, known)

    def nullable(self, schema: Schema) -> bool:
        """Return whether a value may be null, by the function's rule and from its arguments."""
        return fold(self, lambda node, nulls: _may_be_null(node, nulls, schema))

    def columns(self) -> frozenset[str]:
        """Return the names of the columns that are read."""
        return frozenset(node.name for node in in_order(self) if isinstance(node, ColumnRef))

    def substitute(self, mapping: Mapping[str, Expression]) -> Expression:
        """Return the call with columns replaced; a replacement must have the type of the replaced column."""
        return rebuilt(self, lambda leaf: leaf.substitute(mapping))

    def datum(self, rows: ColumnReader) -> Datum:
        """Return the values: an array, or a scalar where no column is read."""
        if isinstance(rows, Known):
            return rows.value(self)
        if self.nodes < REMEMBERED_MIN:
            return self.computed(rows)
        if self._schedule is None:
            object.__setattr__(self, "_schedule", schedule_of(self))
        assert self._schedule is not None  # noqa: S101 (made above)
        return Known(rows, self._schedule).root(self)

    def computed(self, rows: ColumnReader) -> Datum:
        """Compute the values from those of the arguments."""
        try:
            spared = self.function.spare(self, rows) if self.function.spare else None
            return self.compute([arg.datum(rows) for arg in self.args]) if spared is None else spared
        except ROW_ERRORS:
            if self.function.lazy is None:
                raise
            return self.function.lazy(self, rows)

    def compute(self, data: list[Datum]) -> Datum:
        """Return the function's values for these values of the arguments, in the promised type.

        **Errors** One of `ROW_ERRORS` if a value cannot be computed, or if a date is outside the calendar.
        """
        constant = all(isinstance(datum, pa.Scalar) for datum in data)
        if constant:
            data = [broadcast(datum, 1) for datum in data]
        values = self.function.compute(*data, *self.options)
        promised = self.function.result(*(datum.type for datum in data), *self.options)
        if values.type != promised:
            values = values.cast(promised)
        check_days(values)
        return values[0] if constant else values

    def evaluate(self, rows: ColumnReader) -> pa.Array:
        """Return one value per row; raise one of `ROW_ERRORS` when a row fails."""
        if len(rows) == 0:
            return fold(self, lambda node, args: _of_nothing(node, args, rows))
        return broadcast(self.datum(rows), len(rows))

    def held(self, rows: ColumnReader) -> pa.Array:
        """Return the values of `evaluate`; texts may be in dictionary form (`dbsp.zset.coded`)."""
        if self.function.coded is None:
            return self.evaluate(rows)
        data = [arg.datum(rows) for arg in self.args]
        if any(isinstance(datum, pa.Scalar) for datum in data):
            return self.evaluate(rows)
        return self.function.coded(*data, *self.options)

    def token(self) -> str:
        """Return the canonical text: name, options, arguments."""
        return written(self, token_parts) if self.nodes <= TEXT_NODES_MAX else shared_token(self)

    def __str__(self) -> str:
        """Return the call as a user would write it."""
        return written(self, shown_parts, None if self.nodes <= TEXT_NODES_MAX else TEXT_NODES_MAX)


Expression = ColumnRef | Literal | Call


def rebuilt(expression: Expression, leaf: Callable[[Any], Expression]) -> Expression:
    """Return the expression with its columns and constants replaced; unchanged parts stay the same objects."""

    def made(node: Expression, args: list[Expression]) -> Expression:
        if not isinstance(node, Call):
            return leaf(node)
        same = all(a is b for a, b in zip(args, node.args, strict=True))
        return node if same else Call(node.function, tuple(args), node.options)

    return fold(expression, made)


def _rebuilt(steps: list[Any]) -> Expression:
    """Return the expression that `Call.__reduce__` pickled."""
    made: list[Expression] = []
    for step in steps:
        if isinstance(step, tuple):
            function, of, options = step
            made.append(Call(function, tuple(made[number] for number in of), options))
        else:
            made.append(step)
    return made[-1]


def _key_of(node: Expression, keys: list[bytes]) -> bytes:
    """Return the key of a node from those of its arguments; an `OwnedColumn`'s key includes its owner's identity."""
    if not isinstance(node, Call):
        own = f"{node.token()}@{id(node.owner)}" if isinstance(node, OwnedColumn) else node.token()
        return hashlib.blake2b(own.encode(), digest_size=16).digest()
    own = f"{node.function.name} {canonical(node.options)} {len(keys)} "
    key = hashlib.blake2b(own.encode() + b"".join(keys), digest_size=16).digest()
    object.__setattr__(node, "_key", key)
    return key


def _may_be_null(node: Expression, nulls: list[bool], schema: Schema) -> bool:
    """Return whether a value may be null; `nulls` says this for each argument."""
    if not isinstance(node, Call):
        return node.nullable(schema)
    match node.function.nulls:
        case "never":
            return False
        case "always":
            return True
        case "all":
            return all(nulls)
        case "case":
            return any(branch_values(tuple(nulls)))
        case "cast":
            return not node.options[1] or nulls[0]
        case _:
            return any(nulls)


def _of_nothing(node: Expression, args: list[pa.Array], rows: ColumnReader) -> pa.Array:
    """Return an empty array of the node's type; `args` are the empty arrays of its arguments."""
    return node.compute(args).slice(0, 0) if isinstance(node, Call) else node.evaluate(rows)


def branch_values(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the values of a `case` call, whose arguments are condition, value, …, condition, value, otherwise."""
    return (*args[1:-1:2], args[-1])


def is_expensive(expression: Expression) -> bool:
    """Return whether the expression applies an expensive function."""
    return isinstance(expression, Call) and expression.expensive


def conjuncts(predicate: Expression) -> Iterator[Expression]:
    """Yield the parts that a chain of `&` joins, left to right."""
    waiting = [predicate]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Call) and part.function.name == "and":
            waiting.extend(reversed(part.args))
        else:
            yield part


def broadcast(datum: Datum, rows: int) -> pa.Array:
    """Return an array of `rows` values from a scalar or an array."""
    if isinstance(datum, pa.ChunkedArray):
        datum = datum.combine_chunks()
    if isinstance(datum, pa.Scalar):
        return pa.repeat(datum, rows)
    if len(datum) != rows:
        raise InternalError(f"an expression returned another number of rows: want={rows} got={len(datum)}")
    return datum


@dataclass(frozen=True, slots=True)
class Operands:
    """The arguments of a call while it is resolved; `types` holds None for a literal without a type so far."""

    function: str
    args: tuple[Expression, ...]
    types: tuple[pa.DataType | None, ...]
    options: tuple[Any, ...]

    def refuse(self, hint: str) -> CircuitError:
        """Return the error for arguments that do not fit; the hint says what to write."""
        operands = " and ".join(
            f"{arg} ({'constant' if type_ is None else type_})"
            for arg, type_ in zip(self.args, self.types, strict=True)
        )
        return CircuitError(f"{self.function} does not work on these types: operands={operands}", hint)


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
    """Return the column type that a Python constant has on its own."""
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
    """Return whether a whole number fits a signed 64-bit integer."""
    return -(2**63) <= int(value) < 2**63


def decimal_type(value: decimal.Decimal) -> pa.DataType:
    """Return the smallest decimal type that holds the value."""
    if not value.is_finite():
        raise CircuitError(f"a decimal column holds finite numbers only: value={value}")
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    precision = max(len(digits) + max(0, int(exponent)), scale, 1)
    if precision > 38:  # noqa: PLR2004 (the digits of a 128-bit decimal)
        raise CircuitError(f"a decimal has at most 38 digits: value={value}")
    return pa.decimal128(precision, scale)
