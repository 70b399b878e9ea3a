"""Both databases behind one face, for the contract tests, and small helpers to fill them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from dbsp.storage import WorkerDatabase
from dbsp.storage.copies import WorkerCopies
from dbsp.store import CheckpointId, Database, Lease, StepTransaction, TraceSpec
from dbsp.trace.memory import MemoryDatabase
from dbsp.trace.sorted_read import SortedRead
from dbsp.trace.spine import Spine
from dbsp.zset.batch import Batch, arrange
from dbsp.zset.schema import INT64, STRING, Arrangement, OrderBy, Schema

SCHEMA = Schema.of({"k": INT64, "s": STRING})
BY_KEY = TraceSpec(id=0, arrangement=Arrangement(schema=SCHEMA, key=("k",)))
BY_ROW = TraceSpec(id=1, arrangement=Arrangement(schema=SCHEMA, key=("k", "s")))
ORDERED = TraceSpec(id=2, arrangement=Arrangement(schema=SCHEMA, key=("s",), order=(OrderBy("k"),)))
SEGMENTS = {0: (BY_KEY, BY_ROW), 1: (ORDERED,)}
TRACES = (BY_KEY, BY_ROW, ORDERED)
CHUNK_BYTES = 600

ZSet = Counter[tuple[int, str]]
Rows = list[tuple[tuple[int, str], int]]


def first_id() -> CheckpointId:
    return CheckpointId(run="run", epoch=1, step=0, layout_version=1, fingerprint="f")


def checkpoint(epoch: int, step: int) -> CheckpointId:
    return replace(first_id(), epoch=epoch, step=step)


def arranged(trace: TraceSpec, rows: Rows) -> Batch:
    return arrange(Batch.from_rows(SCHEMA, rows), trace.arrangement)


def content(spine: Spine) -> ZSet:
    """What a trace holds, zeros left out."""
    found: ZSet = Counter()
    for part in spine.parts():
        for row, weight in part.to_rows():
            found[row] += weight
    return without_zeros(found)


def leased(lease: Lease, trace: TraceSpec) -> ZSet:
    """What a lease reads of a trace: in order, each row once, with its whole weight."""
    read, found, last = SortedRead([lease], trace), Counter[tuple[int, str]](), None
    while (piece := read.piece(lambda rows: (rows.to_rows(), rows.words[0].copy()))) is not None:
        rows, hashes = piece
        for (row, weight), key_hash in zip(rows, hashes.tolist(), strict=True):
            assert row not in found, "a row came twice"
            assert last is None or last <= key_hash, "rows came out of order"
            found[row], last = weight, key_hash
    return found


def without_zeros(zset: ZSet) -> ZSet:
    return Counter({row: weight for row, weight in zset.items() if weight})


def run_step(database: Database, epoch: int, step: int, rows: Rows) -> None:
    """Run one step of all segments that appends the same rows to every trace."""
    for segment, traces in SEGMENTS.items():
        with database.begin(epoch, step, segment, traces) as transaction:
            append_all(transaction, traces, rows)
            transaction.finish()


def append_all(transaction: StepTransaction, traces: tuple[TraceSpec, ...], rows: Rows) -> None:
    for trace in traces:
        transaction.append(trace, arranged(trace, rows))


class Kit(Protocol):
    """How the tests make and reopen a database."""

    def create(self) -> Database: ...

    def reopen(self, database: Database) -> Database: ...


class MemoryKit:
    """A reopened database in memory is the same object: what a process that goes on would see."""

    def create(self) -> MemoryDatabase:
        return MemoryDatabase(first_id(), chunk_bytes_max=CHUNK_BYTES)

    def reopen(self, database: Database) -> Database:
        database.close()
        return database


class WorkerKit:
    """On LMDB, in a folder of its own for each database."""

    def __init__(
        self,
        folder: Path,
        map_size_bytes: int = 1 << 20,
        standbys: tuple[Path, ...] = (),
        copies: Callable[[], WorkerCopies | None] = lambda: None,
    ) -> None:
        self._folder, self._numbers = folder, itertools.count()
        self._map_size_bytes = map_size_bytes
        self._standbys, self._copies = standbys, copies

    def create(self) -> WorkerDatabase:
        path = self._folder / f"worker-{next(self._numbers)}"
        return WorkerDatabase.create(
            path, first_id(), map_size_bytes=self._map_size_bytes, chunk_bytes_max=CHUNK_BYTES,
            standbys=self._standbys, copies=self._copies(),
        )  # fmt: skip

    def reopen(self, database: Database) -> WorkerDatabase:
        assert isinstance(database, WorkerDatabase)
        database.close()
        return WorkerDatabase(
            database.path, map_size_bytes=self._map_size_bytes, chunk_bytes_max=CHUNK_BYTES,
            standbys=self._standbys, copies=self._copies(),
        )  # fmt: skip
