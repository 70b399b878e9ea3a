"""Convert between Arrow and numpy arrays: views without copying, and columns built from numpy arrays.

1. A view respects the array's offset and length, and never copies. Its value at a null is undefined.
2. Gathering and joining return contiguous arrays of the same values; coded texts (`dbsp.zset.coded`) may stay coded.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dbsp.errors import CapacityError
from dbsp.zset import kernels
from dbsp.zset.buffers import buffer_view, text_array, text_view
from dbsp.zset.coded import TOO_LARGE_HINT, gather_coded, is_coded, plain, put_together, text_bytes, to_one_dictionary
from dbsp.zset.nested import nested_bytes
from dbsp.zset.schema import (
    BINARY,
    BOOL,
    DATE,
    DURATION,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    TIME,
    TIMESTAMP,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    decimal,
    list_of,
    struct_of,
)

_STORAGE: dict[int, np.dtype[Any]] = {
    INT8.id: np.dtype(np.int8),
    INT16.id: np.dtype(np.int16),
    INT32.id: np.dtype(np.int32),
    INT64.id: np.dtype(np.int64),
    UINT8.id: np.dtype(np.uint8),
    UINT16.id: np.dtype(np.uint16),
    UINT32.id: np.dtype(np.uint32),
    UINT64.id: np.dtype(np.uint64),
    FLOAT32.id: np.dtype(np.float32),
    FLOAT64.id: np.dtype(np.float64),
    DATE.id: np.dtype(np.int32),
    TIME.id: np.dtype(np.int64),
    TIMESTAMP.id: np.dtype(np.int64),
    DURATION.id: np.dtype(np.int64),
}
_BOOL, _DECIMAL = BOOL.id, decimal(1, 0).id
_LIST, _STRUCT = list_of(INT64).id, struct_of({"a": INT64}).id
_TEXTS = frozenset([STRING.id, BINARY.id])
_BYTES = _TEXTS | {_LIST}
_FLOATS = frozenset([FLOAT32.id, FLOAT64.id])

NAN: dict[np.dtype[Any], Any] = {np.dtype(np.float32): np.float32("nan"), np.dtype(np.float64): np.float64("nan")}
"""The canonical NaN of each width, to which every NaN is converted: quiet, positive, no payload."""

Positions = NDArray[np.int64]
_WORD_BYTES = 8
_STRETCHED_ROWS_MIN = 256
"""From this many rows on, `gather` first checks whether the rows are consecutive and can be sliced instead."""


def is_bytes(array: pa.Array) -> bool:
    """Return whether the array holds strings, binary, or lists, which are hashed and stored as bytes (`dbsp.zset.nested`)."""
    return array.type.id in _BYTES or is_coded(array)


def is_text(array: pa.Array) -> bool:
    """Return whether the array holds strings or binary, plain or coded."""
    return array.type.id in _TEXTS or is_coded(array)


def is_struct(array: pa.Array) -> bool:
    """Return whether the array holds structs, which are hashed, compared and stored field by field."""
    return bool(array.type.id == _STRUCT)


def fields_of(array: pa.Array) -> list[pa.Array]:
    """Return the fields of a struct column as columns, null where the struct is null, without copying values."""
    fields: list[pa.Array] = array.flatten()
    return fields


def is_bool(array: pa.Array) -> bool:
    """Return whether the array holds booleans, one bit each."""
    return bool(array.type.id == _BOOL)


def is_decimal(array: pa.Array) -> bool:
    """Return whether the array holds decimals, two 64-bit words each."""
    return bool(array.type.id == _DECIMAL)


def is_float(array: pa.Array) -> bool:
    """Return whether the array holds floats."""
    return array.type.id in _FLOATS


def storage_type(type_: pa.DataType) -> np.dtype[Any] | None:
    """Return the numpy type of a value of this type; None for booleans, decimals, strings, binary, lists and structs."""
    return _STORAGE.get(type_.id)


def value_view(array: pa.Array) -> NDArray[Any]:
    """Return the values of a column of 8 to 64 bits a value as a view; booleans have no such view."""
    return buffer_view(array.buffers()[1], _STORAGE[array.type.id], array.offset, len(array))


def pair_view(array: pa.Array) -> NDArray[np.uint64]:
    """Return the values of a decimal column as a view of (n, 2) words, low word first."""
    words = buffer_view(array.buffers()[1], np.dtype(np.uint64), 2 * array.offset, 2 * len(array))
    return words.reshape(-1, 2)


def bytes_view(array: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return the n + 1 offsets and the bytes of a string or binary column, without copying.

    Lists and coded texts are converted to bytes first, which copies.
    """
    return text_view(as_bytes(array))


def as_bytes(array: pa.Array) -> pa.Array:
    """Return the column as plain strings or binary: lists as their bytes, coded texts decoded."""
    return nested_bytes(array) if array.type.id == _LIST else plain(array)


def bool_values(array: pa.Array, rows: Positions | None = None) -> NDArray[np.bool_]:
    """Return a copy of the values of a boolean column, or of some of its rows."""
    return _bits(array.buffers()[1], array.offset, len(array), rows)


def valid_rows(array: pa.Array, rows: Positions | None = None) -> NDArray[np.bool_] | None:
    """Return which rows are not null, or None if the column has no nulls."""
    if array.null_count == 0:
        return None
    return _bits(array.buffers()[0], array.offset, len(array), rows)


def _bits(buffer: pa.Buffer | None, offset: int, count: int, rows: Positions | None) -> NDArray[np.bool_]:
    """Return bits of a bitmap: all `count` from `offset` on, or those of the given rows."""
    if buffer is None or count == 0:
        return np.zeros(count if rows is None else len(rows), np.bool_)
    packed = np.frombuffer(buffer, np.uint8)
    if rows is None:
        start = offset & 7
        bits = np.unpackbits(packed[offset >> 3 : (offset + count + 7) >> 3], bitorder="little")
        return bits[start : start + count].view(np.bool_)
    at = rows + offset
    bit: NDArray[np.uint8] = (packed[at >> 3] >> (at & 7).astype(np.uint8)) & 1
    return bit.view(np.bool_)


def from_values(values: NDArray[Any], type_: pa.DataType) -> pa.Array:
    """Return a null-free column that shares the memory of `values`: at most 64 bits a value, or decimals as (n, 2) words."""
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))], 0)


@lru_cache(maxsize=256)
def no_rows(type_: pa.DataType) -> pa.Array:
    """Return an empty column; arrays are never changed, so one per type serves all batches."""
    return pa.array([], type_)


def plain_bytes(array: pa.Array) -> int:
    """Return the size in bytes of the rows in view if they were plain; for texts, coding does not change the number."""
    bitmap = -(-len(array) // 8) if array.null_count else 0
    dtype = _STORAGE.get(array.type.id)
    if dtype is not None:  # most columns; `nbytes` takes several times as long
        return bitmap + len(array) * dtype.itemsize
    if not is_text(array):
        return int(array.nbytes)
    return bitmap + 4 * (len(array) + 1) + text_bytes(array)


def is_plain(array: pa.Array) -> bool:
    """Return whether the column is null-free and of fixed width in whole bytes, so that numpy can gather it."""
    return array.null_count == 0 and (array.type.id in _STORAGE or array.type.id == _DECIMAL)


def is_word(array: pa.Array) -> bool:
    """Return whether the column is null-free with 64 bits a value, so that comparing words compares values.

    Floats qualify because they are canonical.
    """
    dtype = _STORAGE.get(array.type.id)
    return dtype is not None and dtype.itemsize == _WORD_BYTES and array.null_count == 0


def gather(array: pa.Array, rows: Positions) -> pa.Array:
    """Return the rows at these positions, as a new column."""
    if is_coded(array):
        return gather_coded(array, rows)
    if not len(rows):
        return no_rows(array.type)
    if is_plain(array):
        if array.type.id == _DECIMAL:
            return from_values(pair_view(array).take(rows, axis=0), array.type)
        return from_values(value_view(array).take(rows), array.type)
    if array.type.id in _TEXTS and len(rows) >= _STRETCHED_ROWS_MIN and not array.null_count:
        taken = kernels.take_stretches(bytes_view(array), rows)
        if taken is not None:
            return text_array(*taken, array.type)
    return pc.take(array, pa.array(rows), boundscheck=False)


def gather_all(arrays: Sequence[pa.Array], rows: Sequence[Positions]) -> pa.Array:
    """Return the rows at these positions of each column, concatenated; at least one column, all of one type.

    **Cost** A few microseconds per column besides the rows: numpy concatenates the pieces before one column is made of
    them.
    """
    type_ = arrays[0].type
    if len(arrays) > 1 and (type_.id in _STORAGE or type_.id == _DECIMAL) and not any(a.null_count for a in arrays):
        if type_.id == _DECIMAL:
            pairs = [pair_view(array).take(at, axis=0) for array, at in zip(arrays, rows, strict=True)]
            return from_values(np.concatenate(pairs), type_)
        dtype = _STORAGE[type_.id]
        views = (buffer_view(array.buffers()[1], dtype, array.offset, len(array)) for array in arrays)
        return from_values(np.concatenate([view.take(at) for view, at in zip(views, rows, strict=True)]), type_)
    return join([gather(array, at) for array, at in zip(arrays, rows, strict=True)])


def pick(arrays: Sequence[pa.Array], rows: Positions) -> pa.Array:
    """Return some rows of several columns of one type, at least one column; each row occurs at most once.

    **Shape** A row is the number of its column, shifted by `kernels.RUN_SHIFT` bits, plus its place there.

    **Law** The gathered rows of the columns joined.

    **Cost** At most that of a gather. Columns without nulls of 64 bits, strings and binary are not joined first.
    """
    if any(map(is_coded, arrays)):
        return _pick_texts(arrays, rows)
    type_ = arrays[0].type
    if len(rows) and not any(array.null_count for array in arrays):
        dtype = _STORAGE.get(type_.id)
        if dtype is not None and dtype.itemsize == _WORD_BYTES:
            words = [value_view(array).view(np.uint64) for array in arrays]
            return from_values(kernels.pick_words(words, rows), type_)
        if type_.id in _TEXTS:
            picked = kernels.pick_bytes([bytes_view(array) for array in arrays], rows)
            if picked is not None:
                return text_array(*picked, type_)
    first = np.cumsum([0, *map(len, arrays[:-1])])
    return gather(join(arrays), first.take(rows >> kernels.RUN_SHIFT) + (rows & ((1 << kernels.RUN_SHIFT) - 1)))


def _pick_texts(arrays: Sequence[pa.Array], rows: Positions) -> pa.Array:
    """Return some rows of several text columns, at least one of them coded."""
    one = to_one_dictionary(arrays) if all(map(is_coded, arrays)) else None
    if one is None:
        return pick([plain(array) for array in arrays], rows)
    picked = kernels.pick_words([codes.view(np.uint64) for codes in one[0]], rows).view(np.int64)
    valid = _all_valid(arrays)
    some = None if valid is None else kernels.pick_words([mask.astype(np.uint64) for mask in valid], rows) > 0
    return put_together(picked, one[1], some)


def _all_valid(arrays: Sequence[pa.Array]) -> list[NDArray[np.bool_]] | None:
    """Return which rows of each column are not null, or None if no column has nulls."""
    if not any(array.null_count for array in arrays):
        return None
    return [np.ones(len(a), np.bool_) if (valid := valid_rows(a)) is None else valid for a in arrays]


def join(arrays: Sequence[pa.Array]) -> pa.Array:
    """Return the columns concatenated; at least one column. Raise `CapacityError` if the result is too large for one."""
    if len(arrays) == 1:
        return arrays[0]
    if any(map(is_coded, arrays)):
        one = to_one_dictionary(arrays) if all(map(is_coded, arrays)) else None
        if one is not None:
            valid = _all_valid(arrays)
            return put_together(np.concatenate(one[0]), one[1], None if valid is None else np.concatenate(valid))
        arrays = [plain(array) for array in arrays]
    try:
        return pa.concat_arrays(arrays)
    except pa.ArrowInvalid as error:
        raise CapacityError(f"column too large: type={arrays[0].type} cause={error}", TOO_LARGE_HINT) from error


def canonical_floats(array: pa.Array) -> pa.Array:
    """Return the column with -0.0 replaced by 0.0 and every NaN by the same one; a canonical column is returned unchanged."""
    if array.type.id == _LIST:
        return _canonical_lists(array)
    if array.type.id == _STRUCT:
        return _canonical_structs(array)
    if array.type.id not in _FLOATS:
        return array
    values = value_view(array)
    odd = np.isnan(values)
    if not odd.any() and not ((values == 0) & np.signbit(values)).any():
        return array
    plain = np.where(odd, NAN[values.dtype], values + values.dtype.type(0))
    buffers = [_shifted_bitmap(array), pa.py_buffer(plain)]
    return pa.Array.from_buffers(array.type, len(array), buffers, array.null_count)


def _canonical_lists(array: pa.Array) -> pa.Array:
    """Return lists with canonical floats; the column itself if its floats are canonical."""
    if not _holds_floats(array.type):
        return array
    elements = array.flatten()
    canonical = canonical_floats(elements)
    if canonical is elements:
        return array
    lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0))
    offsets = pa.array(np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)]))
    return pa.ListArray.from_arrays(offsets, canonical, mask=array.is_null() if array.null_count else None)


def _canonical_structs(array: pa.Array) -> pa.Array:
    """Return structs with canonical floats; the column itself if its floats are canonical."""
    if not _holds_floats(array.type):
        return array
    fields = fields_of(array)
    canonical = [canonical_floats(field) for field in fields]
    if all(new is old for new, old in zip(canonical, fields, strict=True)):
        return array
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(canonical, fields=list(array.type), mask=mask)


@lru_cache(maxsize=256)
def _holds_floats(type_: pa.DataType) -> bool:
    """Return whether the type contains floats at any depth."""
    if type_.id in {_LIST, _STRUCT}:
        return any(_holds_floats(type_.field(number).type) for number in range(type_.num_fields))
    return type_.id in _FLOATS


def _shifted_bitmap(array: pa.Array) -> pa.Buffer | None:
    """Return the validity of the column as a bitmap that starts at bit 0, or None without nulls."""
    valid = valid_rows(array)
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
