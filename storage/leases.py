"""Leases: the traces of a worker as of one step, which any thread may read while steps run.

A lease is a list of chunk numbers in the scratch. While it is there, no step and no commit deletes these chunks
(invariant 12), and nothing else is held back. Granting one copies nothing. The manifests stay in the memory of the
holder, which reads chunk by chunk in short transactions. So a lease holds no page of LMDB, and a full map can grow.

A lease ends with `end`, with its process, or with its epoch: `open` makes a new scratch, which has no leases. A read
through a lease that is over fails with `UnavailableError`. It never returns rows of another step, because a chunk's
number, length and checksum are compared with the manifest's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np

from dbsp.errors import DataError, UnavailableError
from dbsp.processes import noted
from dbsp.storage import registry
from dbsp.storage.chunkfile import ReadChunks
from dbsp.storage.committing import traces_before
from dbsp.storage.durable import Durable, refs_of_states
from dbsp.storage.readahead import Paging
from dbsp.storage.scratch import Scratch
from dbsp.storage.tables import Txn
from dbsp.store import TraceSpec
from dbsp.trace.chunks import ChunkStore
from dbsp.trace.manifest import ID, SpineState

_OVER = "the rows that were read are held no more"
_AGAIN = "read again: the rows are then those of a later step"


class WorkerLease:
    """A lease on a worker's database; see `dbsp.store.Lease`.

    It keeps the files of both sides open by itself, so it outlives the database object that granted it.
    """

    def __init__(self, scratch: Scratch, durable: Durable, chunk_bytes_max: int) -> None:
        """Hold the files of both sides; `grant` fills in the traces."""
        self._scratch, self._durable = scratch, durable
        self._chunk_bytes_max = chunk_bytes_max
        self._lock = threading.Lock()
        self._readers, self._over = 0, False
        self._paging = Paging()
        self._states: Mapping[int, SpineState] = {}
        self._number = -1
        for side in (scratch, durable):
            registry.share(side.environment)

    @staticmethod
    def grant(
        scratch: Scratch, durable: Durable, step: int, traces: Sequence[TraceSpec], chunk_bytes_max: int
    ) -> WorkerLease:
        """Return a lease on the traces as of the end of step `step - 1`; `UnavailableError` if that state is not held."""
        lease, wanted = WorkerLease(scratch, durable, chunk_bytes_max), {trace.id for trace in traces}

        def granted(txn: Txn) -> None:
            with durable.environment.reading() as durable_txn:
                durable.check_epoch(durable_txn, scratch.epoch)
                found = traces_before(scratch, durable, txn, durable_txn, step)
            lease._states = {number: state for number, state in found.items() if number in wanted}
            ids = np.unique(refs_of_states(lease._states.values())[:, ID])
            lease._number = scratch.add_lease(txn, ids)

        try:
            with noted(durable.writers_folder, scratch.epoch):
                scratch.environment.write(granted)
        except BaseException:
            lease._let_go()
            raise
        return lease

    def state(self, trace: TraceSpec) -> SpineState:
        """Return the manifest of a leased trace."""
        return self._states.get(trace.id, SpineState())

    @contextmanager
    def reading(self) -> Iterator[ChunkStore]:
        """Yield the chunks for a read of milliseconds; their arrays are invalid after the block."""
        with self._lock:
            self._refuse_over()
            self._readers += 1
        try:
            with ExitStack() as stack:
                # the scratch first: a commit moves chunks from there to the durable side
                txn = stack.enter_context(self._scratch.environment.passing())
                durable_txn = stack.enter_context(self._durable.environment.passing())
                if self._durable.epoch(durable_txn) != self._scratch.epoch:
                    raise UnavailableError(f"{_OVER}: the pipeline rolled back", _AGAIN)
                shelves = (self._scratch.shelf(txn), self._durable.shelf(durable_txn))
                chunks = ReadChunks(shelves, self._chunk_bytes_max, self._paging)
                stack.callback(chunks.end)
                yield chunks
        except DataError as error:
            if self._replaced():
                raise UnavailableError(f"{_OVER}: the workers changed", _AGAIN) from error
            raise
        finally:
            self._leave()

    def _refuse_over(self) -> None:
        """Refuse a read through a lease that has ended."""
        if self._over:
            raise UnavailableError(f"{_OVER}: the lease has ended", f"{_AGAIN}; `lease_s` in [query] is its time")

    def _replaced(self) -> bool:
        """Return whether a rescale or a rollback has taken the leased chunks away."""
        with self._durable.environment.passing() as txn:
            held = self._durable.versions(txn)
            if self._durable.epoch(txn) != self._scratch.epoch or not self._scratch.is_current():
                return True
        return len({info.checkpoint.layout_version for info in held}) > 1

    def end(self) -> None:
        """End the lease: chunks that it alone held are deleted, the files are released after the last read."""
        with self._lock:
            if self._over:
                return
            self._over = True
            self._readers += 1
        try:
            if self._scratch.is_current():
                with noted(self._durable.writers_folder, self._scratch.epoch):
                    self._scratch.environment.write(lambda txn: self._scratch.end_lease(txn, self._number))
        finally:
            self._leave()

    def _leave(self) -> None:
        """Leave a read, or the end; whoever is last releases the files."""
        with self._lock:
            self._readers -= 1
            last = self._over and not self._readers
        if last:
            self._let_go()

    def _let_go(self) -> None:
        """Release the files."""
        for side in (self._scratch, self._durable):
            registry.release(side.environment)
