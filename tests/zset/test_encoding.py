"""Batches as bytes: faithful, canonical, zero-copy, and never trusted."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dbsp.errors import DataError
from dbsp.zset import buffers
from dbsp.zset.batch import Batch, arrange, concat
from dbsp.zset.encoding import decode, encode, schema_id
from dbsp.zset.narrow import NarrowWeights, Weights, narrowed
from dbsp.zset.schema import BINARY, BOOL, INT64, STRING, Arrangement, OrderBy, Schema
from tests.pace import examples
from tests.zset.goldens import mixed
from tests.zset.strategies import arrangements, batches

WEIGHTS = [1, 1, 1, 0, -1, 127, 128, -129, 1 << 15, 1 << 31, -(1 << 31) - 1, 1 << 62]


def same(a: Batch, b: Batch) -> bool:
    """Equal to the last array, arrangement included."""
    words = all(
        (x is None and y is None) or (x is not None and y is not None and (x == y).all())
        for x, y in [(a.key_hash, b.key_hash), (a.order_code, b.order_code), (a.row_hash, b.row_hash)]
    )
    return repr(a.to_rows()) == repr(b.to_rows()) and a.arrangement == b.arrangement and words


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data(), width=st.integers(1, 3), arranged=st.booleans())
def test_there_and_back(data: st.DataObject, width: int, arranged: bool) -> None:
    """Every type, loose and arranged, sliced; encoding again gives the same bytes."""
    arrangement = data.draw(arrangements(weights=width))
    batch = data.draw(batches(arrangement.schema, width))
    batch = arrange(batch, arrangement) if arranged else batch
    lo = data.draw(st.integers(0, len(batch)))
    batch = batch.slice(lo, data.draw(st.integers(lo, len(batch))))
    encoded = encode(batch)
    back = decode(encoded, batch.schema, batch.arrangement)
    assert same(back, batch)
    assert encode(back) == encoded
    assert encode(concat([batch.slice(0, 1), batch.slice(1, len(batch))]).loose()) == encode(batch.loose())
    for array in back.columns:
        array.validate(full=True)


def test_nothing_is_copied() -> None:
    """Weights, words and columns lie in the bytes, aligned."""
    encoded = np.frombuffer(encode(mixed()), np.uint8)
    batch = decode(memoryview(encoded), mixed().schema, mixed().arrangement)
    start, end = encoded.ctypes.data, encoded.ctypes.data + len(encoded)
    addresses = [buffer.address for column in batch.columns for buffer in column.buffers() if buffer is not None]
    assert isinstance(batch.held_weights, NarrowWeights)
    words = (batch.key_hash, batch.order_code, batch.row_hash)
    addresses += [array.ctypes.data for array in (*batch.held_weights.columns, *words)]
    assert all(start <= address < end and (address - start) % 64 == 0 for address in addresses)


@pytest.mark.parametrize("rows", [1, 1000, buffers.SHARED_MAX + 1])
def test_weights_of_one_are_not_written(rows: int) -> None:
    """Rows that are there once each need no bytes for it; one row that is there twice, and all have theirs."""
    schema = Schema.of({"a": INT64})
    columns = [pa.array(np.arange(rows))]
    once = Batch.of(schema, columns, np.ones(rows, np.int64))
    more = Batch.of(schema, columns, np.append(np.ones(rows - 1, np.int64), 2))
    assert len(encode(more)) - len(encode(once)) >= rows
    back = decode(encode(once), schema)
    assert back.weights.tolist() == [[1]] * rows
    assert decode(encode(more), schema).weights.tolist() == more.weights.tolist()
    with pytest.raises(ValueError, match="read-only"):
        decode(encode(once.slice(0, 1)), schema).weights[0] = 2


SOME_WEIGHTS = hnp.arrays(np.int64, st.tuples(st.integers(0, 9), st.integers(1, 4)), elements=st.sampled_from(WEIGHTS))


@given(weights=SOME_WEIGHTS, data=st.data())
def test_weights_are_as_narrow_as_they_can_be(weights: Weights, data: st.DataObject) -> None:
    """Each weight of a row in integers of its own, and read as wide as they were: all, some and a part of them."""
    rows = len(weights)
    written = narrowed(weights)
    for column, found in zip(weights.T, written, strict=True):
        needed = next(size for size in (1, 2, 4, 8) if np.array_equal(column.astype(f"i{size}"), column))
        assert found.nbytes == (0 if (column == 1).all() else needed * rows)
    schema = Schema.of({"a": INT64})
    batch = decode(encode(Batch.of(schema, [pa.array(np.arange(rows))], weights)), schema)
    at = np.array(data.draw(st.lists(st.integers(0, rows - 1))) if rows else [], np.int64)
    lo = data.draw(st.integers(0, rows))
    assert np.array_equal(batch.weights_at(at), weights[at])
    assert np.array_equal(batch.slice(lo, rows).take(np.arange(rows - lo)).weights, weights[lo:])
    assert np.array_equal(batch.slice(lo, rows).weights, weights[lo:])
    assert np.array_equal(batch.weights, weights)
    assert np.array_equal(batch.weights_at(at), weights[at])


@pytest.mark.parametrize("shift", range(1, 9))
def test_bytes_at_any_address(shift: int) -> None:
    """A misaligned map is read too."""
    encoded = encode(mixed())
    moved = memoryview(bytearray(shift) + encoded)[shift:].toreadonly()
    assert same(decode(moved, mixed().schema, mixed().arrangement), mixed())


def test_what_lies_under_nulls_is_not_encoded() -> None:
    """Equal rows give equal bytes."""
    schema = Schema.of({"a": INT64, "b": BOOL, "s": STRING})
    mask = np.array([True, False])
    offsets, data = pa.py_buffer(np.array([0, 3, 4], np.int32)), pa.py_buffer(b"abcd")
    validity = pa.py_buffer(b"\xfe")
    dirty = Batch.of(
        schema,
        [
            pa.array(np.array([9, 2]), mask=mask),
            pa.array(np.array([True, True]), mask=mask),
            pa.Array.from_buffers(STRING, 2, [validity, offsets, data]),
        ],
    )
    assert encode(dirty) == encode(Batch.from_rows(schema, [(None, None, None), (2, True, "d")]))


def test_every_damaged_byte_is_found() -> None:
    """Flip each byte: an error that is ours, or padding that changes nothing but is still noticed."""
    batch = mixed()
    encoded = encode(batch)
    for position in range(len(encoded)):
        damaged = bytearray(encoded)
        damaged[position] ^= 0x40
        if position < len(encoded) and _is_head_padding(encoded, position):
            continue
        with pytest.raises(DataError):
            decode(damaged, batch.schema, batch.arrangement)


def _is_head_padding(encoded: bytearray, position: int) -> bool:
    """Whether the byte lies between the head's checksum and the body."""
    buffers, blocks = struct.unpack_from("<II", encoded, 56)
    end = 64 + 16 * buffers + 4 * (blocks + 1)
    return end <= position < -(-end // 64) * 64


@pytest.mark.parametrize("verify", [True, False])
def test_every_truncation_is_found(verify: bool) -> None:
    """Cut anywhere, also without the body's checksums."""
    batch = mixed()
    encoded = encode(batch)
    for end in range(len(encoded)):
        with pytest.raises(DataError):
            decode(encoded[:end], batch.schema, batch.arrangement, verify=verify)
    assert same(decode(encoded + b"rest", batch.schema, batch.arrangement), batch)


def _forged(encoded: bytearray, position: int, value: int) -> bytearray:
    """The encoding with one u64 of its head replaced and the head's checksum made right."""
    forged = bytearray(encoded)
    struct.pack_into("<Q", forged, position, value)
    buffers, blocks = struct.unpack_from("<II", forged, 56)
    end = 64 + 16 * buffers + 4 * blocks
    struct.pack_into("<I", forged, end, zlib.crc32(forged[:end]))
    return forged


def test_a_lying_header_is_found() -> None:
    """A header whose checksum is right, but whose sizes do not fit, does not read outside the bytes."""
    batch = mixed()
    encoded = encode(batch)
    for position, value in [(16, 5), (16, 2**62), (64, 2**40), (72, 2**40), (72, 8), (64, 0), (48, 2**40), (12, 2**33)]:
        with pytest.raises(DataError):
            decode(_forged(encoded, position, value), batch.schema, batch.arrangement, verify=False)


@pytest.mark.parametrize("size", [1, 2, 4, 5, 7, 11, 24])
def test_weights_that_do_not_fit_are_refused(size: int) -> None:
    """Three rows have weights of 3, 6, 12 or 24 bytes, or none."""
    schema = Schema.of({"a": INT64})
    encoded = encode(Batch.of(schema, [pa.array(np.arange(3))], np.full(3, 1 << 40)))
    forged = _forged(encoded, 72, size)
    if size == 24:
        assert decode(forged, schema).weights.tolist() == [[1 << 40]] * 3
        return
    with pytest.raises(DataError, match="wrong size"):
        decode(forged, schema, verify=False)


def test_key_hashes_lie_in_the_range_of_the_header() -> None:
    """A fence that does not fit its chunk is noticed."""
    batch = mixed()
    encoded = encode(batch)
    for position in (32, 40):
        with pytest.raises(DataError, match="outside the range"):
            decode(_forged(encoded, position, 1), batch.schema, batch.arrangement)


def test_what_a_reader_refuses() -> None:
    """Each refusal says what was found."""
    batch = mixed()
    encoded = encode(batch)
    with pytest.raises(DataError, match="not a batch"):
        decode(b"", batch.schema)
    with pytest.raises(DataError, match="not a batch"):
        decode(b"x" * 1000, batch.schema)
    with pytest.raises(DataError, match="another schema"):
        decode(encoded, batch.schema)
    with pytest.raises(DataError, match="a batch has another format: found=4 known=3"):
        decode(encoded[:8] + b"\4" + encoded[9:], batch.schema, batch.arrangement)
    damaged = bytearray(encoded)
    damaged[-64] ^= 1
    with pytest.raises(DataError, match="damaged batch: block=0"):
        decode(damaged, batch.schema, batch.arrangement)


def test_schema_ids_differ() -> None:
    """Names, types, nulls, key, order and weights all count."""
    schema = Schema.of({"a": STRING, "b": INT64})
    ids = {
        schema_id(schema),
        schema_id(Schema.of({"b": INT64, "a": STRING})),
        schema_id(Schema.of({"a": BINARY, "b": INT64})),
        *(schema_id(schema, Arrangement(schema=schema, key=key)) for key in ((), ("a",), ("b",), ("a", "b"))),
        schema_id(schema, Arrangement(schema=schema, key=("a",), order=(OrderBy("b"),))),
        schema_id(schema, Arrangement(schema=schema, key=("a",), order=(OrderBy("b", descending=True),))),
        schema_id(schema, Arrangement(schema=schema, key=("a",), weights=2)),
    }
    assert len(ids) == 10


def test_many_blocks() -> None:
    """A large batch has a checksum per block, and the damaged one is named."""
    schema = Schema.of({"a": INT64})
    encoded = encode(Batch.of(schema, [np.arange(100_000)]))
    encoded[-1] ^= 1
    with pytest.raises(DataError, match="damaged batch: block=12"):
        decode(encoded, schema)
