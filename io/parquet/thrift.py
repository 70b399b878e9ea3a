"""Thrift's compact protocol, limited to Parquet's footers and page headers: bytes to plain values and back.

A structure is a dict of its fields by number, each a (type, value), so that unknown fields are preserved. A list is
(type of the elements, elements). Left out: maps and sets, which Parquet does not use.

Source: the compact protocol as Apache Thrift's specification describes it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeAlias

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 12
Struct: TypeAlias = dict[int, tuple[int, Any]]

_END, _LONG_LIST, _SHORT_DELTA_MAX, _DEPTH_MAX = 0, 15, 15, 32
_SHIFT_MAX = 63
"""Shift of a number's last seven bits.

Without a bound, a number as long as the bytes takes time in proportion to their square.
"""


class ThriftError(Exception):
    """The error for bytes that are no structure of this protocol, or not the expected one."""


def value(fields: Struct, number: int, kind: int) -> Any:
    """Return the value of a field.

    **Errors** `ThriftError` if the field is absent or of another type.
    """
    found, held = fields.get(number, (None, None))
    if found != kind:
        raise ThriftError(f"a structure without this field: number={number} wanted={kind} found={found}")
    return held


def structs(fields: Struct, number: int) -> list[Struct]:
    """Return the structures of a field that is a list of them.

    **Errors** as `value`.
    """
    kind, held = value(fields, number, LIST)
    if kind != STRUCT:
        raise ThriftError(f"the elements of a list are not structures: field={number} type={kind}")
    found: list[Struct] = held
    return found


class ThriftReader:
    """A reader of structures from bytes; `at` is the position of the next read.

    **Errors** `ThriftError` if the bytes end too early or contain types that Parquet does not use.

    **Example**

    >>> written = write_struct({1: (I32, 7), 3: (LIST, (BINARY, [b"a", b"b"]))})
    >>> ThriftReader(written).struct()
    {1: (5, 7), 3: (9, (8, [b'a', b'b']))}
    """

    def __init__(self, data: bytes | memoryview, at: int = 0) -> None:
        """Begin at position `at` of the bytes."""
        self._data, self.at, self._depth = data, at, 0

    def struct(self) -> Struct:
        """Read the next structure."""
        found: Struct = {}
        number = 0
        self._deeper()
        while (head := self._byte()) != _END:
            delta, kind = head >> 4, head & 15
            number = number + delta if delta else self._zigzag()
            found[number] = kind, _reading(kind)(self)
        self._depth -= 1
        return found

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise ThriftError(f"structures are nested too deeply: depth_max={_DEPTH_MAX}")

    def _list(self) -> tuple[int, list[Any]]:
        head = self._byte()
        size, kind = head >> 4, head & 15
        size = self._varint() if size == _LONG_LIST else size
        if size > len(self._data) - self.at:
            raise ThriftError("a list that is longer than its bytes")
        if kind in {TRUE, FALSE}:
            return kind, [self._byte() == TRUE for _ in range(size)]
        read = _reading(kind)
        self._deeper()
        held = [read(self) for _ in range(size)]
        self._depth -= 1
        return kind, held

    def _byte(self) -> int:
        if self.at >= len(self._data):
            raise ThriftError("bytes end amid a structure")
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        byte = self._byte()
        number, shift = byte & 127, 7
        while byte > 127:  # noqa: PLR2004  the last byte of a number has no high bit
            if shift > _SHIFT_MAX:
                raise ThriftError("a number that does not end")
            byte = self._byte()
            number |= (byte & 127) << shift
            shift += 7
        return number

    def _zigzag(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def _taken(self, size: int) -> bytes:
        if size > len(self._data) - self.at:
            raise ThriftError("bytes end amid a structure")
        self.at += size
        return bytes(self._data[self.at - size : self.at])

    def _binary(self) -> bytes:
        return self._taken(self._varint())

    def _double(self) -> float:
        return float(struct.unpack("<d", self._taken(8))[0])


_READ: dict[int, Callable[[ThriftReader], Any]] = {
    TRUE: lambda _: True, FALSE: lambda _: False, BYTE: ThriftReader._byte, I16: ThriftReader._zigzag, I32: ThriftReader._zigzag,
    I64: ThriftReader._zigzag, DOUBLE: ThriftReader._double, BINARY: ThriftReader._binary, LIST: ThriftReader._list,
    STRUCT: ThriftReader.struct,
}  # fmt: skip


def _reading(kind: int) -> Callable[[ThriftReader], Any]:
    """Return the function that reads a field's value of this type."""
    if kind not in _READ:
        raise ThriftError(f"a type that Parquet does not have: type={kind}")
    return _READ[kind]


def write_struct(fields: Struct) -> bytes:
    """Return the bytes of a structure, with its fields in the order of their numbers."""
    out = bytearray()
    before = 0
    for number in sorted(fields):
        kind, held = fields[number]
        if kind in {TRUE, FALSE}:
            kind = TRUE if held else FALSE
        delta = number - before
        if 0 < delta <= _SHORT_DELTA_MAX:
            out.append(delta << 4 | kind)
        else:
            out.append(kind)
            out += _zigzag(number)
        out += _written(kind, held)
        before = number
    out.append(_END)
    return bytes(out)


def _written(kind: int, held: Any) -> bytes:
    """Return the bytes of a field's value; a boolean has none, because its type says it."""
    if kind not in _WRITTEN:
        raise ThriftError(f"a type that Parquet does not have: type={kind}")
    return _WRITTEN[kind](held)


def _list(kind: int, values: list[Any]) -> bytes:
    size = len(values)
    head = bytes([size << 4 | kind]) if size < _LONG_LIST else bytes([_LONG_LIST << 4 | kind]) + _varint(size)
    if kind in {TRUE, FALSE}:
        return head + bytes(TRUE if value else FALSE for value in values)
    return head + b"".join(_written(kind, value) for value in values)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:  # noqa: PLR2004  what a byte holds beside its high bit
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _zigzag(number: int) -> bytes:
    return _varint((number << 1) ^ (number >> 63))


_WRITTEN: dict[int, Callable[[Any], bytes]] = {
    TRUE: lambda _: b"", FALSE: lambda _: b"", BYTE: lambda held: bytes([held]), I16: _zigzag, I32: _zigzag, I64: _zigzag,
    DOUBLE: lambda held: struct.pack("<d", held), BINARY: lambda held: _varint(len(held)) + held,
    LIST: lambda held: _list(*held), STRUCT: write_struct,
}  # fmt: skip
