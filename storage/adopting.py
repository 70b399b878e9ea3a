"""Give a database a version that is made of parts of other databases, for a rescale.

Bounded transactions copy the chunks in and list them as loose. One last transaction adds the version, and keeps the
version before it if the database has it. This transaction also ends a warm-up: warm chunks become part of the
version, or are deleted. Until then the database does not hold the new version, so a crash followed by a repeat has
the same result. Attempts that overlap use different chunk numbers. The first attempt whose last transaction commits
makes the version, and the chunks of the other attempts stay loose.

The version may be made of a pinned cut. Chunks of the cut that stay on this worker are then copied in as by a commit.
No version of the cut itself is made. The cut stays readable until a version is opened, for other workers that take
slices of it.
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
    """A chunk store whose new chunks are written to the durable side whenever `COPY_BYTES` bytes have gathered."""

    def __init__(self, durable: Durable, epoch: int, chunk_bytes_max: int, least: int) -> None:
        """Start with nothing written; no chunk's number is below `least`."""
        self.chunk_bytes_max = chunk_bytes_max
        self.cuts: Sequence[int] = ()
        self.written = True
        self.count = self.size = 0
        self._durable, self._epoch, self._least = durable, epoch, least
        self._next: int | None = None
        self._waiting = WriteChunks(ReadChunks((), chunk_bytes_max), self._number)

    def _number(self) -> int:
        """Return the next chunk number; the first call reserves a range, so that overlapping attempts use different numbers."""
        number = self._reserved() if self._next is None else self._next
        self._next = number + 1
        return number

    def _reserved(self) -> int:
        """Reserve a range of chunk numbers for this attempt alone, and return its first."""
        return self._durable.write(self._epoch, lambda txn: self._durable.reserve(txn, self._least))

    def put(self, chunk: Batch) -> ChunkRef:
        """Take a chunk in; write the gathered chunks once they reach `COPY_BYTES`."""
        ref = self._waiting.put(chunk)
        if self._waiting.fresh_bytes() >= COPY_BYTES:
            self.flush()
        return ref

    def get(self, ref: ChunkRef, arrangement: Arrangement) -> Batch:
        """Return a chunk that is not written yet."""
        return self._waiting.get(ref, arrangement)

    def foresight(self) -> None:
        """Do nothing: nothing looks up rows through this store."""

    def flush(self) -> None:
        """Write the gathered chunks."""
        written = self._waiting.take()
        count, size = self._durable.copy_in(self._epoch, written.items())
        # this process encoded these chunks just now, so checking their checksums is unnecessary
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
    """Make a version out of the states that `make` builds; see `WorkerDatabase.adopt`.

    If `scratch` is given, a cut is pinned in it for the version.
    """
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
    """Return a number above all chunk numbers that the scratch side has used; 1 without a scratch."""
    if scratch is None:
        return 1
    with scratch.environment.reading() as txn:
        return scratch.next_chunk(txn)


def _of_cut(
    durable: Durable, scratch: Scratch, version: int, epoch: int, traces: Mapping[int, SpineState]
) -> dict[bytes, bytes | None]:
    """Copy in the cut's chunks that the version refers to and the durable side lacks; return the cut's small values."""
    numbers = refs_of_states(traces.values())[:, ID].tolist()
    with durable.environment.reading() as txn:
        fresh = [number for number in numbers if not durable.has_chunk(txn, number)]
    with chunk_values(scratch, fresh) as chunks:
        durable.copy_in(epoch, chunks)
    durable.environment.verified.add(fresh)  # chunks of the scratch were made since the host booted, so they are sound
    with scratch.environment.reading() as txn:
        return scratch.pinned_values(txn, version)
