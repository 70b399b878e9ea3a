"""Parquet files with a damaged footer: waited for, then one dead letter; never an error that would hold up other files."""

from __future__ import annotations

import errno
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbsp.algebra.table import Table
from dbsp.errors import DataError
from dbsp.io.file_input import FileInputLog
from dbsp.io.imported_file import ImportedFileReader, examine_file
from dbsp.io.parquet.cut import chunk_of
from dbsp.io.parquet.few_texts import ROWS_MIN
from dbsp.io.parquet.thrift import BINARY, I64, LIST, Struct, ThriftReader, write_struct
from dbsp.io.texts import UnfinishedError
from dbsp.zset.schema import INT64, STRING, Column, Schema, list_of
from tests.io.test_file_input import Landing, dead, ids, land, rows

ROWS = 100
DAMAGES = 2000
TAIL_BYTES = 8
_COUNT, _GROUPS, _ROWS_OF_GROUP, _PATH, _SIZES, _LEVELS = 3, 4, 3, 3, 16, 3
TABLE = Table(name="t", schema=Schema((Column("id", INT64, nullable=False), Column("name", STRING))))
NESTED = Table(name="t", schema=Schema((*TABLE.schema, Column("l", list_of(INT64)))))


def parquet(rows: int = ROWS, **options: Any) -> bytes:
    """A whole file."""
    sink = pa.BufferOutputStream()
    columns = {
        "id": range(rows),
        "name": [f"n{i % 7}" for i in range(rows)],
        "l": [[1, 2]] * rows,
        "other": ["x"] * rows,
    }
    pq.write_table(pa.table(columns), sink, row_group_size=rows // 2, **options)
    return bytes(sink.getvalue().to_pybytes())


def footer_at(content: bytes) -> int:
    return len(content) - TAIL_BYTES - int.from_bytes(content[-TAIL_BYTES:-4], "little")


def refooted(content: bytes, change: Callable[[Struct], None]) -> bytes:
    """The file with a footer that says something else."""
    at = footer_at(content)
    footer = ThriftReader(content[at:]).struct()
    change(footer)
    ending = write_struct(footer)
    return content[:at] + ending + len(ending).to_bytes(4, "little") + content[-4:]


def counted(rows: int) -> Callable[[Struct], None]:
    """A footer that counts so many rows."""

    def change(footer: Struct) -> None:
        footer[_COUNT] = (I64, rows)

    return change


def counted_by_groups(footer: Struct) -> None:
    """A footer with a row group of fewer rows than none, as many in all."""
    _, (_, (first, second)) = footer[_GROUPS]
    first[_ROWS_OF_GROUP], second[_ROWS_OF_GROUP] = (I64, -1), (I64, ROWS + 1)


def levels(column: int) -> Callable[[Struct], None]:
    """A footer that counts more levels of a column than it has."""

    def change(footer: Struct) -> None:
        _, sizes = chunk_of(footer, 0, column)[_SIZES]
        sizes[_LEVELS] = (LIST, (I64, [0] * 7))

    return change


def renamed(footer: Struct) -> None:
    """A footer in which the column of texts has another name where it lies."""
    chunk_of(footer, 0, 1)[_PATH] = (LIST, (BINARY, [b"n\xffme"]))


def overwritten(content: bytes, byte: bytes) -> bytes:
    at = footer_at(content)
    return content[:at] + byte * 40 + content[at + 40 :]


WHOLE = parquet(store_schema=False)
DAMAGED = {
    "no structure": (overwritten(WHOLE, b"\xff"), "Couldn't deserialize thrift"),
    "a name that is no text": (WHOLE.replace(b"name", b"n\xffme"), "'utf-8' codec can't decode"),
    "fewer rows than none": (refooted(WHOLE, counted(-5)), "its footer is damaged: rows=-5 rows_of_groups=100"),
    "more rows": (refooted(WHOLE, counted(ROWS + 7)), "its footer is damaged: rows=107 rows_of_groups=100"),
    "levels of a column": (refooted(WHOLE, levels(1)), "Definition level histogram size mismatch"),
    "a group of none": (refooted(WHOLE, counted_by_groups), "its footer is damaged: rows=100 rows_of_groups=100"),
}


def test_a_changed_footer_that_says_the_same_is_read(tmp_path: Path) -> None:
    path = land(tmp_path, "1.parquet", refooted(WHOLE, counted(ROWS)))
    assert examine_file(path, NESTED).rows == ROWS


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_footer_is_one_dead_letter(tmp_path: Path, damage: str) -> None:
    content, reason = DAMAGED[damage]
    with closing(Landing(tmp_path)) as landing:
        land(landing.files / "other", "1.parquet", content)
        land(landing.files / "other", "2.parquet", rows([7]))
        assert landing.open().ends() == {("other", 0): 1}  # it may still be written
        log = landing.open(patience_s=0)
        assert log.ends() == {("other", 0): 2}
        ((offset, why, payload),) = dead(log, 2)
        assert (offset, payload, ids(log, 0, 2)) == (1, "1.parquet", [7])
        assert why.startswith(f"not a whole file of its ending: {reason}")


def test_what_is_said_of_other_columns_or_twice_may_be_damaged(tmp_path: Path) -> None:
    """In row groups in which texts may repeat; in a process of its own, as pyarrow would end it."""
    whole = parquet(2 * ROWS_MIN)
    land(tmp_path, "1.parquet", refooted(refooted(whole, levels(3)), renamed))
    code = (
        "import pathlib, sys; from dbsp.io.imported_file import *; from tests.io.test_damaged_footers import TABLE as t; "
        "path = pathlib.Path(sys.argv[1]); noted = examine_file(path, t); "
        "print(ImportedFileReader(t).read(path, noted, 0, noted.rows).rows)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "1.parquet"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, f"{2 * ROWS_MIN}\n"), done.stderr


def test_any_damage_is_a_dead_letter_or_names_the_file(tmp_path: Path) -> None:
    """Where only what it says of columns is damaged, it is the reading that tells."""
    chance, found, path = random.Random(20), Counter[str](), tmp_path / "1.parquet"
    kinds = WHOLE, parquet(store_schema=True)
    for number in range(DAMAGES):
        whole = kinds[number % len(kinds)]
        content = bytearray(whole)
        for _ in range(chance.choice([1, 1, 2, 8])):
            place = chance.randrange(footer_at(whole), len(whole) - TAIL_BYTES)
            content[place] = chance.choice([chance.randrange(256), content[place] ^ (1 << chance.randrange(8))])
        path.write_bytes(content)
        try:
            noted = examine_file(path, NESTED)
            push = ImportedFileReader(NESTED).read(path, noted, 0, noted.rows)
        except UnfinishedError:
            found["waited for"] += 1
        except DataError as error:
            found["named" if str(path) in str(error) else str(error)] += 1
        else:
            assert push.rows == (1 if noted.misfit else ROWS)
            found["read"] += 1
    assert set(found) == {"waited for", "named", "read"}, found
    assert min(found.values()) > DAMAGES // 100


@pytest.mark.parametrize(
    ("name", "reader"), [("1.parquet", (pq, "ParquetFile")), ("1.json.gz", (pa, "CompressedInputStream"))]
)
def test_an_error_of_the_disk_is_none_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, reader: tuple[Any, str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with closing(Landing(tmp_path)) as landing:
        log: FileInputLog = landing.open(patience_s=0)
        land(landing.files / "other", name, WHOLE)
        with monkeypatch.context() as patch:
            patch.setattr(*reader, broken)
            assert ("other", 0) not in log.ends()
            (waiting,) = log.waits()
            assert waiting.table == "other"
            assert "error=Input/output error" in waiting.reason
        assert ("other", 0) in log.ends()
        assert not log.waits()
