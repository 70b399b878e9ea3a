"""Queues: rows at the front of a group that were taken away are passed once, and are read by nobody after that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from random import Random

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from test_retention import code
from traces import ORDERED, SCHEMA, Row, added, arranged, hash_bits

from dbsp.trace import live_starts, spine
from dbsp.trace.chunks import ChunkRef, MemoryChunks
from dbsp.trace.manifest import SpineState, chunk_ids, decode_state, encode_state, stored
from dbsp.trace.neighbours import Positions
from dbsp.trace.spine import Spine, append
from dbsp.zset.batch import Batch, arrange, keys_of
from dbsp.zset.schema import INT64, Arrangement, Schema
from tests.pace import examples

PACE = settings(
    max_examples=examples(30),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
KEYS = 3


@pytest.fixture
def short_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of three rows are long, and steps that take from more than two keys keep up no front while there are few rows."""
    monkeypatch.setattr(spine, "ROWS_MIN", 3)
    monkeypatch.setattr(live_starts, "KEYS_MIN", 2)
    monkeypatch.setattr(live_starts, "ROWS_PER_KEY", 20)


def changes(random: Random, model: Counter[Row]) -> Iterator[list[tuple[Row, int]]]:
    """The oldest leave, new ones come behind; sometimes before all others, or anywhere, or a delete ahead of its insert."""
    for step in range(20):
        rows: list[tuple[Row, int]] = []
        for key in range(KEYS):
            mine = sorted((row for row in model if row[0] == key), key=lambda row: (code(row[1]), row[2]))
            oldest = [(row, -model[row]) for row in mine[: random.choice([0, 1, 2, 5])]]
            newest = [((key, 4 * step + at, random.choice("ab")), random.choice([1, 2])) for at in range(3)]
            early = [((key, random.randint(-9, 4 * step), "a"), random.choice([1, -1]))]
            anywhere = [(row, -model[row]) for row in random.sample(mine, min(2, len(mine)))]
            rows += random.choice([oldest + newest, oldest, oldest + newest, early, early, anywhere, [], newest])
        yield rows


def summed(rows: Batch) -> Counter[Row]:
    return added(Counter(), rows.to_rows())


@PACE
@given(
    st.integers(0, 1 << 30),
    st.sampled_from([None, 1, 2]),
    st.sampled_from([300, 1 << 20]),
    st.sampled_from([0, 3, None]),
)
def test_reading_behind_a_front_reads_all_that_is_there(
    short_groups: None, seed: int, bits: int | None, chunk_bytes: int, fuel: int | None
) -> None:
    random, chunks, state, model = Random(seed), MemoryChunks(chunk_bytes), SpineState(), Counter[Row]()
    with hash_bits(bits):
        keys = Batch.from_rows(Schema.of({"k": INT64}), [((key,), 1) for key in range(KEYS)])
        hashes = keys_of(keys, ("k",))
        order = np.argsort(hashes, kind="stable")
        keys, hashes = keys.take(order), hashes[order]
        for rows in changes(random, model):
            state = append(state, arranged(ORDERED, rows), ORDERED, chunks, fuel)
            state = decode_state(encode_state(state))
            chunks.keep([chunk_ids(state)])
            model = added(model, rows)
            check(Spine(ORDERED, state, chunks), model, keys, hashes, random)


def check(view: Spine, model: Counter[Row], keys: Batch, hashes: np.ndarray, random: Random) -> None:
    """What is in front sums to zero, and every way to read gives what is there, also under changes of the running step."""
    stored = added(Counter(), (pair for part in view.parts() for pair in part.to_rows()))
    by_key = dict(zip(keys.column("k").to_pylist(), view.state.live_starts.of(hashes).tolist(), strict=True))
    assert all(code(row[1]) >= by_key[row[0]] for row in stored)
    key = random.randrange(KEYS)
    extra = [((key, random.randint(-9, 100), "a"), random.choice([1, -1])) for _ in range(2)]
    for seen, there in ((view, model), (view.with_batch(arranged(ORDERED, extra)), added(model, extra))):
        low, high = np.zeros(KEYS, np.uint64), np.full(KEYS, code(random.randint(-9, 130)), np.uint64)
        wanted = {row: weight for row, weight in there.items() if code(row[1]) <= int(high[0])}
        query, found = seen.ranges(np.unique(hashes), *(side[: len(np.unique(hashes))] for side in (low, high)))
        assert summed(found) == wanted
        for backward in (False, True):
            reached = seen.reach(Positions(key_hash=hashes, first=low, last=high, backward=backward), 2, keys)
            for at, (key,) in enumerate(row for row, _ in keys.to_rows()):
                codes = sorted((code(r[1]) for r, w in wanted.items() if r[0] == key and w > 0), reverse=backward)
                assert int(reached[at]) == (codes[1] if len(codes) > 1 else int(low[at] if backward else high[at]))
        query, rows = seen.first_rows(hashes, 2, keys)
        for at, (key,) in enumerate(row for row, _ in keys.to_rows()):
            got = {r: w for r, w in summed(rows.take(np.flatnonzero(query == at))).items() if r[0] == key}
            mine = {r: w for r, w in there.items() if r[0] == key}
            positive = sorted(code(r[1]) for r, w in mine.items() if w > 0)
            last = positive[1] if len(positive) > 1 else max((code(r[1]) for r in mine), default=0)
            assert {r: w for r, w in mine.items() if code(r[1]) <= last}.items() <= got.items() <= mine.items()


@PACE
@given(
    st.integers(0, 1 << 30), st.sampled_from([None, 1, 2]), st.sampled_from([300, 1 << 20]), st.sampled_from([0, None])
)
def test_the_first_of_several_weights_says_which_rows_are_there(
    short_groups: None, seed: int, bits: int | None, chunk_bytes: int, fuel: int | None
) -> None:
    """Beside its weight a row has a sum, which changes alone too, and is zero where the weight is."""
    random, chunks, state = Random(seed), MemoryChunks(chunk_bytes), SpineState()
    two, model, sums = replace(ORDERED, weights=2), Counter[Row](), Counter[Row]()
    with hash_bits(bits):
        hashes = np.unique(
            keys_of(Batch.from_rows(Schema.of({"k": INT64}), [((key,), 1) for key in range(KEYS)]), ("k",))
        )
        for rows in changes(random, model):
            model = added(model, rows)
            some = {row: random.randint(-2, 2) for row in random.sample(sorted(model), min(3, len(model)))}
            moved = some | {row: -sums[row] for row, _ in rows if row not in model}
            sums = added(sums, moved.items())
            both = [*((row, (weight, 0)) for row, weight in rows), *((row, (0, by)) for row, by in moved.items())]
            batch = Batch.from_rows(SCHEMA, [(row, 1) for row, _ in both]).with_weights(
                np.array([weights for _, weights in both], np.int64).reshape(-1, 2)
            )
            state = append(state, arrange(batch, two), two, chunks, fuel)
            _, found = Spine(two, state, chunks).ranges(
                hashes, np.zeros(len(hashes), np.uint64), np.full(len(hashes), 0xFFFF_FFFF_FFFF_FFFF, np.uint64)
            )
            read: dict[Row, np.ndarray] = {}
            for row, weights in zip(
                zip(*(c.to_pylist() for c in found.columns), strict=True), found.weights, strict=True
            ):
                read[row] = read.get(row, 0) + weights
            assert {row: tuple(w) for row, w in read.items() if w.any()} == {
                row: (w, sums[row]) for row, w in model.items()
            }


def queue(chunks: MemoryChunks, steps: int) -> SpineState:
    """Two groups of 4,000 rows whose oldest ten leave, and ten new ones come, so many times."""
    size = 4000
    rows = [((key, at, "a"), 1) for key in range(2) for at in range(size)]
    state = append(SpineState(), arranged(ORDERED, rows), ORDERED, chunks, None)
    for step in range(steps):
        oldest, newest = range(10 * step, 10 * step + 10), range(size + 10 * step, size + 10 * step + 10)
        rows = [((key, at, "a"), sign) for key in range(2) for sign, ats in ((-1, oldest), (1, newest)) for at in ats]
        state = append(state, arranged(ORDERED, rows), ORDERED, chunks, 0)
    return state


class Counting(MemoryChunks):
    """Tells which chunks were asked for."""

    def __init__(self, chunk_bytes_max: int) -> None:
        super().__init__(chunk_bytes_max)
        self.asked: list[int] = []

    def get(self, ref: ChunkRef, arrangement: Arrangement) -> Batch:
        self.asked.append(ref.id)
        return super().get(ref, arrangement)


def touched(chunks: Counting, read: Callable[[], object], among: Iterable[int] | None = None) -> int:
    """How many different chunks it reads, of all or among some."""
    chunks.asked.clear()
    read()
    return len(set(chunks.asked).intersection(chunks.asked if among is None else among))


@pytest.mark.parametrize("keys_min", [2, 1])
def test_rows_that_left_a_queue_are_read_no_more(monkeypatch: pytest.MonkeyPatch, keys_min: int) -> None:
    """Few groups lose rows in a step, or many for any trace but one with so many rows."""
    monkeypatch.setattr(spine, "ROWS_MIN", 1000)
    monkeypatch.setattr(live_starts, "KEYS_MIN", keys_min)
    chunks = Counting(4000)
    state = queue(chunks, 60)
    keys = keys_of(Batch.from_rows(Schema.of({"k": INT64}), [((0,), 1), ((1,), 1)]), ("k",))
    view = Spine(ORDERED, state, chunks)
    assert (view.state.live_starts.of(np.sort(keys)) == code(600)).all()
    oldest = [ref.id for ref in next(stored(state.entries[0]))]
    assert touched(chunks, lambda: view.first_rows(np.sort(keys), 1), oldest) <= 2 * 2
    bare = Spine(ORDERED, SpineState(entries=state.entries), chunks)
    assert touched(chunks, lambda: bare.first_rows(np.sort(keys), 1), oldest) > 2 * 5


def test_look_ups_in_one_large_group_touch_the_chunks_they_lie_in() -> None:
    chunks = Counting(4000)
    rows = arranged(ORDERED, [((1, at, "a"), 1) for at in range(5000)])
    state = append(SpineState(), rows, ORDERED, chunks, None)
    assert len(chunks) > 20
    view, hashes = Spine(ORDERED, state, chunks), np.repeat(rows.words[0][:1], 3)
    keys = Batch.from_rows(Schema.of({"k": INT64}), [((1,), 1)] * 3)
    at = np.array([code(time) for time in (10, 2500, 4990)], np.uint64)
    last = np.full(3, 0xFFFF_FFFF_FFFF_FFFF, np.uint64)
    few = arranged(ORDERED, [((1, time, "a"), 1) for time in (10, 2500, 4990)])
    assert touched(chunks, lambda: view.ranges(hashes, at, at)) <= 3
    assert touched(chunks, lambda: view.sums(few)) <= 3
    for first, end, backward in ((at, last, False), (np.zeros(3, np.uint64), at, True)):
        asked = Positions(key_hash=hashes, first=first, last=end, backward=backward)
        assert touched(chunks, lambda asked=asked: view.reach(asked, 1, keys)) <= 6  # type: ignore[misc]


def test_a_merge_behind_a_large_group_refers_to_its_chunks() -> None:
    chunks = MemoryChunks(4000)
    rows = arranged(ORDERED, [((1, at, "a"), 1) for at in range(5000)])
    state = append(SpineState(), rows.slice(0, 2500), ORDERED, chunks, None)
    before = set(chunk_ids(state).tolist())
    state = append(state, rows.slice(2500, 5000), ORDERED, chunks, None)
    (run,) = state.entries
    assert run.rows == 5000
    assert len(before & set(chunk_ids(state).tolist())) >= len(before) - 2
