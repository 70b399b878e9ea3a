"""Remembering the last key changes no byte, whatever comes after what."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp.errors import CapacityError
from dbsp.operators.groups import leading as leading_module
from dbsp.operators.groups.leading import leading
from dbsp.zset import batch as batch_module
from dbsp.zset import sorted_keys as module
from dbsp.zset.batch import Batch, arrange
from dbsp.zset.hashing import narrow_hash
from dbsp.zset.kernels.groups import PROBED_ROWS, ROWS_MIN
from dbsp.zset.schema import INT64, STRING, Arrangement, OrderBy, Schema
from dbsp.zset.sorted_keys import few_groups, few_rows, remembering, sorted_keys
from tests.pace import examples

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


@settings(max_examples=examples(100), deadline=None)
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


def crowd(keys: int, weights: list[int], rows: int = 3 * ROWS_MIN) -> Batch:
    """Many rows of few keys, with nulls; the weights come round."""
    numbers = [None if n % 11 == 5 else n % keys for n in range(rows)]
    texts = [None if n % 13 == 3 else f"{n % keys % 3}" for n in range(rows)]
    amounts = np.resize(np.array(weights, np.int64), rows)
    return Batch.of(SCHEMA, [numbers, texts, [n % 2 for n in range(rows)]], amounts)


@pytest.mark.parametrize("bits", [64, 2])
@pytest.mark.parametrize("keys", [1, 40, 900])
@pytest.mark.parametrize("weights", [[1], [1, -1], [3, -1, 0], [2**62, -(2**62), 2**62, 2**62, -(2**62)]])
def test_rows_of_few_keys_are_arranged_as_by_a_sort(
    bits: int, keys: int, weights: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbered by group or sorted: the same rows and words, also where keys share a hash and where sums overflow."""
    batch = crowd(keys, weights)
    whole = Arrangement(schema=SCHEMA, key=("a", "b", "c"))
    with narrow_hash(bits) if bits < 64 else nullcontext():
        with remembering():
            made = result_of(lambda: arrange(batch, whole))
            kept = leading(batch, ["a", "b"], [OrderBy("c")])
            again = result_of(lambda: arrange(batch, whole))
        monkeypatch.setattr(batch_module, "few_groups", lambda *_: None)
        monkeypatch.setattr(leading_module, "few_groups", lambda *_: None)
        expected = result_of(lambda: arrange(batch, whole))
        sorted_kept = leading(batch, ["a", "b"], [OrderBy("c")])
        assert same_or_refused(made, expected)
        assert same_or_refused(again, expected)
        by_key = Arrangement(schema=SCHEMA, key=("a", "b"))
        assert same_or_refused(
            result_of(lambda: arrange(kept, by_key)), result_of(lambda: arrange(sorted_kept, by_key))
        )


@pytest.mark.parametrize("bits", [64, 2])
@pytest.mark.parametrize("keys", [1, 40, 900, 12_000])
@pytest.mark.parametrize("weights", [[1], [1, -1], [3, -1, 0], [2**62, -(2**62), 2**62, 2**62, -(2**62)]])
def test_rows_that_repeat_are_arranged_as_by_a_sort(
    bits: int, keys: int, weights: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same where the key is a part of a row, with an order and without, also where most rows are different after all."""
    batch = crowd(keys, weights, 3 * PROBED_ROWS)
    arrangements = [
        Arrangement(schema=SCHEMA, key=("a",)),
        Arrangement(schema=SCHEMA, key=()),
        Arrangement(schema=SCHEMA, key=("a",), order=(OrderBy("c"),)),
    ]
    with narrow_hash(bits) if bits < 64 else nullcontext():
        with remembering():
            made = [result_of(lambda by=by: arrange(batch, by)) for by in arrangements]
        monkeypatch.setattr(batch_module, "few_rows", lambda *_: None)
        for by, found in zip(arrangements, made, strict=True):
            assert same_or_refused(found, result_of(lambda by=by: arrange(batch, by)))


def test_only_rows_that_repeat_are_numbered() -> None:
    """And of one that is not the same as the others of its hash none is."""
    batch = crowd(40, [1], 3 * PROBED_ROWS)
    key, rest = batch.columns[:1], batch.columns[1:]
    groups = few_rows(key, rest, len(batch))
    assert groups is not None
    assert len(groups) == len(set(zip(*(column.to_pylist() for column in batch.columns), strict=True)))
    with narrow_hash(2):
        assert few_rows(key, rest, len(batch)) is None
    different = [pa.array(range(len(batch)))]
    assert few_rows(key, different, len(batch)) is None
    assert few_rows(different, rest, len(batch)) is None
    assert few_rows(key, [column.slice(0, PROBED_ROWS) for column in rest], PROBED_ROWS) is None


def result_of(make: Callable[[], Batch]) -> Batch | None:
    """The batch; None where a weight leaves 64 bits."""
    try:
        return make()
    except CapacityError:
        return None


def same_or_refused(left: Batch | None, right: Batch | None) -> bool:
    """Both refused, or the same rows and words."""
    return left is right if left is None or right is None else same(left, right)


def test_groups_are_found_once_and_by_columns() -> None:
    keys = [pa.array([n % 5 for n in range(2 * ROWS_MIN)]), pa.array(["x"] * 2 * ROWS_MIN)]
    with remembering():
        groups = few_groups(keys, 2 * ROWS_MIN)
        assert groups is not None
        assert groups.firsts.tolist() == [0, 1, 2, 3, 4]
        assert few_groups(keys, 2 * ROWS_MIN) is groups
    with narrow_hash(1):
        assert few_groups(keys, 2 * ROWS_MIN) is None


def test_a_sum_may_leave_64_bits_on_the_way() -> None:
    """Only what is left at the end counts, whatever the order."""
    large = 2**62
    weights = np.append(np.resize(np.array([large, large, -large, -large]), 2 * ROWS_MIN), 1)
    schema = Schema.of({"a": INT64})
    batch = Batch.of(schema, [np.full(len(weights), 7)], weights)
    assert few_groups(batch.columns, len(batch)) is not None
    assert arrange(batch, Arrangement(schema=schema, key=("a",))).to_rows() == [((7,), 1)]
