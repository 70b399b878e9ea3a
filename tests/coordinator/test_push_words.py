"""What `coordinator push` says of the rows that were taken."""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dbsp.coordinator
from dbsp.coordinator.client.bodies import body_of
from dbsp.coordinator.commands.push_commands import durable
from dbsp.coordinator.http.kinds import ARROW, kind_of
from dbsp.errors import DataError


def test_the_last_offset_that_is_named_is_one_that_was_taken() -> None:
    assert durable("orders", 0, 4, repeated=False) == "rows 0 to 3 of orders are durable"


def test_of_an_empty_push_no_offsets_are_named() -> None:
    assert durable("orders", 7, 7, repeated=False) == "no rows were given; nothing was added to orders"


def test_a_repeated_push_is_not_called_an_empty_one() -> None:
    known = durable("orders", 0, 4, repeated=True)
    assert known == "rows 0 to 3 of orders are durable: they were pushed before, nothing was added"
    assert durable("orders", 7, 7, repeated=True) == "pushed before, nothing was added to orders"


def test_rows_are_of_the_kind_that_their_first_bytes_tell() -> None:
    table = pa.table({"id": [1]})
    stream, file = pa.BufferOutputStream(), pa.BufferOutputStream()
    for sink, opened in ((stream, pa.ipc.new_stream), (file, pa.ipc.new_file)):
        with opened(sink, table.schema) as writer:
            writer.write_table(table)
    assert kind_of(bytes(stream.getvalue())) == ARROW
    assert {kind_of(body) for body in (b"", b'{"id": 1}', b"[]")} == {"application/json"}
    assert body_of(bytes(file.getvalue())) == bytes(stream.getvalue()), "a file becomes a stream"


def test_files_of_rows_become_a_stream(tmp_path: Path) -> None:
    table = pa.table({"id": [1, None], "name": ["a", "b"]})
    pq.write_table(table, tmp_path / "rows.parquet")
    data = (tmp_path / "rows.parquet").read_bytes()
    with pa.ipc.open_stream(body_of(data)) as reader:
        assert reader.read_all() == table
    for damaged in (data[:-9], b"ARROW1\0\0"):
        with pytest.raises(DataError, match="file cannot be read"):
            body_of(damaged)


def test_numbers_that_commands_take_are_printed_as_they_are_typed() -> None:
    """Steps and offsets have no commas; counts have them. Planted: the second text."""
    pattern = re.compile(r"\b(?!behind_)\w*(?:step|offset|first|last|kept_from)'?\]?(?: [-+] 1)?:,\}")
    assert pattern.search("rows {first:,} to {found['last'] - 1:,}")
    assert not pattern.search("{table['behind_steps']:,} behind")
    sources = Path(dbsp.coordinator.__path__[0]).rglob("*.py")
    found = [
        f"{path.name}: {line}" for path in sources for line in path.read_text().splitlines() if pattern.search(line)
    ]
    assert found == []
