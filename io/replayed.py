"""The dead letters whose rows were pushed again, by table, partition and offset: each letter at most once.

One transaction writes the rows of a replay and the note that they were replayed. So a replay that is repeated, after a crash
too, adds nothing. The notes are in a part of the input log's file that the first replay creates.

**State** one small record per replayed letter, until a checkpoint after the letter was dropped. Source: design records 0043 and
0066.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from dbsp.io.environment import LogEnvironment
from dbsp.io.pushed import Position
from dbsp.io.spans import Place, record_key
from dbsp.stored.checksums import sealed, unsealed

PART = "replayed"
_PLACE = struct.Struct("<HQQ")

LetterPlace = tuple[int, int]
"""Partition and offset of a dead letter in the input of its table."""


class Replayed:
    """The notes of one input log; the appending process owns this object."""

    def __init__(self, env: LogEnvironment) -> None:
        """Store the log's environment."""
        self._env = env

    def prepare(self) -> None:
        """Create the part of the file if it is absent; to be called before the transaction of the first `add`."""
        self._env.add(PART)

    def add(self, txn: Any, place: LetterPlace, position: Position) -> None:
        """Note that the letter of the position's table at this place was replayed to the position."""
        key = record_key(position.table, *place)
        value = _PLACE.pack(position.partition, position.first, position.last)
        txn.put(key, sealed(key, value), db=self._env.db(PART))

    def find(self, txn: Any, table: str, place: LetterPlace) -> Position | None:
        """Return the position to which a letter was replayed; None if it was not."""
        if not self._env.has(PART):
            return None
        key = record_key(table, *place)
        value = txn.get(key, db=self._env.db(PART))
        return None if value is None else replayed_to(table, key, value, self._env.where)

    def forget(self, txn: Any, place: Place, below: int) -> None:
        """Drop the notes of a partition's letters below an offset."""
        cursor = txn.cursor(db=self._env.db(PART))
        end = record_key(*place, below)
        found = cursor.set_range(record_key(*place, 0))
        while found and cursor.key() < end:
            found = cursor.delete()

    def known(self, table: str, places: Sequence[LetterPlace]) -> list[Position | None]:
        """Return, for each letter of a table, the position to which it was replayed."""
        with self._env.read() as txn:
            return [self.find(txn, table, place) for place in places]


def replayed_to(table: str, key: bytes, value: bytes, where: str) -> Position:
    """Decode the position to which a letter was replayed; raise a `DataError` with `where` if it is damaged."""
    partition, first, last = _PLACE.unpack(unsealed(key, value, _PLACE.size, f"{where} part={PART}"))
    return Position(table=table, partition=partition, first=first, last=last, repeated=True)
