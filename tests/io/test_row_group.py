"""Stretches of a row group, cut at pages: the rows are those of a plain reading, whoever wrote the file and however."""

from __future__ import annotations

import datetime as dt
import decimal
import os
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp.io.parquet import cut, row_group
from dbsp.io.parquet.cut import bytes_of, chunk_of, read_footer
from dbsp.io.parquet.pages import ColumnPages, pages_of
from dbsp.io.parquet.row_group import RowGroup
from dbsp.io.parquet.thrift import (
    BINARY,
    DOUBLE,
    I32,
    LIST,
    STRUCT,
    TRUE,
    Struct,
    ThriftError,
    ThriftReader,
    structs,
    value,
    write_struct,
)
from tests.pace import examples

ROWS = 5_000
DAY = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
KINDS: dict[str, tuple[pa.DataType, Any]] = {
    "small": (pa.int8(), lambda n: n % 100),
    "number": (pa.int64(), lambda n: n * 7_919 % 1_000_003),
    "unsigned": (pa.uint32(), lambda n: n),
    "truth": (pa.bool_(), lambda n: n % 3 == 0),
    "real": (pa.float64(), lambda n: n / 7),
    "text": (pa.string(), lambda n: f"text {n % 40}"),
    "long": (pa.large_string(), lambda n: f"{n} is unlike any other"),
    "bytes": (pa.binary(), lambda n: bytes([n % 251])),
    "fixed": (pa.binary(4), lambda n: n.to_bytes(4, "big")),
    "money": (pa.decimal128(12, 2), lambda n: decimal.Decimal(n) / 100),
    "moment": (pa.timestamp("us", "UTC"), lambda n: DAY + dt.timedelta(seconds=n)),
    "nanos": (pa.timestamp("ns"), lambda n: n * 1_000_001),
    "day": (pa.date32(), lambda n: dt.date(2026, 1, 1) + dt.timedelta(days=n % 900)),
    "span": (pa.duration("us"), lambda n: dt.timedelta(seconds=n)),
}


def rows_of(kinds: list[str], nulls: bool, rows: int = ROWS) -> pa.Table:
    """Columns of these kinds, every fifth value a null if there are some."""
    columns = {
        kind: pa.array([None if nulls and n % 5 == 0 else KINDS[kind][1](n) for n in range(rows)], KINDS[kind][0])
        for kind in kinds
    }
    return pa.table(columns)


def opened(path: Path, columns: list[str], number: int = 0) -> RowGroup:
    """The row group of a file."""
    with pq.ParquetFile(path) as file:
        return RowGroup(path, file, number, columns)


def was_cut(group: RowGroup) -> bool:
    """Whether all was read without decoding the whole row group."""
    return group._whole is None


@pytest.fixture(autouse=True)
def _short_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_group, "ROWS_SAVED_MIN", 900)
    monkeypatch.setattr(row_group, "SURPLUS_MAX", 1e9)


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data())
def test_a_stretch_is_that_of_a_plain_reading(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    draw = data.draw
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4, unique=True))
    path = tmp_path_factory.mktemp("cut") / "rows.parquet"
    pq.write_table(
        rows_of(kinds, draw(st.booleans())), path, row_group_size=draw(st.sampled_from([ROWS, 2_000])),
        compression=draw(st.sampled_from(["none", "snappy", "gzip", "zstd", "lz4", "brotli"])),
        use_dictionary=draw(st.booleans()), dictionary_pagesize_limit=draw(st.sampled_from([64, 1 << 20])),
        data_page_version=draw(st.sampled_from(["1.0", "2.0"])), data_page_size=draw(st.sampled_from([500, 1 << 20])),
        write_batch_size=draw(st.sampled_from([64, 1_000])), write_page_checksum=draw(st.booleans()),
        write_page_index=draw(st.booleans()), write_statistics=draw(st.booleans()),
        store_schema=draw(st.booleans()), store_decimal_as_integer=draw(st.booleans()),
    )  # fmt: skip
    wanted = draw(st.permutations(kinds))
    with pq.ParquetFile(path) as file:
        plain = file.read_row_group(0, columns=kinds).select(wanted)
    group = opened(path, wanted)
    for _ in range(3):
        first = draw(st.integers(0, group.rows - 1))
        last = draw(st.integers(first + 1, min(group.rows, first + 1 + group.rows // 2)))
        found = group.read(first, last)
        assert found.cast(plain.schema).equals(plain.slice(first, last - first))
    assert was_cut(group)


def test_a_file_of_another_writer(tmp_path: Path) -> None:
    path = tmp_path / "duck.parquet"
    duckdb.connect().sql(
        f"copy (select i, i % 7 as few, case when i % 3 = 0 then null else 'text ' || (i % 50) end as text,"
        f" i::decimal(18, 3) / 4 as money from range(300000) t(i)) to '{path}' (row_group_size 200000)"
    )
    for number, first, last in ((0, 100_000, 150_000), (1, 0, 1), (1, 70_001, 76_960)):
        group = opened(path, ["text", "i", "few", "money"], number)
        with pq.ParquetFile(path) as file:
            plain = file.read_row_group(number, columns=["i", "few", "text", "money"])
        plain = plain.select(["text", "i", "few", "money"]).slice(first, last - first)
        assert group.read(first, last).cast(plain.schema).equals(plain)
        assert was_cut(group)


def test_what_cannot_be_cut_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = pa.table({"a": pa.array(range(ROWS)), "b": pa.array([[n] for n in range(ROWS)])})
    path = tmp_path / "lists.parquet"
    pq.write_table(plain, path, data_page_size=500, write_batch_size=64)
    lists = opened(path, ["a", "b"])
    assert lists.read(10, 20).equals(plain.slice(10, 10))
    assert not was_cut(lists)

    much = opened(path, ["a"])
    assert much.read(10, ROWS - 100).num_rows == ROWS - 110
    assert not was_cut(much)
    assert much.read(10, 20).equals(plain.select(["a"]).slice(10, 10))

    monkeypatch.setattr(row_group, "SURPLUS_MAX", 1.5)
    coarse = tmp_path / "coarse.parquet"
    pq.write_table(plain.select(["a"]), coarse)
    group = opened(coarse, ["a"])
    assert group.read(10, 20).equals(plain.select(["a"]).slice(10, 10))
    assert not was_cut(group)

    monkeypatch.setattr(cut, "FOOTER_BYTES_MAX", 10)
    endless = opened(path, ["a"])
    assert endless.read(10, 20).equals(plain.select(["a"]).slice(10, 10))
    assert not was_cut(endless)


def test_a_column_within_another_is_not_taken_for_one_of_its_name(tmp_path: Path) -> None:
    inner = pa.array([{"x": str(n), "y": {"z": n}} for n in range(ROWS)])
    plain = pa.table({"s": inner, "x": pa.array(range(ROWS)), "z": pa.array([float(n) for n in range(ROWS)])})
    path = tmp_path / "nested.parquet"
    pq.write_table(plain, path, data_page_size=500, write_batch_size=64)
    group = opened(path, ["z", "x"])
    assert group.read(100, 200).equals(plain.select(["z", "x"]).slice(100, 100))
    assert was_cut(group)


def test_a_damaged_page_is_an_error_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(
        rows_of(["number"], nulls=False), path, data_page_size=500, write_batch_size=64, use_dictionary=False
    )
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2 : len(whole) // 2 + 3_000] = bytes(3_000)
    path.write_bytes(whole)
    with pytest.raises((OSError, pa.ArrowException)):
        opened(path, ["number"]).read(10, ROWS - 1_500)


def test_the_pages_are_all_found(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(rows_of(["number", "text"], nulls=True), path, data_page_size=500, write_batch_size=64)
    with path.open("rb") as file:
        footer = read_footer(file.fileno(), os.fstat(file.fileno()).st_size)
        assert footer is not None
        for number in range(2):
            at, size = bytes_of(chunk_of(footer, 0, number))
            pages = pages_of(file.fileno(), at, size, ROWS)
            assert pages.places[-1] == at + size
            assert pages.rows[0] == 0
            assert pages.rows[-1] == ROWS
            assert len(pages.rows) > 10
            with pytest.raises(ThriftError, match="do not have the rows of their row group"):
                pages_of(file.fileno(), at, size, ROWS + 1)


@given(first=st.integers(0, 99), size=st.integers(1, 100), begins=st.lists(st.integers(0, 99), max_size=5))
def test_pages_over_rows_hold_them_and_begin_and_end_with_some(first: int, size: int, begins: list[int]) -> None:
    rows = (0, *sorted(begins), 100)
    last = min(100, first + size)
    found = ColumnPages(dictionary=None, places=tuple(range(len(rows))), rows=rows).over(first, last)
    assert found.first <= first < last <= found.last
    inside = [r for r in rows if found.first < r < found.last]
    assert (rows[found.at], rows[found.end]) == (found.first, found.last)
    assert not inside or (min(inside) > first and max(inside) < last)


KIND_OF_VALUE = st.one_of(
    st.tuples(st.just(I32), st.integers(-(1 << 31), (1 << 31) - 1)),
    st.tuples(st.just(BINARY), st.binary(max_size=300)),
    st.tuples(st.just(DOUBLE), st.floats(allow_nan=False)),
    st.tuples(st.just(TRUE), st.just(value=True)),
    st.tuples(st.just(LIST), st.tuples(st.just(I32), st.lists(st.integers(0, 9), max_size=20))),
)
FIELDS = st.dictionaries(st.integers(1, 40), KIND_OF_VALUE, max_size=6)


@given(
    FIELDS,
    st.dictionaries(st.integers(1, 200), st.tuples(st.just(STRUCT), FIELDS), max_size=3),
    st.lists(FIELDS, max_size=20),
)
def test_structures_are_read_as_they_were_written(flat: Struct, deep: Struct, many: list[Struct]) -> None:
    fields = flat | deep | {250: (LIST, (STRUCT, many))}
    written = write_struct(fields)
    reader = ThriftReader(written + b"more")
    assert reader.struct() == fields
    assert reader.at == len(written)
    assert structs(fields, 250) == many
    with pytest.raises(ThriftError):
        value(fields, 250, I32)
    with pytest.raises(ThriftError):
        value(fields, 251, I32)
    for end in range(0, len(written), 7):
        with pytest.raises(ThriftError):
            ThriftReader(written[:end]).struct()


@given(st.binary(max_size=60))
def test_any_bytes_are_a_structure_or_refused(data: bytes) -> None:
    try:
        ThriftReader(data).struct()
    except ThriftError:
        return


def test_random_numbers_are_written_as_pyarrow_reads_them(tmp_path: Path) -> None:
    """The footer of a file, read and written again, is the same bytes."""
    path = tmp_path / "rows.parquet"
    numbers = np.random.default_rng(7).integers(-(1 << 62), 1 << 62, ROWS)
    pq.write_table(pa.table({"n": numbers, "s": numbers.astype(str)}), path)
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - length : -8]
    assert write_struct(ThriftReader(footer).struct()) == footer
