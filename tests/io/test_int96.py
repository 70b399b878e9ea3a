"""Parquet's INT96 timestamps: every year of the calendar, as UTC where a column wants a zone, and nothing cut from them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbsp
from dbsp.io.imported_file import ImportedFileReader, examine_file
from dbsp.io.parquet import cut, row_group
from dbsp.io.pushed import Push
from dbsp.zset import given as rules
from tests.io.test_file_columns import FromFiles
from tests.pace import examples

NAIVE = dbsp.table("t", {"n": dbsp.INT64, "at": dbsp.TIMESTAMP}).node
ZONED = dbsp.table("t", {"n": dbsp.INT64, "at": dbsp.TIMESTAMP_UTC}).node
EDGES = [dt.datetime.min, dt.datetime(1677, 9, 21), dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), None,
         dt.datetime(2262, 4, 12), dt.datetime.max]  # fmt: skip
moments = st.none() | st.sampled_from(EDGES) | st.datetimes()


def as_int96(values: list[Any], type_: pa.DataType = dbsp.TIMESTAMP) -> pa.Table:
    return pa.table({"n": range(len(values)), "at": pa.array(values, type_)})


def written(path: Path, rows: pa.Table, **options: Any) -> Path:
    pq.write_table(rows, path, use_deprecated_int96_timestamps=True, **options)
    with pq.ParquetFile(path) as file:
        assert file.schema.column(1).physical_type == "INT96"
    return path


def read(path: Path, table: Any, first: int = 0, last: int | None = None) -> Push:
    imported = examine_file(path, table)
    return ImportedFileReader(table).read(path, imported, first, imported.rows if last is None else last)


def utc(at: dt.datetime | None) -> dt.datetime | None:
    return at and at.replace(tzinfo=dt.UTC)


def check_all_years(folder: Path, values: list[Any], first: int, store_schema: bool) -> None:
    path = written(folder / "1.parquet", as_int96(values), store_schema=store_schema, data_page_size=16)
    expected = values[first:]
    naive, zoned = (read(path, table, first, len(values)) for table in (NAIVE, ZONED))
    assert (naive.bad, naive.batch.columns[1].to_pylist()) == ((), expected)
    assert (zoned.bad, zoned.batch.columns[1].to_pylist()) == ((), list(map(utc, expected)))


@pytest.mark.parametrize("cutting", [False, True])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(48), deadline=None)
@given(values=st.lists(moments, min_size=1, max_size=8), first=st.integers(0, 7), store_schema=st.booleans())
def test_every_year_is_read_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: list[Any], first: int, store_schema: bool, cutting: bool
) -> None:
    monkeypatch.setattr(row_group, "ROWS_SAVED_MIN", 0 if cutting else 1 << 16)
    monkeypatch.setattr(row_group, "SURPLUS_MAX", 1e9)
    check_all_years(tmp_path, values, min(first, len(values) - 1), store_schema)


def check_parts(folder: Path) -> None:
    """A part of a microsecond is not cut, whatever columns are wanted and however the rows are read."""
    nanos = pa.array([1_000, 1_001, None, -1, -1_000], pa.timestamp("ns"))
    path = written(folder / "1.parquet", pa.table({"n": range(5), "at": nanos}), data_page_size=8, write_batch_size=1)
    for table in (NAIVE, ZONED):
        push = read(path, table)
        assert push.batch.columns[0].to_pylist() == [0, 2, 4]
        assert [(row.index, "column at" in row.reason) for row in push.bad] == [(1, True), (3, True)]
        some = ImportedFileReader(table).read(path, examine_file(path, table), 0, 5, frozenset({"n"}))
        assert (some.bad, some.batch.columns[0].to_pylist()) == (push.bad, [0, 2, 4])


@pytest.mark.parametrize("cutting", [False, True])
def test_no_part_of_a_microsecond_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cutting: bool) -> None:
    monkeypatch.setattr(row_group, "ROWS_SAVED_MIN", 0 if cutting else 1 << 16)
    monkeypatch.setattr(row_group, "SURPLUS_MAX", 1e9)
    check_parts(tmp_path)


def check_pipeline(folder: Path) -> None:
    """A file as Spark writes it, through the input, the step and the output that the service opens."""
    table = dbsp.table("t", {"n": dbsp.INT64, "at": dbsp.TIMESTAMP_UTC})
    pipeline = FromFiles(folder, dbsp.circuit("c", {"v": table}, materialize=False))
    written(pipeline.home / "in" / "t" / "spark.parquet", as_int96(EDGES), store_schema=False)
    pipeline.step(0, [])
    pipeline.close()
    assert {line["n"]: line["at"] for line in pipeline.out("v")} == dict(enumerate(map(utc, EDGES)))


def test_a_file_of_spark_passes_the_pipeline(tmp_path: Path) -> None:
    check_pipeline(tmp_path)


def as_nanoseconds(patch: pytest.MonkeyPatch) -> None:
    for module in (row_group, cut):
        patch.setattr(module, "COARSE", {})


def cut_to_microseconds(patch: pytest.MonkeyPatch) -> None:
    for module in (row_group, cut):
        patch.setattr(module, "with_parts", lambda found, *_: found)


def zones_must_be_equal(patch: pytest.MonkeyPatch) -> None:
    original = rules.takes

    def takes(wanted: pa.DataType, found: pa.DataType) -> bool:
        return original(wanted, found) and not (wanted == dbsp.TIMESTAMP_UTC and getattr(found, "tz", "") is None)

    patch.setattr("dbsp.io.imported_file.takes", takes)


@pytest.mark.parametrize(
    ("plant", "check"),
    [
        (as_nanoseconds, lambda folder: check_all_years(folder, EDGES, 0, False)),
        (as_nanoseconds, check_pipeline),
        (cut_to_microseconds, check_parts),
        (zones_must_be_equal, check_pipeline),
    ],
)
def test_a_broken_rule_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Callable[[Any], None], check: Callable[[Path], None]
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check(tmp_path)
