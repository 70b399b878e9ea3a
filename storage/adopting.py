"""Giving a database a version made of pieces of others, for a rescale.

Chunks are copied in by bounded transactions and listed as loose; one last transaction adds the version, beside the one
before it if that is here, and ends a warm-up: what was warm is part of the version, or deleted. Until then the database does
not hold the new version; dying and doing it again ends the same. Attempts that overlap number their chunks apart: the first one
that lands made the version, and what others copied in is loose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dbsp.storage.chunkfile import ReadChunks, WriteChunks
from dbsp.storage.durable import COPY_BYTES, Durable, Root, refs_of_states
from dbsp.storage.records import Record
from dbsp.store import CheckpointId, CommitReport
from dbsp.trace.chunks import ChunkRef, ChunkStore
from dbsp.trace.manifest import NBYTES, SpineState
from dbsp.zset.batch import Batch
from dbsp.zset.schema import Arrangement


class _Incoming:
    """Chunks on their way into the durable side, written when some have gathered."""

    def __init__(self, durable: Durable, epoch: int, chunk_bytes_max: int) -> None:
        """Nothing written yet."""
        self.chunk_bytes_max = chunk_bytes_max
        self.count = self.size = 0
        self._durable, self._epoch = durable, epoch
        self._next: int | None = None
        self._waiting = WriteChunks(ReadChunks((), chunk_bytes_max), self._number)

    def _number(self) -> int:
        """The next chunk number, of those reserved when the first one is asked for: another attempt has others."""
        number = self._durable.write(self._epoch, self._durable.reserve) if self._next is None else self._next
        self._next = number + 1
        return number

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
        count, size = self._durable.copy_in(self._epoch, self._waiting.take().items())
        self.count, self.size = self.count + count, self.size + size


def adopt_version(
    durable: Durable,
    version: int,
    checkpoint: CheckpointId,
    make: Callable[[ChunkStore], Mapping[int, SpineState]],
    chunk_bytes_max: int,
) -> CommitReport:
    """See `WorkerDatabase.adopt`."""
    durable.raise_epoch(checkpoint.epoch)
    with durable.environment.reading() as txn:
        found = durable.find(txn, version)
    if found is not None and found.checkpoint == checkpoint and found.report is not None:
        return found.report
    incoming = _Incoming(durable, checkpoint.epoch, chunk_bytes_max)
    traces = dict(make(incoming))
    incoming.flush()
    state = int(refs_of_states(traces.values())[:, NBYTES].sum())
    report = CommitReport(
        version=version, chunks_written=incoming.count, bytes_written=incoming.size, state_bytes=state
    )
    record = Record(checkpoint=checkpoint, step=checkpoint.step, traces=traces, report=report)
    root = Root(version=version, record=record, values={}, keep=np.empty(0, np.uint64), ends_warm=True)
    return durable.land(root).report or report
