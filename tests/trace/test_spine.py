"""A spine reads like the sum of what was appended, whatever was merged so far, and hash collisions change nothing."""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from traces import (
    ARRANGEMENTS,
    BY_KEY,
    BY_ROW,
    ORDERED,
    ROWS,
    SCHEMA,
    STEPS,
    Row,
    ZSet,
    added,
    arranged,
    content,
    hash_bits,
)

from dbsp.errors import DataError, InternalError
from dbsp.trace.chunks import MemoryChunks, split
from dbsp.trace.manifest import PendingMerge, SpineState, StoredBatch, chunk_ids, decode_state, encode_state, refs
from dbsp.trace.spine import FAN, FUEL_PER_ROW, WIDE_FAN, Spine, append, fuel_for
from dbsp.zset.batch import Batch, keys_of
from dbsp.zset.schema import Arrangement
from tests.pace import examples

BITS = st.sampled_from([None, None, 2])
CHUNK_BYTES = st.sampled_from([300, 2000, 1 << 20])
FUEL = st.sampled_from([None, 0, 3, 40])
PACE = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def grown(
    arrangement: Arrangement, steps: list[list[tuple[Row, int]]], chunks: MemoryChunks, fuel: int | None
) -> tuple[SpineState, ZSet]:
    """A state made by appending, stored and read back after each append, with garbage removed; and the model."""
    state, model = SpineState(), Counter[Row]()
    for rows in steps:
        state = append(state, arranged(arrangement, rows), arrangement, chunks, fuel)
        state = decode_state(encode_state(state))
        chunks.keep([chunk_ids(state)])
        model = added(model, rows)
    return state, model


@PACE
@given(st.sampled_from(ARRANGEMENTS), STEPS, BITS, CHUNK_BYTES, FUEL)
def test_a_spine_is_the_sum_of_what_was_appended(
    arrangement: Arrangement, steps: list[list[tuple[Row, int]]], bits: int | None, chunk_bytes: int, fuel: int | None
) -> None:
    with hash_bits(bits):
        chunks = MemoryChunks(chunk_bytes)
        state, model = grown(arrangement, steps, chunks, fuel)
        spine = Spine(arrangement, state, chunks)
        assert content(spine) == model
        assert spine.rows == sum(len(part) for part in spine.parts())
        more = arranged(arrangement, [((1, 1, "a"), 5)])
        assert content(spine.with_batch(more)) == added(model, [((1, 1, "a"), 5)])
        if fuel is None:
            assert all(isinstance(entry, StoredBatch) for entry in state.entries)
            sizes = [entry.rows for entry in state.entries]
            assert all(4 * size > 5 * sum(sizes[place + 1 :]) for place, size in enumerate(sizes))


@PACE
@given(st.sampled_from([BY_KEY, ORDERED]), STEPS, BITS, CHUNK_BYTES, FUEL, st.lists(st.integers(0, 11), max_size=12))
def test_matches_finds_every_row_of_a_key(
    arrangement: Arrangement,
    steps: list[list[tuple[Row, int]]],
    bits: int | None,
    chunk_bytes: int,
    fuel: int | None,
    asked: list[int],
) -> None:
    with hash_bits(bits):
        chunks = MemoryChunks(chunk_bytes)
        state, model = grown(arrangement, steps, chunks, fuel)
        keys, key_hash = queries(asked)
        found, rows = Spine(arrangement, state, chunks).matches(key_hash)
        assert (rows.words[0] == key_hash[found]).all()
        again, loose = Spine(arrangement, state, chunks).matches(key_hash, words=False)
        assert (again == found).all()
        assert loose.to_rows() == rows.to_rows()
        assert loose.key_hash is None or not len(loose)
        pairs = zip(found.tolist(), rows.to_rows(), strict=True)
        got = Counter[tuple[int, Row]]()
        for query, (row, weight) in pairs:
            if row[0] == keys[query]:
                got[(query, row)] += weight
        expected = {(n, row): weight for n, key in enumerate(keys) for row, weight in model.items() if row[0] == key}
        assert {pair: weight for pair, weight in got.items() if weight} == expected


def queries(asked: list[int]) -> tuple[list[int], np.ndarray]:
    """Keys in the order of their hashes, and the hashes."""
    batch = Batch.from_rows(SCHEMA, [(key, 0, "") for key in asked])
    key_hash = keys_of(batch, ("k",))
    order = np.argsort(key_hash, kind="stable")
    return [asked[place] for place in order], key_hash[order]


@PACE
@given(st.sampled_from(ARRANGEMENTS), STEPS, BITS, CHUNK_BYTES, FUEL, ROWS)
def test_sums_are_those_of_exactly_these_rows(
    arrangement: Arrangement,
    steps: list[list[tuple[Row, int]]],
    bits: int | None,
    chunk_bytes: int,
    fuel: int | None,
    asked: list[tuple[Row, int]],
) -> None:
    with hash_bits(bits):
        chunks = MemoryChunks(chunk_bytes)
        state, model = grown(arrangement, steps, chunks, fuel)
        keys = arranged(arrangement, {row: 1 for row, _ in asked}.items())
        sums = Spine(arrangement, state, chunks).sums(keys)
        assert sums[:, 0].tolist() == [model[row] for row, _ in keys.to_rows()]


@PACE
@given(
    STEPS,
    BITS,
    CHUNK_BYTES,
    FUEL,
    st.integers(1, 6),
    st.lists(st.integers(0, 9), min_size=1, max_size=12),
    st.booleans(),
)
def test_heads_hold_the_first_rows(
    steps: list[list[tuple[Row, int]]],
    bits: int | None,
    chunk_bytes: int,
    fuel: int | None,
    k: int,
    asked: list[int],
    exact: bool,
) -> None:
    """The k first positive rows of each key with all ties, and of the rows before them none is missing or extra."""
    exact = exact or bits is not None
    with hash_bits(bits):
        chunks = MemoryChunks(chunk_bytes)
        state, model = grown(ORDERED, steps, chunks, fuel)
        keys, key_hash = queries(asked)
        batch = Batch.from_rows(SCHEMA, [(key, 0, "") for key in keys])
        found, rows = Spine(ORDERED, state, chunks).first_rows(key_hash, k, batch if exact else None)
        assert (np.diff(found) >= 0).all()
        for query, key in enumerate(keys):
            got = {row: w for n, (row, w) in zip(found, rows.to_rows(), strict=True) if n == query and row[0] == key}
            check_head(got, {row: weight for row, weight in model.items() if row[0] == key}, k)


@PACE
@given(STEPS, BITS, CHUNK_BYTES, FUEL, st.integers(1, 6), ROWS)
def test_heads_twice_are_the_heads_before_and_after(
    steps: list[list[tuple[Row, int]]],
    bits: int | None,
    chunk_bytes: int,
    fuel: int | None,
    k: int,
    change: list[tuple[Row, int]],
) -> None:
    """Both sides as `first_rows` gives them, whatever the change adds to the first rows or takes of them."""
    with hash_bits(bits):
        chunks = MemoryChunks(chunk_bytes)
        state, model = grown(ORDERED, steps, chunks, fuel)
        delta = arranged(ORDERED, change)
        keys, key_hash = queries([row[0] for row, _ in change] or [0])
        batch = Batch.from_rows(SCHEMA, [(key, 0, "") for key in keys])
        after = dict(model)
        for row, weight in change:
            after[row] = after.get(row, 0) + weight
        first_rows = Spine(ORDERED, state, chunks).first_rows_twice(key_hash, k, batch, delta)
        sides = first_rows.side(first_rows.before), first_rows.side(first_rows.after)
        for (found, rows), full in zip(sides, (model, after), strict=True):
            for query, key in enumerate(keys):
                got = {
                    row: w for n, (row, w) in zip(found, rows.to_rows(), strict=True) if n == query and row[0] == key
                }
                check_head(got, {row: weight for row, weight in full.items() if row[0] == key and weight}, k)


def check_head(got: dict[Row, int], full: dict[Row, int], k: int) -> None:
    def place(row: Row) -> tuple[bool, int]:
        return (row[1] is None, row[1] or 0)

    positive = sorted(place(row) for row, weight in full.items() if weight > 0)
    last = positive[k - 1] if len(positive) >= k else (True, 1)
    assert {row: weight for row, weight in full.items() if place(row) <= last}.items() <= got.items()
    reach = max(map(place, got), default=(False, -1))
    assert got == {row: weight for row, weight in full.items() if place(row) <= reach}


def test_work_per_append_is_bounded_and_runs_do_not_pile_up() -> None:
    """Each append merges at most its fuel per merge under way, overdrawn by a chunk's worth once."""
    worked: list[int] = []

    class Counting(MemoryChunks):
        def put(self, chunk: Batch):  # type: ignore[no-untyped-def]
            worked[-1] += len(chunk)
            return super().put(chunk)

    chunks, state = Counting(16 << 10), SpineState()
    rng = np.random.default_rng(1)
    for _ in range(60):
        worked.append(0)
        values = rng.integers(0, 1 << 40, 3000).tolist()
        batch = arranged(BY_ROW, [((value, value % 1000, "a"), 1) for value in values])
        state = append(state, batch, BY_ROW, chunks, fuel_for(len(batch)))
        chunks.keep([chunk_ids(state)])
        merges = sum(isinstance(entry, PendingMerge) for entry in state.entries)
        assert len(state.entries) <= 10
        assert worked[-1] <= (merges + 6) * (fuel_for(3000) + 4 * 400)
    assert state.rows == 60 * 3000
    assert max(worked) < 20 * np.median(worked)


@pytest.mark.parametrize(
    ("written", "text", "fan"), [(False, "a" * 120, FAN), (True, "a", FAN), (True, "a" * 120, WIDE_FAN)]
)
def test_wide_rows_merge_by_more_where_chunks_are_written(
    monkeypatch: pytest.MonkeyPatch, written: bool, text: str, fan: int
) -> None:
    monkeypatch.setattr("dbsp.trace.spine.SHORT_ROWS", 0)
    monkeypatch.setattr("dbsp.trace.spine.FUEL_FLOOR_ROWS", 0)
    chunks, state, runs = MemoryChunks(), SpineState(), []
    chunks.written = written
    for step in range(WIDE_FAN):
        rows = [((key, step, text), 1) for key in range(100)]
        state = append(state, arranged(BY_ROW, rows), BY_ROW, chunks, 10_000)
        runs.append(len(state.entries))
    merged_at = next(step for step, count in enumerate(runs, 1) if count < step)
    assert fan - 1 <= merged_at <= fan, "runs that are a little longer merge, too"


def test_merges_of_wide_rows_write_little_more_with_an_append_than_what_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each goes forward by half of the fuel of a narrow one, and is done before the next of its length is due."""
    monkeypatch.setattr("dbsp.trace.spine.SHORT_ROWS", 0)
    written: list[int] = []

    class Counting(MemoryChunks):
        def put(self, chunk: Batch):  # type: ignore[no-untyped-def]
            written[-1] += len(chunk)
            return super().put(chunk)

    chunks, state, rows = Counting(2 << 10), SpineState(), 400
    chunks.written = True
    for step in range(9 * WIDE_FAN):
        written.append(0)
        batch = arranged(BY_ROW, [((key, step, "a" * 120), 1) for key in range(rows)])
        state = append(state, batch, BY_ROW, chunks, FUEL_PER_ROW * rows)
        chunks.keep([chunk_ids(state)])
        assert sum(isinstance(entry, PendingMerge) for entry in state.entries) <= 2, "one of each length"
    of_one_merge = FUEL_PER_ROW * rows // 2 + rows // 4
    before_the_second_length = (WIDE_FAN - 1) * (WIDE_FAN - 2)
    assert max(written[:before_the_second_length]) <= rows + of_one_merge
    assert max(written) <= rows + 2 * of_one_merge
    assert state.rows == 9 * WIDE_FAN * rows


def test_a_merge_of_separate_ranges_refers_to_chunks() -> None:
    chunks = MemoryChunks(2000)
    rows = arranged(BY_ROW, [((key, 0, "a"), 1) for key in range(1000)])
    low, high = rows.slice(0, 450), rows.slice(450, 1000)
    state = append(SpineState(), low, BY_ROW, chunks, 0)
    before = set(chunk_ids(state).tolist())
    state = append(state, high, BY_ROW, chunks, None)
    (run,) = state.entries
    assert len(before & set(chunk_ids(state).tolist())) >= len(before) - 2
    assert run.rows == 1000


def test_rows_that_share_all_words_are_never_divided() -> None:
    with hash_bits(1):
        batch = arranged(BY_ROW, [((key, 0, "a"), 1) for key in range(200)])
        pieces = list(split(batch, 300))
        assert sum(map(len, pieces)) == 200
        assert len(pieces) == len(np.unique(batch.words[0]))


def test_chunks_stay_bounded_and_do_not_crumble() -> None:
    chunks, state = MemoryChunks(4000), SpineState()
    for step in range(40):
        rows = [((key, step, "a" * (key % 5)), 1) for key in range(step, 4000, 40)]
        state = append(state, arranged(BY_ROW, rows), BY_ROW, chunks, None)
    sizes = [ref.nbytes for ref in refs(state)]
    assert max(sizes) <= 4000 * 5 // 4
    assert len(sizes) <= 3 * sum(sizes) / 4000


@pytest.mark.parametrize("harm", [lambda b: b[:-1], lambda b: b"x" + b[1:], lambda b: b[:3]])
def test_a_broken_manifest_is_refused(harm) -> None:  # type: ignore[no-untyped-def]
    chunks = MemoryChunks(300)
    state, _ = grown(BY_KEY, [[((1, 2, "a"), 1)]], chunks, None)
    with pytest.raises(DataError):
        decode_state(harm(encode_state(state)))


def test_wrong_questions_are_refused() -> None:
    spine = Spine(BY_KEY, SpineState(), MemoryChunks())
    with pytest.raises(InternalError):
        Spine(ORDERED, SpineState(), MemoryChunks()).sums(arranged(BY_KEY, []))
    with pytest.raises(InternalError):
        spine.first_rows(np.empty(0, np.uint64), 1)
    query, rows = spine.matches(np.array([5], np.uint64))
    assert (len(query), len(rows)) == (0, 0)
