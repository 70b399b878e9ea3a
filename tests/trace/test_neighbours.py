"""Neighbours of positions in an ordered trace, and weights in front of them, against a plain list."""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
import numpy as np
from hypothesis import HealthCheck, given, settings
from test_retention import code
from traces import ORDERED, STEPS, Row, added, arranged, hash_bits

from dbsp.trace.chunks import MemoryChunks
from dbsp.trace.manifest import SpineState
from dbsp.trace.neighbours import Positions
from dbsp.trace.spine import Spine, append
from dbsp.zset.batch import Batch, keys_of
from dbsp.zset.kernels.ranges import join_ranges
from dbsp.zset.schema import INT64, Schema
from tests.pace import examples

PACE = settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
TIMES = st.one_of(st.none(), st.integers(0, 9))
ASKED = st.lists(st.tuples(st.integers(0, 7), TIMES, TIMES), max_size=6)


def built(steps: list[list[tuple[Row, int]]], chunk_bytes: int) -> tuple[Spine, Counter[Row]]:
    chunks, state, model = MemoryChunks(chunk_bytes), SpineState(), Counter[Row]()
    for rows in steps:
        state = append(state, arranged(ORDERED, rows), ORDERED, chunks, 40)
        model = added(model, rows)
    return Spine(ORDERED, state, chunks), model


def queries(asked: list[tuple[int, int | None, int | None]]) -> tuple[Batch, np.ndarray, np.ndarray, np.ndarray]:
    """Keys, their hashes, sorted; the codes from and to which each is asked."""
    keys = Batch.from_rows(Schema.of({"k": INT64}), [((key,), 1) for key, _, _ in asked])
    hashes = keys_of(keys, ("k",))
    order = np.argsort(hashes, kind="stable")
    low = np.array([code(first) for _, first, _ in asked], np.uint64)[order]
    high = np.array([code(last) for _, _, last in asked], np.uint64)[order]
    return keys.take(order), hashes[order], low, high


@PACE
@given(STEPS, ASKED, st.integers(1, 4), st.booleans(), st.sampled_from([None, 2]), st.sampled_from([120, 300, 1 << 20]))
def test_so_far_the_next_rows_reach(
    steps: list[list[tuple[Row, int]]],
    asked: list[tuple[int, int | None, int | None]],
    k: int,
    backward: bool,
    bits: int | None,
    chunk_bytes: int,
) -> None:
    with hash_bits(bits):
        spine, model = built(steps, chunk_bytes)
        keys, hashes, low, high = queries(asked)
        found = spine.reach(Positions(key_hash=hashes, first=low, last=high, backward=backward), k, keys)
        weights = spine.weight_between(hashes, low, high, keys)
        for at, ((key,), _) in enumerate(keys.to_rows()):
            first, last = int(low[at]), int(high[at])
            inside = {row: w for row, w in model.items() if row[0] == key and first <= code(row[1]) <= last}
            codes = sorted((code(row[1]) for row, w in inside.items() if w > 0), reverse=backward)
            assert int(found[at]) == (codes[k - 1] if len(codes) >= k else first if backward else last)
            assert int(weights[at]) == sum(inside.values())


@PACE
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 5)), max_size=12),
    st.sampled_from([0, 1 << 63, (1 << 64) - 26]),
)
def test_ranges_that_overlap_are_one(ranges: list[tuple[int, int, int]], base: int) -> None:
    """And no others: codes of whole numbers begin at 2**63, and differ by one."""
    ordered = sorted((group, base + low, base + low + length) for group, low, length in ranges)
    group = np.array([g for g, _, _ in ordered], np.int64)
    low, high = (np.array([r[i] for r in ordered], np.uint64) for i in (1, 2))
    joined = np.empty(len(ordered), np.int64)
    count = join_ranges(group, low, high, joined)
    covered: dict[int, set[tuple[int, int]]] = {}
    for (g, first, last), number in zip(ordered, joined.tolist(), strict=True):
        covered.setdefault(number, set()).update((g, at) for at in range(first, last + 1))
    assert sorted(covered) == list(range(count))
    assert sum(map(len, covered.values())) == len(set().union(*covered.values()))
    for places in covered.values():
        assert len({g for g, _ in places}) == 1
        at = sorted(place for _, place in places)
        assert at == list(range(at[0], at[-1] + 1))
