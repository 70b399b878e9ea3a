"""Compilation of an Avro schema into a program for the wanted columns: instructions, slots, and columns made from
slots.

Fields are matched by name; unwanted fields are skipped, whatever their type. Left out: recursive schemas; lists,
maps, and unions of several types besides null as columns. Sources: the Avro 1.12 specification; Kafka Connect's
`connect.name`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dbsp.io.formats.avro.decode import NOWHERE, Code, run
from dbsp.io.formats.byte_spans import gathered
from dbsp.io.formats.meaning import PLAIN, ChangeKind, Meaning, named, to_column
from dbsp.io.formats.runs import MISFITS, WrongMessageError, require
from dbsp.zset.schema import BINARY, STRING, is_struct

_LOGICAL = {
    "date": Meaning(ChangeKind.DAYS),
    "time-millis": Meaning(ChangeKind.TIME, "ms"),
    "time-micros": Meaning(ChangeKind.TIME, "us"),
    "timestamp-millis": Meaning(ChangeKind.TIMESTAMP, "ms"),
    "timestamp-micros": Meaning(ChangeKind.TIMESTAMP, "us"),
    "timestamp-nanos": Meaning(ChangeKind.TIMESTAMP, "ns"),
    "local-timestamp-millis": Meaning(ChangeKind.TIMESTAMP, "ms"),
    "local-timestamp-micros": Meaning(ChangeKind.TIMESTAMP, "us"),
    "local-timestamp-nanos": Meaning(ChangeKind.TIMESTAMP, "ns"),
}
_BASES = {"date": ("int",), "time-millis": ("int",), "decimal": ("bytes", "fixed")}
"""The types that a logical type may extend; all others extend `long`."""
_PRIMITIVE = {
    "int": Code.NUMBER, "long": Code.NUMBER, "boolean": Code.BOOLEAN, "float": Code.FLOAT, "double": Code.DOUBLE,
    "bytes": Code.BYTES, "string": Code.BYTES,
}  # fmt: skip
INSTRUCTIONS_MAX = 1 << 14
"""The limit of a program: a few types that each name the next one twice would make it exponentially long."""
FIXED_BYTES_MAX = 1 << 30
_KINDS = {*_PRIMITIVE, "null", "record", "error", "array", "map", "enum", "fixed"}

_Slots = NDArray[np.int64]
_Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Messages:
    """The slots of many messages, and the bytes that contain their texts."""

    data: NDArray[np.uint8]
    values: _Slots
    lengths: _Slots
    there: _Mask

    def __len__(self) -> int:
        """Return the number of messages."""
        return int(self.values.shape[1])

    def mask(self, slot: int) -> pa.Array:
        """Return the mask of the messages that leave the slot unset."""
        return pa.array(~self.there[slot])


Made = Callable[[Messages, pa.DataType], pa.Array]
"""A function that makes a column of a type from slots; it raises one of `MISFITS` for a value that does not fit."""


@dataclass(slots=True)
class Program:
    """The instructions for one schema."""

    instructions: list[tuple[int, int, int]] = field(default_factory=list)
    branches: list[int] = field(default_factory=list)
    slots: int = 0

    def run(self, messages: Sequence[bytes]) -> Messages:
        """Return the slots of all messages; raise a `WrongMessageError` if one does not fit the schema."""
        data = np.frombuffer(b"".join(messages), np.uint8)
        bounds = np.zeros(len(messages) + 1, np.int64)
        np.cumsum([len(message) for message in messages], out=bounds[1:])
        table = np.array(self.instructions, np.int64).reshape(-1, 3)
        wrong, values, lengths, there = run(data, bounds, table, np.array(self.branches, np.int64), self.slots)
        require(wrong < 0, "the bytes do not fit their schema")
        return Messages(data, values, lengths, there)

    def emit(self, code: Code, a: int = 0, b: int = 0) -> int:
        """Append an instruction and return its place."""
        require(len(self.instructions) < INSTRUCTIONS_MAX, "too long with all the types that it names")
        self.instructions.append((code, a, b))
        return len(self.instructions) - 1

    def slot(self) -> int:
        """Return a new slot."""
        self.slots += 1
        return self.slots - 1


class Compiler:
    """A compiler of one schema; it keeps the named types that are defined so far."""

    def __init__(self, definitions: Sequence[Any] = ()) -> None:
        """Store the `definitions`: schemas that the compiled schema refers to by name."""
        self.program = Program()
        self._named: dict[str, Mapping[str, Any]] = {}
        self._open: list[str] = []
        for schema in definitions:
            self._learn(schema, "")

    def record(self, schema: Any, wanted: Mapping[str, Any] | None, space: str = "") -> tuple[int, dict[str, Made]]:
        """Compile a record; return the slot that is set if the record is present, and its wanted fields.

        `wanted` maps fields to None, or to the wanted fields of a nested record; the result maps them to functions
        that make columns.
        """
        schema, space = self._found(schema, space)
        require(isinstance(schema, Mapping) and schema.get("type") in ("record", "error"), "not a record")
        name = _full_name(schema, space)
        require(name not in self._open, f"schemas that refer to themselves are not read: {name}")
        self._open.append(name)
        slot = self.program.slot() if wanted is not None else NOWHERE
        self.program.emit(Code.MARK, slot)
        fields = {}
        for part in schema["fields"]:
            inside = (wanted or {}).get(part["name"], ...)
            made = self.value(part["type"], inside, name.rpartition(".")[0])
            if made is not None:
                fields[part["name"]] = made
        self._open.pop()
        return slot, fields

    def names_in(self, schema: Any, name: str) -> frozenset[str]:
        """Return the names of the fields of a record's field `name`, which is a record or a union with one."""
        record, space = self._found(schema, "")
        type_ = next(part["type"] for part in record["fields"] if part["name"] == name)
        inside = _full_name(record, space).rpartition(".")[0]
        found = [self._found(each, inside)[0] for each in (type_ if isinstance(type_, list) else [type_])]
        fields = [each["fields"] for each in found if isinstance(each, Mapping) and "fields" in each]
        return frozenset(part["name"] for each in fields for part in each)

    def value(self, schema: Any, wanted: Any, space: str) -> Made | None:
        """Compile any value; return the function that makes its column, or None if `wanted` is `...`: unwanted."""
        schema, space = self._found(schema, space)
        if isinstance(schema, list):
            return self._union(schema, wanted, space)
        kind = schema["type"] if isinstance(schema, Mapping) else schema
        if isinstance(kind, list | Mapping) or (kind != schema and kind not in _KINDS):
            return self.value(kind, wanted, space)
        if kind == "null":
            return None if wanted is ... else lambda messages, type_: pa.nulls(len(messages), type_)
        if kind in ("record", "error"):
            return self._inner_record(schema, wanted, space)
        if kind in ("array", "map"):
            return self._blocks(schema, wanted, space)
        return self._leaf(schema if isinstance(schema, Mapping) else {}, kind, wanted)

    def _leaf(self, schema: Mapping[str, Any], kind: str, wanted: Any) -> Made | None:
        slot = self.program.slot() if wanted is not ... else NOWHERE
        meaning = _meaning(schema)
        if kind == "enum":
            self.program.emit(Code.NUMBER, slot)
            symbols = pa.array(schema["symbols"], STRING)
            made: Made = lambda messages, type_: _texts_of(_numbers(messages, slot), symbols, type_)  # noqa: E731
        elif kind == "fixed":
            self.program.emit(Code.FIXED, slot, _size(schema))
            made = lambda messages, type_: to_column(_spans(messages, slot, BINARY), meaning, type_)  # noqa: E731
        else:
            require(kind in _PRIMITIVE, f"not a type: {kind}")
            self.program.emit(_PRIMITIVE[kind], slot)
            read = _READ[kind]
            made = lambda messages, type_: to_column(read(messages, slot), meaning, type_)  # noqa: E731
        return None if wanted is ... else made

    def _union(self, branches: Sequence[Any], wanted: Any, space: str) -> Made | None:
        kinds = [branch for branch in branches if self._found(branch, space)[0] not in ("null", {"type": "null"})]
        several = wanted is not ... and len(kinds) > 1
        first = len(self.program.branches)
        self.program.branches += [0] * len(branches)
        self.program.emit(Code.UNION, len(branches), first)
        ends, made = [], None
        for number, branch in enumerate(branches):
            self.program.branches[first + number] = len(self.program.instructions)
            found = self.value(branch, ... if several else wanted, space)
            made = found if branch in kinds else made or found
            ends.append(self.program.emit(Code.JUMP))
        for place in ends:
            self.program.instructions[place] = (Code.JUMP, len(self.program.instructions), 0)
        return _refused("a union of several types") if several else made

    def _blocks(self, schema: Mapping[str, Any], wanted: Any, space: str) -> Made | None:
        """Compile an array or a map: its items are skipped one by one."""
        begin = self.program.emit(Code.BLOCK)
        if schema["type"] == "map":
            self.program.emit(Code.BYTES, NOWHERE)
        self.value(schema["items" if schema["type"] == "array" else "values"], ..., space)
        self.program.emit(Code.ITEM_END, begin)
        self.program.instructions[begin] = (Code.BLOCK, len(self.program.instructions), 0)
        return None if wanted is ... else _refused("lists and maps of Avro are not read")

    def _inner_record(self, schema: Mapping[str, Any], wanted: Any, space: str) -> Made | None:
        if wanted is ...:
            self.record(schema, None, space)
            return None
        meaning = _meaning(schema)
        inside = wanted if meaning.kind is not ChangeKind.SCALED else {"scale": None, "value": None}
        slot, fields = self.record(schema, inside or {}, space)

        def made(messages: Messages, type_: pa.DataType) -> pa.Array:
            if meaning.kind is ChangeKind.SCALED:
                parts = [fields["scale"](messages, pa.int32()), fields["value"](messages, BINARY)]
                pairs = pa.StructArray.from_arrays(parts, ["scale", "value"], mask=messages.mask(slot))
                return to_column(pairs, meaning, type_)
            require(is_struct(type_), f"a record for {type_}")
            parts = [column_of(fields.get(part.name), messages, part.name, part.type) for part in type_]
            return pa.StructArray.from_arrays(parts, fields=list(type_), mask=messages.mask(slot))

        return made

    def _found(self, schema: Any, space: str) -> tuple[Any, str]:
        """Return the definition of a named type, and the namespace of the names within it."""
        if isinstance(schema, str) and schema != "null" and schema not in _PRIMITIVE:
            name = schema if "." in schema or not space else f"{space}.{schema}"
            found = self._named.get(name, self._named.get(schema))
            require(found is not None, f"no such type: {schema}")
            return found, name.rpartition(".")[0]
        if isinstance(schema, Mapping) and schema.get("type") in ("record", "error", "enum", "fixed"):
            self._named[_full_name(schema, space)] = schema
        return schema, space

    def _learn(self, schema: Any, space: str) -> None:
        """Store the named types that a schema defines at any depth."""
        found, _ = self._found(schema, space)
        if isinstance(found, list):
            for branch in found:
                self._learn(branch, space)
        elif isinstance(found, Mapping):
            inner = _full_name(found, space).rpartition(".")[0] if "name" in found else space
            parts = [part["type"] for part in found.get("fields", ())] + [
                found[key] for key in ("items", "values") if key in found
            ]
            for part in parts:
                if not isinstance(part, str):
                    self._learn(part, inner)


def _size(schema: Mapping[str, Any]) -> int:
    """Return the bytes of a value of a fixed type."""
    size = schema["size"]
    good = isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= FIXED_BYTES_MAX
    require(good, f"a fixed type of no such size: {str(size)[:80]}")
    return int(size)


def _full_name(schema: Mapping[str, Any], space: str) -> str:
    name: str = schema["name"]
    space = schema.get("namespace", space)
    return name if "." in name or not space else f"{space}.{name}"


def _meaning(schema: Mapping[str, Any]) -> Meaning:
    found = named(schema.get("connect.name"), schema.get("connect.parameters") or {})
    if found is not PLAIN:
        return found
    logical = schema.get("logicalType", "")
    if schema.get("type") not in _BASES.get(logical, ("long",)):
        return PLAIN  # the specification says to ignore a logical type that does not fit
    if logical == "decimal":
        return Meaning(ChangeKind.DECIMAL, scale=int(schema.get("scale", 0)))
    return _LOGICAL.get(logical, PLAIN)


def _refused(what: str) -> Made:
    def made(_messages: Messages, _type: pa.DataType) -> pa.Array:
        raise WrongMessageError(what)

    return made


class WrongColumnError(WrongMessageError):
    """A `WrongMessageError` that names its column."""


def column_of(made: Made | None, messages: Messages, name: str, type_: pa.DataType) -> pa.Array:
    """Return a column or field, all null if the schema has no such field.

    **Errors** `WrongColumnError` names the column; of nested columns, the innermost.
    """
    try:
        return made(messages, type_) if made is not None else pa.nulls(len(messages), type_)
    except WrongColumnError:
        raise
    except MISFITS as error:
        raise WrongColumnError(f"column {name}: not a valid {type_}: {error}") from error


def _numbers(messages: Messages, slot: int) -> pa.Array:
    return pa.array(messages.values[slot], mask=~messages.there[slot])


def _booleans(messages: Messages, slot: int) -> pa.Array:
    return pa.array(messages.values[slot] != 0, mask=~messages.there[slot])


def _floats(messages: Messages, slot: int) -> pa.Array:
    bits = messages.values[slot].astype(np.uint32).view(np.float32)
    return pa.array(bits, mask=~messages.there[slot])


def _doubles(messages: Messages, slot: int) -> pa.Array:
    return pa.array(messages.values[slot].view(np.float64), mask=~messages.there[slot])


def _spans(messages: Messages, slot: int, type_: pa.DataType) -> pa.Array:
    """Return texts or bytes, gathered from their spans in the messages."""
    starts, lengths = messages.values[slot], messages.lengths[slot]
    made = gathered(messages.data, starts, lengths, messages.there[slot], type_)
    if type_ == STRING:
        made.validate(full=True)
    return made


def _texts_of(numbers: pa.Array, symbols: pa.Array, type_: pa.DataType) -> pa.Array:
    return to_column(symbols.take(pc.cast(numbers, pa.int64())), PLAIN, type_)


_READ: Mapping[str, Callable[[Messages, int], pa.Array]] = {
    "int": _numbers, "long": _numbers, "boolean": _booleans, "float": _floats, "double": _doubles,
    "bytes": lambda messages, slot: _spans(messages, slot, BINARY),
    "string": lambda messages, slot: _spans(messages, slot, STRING),
}  # fmt: skip
