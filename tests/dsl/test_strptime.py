"""Texts as moments: those that exist are read as Python reads them, all others fail their rows."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import dbsp
from dbsp import col
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.outcomes import outcomes
from dbsp.expr.resolving import resolve
from dbsp.zset.batch import Batch
from dbsp.zset.schema import Schema
from tests.pace import examples

SCHEMA = Schema.of({"x": dbsp.STRING})
FAILS = "fails"
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
FORMS = {
    "%Y-%m-%d %H:%M:%S": "{y:04}-{m:02}-{d:02} {h:02}:{i:02}:{s:02}",
    "%d.%m.%Y": "{d}.{m}.{y:04}",
    "%d.%m.%Y %H:%M": " {d}.{m}.{y:04} {h}:{i}",
    "%Y%m%d%H%M%S": "{y:04}{m:02}{d:02}{h:02}{i:02}{s:02}",
    "%FT%TZ": "{y:04}-{m:02}-{d:02}T{h:02}:{i:02}:{s:02}Z",
    "[%d/%b/%Y:%H:%M:%S %z]": "[{d:02}/{b}/{y:04}:{h:02}:{i:02}:{s:02} {o}]",
    "%Y-%m-%dT%H:%M:%S%z": "{y:04}-{m:02}-{d:02}T{h:02}:{i:02}:{s:02}{o}",
}
OFFSETS = {"Z": 0, "+0200": 120, "-05:30": -330, "+01": 60}
Parts = tuple[int, int, int, int, int, int, str]

parts = st.tuples(
    st.integers(1900, 2100) | st.sampled_from([1900, 2000, 2023, 2024, 2029, 2030]),
    st.integers(1, 12),
    st.integers(1, 31) | st.integers(28, 31),
    st.integers(0, 23),
    st.integers(0, 59),
    st.integers(0, 59) | st.integers(59, 61),
    st.sampled_from(list(OFFSETS)),
)


def ours(format_: str, texts: list[str | None]) -> list[Any]:
    """Each text as a moment."""
    expression = resolve(unwrap(col("x").strptime(format_)), SCHEMA)
    values, reasons = outcomes(expression, Batch.of(SCHEMA, [pa.array(texts, dbsp.STRING)]))
    return [FAILS if row in reasons else value for row, value in enumerate(values.to_pylist())]


def moment(format_: str, shown: Parts) -> Any:
    """The moment, as far as the format shows it, in UTC."""
    year, month, day, hour, minute, second, offset = shown
    hour, minute = (hour, minute) if "%H" in format_ or "%T" in format_ else (0, 0)
    second = second if "%S" in format_ or "%T" in format_ else 0
    try:
        local = dt.datetime(year, month, day, hour, minute, second)
    except ValueError:
        return FAILS
    return local - dt.timedelta(minutes=OFFSETS[offset] if "%z" in format_ else 0)


@pytest.mark.parametrize("format_", FORMS)
@settings(max_examples=examples(60))
@given(st.lists(parts, min_size=1, max_size=6))
@example([(2024, 4, 31, 0, 0, 0, "Z"), (2023, 2, 30, 23, 59, 60, "+0200"), (2024, 2, 29, 1, 0, 61, "+01")])
def test_a_moment_that_exists_is_read_and_no_other(format_: str, rows: list[Parts]) -> None:
    texts = [FORMS[format_].format(y=y, m=m, b=MONTHS[m - 1], d=d, h=h, i=i, s=s, o=o) for y, m, d, h, i, s, o in rows]
    assert ours(format_, [*texts, None]) == [*(moment(format_, row) for row in rows), None]


@pytest.mark.parametrize(
    ("format_", "text", "expected"),
    [
        ("%Y-%j", "2024-366", dt.datetime(2024, 12, 31)),
        ("%Y-%j", "2023-366", FAILS),
        ("%Y-%j", "2023-070", dt.datetime(2023, 3, 11)),
        ("%Y %W %u", "2024 05 1", dt.datetime(2024, 1, 29)),
        ("%d %B %Y", "31 april 2024", FAILS),
        ("%d %B %Y", "1 feb 2024", dt.datetime(2024, 2, 1)),
        ("%y-%m-%d", "29-02-29", FAILS),
        ("%I:%M %p %Y-%m-%d", "12:00 AM 2024-03-01", dt.datetime(2024, 3, 1)),
    ],
)
def test_days_of_the_year_weeks_and_names(format_: str, text: str, expected: Any) -> None:
    assert ours(format_, [text]) == [expected]


def test_the_row_of_a_day_that_does_not_exist_fails() -> None:
    t = dbsp.table("t", {"x": dbsp.STRING})
    day = col("x").strptime("%d.%m.%Y")
    with dbsp.open(dbsp.circuit("q", {"v": t.select(d=day), "n": t.select(d=day.or_null())})) as run:
        run.push("t", [{"x": "31.04.2024"}, {"x": "30.04.2024"}])
        step = run.step()
        assert step["v"].to_rows() == [((dt.datetime(2024, 4, 30),), 1)]
        assert sorted(step["n"].to_rows(), key=str) == [((None,), 1), ((dt.datetime(2024, 4, 30),), 1)]
        assert [row.reason for row in run.dead_letters()] == [
            "Failed to parse string: '31.04.2024' is no day and time that exists"
        ]
