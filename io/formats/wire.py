"""The form of each column type in JSON, and the casts between this form and the column, on whole arrays.

| type | JSON |
| --- | --- |
| bool | `true`, `false` |
| integers | a whole number, also `3.0` |
| float32, float64 | a number, or `NaN`, `Infinity`, `-Infinity` |
| decimal | a number or a string of one, within precision and scale |
| string | a string |
| binary | a string of hexadecimal digits |
| date | `"YYYY-MM-DD"` |
| time | `"HH:MM:SS.ffffff"`, which may end after any of its parts |
| timestamp | `"YYYY-MM-DD HH:MM:SS.ffffff"`, `T` for the blank; it may end after any part of the time, or before it |
| timestamp UTC | the same with `Z` or `+HH:MM`; without one it is UTC |
| duration | a number of microseconds, or a text (`dbsp.zset.span_texts`) |
| list | a list of the forms of its elements, or null |
| struct | an object of its fields, or null; a missing field is null, an unknown or repeated one is an error |

Years are 0001 to 9999. Any other value makes its row bad: nothing is rounded, cut or guessed.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.errors import InternalError
from dbsp.zset.calendar import check_days
from dbsp.zset.given import with_zone
from dbsp.zset.schema import BINARY, DATE, DURATION, FLOAT32, FLOAT64, INT64, STRING, TIME, TIMESTAMP, TIMESTAMP_UTC
from dbsp.zset.span_texts import spans_of_texts

_AS_TEXT = frozenset([STRING, BINARY, DATE, TIME, TIMESTAMP, TIMESTAMP_UTC])
_HEX = "^([0-9a-fA-F]{2})*$"


def wire_type(type_: pa.DataType, *, span_texts: bool = False) -> pa.DataType:
    """Return the Arrow type that the JSON parser reads for a column type; with `span_texts` durations are texts."""
    if pa.types.is_list(type_):
        return pa.list_(wire_type(type_.value_type, span_texts=span_texts))
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, wire_type(field.type, span_texts=span_texts)) for field in type_])
    if type_ in _AS_TEXT or (span_texts and type_ == DURATION):
        return STRING
    if pa.types.is_decimal128(type_):
        return pa.decimal256(76, type_.scale)  # in 128 bits pyarrow's parser misreads a 7 with 38 places
    return {FLOAT32: FLOAT64, DURATION: INT64}.get(type_, type_)


def holds_spans(type_: pa.DataType) -> bool:
    """Return whether the type is a duration, or contains one."""
    return bool(wire_type(type_) != wire_type(type_, span_texts=True))


def from_wire(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Convert an array of the wire type to the column type; raise `ArrowInvalid` if a value is malformed."""
    if pa.types.is_list(type_):
        return _over_elements(array, lambda elements: from_wire(elements, type_.value_type))
    if pa.types.is_struct(type_):
        pairs = zip(array.flatten(), type_, strict=True)
        fields = [from_wire(values, field.type) for values, field in pairs]
        return pa.StructArray.from_arrays(fields, fields=list(type_), mask=_nulls(array))
    if array.type == type_:
        return array
    if pa.types.is_decimal256(array.type):
        array.validate(full=True)  # pyarrow's JSON parser lets digits above the precision through
    if type_ == BINARY:
        return _binary_from_hex(array)
    if type_ == FLOAT32:
        return _to_float32(array)
    if type_ == DURATION:
        return spans_of_texts(array) if array.type == STRING else array.cast(type_)
    if type_ == TIME:
        prefix = pa.scalar("1970-01-01T", STRING)
        return _checked(pc.binary_join_element_wise(prefix, array, ""), TIMESTAMP).cast(TIME)
    return _checked(with_zone(array) if type_ == TIMESTAMP_UTC else array, type_)


def _over_elements(array: pa.Array, convert: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Convert every element of the lists."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, convert(array.flatten()), mask=_nulls(array))


def _nulls(array: pa.Array) -> pa.Array | None:
    """Return the mask of nulls; None if there are none."""
    return array.is_null() if array.null_count else None


def _checked(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast decimals, or texts of dates and timestamps; raise `ArrowInvalid` for a day outside the calendar."""
    array = array.cast(type_)
    check_days(array)
    return array


def _to_float32(array: pa.Array) -> pa.Array:
    narrow = pc.cast(array, FLOAT32, safe=False)
    if not pc.all(pc.equal(pc.is_inf(narrow), pc.is_inf(array)), min_count=0).as_py():
        raise pa.ArrowInvalid("out of range")
    return narrow


def _binary_from_hex(array: pa.Array) -> pa.Array:
    valid = array.drop_null()
    if not pc.all(pc.match_substring_regex(valid, _HEX), min_count=0).as_py():
        raise pa.ArrowInvalid("not hexadecimal digits")
    data = bytes.fromhex("".join(valid.to_pylist()))
    lengths = pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False) // 2
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    mask = None if array.null_count == 0 else pc.invert(array.is_valid()).to_numpy(zero_copy_only=False)
    validity = None if mask is None else pa.array(~mask).buffers()[1]
    return pa.Array.from_buffers(BINARY, len(array), [validity, pa.py_buffer(offsets), pa.py_buffer(data)])


Texts = Callable[[pa.Array], pa.Array]


def to_json_text(array: pa.Array, plainly: Texts | None = None) -> pa.Array:
    """Return each value as JSON text (`null` for a null); `plainly` writes the values that are neither lists nor structs."""
    write = _plain_text if plainly is None else plainly
    if pa.types.is_list(array.type):
        inside = pc.binary_join(_over_elements(array, lambda elements: to_json_text(elements, write)), ",")
        text = pc.binary_join_element_wise("[", inside, "]", "")
    elif pa.types.is_struct(array.type):
        text = _objects(array, write)
    else:
        text = write(array)
    return pc.fill_null(text, "null")


def _plain_text(array: pa.Array) -> pa.Array:
    """Return values that are neither lists nor structs as JSON text."""
    if array.type == STRING:
        return quoted_strings(array)
    if array.type == BINARY:
        return quoted(_hex_from_binary(array))
    if array.type in (DATE, TIME, TIMESTAMP, TIMESTAMP_UTC) or pa.types.is_decimal128(array.type):
        return quoted(array.cast(STRING))
    if array.type in (FLOAT32, FLOAT64):
        return _float_text(array)
    return (array.cast(INT64) if array.type == DURATION else array).cast(STRING)


def _objects(array: pa.Array, write: Texts) -> pa.Array:
    """Return structs as JSON objects with all their fields; null for a null."""
    parts: list[pa.Array | pa.Scalar] = []
    for number, (field, values) in enumerate(zip(array.type, array.flatten(), strict=True)):
        name = ("{" if number == 0 else ",") + json.dumps(field.name, ensure_ascii=False) + ":"
        parts += [pa.scalar(name, STRING), to_json_text(values, write)]
    text = pc.binary_join_element_wise(*parts, pa.scalar("}", STRING), "")
    return text if array.null_count == 0 else pc.if_else(array.is_valid(), text, pa.scalar(None, STRING))


def quoted(text: pa.Array) -> pa.Array:
    """Return the texts in quotes; they need no escapes."""
    quote = pa.scalar('"', STRING)
    return pc.binary_join_element_wise(quote, text, quote, "")


def quoted_strings(array: pa.Array) -> pa.Array:
    """Quote strings with JSON's escapes; one search finds out whether any value needs them: most do not."""
    if pc.any(pc.match_substring_regex(array, r'["\\\x00-\x1f\x7f]'), min_count=0).as_py():
        array = pc.replace_substring(array, "\\", "\\\\")
        array = pc.replace_substring(array, '"', '\\"')
        for code in range(32):
            if pc.any(pc.match_substring(array, chr(code)), min_count=0).as_py():
                array = pc.replace_substring(array, chr(code), f"\\u{code:04x}")
    return quoted(array)


def _float_text(array: pa.Array) -> pa.Array:
    """Return the shortest text of each number that reads back as the same number."""
    text = array.cast(STRING)
    if not pc.all(pc.is_finite(array), min_count=0).as_py():
        for name, json_name in (("nan", "NaN"), ("-inf", "-Infinity"), ("inf", "Infinity")):
            text = pc.if_else(pc.equal(text, name), json_name, text)
    return text


def _hex_from_binary(array: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False)
    digits = b"".join(array.drop_null().to_pylist()).hex().encode()
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64) * 2])
    if offsets[-1] >= 1 << 31:
        raise InternalError(f"a binary column too large to write as text: bytes={offsets[-1] // 2}")
    validity = None if array.null_count == 0 else pa.array(array.is_valid().to_numpy(zero_copy_only=False)).buffers()[1]
    parts = [validity, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(digits)]
    return pa.Array.from_buffers(STRING, len(array), parts)
