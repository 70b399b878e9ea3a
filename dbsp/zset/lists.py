"""Lists of scalars as bytes, and back, so that a list is hashed, compared and stored like a string.

1. Equal lists have equal bytes, and different ones different bytes. Order and null elements count, and an empty list differs from
   null; floats are canonical.
2. The bytes are stored, so they must never change: golden values in the tests. Their order means nothing: lists are ordered by
   their elements (`dbsp.zset.order`).
3. Elements of fixed width have one byte that says whether there is a value, then the value, little-endian, element after element.
   Text and binary have the number of elements (u32), that byte per element, the lengths (u32 each), and the bytes end to end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dbsp.errors import CapacityError, DataError

Octets = NDArray[np.uint8]
Numbers = NDArray[np.int64]
_U32 = 4


def list_bytes(array: pa.Array) -> pa.Array:
    """Return a column of lists as a binary column; null where the list is null.

    **Example**

    >>> import pyarrow as pa
    >>> list_bytes(pa.array([[1, None], [], None], pa.list_(pa.int8()))).to_pylist()
    [b'\\x01\\x01\\x00\\x00', b'', None]
    """
    valid = pc.is_valid(array)
    counts = np.asarray(pc.fill_null(pc.list_value_length(array), 0)).astype(np.int64)
    elements = array.flatten()
    if is_text(elements.type):
        data, ends = _text_bytes(elements, counts)
    else:
        records = _records(elements)
        data, ends = records.reshape(-1), _ends(counts) * records.shape[1]
    if int(ends[-1]) >= 1 << 31:
        raise CapacityError("a column of lists in one batch holds at most 2 GiB", "lower max_step_bytes")
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data))]
    plain = pa.Array.from_buffers(pa.binary(), len(array), buffers)
    return plain if array.null_count == 0 else pc.if_else(valid, plain, pa.scalar(None, pa.binary()))


def lists_of(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return the lists whose bytes `list_bytes` made; raise `DataError` if the bytes are damaged."""
    bounds = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * _U32).astype(np.int64)
    data = np.frombuffer(array.buffers()[2] or b"", np.uint8)
    if is_text(type_.value_type):
        elements, counts = _texts(data, bounds, type_.value_type)
    else:
        width = 1 + _width(type_.value_type)
        _check((bounds[1:] - bounds[:-1]) % width == 0, type_.value_type)
        elements = _values(data[bounds[0] : bounds[-1]].reshape(-1, width), type_.value_type)
        counts = (bounds[1:] - bounds[:-1]) // width
    offsets = pa.array(_ends(counts).astype(np.int32))
    mask = pc.is_null(array) if array.null_count else None
    return pa.ListArray.from_arrays(offsets, elements, type=type_, mask=mask)


def is_text(type_: pa.DataType) -> bool:
    """Return whether values have variable length: string or binary."""
    return bool(pa.types.is_string(type_) or pa.types.is_binary(type_))


def _width(type_: pa.DataType) -> int:
    return 1 if pa.types.is_boolean(type_) else int(type_.bit_width) // 8


def _ends(counts: Numbers) -> Numbers:
    """Return 0, followed by the running sum of the counts."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


def _records(elements: pa.Array) -> Octets:
    """Return one record per element: a byte that says whether there is a value, then the value's bytes."""
    valid = np.asarray(pc.is_valid(elements))
    records = np.zeros((len(elements), 1 + _width(elements.type)), np.uint8)
    records[:, 0] = valid
    records[:, 1:] = _octets(elements)
    records[~valid, 1:] = 0
    return records


def fixed_bytes(array: pa.Array) -> pa.Array:
    """Return the canonical bytes of each value of fixed width, as a binary column; null where the value is null."""
    octets = _octets(array)
    ends = np.arange(len(array) + 1, dtype=np.int32) * octets.shape[1]
    plain = pa.Array.from_buffers(pa.binary(), len(array), [None, pa.py_buffer(ends), pa.py_buffer(octets.tobytes())])
    return plain if array.null_count == 0 else pc.if_else(array.is_valid(), plain, pa.scalar(None, pa.binary()))


def elements_of(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return the values of fixed width whose bytes `fixed_bytes` made."""
    width = _width(type_)
    whole = pa.concat_arrays([array.fill_null(bytes(width))])
    bounds = np.frombuffer(whole.buffers()[1] or bytes(_U32), np.int32, len(whole) + 1)
    _check(np.diff(bounds) == width, type_)
    records = np.ones((len(whole), 1 + width), np.uint8)
    records[:, 0] = np.asarray(array.is_valid())
    records[:, 1:] = np.frombuffer(whole.buffers()[2] or b"", np.uint8)[bounds[0] : bounds[-1]].reshape(-1, width)
    return _values(records, type_)


def _octets(elements: pa.Array) -> Octets:
    """Return the bytes of each value, a row of bytes per value; floats are canonical."""
    width = _width(elements.type)
    if pa.types.is_boolean(elements.type):
        return np.asarray(pc.fill_null(elements, False)).astype(np.uint8).reshape(-1, 1)
    buffer = elements.buffers()[1]
    if len(elements) == 0 or buffer is None:
        return np.empty((0, width), np.uint8)
    octets = np.frombuffer(buffer, np.uint8, len(elements) * width, elements.offset * width)
    if pa.types.is_floating(elements.type):
        values = octets.view(elements.type.to_pandas_dtype()) + 0.0  # -0.0 + 0.0 is 0.0
        values[np.isnan(values)] = np.nan
        octets = values.astype(elements.type.to_pandas_dtype(), copy=False).view(np.uint8)
    return octets.reshape(-1, width)


def _values(records: Octets, type_: pa.DataType) -> pa.Array:
    """Return the elements of these records."""
    valid = records[:, 0] != 0
    body = np.ascontiguousarray(records[:, 1:])
    bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    if pa.types.is_boolean(type_):
        body = np.packbits(body.reshape(-1) != 0, bitorder="little")
    return pa.Array.from_buffers(type_, len(records), [bitmap, pa.py_buffer(body)])


def _text_bytes(elements: pa.Array, counts: Numbers) -> tuple[Octets, Numbers]:
    """Return lists of text as count, validity, lengths and bytes; and the offset of the end of each list."""
    valid = np.asarray(pc.is_valid(elements)).astype(np.uint8)
    blank = b"" if pa.types.is_binary(elements.type) else ""
    whole = pa.concat_arrays([pc.fill_null(elements, blank)]) if elements.null_count else elements
    bounds = np.frombuffer(whole.buffers()[1], np.int32, len(whole) + 1, whole.offset * _U32).astype(np.int64)
    text = np.frombuffer(whole.buffers()[2] or b"", np.uint8)[bounds[0] : bounds[-1]]
    lengths, firsts = np.diff(bounds), _ends(counts)
    per_list = np.diff((bounds - bounds[0])[firsts])
    ends = _ends(_U32 + counts * (1 + _U32) + per_list)
    data = np.zeros(int(ends[-1]), np.uint8)
    at = ends[:-1]
    _put_u32(data, at, counts)
    data[_spread(at + _U32, counts)] = valid
    _put_u32(data, _spread(at + _U32 + counts, counts, _U32), lengths)
    data[_spread(at + _U32 + counts * (1 + _U32), per_list)] = text
    return data, ends


def _texts(data: Octets, bounds: Numbers, type_: pa.DataType) -> tuple[pa.Array, Numbers]:
    """Return the elements of lists of text, and each list's number of elements; a null list has no bytes at all."""
    there = bounds[1:] > bounds[:-1]
    at = bounds[:-1]
    counts = np.zeros(len(at), np.int64)
    _check((bounds[1:] - at)[there] >= _U32, type_)
    counts[there] = _get_u32(data, at[there])
    _check(at + _U32 * there + counts * (1 + _U32) <= bounds[1:], type_)
    valid = data[_spread(at + _U32, counts)] != 0
    lengths = _get_u32(data, _spread(at + _U32 + counts, counts, _U32))
    per_list = np.diff(_ends(lengths)[_ends(counts)])
    _check(at + _U32 * there + counts * (1 + _U32) + per_list == bounds[1:], type_)
    text = data[_spread(at + _U32 + counts * (1 + _U32), per_list)]
    bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(_ends(lengths).astype(np.int32)), pa.py_buffer(text)]
    return pa.Array.from_buffers(type_, len(lengths), buffers), counts


def _check(fits: NDArray[np.bool_], type_: pa.DataType) -> None:
    """Refuse bytes that are no list."""
    if not fits.all():
        raise DataError(f"damaged list: type=list<{type_}>")


def _spread(starts: Numbers, counts: Numbers, step: int = 1) -> Numbers:
    """Return `counts[i]` positions from `starts[i]` on, `step` apart, one list after the other."""
    before = np.repeat(_ends(counts)[:-1], counts)
    return np.repeat(starts, counts) + (np.arange(int(counts.sum())) - before) * step


def _put_u32(data: Octets, at: Numbers, values: Numbers) -> None:
    words = values.astype("<u4").view(np.uint8).reshape(-1, _U32)
    for byte in range(_U32):
        data[at + byte] = words[:, byte]


def _get_u32(data: Octets, at: Numbers) -> Any:
    words = np.stack([data[at + byte] for byte in range(_U32)], axis=1) if len(at) else np.empty((0, _U32), np.uint8)
    return np.ascontiguousarray(words).view("<u4").reshape(-1).astype(np.int64)
