"""What a hash promises: by value, whatever the width, the offset or the bits of a NaN; injective where it says so."""

from __future__ import annotations

import struct
import threading

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp.zset.hashing import NULL_HASH, hash_columns, hash_decides, hash_is_injective, narrow_hash
from dbsp.zset.schema import FLOAT64, INT8, INT64, STRING, Arrangement, Column, Schema
from tests.pace import examples
from tests.zset.strategies import TYPES, VALUES, canonical


def hashed(array: pa.Array) -> list[int]:
    """The hashes of one column."""
    return hash_columns([array], len(array)).tolist()


@pytest.mark.parametrize("type_", [pa.int8(), pa.int16(), pa.int32(), pa.int64()])
def test_integers_hash_by_value(type_: pa.DataType) -> None:
    """Every width alike, unsigned and signed."""
    assert hashed(pa.array([-5, 0, 5], type_)) == hashed(pa.array([-5, 0, 5], pa.int64()))
    unsigned = pa.array([0, 5], f"u{type_}")
    assert hashed(unsigned) == hashed(pa.array([0, 5], pa.int64()))


def test_floats_hash_by_canonical_bits() -> None:
    """-0.0 as 0.0, every NaN as one, float32 as float64."""
    odd = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
    assert len(set(hashed(pa.array([0.0, -0.0])))) == 1
    assert len(set(hashed(pa.array([float("nan"), odd, -float("nan")])))) == 1
    assert hashed(pa.array([1.5, -0.0, float("nan")], pa.float32())) == hashed(pa.array([1.5, 0.0, float("nan")]))


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_offsets_and_slices(type_: pa.DataType) -> None:
    """A slice hashes like a copy; different values differ; null is one constant."""
    values = [None, *VALUES[type_], None] * 3
    array = pa.array(values, type_)
    for skip in range(len(values)):
        assert hashed(array.slice(skip, 4)) == hashed(pa.array(values[skip : skip + 4], type_))
    by_value = {canonical(value): word for value, word in zip(values, hashed(array), strict=True)}
    assert len(set(by_value.values())) == len(by_value)
    assert by_value[None] == int(NULL_HASH)


def test_values_under_nulls_do_not_count() -> None:
    """What lies under a null may be anything."""
    masked = pa.array(np.array([1, 2]), mask=np.array([True, False]))
    assert hashed(masked) == hashed(pa.array([None, 2]))


def test_columns_are_combined_in_order() -> None:
    """(a, b) is not (b, a), and no column is a constant."""
    a, b = pa.array([1, 2]), pa.array([2, 1])
    assert hash_columns([a, b], 2).tolist() != hash_columns([b, a], 2).tolist()
    assert hash_columns([], 3).tolist() == [0, 0, 0]


def test_zeros_and_lengths() -> None:
    """Strings that differ only in trailing zero bytes, or in where they are cut, differ."""
    strings = [b"\0" * n for n in range(40)] + [b"a" * n for n in range(1, 40)]
    assert len(set(hashed(pa.array(strings)))) == len(strings)


@settings(max_examples=examples(80), deadline=None)
@given(values=st.lists(st.integers(-(2**63), 2**63 - 1), unique=True))
def test_one_word_never_collides(values: list[int]) -> None:
    """One null-free column of 64 bits."""
    assert len(set(hashed(pa.array(values, pa.int64())))) == len(values)


def test_spread_over_shards() -> None:
    """Consecutive keys fall evenly on the 1,024 ranges of the top ten bits."""
    words = hash_columns([pa.array(np.arange(1_000_000))], 1_000_000)
    counts = np.bincount((words >> np.uint64(54)).astype(np.int64), minlength=1024)
    assert 0.8 < counts.min() / 976.6 < counts.max() / 976.6 < 1.2
    texts = pa.array([f"key-{i:06d}" for i in range(100_000)])
    counts = np.bincount((hash_columns([texts], 100_000) >> np.uint64(58)).astype(np.int64), minlength=64)
    assert 0.85 < counts.min() / 1562.5 < counts.max() / 1562.5 < 1.15


def test_when_the_hash_decides() -> None:
    """By the schema, and by what a column happens to hold; never with narrow hashes."""
    schema = Schema((Column("a", INT64, nullable=False), Column("b", INT8), Column("s", STRING, nullable=False)))

    def injective(*key: str) -> bool:
        return hash_is_injective(Arrangement(schema=schema, key=key))

    assert [injective("a"), injective("b"), injective("s"), injective("a", "b"), injective()] == [
        True,
        False,
        False,
        False,
        True,
    ]
    assert hash_decides([pa.array([1])])
    assert not hash_decides([pa.array([1, None])])
    assert not hash_decides([pa.array(["x"])])
    assert hash_decides([pa.array([0.5], FLOAT64)])
    with narrow_hash(3):
        assert not hash_decides([pa.array([1])])
        assert not injective("a")


def test_narrow_hash() -> None:
    """Only the top bits are kept, in this thread, until the end."""
    column = pa.array(range(1000))
    with narrow_hash(2):
        narrow = hashed(column)
        other: list[int] = []
        thread = threading.Thread(target=lambda: other.extend(hashed(column)))
        thread.start()
        thread.join()
    assert len(set(narrow)) == 4
    assert [word & (3 << 62) for word in hashed(column)] == narrow
    assert other == hashed(column)
