"""Tables inside one LMDB tree: a key's first byte says which table it is in.

LMDB has named databases, but py-lmdb opens their handles through a write transaction: a process could not even open the file
while another, stopped, process holds the writer's lock, and it is the opening that must find and end that process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
}


class Txn:
    """A transaction of LMDB, with tables.

    Values are views of the map, dead when the transaction ends, or, in one that writes, at its next write. Iterators must not
    be used across writes.
    """

    __slots__ = ("_raw",)

    def __init__(self, raw: Any) -> None:
        """Wrap LMDB's own."""
        self._raw = raw

    def get(self, table: str, key: bytes) -> memoryview | None:
        """A value."""
        found: memoryview | None = self._raw.get(_FIRST_BYTES[table] + key)
        return found

    def put(self, table: str, key: bytes, value: Any) -> None:
        """Write a value."""
        self._raw.put(_FIRST_BYTES[table] + key, value)

    def delete(self, table: str, key: bytes) -> None:
        """Delete a value, if it is there."""
        self._raw.delete(_FIRST_BYTES[table] + key)

    def items(self, table: str, prefix: bytes = b"") -> Iterator[tuple[bytes, memoryview]]:
        """Keys that begin with `prefix`, in order, with their values."""
        start = _FIRST_BYTES[table] + prefix
        with self._raw.cursor() as cursor:
            there = cursor.set_range(start)
            while there:
                key = bytes(cursor.key())
                if not key.startswith(start):
                    return
                yield key[1:], cursor.value()
                there = cursor.next()

    def keys(self, table: str, prefix: bytes = b"") -> list[bytes]:
        """Those keys alone; values are not touched."""
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
        """The greatest key that begins with `prefix` and is not above `prefix + end`."""
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
        """Commit."""
        self._raw.commit()

    def abort(self) -> None:
        """Abort; only a transaction that reads can be ended so without losing anything."""
        self._raw.abort()
