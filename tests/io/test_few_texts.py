"""Texts that repeat are read as numbers of a dictionary and stay that: the rows are those of a plain reading."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbsp.algebra.table import Table
from dbsp.io.imported_file import ImportedFileReader, examine_file
from dbsp.io.parquet.few_texts import few_texts
from dbsp.zset.coded import is_coded
from dbsp.zset.schema import INT64, STRING, Column, Schema

ROWS = 40_000
SCHEMA = Schema((Column("few", STRING), Column("all", STRING), Column("late", STRING), Column("number", INT64)))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A column of few texts, one of which every text is another, one that has many in its second half, one of numbers."""
    columns = {
        "few": pa.array([None if row % 7 == 0 else f"text {row % 50}" for row in range(ROWS)]),
        "all": pa.array([f"no text like number {row} " * 3 for row in range(ROWS)]),
        "late": pa.array([f"text {row if row > ROWS // 2 else row % 50} is longer " * 3 for row in range(ROWS)]),
        "number": pa.array(range(ROWS), pa.int64()),
    }
    path = tmp_path_factory.mktemp("few") / "rows.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=ROWS // 2 + 1000)
    return path


def test_only_columns_that_repeat_are_read_as_numbers(file: Path) -> None:
    with pq.ParquetFile(file) as opened:
        assert few_texts(opened, 0, SCHEMA.names) == ["few", "late"]
        assert few_texts(opened, 1, SCHEMA.names) == ["few"]
        assert few_texts(opened, 0, ["all", "number"]) == []


def test_short_row_groups_and_other_types_are_read_as_they_are(tmp_path: Path) -> None:
    for name, type_, rows in (
        ("few", pa.string(), 100),
        ("large", pa.large_string(), ROWS),
        ("bytes", pa.binary(), ROWS),
    ):
        pq.write_table(pa.table({"a": pa.array(["x"] * rows, type_)}), tmp_path / name)
        with pq.ParquetFile(tmp_path / name) as opened:
            assert few_texts(opened, 0, ["a"]) == []


@pytest.mark.parametrize(("first", "last"), [(0, ROWS), (0, 1), (ROWS // 3, ROWS // 2 + 2000), (ROWS - 1, ROWS)])
def test_rows_are_those_of_a_plain_reading(file: Path, first: int, last: int) -> None:
    table = Table(name="t", schema=SCHEMA)
    push = ImportedFileReader(table).read(file, examine_file(file, table), first, last)
    expected = pq.read_table(file).slice(first, last - first)
    assert [column.to_pylist() for column in push.batch.columns] == [column.to_pylist() for column in expected.columns]
    assert {column.type for column in push.batch.columns} == {pa.string(), pa.int64()}
    assert [is_coded(column) for column in push.batch.held][1::2] == [False, False]
    assert is_coded(push.batch.held[0])
