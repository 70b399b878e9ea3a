"""Tables inside one LMDB tree: the first byte of a key names its table.

LMDB has named databases, but py-lmdb opens their handles through a write transaction. A process could then not even
open a file while a stopped process holds the writer's lock. But opening is what has to find and end that process.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from dbsp.errors import InternalError

PAGE = 4096
"""The size of LMDB's pages; `dbsp.lmdb_files` refuses files of other sizes."""

_NODE, _PAGE_HEAD, _NUMBER = struct.Struct("<HHHH"), struct.Struct("<QHHI"), struct.Struct("<Q")
_BIG_VALUE, _OVERFLOW = 0x01, 0x04

_FIRST_BYTES = {
    "meta": b"m",
    "versions": b"v",
    "chunks": b"c",
    "values": b"s",
    "changed": b"d",
    "loose": b"l",
    "held": b"h",
    "pins": b"p",
    "warm": b"w",
    "leases": b"r",
    "behind": b"b",
    "named": b"n",
}


class Txn:
    """A transaction of LMDB, with tables.

    Values are views of the map. They are invalid when the transaction ends and, in a transaction that writes, at its
    next write. Iterators must not be used across writes.
    """

    __slots__ = ("_raw", "_writes")

    def __init__(self, raw: Any, writes: bool) -> None:
        """Wrap a transaction of LMDB, which only reads, or writes as well."""
        self._raw = raw
        self._writes = writes

    def get(self, table: str, key: bytes) -> memoryview | None:
        """Return a value; None if there is no such key."""
        found: memoryview | None = self._raw.get(_FIRST_BYTES[table] + key)
        return found

    def has(self, table: str, key: bytes) -> bool:
        """Return whether there is such a key; its value is not touched."""
        with self._raw.cursor() as cursor:
            return bool(cursor.set_key(_FIRST_BYTES[table] + key))

    def lying(self, table: str, key: bytes) -> memoryview | None:
        """Return a large value in place in the map, with no page touched except the first; for read transactions only.

        `get` of py-lmdb touches every page of a value, so that no page fault happens while it holds the interpreter's
        lock. A look-up of one row would thus read the whole chunk, page by page. So this method derives the address
        from the cursor's position. In a leaf of LMDB 0.9, a key follows its node's head (size of the value, flags,
        size of the key). The number of a large value's first page follows its key. Every page begins with its own
        number. So the leaf's number tells where the map begins, and the value's number is checked. (In a transaction
        that writes, a leaf may be outside the map.)
        """
        if self._writes:
            raise InternalError(f"only a read transaction can return a value in place: table={table}")
        with self._raw.cursor() as cursor:
            if not cursor.set_key(_FIRST_BYTES[table] + key):
                return None
            place = np.frombuffer(cursor.key(), np.uint8).ctypes.data
            low, high, flags, key_bytes = _NODE.unpack(ctypes.string_at(place - _NODE.size, _NODE.size))
            if not flags & _BIG_VALUE:
                small: memoryview = cursor.value()
                return small
        number = _NUMBER.unpack(ctypes.string_at(place + key_bytes, _NUMBER.size))[0]
        leaf = place - place % PAGE
        page = leaf + (number - _NUMBER.unpack(ctypes.string_at(leaf, _NUMBER.size))[0]) * PAGE
        size = low | high << 16
        told, _, kind, pages = _PAGE_HEAD.unpack(ctypes.string_at(page, _PAGE_HEAD.size))
        if (told, kind) != (number, _OVERFLOW) or pages * PAGE < _PAGE_HEAD.size + size:
            raise InternalError(
                f"a large value is not at the page that its key names: table={table} page={number} found={told}"
            )
        octets = (ctypes.c_ubyte * size).from_address(page + _PAGE_HEAD.size)
        return memoryview(octets).cast("B").toreadonly()

    def put(self, table: str, key: bytes, value: Any) -> None:
        """Write a value."""
        self._raw.put(_FIRST_BYTES[table] + key, value)

    def delete(self, table: str, key: bytes) -> None:
        """Delete a value, if it is there."""
        self._raw.delete(_FIRST_BYTES[table] + key)

    def items(self, table: str, prefix: bytes = b"") -> Iterator[tuple[bytes, memoryview]]:
        """Yield the keys that begin with `prefix`, in order, with their values."""
        start = _FIRST_BYTES[table] + prefix
        with self._raw.cursor() as cursor:
            there = cursor.set_range(start)
            while there:
                key = bytes(cursor.key())
                if not key.startswith(start):
                    return
                yield key[1:], cursor.value()
                there = cursor.next()

    def ends(self, table: str) -> Iterator[tuple[bytes, memoryview]]:
        """Yield the first and the last key of a table whose keys are numbers, with their values."""
        yield from islice(self.items(table), 1)
        last = self.last_before(table, b"", b"\xff" * _NUMBER.size)
        if last is not None and (value := self.get(table, last)) is not None:
            yield last, value

    def keys(self, table: str, prefix: bytes = b"") -> list[bytes]:
        """Return the keys that begin with `prefix`, in order; values are not touched."""
        start = _FIRST_BYTES[table] + prefix
        found = []
        with self._raw.cursor() as cursor:
            if cursor.set_range(start):
                for view in cursor.iternext(keys=True, values=False):
                    key = bytes(view)
                    if not key.startswith(start):
                        break
                    found.append(key[1:])
        return found

    def last_before(self, table: str, prefix: bytes, end: bytes) -> bytes | None:
        """Return the greatest key that begins with `prefix` and is not above `prefix + end`; None if there is none."""
        start = _FIRST_BYTES[table] + prefix
        wanted = start + end
        with self._raw.cursor() as cursor:
            there = cursor.set_range(wanted)
            if not there:
                there = cursor.last()
            elif bytes(cursor.key()) != wanted:
                there = cursor.prev()
            key = bytes(cursor.key()) if there else b""
        return key[1:] if key.startswith(start) else None

    def commit(self) -> None:
        """Commit the transaction."""
        self._raw.commit()

    def abort(self) -> None:
        """Cancel the transaction; a transaction that only reads loses nothing by this."""
        self._raw.abort()
