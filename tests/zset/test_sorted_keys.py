"""Remembering the last key changes no byte, whatever comes after what."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp.zset import sorted_keys as module
from dbsp.zset.batch import Batch, arrange
from dbsp.zset.schema import INT64, STRING, Arrangement, OrderBy, Schema
from dbsp.zset.sorted_keys import remembering, sorted_keys

SCHEMA = Schema.of({"a": INT64, "b": STRING, "c": INT64})
ARRANGEMENTS = [
    Arrangement(schema=SCHEMA, key=("a", "b")),
    Arrangement(schema=SCHEMA, key=("b", "a")),
    Arrangement(schema=SCHEMA, key=("a", "b"), order=(OrderBy("c"),)),
    Arrangement(schema=SCHEMA, key=("a", "b", "c")),
    Arrangement(schema=SCHEMA, key=()),
]
rows = st.lists(
    st.tuples(st.tuples(st.integers(0, 3), st.sampled_from(["", "x", "yy"]), st.integers(0, 2)), st.integers(-2, 2)),
    max_size=20,
)


def same(left: Batch, right: Batch) -> bool:
    words = all(np.array_equal(a, b) for a, b in zip(left.words, right.words, strict=True) if a is not None)
    return words and left.to_rows() == right.to_rows()


@settings(max_examples=60, deadline=None)
@given(st.lists(rows, min_size=1, max_size=2), st.lists(st.tuples(st.integers(0, 1), st.integers(0, 4)), max_size=8))
def test_arranging_is_the_same(
    contents: list[list[tuple[tuple[int, str, int], int]]], asked: list[tuple[int, int]]
) -> None:
    batches = [Batch.from_rows(SCHEMA, content) for content in contents]
    with remembering():
        made = [arrange(batches[b % len(batches)], ARRANGEMENTS[a]) for b, a in asked]
    for (b, a), found in zip(asked, made, strict=True):
        assert same(found, arrange(batches[b % len(batches)], ARRANGEMENTS[a]))


def test_the_last_key_is_sorted_once_and_its_order_is_not_shared() -> None:
    keys = [pa.array([5, 2, 5, 9])]
    with remembering():
        first, order = sorted_keys(keys, 4)
        order[:] = 0
        again, fresh = sorted_keys(keys, 4)
        assert again is first
        assert sorted(fresh.tolist()) == [0, 1, 2, 3]
        other, _ = sorted_keys([pa.array([5, 2, 5, 9])], 4)
        assert other is not first
    assert module._last.get() is None
