"""Chunks encoded when it is known which of them stay: the same states and bytes as encoding each at once."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

from dbsp.storage.chunkfile import ReadChunks, WriteChunks, pack_chunk
from dbsp.storage.draft import DraftChunks
from dbsp.trace.chunks import ChunkRef, MemoryChunks
from dbsp.trace.manifest import SpineState, chunk_ids, encode_state, refs
from dbsp.trace.spine import append, fuel_for
from dbsp.zset.batch import Batch, arrange
from dbsp.zset.schema import INT64, STRING, Arrangement, OrderBy, Schema

SCHEMA = Schema.of({"k": INT64, "s": STRING})
BY_KEY = Arrangement(schema=SCHEMA, key=("k",))
CHUNK_BYTES = 4096


IN_ORDER = Arrangement(schema=SCHEMA, key=("s",), order=(OrderBy("k"),))


def queue(step: int, size: int) -> Batch:
    """One group, of which rows come at the end, and soon leave the front."""
    came, gone = np.arange(step * size, (step + 1) * size), np.arange((step - 4) * size, (step - 3) * size)
    keys, weights = np.concatenate([came, gone]), np.repeat([1, -1], size)
    return arrange(Batch.of(SCHEMA, [keys, ["one"] * 2 * size], weights), IN_ORDER)


def rows(rng: np.random.Generator, many: int) -> Batch:
    """Rows of some keys, with nulls; every fifth goes."""
    keys = rng.integers(0, 2000, many)
    texts = [None if key % 7 == 0 else f"text-{key}-{'x' * (key % 30)}" for key in keys.tolist()]
    return arrange(Batch.of(SCHEMA, [keys, texts], np.where(keys % 5 == 0, -1, 1)), BY_KEY)


class Held(ReadChunks):
    """The chunks written so far."""

    def __init__(self) -> None:
        super().__init__((), CHUNK_BYTES)
        self.written: dict[int, tuple[Batch, bytes]] = {}

    def whole(self, ref: ChunkRef, arrangement: Arrangement) -> Batch:
        batch, value = self.written[ref.id]
        assert pack_chunk(ref.id, batch)[1] == ref.checksum
        assert len(value) > ref.nbytes
        assert batch.arrangement == arrangement
        return batch


class Kept(WriteChunks):
    """Encodes at once, and keeps the batches beside."""

    def put(self, chunk: Batch) -> ChunkRef:
        ref = super().put(chunk)
        self._batches = {**getattr(self, "_batches", {}), ref.id: chunk}
        return ref


@pytest.mark.parametrize("size", [10, 300, 1500])
@pytest.mark.parametrize("fuel", ["whole", "bounded", "little"])
def test_states_and_bytes_are_those_of_chunks_encoded_at_once(size: int, fuel: str) -> None:
    """Appends with merges that end, that are half done, and that go on later."""
    rng = np.random.default_rng(size)
    at_once, late = Held(), Held()
    numbers = count(1).__next__, count(1).__next__
    states = [SpineState(), SpineState()]
    never = 0
    for _ in range(24):
        batch = rows(rng, int(rng.integers(size // 2, size)))
        rows_max = {"whole": None, "bounded": fuel_for(len(batch)), "little": len(batch)}[fuel]
        chunks = Kept(at_once, numbers[0])
        states[0] = append(states[0], batch, BY_KEY, chunks, rows_max)
        made = getattr(chunks, "_batches", {})
        taken = {n: bytes(value) for n, value in chunks.take(set(chunk_ids(states[0]).tolist())).items()}
        at_once.written |= {n: (made[n], value) for n, value in taken.items()}
        never += len(made) - len(taken)

        drafts = DraftChunks(late, numbers[1])
        written: dict[int, bytes] = {}
        draft = append(states[1], batch, BY_KEY, drafts, rows_max)
        kept = dict(drafts._fresh)
        states[1] = drafts.settle(draft, lambda n, value, written=written: written.update({n: bytes(value)}))
        late.written |= {n: (kept[n], value) for n, value in written.items()}
        assert written == taken
        assert list(written) == sorted(written)
        assert encode_state(states[1]) == encode_state(states[0])
        assert all(ref.checksum for ref in refs(states[1]))
    assert never or size * 24 < CHUNK_BYTES


def test_where_a_queue_begins_is_kept() -> None:
    """The reference is the same trace in memory."""
    late, number, memory = Held(), count(1).__next__, MemoryChunks(CHUNK_BYTES)
    stored, state = SpineState(), SpineState()
    for step in range(4, 24):
        batch = queue(step, 800)
        state = append(state, batch, IN_ORDER, memory, fuel_for(len(batch)))
        drafts = DraftChunks(late, number)
        draft = append(stored, batch, IN_ORDER, drafts, fuel_for(len(batch)))
        kept, written = dict(drafts._fresh), dict[int, bytes]()
        stored = drafts.settle(draft, lambda n, value, written=written: written.update({n: bytes(value)}))
        late.written |= {n: (kept[n], value) for n, value in written.items()}
        assert stored.fronts == state.fronts
    assert len(state.fronts) == 1
