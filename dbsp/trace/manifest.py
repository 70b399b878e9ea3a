"""Manifests: which chunks a trace consists of, as values that can be stored.

A `StoredBatch` is one sorted run, cut into chunks; a `PendingMerge` is neighbouring runs on their way to becoming one,
with what is done so far; a `SpineState` is the list of both, newest last. All are values and never change, so keeping an
older state costs only the chunks it alone refers to.

Chunk references are held as one array of eight words per chunk, so that encoding, decoding and collecting numbers cost no
Python work per chunk.

Source: docs/concepts/steps.md (merge progress is part of the manifest) and 6.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dbsp.errors import DataError
from dbsp.stored.format_numbers import check_format
from dbsp.trace.chunks import ChunkRef
from dbsp.trace.live_starts import LiveStarts

ID, ROWS, FIRST, LAST, NBYTES, CHECKSUM, FIRST_CODE, LAST_CODE = range(8)
"""The columns of an array of references."""

REF_WORDS = 8
_WORD = np.dtype("<u8")
REF_BYTES = REF_WORDS * _WORD.itemsize
_FENCES = [FIRST, FIRST_CODE, LAST, LAST_CODE]
Refs = npt.NDArray[np.uint64]
_NO_REFS: Refs = np.empty((0, REF_WORDS), _WORD)
_NO_REFS.flags.writeable = False


def refs_of(refs: Iterable[ChunkRef]) -> Refs:
    """References as an array."""
    rows = [
        (ref.id, ref.rows, ref.first, ref.last, ref.nbytes, ref.checksum, ref.first_code, ref.last_code) for ref in refs
    ]
    return np.array(rows, _WORD) if rows else _NO_REFS


@dataclass(frozen=True, slots=True, eq=False)
class StoredBatch:
    """One sorted run: its chunks in order of their rows; `fences` has hash and code of each one's first row and of its last."""

    refs: Refs = field(default_factory=lambda: _NO_REFS)
    rows: int = field(init=False)
    first: npt.NDArray[np.uint64] = field(init=False, repr=False)
    last: npt.NDArray[np.uint64] = field(init=False, repr=False)
    fences: npt.NDArray[np.uint64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Lay the fences out for searching."""
        object.__setattr__(self, "rows", int(self.refs[:, ROWS].sum()))
        object.__setattr__(self, "first", np.ascontiguousarray(self.refs[:, FIRST]))
        object.__setattr__(self, "last", np.ascontiguousarray(self.refs[:, LAST]))
        object.__setattr__(self, "fences", self.refs.take(_FENCES, axis=1))

    @staticmethod
    def of(refs: Iterable[ChunkRef]) -> StoredBatch:
        """A run of these chunks."""
        return StoredBatch(refs_of(refs))

    def __eq__(self, other: object) -> bool:
        """Equal when the chunks are."""
        return isinstance(other, StoredBatch) and np.array_equal(self.refs, other.refs)

    def __hash__(self) -> int:
        """By the chunks."""
        return hash(self.refs.tobytes())

    def __len__(self) -> int:
        """How many chunks there are."""
        return len(self.refs)

    def ref(self, index: int) -> ChunkRef:
        """One reference."""
        number, rows, first, last, nbytes, checksum, first_code, last_code = self.refs[index].tolist()
        return ChunkRef(
            id=number, rows=rows, first=first, last=last, nbytes=nbytes, checksum=checksum, first_code=first_code,
            last_code=last_code,
        )  # fmt: skip

    def __iter__(self) -> Iterator[ChunkRef]:
        """The references, in order."""
        return (self.ref(index) for index in range(len(self.refs)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """How far a merge has read one side: chunk, and row inside it."""

    chunk: int = 0
    row: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingMerge:
    """Neighbouring runs being merged, oldest first; readers read `done`, and the runs from their places on.

    `credit` is how many rows may be merged before the next piece must wait; a piece may overdraw it, later appends pay back.
    """

    runs: tuple[StoredBatch, ...]
    places: tuple[Cursor, ...]
    done: StoredBatch = field(default_factory=StoredBatch)
    credit: int = 0

    @staticmethod
    def of(runs: Iterable[StoredBatch], credit: int = 0) -> PendingMerge:
        """A merge with nothing done yet."""
        runs = tuple(runs)
        return PendingMerge(runs=runs, places=(Cursor(),) * len(runs), credit=credit)

    @property
    def rows(self) -> int:
        """Rows held by what readers read."""
        return self.done.rows + sum(rows_from(run, place) for run, place in zip(self.runs, self.places, strict=True))

    def read(self) -> Iterator[tuple[StoredBatch, Cursor]]:
        """What readers read: runs, each from a place on."""
        yield self.done, Cursor()
        yield from zip(self.runs, self.places, strict=True)


Entry = StoredBatch | PendingMerge


@dataclass(frozen=True, slots=True, kw_only=True)
class SpineState:
    """The runs of one trace, newest last; and where the rows of long groups begin that are not all gone."""

    entries: tuple[Entry, ...] = ()
    live_starts: LiveStarts = field(default_factory=LiveStarts)

    @property
    def rows(self) -> int:
        """Stored rows, counting a row once per run it is in."""
        return sum(entry.rows for entry in self.entries)


def rows_from(batch: StoredBatch, cursor: Cursor) -> int:
    """Rows of a run from a position on."""
    return int(batch.refs[cursor.chunk :, ROWS].sum()) - cursor.row


def stored(*entries: Entry) -> Iterator[StoredBatch]:
    """Every run that entries refer to; of a half-merged one only what is still to be read."""
    for entry in entries:
        if isinstance(entry, StoredBatch):
            yield entry
        else:
            for run, place in entry.read():
                yield StoredBatch(run.refs[place.chunk :]) if place.chunk else run


def refs(state: SpineState) -> Iterator[ChunkRef]:
    """Every chunk that reading the state may touch."""
    for batch in stored(*state.entries):
        yield from batch


def chunk_refs(state: SpineState) -> Refs:
    """The same as one array."""
    parts = [batch.refs for batch in stored(*state.entries)]
    return np.concatenate(parts) if parts else _NO_REFS


def chunk_ids(state: SpineState) -> npt.NDArray[np.uint64]:
    """The numbers of those chunks."""
    return np.ascontiguousarray(chunk_refs(state)[:, ID])


def state_bytes(state: SpineState) -> int:
    """Bytes of those chunks."""
    return int(chunk_refs(state)[:, NBYTES].sum())


_HEAD = struct.Struct("<4sHHI")
_MAGIC = b"DSPN"
FORMAT = 3
_RUN = struct.Struct("<BQ")
_PENDING = struct.Struct("<BQq")
_PLACED = struct.Struct("<QQ")
_COUNT = struct.Struct("<Q")


def encode_state(state: SpineState) -> bytes:
    """A state as bytes: little-endian, 64 bytes per chunk."""
    parts = [_HEAD.pack(_MAGIC, FORMAT, 0, len(state.entries))]
    for entry in state.entries:
        if isinstance(entry, StoredBatch):
            parts += [_RUN.pack(0, len(entry)), entry.refs.tobytes()]
            continue
        parts.append(_PENDING.pack(1, len(entry.runs), entry.credit))
        for run, place in entry.read():
            parts += [_PLACED.pack(place.row, len(run) - place.chunk), run.refs[place.chunk :].tobytes()]
    parts += [_COUNT.pack(len(state.live_starts)), state.live_starts.words.tobytes()]
    return b"".join(parts)


def decode_state(data: bytes, where: str = "") -> SpineState:
    """The state that `encode_state` wrote; chunks that a half-done merge has passed are dropped from it. `where` it was."""
    try:
        return _decode(data, where)
    except (struct.error, ValueError, IndexError) as error:
        raise DataError(f"broken trace manifest: {where} bytes={len(data)}") from error


def _decode(data: bytes, where: str) -> SpineState:
    """Read head and entries; any shortage raises from `struct` or numpy."""
    magic, version, _, count = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise DataError(f"not a trace manifest: {where} magic={magic!r}")
    check_format("a trace manifest", where, version, FORMAT)
    place = _HEAD.size
    entries: list[Entry] = []

    def table(rows: int, words: int) -> npt.NDArray[np.uint64]:
        nonlocal place
        if place + rows * words * _WORD.itemsize > len(data):
            raise DataError(f"trace manifest is cut short: bytes={len(data)}")
        found = np.frombuffer(data, _WORD, words * rows, place).reshape(rows, words)
        place += found.nbytes
        return found

    def count_of() -> int:
        nonlocal place
        (rows,) = _COUNT.unpack_from(data, place)
        place += _COUNT.size
        return int(rows)

    def run(rows: int) -> StoredBatch:
        return StoredBatch(table(rows, REF_WORDS))

    def placed() -> tuple[StoredBatch, Cursor]:
        nonlocal place
        row, rows = _PLACED.unpack_from(data, place)
        place += _PLACED.size
        return run(rows), Cursor(row=row)

    for _ in range(count):
        if data[place] == 0:
            _, rows = _RUN.unpack_from(data, place)
            place += _RUN.size
            entries.append(run(rows))
            continue
        _, runs, credit = _PENDING.unpack_from(data, place)
        place += _PENDING.size
        (done, _), *sides = [placed() for _ in range(runs + 1)]
        entries.append(
            PendingMerge(
                runs=tuple(side for side, _ in sides), places=tuple(at for _, at in sides), done=done, credit=credit
            )
        )
    return SpineState(entries=tuple(entries), live_starts=LiveStarts(table(count_of(), 2)))
