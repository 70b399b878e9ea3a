"""CSV, TSV and packed text as input: every record once, the same however a file is cut, and as other readers see it."""

from __future__ import annotations

import csv
import datetime
import io
from collections.abc import Sequence
from contextlib import closing
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dbsp.algebra.table import Table
from dbsp.io import texts
from dbsp.io.formats.csv_rows import decode_records, header_of, record_starts
from dbsp.io.imported_file import ImportedFileReader, examine_file
from dbsp.io.pushed import Push
from dbsp.logs import Range
from dbsp.zset.schema import (
    BOOL,
    DATE,
    FLOAT64,
    INT64,
    STRING,
    TIMESTAMP,
    Column,
    Schema,
    decimal,
    list_of,
)
from tests.io.log_samples import OTHER
from tests.io.test_file_input import Landing, dead, ids, land

TEXTS = Table(name="texts", schema=Schema.of([Column("a", STRING), Column("b", STRING), Column("n", INT64)]))
VALUES = st.one_of(st.none(), st.text(st.sampled_from('",\n\r\t ax'), max_size=6), st.text(max_size=4))
MARK = b"\xef\xbb\xbf"
PIECES = [b'"', b",", b"\n", b"\r", b"a", b"1", b" ", b"\xff", b"\x85", b"\xc3\xbc", MARK]
ROWS = st.lists(st.tuples(VALUES, VALUES, st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))), max_size=8)


def written(rows: Sequence[Sequence[Any]], delimiter: str, end: str) -> bytes:
    """As RFC 4180 has it: texts in quotes, so that an empty one is told from none."""
    lines = [delimiter.join(("b", "n", "other", "a"))]
    for a, b, n in rows:
        cells = (
            "" if x is None else str(x) if isinstance(x, int) else '"' + x.replace('"', '""') + '"'
            for x in (b, n, 7, a)
        )
        lines.append(delimiter.join(cells))
    return end.join(lines).encode()


def read(path: Path, table: Table, cuts: Sequence[int]) -> list[Push]:
    """The stretches between the cuts."""
    imported = examine_file(path, table)
    places = sorted({0, imported.rows, *(cut % (imported.rows + 1) for cut in cuts)})
    reader = ImportedFileReader(table)
    return [reader.read(path, imported, first, last) for first, last in pairwise(places)]


def good(pushes: Sequence[Push]) -> list[tuple[Any, ...]]:
    return [row for push in pushes for row, _ in push.batch.to_rows()]


def bad(pushes: Sequence[Push]) -> list[tuple[int, str, str]]:
    found, base = [], 0
    for push in pushes:
        found += [(base + row.index, row.reason, row.payload) for row in push.bad]
        base += push.rows
    return found


@given(
    ROWS, st.sampled_from([".csv", ".tsv"]), st.sampled_from(["\n", "\r\n", "\r", "\n\n"]), st.lists(st.integers(0, 9))
)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, ...]], ending: str, end: str, cuts: list[int]
) -> None:
    path = tmp_path_factory.mktemp("texts") / f"1{ending}"
    path.write_bytes(written(rows, {".csv": ",", ".tsv": "\t"}[ending], end))
    pushes = read(path, TEXTS, cuts)
    assert good(pushes) == rows
    assert bad(pushes) == []


@given(st.lists(st.sampled_from(PIECES), max_size=60).map(b"".join), st.lists(st.integers(0, 9)))
@example(b'1,5" disk,2\n3,"x,4\n5,6,7"\n', [1])
@example(b'"a"b,1,2\n"",3,""""\n"\n', [1, 2])
@example(b"1,2\r3,4\r\n5,6", [1])
@example(b"x,y,1\n" + MARK + b"x,y,1\n" + MARK + b"\n", [1, 2])
@example(b"x,y,1\nx,\xe8,1,2\n\xff\nx,\xff,1\n", [2])
def test_any_bytes_are_the_same_rows_however_they_are_cut(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, cuts: list[int]
) -> None:
    path = tmp_path_factory.mktemp("texts") / "1.csv"
    path.write_bytes(b"a,b,n\n" + content)
    whole, cut = read(path, TEXTS, []), read(path, TEXTS, cuts)
    assert good(whole) == good(cut)
    assert bad(whole) == bad(cut)


@given(ROWS)
def test_records_that_are_read_are_those_of_pythons_reader(rows: list[tuple[Any, ...]]) -> None:
    data = written(rows, ",", "\r\n")
    begin = record_starts(np.frombuffer(data, np.uint8), ",")[1]
    header, body = header_of(data[:begin], ","), data[begin:]
    found = decode_records(body, record_starts(np.frombuffer(body, np.uint8), ","), header, header, ",")
    theirs = list(csv.reader(io.StringIO(body.decode(), newline="")))
    assert [[(x or b"").decode() for x in row.values()] for row in found.values.to_pylist()] == theirs


def test_duckdb_reads_the_same(tmp_path: Path) -> None:
    schema = Schema.of([
        Column("id", INT64, nullable=False), Column("paid", decimal(9, 2)), Column("moment", TIMESTAMP), Column("day", DATE),
        Column("paying", BOOL), Column("x", FLOAT64), Column("name", STRING),
    ])  # fmt: skip
    path = tmp_path / "1.csv"
    path.write_text(
        "name,id,paid,moment,day,paying,x\n"
        '"Smith, ""J""",1,3.50,2026-01-02 03:04:05.25,2026-01-02,true,1e-3\n'
        "Ünal,2,,,,false,\n"
        '"two\nlines",3,-0.07,1969-12-31 23:59:59,1900-02-28,TRUE,-inf\n'
    )
    theirs = duckdb.connect()
    theirs.execute(
        f"select id, paid, moment, day, paying, x, name from read_csv('{path}', header=true, columns={{'name': 'VARCHAR', 'id': "
        "'BIGINT', 'paid': 'DECIMAL(9,2)', 'moment': 'TIMESTAMP', 'day': 'DATE', 'paying': 'BOOLEAN', 'x': 'DOUBLE'})"
    )
    found = read(path, Table(name="t", schema=schema), [1])
    (first, *_) = [row for push in found for row in push.batch.to_arrow("w").to_pylist()]
    assert first["paid"] == Decimal("3.50")
    assert first["moment"] == datetime.datetime(2026, 1, 2, 3, 4, 5, 250000)
    assert [
        tuple(row.values())[:-1] for push in found for row in push.batch.to_arrow("w").to_pylist()
    ] == theirs.fetchall()


def test_bad_records_are_shown_as_they_came(tmp_path: Path) -> None:
    table = Table(
        name="t", schema=Schema.of([Column("id", INT64, nullable=False), Column("name", STRING, nullable=False)])
    )
    path = tmp_path / "1.csv"
    path.write_bytes(b'id,name\n1,a\n2\n3,b,c\nfour,d\n,e\n5,\n6,"x"y\n7,\xff\n2,\xe8,c\n"\xff,""\n"\n8,"open\n9,g\n')
    pushes = read(path, table, [])
    assert good(pushes) == [(1, "a"), (5, ""), (9, "g")]
    reasons = [(index, reason.split(":")[0], payload) for index, reason, payload in bad(pushes)]
    assert reasons == [
        (1, "values", "2"),
        (2, "values", "3,b,c"),
        (3, "column id", "four,d"),
        (4, "column id", ",e"),
        (6, "a quote inside a value, or one that does not end", '6,"x"y'),
        (7, "column name", "7,\ufffd"),
        (8, "values", "2,\ufffd,c"),
        (9, "values", '"\ufffd,""\n"'),
        (10, "a quote inside a value, or one that does not end", '8,"open'),
    ]


@given(st.lists(st.sampled_from([b"1,a\n", b'2,"b"\n', b'"3","c\nd"\n']), max_size=6), st.data())
@example([b"1,a\n"] * 3, None)
def test_a_wrong_quote_costs_its_own_line_alone(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], data: st.DataObject | None
) -> None:
    wrong = [b'4,5" pipe\n', b'4,"open\n', b'4,"5" pipe\n', b'"4"x,y\n', b'4,"an ""open"" one\n']
    broken = wrong[:1] if data is None else data.draw(st.lists(st.sampled_from(wrong), min_size=1, max_size=3))
    places = [0] if data is None else [data.draw(st.integers(0, len(lines))) for _ in broken]
    content = list(lines)
    for place, line in zip(sorted(places, reverse=True), broken, strict=True):
        content.insert(place, line)
    path = tmp_path_factory.mktemp("texts") / "1.csv"
    path.write_bytes(b"id,name\n" + b"".join(content))
    pushes = read(path, Table(name="t", schema=Schema.of([Column("id", INT64), Column("name", STRING)])), [1, 3])
    rows = {b"1,a\n": (1, "a"), b'2,"b"\n': (2, "b"), b'"3","c\nd"\n': (3, "c\nd")}
    assert good(pushes) == [rows[line] for line in lines]
    assert len(bad(pushes)) == len(broken)


@pytest.mark.parametrize("content", [MARK + b"a\nx\n%by\n%b\n", b"a\nx\n%by\n%b", MARK + b'"a"\n"x"\n%by\n%b\r\n'])
def test_a_mark_is_dropped_at_the_beginning_of_a_file_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "1.csv"
    path.write_bytes(content % (MARK, MARK))
    table = Table(name="t", schema=Schema.of([Column("a", STRING)]))
    for cuts in [], [1], [2], [1, 2]:
        pushes = read(path, table, cuts)
        assert (good(pushes), bad(pushes)) == ([("x",), ("\ufeffy",), ("\ufeff",)], [])


@pytest.mark.parametrize("packed", [False, True])
def test_a_mark_begins_no_row_of_lines(tmp_path: Path, packed: bool) -> None:
    """But further down it does; rows keep their numbers."""
    lines = b"""{"a": "x", "n": 1}\n{"n": "one"}\n\n%b{"n": 2}\n{"a": "\xef\xbb\xbf", "n": 3}\n""" % MARK
    path, marked = tmp_path / "1.jsonl", tmp_path / f"2.jsonl{'.gz' * packed}"
    path.write_bytes(lines)
    for mark in MARK, MARK + b" \n":
        with pa.output_stream(str(marked), compression="gzip" if packed else None) as file:
            file.write(mark + lines)
        for cuts in [], [1], [2], [3], [1, 2, 3]:
            plain, pushes = read(path, TEXTS, cuts), read(marked, TEXTS, cuts)
            assert good(pushes) == good(plain) == [("x", None, 1), ("\ufeff", None, 3)]
            assert bad(pushes) == bad(plain)
            assert [(index, payload) for index, _, payload in bad(pushes)] == [
                (1, '{"n": "one"}'),
                (2, '\ufeff{"n": 2}'),
            ]
    marked.write_bytes(MARK)
    assert packed or read(marked, TEXTS, []) == []


def test_operations_are_a_column(tmp_path: Path) -> None:
    path = tmp_path / "1.csv"
    path.write_bytes(b"__op,a,b,n\n0,x,y,1\n1,x,y,1\n2,x,y,1\n,x,y,1\n")
    (push,) = read(path, TEXTS, [])
    assert push.operations.tolist() == [0, 1]
    assert [reason for _, reason, _ in bad([push])] == ["__op is neither 0 nor 1"] * 2


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no header: the first record must name the columns"),
        (b'id,"name\n1,a\n', "no header: the first record must name the columns"),
        (b"name\na\n", "column id: missing"),
        (b"id,nam\n1,a\n", "column name: missing; not in the table: nam; did you mean `name`?"),
        (b"id;name\n1;a\n", "column id: missing; not in the table: id;name; values are separated by `,`, not by `;`"),
        (b"__op\n0\n", "column id: missing"),
        (b"id,name,id\n1,a,2\n", "column id: repeated"),
    ],
)
def test_a_file_that_does_not_fit_is_one_dead_letter(tmp_path: Path, content: bytes, reason: str) -> None:
    with closing(Landing(tmp_path)) as landing:
        land(landing.files / "other", "1.csv", content)
        log = landing.open()
        assert dead(log, log.ends()["other", 0]) == [(0, reason, "1.csv")]


def test_a_column_that_has_no_text_form_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "1.csv"
    path.write_bytes(b"xs\n1\n")
    table = Table(name="t", schema=Schema.of([Column("xs", list_of(INT64))]))
    assert examine_file(path, table).misfit.startswith("column xs: list")


@pytest.mark.parametrize("codec", ["gz", "bz2", "zst", "lz4"])
@pytest.mark.parametrize("ending", ["csv", "json"])
def test_packed_files_are_read_when_they_are_whole(tmp_path: Path, codec: str, ending: str) -> None:
    name = f"1.{ending}.{codec}"
    content = {"csv": b"id,name\n1,a\n2,b\n", "json": b'{"id": 1, "name": "a"}\n{"id": 2, "name": "b"}'}[ending]
    with pa.CompressedOutputStream(str(tmp_path / name), pa.Codec.detect(name).name) as stream:
        stream.write(content)
    whole = (tmp_path / name).read_bytes()
    with closing(Landing(tmp_path)) as landing:
        log = landing.open()
        place = landing.files / "other" / name
        for size in range(len(whole)):
            place.write_bytes(whole[:size])
            assert log.ends() == {("other", 0): 0}
        place.write_bytes(whole)
        assert log.ends() == {("other", 0): 2}
        assert ids(log, 0, 2) == [1, 2]
        assert ids(log, 1, 2) == [2]
        assert log.read(Range(table="other", partition=0, first=0, last=2), 0)[0].dead == ()


@pytest.mark.parametrize("codec", ["gz", "bz2", "zst", "lz4"])
def test_a_packed_file_that_becomes_too_large_is_one_dead_letter(
    tmp_path: Path, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more of it is unpacked than its bound and a piece; one that is just as large is read."""
    monkeypatch.setattr(texts, "UNPACKED_BYTES_MAX", 4000)
    monkeypatch.setattr(texts, "UNPACKED_PIECE_BYTES", 1000)
    table = Table(name="t", schema=Schema.of({"id": INT64, "name": STRING}))
    taken: list[int] = []
    pieces = texts._pieces
    monkeypatch.setattr(texts, "_pieces", lambda path: (taken.append(len(piece)) or piece for piece in pieces(path)))
    for rows, size in ((400, None), (500_000, 5000)):
        path = tmp_path / f"{rows}.csv.{codec}"
        with pa.output_stream(str(path), compression="detect") as file:
            file.write(b"id,name\n" + b"1,ab\n" * rows)
        taken.clear()
        found = examine_file(path, table)
        assert found.rows == (rows if size is None else 1)
        assert ("larger than a compressed file may be" in found.misfit) is (size is not None)
        assert size is None or sum(taken) <= size


@pytest.mark.parametrize("name", ["1.csv.gz", "1.json.bz2", "1.json.zst", "1.json.lz4"])
def test_a_packed_file_that_stays_empty_is_one_dead_letter(tmp_path: Path, name: str) -> None:
    with closing(Landing(tmp_path)) as landing:
        land(landing.files / "other", name, b"")
        assert landing.open().ends() == {("other", 0): 0}
        log = landing.open(patience_s=0)
        assert dead(log, log.ends()["other", 0]) == [(0, "not a whole file of its ending: it has no bytes", name)]


def test_packed_parquet_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "1.parquet.gz").write_bytes(b"")
    assert "files of this ending" in examine_file(tmp_path / "1.parquet.gz", OTHER).misfit
