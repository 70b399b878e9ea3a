"""Base64, decimals in bytes and times in units: whole arrays as Python does one value."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp.io.formats.meaning import PLAIN, ChangeKind, Meaning, bytes_of_base64, named, to_column, unscaled
from dbsp.zset.schema import (
    BINARY,
    BOOL,
    DATE,
    DURATION,
    FLOAT32,
    INT64,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMP_UTC,
    decimal,
    list_of,
)


@given(st.lists(st.none() | st.binary(max_size=9), max_size=9), st.integers(0, 3))
def test_base64(values: Sequence[bytes | None], skipped: int) -> None:
    texts = pa.array([None if value is None else base64.b64encode(value).decode() for value in values], STRING)
    assert bytes_of_base64(texts.slice(skipped)).to_pylist() == list(values[skipped:])


@given(st.lists(st.text("AQg=+/ _\u00e4", max_size=8), min_size=1, max_size=3))
def test_what_is_not_base64_is_refused(texts: Sequence[str]) -> None:
    try:
        expected = [base64.b64decode(text.encode(), validate=True) for text in texts]
        if [base64.b64encode(found).decode() for found in expected] != list(texts):
            return  # bits that are left over are cut by both
    except ValueError:
        with pytest.raises(pa.ArrowInvalid):
            bytes_of_base64(pa.array(texts))
        return
    assert bytes_of_base64(pa.array(texts)).to_pylist() == expected


@given(st.lists(st.none() | st.integers(-(10**38) + 1, 10**38 - 1), max_size=9), st.integers(0, 38), st.integers(0, 3))
def test_decimals_in_bytes(numbers: Sequence[int | None], scale: int, padding: int) -> None:
    def written(number: int) -> bytes:
        size = (number + (number < 0)).bit_length() // 8 + 1
        return number.to_bytes(min(16, size + padding), "big", signed=True)

    found = unscaled(pa.array([None if number is None else written(number) for number in numbers], BINARY), scale)
    assert found.to_pylist() == [None if number is None else exactly(number, scale) for number in numbers]


def exactly(number: int, scale: int) -> Decimal:
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


@pytest.mark.parametrize("value", [b"", b"\0" * 17, (10**38).to_bytes(16, "big")])
def test_decimals_that_nobody_holds(value: bytes) -> None:
    with pytest.raises(pa.ArrowInvalid):
        unscaled(pa.array([b"\1", value]), 0)


MS, US, NS = (Meaning(ChangeKind.TIMESTAMP, unit) for unit in ("ms", "us", "ns"))
MOMENT = datetime.datetime(1969, 12, 31, 23, 59, 59, 999000)
GOOD = [
    (pa.array([-1, None]), MS, TIMESTAMP, [MOMENT, None]),
    (pa.array([-1000]), US, TIMESTAMP_UTC, [MOMENT.replace(tzinfo=datetime.UTC)]),
    (pa.array([-1_000_000]), NS, TIMESTAMP, [MOMENT]),
    (pa.array([-1], pa.int32()), Meaning(ChangeKind.DAYS), DATE, [datetime.date(1969, 12, 31)]),
    (pa.array([86_399_999]), Meaning(ChangeKind.TIME, "ms"), TIME, [datetime.time(23, 59, 59, 999000)]),
    (pa.array([-5]), Meaning(ChangeKind.DURATION, "us"), DURATION, [datetime.timedelta(microseconds=-5)]),
    (pa.array([1, 0, None]), PLAIN, BOOL, [True, False, None]),
    (pa.array([1.5]), PLAIN, FLOAT32, [1.5]),
    (pa.array([7]), PLAIN, pa.float64(), [7.0]),
    (pa.array([0.1, 1e3]), PLAIN, decimal(6, 2), [Decimal("0.10"), Decimal("1000.00")]),
    (pa.array([5]), PLAIN, decimal(6, 2), [Decimal("5.00")]),
    (pa.array(["-1.50"]), PLAIN, decimal(6, 2), [Decimal("-1.50")]),
    (pa.array(["2026-02-03T04:05:06.5Z"]), PLAIN, TIMESTAMP_UTC, [datetime.datetime(2026, 2, 3, 4, 5, 6, 500000, datetime.UTC)]),
    (pa.array([b"\1\2"]), Meaning(ChangeKind.DECIMAL, scale=0), INT64, [258]),
    (pa.array([[1, None], None, []]), PLAIN, list_of(pa.int16()), [[1, None], None, []]),
    (pa.nulls(2), MS, TIMESTAMP, [None, None]),
    (
        pa.array([{"scale": 1, "value": b"\x0f"}, None, {"scale": 3, "value": b"\xff"}]),
        Meaning(ChangeKind.SCALED), decimal(9, 4), [Decimal("1.5000"), None, Decimal("-0.0010")],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("array", "meaning", "type_", "expected"), GOOD)
def test_values(array: pa.Array, meaning: Meaning, type_: pa.DataType, expected: list[object]) -> None:
    found = to_column(array, meaning, type_)
    found.validate(full=True)
    assert (found.type, found.to_pylist()) == (type_, expected)


BAD = [
    (pa.array([1]), PLAIN, TIMESTAMP),
    (pa.array([1]), PLAIN, DATE),
    (pa.array([1]), MS, DATE),
    (pa.array([1]), NS, TIMESTAMP),
    (pa.array([1 << 62]), MS, TIMESTAMP),
    (pa.array([1 << 62]), US, TIMESTAMP),
    (pa.array([1 << 40]), Meaning(ChangeKind.DAYS), DATE),
    (pa.array([86_400_000]), Meaning(ChangeKind.TIME, "ms"), TIME),
    (pa.array([-1]), Meaning(ChangeKind.TIME, "us"), TIME),
    (pa.array([2]), PLAIN, BOOL),
    (pa.array([1.5]), PLAIN, INT64),
    (pa.array([300]), PLAIN, pa.int8()),
    (pa.array([0.125]), PLAIN, decimal(6, 2)),
    (pa.array([1e40]), PLAIN, FLOAT32),
    (pa.array(["x"]), PLAIN, INT64),
    (pa.array(["5"]), PLAIN, INT64),
    (pa.array(["1.234"]), PLAIN, decimal(6, 2)),
    (pa.array([b"\1\2"]), Meaning(ChangeKind.DECIMAL, scale=3), decimal(6, 2)),
    (pa.array([b"\1"]), Meaning(ChangeKind.DECIMAL, scale=0), STRING),
    (pa.array([b"\1"]), PLAIN, STRING),
    (pa.array([[1.5]]), PLAIN, list_of(INT64)),
]


@pytest.mark.parametrize(("array", "meaning", "type_"), BAD)
def test_nothing_is_rounded_or_guessed(array: pa.Array, meaning: Meaning, type_: pa.DataType) -> None:
    with pytest.raises((pa.ArrowException, ValueError)):
        to_column(array, meaning, type_)


def test_names_of_kafka_connect() -> None:
    assert named("io.debezium.time.MicroTimestamp", {}) == US
    assert named("org.apache.kafka.connect.data.Decimal", {"scale": "4"}) == Meaning(ChangeKind.DECIMAL, scale=4)
    assert named("io.debezium.data.Json", {}) is named(None, {}) is PLAIN
