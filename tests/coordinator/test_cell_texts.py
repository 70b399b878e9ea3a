"""Texts that Arrow makes of whole columns read back as the JSON values that Python makes of each value."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dbsp.coordinator.http import cell_texts
from dbsp.coordinator.http.cell_texts import csv_texts, json_texts, list_rows, object_rows
from dbsp.coordinator.http.rendering import plain
from dbsp.errors import ConfigError
from dbsp.zset import schema as t
from tests.pace import examples

texts = st.text(st.characters(codec="utf-8")) | st.sampled_from(
    ["", '"', "\\", "\n\r\t\x00\x1f\x7f", "\u2028</script>", "null"]
)
moments = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)) | st.just(dt.datetime(2024, 2, 29, 10))
PLAIN: dict[pa.DataType, st.SearchStrategy[Any]] = {
    t.BOOL: st.booleans(), t.INT8: st.integers(-128, 127), t.INT64: st.integers(-(2**63), 2**63 - 1),
    t.UINT64: st.integers(0, 2**64 - 1), t.FLOAT32: st.floats(width=32), t.FLOAT64: st.floats(),
    t.decimal(9, 2): st.decimals(-(10**6), 10**6, places=2), t.decimal(38, 0): st.integers(-(10**37), 10**37).map(int),
    t.decimal(20, 18): st.decimals(-10, 10, places=18), t.STRING: texts, t.BINARY: st.binary(max_size=5),
    t.DATE: moments.map(dt.datetime.date),
    t.TIME: moments.map(dt.datetime.time), t.TIMESTAMP: moments,
    t.TIMESTAMP_UTC: moments.map(lambda at: at.replace(tzinfo=dt.UTC)),
    t.DURATION: st.timedeltas(dt.timedelta(-9999), dt.timedelta(9999)),
    pa.timestamp("ms", "Europe/Paris"): st.just(dt.datetime(2024, 2, 29, 10, tzinfo=dt.UTC)), pa.null(): st.none(),
    pa.map_(t.STRING, t.INT64): st.dictionaries(st.text("ab"), st.integers(0, 9)).map(lambda found: list(found.items())),
}  # fmt: skip


@st.composite
def columns(draw: st.DrawFn) -> pa.ChunkedArray:
    """A column of some type, perhaps within lists and structs, in several chunks."""
    type_: Any = draw(st.sampled_from(list(PLAIN)))
    values = PLAIN[type_]
    for kind in draw(st.lists(st.sampled_from(["list", "struct"]), max_size=2)):
        values = st.none() | values
        if kind == "list":
            type_, values = pa.list_(type_), st.lists(values, max_size=3)
        else:
            type_ = pa.struct([("a", type_), ('b "c"', t.INT64)])
            values = st.fixed_dictionaries({"a": values, 'b "c"': st.integers(0, 9)})
    chunks = draw(st.lists(st.lists(st.none() | values, max_size=4), min_size=1, max_size=3))
    whole = pa.chunked_array([pa.array(chunk, type_) for chunk in chunks], type_)
    return whole.slice(draw(st.integers(0, 2)))


@settings(max_examples=examples(150), deadline=None)
@example(
    pa.chunked_array([pa.array([dt.datetime(2024, 2, 29, 10, tzinfo=dt.UTC)], pa.timestamp("ms", "Europe/Paris"))])
)
@given(columns())
def test_texts_are_the_values(column: pa.ChunkedArray) -> None:
    wanted = plain(column.to_pylist())
    found = [json.loads(text) for text in json_texts(column, "x").to_pylist()]
    assert list(map(repr, found)) == list(map(repr, json.loads(json.dumps(wanted))))
    for text, value in zip(csv_texts(column).to_pylist(), wanted, strict=True):
        if isinstance(value, list | dict):
            assert json.loads(text) == value
        elif not isinstance(value, float | bool):
            assert text is None if value is None else str(text) == str(value)


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(st.tuples(texts, st.none() | st.integers(0, 9)), max_size=20), st.integers(1, 5), st.integers(1, 40))
def test_rows_are_cut_anywhere(rows: list[tuple[str, int | None]], most: int, size: int) -> None:
    table = pa.table(
        [pa.array([a for a, _ in rows], t.STRING), pa.array([b for _, b in rows], t.INT64)], names=["a", 'b "c"']
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cell_texts, "TEXT_ROWS", most)
        patch.setattr(cell_texts, "TEXT_BYTES", size)
        assert together(object_rows(table)) == table.to_pylist()
        assert together(list_rows(table)) == [list(row) for row in rows]


def together(pieces: Iterator[bytes]) -> Any:
    return json.loads(b"[%s]" % b",".join(pieces))


def test_two_columns_of_one_name() -> None:
    table = pa.table([pa.array([1]), pa.array([2]), pa.array([3])], names=["x", "y", "x"])
    assert together(list_rows(table)) == [[1, 2, 3]]
    assert together(object_rows(table)) == [{"x": 1, "y": 2, "x_1": 3}]


@pytest.mark.parametrize("type_", [t.DATE, t.TIMESTAMP, t.TIMESTAMP_UTC])
def test_a_day_that_no_calendar_has_is_refused(type_: pa.DataType) -> None:
    days = pa.chunked_array([pa.array([4_000_000], pa.int32()).cast(t.DATE).cast(type_)])
    with pytest.raises(ConfigError, match="a day outside the years 1 to 9999 cannot be shown: column=x"):
        json_texts(days, "x")


def test_a_fraction_that_is_cut_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = pa.chunked_array([pa.array([dt.datetime(2024, 2, 29, 10, 0, 0, 500)])])
    assert json_texts(moment, "x").to_pylist() == ['"2024-02-29 10:00:00.000500"']
    monkeypatch.setattr(cell_texts, "pc", _CutsFractions())
    assert json_texts(moment, "x").to_pylist() != ['"2024-02-29 10:00:00.000500"']


class _CutsFractions:
    def __getattr__(self, name: str) -> Any:
        return getattr(pc, name)

    def replace_substring_regex(self, text: pa.Array, _pattern: str, _by: str) -> pa.Array:
        return pc.replace_substring_regex(text, r"\.[0-9]*$", "")
