"""Define types and schemas: the names and types of a Z-set's columns.

A type is an Arrow type that `is_supported` accepts. A schema is an ordered list of named, typed, perhaps nullable
columns. An arrangement says how a stored batch is sorted. All are values: equal when their parts are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from dbsp.errors import CircuitError
from dbsp.stored import stored

BOOL = pa.bool_()
INT8, INT16, INT32, INT64 = pa.int8(), pa.int16(), pa.int32(), pa.int64()
UINT8, UINT16, UINT32, UINT64 = pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()
FLOAT32, FLOAT64 = pa.float32(), pa.float64()
STRING, BINARY = pa.string(), pa.binary()
DATE = pa.date32()
TIME = pa.time64("us")
TIMESTAMP = pa.timestamp("us")
TIMESTAMP_UTC = pa.timestamp("us", tz="UTC")
DURATION = pa.duration("us")


def decimal(precision: int, scale: int) -> pa.DataType:
    """Return the type of decimals of at most 38 digits, `scale` of them after the point."""
    whole = isinstance(precision, int) and isinstance(scale, int)
    if not whole or not 1 <= precision <= 38 or not 0 <= scale <= precision:  # noqa: PLR2004 (as the docstring says)
        hint = "dbsp.decimal(12, 2) has 12 digits, 2 of them after the point; 38 at most"
        raise CircuitError(f"no such decimal: precision={precision!r} scale={scale!r}", hint)
    return pa.decimal128(precision, scale)


WHOLE = decimal(20, 0)
"""A type that holds every 64-bit integer, signed or unsigned."""


INTEGERS = (INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64)
TIMES = (DATE, TIME, TIMESTAMP, TIMESTAMP_UTC, DURATION)
SCALARS = frozenset([BOOL, *INTEGERS, FLOAT32, FLOAT64, STRING, BINARY, *TIMES])


def list_of(element: pa.DataType) -> pa.DataType:
    """Return the type of lists of an element type; lists and elements may be null."""
    return pa.list_(element)


def struct_of(fields: Mapping[str, pa.DataType]) -> pa.DataType:
    """Return the type of structs with these fields, `{name: type}`.

    Structs and fields may be null; a null struct differs from a struct of nulls.

    **Example**

    >>> print(struct_of({"street": STRING, "zip": INT64}))
    struct<street: string, zip: int64>
    """
    if not isinstance(fields, Mapping) or not all(isinstance(type_, pa.DataType) for type_ in fields.values()):
        hint = 'write dbsp.struct_of({"street": dbsp.STRING, "zip": dbsp.INT64})'
        raise CircuitError(f"not the fields of a struct: got={fields!r}", hint)
    return pa.struct(list(fields.items()))


def is_scalar(type_: pa.DataType) -> bool:
    """Return whether the type holds one value: no list and no struct."""
    return type_ in SCALARS or bool(pa.types.is_decimal128(type_))


def fits_a_word(type_: pa.DataType) -> bool:
    """Return whether values of this type have at most 64 bits."""
    return type_ in SCALARS and type_ not in {STRING, BINARY}


def is_supported(type_: pa.DataType) -> bool:
    """Return whether a column may have this type: a scalar, a list of such, a struct of such with distinct names."""
    if is_struct(type_):
        names = {field.name for field in type_}
        return 0 < len(names) == type_.num_fields and all(is_supported(field.type) for field in type_)
    return is_scalar(type_) or (is_list(type_) and is_supported(type_.value_type))


def is_list(type_: pa.DataType) -> bool:
    """Return whether the type is a list."""
    return bool(pa.types.is_list(type_))


def is_struct(type_: pa.DataType) -> bool:
    """Return whether the type is a struct."""
    return bool(pa.types.is_struct(type_))


def unified(type_: pa.DataType) -> pa.DataType:
    """Return a nested type in its only spelling here: everything inside may be null, and elements are called `item`."""
    if is_list(type_):
        return pa.list_(unified(type_.value_type))
    if is_struct(type_):
        return pa.struct([(field.name, unified(field.type)) for field in type_])
    return type_


@stored("Column", "name type nullable")
@dataclass(frozen=True, slots=True)
class Column:
    """A named column; `nullable=False` promises that no row holds a null there (lists and structs may contain nulls)."""

    name: str
    type: pa.DataType
    nullable: bool = True

    def __post_init__(self) -> None:
        """Refuse an unsupported type, and spell a nested type uniformly."""
        if not is_supported(self.type):
            hint = "use one of the types that dbsp exports, such as dbsp.INT64, dbsp.decimal(12, 2) or dbsp.list_of(dbsp.STRING)"
            if pa.types.is_map(self.type):
                hint = 'make a map a list of its entries: dbsp.list_of(dbsp.struct_of({"key": …, "value": …}))'
            raise CircuitError(f"unsupported column type: column={self.name} type={self.type}", hint)
        if pa.types.is_nested(self.type):
            object.__setattr__(self, "type", unified(self.type))

    def __str__(self) -> str:
        """Return `name: type`, followed by `not null` if that is promised."""
        return f"{self.name}: {self.type}" + ("" if self.nullable else " not null")


@stored("Schema", "columns")
@dataclass(frozen=True, slots=True)
class Schema:
    """An ordered list of columns with distinct names; `names` has the names in order."""

    columns: tuple[Column, ...]
    names: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse a repeated name."""
        object.__setattr__(self, "names", tuple(column.name for column in self.columns))
        if len(set(self.names)) != len(self.columns):
            repeated = sorted({name for name in self.names if self.names.count(name) > 1})
            raise CircuitError(f"repeated column name: columns={repeated}", "rename one of them")

    @staticmethod
    def of(columns: Mapping[str, pa.DataType] | Iterable[Column]) -> Schema:
        """Return a schema from `{name: type}` (all nullable) or from columns."""
        if isinstance(columns, Mapping):
            return Schema(tuple(Column(name, type_) for name, type_ in columns.items()))
        return Schema(tuple(columns))

    def __iter__(self) -> Iterator[Column]:
        """Iterate over the columns, in order."""
        return iter(self.columns)

    def __len__(self) -> int:
        """Return the number of columns."""
        return len(self.columns)

    def __contains__(self, name: object) -> bool:
        """Return whether a column has this name."""
        return name in self.names

    def index(self, name: str) -> int:
        """Return the position of a column; raise `CircuitError` with the valid names for an unknown one."""
        try:
            return self.names.index(name)
        except ValueError:
            raise CircuitError(f"no such column: column={name} columns={list(self.names)}") from None

    def __getitem__(self, name: str) -> Column:
        """Return the column of this name."""
        return self.columns[self.index(name)]

    def select(self, names: Iterable[str]) -> Schema:
        """Return the schema of these columns, in the given order."""
        return Schema(tuple(self[name] for name in names))

    def for_both(self, other: Schema) -> Schema | None:
        """Return the schema for rows of either schema, with nulls where one has them; None if names, types or order differ."""
        if [(column.name, column.type) for column in self] != [(column.name, column.type) for column in other]:
            return None
        pairs = zip(self, other, strict=True)
        return Schema(tuple(Column(one.name, one.type, one.nullable or another.nullable) for one, another in pairs))

    def to_arrow(self) -> pa.Schema:
        """Return the schema as an Arrow schema."""
        return pa.schema([pa.field(c.name, c.type, nullable=c.nullable) for c in self.columns])

    def __str__(self) -> str:
        """Return the schema as text, such as `(a: int64, b: string not null)`."""
        return "(" + ", ".join(map(str, self.columns)) + ")"


NO_COLUMNS = Schema(())


def schema_of(schema: pa.Schema) -> Schema:
    """Return the schema nearest to an Arrow schema, also inside lists and structs.

    Wide strings become narrow, dictionaries are decoded, and times become microseconds.
    """
    return Schema(tuple(Column(field.name, _plain_type(field.type), field.nullable) for field in schema))


def _plain_type(type_: pa.DataType) -> pa.DataType:  # noqa: PLR0911 (one return per kind of type)
    """Return the supported type nearest to an Arrow type; an unsupported type is unchanged, and `Column` refuses it."""
    match type_:
        case pa.DictionaryType():
            return _plain_type(type_.value_type)
        case pa.ListType() | pa.LargeListType():
            return pa.list_(_plain_type(type_.value_type))
        case pa.StructType():
            return pa.struct([(field.name, _plain_type(field.type)) for field in type_])
        case pa.TimestampType():
            return pa.timestamp("us", tz=None if type_.tz is None else "UTC")
        case pa.DurationType():
            return pa.duration("us")
        case pa.Time64Type() | pa.Time32Type():
            return pa.time64("us")
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_):
        return pa.binary()
    return type_


@stored("OrderBy", "column descending nulls_first")
@dataclass(frozen=True, slots=True)
class OrderBy:
    """An ordering column of a trace or a top-k; nulls are last unless `nulls_first`, in either direction."""

    column: str
    descending: bool = False
    nulls_first: bool = False

    def __str__(self) -> str:
        """Return the ordering as SQL has it."""
        return self.column + (" desc" if self.descending else "") + (" nulls first" if self.nulls_first else "")

    def reverses(self, other: OrderBy, *, nulls: bool) -> bool:
        """Return whether this order is the reverse of the other; `nulls` says whether the column may have nulls."""
        ends = self.nulls_first != other.nulls_first or not nulls
        return self.column == other.column and self.descending != other.descending and ends


@stored("Arrangement", "schema key order weights")
@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """The sort order and the weights of a stored batch.

    Rows are sorted by (key hash, order code of `order[0]` if any, row hash). `key` names the columns that the key hash
    covers. Rows have a row hash only if neither the key hash nor the order code covers all columns. `weights` is the
    number of int64 weights per row: 1 for a plain Z-set, more if each row carries a vector of sums (linear aggregates).
    A row whose weights are all zero is removed. With an `order`, the first of several weights says whether the row is
    present. In a trace the other weights sum to zero where the first does.
    """

    schema: Schema
    key: tuple[str, ...]
    order: tuple[OrderBy, ...] = ()
    weights: int = 1

    @property
    def key_is_row(self) -> bool:
        """Return whether the key is the whole row."""
        return set(self.key) == set(self.schema.names)

    @property
    def hashes_rows(self) -> bool:
        """Return whether rows have a row hash.

        They have none if the key is the whole row, or all but the order's column, whose values fit a word. The order
        code then distinguishes rows. Only a null and an extreme of 64 bits share a code, and are distinguished by the
        columns.
        """
        rest = [column for column in self.schema if column.name not in self.key]
        if len(rest) == 1 and self.order and self.order[0].column == rest[0].name:
            return not fits_a_word(rest[0].type)
        return bool(rest)
