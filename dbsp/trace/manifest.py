"""Describe which chunks a trace consists of, as values that can be stored.

A `StoredBatch` is one sorted run, cut into chunks. A `PendingMerge` is a merge of neighbouring runs with its finished
part. A `SpineState` is the list of both, newest last. No value changes, so keeping an older state costs only its own
chunks.

References are one array of eight words per chunk, so that encoding, decoding and collecting numbers need no Python
work per chunk.

Source: docs/concepts/steps.md (merge progress is part of the manifest) and docs/concepts/storage.md.
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
"""The column numbers of an array of references (`Refs`); the columns are the fields of `ChunkRef`."""

REF_WORDS = 8
_WORD = np.dtype("<u8")
REF_BYTES = REF_WORDS * _WORD.itemsize
_FENCES = [FIRST, FIRST_CODE, LAST, LAST_CODE]
Refs = npt.NDArray[np.uint64]
_NO_REFS: Refs = np.empty((0, REF_WORDS), _WORD)
_NO_REFS.flags.writeable = False


def refs_of(refs: Iterable[ChunkRef]) -> Refs:
    """Return the references as an array of eight words per chunk."""
    rows = [
        (ref.id, ref.rows, ref.first, ref.last, ref.nbytes, ref.checksum, ref.first_code, ref.last_code) for ref in refs
    ]
    return np.array(rows, _WORD) if rows else _NO_REFS


@dataclass(frozen=True, slots=True, eq=False)
class StoredBatch:
    """A sorted run: the references to its chunks, in row order.

    `fences` has the hash and the order code of each chunk's first row and of its last row.
    """

    refs: Refs = field(default_factory=lambda: _NO_REFS)
    rows: int = field(init=False)
    first: npt.NDArray[np.uint64] = field(init=False, repr=False)
    last: npt.NDArray[np.uint64] = field(init=False, repr=False)
    fences: npt.NDArray[np.uint64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Copy the fences into contiguous arrays for searching."""
        object.__setattr__(self, "rows", int(self.refs[:, ROWS].sum()))
        object.__setattr__(self, "first", np.ascontiguousarray(self.refs[:, FIRST]))
        object.__setattr__(self, "last", np.ascontiguousarray(self.refs[:, LAST]))
        object.__setattr__(self, "fences", self.refs.take(_FENCES, axis=1))

    @staticmethod
    def of(refs: Iterable[ChunkRef]) -> StoredBatch:
        """Return the run of these chunks."""
        return StoredBatch(refs_of(refs))

    def __eq__(self, other: object) -> bool:
        """Return True if the references are equal."""
        return isinstance(other, StoredBatch) and np.array_equal(self.refs, other.refs)

    def __hash__(self) -> int:
        """Return the hash of the references."""
        return hash(self.refs.tobytes())

    def __len__(self) -> int:
        """Return the number of chunks."""
        return len(self.refs)

    def ref(self, index: int) -> ChunkRef:
        """Return the reference to the chunk at `index`."""
        number, rows, first, last, nbytes, checksum, first_code, last_code = self.refs[index].tolist()
        return ChunkRef(
            id=number, rows=rows, first=first, last=last, nbytes=nbytes, checksum=checksum, first_code=first_code,
            last_code=last_code,
        )  # fmt: skip

    def __iter__(self) -> Iterator[ChunkRef]:
        """Yield the references in order."""
        return (self.ref(index) for index in range(len(self.refs)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """Position of a merge in one of its runs: the chunk, and the row inside the chunk."""

    chunk: int = 0
    row: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingMerge:
    """A merge of neighbouring runs, oldest first; readers read `done`, then the runs from their cursors on.

    `credit` is the number of rows to merge before the merge waits. A piece may overdraw the credit; later appends pay.
    """

    runs: tuple[StoredBatch, ...]
    places: tuple[Cursor, ...]
    done: StoredBatch = field(default_factory=StoredBatch)
    credit: int = 0

    @staticmethod
    def of(runs: Iterable[StoredBatch], credit: int = 0) -> PendingMerge:
        """Return a merge of `runs` with nothing done."""
        runs = tuple(runs)
        return PendingMerge(runs=runs, places=(Cursor(),) * len(runs), credit=credit)

    @property
    def rows(self) -> int:
        """Return the number of rows that readers read: the finished part and the unread rest of the runs."""
        return self.done.rows + sum(rows_from(run, place) for run, place in zip(self.runs, self.places, strict=True))

    def read(self) -> Iterator[tuple[StoredBatch, Cursor]]:
        """Yield the runs that readers read, each with the cursor to begin at."""
        yield self.done, Cursor()
        yield from zip(self.runs, self.places, strict=True)


Entry = StoredBatch | PendingMerge


@dataclass(frozen=True, slots=True, kw_only=True)
class SpineState:
    """State of one trace: its runs and merges, newest last, and the live starts of its long groups."""

    entries: tuple[Entry, ...] = ()
    live_starts: LiveStarts = field(default_factory=LiveStarts)

    @property
    def rows(self) -> int:
        """Return the number of stored rows; a row counts once per run that contains it."""
        return sum(entry.rows for entry in self.entries)


def rows_from(batch: StoredBatch, cursor: Cursor) -> int:
    """Return the number of rows of a run from `cursor` on."""
    return int(batch.refs[cursor.chunk :, ROWS].sum()) - cursor.row


def stored(*entries: Entry) -> Iterator[StoredBatch]:
    """Yield every run of `entries`; of a merge, the finished part and the chunks not fully read."""
    for entry in entries:
        if isinstance(entry, StoredBatch):
            yield entry
        else:
            for run, place in entry.read():
                yield StoredBatch(run.refs[place.chunk :]) if place.chunk else run


def refs(state: SpineState) -> Iterator[ChunkRef]:
    """Yield the reference of every chunk that reading the state may touch."""
    for batch in stored(*state.entries):
        yield from batch


def chunk_refs(state: SpineState) -> Refs:
    """Return the references of every chunk that reading the state may touch, as one array."""
    parts = [batch.refs for batch in stored(*state.entries)]
    return np.concatenate(parts) if parts else _NO_REFS


def chunk_ids(state: SpineState) -> npt.NDArray[np.uint64]:
    """Return the numbers of every chunk that reading the state may touch."""
    return np.ascontiguousarray(chunk_refs(state)[:, ID])


def state_bytes(state: SpineState) -> int:
    """Return the stored bytes of every chunk that reading the state may touch."""
    return int(chunk_refs(state)[:, NBYTES].sum())


_HEAD = struct.Struct("<4sHHI")
_MAGIC = b"DSPN"
FORMAT = 3
_RUN = struct.Struct("<BQ")
_PENDING = struct.Struct("<BQq")
_PLACED = struct.Struct("<QQ")
_COUNT = struct.Struct("<Q")


def encode_state(state: SpineState) -> bytes:
    """Encode a state as bytes: little-endian, 64 bytes per chunk."""
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
    """Return the state that `encode_state` wrote; `where` names the data in errors.

    Chunks that a merge has passed are not part of the state. Raise `DataError` for broken data.
    """
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
