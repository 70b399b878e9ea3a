"""The transaction of one step on a worker's database.

Reading begins with the scratch side, then the durable side. A commit that lands in between may have moved a chunk
from the first to the second, but never the other way. Everything that a step writes appears in one write transaction
on the scratch. This transaction compares the epoch with the durable side's. So the transaction that would write
refuses a task of an older epoch (invariant 6).

A step that was written already runs again on the same state (step - 1) and writes nothing. This happens because Spark
may run a task twice at the same time, or again after its success. If a later step was written, an attempt whose state
is not held any more fails in the transaction that would write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import numpy as np

from dbsp.errors import InternalError, UnavailableError
from dbsp.processes import noted
from dbsp.storage.chunkfile import ReadChunks, WriteChunks
from dbsp.storage.durable import Durable
from dbsp.storage.records import Record
from dbsp.storage.scratch import Scratch
from dbsp.storage.tables import Txn
from dbsp.store import NOTHING_SHARED, TraceSpec
from dbsp.trace.manifest import SpineState, chunk_ids
from dbsp.trace.memory import check_append, step_is_open
from dbsp.trace.retention import RetentionBound
from dbsp.trace.spine import Spine, append, fuel_for
from dbsp.zset.batch import Batch


class StateReader:
    """Read transactions on both sides, scratch first, and the chunks read through them."""

    def __init__(self, scratch: Scratch, durable: Durable, chunk_bytes_max: int) -> None:
        """Begin reading."""
        self._scratch, self._durable = scratch, durable
        self.chunks = ReadChunks((), chunk_bytes_max, scratch.environment.paging)
        self.scratch_txn: Any = None
        self.durable_txn: Any = None
        self.begin()

    def begin(self) -> None:
        """Begin both transactions."""
        self._scratch.environment.paging.begin()
        self.scratch_txn = self._scratch.environment.begin_read()
        try:
            self.durable_txn = self._durable.environment.begin_read()
        except BaseException:
            self._scratch.environment.end_read(self.scratch_txn)
            raise
        self.chunks.end((self._scratch.shelf(self.scratch_txn), self._durable.shelf(self.durable_txn)))

    def end(self) -> None:
        """End both transactions; nothing read through them may be touched any more."""
        self.chunks.end()
        if self.scratch_txn is not None:
            self._durable.environment.end_read(self.durable_txn)
            self._scratch.environment.end_read(self.scratch_txn)
        self.scratch_txn = self.durable_txn = None

    def before(self, step: int, segment: int, traces: set[int]) -> Record:
        """Return the traces of a segment as of step - 1; raise `UnavailableError` if they are not held."""
        held = self._scratch.held_steps(self.scratch_txn).get(segment, [])
        if not step_is_open(step, held, self._scratch.base_step(self.scratch_txn)):
            raise UnavailableError(f"the state before this step is not held: step={step} segment={segment} held={held}")
        found = self._scratch.held(self.scratch_txn, segment, step - 1)
        if found is not None and traces <= found.traces.keys():
            return found
        base = self.base()
        own = {number: state for number, state in base.traces.items() if number in traces}
        if found is None:
            return replace(base, traces=own, report=None, dropped=())
        return replace(found, traces=own | dict(found.traces))

    def base(self) -> Record:
        """Return the record of the opened version."""
        return self._durable.record(self.durable_txn, self._scratch.opened(self.scratch_txn))

    def newest(self) -> dict[int, SpineState]:
        """Return every trace as of the newest finished step of its segment."""
        traces = dict(self.base().traces)
        for segment, steps in self._scratch.held_steps(self.scratch_txn).items():
            record = self._scratch.held(self.scratch_txn, segment, steps[-1])
            traces.update(record.traces if record else {})
        return traces


class Transaction:
    """A step's transaction on LMDB; see `dbsp.store.StepTransaction`.

    **Cost**: reads copy nothing; `finish` copies new data once more, into LMDB's pages.
    """

    def __init__(
        self,
        scratch: Scratch,
        durable: Durable,
        step: int,
        segment: int,
        traces: Sequence[TraceSpec],
        chunk_bytes_max: int,
        shared: Mapping[int, Sequence[TraceSpec]] = NOTHING_SHARED,
    ) -> None:
        """Prepare (step, segment); reading begins when the transaction is entered."""
        self._traces_of = {of: {trace.id for trace in found} for of, found in shared.items()}
        self._shared: dict[int, SpineState] = {}
        self._scratch, self._durable = scratch, durable
        self._step, self._segment = step, segment
        self._chunk_bytes_max = chunk_bytes_max
        self._trace_ids = {trace.id for trace in traces}
        self._appended: dict[int, tuple[TraceSpec, Batch, RetentionBound | None]] = {}
        self._reading: StateReader | None = None
        self._before: Record | None = None
        self.done = False
        with scratch.environment.reading() as txn, durable.environment.reading() as durable_txn:
            durable.check_epoch(durable_txn, scratch.epoch)
            self._check_open(txn)
            self.done = scratch.has(txn, segment, step)

    def _check_open(self, txn: Txn) -> None:
        """Refuse a step that cannot be run, or run again."""
        steps = self._scratch.held_steps(txn).get(self._segment, [])
        if not step_is_open(self._step, steps, self._scratch.base_step(txn)):
            story = f"step={self._step} segment={self._segment} held={steps}"
            raise UnavailableError(f"the state before this step is not held: {story}")

    def __enter__(self) -> Self:
        """Begin reading; enlarge the maps first, because a map must not move while a thread reads."""
        for side in (self._scratch, self._durable):
            side.environment.make_room()
        self._reading = StateReader(self._scratch, self._durable, self._chunk_bytes_max)
        try:
            self._before = self._reading.before(self._step, self._segment, self._trace_ids)
            for segment, traces in self._traces_of.items():
                found = self._reading.before(self._step, segment, traces).traces
                self._shared |= {number: found[number] for number in traces & found.keys()}
        except BaseException:
            self._reading.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End reading; drop appended batches that were not finished."""
        self._appended = {}
        if self._reading is not None:
            self._reading.end()
            self._reading = None

    def _entered(self) -> tuple[StateReader, Record]:
        """Return the reading side and the state of step - 1; raise `InternalError` outside the `with` block."""
        if self._reading is None or self._before is None:
            raise InternalError(f"the transaction is not entered: step={self._step} segment={self._segment}")
        return self._reading, self._before

    def spine(self, trace: TraceSpec) -> Spine:
        """Return the trace as of step - 1."""
        reading, before = self._entered()
        states = self._shared if trace.id in self._shared else before.traces
        return Spine(trace.arrangement, states.get(trace.id, SpineState()), reading.chunks)

    def append(self, trace: TraceSpec, batch: Batch, retention: RetentionBound | None = None) -> None:
        """Add an arranged batch to the trace, visible from step + 1 on; rows below the retention bound may be dropped."""
        check_append(trace, batch, self._trace_ids, self._appended)
        self._appended[trace.id] = (trace, batch, retention)

    def finish(self) -> None:
        """Write everything appended; afterwards nothing may be read through this transaction."""
        self._entered()
        with noted(self._durable.writers_folder, self._scratch.epoch):
            self._scratch.environment.write(self._write, self._grow)

    def rehearse(self) -> None:
        """Do all the work of `finish` in a write transaction that is then aborted: the state stays that of step - 1."""
        self._entered()

        def taken_back(txn: Txn) -> None:
            self._write(txn)
            raise _TakenBackError

        with noted(self._durable.writers_folder, self._scratch.epoch), suppress(_TakenBackError):
            self._scratch.environment.write(taken_back, self._grow)

    def _grow(self) -> None:
        """Make the scratch's map larger, which moves it: copy the appended batches out of the map, grow it, and read again."""
        reading, _ = self._entered()
        self._appended = {
            number: (trace, in_memory(batch), retention) for number, (trace, batch, retention) in self._appended.items()
        }
        reading.end()
        self._scratch.environment.grow()
        reading.begin()

    def _write(self, txn: Txn) -> None:
        """Append all batches in the write transaction of (step, segment); do nothing if the step was written already."""
        with self._durable.environment.reading() as durable_txn:
            self._durable.check_epoch(durable_txn, self._scratch.epoch)
        if self._scratch.has(txn, self._segment, self._step):
            return
        self._check_open(txn)
        reading, before = self._entered()
        numbers = _Counter(self._scratch.next_chunk(txn))
        chunks = WriteChunks(reading.chunks, numbers.next, self._scratch.cuts(txn))
        states, dropped = dict(before.traces), list[int]()
        kept_below = self._scratch.kept_below(txn, self._step)
        for trace, batch, retention in self._appended.values():
            old = states.get(trace.id, SpineState())
            fuel = fuel_for(len(batch))
            new = append(old, batch, trace.arrangement, chunks, fuel, retention, kept_below=kept_below)
            states[trace.id] = new
            now = set(chunk_ids(new).tolist())
            dropped += set(chunk_ids(old).tolist()) - now
            self._scratch.add(txn, chunks.take(now))
        self._scratch.set_next_chunk(txn, numbers.value)
        record = Record(checkpoint=before.checkpoint, step=self._step + 1, traces=states, dropped=tuple(dropped))
        self._scratch.hold(txn, self._segment, self._step, record, before.dropped)


class _TakenBackError(Exception):
    """The exception that aborts a write transaction of `rehearse`."""


class _Counter:
    """A counter for chunk numbers."""

    def __init__(self, value: int) -> None:
        """Begin with `value`."""
        self.value = value

    def next(self) -> int:
        """Return the next number."""
        self.value += 1
        return self.value - 1


def in_memory(batch: Batch) -> Batch:
    """Return a copy of a batch that owns its memory."""
    rows = np.arange(len(batch), dtype=np.int64)
    return batch.take(rows, words=True).but(arrangement=batch.arrangement)
