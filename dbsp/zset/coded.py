"""Coded texts: a column of strings or binary as codes into a dictionary of its values.

A coded column is an Arrow dictionary array. It represents the plain column of its values and may replace that in
`Batch.held`; `Batch.columns` decodes it. Parquet files, exchanges and stored chunks have coded texts
where that is shorter. So a text that occurs a thousand times is hashed, sent and written once.

1. A dictionary holds no null and no value twice; it may hold values that no row has.
2. Codes are unsigned while they and the dictionary are views of encoded bytes (`is_lent`). Such a chunk's dictionary becomes
   invalid when the transaction that read it ends. Gathered or newly built columns own their dictionary and have int32 codes.
3. The encoded form of a column follows from its values alone (`coding_of`): whether it is coded, and the numbering of values by
   their first rows. The exception are two values with one 64-bit hash: a plain column then stays plain, a coded one coded.
4. Gathered or newly built columns have no more values in their dictionary than rows, so unused values do not accumulate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dbsp.errors import CapacityError
from dbsp.zset import kernels
from dbsp.zset.buffers import buffer_view, repeated, text_array, text_view, width_of
from dbsp.zset.kernels.groups import PROBED_ROWS, ROWS_MIN

TOO_LARGE_HINT = "a column of strings in one batch holds at most 2 GiB: lower max_step_bytes"

SHORTER = 4, 3
"""A column is written coded only if 4 * coded bytes <= 3 * plain bytes; a smaller saving does not pay for decoding."""

Codes = NDArray[np.unsignedinteger[Any]]
_DICTIONARY = pa.dictionary(pa.int32(), pa.string()).id
_CODE_BYTES = (1, 2, 4)


def is_coded(array: pa.Array) -> bool:
    """Return whether the array is a coded column."""
    return bool(array.type.id == _DICTIONARY)


def is_lent(array: pa.Array) -> bool:
    """Return whether the dictionary may be a view of bytes that do not outlive a transaction."""
    return bool(pa.types.is_unsigned_integer(array.type.index_type))


def dictionary_of(array: pa.Array) -> pa.Array:
    """Return the dictionary, safe to keep after the transaction: a copy if it is lent (`is_lent`)."""
    dictionary = array.dictionary
    if not is_lent(array):
        return dictionary
    return pc.take(dictionary, pa.array(np.arange(len(dictionary))), boundscheck=False)


def codes_of(array: pa.Array) -> NDArray[Any]:
    """Return the codes as a view; a code at a null is undefined."""
    index = np.dtype(array.type.index_type.to_pandas_dtype())
    return buffer_view(array.buffers()[1], index, array.offset, len(array))


def plain(array: pa.Array) -> pa.Array:
    """Return the column decoded; a plain column is returned unchanged.

    **Errors** `CapacityError` where the texts together have more than 2 GiB.
    """
    if not is_coded(array):
        return array
    try:
        return array.dictionary_decode()
    except pa.ArrowInvalid as error:
        raise CapacityError(f"column too large: type={array.type.value_type} cause={error}", TOO_LARGE_HINT) from error


def safe_codes(array: pa.Array) -> NDArray[np.int64]:
    """Return the codes as int64, 0 at a null."""
    if len(array.dictionary) == 1:
        return np.zeros(len(array), np.int64)
    codes = codes_of(array).astype(np.int64, copy=False)
    if not array.null_count:
        return codes
    return np.where(np.asarray(array.is_valid()), codes, 0)


def without_nulls(array: pa.Array) -> pa.Array:
    """Return the column of texts, plain or coded, with an empty text for each null."""
    values = array.dictionary if is_coded(array) else array
    blank = pa.scalar("" if values.type == pa.string() else b"", values.type)
    if not is_coded(array):
        return array.fill_null(blank)
    code = pc.index(values, blank).as_py()
    if code < 0:
        code, values = len(values), pa.concat_arrays([values, pa.array([blank], values.type)])
    codes = np.where(np.asarray(array.is_valid()), codes_of(array), code)
    return with_codes(codes.astype(np.int32), values)


def with_codes(codes: NDArray[Any], dictionary: pa.Array, validity: pa.Buffer | None = None) -> pa.Array:
    """Return the coded column with these codes and this dictionary, without copying them."""
    type_ = _coded_type(codes.dtype.name, dictionary.type)
    buffers = [validity, pa.py_buffer(np.ascontiguousarray(codes))]
    return pa.DictionaryArray.from_buffers(type_, len(codes), buffers, dictionary, 0 if validity is None else -1)


@lru_cache(maxsize=64)
def _coded_type(index: str, value: pa.DataType) -> pa.DataType:
    """Return a cached dictionary type, because making the type costs more than making the array."""
    return pa.dictionary(getattr(pa, index)(), value)


def accepted(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return a dictionary array from outside as a coded column if it meets the rules for this type, else plain.

    **Errors** `pyarrow.ArrowException` for codes without a value.
    """
    values = array.dictionary
    if is_alike(array, type_) and _within(array.indices, len(values)) and len(pc.unique(values)) == len(values):
        return array
    return array.dictionary_decode()


def is_alike(array: pa.Array, type_: pa.DataType) -> bool:
    """Return whether a dictionary array holds texts of this type and has nulls among its codes only; values are not compared."""
    values = array.dictionary
    return type_ in {pa.string(), pa.binary()} and values.type == type_ and not values.null_count


def _within(codes: pa.Array, values: int) -> bool:
    """Return whether all codes but nulls are between 0 and the number of values."""
    ends = pc.min_max(codes).as_py()
    return ends["min"] is None or (ends["min"] >= 0 and ends["max"] < values)


def gather_coded(array: pa.Array, rows: NDArray[np.int64]) -> pa.Array:
    """Return the rows at these positions; decode them if the dictionary has more values than there are positions."""
    dictionary = array.dictionary if len(rows) < len(array.dictionary) else dictionary_of(array)
    valid = np.asarray(array.is_valid()).take(rows) if array.null_count else None
    codes = np.zeros(len(rows), np.int32) if len(dictionary) == 1 else codes_of(array).take(rows)
    return put_together(codes, dictionary, valid)


def put_together(codes: NDArray[Any], dictionary: pa.Array, valid: NDArray[np.bool_] | None) -> pa.Array:
    """Return the column with these codes, null where not valid; decode it if the dictionary has more values than rows."""
    if len(codes) < len(dictionary):
        return pc.take(dictionary, pa.array(codes, mask=None if valid is None else ~valid), boundscheck=False)
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return with_codes(codes.astype(np.int32, copy=False), dictionary, bitmap)


def share_dictionary(left: pa.Array, right: pa.Array) -> bool:
    """Return whether two coded columns have the same or equal dictionaries, so that equal codes mean equal values."""
    ours, theirs = left.dictionary, right.dictionary
    return _place(ours) == _place(theirs) or (len(ours) == len(theirs) and ours.equals(theirs))


def _place(array: pa.Array) -> tuple[int, ...]:
    """Return the address of a dictionary.

    Arrow lets text arrays share offsets while their bytes differ, so both buffers count.
    """
    return array.offset, len(array), *(getattr(buffer, "address", 0) for buffer in array.buffers()[1:])


def to_one_dictionary(arrays: Sequence[pa.Array]) -> tuple[list[NDArray[np.int64]], pa.Array] | None:
    """Return the codes of coded columns in one common dictionary, which is not lent; at least one column.

    Return None if two values share a hash, or if the dictionaries together exceed 2 GiB.

    **Cost** A hash of each value of each dictionary; none if the columns share one.
    """
    if all(share_dictionary(arrays[0], array) for array in arrays[1:]):
        return list(map(safe_codes, arrays)), dictionary_of(arrays[0])
    dictionaries = [array.dictionary for array in arrays]
    try:
        values = pa.concat_arrays(dictionaries)
    except pa.ArrowInvalid:  # more than 2 GiB: decoding the columns raises the error
        return None
    found = kernels.number_values(text_view(values), len(values))
    if found is None:
        return None
    number, firsts = found
    starts = np.cumsum([0, *map(len, dictionaries)])
    number = np.append(number, 0)  # the code of a null in a column without values
    codes = [number[start:].take(safe_codes(array)) for start, array in zip(starts[:-1], arrays, strict=True)]
    return codes, pc.take(values, pa.array(firsts), boundscheck=False)


def text_bytes(array: pa.Array) -> int:
    """Return the total bytes of the texts of all rows, coded or not; a repeated text counts each time."""
    if not is_coded(array):
        bounds = text_view(array)[0]
        return int(bounds[-1] - bounds[0])
    lengths = np.diff(text_view(array.dictionary)[0]).astype(np.int64)
    if len(lengths) and lengths.min() == lengths.max():
        return int(lengths[0]) * int(len(array) - array.null_count)
    if array.null_count:
        return int(lengths.take(codes_of(array.drop_null())).sum())
    return int(lengths.take(codes_of(array)).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Coding:
    """The codes of a column in their stored form, empty if all rows have the same value, and its dictionary values."""

    codes: Codes
    values: pa.Array


def coding_of(array: pa.Array) -> Coding | None:
    """Return the codes with which a text column without nulls, plain or coded, is written; None to write the texts themselves.

    A column is written plain in three cases. It has fewer than `ROWS_MIN` rows. At least half of the first
    `PROBED_ROWS` rows, or of all rows, are distinct. The coded form would not be shorter (`SHORTER`).

    **Cost** A plain column takes a hash and a look-up of each row, or of the first rows alone if these are distinct. A
    coded one takes a look-up of each row.
    """
    rows = len(array)
    if rows < ROWS_MIN:
        return None
    found = _numbered(array, rows // 2)
    if found is None:
        return None
    codes, values = found
    bounds = text_view(values)[0]
    held = 4 * len(bounds) + int(bounds[-1] - bounds[0])
    width = next(width for width in _CODE_BYTES if len(values) <= 1 << 8 * width)
    written = codes[:0] if len(values) == 1 else codes
    kept, saved = SHORTER
    if kept * (held + written.size * width) > saved * (4 * (rows + 1) + text_bytes(array)):
        return None
    return Coding(codes=written.astype(f"<u{width}"), values=values)


def _numbered(array: pa.Array, most: int) -> tuple[NDArray[np.int64], pa.Array] | None:
    """Return the code of each row, and the values in order of first occurrence; None if there are more than `most`."""
    if is_coded(array):
        dictionary = array.dictionary
        if len(dictionary) == 1:
            return np.zeros(len(array), np.int64), dictionary
        codes = codes_of(array).astype(np.int64, copy=False)
        renumbered = kernels.number_codes(codes, len(dictionary), most)
        if renumbered is None:
            return None
        return renumbered[0], pc.take(dictionary, pa.array(renumbered[1]), boundscheck=False)
    bounds, data = text_view(array)
    if len(array) > PROBED_ROWS and not kernels.values_repeat_early((bounds[: PROBED_ROWS + 2], data)):
        return None
    found = kernels.number_values((bounds, data), most)
    return None if found is None else (found[0], pc.take(array, pa.array(found[1]), boundscheck=False))


def fits_codes(size: int, rows: int, values: int) -> bool:
    """Return whether a buffer of `size` bytes can hold the codes of so many rows into a dictionary of so many values."""
    width = width_of(size, rows)
    return values == 1 if width == 0 else values > 0 and width in _CODE_BYTES


def decoded(
    codes: pa.Buffer, values: tuple[pa.Buffer, pa.Buffer], rows: int, type_: pa.DataType, validity: pa.Buffer | None
) -> pa.Array:
    """Return the column that `Coding` wrote, as a view of the buffers."""
    offsets, data = (np.frombuffer(part, dtype) for part, dtype in zip(values, (np.int32, np.uint8), strict=True))
    width = width_of(codes.size, rows)
    found = np.frombuffer(codes, f"<u{width}") if width else repeated(0, np.dtype(np.uint8), rows)
    return with_codes(found, text_array(offsets, data, type_), validity)
