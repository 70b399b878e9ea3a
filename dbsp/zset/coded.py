"""Texts held once: a column of strings or binary as codes into a dictionary of its values.

A coded column is an Arrow dictionary array. It stands for the plain column of its values and may stand wherever a batch holds
that (`Batch.held`); whoever asks a batch for `columns` gets plain ones. Parquet files, exchanges and stored chunks have texts
coded where that is shorter, so a text that is there a thousand times is hashed, sent and written once.

1. A dictionary holds no null and no value twice; it may hold values that no row has.
2. Codes are unsigned where they and the dictionary lie in encoded bytes (`is_lent`): such a chunk's dictionary is dead when the
   transaction ends that it was read in. What is gathered or put together has a dictionary of its own, and codes of int32.
3. How a column is coded when it is encoded follows from its values alone (`coding_of`): whether it is, and that values are
   numbered by their first rows. (But for two values with one 64-bit hash: they leave a plain column plain, a coded one coded.)
4. What is gathered or put together has no more values in its dictionary than rows, so values that are gone do not pile up.
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
"""Coded a column must take no more than three bytes for four, else reading it is not worth the detour."""

Codes = NDArray[np.unsignedinteger[Any]]
_DICTIONARY = pa.dictionary(pa.int32(), pa.string()).id
_CODE_BYTES = (1, 2, 4)


def is_coded(array: pa.Array) -> bool:
    """Whether these are codes."""
    return bool(array.type.id == _DICTIONARY)


def is_lent(array: pa.Array) -> bool:
    """Whether the dictionary may lie in bytes that do not outlive a transaction."""
    return bool(pa.types.is_unsigned_integer(array.type.index_type))


def dictionary_of(array: pa.Array) -> pa.Array:
    """The values, for a column that outlives this one: copied where they are lent."""
    dictionary = array.dictionary
    if not is_lent(array):
        return dictionary
    return pc.take(dictionary, pa.array(np.arange(len(dictionary))), boundscheck=False)


def codes_of(array: pa.Array) -> NDArray[Any]:
    """The codes, without copying; under a null anything."""
    index = np.dtype(array.type.index_type.to_pandas_dtype())
    return buffer_view(array.buffers()[1], index, array.offset, len(array))


def plain(array: pa.Array) -> pa.Array:
    """The column of the values; one that is plain as it is.

    **Errors** `CapacityError` where the texts together have more than 2 GiB.
    """
    if not is_coded(array):
        return array
    try:
        return array.dictionary_decode()
    except pa.ArrowInvalid as error:
        raise CapacityError(f"column too large: type={array.type.value_type} cause={error}", TOO_LARGE_HINT) from error


def safe_codes(array: pa.Array) -> NDArray[np.int64]:
    """The codes, 0 under a null."""
    if len(array.dictionary) == 1:
        return np.zeros(len(array), np.int64)
    codes = codes_of(array).astype(np.int64, copy=False)
    if not array.null_count:
        return codes
    return np.where(np.asarray(array.is_valid()), codes, 0)


def without_nulls(array: pa.Array) -> pa.Array:
    """The column of texts, plain or coded, with the empty text for each null."""
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
    """The column of these codes; it shares their memory."""
    type_ = _coded_type(codes.dtype.name, dictionary.type)
    buffers = [validity, pa.py_buffer(np.ascontiguousarray(codes))]
    return pa.DictionaryArray.from_buffers(type_, len(codes), buffers, dictionary, 0 if validity is None else -1)


@lru_cache(maxsize=64)
def _coded_type(index: str, value: pa.DataType) -> pa.DataType:
    """Making a type each time costs more than the array."""
    return pa.dictionary(getattr(pa, index)(), value)


def accepted(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """A dictionary array from outside: coded if it can be one of this type, else plain.

    **Errors** `pyarrow.ArrowException` for codes that no value has.
    """
    values = array.dictionary
    if is_alike(array, type_) and _within(array.indices, len(values)) and len(pc.unique(values)) == len(values):
        return array
    return array.dictionary_decode()


def is_alike(array: pa.Array, type_: pa.DataType) -> bool:
    """Whether a dictionary array is of texts of this type, and null where its codes are alone; values are not looked at."""
    values = array.dictionary
    return type_ in {pa.string(), pa.binary()} and values.type == type_ and not values.null_count


def _within(codes: pa.Array, values: int) -> bool:
    """Whether all codes but nulls are those of so many values."""
    ends = pc.min_max(codes).as_py()
    return ends["min"] is None or (ends["min"] >= 0 and ends["max"] < values)


def gather_coded(array: pa.Array, rows: NDArray[np.int64]) -> pa.Array:
    """The rows at these positions: coded, but plain where the dictionary has more values than there are rows."""
    dictionary = array.dictionary if len(rows) < len(array.dictionary) else dictionary_of(array)
    valid = np.asarray(array.is_valid()).take(rows) if array.null_count else None
    codes = np.zeros(len(rows), np.int32) if len(dictionary) == 1 else codes_of(array).take(rows)
    return put_together(codes, dictionary, valid)


def put_together(codes: NDArray[Any], dictionary: pa.Array, valid: NDArray[np.bool_] | None) -> pa.Array:
    """The column of these codes, null where not valid: coded, but plain where there are more values than rows."""
    if len(codes) < len(dictionary):
        return pc.take(dictionary, pa.array(codes, mask=None if valid is None else ~valid), boundscheck=False)
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return with_codes(codes.astype(np.int32, copy=False), dictionary, bitmap)


def share_dictionary(left: pa.Array, right: pa.Array) -> bool:
    """Whether two coded columns have one dictionary, or equal ones, so that equal codes are equal values."""
    ours, theirs = left.dictionary, right.dictionary
    return _place(ours) == _place(theirs) or (len(ours) == len(theirs) and ours.equals(theirs))


def _place(array: pa.Array) -> tuple[int, ...]:
    """Where a dictionary lies: Arrow lets texts share offsets whose bytes differ, so both count."""
    return array.offset, len(array), *(getattr(buffer, "address", 0) for buffer in array.buffers()[1:])


def to_one_dictionary(arrays: Sequence[pa.Array]) -> tuple[list[NDArray[np.int64]], pa.Array] | None:
    """The codes of coded columns, at least one, in one dictionary for all, not lent; None where two values share a hash.

    **Cost** a hash of each value of each dictionary; none where they are one.
    """
    if all(share_dictionary(arrays[0], array) for array in arrays[1:]):
        return list(map(safe_codes, arrays)), dictionary_of(arrays[0])
    dictionaries = [array.dictionary for array in arrays]
    try:
        values = pa.concat_arrays(dictionaries)
    except pa.ArrowInvalid:  # more than 2 GiB: whoever makes them plain says so
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
    """How many bytes the values of a column of texts have, coded or not, each time they are there."""
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
    """Codes as they are written, none where all rows have one value, and the values."""

    codes: Codes
    values: pa.Array


def coding_of(array: pa.Array) -> Coding | None:
    """How a column of texts without nulls, plain or coded, is written; None where it is plain.

    It is plain with fewer than `ROWS_MIN` rows, where half of the first `PROBED_ROWS` or of all are different values, or where it
    would be no shorter (`SHORTER`).

    **Cost** of a plain column a hash and a look-up of each row, of the first alone where these are different; of a coded one a
    look-up.
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
    """The values numbered by their first rows, at most so many."""
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
    """Whether so many bytes can be the codes of so many rows into a dictionary of so many values."""
    width = width_of(size, rows)
    return values == 1 if width == 0 else values > 0 and width in _CODE_BYTES


def decoded(
    codes: pa.Buffer, values: tuple[pa.Buffer, pa.Buffer], rows: int, type_: pa.DataType, validity: pa.Buffer | None
) -> pa.Array:
    """The column of what `Coding` wrote, without copying."""
    offsets, data = (np.frombuffer(part, dtype) for part, dtype in zip(values, (np.int32, np.uint8), strict=True))
    width = width_of(codes.size, rows)
    found = np.frombuffer(codes, f"<u{width}") if width else repeated(0, np.dtype(np.uint8), rows)
    return with_codes(found, text_array(offsets, data, type_), validity)
