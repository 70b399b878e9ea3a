"""A worker's migration state between two steps: its distributor, and the keys that it has yet to give away.

The keys are written once, in pieces, at the end of the step at whose start they were determined. Keys are given away
in hash order, so after every step it is enough to write how many of them are gone. A step thus writes a few hundred
bytes, however many keys there are. A piece whose keys are all gone is deleted. The state of the last two steps is
kept, so that a step that runs again finds the same state.

    entry: format u16, zero u16, crc32 of the rest u32 | step i64, found i64, keys u64, gone u64 | the distributor without keys
    piece: crc32 u32 | key hashes, u64 each

All numbers are little-endian. Entries and pieces are in one table of the worker's database. The key of an entry is the
last bit of its step's number. The key of a piece is (step at which its keys were determined i64, number u32). A version
contains the entries and pieces as of its cut.

Source: docs/concepts/rescale.md; design record 0015. Invariant 3.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import numpy as np

from dbsp.distribute.keys import NO_KEYS, Keys
from dbsp.errors import DataError
from dbsp.store import Database
from dbsp.stored.format_numbers import check_format

TABLE = "distributor"
FORMAT = 1
PIECE_KEYS = 1 << 16
"""The number of keys in one piece."""

NEVER = -1
"""The value of `MigrationState.found` before any step has determined keys."""

_HEAD, _ENTRY, _PIECE, _CHECK = struct.Struct("<HHI"), struct.Struct("<qqQQ"), struct.Struct(">qI"), struct.Struct("<I")
_SLOTS = (b"even", b"odd")
_Piece = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationState:
    """A worker's migration state after a step: its distributor without keys, as bytes, and the keys it has yet to give.

    Of `keys` keys, determined at the start of step `found`, the first `gone` have been given away.
    """

    distributor: bytes
    found: int = NEVER
    keys: int = 0
    gone: int = 0

    def pieces(self) -> set[_Piece]:
        """Return the pieces that contain the keys yet to be given away."""
        last = -(-self.keys // PIECE_KEYS) if self.gone < self.keys else 0
        return {(self.found, number) for number in range(self.gone // PIECE_KEYS, last)}


def kept_after(database: Database, step: int) -> MigrationState:
    """Return the worker's migration state after a step.

    **Errors** `DataError` if there is none: the step was not one of a migration.
    """
    found = _entries(database)
    if step not in found:
        raise DataError(f"a worker has no distributor for a migration under way: step={step} kept={sorted(found)}")
    return found[step]


def keys_kept(database: Database, kept: MigrationState, count: int | None = None) -> Keys:
    """Return the next keys to give away, at most `count` (None: all), in hash order."""
    last = kept.keys if count is None else min(kept.keys, kept.gone + count)
    first_piece = kept.gone // PIECE_KEYS
    numbers = range(first_piece, -(-last // PIECE_KEYS)) if last > kept.gone else range(0)
    pieces = [_read_piece(database, (kept.found, number)) for number in numbers]
    start = first_piece * PIECE_KEYS
    return np.concatenate([NO_KEYS, *pieces])[kept.gone - start : last - start]


def keep(database: Database, epoch: int, step: int, kept: MigrationState, begins: bool, keys: Keys = NO_KEYS) -> None:
    """Write the migration state after a step, and `keys` if they were determined in it; delete unneeded pieces.

    A repeated call has the same result, even if the first call was interrupted. A task that is late does nothing: later
    steps have been written.
    """
    before = _entries(database)
    if any(known > step for known in before):
        return
    earlier = before[step - 1].pieces() if not begins and step - 1 in before else set[_Piece]()
    for number in range(-(-len(keys) // PIECE_KEYS)):
        part = np.ascontiguousarray(keys[number * PIECE_KEYS : (number + 1) * PIECE_KEYS], "<u8").tobytes()
        database.put(epoch, TABLE, _PIECE.pack(kept.found, number), _CHECK.pack(zlib.crc32(part)) + part)
    for piece in sorted(set[_Piece]().union(*(entry.pieces() for entry in before.values())) - earlier - kept.pieces()):
        database.put(epoch, TABLE, _PIECE.pack(*piece), None)
    if begins:
        database.put(epoch, TABLE, _SLOTS[(step + 1) % 2], None)
    body = _ENTRY.pack(step, kept.found, kept.keys, kept.gone) + kept.distributor
    database.put(epoch, TABLE, _SLOTS[step % 2], _HEAD.pack(FORMAT, 0, zlib.crc32(body)) + body)


def _entries(database: Database) -> dict[int, MigrationState]:
    """Return the stored migration states, by step."""
    entries = {}
    for slot in _SLOTS:
        stored = database.get(TABLE, slot)
        if stored is None:
            continue
        version, _, checksum = _HEAD.unpack_from(stored)
        check_format("what a worker keeps of a migration", "", version, FORMAT)
        body = stored[_HEAD.size :]
        if zlib.crc32(body) != checksum:
            raise DataError(f"what a worker keeps of a migration is damaged: bytes={len(stored)}")
        step, found, keys, gone = _ENTRY.unpack_from(body)
        entries[step] = MigrationState(distributor=body[_ENTRY.size :], found=found, keys=keys, gone=gone)
    return entries


def _read_piece(database: Database, piece: _Piece) -> Keys:
    stored = database.get(TABLE, _PIECE.pack(*piece))
    if stored is None or len(stored) < _CHECK.size:
        raise DataError(f"keys that have yet to move are missing: found={piece[0]} piece={piece[1]}")
    if zlib.crc32(stored[_CHECK.size :]) != _CHECK.unpack_from(stored)[0]:
        raise DataError(f"keys that have yet to move are damaged: found={piece[0]} piece={piece[1]}")
    return np.frombuffer(stored, "<u8", offset=_CHECK.size).astype(np.uint64)
