"""Giving a database a version made of pieces of others, for a rescale.

Chunks are copied in by bounded transactions and listed as loose; one last transaction adds the version, beside the one
before it if that is here, and ends a warm-up: what was warm is part of the version, or deleted. Until then the database does
not hold the new version; dying and doing it again ends the same. Attempts that overlap number their chunks apart: the first one
that lands made the version, and what others copied in is loose.

A cut that is pinned may be what the version is made of: chunks of it that stay here are then copied in as a commit would, and
no version of the cut itself is made. The cut stays readable until a version is opened, for others who take slices of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dbsp.storage.chunkfile import ReadChunks, WriteChunks
from dbsp.storage.committing import chunk_values
from dbsp.storage.durable import COPY_BYTES, Durable, Root, refs_of_states
from dbsp.storage.records import Record
from dbsp.storage.scratch import Scratch
from dbsp.store import CheckpointId, CommitReport
from dbsp.trace.chunks import ChunkRef, ChunkStore
from dbsp.trace.manifest import ID, NBYTES, SpineState
from dbsp.zset.batch import Batch
from dbsp.zset.schema import Arrangement


class _Incoming:
    """Chunks on their way into the durable side, written when some have gathered."""

    def __init__(self, durable: Durable, epoch: int, chunk_bytes_max: int, least: int) -> None:
        """Nothing written yet; no chunk's number will be below `least`."""
        self.chunk_bytes_max = chunk_bytes_max
        self.cuts: Sequence[int] = ()
        self.written = True
        self.count = self.size = 0
        self._durable, self._epoch, self._least = durable, epoch, least
        self._next: int | None = None
        self._waiting = WriteChunks(ReadChunks((), chunk_bytes_max), self._number)

    def _number(self) -> int:
        """The next chunk number, of those reserved when the first one is asked for: another attempt has others."""
        number = self._reserved() if self._next is None else self._next
        self._next = number + 1
        return number

    def _reserved(self) -> int:
        """The first of many numbers that nobody else gets."""
        return self._durable.write(self._epoch, lambda txn: self._durable.reserve(txn, self._least))

    def put(self, chunk: Batch) -> ChunkRef:
        """Take a chunk in."""
        ref = self._waiting.put(chunk)
        if self._waiting.fresh_bytes() >= COPY_BYTES:
            self.flush()
        return ref

    def get(self, ref: ChunkRef, arrangement: Arrangement) -> Batch:
        """A chunk that still waits."""
        return self._waiting.get(ref, arrangement)

    def foresight(self) -> None:
        """Nobody looks up through this."""

    def flush(self) -> None:
        """Write what waits."""
        written = self._waiting.take()
        count, size = self._durable.copy_in(self._epoch, written.items())
        # made by this process just now: there is nothing to find out by reading them
        self._durable.environment.verified.add(written)
        self.count, self.size = self.count + count, self.size + size


def adopt_version(
    durable: Durable,
    version: int,
    checkpoint: CheckpointId,
    make: Callable[[ChunkStore], Mapping[int, SpineState]],
    chunk_bytes_max: int,
    scratch: Scratch | None = None,
) -> CommitReport:
    """See `WorkerDatabase.adopt`; in `scratch`, if it is given, a cut is pinned for the version."""
    durable.raise_epoch(checkpoint.epoch)
    with durable.environment.reading() as txn:
        found = durable.find(txn, version)
    if found is not None and found.checkpoint == checkpoint and found.report is not None:
        return found.report
    incoming = _Incoming(durable, checkpoint.epoch, chunk_bytes_max, _above(scratch))
    traces = dict(make(incoming))
    incoming.flush()
    values = _of_cut(durable, scratch, version, checkpoint.epoch, traces) if scratch is not None else {}
    state = int(refs_of_states(traces.values())[:, NBYTES].sum())
    report = CommitReport(
        version=version, chunks_written=incoming.count, bytes_written=incoming.size, state_bytes=state
    )
    record = Record(checkpoint=checkpoint, step=checkpoint.step, traces=traces, report=report, sliced=True)
    root = Root(version=version, record=record, values=values, keep=np.empty(0, np.uint64), ends_warm=True)
    return durable.land(root).report or report


def _above(scratch: Scratch | None) -> int:
    """A number above those of all chunks that the scratch side has given out."""
    if scratch is None:
        return 1
    with scratch.environment.reading() as txn:
        return scratch.next_chunk(txn)


def _of_cut(
    durable: Durable, scratch: Scratch, version: int, epoch: int, traces: Mapping[int, SpineState]
) -> dict[bytes, bytes | None]:
    """Copy in the cut's chunks that the version refers to and the durable side has not; the cut's small values."""
    numbers = refs_of_states(traces.values())[:, ID].tolist()
    with durable.environment.reading() as txn:
        fresh = [number for number in numbers if not durable.has_chunk(txn, number)]
    with chunk_values(scratch, fresh) as chunks:
        durable.copy_in(epoch, chunks)
    durable.environment.verified.add(fresh)  # made on this host since it booted, as in a commit
    with scratch.environment.reading() as txn:
        return scratch.pinned_values(txn, version)
