"""Files as input: rows once and in order, whatever files, looks, restarts and ranges; files that are not what they were."""

from __future__ import annotations

import gzip
import json
import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp.algebra.table import Table
from dbsp.errors import ConfigError, DataError
from dbsp.io import file_input as module
from dbsp.io.examine import examine_files
from dbsp.io.file_input import FileInputLog
from dbsp.io.output_part import dead_letter_batch
from dbsp.logs import Range
from dbsp.zset.schema import FLOAT64, INT64, STRING, TIMESTAMP, Column, Schema, list_of, struct_of
from tests.io.log_contracts import InputLogContract
from tests.io.log_samples import OTHER, TABLE


def land(folder: Path, name: str, content: bytes | pa.Table, **options: Any) -> Path:
    """A file, put into place whole."""
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / ".beside"
    if isinstance(content, bytes):
        beside.write_bytes(content)
    else:
        pq.write_table(content, beside, **options)
    return beside.rename(folder / name)


def rows(ids: Sequence[int]) -> pa.Table:
    return pa.table({"id": pa.array(ids, INT64), "name": [f"n{i}" for i in ids]})


class Landing:
    """A pipeline's data and the folder its files come to."""

    def __init__(self, home: Path, *tables: Table, **options: Any) -> None:
        self.home, self.tables, self.options = home, tables or (OTHER,), options
        self.files = home / "landing"
        self.opened: list[FileInputLog] = []

    def open(self, **options: Any) -> FileInputLog:
        options = {"create": True, "look_every_s": 0, **self.options, **options}
        self.opened.append(FileInputLog(self.home / "data", self.tables, folder=self.files, **options))
        return self.opened[-1]

    def send(self, lines: Sequence[bytes]) -> None:
        land(self.files / "t", f"{len(list((self.files / 't').glob('*')))}.jsonl", b"\n".join(lines))

    def findings(self) -> list[str]:
        """What `doctor` says; it has the file for itself."""
        self.close()
        return [finding.what for finding in examine_files(self.home / "data", self.files)[0].findings]

    def close(self) -> None:
        while self.opened:
            self.opened.pop().close()


@pytest.fixture
def landing(tmp_path: Path) -> Iterator[Landing]:
    with closing(Landing(tmp_path)) as made:
        yield made


class TestFileInputLog(InputLogContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[Landing]:
        with closing(Landing(tmp_path, TABLE)) as made:
            (made.files / "t").mkdir(parents=True)
            yield made


def test_rows_of_a_file_arrived_when_it_got_its_name(landing: Landing) -> None:
    """A file that was written long ago and moved in now arrives now; those behind the first file of a range do not count."""
    log, began_s = landing.open(), time.time()
    for name in ("0.jsonl", "1.jsonl"):
        land(landing.files / "other", name, b'{"id": 1, "name": "a"}')
        os.utime(landing.files / "other" / name, (1.0, 1.0))
    end = log.ends()["other", 0]
    (whole,) = log.read(Range(table="other", partition=0, first=0, last=end), 0)
    first = (landing.files / "other" / "0.jsonl").stat()
    assert (first.st_mtime, whole.arrived_s) == (1.0, first.st_ctime)
    assert whole.arrived_s >= began_s - 1


def ids(log: FileInputLog, first: int, last: int, partition: int = 0, table: str = "other") -> list[int]:
    pieces = log.read(Range(table=table, partition=partition, first=first, last=last), 0)
    return [row[0] for piece in pieces for row, _ in piece.batch.to_rows()]


def dead(log: FileInputLog, end: int, table: str = "other") -> list[tuple[int, str, str]]:
    pieces = log.read(Range(table=table, partition=0, first=0, last=end), 0)
    return [(letter.offset, letter.reason, letter.payload) for piece in pieces for letter in piece.dead]


FILES = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 7), st.sampled_from(["parquet", "json", "csv", "csv.gz"])), max_size=6
)


@given(FILES, st.integers(1, 3), st.integers(0, 2**32))
def test_every_row_once_and_in_order_however_it_is_found_and_read(
    tmp_path_factory: pytest.TempPathFactory, files: list[tuple[int, int, str]], partitions: int, seed: int
) -> None:
    """Of any kind, size and row groups, looked for between them or not, opened again, read in any ranges, by another handle."""
    chance = random.Random(seed)
    with closing(Landing(tmp_path_factory.mktemp("files"), partitions=partitions)) as landing:
        log, sent = landing.open(), 0
        for number, (count, group, kind) in enumerate(files):
            table = rows(range(sent, sent + count))
            lines = b"".join(json.dumps(row).encode() + b"\n" * chance.randint(1, 3) for row in table.to_pylist())
            if kind.startswith("csv"):
                records = "id,name\n" + "".join(f"{row['id']},{row['name']}\n" for row in table.to_pylist())
                lines = gzip.compress(records.encode()) if kind.endswith("gz") else records.encode()
            content = table if kind == "parquet" else lines
            options = {"row_group_size": group} if kind == "parquet" else {}
            land(landing.files / "other", f"{number:03d}.{kind}", content, **options)
            sent += count
            if chance.random() < 0.5:
                log.ends()
            if chance.random() < 0.3:
                log = landing.open()
        ends = log.ends()
        assert log.partitions("other") == partitions
        reader = landing.open(create=False)
        found = {place[1]: ids(reader, 0, end, place[1]) for place, end in ends.items()}
        assert sorted(i for each in found.values() for i in each) == list(range(sent))
        for (_, partition), end in ends.items():
            cuts = sorted({0, end, *(chance.randint(0, end) for _ in range(3))})
            pieces = [ids(reader, a, b, partition) for a, b in pairwise(cuts)]
            assert [i for piece in pieces for i in piece] == found[partition] == sorted(found[partition])


def test_a_table_with_a_key_stays_in_order(tmp_path: Path) -> None:
    with closing(Landing(tmp_path, TABLE, OTHER, partitions=3)) as landing:
        for table in ("t", "other"):
            land(landing.files / table, "1.parquet", rows([1, 2, 3]))
        log = landing.open()
        assert (log.partitions("t"), log.partitions("other")) == (1, 3)
        assert log.ends() == {("t", 0): 3, ("other", 0): 1, ("other", 1): 1, ("other", 2): 1}


def test_other_names_are_left_alone_and_folders_are_made(landing: Landing) -> None:
    log = landing.open()
    assert (landing.files / "other").is_dir()
    for name in ("_SUCCESS", ".hidden.parquet", "_a.parquet"):
        land(landing.files / "other", name, rows([1]) if name.endswith("parquet") else b"x")
    (landing.files / "other" / "day=1").mkdir()
    assert log.ends() == {("other", 0): 0}


def test_fewer_partitions_than_before_are_read_all_the_same(landing: Landing) -> None:
    land(landing.files / "other", "1.parquet", rows([1, 2]))
    landing.open(partitions=2).ends()
    log = landing.open(partitions=1)
    land(landing.files / "other", "2.parquet", rows([3, 4]))
    assert log.ends() == {("other", 0): 3, ("other", 1): 1}
    assert (ids(log, 0, 3), ids(log, 0, 1, 1)) == ([1, 3, 4], [2])


def test_two_who_look_at_once_note_a_file_once(landing: Landing) -> None:
    one, two = landing.open(), landing.open()
    land(landing.files / "other", "1.parquet", rows([1, 2]))
    assert one.ends() == two.ends() == one.ends() == {("other", 0): 2}


def test_types_are_converted_where_no_value_changes(tmp_path: Path) -> None:
    schema = Schema.of(
        [Column("id", INT64, nullable=False), Column("x", FLOAT64), Column("s", STRING), Column("at", TIMESTAMP)]
    )
    with closing(Landing(tmp_path, Table(name="other", schema=schema))) as landing:
        fine = {
            "id": pa.array([1.0, 2.5, 3.0, None], pa.float64()),
            "more": [0, 0, 0, 0],
            "s": pa.array(["a", "b", "a", "b"]).dictionary_encode(),
            "x": pa.array([1, 2, 3, 4], pa.int32()),
            "at": pa.array([0, 1, 2_000, 3_000], pa.timestamp("ns")),
        }
        land(landing.files / "other", "1.parquet", pa.table(fine))
        log = landing.open()
        (piece,) = log.read(Range(table="other", partition=0, first=0, last=log.ends()["other", 0]), 0)
        assert [(row[0], row[1], row[2]) for row, _ in piece.batch.to_rows()] == [(1, 1.0, "a"), (3, 3.0, "a")]
        assert piece.offsets.tolist() == [0, 2]
        assert [(letter.offset, letter.reason.split(":")[0]) for letter in piece.dead] == [
            (1, "column id"),
            (3, "column id"),
        ]


def test_nested_columns_are_read_field_by_field(tmp_path: Path) -> None:
    item = struct_of({"sku": STRING, "n": INT64})
    table = Table(name="other", schema=Schema.of([Column("place", item), Column("items", list_of(item))]))
    stored = pa.struct([("n", pa.int32()), ("sku", pa.large_string())])
    rows = [{"n": 1, "sku": "a"}, None], [[{"n": 2, "sku": "b"}, {"n": None, "sku": None}], []]
    with closing(Landing(tmp_path, table)) as landing:
        columns = {"place": pa.array(rows[0], stored), "items": pa.array(rows[1], pa.list_(stored))}
        land(landing.files / "other", "1.parquet", pa.table(columns))
        log = landing.open()
        (piece,) = log.read(Range(table="other", partition=0, first=0, last=log.ends()["other", 0]), 0)
        assert [column.to_pylist() for column in piece.batch.columns] == [
            [{"sku": "a", "n": 1}, None],
            [[{"sku": "b", "n": 2}, {"sku": None, "n": None}], []],
        ]


@pytest.mark.parametrize("columns", [None, frozenset({"name"}), frozenset({"id"})])
def test_an_absent_column_of_a_text_that_may_be_null_is_null(landing: Landing, columns: frozenset[str] | None) -> None:
    """A text may be older than the column. In Parquet a column that is missing may be a damaged footer."""
    land(landing.files / "other", "1.csv", b"id\n1\n2\n")
    log = landing.open()
    piece = Range(table="other", partition=0, first=0, last=log.ends()["other", 0])
    (found,) = log.read(piece, 0) if columns is None else log.read_columns(piece, 0, columns)
    assert len(found.batch) == 2
    rows = {"id": [1, 2], "name": [None, None]}
    wanted = rows if columns is None else {name: rows[name] for name in found.batch.schema.names}
    assert {name: found.batch.column(name).to_pylist() for name in found.batch.schema.names} == wanted


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (pa.table({"id": pa.array([1], INT64)}), "column name: missing"),
        (pa.table({"id": ["1"], "name": ["a"]}), "column id: expected int64, found string"),
        (pa.table({"id": [1], "name": ["a"], "__op": [1]}), "column __op: expected int8, found int64"),
        (b"PAR1 this is none", "not a whole file of its ending: "),
    ],
)
def test_a_file_that_does_not_fit_is_one_dead_letter(landing: Landing, content: Any, reason: str) -> None:
    land(landing.files / "other", "1.parquet", content)
    land(landing.files / "other", "2.parquet", rows([7]))
    log = landing.open(patience_s=0)
    assert log.ends() == {("other", 0): 2}
    ((offset, why, payload),) = dead(log, 2)
    assert (offset, why.startswith(reason), payload) == (0, True, "1.parquet")
    assert ids(log, 0, 2) == [7]


def test_a_file_of_another_ending_is_one_dead_letter(landing: Landing) -> None:
    land(landing.files / "other", "1.xml", b"<rows/>")
    log = landing.open()
    (letter,) = dead(log, log.ends()["other", 0])
    known = ".csv, .json, .jsonl, .ndjson, .parquet, .tsv"
    assert letter == (0, f"files of this ending are not read: known={known}", "1.xml")


STRANGE = os.fsdecode(b"\xff\xe9")
"""A name that is no UTF-8, as Python has it: what has surrogates in it cannot be written as a text."""


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_a_file_whose_name_is_no_utf_8_is_read(landing: Landing, ending: str) -> None:
    content = {
        "parquet": rows([1, 2]),
        "csv": b"id,name\n1,a\n2,b\n",
        "jsonl": b'{"id":1,"name":"a"}\n{"id":2,"name":"b"}',
    }
    file = land(landing.files / "other", f"{STRANGE}.{ending}", content[ending])
    log = landing.open()
    assert log.ends() == {("other", 0): 2}
    assert ids(log, 0, 2) == [1, 2]
    file.write_bytes(b"others")
    with pytest.raises(DataError, match=rf"was changed after its rows were counted: file=.*\\xff\\xe9\.{ending}"):
        log.read(Range(table="other", partition=0, first=0, last=2), 0)
    assert [what for what in landing.findings() if what.encode()], "it can be written"


def test_a_file_that_does_not_fit_is_a_dead_letter_whatever_its_name(landing: Landing) -> None:
    land(landing.files / "other", f"{STRANGE}.xml", b"<rows/>")
    log = landing.open()
    (piece,) = log.read(Range(table="other", partition=0, first=0, last=log.ends()["other", 0]), 0)
    ((*_, payload), _) = dead_letter_batch(piece.dead).to_rows()[0]
    assert payload == r"\xff\xe9.xml"


def test_deletes_come_as_operations(landing: Landing) -> None:
    operations = pa.array([0, 1, 7], pa.int8())
    land(landing.files / "other", "1.parquet", rows([1, 2, 3]).append_column("__op", operations))
    log = landing.open()
    (piece,) = log.read(Range(table="other", partition=0, first=0, last=log.ends()["other", 0]), 0)
    assert (piece.operations.tolist(), [letter.reason for letter in piece.dead]) == (
        [0, 1],
        ["__op is neither 0 nor 1"],
    )


def test_a_file_that_is_being_written_is_waited_for(landing: Landing) -> None:
    log = landing.open()
    whole = land(landing.home / "elsewhere", "1.parquet", rows([1, 2])).read_bytes()
    place = landing.files / "other" / "1.parquet"
    place.write_bytes(whole[:100])
    assert log.ends() == {("other", 0): 0}
    place.write_bytes(whole)
    assert log.ends() == {("other", 0): 2}
    assert ids(log, 0, 2) == [1, 2]


def test_a_file_of_tomorrow_is_not_waited_for_until_then(landing: Landing) -> None:
    """A clock that was wrong when it was written: what counts is for how long it has not changed."""
    log = landing.open(patience_s=0.3)
    place = land(landing.files / "other", "1.parquet", b"PAR1 this is")
    os.utime(place, (time.time() + 86_400,) * 2)
    assert log.ends() == {("other", 0): 0}
    time.sleep(0.4)
    place.write_bytes(b"PAR1 this is none")
    os.utime(place, (time.time() + 86_400,) * 2)
    assert log.ends() == {("other", 0): 0}, "it was changed"
    time.sleep(0.4)
    assert log.ends() == {("other", 0): 1}
    assert dead(log, 1)[0][1].startswith("not a whole file of its ending")


def test_a_file_that_was_changed_or_is_gone_is_named(landing: Landing) -> None:
    file = land(landing.files / "other", "1.parquet", rows([1, 2]))
    whole = file.read_bytes()
    log = landing.open()
    end = log.ends()["other", 0]
    land(landing.files / "other", "1.parquet", rows([1, 9]))
    with pytest.raises(DataError, match=rf"was changed after its rows were counted: file={file}"):
        ids(log, 0, end)
    assert landing.findings() == [f"a file of the input is gone or was changed: file={file}"]
    file.unlink()
    log = landing.open()
    with pytest.raises(DataError, match=rf"is gone: file={file}"):
        ids(log, 0, end)
    file.write_bytes(whole)
    os.utime(file, (1, 1))
    assert ids(log, 0, end) == [1, 2]
    assert not landing.findings()


def test_a_file_that_was_filled_after_it_had_no_rows_is_found(landing: Landing) -> None:
    files = [land(landing.files / "other", f"{number}.json", b"\n") for number in range(3)]
    assert landing.open().ends() == {("other", 0): 0}
    files[0].write_bytes(b'{"id": 1}\n')
    files[1].unlink()
    assert landing.open().ends() == {("other", 0): 0}
    what = "a file of the input had no rows when they were counted, and was changed then: file="
    assert landing.findings() == [f"{what}{files[0]}"]
    files[0].write_bytes(b"\n")
    assert not landing.findings()


def test_trimmed_rows_are_refused_and_their_files_may_go(landing: Landing) -> None:
    for number in range(3):
        land(landing.files / "other", f"{number}.parquet", rows([2 * number, 2 * number + 1]))
    log = landing.open()
    log.ends()
    log.trim({("other", 0): 3})
    log.trim({("other", 0): 2})
    assert (log.floors(), ids(log, 3, 6)) == ({("other", 0): 3}, [3, 4, 5])
    with pytest.raises(DataError, match=r"trimmed: .*first_kept=3"):
        ids(log, 2, 4)
    (landing.files / "other" / "0.parquet").unlink()
    land(landing.files / "other", "3.parquet", rows([6]))
    again = landing.open()
    assert (again.ends(), ids(again, 4, 7)) == ({("other", 0): 7}, [4, 5, 6])
    land(landing.files / "other", "0.parquet", rows([0, 1]))  # a copy that comes back is not read again
    assert again.ends() == {("other", 0): 7}
    assert not landing.findings()


def test_many_files_are_noted_some_at_a_time(landing: Landing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FILES_PER_LOOK", 2)
    for number in range(5):
        land(landing.files / "other", f"{number}.parquet", rows([number]))
    log = landing.open()
    assert [log.ends()["other", 0] for _ in range(4)] == [2, 4, 5, 5]


def test_files_of_all_tables_are_noted_in_one_synced_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(FileInputLog(tmp_path / "data", [TABLE, OTHER], folder=tmp_path / "files", create=True)) as log:
        for table in (TABLE, OTHER):
            land(tmp_path / "files" / table.name, "1.json", b'{"id": 1}\n')
        log._env.add(module.SIZES)  # once for ever
        writes: list[object] = []
        real = log._env.write
        monkeypatch.setattr(log._env, "write", lambda action: writes.append(action) or real(action))
        assert log.ends() == {(TABLE.name, 0): 1, (OTHER.name, 0): 1}
        log._looked_at = -module.LOOK_EVERY_S
        assert log.ends() == {(TABLE.name, 0): 1, (OTHER.name, 0): 1}
        assert len(writes) == 1


def test_what_cannot_be_opened_is_refused(landing: Landing, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="missing: file="):
        landing.open(create=False)
    (tmp_path / "landing").write_text("a file")
    with pytest.raises(ConfigError, match="cannot be made: folder="):
        landing.open()
    (tmp_path / "landing").unlink()
    log = landing.open()
    (landing.files / "other").rmdir()
    assert (OTHER.name, 0) not in log.ends()
    (wait,) = log.waits()
    assert wait.table == OTHER.name
    assert "cannot be read: folder=" in wait.reason
    (landing.files / "other").mkdir()
    log._looked_at = -module.LOOK_EVERY_S
    assert (OTHER.name, 0) in log.ends()
    assert log.waits() == ()
