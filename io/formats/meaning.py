"""Logical types of Kafka Connect and Avro: dates, times and decimals that a format stores as numbers or bytes.

A field names both its logical and its physical type: `io.debezium.time.MicroTimestamp` over an int64, `decimal`
over bytes. `Meaning` represents the logical type; `to_column` makes the column from whole arrays. Nothing is rounded,
cut or guessed. A number for a time without a unit, or a time finer than a microsecond, does not fit the column.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.io.formats.byte_spans import gathered
from dbsp.io.formats.wire import from_wire, wire_type
from dbsp.zset.calendar import check_days
from dbsp.zset.decimal_texts import decimals_of_texts
from dbsp.zset.given import column_given
from dbsp.zset.schema import BINARY, BOOL, DATE, DURATION, INT64, STRING, TIME, TIMESTAMP, TIMESTAMP_UTC, is_list

_DECIMAL_BYTES_MAX = 16
_DIGITS_MAX = 38


class ChangeKind(enum.Enum):
    """The kinds of logical types."""

    PLAIN = "what its type says"
    DAYS = "days since 1970"
    TIME = "a time of day"
    TIMESTAMP = "a moment since 1970"
    DURATION = "a span"
    DECIMAL = "a decimal without its point"
    SCALED = "a decimal and where its point is"


@dataclass(frozen=True, slots=True)
class Meaning:
    """A logical type: its kind, the unit of a time, and the digits after a decimal's point."""

    kind: ChangeKind = ChangeKind.PLAIN
    unit: str = ""
    scale: int = 0


PLAIN = Meaning()
_CONNECT = "org.apache.kafka.connect.data."
_DEBEZIUM = "io.debezium.time."
_NAMED: Mapping[str, Meaning] = {
    f"{_CONNECT}Date": Meaning(ChangeKind.DAYS),
    f"{_CONNECT}Time": Meaning(ChangeKind.TIME, "ms"),
    f"{_CONNECT}Timestamp": Meaning(ChangeKind.TIMESTAMP, "ms"),
    f"{_DEBEZIUM}Date": Meaning(ChangeKind.DAYS),
    f"{_DEBEZIUM}Time": Meaning(ChangeKind.TIME, "ms"),
    f"{_DEBEZIUM}MicroTime": Meaning(ChangeKind.TIME, "us"),
    f"{_DEBEZIUM}NanoTime": Meaning(ChangeKind.TIME, "ns"),
    f"{_DEBEZIUM}Timestamp": Meaning(ChangeKind.TIMESTAMP, "ms"),
    f"{_DEBEZIUM}MicroTimestamp": Meaning(ChangeKind.TIMESTAMP, "us"),
    f"{_DEBEZIUM}NanoTimestamp": Meaning(ChangeKind.TIMESTAMP, "ns"),
    f"{_DEBEZIUM}MicroDuration": Meaning(ChangeKind.DURATION, "us"),
    f"{_DEBEZIUM}NanoDuration": Meaning(ChangeKind.DURATION, "ns"),
    "io.debezium.data.VariableScaleDecimal": Meaning(ChangeKind.SCALED),
}


def named(name: str | None, parameters: Mapping[str, Any]) -> Meaning:
    """Return the logical type of a Kafka Connect type name; `PLAIN` for an unknown name."""
    if name == f"{_CONNECT}Decimal":
        return Meaning(ChangeKind.DECIMAL, scale=int(parameters.get("scale", 0)))
    return _NAMED.get(name or "", PLAIN)


def to_column(array: pa.Array, meaning: Meaning, type_: pa.DataType) -> pa.Array:
    """Convert an array to a column of this type.

    **Errors** `ArrowInvalid` or `ArrowNotImplementedError` if a value does not fit.

    >>> to_column(pa.array([1_500, None]), Meaning(ChangeKind.TIMESTAMP, "ms"), TIMESTAMP)[0].as_py()
    datetime.datetime(1970, 1, 1, 0, 0, 1, 500000)
    >>> to_column(pa.array([bytes([1, 44])]), Meaning(ChangeKind.DECIMAL, scale=2), pa.decimal128(5, 2)).to_pylist()
    [Decimal('3.00')]
    """
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), type_)
    return _MADE[meaning.kind](array, meaning, type_)


def _plain(array: pa.Array, _meaning: Meaning, type_: pa.DataType) -> pa.Array:
    """Convert an array by its own type, without loss."""
    found = array.type
    if found == type_:
        return array
    if found == STRING:
        return _from_text(array, type_)
    if found == wire_type(type_):
        return from_wire(array, type_)
    if pa.types.is_integer(found) and type_ == BOOL:
        _require(pc.all(pc.is_in(array.drop_null(), pa.array([0, 1], found)), min_count=0), "not 0 or 1")
        return array.cast(BOOL)
    if pa.types.is_integer(found) or pa.types.is_floating(found):
        return column_given(array, type_)
    if is_list(found) and is_list(type_):
        elements = _plain(array.flatten(), PLAIN, type_.value_type)
        mask = array.is_null() if array.null_count else None
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        return pa.ListArray.from_arrays(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), elements, mask=mask)
    raise pa.ArrowInvalid(f"{found} for {type_}")


def _from_text(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(type_):
        return from_wire(decimals_of_texts(array, wire_type(type_)), type_)
    if type_ in (STRING, DATE, TIME, TIMESTAMP, TIMESTAMP_UTC, DURATION):
        return from_wire(array.cast(wire_type(type_, span_texts=True)), type_)
    raise pa.ArrowInvalid(f"a text for {type_}")


def _days(array: pa.Array, _meaning: Meaning, type_: pa.DataType) -> pa.Array:
    days = array.cast(pa.int32()).cast(DATE)
    check_days(days)
    return column_given(days, type_)


def _time(array: pa.Array, meaning: Meaning, type_: pa.DataType) -> pa.Array:
    _require(type_ == TIME, "a time of day")
    micros = _micros(array, meaning.unit)
    _require(
        pc.all(pc.and_(pc.greater_equal(micros, 0), pc.less(micros, 86_400_000_000)), min_count=0), "a time of day"
    )
    return micros.cast(TIME)


def _timestamp(array: pa.Array, meaning: Meaning, type_: pa.DataType) -> pa.Array:
    """Convert moments, with or without a zone: most databases and writers use one type for both."""
    _require(type_ in (TIMESTAMP, TIMESTAMP_UTC, DATE), "a moment")
    moments = _micros(array, meaning.unit).cast(TIMESTAMP if type_ == DATE else type_)
    check_days(moments)
    return column_given(moments, type_)


def _duration(array: pa.Array, meaning: Meaning, type_: pa.DataType) -> pa.Array:
    _require(type_ == DURATION, "a span")
    return _micros(array, meaning.unit).cast(DURATION)


def _micros(array: pa.Array, unit: str) -> pa.Array:
    numbers = array.cast(INT64)
    if unit == "ms":
        return pc.multiply_checked(numbers, 1000)
    if unit == "ns":
        micros = pc.divide(numbers, 1000)
        _require(pc.all(pc.equal(pc.multiply(micros, 1000), numbers), min_count=0), "finer than a microsecond")
        return micros
    return numbers


def _decimal(array: pa.Array, meaning: Meaning, type_: pa.DataType) -> pa.Array:
    _require(pa.types.is_binary(array.type), "a decimal")
    return column_given(unscaled(array, meaning.scale), type_)


def _scaled(array: pa.Array, _meaning: Meaning, type_: pa.DataType) -> pa.Array:
    """Convert decimals that each have a scale of their own, all rows of one scale at a time."""
    scales, values = array.field("scale"), array.field("value")
    _require(scales.filter(array.is_valid()).null_count == 0, "a decimal that says its scale")
    made = pa.nulls(len(array), type_)
    for scale in pc.unique(scales.filter(array.is_valid())).to_pylist():
        chosen = pc.fill_null(pc.and_(pc.equal(scales, scale), array.is_valid()), False)
        made = pc.if_else(chosen, _decimal(pc.if_else(chosen, values, None), Meaning(scale=scale), type_), made)
    return made


def unscaled(array: pa.Array, scale: int) -> pa.Array:
    """Convert big-endian integers in two's complement, as Java's `BigInteger` writes them, to decimals.

    **Cost** sixteen passes over the column.
    """
    _require(0 <= scale <= _DIGITS_MAX, "a scale of 0 to 38")
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    ends, lengths, data = _spans(array)
    _require(bool(np.all(lengths[valid] > 0)) and bool(np.all(lengths <= _DECIMAL_BYTES_MAX)), "1 to 16 bytes")
    last = max(len(data) - 1, 0)
    data = data if len(data) else np.zeros(1, np.uint8)
    sign = np.where(data[np.clip(ends - lengths, 0, last)] & 0x80, 0xFF, 0).astype(np.uint8)
    made = np.zeros((len(array), _DECIMAL_BYTES_MAX), np.uint8)
    for place in range(_DECIMAL_BYTES_MAX):
        made[:, place] = np.where(place < lengths, data[np.clip(ends - 1 - place, 0, last)], sign)
    made[~valid] = 0
    mask = pa.array(valid).buffers()[1] if array.null_count else None
    numbers = pa.Array.from_buffers(pa.decimal128(_DIGITS_MAX, scale), len(array), [mask, pa.py_buffer(made)])
    numbers.validate(full=True)
    return numbers


def bytes_of_base64(array: pa.Array) -> pa.Array:
    """Decode an array of texts in base64; raise `ArrowInvalid` if one is not padded base64.

    >>> bytes_of_base64(pa.array(["YSw=", None, ""])).to_pylist()
    [b'a,', None, b'']
    """
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    ends, lengths, data = _spans(array)
    _require(bool(np.all(lengths % 4 == 0)), "base64")
    text = np.frombuffer(gathered(data, ends - lengths, lengths, valid, STRING).buffers()[2], np.uint8)
    ends = np.cumsum(lengths)
    pads = [(lengths > 0) & (text[np.maximum(ends - back, 0)] == ord("=")) for back in (1, 2) if len(text)]
    padding = sum(pads, np.zeros(len(array), np.int64))
    _require(not pads or not np.any(pads[1] & ~pads[0]), "base64")
    places = _SIX_BITS[text]
    outside = np.flatnonzero(places > 63)  # noqa: PLR2004 - six bits
    _require(bool(np.all(places[outside] == _PAD)) and len(outside) == int(padding.sum()), "base64")
    quads = np.where(places == _PAD, 0, places).astype(np.uint32).reshape(-1, 4)
    words = (quads[:, 0] << 18) | (quads[:, 1] << 12) | (quads[:, 2] << 6) | quads[:, 3]
    triples = np.stack([words >> 16, words >> 8, words], axis=1).astype(np.uint8).reshape(-1)
    return gathered(triples, (ends - lengths) // 4 * 3, lengths // 4 * 3 - padding, valid, BINARY)


_PAD = 64
_SIX_BITS = np.full(256, 65, np.uint8)
_SIX_BITS[np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)] = np.arange(64)
_SIX_BITS[ord("=")] = _PAD

_Ints = npt.NDArray[np.int64]
_Bytes = npt.NDArray[np.uint8]


def _spans(array: pa.Array) -> tuple[_Ints, _Ints, _Bytes]:
    """Return each value's end in the bytes, its length (0 for a null), and the bytes."""
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    lengths = np.diff(bounds)
    if array.null_count:
        lengths = np.where(array.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    return bounds[1:], lengths, np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)


def _require(holds: Any, what: str) -> None:
    if not (holds.as_py() if isinstance(holds, pa.Scalar) else holds):
        raise pa.ArrowInvalid(f"not {what}")


_MADE: Mapping[ChangeKind, Callable[[pa.Array, Meaning, pa.DataType], pa.Array]] = {
    ChangeKind.PLAIN: _plain,
    ChangeKind.DAYS: _days,
    ChangeKind.TIME: _time,
    ChangeKind.TIMESTAMP: _timestamp,
    ChangeKind.DURATION: _duration,
    ChangeKind.DECIMAL: _decimal,
    ChangeKind.SCALED: _scaled,
}
