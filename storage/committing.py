"""Commit a version: pin the cut, copy new chunks in bounded pieces, then make the version with one small transaction.

1. *Pin* (scratch): keep the cut and its small values, so that steps can run while they are copied.
2. *Copy* (durable): copy chunks of the cut that the durable side lacks, some at a time. They are listed as loose, so after a
   crash they are swept.
3. *Land* (durable): add the version with its id and its small values, and delete the version before the last. Before this
   transaction the database holds v, after it v and v + 1.
4. *Release* (scratch): the new version becomes the opened one, and the scratch forgets chunks that the durable side has.

A crash between any two of these parts, followed by a repeat in this process or another, has the same result. Other
processes may run steps between any two pieces, and while a piece is copied. Chunks never change, and `hold` deletes
no chunk of a pin. Chunks that running steps refer to stay when the version lands. So the copy is consistent
(invariant 12).

**Cost**: the bytes of the chunks made since the last version that are still referred to. It does not depend on the
state's size.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dbsp.errors import DataError, UnavailableError
from dbsp.lmdb_environments import data_file
from dbsp.processes import noted
from dbsp.storage.chunkfile import HEADER_BYTES
from dbsp.storage.durable import Durable, Root, ids_of, refs_of_states
from dbsp.storage.readahead import will_need
from dbsp.storage.records import Record, number_key, number_of
from dbsp.storage.scratch import Scratch
from dbsp.storage.tables import Txn
from dbsp.store import RETAINED_TRACES, CheckpointId, CommitReport
from dbsp.trace.manifest import ID, NBYTES, Refs, SpineState


def copy_version(
    scratch: Scratch, durable: Durable, version: int, checkpoint: CheckpointId, bytes_max: int | None = None
) -> CommitReport | None:
    """Copy a piece of the pinned cut; return the report once the version has landed, else None.

    See `dbsp.store.Database.copy`.
    """
    with durable.environment.reading() as txn:
        durable.check_epoch(txn, checkpoint.epoch)
        found = durable.find(txn, version)
    if found is not None and found.checkpoint == checkpoint and found.report is not None:
        _release(scratch, durable, version, found)
        return found.report
    cut = pinned_cut(scratch, version, checkpoint)
    fresh, whole = durable.lacking(_new_refs(durable, cut, version), bytes_max)
    with chunk_values(scratch, fresh) as chunks:
        durable.copy_in(checkpoint.epoch, chunks)
    # chunks of the scratch were made since the host booted, so they are sound and need no check
    durable.environment.verified.add(fresh)
    if not whole:
        return None
    record = replace(cut, report=_report(durable, cut, version))
    with scratch.environment.reading() as txn:
        values = scratch.pinned_values(txn, version)
        keep = np.union1d(ids_of(scratch.all_records(txn)), scratch.leased(txn))
    landed = durable.land(Root(version=version, record=record, values=values, keep=keep))
    _release(scratch, durable, version, landed)
    return landed.report


def pinned_cut(scratch: Scratch, version: int, checkpoint: CheckpointId) -> Record:
    """Return the cut that was pinned for this version; raise `UnavailableError` if there is none."""
    with scratch.environment.reading() as txn:
        cut = scratch.pin(txn, version)
    if cut is None or cut.checkpoint != checkpoint:
        raise UnavailableError(f"no cut is pinned for this version: version={version} step={checkpoint.step}")
    return cut


def pin_cut(scratch: Scratch, durable: Durable, version: int, checkpoint: CheckpointId) -> Record:
    """Pin the cut until the commit has landed, and return it; return an existing pin of the same checkpoint."""

    def pinned(txn: Txn) -> Record:
        there = scratch.pin(txn, version)
        if there is not None and there.checkpoint == checkpoint:
            return there
        opened = scratch.opened(txn)
        if version != opened + 1:
            raise UnavailableError(f"only the next version can be committed: version={version} opened={opened}")
        with durable.environment.reading() as durable_txn:
            traces = traces_before(scratch, durable, txn, durable_txn, checkpoint.step)
        if checkpoint.step != scratch.base_step(txn):
            traces = {number: state for number, state in traces.items() if number < RETAINED_TRACES}
        cut = Record(
            checkpoint=checkpoint, step=max(checkpoint.step, scratch.step(txn)), traces=traces,
            sliced=scratch.rests(txn, checkpoint.step),
        )  # fmt: skip
        scratch.set_pin(txn, version, cut)
        return cut

    with noted(durable.writers_folder, checkpoint.epoch):
        return scratch.environment.write(pinned)


def traces_before(scratch: Scratch, durable: Durable, txn: Txn, durable_txn: Txn, step: int) -> dict[int, SpineState]:
    """Return all traces as of the end of step `step - 1`; raise `UnavailableError` if that state is not held."""
    traces = dict(durable.record(durable_txn, scratch.opened(txn)).traces)
    held, begins = scratch.held_steps(txn), step == scratch.base_step(txn)
    if not held and not begins:
        raise UnavailableError(f"no step up to this one was run: step={step} folder={scratch.folder}")
    for segment, steps in held.items():
        record = scratch.held(txn, segment, step - 1)
        if record is None and not begins:
            raise UnavailableError(
                f"the state before this step is not held: step={step} segment={segment} held={steps}"
            )
        traces.update(record.traces if record else {})
    return traces


def _new_refs(durable: Durable, cut: Record, version: int) -> Refs:
    """Return the references of the cut to chunks that the version before it does not have."""
    refs = refs_of_states(cut.traces.values())
    with durable.environment.reading() as txn:
        base = durable.find(txn, version - 1)
    return refs if base is None else refs[~np.isin(refs[:, ID], ids_of([base]))]


def _report(durable: Durable, cut: Record, version: int) -> CommitReport:
    """Return the report of the whole commit, however many pieces and processes it took."""
    new = _new_refs(durable, cut, version)
    return CommitReport(
        version=version,
        chunks_written=len(new),
        bytes_written=int(new[:, NBYTES].sum()) + HEADER_BYTES * len(new),
        state_bytes=int(refs_of_states(cut.traces.values())[:, NBYTES].sum()),
    )


@contextmanager
def chunk_values(side: Scratch | Durable, numbers: list[int]) -> Iterator[Iterator[tuple[int, Any]]]:
    """Yield the numbers and values of chunks from one side of a database; while the block lasts, their pages are not reused.

    The caller has to write the values elsewhere inside the block. Otherwise a task that is stopped before its write
    would find other bytes in the map when it continues.
    """
    with side.environment.reading() as txn:
        yield _values(side, txn, numbers)


def _values(side: Scratch | Durable, txn: Txn, numbers: list[int]) -> Iterator[tuple[int, Any]]:
    """Yield each chunk's number and its value, as a view of the memory map."""
    for number in numbers:
        value = txn.lying("chunks", number_key(number))
        if value is None:
            raise DataError(f"a chunk is missing: chunk={number} file={data_file(side.folder)}")
        will_need(value)
        yield number, value


def _release(scratch: Scratch, durable: Durable, version: int, record: Record) -> None:
    """Record the new version as the opened one in the scratch, and delete the scratch's chunks that are durable now."""

    def released(txn: Txn) -> None:
        if scratch.opened(txn) >= version:  # greater: a late attempt, after the next version has landed
            return
        scratch.landed(txn, version, _durable_of_held(scratch, txn, record))
        scratch.set_base(txn, version, record.checkpoint.step, max(record.step, scratch.step(txn)))

    with noted(durable.writers_folder, record.checkpoint.epoch):
        scratch.environment.write(released)


def _durable_of_held(scratch: Scratch, txn: Txn, record: Record) -> npt.NDArray[np.uint64]:
    """Return the chunks to delete from the scratch: the version made them durable, or no step and no lease refers to them."""
    there = np.array([number_of(key) for key in txn.keys("chunks")], np.uint64)
    durable = ids_of([record])
    held = np.union1d(ids_of(scratch.held_records(txn)), scratch.leased(txn))
    return np.union1d(np.intersect1d(there, durable), np.setdiff1d(there, np.union1d(held, durable)))
