"""Ranges of an ordered trace, and retention bounds: what is above one is never touched, what is below goes in bounded pieces."""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from traces import ARRANGEMENTS, ORDERED, ROWS, STEPS, Row, added, arranged, content, hash_bits

from dbsp.trace.chunks import MemoryChunks
from dbsp.trace.manifest import SpineState, chunk_ids, decode_state, encode_state, state_bytes
from dbsp.trace.retention import RetentionBound
from dbsp.trace.spine import Spine, append, fuel_for
from dbsp.zset.batch import Batch, arrange, keys_of
from dbsp.zset.order import order_codes
from dbsp.zset.schema import INT64, Arrangement, OrderBy, Schema
from tests.pace import examples

PACE = settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.too_slow])
TIMES = st.one_of(st.none(), st.integers(0, 9))


def code(value: int | None) -> int:
    return int(order_codes(pa.array([value], pa.int64()), OrderBy("t"))[0])


@PACE
@given(STEPS, st.lists(st.tuples(st.integers(0, 7), TIMES, TIMES), max_size=6), st.sampled_from([None, 2]))
def test_a_range_holds_the_rows_between_its_ends(
    steps: list[list[tuple[Row, int]]], asked: list[tuple[int, int | None, int | None]], bits: int | None
) -> None:
    with hash_bits(bits):
        chunks, state, model = MemoryChunks(300), SpineState(), Counter[Row]()
        for rows in steps[:-1]:
            state = append(state, arranged(ORDERED, rows), ORDERED, chunks, 40)
            model = added(model, rows)
        spine = Spine(ORDERED, state, chunks).with_batch(arranged(ORDERED, steps[-1]))
        model = added(model, steps[-1])
        keys = Batch.from_rows(Schema.of({"k": INT64}), [((key,), 1) for key, _, _ in asked])
        hashes = keys_of(keys, ("k",))
        order = np.argsort(hashes, kind="stable")
        low = np.array([code(first) for _, first, _ in asked], np.uint64)[order]
        high = np.array([code(last) for _, _, last in asked], np.uint64)[order]
        query, found = spine.ranges(hashes[order], low, high)
        for number, at in enumerate(order.tolist()):
            key, first, last = asked[at]
            mine = found.take(np.flatnonzero(query == number)).to_rows()
            got = added(Counter(), [(row, weight) for row, weight in mine if row[0] == key])
            want = {row: w for row, w in model.items() if row[0] == key and code(first) <= code(row[1]) <= code(last)}
            assert got == want
        least = spine.first_code(np.unique(hashes), code(4))
        later = [code(row[1]) for row in model if row[0] in {key for key, _, _ in asked} and code(row[1]) >= code(4)]
        assert least is None or least >= code(4)
        if later:
            assert least is not None
            assert least <= min(later)


@PACE
@given(
    st.sampled_from(ARRANGEMENTS),
    st.lists(st.tuples(ROWS, st.integers(-1, 9)), min_size=1, max_size=12),
    st.sampled_from([None, 0, 3, 40]),
    st.sampled_from([300, 1 << 20]),
)
def test_what_is_above_a_retention_bound_stays(
    arrangement: Arrangement, steps: list[tuple[list[tuple[Row, int]], int]], fuel: int | None, chunk_bytes: int
) -> None:
    chunks, state, model, floor = MemoryChunks(chunk_bytes), SpineState(), Counter[Row](), -1
    for rows, moved in steps:
        floor = max(floor, moved)
        state = append(
            state, arranged(arrangement, rows), arrangement, chunks, fuel, RetentionBound(column="t", code=code(floor))
        )
        state = decode_state(encode_state(state))
        chunks.keep([chunk_ids(state)])
        model = added(model, rows)
        found = content(Spine(arrangement, state, chunks))
        assert {row: w for row, w in found.items() if code(row[1]) >= code(floor)} == {
            row: w for row, w in model.items() if code(row[1]) >= code(floor)
        }


def test_closed_rows_leave_in_pieces_and_state_stays_flat() -> None:
    """Sixty windows of keys of their own: the state never holds more than a few of them; a quiet trace is emptied, too."""
    schema = Schema.of({"k": INT64, "t": INT64})
    arrangement = Arrangement(schema=schema, key=("k", "t"))
    chunks, state, sizes = MemoryChunks(1 << 16), SpineState(), []
    for window in range(60):
        keys = np.arange(5000)
        batch = Batch.of(schema, [pa.array(keys), pa.array(np.full(5000, window))])
        floor = RetentionBound(column="t", code=code(window - 1))
        state = append(state, arrange(batch, arrangement), arrangement, chunks, fuel_for(5000), floor)
        chunks.keep([chunk_ids(state)])
        sizes.append(state_bytes(state))
    one = sizes[0]
    assert max(sizes[5:]) < 10 * one
    empty = arrange(Batch.empty(schema), arrangement)
    written = 0
    for _ in range(60):
        before = set(chunk_ids(state).tolist())
        state = append(state, empty, arrangement, chunks, fuel_for(0), RetentionBound(column="t", code=code(100)))
        fresh = set(chunk_ids(state).tolist()) - before
        chunks.keep([chunk_ids(state)])
        written = max(written, len(fresh))
    assert state_bytes(state) == 0
    assert written <= 4


def test_rows_that_stay_are_not_rewritten_for_few_that_go() -> None:
    schema = Schema.of({"k": INT64, "t": INT64})
    arrangement = Arrangement(schema=schema, key=("k",))
    chunks = MemoryChunks(1 << 16)
    batch = Batch.of(schema, [pa.array(np.arange(20_000)), pa.array(np.arange(20_000))])
    state = append(SpineState(), arrange(batch, arrangement), arrangement, chunks, None)
    again = append(
        state,
        arrange(Batch.empty(schema), arrangement),
        arrangement,
        chunks,
        None,
        RetentionBound(column="t", code=code(5_000)),
    )
    assert again == state
