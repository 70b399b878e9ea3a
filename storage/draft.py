"""The chunks that a step makes, encoded only when it is known which of them stay.

An append may store a run and merge it at once with older ones, level by level: what lies between is read as it is, and never made
bytes. A reference carries no checksum until then; `settle` gives those that stay theirs.

Invariant: a state that leaves `settle` refers to chunks whose checksums are known; numbers and bytes are those that `WriteChunks`
gives, which encodes every chunk at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from dbsp.storage.chunkfile import ReadChunks, pack_chunk
from dbsp.trace.chunks import ChunkRef
from dbsp.trace.manifest import CHECKSUM, ID, PendingMerge, Refs, SpineState, StoredBatch, chunk_ids
from dbsp.zset.batch import Batch
from dbsp.zset.encoding import encoded_size
from dbsp.zset.schema import Arrangement


class DraftChunks:
    """Where one step stores: its own chunks as batches, older ones read where they lie."""

    def __init__(self, reading: ReadChunks, next_number: Callable[[], int], cuts: Sequence[int] = ()) -> None:
        """Read old chunks through `reading`; number new ones with `next_number`, and end them at `cuts`."""
        self.chunk_bytes_max = reading.chunk_bytes_max
        self.cuts = cuts
        self._reading = reading
        self._next_number = next_number
        self._fresh: dict[int, Batch] = {}

    def put(self, chunk: Batch) -> ChunkRef:
        """Keep a chunk; the reference lacks its checksum."""
        ref = ChunkRef.of(self._next_number(), chunk, encoded_size(chunk))
        self._fresh[ref.id] = chunk
        return ref

    def get(self, ref: ChunkRef, arrangement: Arrangement) -> Batch:
        """A chunk made just now, or an older one; whoever merges reads all of it."""
        fresh = self._fresh.get(ref.id)
        return self._reading.whole(ref, arrangement) if fresh is None else fresh

    def foresight(self) -> None:
        """Nobody looks up through this."""

    def settle(self, state: SpineState, write: Callable[[int, bytearray], None]) -> SpineState:
        """Write the chunks of this step that the state has, in order of their numbers; the state with all checksums.

        The others are forgotten. One chunk at a time is bytes here: whoever writes has a copy of its own.
        """
        fresh, self._fresh = self._fresh, {}
        checksums: dict[int, int] = {}
        for number in sorted(fresh.keys() & set(chunk_ids(state).tolist())):
            value, checksums[number] = pack_chunk(number, fresh.pop(number))
            write(number, value)
        return _checked(state, checksums)


def _checked(state: SpineState, checksums: dict[int, int]) -> SpineState:
    """The state with these checksums in its references."""
    if not checksums:
        return state

    def run(batch: StoredBatch) -> StoredBatch:
        return StoredBatch(_with_checksums(batch.refs, checksums))

    entries = tuple(
        replace(entry, done=run(entry.done), left=run(entry.left), right=run(entry.right))
        if isinstance(entry, PendingMerge)
        else run(entry)
        for entry in state.entries
    )
    return replace(state, entries=entries)


def _with_checksums(refs: Refs, checksums: dict[int, int]) -> Refs:
    """References, those to these chunks with their checksums."""
    numbers = np.array(sorted(checksums), np.uint64)
    mine = np.flatnonzero(np.isin(refs[:, ID], numbers))
    if not len(mine):
        return refs
    made = refs.copy()
    made[mine, CHECKSUM] = [checksums[number] for number in refs[mine, ID].tolist()]
    return made
