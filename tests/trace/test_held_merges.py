"""While merges wait: the same rows, no chunk of before that changes, few runs more; afterwards they go on."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from dbsp.trace import spine
from dbsp.trace.chunks import CUT_SHARE, ChunkStore, EndingAt, MemoryChunks
from dbsp.trace.manifest import ID, NBYTES, PendingMerge, chunk_ids, chunk_refs, refs
from dbsp.trace.spine import Spine, SpineState, append, fuel_for
from dbsp.zset.batch import Batch, arrange
from dbsp.zset.schema import INT64, Arrangement, Schema

SCHEMA = Schema.of({"k": INT64, "v": INT64})
BY_KEY = Arrangement(schema=SCHEMA, key=("k",))


def grown(state: SpineState, chunks: ChunkStore, draw: random.Random, steps: int, kept_below: int = 0) -> SpineState:
    """The state after so many steps of 2,000 rows."""
    for _ in range(steps):
        rows: Any = [((draw.randrange(10**9), draw.randrange(5)), 1) for _ in range(2000)]
        batch = arrange(Batch.from_rows(SCHEMA, rows), BY_KEY)
        state = append(state, batch, BY_KEY, chunks, fuel_for(len(batch)), kept_below=kept_below)
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
def test_no_chunk_of_before_changes_and_all_goes_on_afterwards(seed: int) -> None:
    chunks = MemoryChunks(chunk_bytes_max=20_000)
    start = grown(SpineState(), chunks, random.Random(seed), 60 + 7 * seed)
    free = grown(start, chunks, random.Random(99), 24)
    held, draw = start, random.Random(99)
    for rounds in range(1, 4):
        before, below = held, chunks.next_number
        held = grown(before, chunks, draw, 8, kept_below=below)
        assert set(chunk_ids(before).tolist()) <= set(chunk_ids(held).tolist())
        assert len(held.entries) <= len(start.entries) + 5 * rounds, "what comes is merged among itself"
    assert content(held, chunks) == content(free, chunks)
    assert changed_bytes(start, held) <= 40 * (held.rows - start.rows), "what came, once"
    after = grown(held, chunks, random.Random(7), 60)
    assert len(after.entries) <= 12
    waiting = [entry for entry in after.entries if isinstance(entry, PendingMerge)]
    assert all(entry.credit <= fuel_for(2000) * 2 for entry in waiting), "no credit gathers while a merge waits"


def test_where_very_many_runs_gather_merges_of_little_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spine, "KEPT_RUNS_MAX", 12)
    chunks, draw = MemoryChunks(chunk_bytes_max=20_000), random.Random(3)
    start = held = grown(SpineState(), chunks, draw, 150)
    for _ in range(60):
        held = grown(held, chunks, draw, 1, kept_below=chunks.next_number)
    assert len(held.entries) <= 12 + 2 * (spine.FAN - 1)
    large = max((entry for entry in start.entries), key=lambda entry: entry.rows)
    assert large in held.entries


@pytest.mark.parametrize("seed", range(3))
def test_chunks_end_where_another_owner_begins(seed: int) -> None:
    """Those made meanwhile, large and small: none has rows on both sides, unless one side would be a crumb."""
    inner, draw = MemoryChunks(chunk_bytes_max=20_000), random.Random(seed)
    cuts = [1 << 62, 1 << 63, 3 << 62]
    chunks = EndingAt(inner, cuts)
    start = grown(SpineState(), inner, draw, 20)
    held = grown(start, chunks, random.Random(99), 12, kept_below=inner.next_number)
    assert content(held, inner) == content(grown(start, inner, random.Random(99), 12), inner)
    old = set(chunk_ids(start).tolist())
    fresh = [ref for ref in refs(held) if ref.id not in old]
    assert len(fresh) > len(cuts)
    for cut, ref in itertools.product(cuts, fresh):
        hashes = inner.get(ref, BY_KEY).words[0]
        below = int(hashes.searchsorted(np.uint64(cut)))
        crumb = min(below, len(hashes) - below) * ref.nbytes / len(hashes)
        assert crumb <= inner.chunk_bytes_max // CUT_SHARE, (hex(cut), ref)


@pytest.mark.parametrize("seed", range(3))
def test_merges_that_are_due_all_at_once_begin_one_by_one(seed: int) -> None:
    """As after a rescale, which leaves runs alone: an append begins one merge that it cannot end; soon they are all done."""
    chunks, draw = MemoryChunks(chunk_bytes_max=20_000), random.Random(seed)
    runs = [grown(SpineState(), chunks, draw, 1).entries]
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
        known = {entry.runs[0].rows for entry in before.entries if isinstance(entry, PendingMerge)}
        begun = [e for e in state.entries if isinstance(e, PendingMerge) and e.runs[0].rows not in known]
        assert len([entry for entry in begun if entry.rows > fuel_for(2000)]) <= 1, step
    assert content(state, chunks) == expected
    assert len(state.entries) <= 8
