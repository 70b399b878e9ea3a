"""Texts of spans denote the spans that Python and PostgreSQL write so."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp.zset.schema import DURATION
from dbsp.zset.span_texts import spans_of_texts

SPANS = st.timedeltas(dt.timedelta(-99_999_999), dt.timedelta(99_999_999))


def postgres(span: dt.timedelta) -> str:
    """Return a span as PostgreSQL's style of intervals has it."""
    sign, rest = ("-", -span) if span < dt.timedelta() else ("", span)
    clock = (
        f"{sign}{rest.seconds // 3600:02}:{rest.seconds // 60 % 60:02}:{rest.seconds % 60:02}.{rest.microseconds:06}"
    )
    return f"{sign}{rest.days} days {clock}" if rest.days else clock


def iso(span: dt.timedelta) -> str:
    sign, rest = ("-", -span) if span < dt.timedelta() else ("", span)
    return f"{sign}P{rest.days}DT{rest.seconds // 60}M{rest.seconds % 60}.{rest.microseconds:06}S"


@given(st.lists(st.none() | SPANS))
def test_written_spans_are_read_as_the_same(spans: list[dt.timedelta | None]) -> None:
    wanted = pa.array(spans, DURATION)
    for write in (str, postgres, iso):
        texts = pa.array([None if span is None else write(span) for span in spans], pa.string())
        assert spans_of_texts(texts).equals(wanted), write


@pytest.mark.parametrize(
    ("text", "micros"),
    [("3 days", 259_200_000_000), ("1 day", 86_400_000_000), ("36:00:00", 129_600_000_000), ("+0:00:00.5", 500_000),
     ("-1 day, 23:00:00", -3_600_000_000), ("PT1H30M", 5_400_000_000), ("P1D", 86_400_000_000), ("PT0.25S", 250_000),
     ("106751991 days, 4:00:54.775807", 2**63 - 1)],
)  # fmt: skip
def test_forms(text: str, micros: int) -> None:
    assert spans_of_texts(pa.array([text]))[0].value == micros


@pytest.mark.parametrize(
    "text",
    ["", "1", "1.5", "day", "1 day,", "1 month", "1 year 2 days", "1:60:00", "1:00", "0:00:00.1234567", "P", "PT", "P1DT", "P1M",
     "P1W", "999999999 days", "999999999999:00:00", "1 day, 1 day", " 0:00:01", "0:00:01 "],
)  # fmt: skip
def test_other_texts_are_no_spans(text: str) -> None:
    with pytest.raises(pa.ArrowInvalid):
        spans_of_texts(pa.array(["0:00:01", text]))
