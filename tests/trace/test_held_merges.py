"""While merges of much of a trace wait: the same rows, few chunks that change, few runs more; afterwards they go on."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from dbsp.trace.chunks import MemoryChunks
from dbsp.trace.manifest import ID, NBYTES, PendingMerge, chunk_refs
from dbsp.trace.spine import HELD_SHARE, Spine, SpineState, append, fuel_for
from dbsp.zset.batch import Batch, arrange
from dbsp.zset.schema import INT64, Arrangement, Schema

SCHEMA = Schema.of({"k": INT64, "v": INT64})
BY_KEY = Arrangement(schema=SCHEMA, key=("k",))


def grown(state: SpineState, chunks: MemoryChunks, draw: random.Random, steps: int, holds: bool) -> SpineState:
    """The state after so many steps of 2,000 rows."""
    for _ in range(steps):
        rows: Any = [((draw.randrange(10**9), draw.randrange(5)), 1) for _ in range(2000)]
        batch = arrange(Batch.from_rows(SCHEMA, rows), BY_KEY)
        state = append(state, batch, BY_KEY, chunks, fuel_for(len(batch)), holds=holds)
    return state


def content(state: SpineState, chunks: MemoryChunks) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for part in Spine(BY_KEY, state, chunks).parts():
        for row, weight in part.to_rows():
            found[row] += weight
    return found


def changed_bytes(before: SpineState, after: SpineState) -> int:
    old, new = chunk_refs(before), chunk_refs(after)
    return int(new[~np.isin(new[:, ID], old[:, ID])][:, NBYTES].sum())


@pytest.mark.parametrize("seed", range(3))
def test_few_chunks_change_and_all_goes_on_afterwards(seed: int) -> None:
    chunks = MemoryChunks(chunk_bytes_max=20_000)
    start = grown(SpineState(), chunks, random.Random(seed), 60 + 7 * seed, holds=False)
    free = grown(start, chunks, random.Random(99), 12, holds=False)
    held = grown(start, chunks, random.Random(99), 12, holds=True)
    assert content(held, chunks) == content(free, chunks)
    assert changed_bytes(start, held) <= changed_bytes(start, free)
    added = held.rows - start.rows
    assert changed_bytes(start, held) <= 3 * 40 * added, "what came, and merges of little"
    assert len(held.entries) <= len(start.entries) + HELD_SHARE
    after = grown(held, chunks, random.Random(7), 60, holds=False)
    assert len(after.entries) <= 12
    waiting = [entry for entry in after.entries if isinstance(entry, PendingMerge)]
    assert all(entry.credit <= fuel_for(2000) * 2 for entry in waiting), "no credit gathers while a merge waits"


@pytest.mark.parametrize("seed", range(3))
def test_merges_that_are_due_all_at_once_begin_one_by_one(seed: int) -> None:
    """As after a rescale, which leaves runs alone: an append begins one merge that it cannot end; soon they are all done."""
    chunks, draw = MemoryChunks(chunk_bytes_max=20_000), random.Random(seed)
    runs = [grown(SpineState(), chunks, draw, 1, holds=False).entries]
    for _ in range(6):
        big: Any = [((draw.randrange(10**9), 0), 1) for _ in range(30_000 + draw.randrange(2000))]
        batch = arrange(Batch.from_rows(SCHEMA, big), BY_KEY)
        runs.append(append(SpineState(), batch, BY_KEY, chunks, None).entries)
    state = SpineState(entries=tuple(entry for entries in runs[::-1] for entry in entries))
    expected = content(state, chunks)
    for step in range(30):
        before = state
        rows: Any = [((draw.randrange(10**9), 1), 1) for _ in range(2000)]
        expected.update(row for row, _ in rows)
        state = append(state, arrange(Batch.from_rows(SCHEMA, rows), BY_KEY), BY_KEY, chunks, fuel_for(2000))
        known = {entry.left.rows for entry in before.entries if isinstance(entry, PendingMerge)}
        begun = [e for e in state.entries if isinstance(e, PendingMerge) and e.left.rows not in known]
        assert len([entry for entry in begun if entry.rows > fuel_for(2000)]) <= 1, step
    assert content(state, chunks) == expected
    assert len(state.entries) <= 8
