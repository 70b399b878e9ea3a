"""A column made of Python values says what they say, or is refused; what is refused depends on the value alone."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp.zset.fitting import array_of, cast_to
from dbsp.zset.schema import (
    DATE,
    DURATION,
    FLOAT32,
    FLOAT64,
    INT8,
    INT64,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMP_UTC,
    UINT64,
    decimal,
    list_of,
    struct_of,
)

MISFITS = (pa.ArrowException, TypeError, ValueError, OverflowError, ArithmeticError)
FIVE = dt.datetime(2024, 1, 1, 5)
HERE = dt.timezone(dt.timedelta(hours=2))


class Nanoseconds(dt.datetime):
    """As other libraries' times are: a datetime with more in it."""

    nanosecond = 7


class Nothing(dt.datetime):
    """As other libraries' missing times are: a datetime unlike itself."""

    def __ne__(self, other: object) -> bool:
        """Always."""
        return True

    __hash__ = dt.datetime.__hash__


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (INT64, 2.9),
        (INT8, 0.5),
        (UINT64, Decimal("2.9")),
        (INT64, Fraction(5, 2)),
        (INT64, np.float64(2.5)),
        (INT64, np.float32(2.5)),
        (INT64, np.datetime64("2024-01-01T00", "ns")),
        (FLOAT32, 1e300),
        (FLOAT32, -1e39),
        (DATE, FIVE),
        (DATE, FIVE.replace(tzinfo=HERE)),
        (DATE, Nothing(2024, 1, 1)),
        (DATE, 19_000),
        (DATE, Decimal(3)),
        (TIME, 7),
        (TIME, np.float64(7)),
        (TIMESTAMP, 1_700_000_000),
        (TIMESTAMP, Nanoseconds(2024, 1, 1)),
        (TIMESTAMP_UTC, 1.5),
        (DURATION, 2.9),
        (DURATION, Decimal("2.9")),
        (decimal(38, 0), Decimal("1E-39")),
        (decimal(22, 1), Decimal("8.0385E-65")),
        (list_of(STRING), "abc"),
        (list_of(STRING), np.str_("abc")),
        (list_of(INT64), b"abc"),
        (list_of(INT64), [1, None, 2.9]),
        (list_of(INT64), np.array([2.9])),
        (list_of(INT64), (1, Decimal("2.9"))),
        (list_of(list_of(STRING)), [["a"], "bc"]),
        (list_of(DURATION), np.array([1500], "m8[ns]")),
        (list_of(FLOAT32), [1.0, 1e300]),
        (struct_of({"a": INT64, "b": STRING}), {"a": 2.9}),
        (struct_of({"a": INT64, "b": STRING}), (2.9, "x")),
        (struct_of({"a": INT64, "b": STRING}), [("a", 2.9)]),
        (struct_of({"a": INT64, "b": STRING}), [("c", 1)]),
        (list_of(struct_of({"a": DATE})), [{"a": FIVE.date()}, None, {"a": FIVE}]),
        (struct_of({"a": list_of(INT64)}), {"a": [1, 2.9]}),
    ],
)
def test_what_would_be_cut_is_refused(type_: pa.DataType, value: Any) -> None:
    with pytest.raises(MISFITS):
        array_of([value], type_)
    with pytest.raises(MISFITS):
        array_of([None, value, None], type_)


@pytest.mark.parametrize(
    ("type_", "value", "held"),
    [
        (INT64, 3.0, 3),
        (INT64, Decimal("1E+3"), 1000),
        (INT64, np.int8(3), 3),
        (INT64, pa.scalar(5), 5),
        (INT64, -(2**63), -(2**63)),
        (FLOAT32, math.inf, math.inf),
        (FLOAT32, np.float32(0.5), 0.5),
        (FLOAT32, 3, 3.0),
        (FLOAT64, 1e300, 1e300),
        (DATE, FIVE.replace(hour=0), FIVE.date()),
        (DATE, FIVE.replace(hour=0, tzinfo=HERE), FIVE.date()),
        (TIMESTAMP, FIVE, FIVE),
        (TIMESTAMP_UTC, FIVE.replace(tzinfo=HERE), FIVE.replace(hour=3, tzinfo=dt.UTC)),
        (DURATION, 5, dt.timedelta(microseconds=5)),
        (DURATION, 5.0, dt.timedelta(microseconds=5)),
        (decimal(6, 2), 5, Decimal("5.00")),
        (decimal(6, 2), Decimal("1E+3"), Decimal(1000)),
        (decimal(38, 38), Decimal("1E-38"), Decimal("1E-38")),
        (list_of(INT64), range(2), [0, 1]),
        (list_of(INT64), pa.scalar([1, None]), [1, None]),
        (list_of(INT64), np.array([1, 2]), [1, 2]),
        (list_of(STRING), ("a", None), ["a", None]),
        (struct_of({"a": INT64, "b": STRING}), (1, "x"), {"a": 1, "b": "x"}),
        (struct_of({"a": INT64, "b": STRING}), [("a", 1), ("b", "x")], {"a": 1, "b": "x"}),
    ],
)
def test_what_says_the_same_is_taken(type_: pa.DataType, value: Any, held: Any) -> None:
    assert array_of([value, None], type_).to_pylist() == [held, None]


NUMBERS = st.one_of(
    st.none(), st.integers(-200, 200), st.floats(), st.decimals(allow_nan=False, places=2), st.fractions(-3, 3)
)


@given(st.lists(NUMBERS, max_size=6), st.sampled_from([INT8, INT64, FLOAT32, DURATION, decimal(5, 1)]))
def test_a_column_fits_when_each_of_its_values_does(values: list[Any], type_: pa.DataType) -> None:
    def fits(given: list[Any], of: pa.DataType) -> bool:
        try:
            array_of(given, of)
        except MISFITS:
            return False
        return True

    each = [fits([value], type_) for value in values]
    assert fits(values, type_) == all(each)
    assert fits([values], list_of(type_)) == all(each)
    assert fits([{"a": value} for value in values], struct_of({"a": type_})) == all(each)


@given(st.lists(NUMBERS, max_size=6), st.sampled_from([INT8, INT64, decimal(5, 1)]))
def test_what_is_taken_is_equal(values: list[Any], type_: pa.DataType) -> None:
    try:
        made = array_of(values, type_)
    except MISFITS:
        return
    assert made.to_pylist() == values


@pytest.mark.parametrize(
    ("given_", "type_"),
    [
        (pa.array([1.0, 1e300]), FLOAT32),
        (pa.array(["1", "1e300"]), FLOAT32),
        (pa.array([None, [1e300]]), list_of(FLOAT32)),
        (pa.array([{"a": 1e300}]), struct_of({"a": FLOAT32})),
        (pa.array([{"a": [None, 1e300]}]), struct_of({"b": INT64, "a": list_of(FLOAT32)})),
    ],
)
def test_a_cast_makes_no_number_infinite(given_: pa.Array, type_: pa.DataType) -> None:
    with pytest.raises(pa.ArrowInvalid, match=r"1e\+?300 is not a value of this type"):
        cast_to(given_, type_)


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_a_cast_of_moments_loses_neither_day_nor_time(unit: str, zone: str | None) -> None:
    moments = pa.array([FIVE.replace(hour=0), None, dt.datetime(1970, 1, 1, 5)]).cast(pa.timestamp(unit))
    moments = moments if zone is None else pc.assume_timezone(moments, zone)
    assert cast_to(moments[:2], DATE).to_pylist() == [FIVE.date(), None]
    assert cast_to(moments[1:], TIME).to_pylist() == [None, FIVE.time()]
    for wrong, type_ in ((moments[1:], DATE), (moments[:2], TIME)):
        with pytest.raises(pa.ArrowInvalid, match="is not a value of this type"):
            cast_to(wrong, type_)
        with pytest.raises(pa.ArrowInvalid, match="is not a value of this type"):
            cast_to(pa.array([wrong.to_pylist()], pa.list_(wrong.type)), list_of(type_))


def test_what_is_infinite_stays_so() -> None:
    assert cast_to(pa.array([math.inf, None, 0.1]), FLOAT32).to_pylist()[:2] == [math.inf, None]
    assert cast_to(pa.array([[-math.inf]]), list_of(FLOAT32)).to_pylist() == [[-math.inf]]
