"""Leases: the traces of a worker as of one step, which any thread may read while steps run.

A lease is a list of chunk numbers in the scratch. While it is there, no step and no commit deletes these chunks
(invariant 12), and nothing else is held back. Granting one copies nothing. The manifests stay in the memory of the
holder, which reads chunk by chunk in short transactions. So a lease holds no page of LMDB, and a full map can grow.

A lease ends with `end`, with its process, or with its epoch: `open` makes a new scratch, which has no leases. A read
through a lease that is over fails with `UnavailableError`. It never returns rows of another step, because a chunk's
number, length and checksum are compared with the manifest's.

A *named* lease is for readers on another host, whose tasks live for one piece of a read. It has a name that the reader
chose, and its manifests are in the scratch, too. So any process of its epoch can continue the read. A named lease ends
when its reader ends it (`end_named`), or with its epoch.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
import numpy.typing as npt

from dbsp.errors import DataError
from dbsp.processes import noted
from dbsp.storage import registry
from dbsp.storage.chunkfile import ReadChunks
from dbsp.storage.committing import traces_before
from dbsp.storage.durable import Durable, refs_of_states
from dbsp.storage.readahead import Paging
from dbsp.storage.records import number_key, number_of
from dbsp.storage.scratch import Scratch
from dbsp.storage.tables import Txn
from dbsp.store import LeaseNames, TraceSpec, lease_over
from dbsp.trace.chunks import ChunkStore
from dbsp.trace.manifest import ID, SpineState, decode_state, encode_state

_NAMED = b"named"


class WorkerLease:
    """A lease on a worker's database; see `dbsp.store.Lease`.

    A lease keeps the files of both sides open, so it outlives the database object that granted it.
    """

    def __init__(self, scratch: Scratch, durable: Durable, chunk_bytes_max: int) -> None:
        """Hold the files of both sides; `grant` fills in the traces."""
        self._scratch, self._durable = scratch, durable
        self._chunk_bytes_max = chunk_bytes_max
        self._lock = threading.Lock()
        self._readers, self._over = 0, False
        self._paging = Paging()
        self._states: Mapping[int, SpineState] = {}
        self._key, self._named = b"", False
        for side in (scratch, durable):
            registry.share(side.environment)

    @staticmethod
    def grant(
        scratch: Scratch, durable: Durable, step: int, traces: Sequence[TraceSpec], chunk_bytes_max: int
    ) -> WorkerLease:
        """Return a lease on the traces as of the end of step `step - 1`; `UnavailableError` if that state is not held."""
        lease, wanted = WorkerLease(scratch, durable, chunk_bytes_max), {trace.id for trace in traces}

        def granted(txn: Txn) -> None:
            lease._states = _states_before(scratch, durable, txn, step, wanted)
            lease._key = scratch.add_lease(txn, _ids_of(lease._states))

        try:
            with noted(durable.writers_folder, scratch.epoch):
                scratch.environment.write(granted)
        except BaseException:
            lease._let_go()
            raise
        return lease

    @staticmethod
    def named(
        scratch: Scratch, durable: Durable, name: int, traces: Sequence[TraceSpec], chunk_bytes_max: int
    ) -> WorkerLease:
        """Return the lease of this name, for these traces; its `end` only releases the files.

        **Errors** `UnavailableError` if it has ended.
        """
        lease = WorkerLease(scratch, durable, chunk_bytes_max)
        lease._key, lease._named = _named_key(name), True
        try:
            with scratch.environment.passing() as txn:
                lease._refuse_ended(txn)
                states = {trace.id: txn.get("named", number_key(name) + number_key(trace.id)) for trace in traces}
                lease._states = {
                    trace: decode_state(bytes(value), f"folder={scratch.folder} trace={trace}")
                    for trace, value in states.items()
                    if value is not None
                }
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
                    raise lease_over("the pipeline rolled back")
                self._refuse_ended(txn)
                shelves = (self._scratch.shelf(txn), self._durable.shelf(durable_txn))
                chunks = ReadChunks(shelves, self._chunk_bytes_max, self._paging)
                stack.callback(chunks.end)
                yield chunks
        except DataError as error:
            if self._replaced():
                raise lease_over("the workers changed") from error
            with self._scratch.environment.passing() as txn:
                self._refuse_ended(txn)  # it ended after this piece began
            raise
        finally:
            self._leave()

    def _refuse_ended(self, txn: Txn) -> None:
        """Refuse a read through a named lease that its reader has ended, perhaps from another process."""
        if self._named and not txn.has("leases", self._key):
            raise lease_over("the lease has ended")

    def _refuse_over(self) -> None:
        """Refuse a read through a lease that has ended."""
        if self._over:
            raise lease_over("the lease has ended")

    def _replaced(self) -> bool:
        """Return whether a rescale or a rollback has taken the leased chunks away."""
        with self._durable.environment.passing() as txn:
            held = self._durable.versions(txn)
            if self._durable.epoch(txn) != self._scratch.epoch or not self._scratch.is_current():
                return True
        return len({info.checkpoint.layout_version for info in held}) > 1

    def end(self) -> None:
        """End the lease: delete the chunks that only this lease held, and release the files after the last read.

        A named lease stays for other processes, until `end_named`.
        """
        with self._lock:
            if self._over:
                return
            self._over = True
            self._readers += 1
        try:
            if self._scratch.is_current() and not self._named:
                with noted(self._durable.writers_folder, self._scratch.epoch):
                    self._scratch.environment.write(lambda txn: self._scratch.end_lease(txn, self._key))
        finally:
            self._leave()

    def _leave(self) -> None:
        """Count the end of a read or of `end`; the last one releases the files."""
        with self._lock:
            self._readers -= 1
            last = self._over and not self._readers
        if last:
            self._let_go()

    def _let_go(self) -> None:
        """Release the files."""
        for side in (self._scratch, self._durable):
            registry.release(side.environment)


def grant_named(
    scratch: Scratch, durable: Durable, names: LeaseNames, step: int, traces: Sequence[TraceSpec]
) -> Mapping[int, SpineState]:
    """Grant the lease `names.newest` on the traces as of the end of step `step - 1`, and end the leases that are over.

    A repeat returns the same states, as a task may run twice.

    **Errors** `UnavailableError` if that state is not held.
    """
    wanted = {trace.id for trace in traces}

    def granted(txn: Txn) -> Mapping[int, SpineState]:
        states = _states_before(scratch, durable, txn, step, wanted)
        _end_over(scratch, txn, names)
        if not txn.has("leases", _named_key(names.newest)):
            txn.put("leases", _named_key(names.newest), _ids_of(states).astype("<u8").tobytes())
            for trace, state in states.items():
                txn.put("named", number_key(names.newest) + number_key(trace), encode_state(state))
        return states

    with noted(durable.writers_folder, scratch.epoch):
        return scratch.environment.write(granted)


def end_named(scratch: Scratch, durable: Durable, names: LeaseNames) -> None:
    """End the named leases that are over, and delete the chunks that only these leases held."""
    with noted(durable.writers_folder, scratch.epoch):
        scratch.environment.write(lambda txn: _end_over(scratch, txn, names))


def _end_over(scratch: Scratch, txn: Txn, names: LeaseNames) -> None:
    """End the named leases that are over."""
    held = [number_of(key[len(_NAMED) :]) for key in txn.keys("leases", _NAMED)]
    for name in filter(names.is_over, held):
        scratch.end_lease(txn, _named_key(name))
        for key in txn.keys("named", number_key(name)):
            txn.delete("named", key)


def _named_key(name: int) -> bytes:
    """Return the key of a named lease; it is longer than that of any other lease."""
    return _NAMED + number_key(name)


def _states_before(
    scratch: Scratch, durable: Durable, txn: Txn, step: int, wanted: Collection[int]
) -> dict[int, SpineState]:
    """Return these traces as of the end of step `step - 1`; the epoch is compared in this transaction."""
    with durable.environment.reading() as durable_txn:
        durable.check_epoch(durable_txn, scratch.epoch)
        found = traces_before(scratch, durable, txn, durable_txn, step)
    return {number: state for number, state in found.items() if number in wanted}


def _ids_of(states: Mapping[int, SpineState]) -> npt.NDArray[np.uint64]:
    """Return the numbers of the chunks of these states, each once."""
    return np.unique(refs_of_states(states.values())[:, ID])
