"""Pushes that would become much larger than they are, and pushes of bad rows: refused before memory or time is taken."""

from __future__ import annotations

import io
import resource
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp.algebra.table import Table
from dbsp.errors import CapacityError, DataError
from dbsp.io.formats import decode_arrow, decode_json, tables_in
from dbsp.io.formats.arrow_sizes import decoded_bytes, stream_sizes
from dbsp.io.kafka.messages import MessageReading, reader_of
from dbsp.io.pushed import PushBounds
from dbsp.zset.schema import BOOL, INT64, STRING, Column, Schema

TABLE = Table(
    name="t",
    schema=Schema((Column("id", INT64), Column("name", STRING), Column("on", BOOL))),
    primary_key=(),
)
BOUNDS = PushBounds(max_push_rows=1000, max_decoded_bytes=100_000, bad_rows_max=10)


def stream(table: pa.Table, compression: str | None = None) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=300)
    return sink.getvalue()


def rows(count: int, text: str = "x") -> pa.Table:
    names = pa.array([text] * count, pa.string())
    return pa.table({"id": np.zeros(count, np.int64), "name": names, "on": np.zeros(count, np.bool_)})


def resident() -> int:
    """The most memory this process had so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_packed_stream_is_refused_before_it_is_unpacked(compression: str) -> None:
    """One batch of 30 M rows in some kilobytes: 240 MB and more."""
    count = 30_000_000
    column = pa.array(np.zeros(count, np.int64))
    sink = io.BytesIO()
    schema = pa.schema([("id", pa.int64())])
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(pa.record_batch([column], schema=schema))
    del column
    before = resident()
    with pytest.raises(CapacityError, match=f"too many rows in one push: found={count} max_push_rows=10000000"):
        decode_arrow(sink.getvalue(), TABLE, PushBounds())
    with pytest.raises(CapacityError, match="max_decoded_bytes"):
        decode_arrow(sink.getvalue(), TABLE, PushBounds(max_push_rows=count, max_decoded_bytes=200 << 20))
    assert resident() - before < 50 << 20


def test_rows_that_take_no_bytes_are_counted_in_those_of_the_table() -> None:
    """A stream without columns says how many rows it has; each takes the width of the table's own."""
    many = pa.RecordBatch.from_arrays([pa.nulls(900)], names=["id"])
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, many.schema) as writer:
        for _ in range(2):
            writer.write_batch(many)
    with pytest.raises(CapacityError, match="found=1800 max_push_rows"):
        decode_arrow(sink.getvalue(), TABLE, BOUNDS)
    with pytest.raises(CapacityError, match=r"found=\d+ max_decoded_bytes=10000"):
        decode_arrow(sink.getvalue(), TABLE, PushBounds(max_decoded_bytes=10_000))


def test_texts_that_a_dictionary_makes_short_count_in_full() -> None:
    names = pa.array(["x" * 1000] * 500).dictionary_encode()
    table = pa.table({"id": np.zeros(500, np.int64), "name": names, "on": np.zeros(500, np.bool_)})
    with pytest.raises(CapacityError, match="max_decoded_bytes"):
        decode_arrow(stream(table), TABLE, BOUNDS)
    assert len(decode_arrow(stream(table), TABLE).batch) == 500
    nested = pa.array([{"a": "x" * 1000}] * 500, pa.struct([("a", pa.dictionary(pa.int32(), pa.string()))]))
    assert decoded_bytes(nested) >= 500_000


@given(
    st.integers(0, 700), st.sampled_from([None, "lz4", "zstd"]), st.booleans(), st.booleans(),
    st.text(alphabet="ab", max_size=40),
)  # fmt: skip
def test_what_is_counted_is_what_comes(count: int, compression: Any, coded: bool, nulls: bool, text: str) -> None:
    """Law: the sizes read from the headers are the rows of the stream, and at least the bytes that its columns take."""
    table = rows(count, text)
    if nulls:
        table = table.set_column(1, "name", pa.array([None if number % 3 else text for number in range(count)], STRING))
    if coded:
        table = table.set_column(1, "name", table.column(1).dictionary_encode())
    data = stream(table, compression)
    sizes = list(stream_sizes(pa.py_buffer(data)))
    assert sum(size.rows for size in sizes) == count
    with pa.ipc.open_stream(data) as reader:
        found = reader.read_all()
    assert sum(size.bytes for size in sizes) >= sum(column.nbytes for column in found.columns) - 64 * len(sizes)
    assert decode_arrow(data, TABLE).batch.to_rows() == decode_arrow(stream(table), TABLE).batch.to_rows()


@given(st.data())
def test_damaged_streams_are_bad_rows_and_never_more(data: st.DataObject) -> None:
    """Every byte may be another; whatever is left of the stream, it is a push within the bounds, or refused."""
    sent = bytearray(stream(rows(50), data.draw(st.sampled_from([None, "lz4", "zstd"]))))
    for _ in range(data.draw(st.integers(1, 3))):
        sent[data.draw(st.integers(0, len(sent) - 1))] = data.draw(st.integers(0, 255))
    try:
        push = decode_arrow(bytes(sent[: data.draw(st.integers(0, len(sent)))]), TABLE, BOUNDS)
    except CapacityError:
        return
    assert push.rows <= 1000


def test_a_topics_message_that_is_too_large_unpacked_is_a_dead_letter() -> None:
    reader = reader_of("arrow", TABLE, MessageReading())
    names = pa.array(["x" * 100_000] * 5000).dictionary_encode()
    large = pa.table({"id": np.zeros(5000, np.int64), "name": names, "on": np.zeros(5000, np.bool_)})
    push, counts = reader.decode([stream(large), stream(rows(2))])
    assert (len(push.batch), counts.tolist()) == (2, [1, 2])
    assert "max_decoded_bytes" in push.bad[0].reason


# --- JSON -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"{}\n" * 1001, b"[" + b"{}," * 1000 + b"{}]"])
def test_rows_of_few_bytes_are_counted(body: bytes) -> None:
    with pytest.raises(CapacityError, match="found=1001 max_push_rows=1000"):
        decode_json(body, Table(name="t", schema=Schema((Column("a", INT64, nullable=True),))), bounds=BOUNDS)


@pytest.mark.parametrize("text", [b"x\n", b'{"id": "no"}\n', b"{\n"])
def test_bad_rows_end_the_reading_at_their_bound(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of them took a minute; of these only as many are looked at as are taken."""
    from dbsp.io.formats import json_rows  # noqa: PLC0415

    read: list[int] = []
    parse = json_rows._parse
    monkeypatch.setattr(json_rows, "_parse", lambda *each: (read.append(1), parse(*each))[1])
    with pytest.raises(DataError, match="too many bad rows in one push: bad_rows_max=10; the first: row=0 "):
        decode_json(text * 500_000, TABLE, bounds=BOUNDS)
    assert len(read) <= 12
    with pytest.raises(DataError, match="too many bad rows"):
        decode_json(b"[" + b",".join([b"1"] * 20_000) + b"]", TABLE, bounds=BOUNDS)


def test_most_rows_bad_is_refused_and_some_are_not() -> None:
    good = b'{"id": 1, "name": "a", "on": true}\n'
    some = decode_json(good * 3 + b"x\n" * 2, TABLE, bounds=BOUNDS)
    BOUNDS.refuse_bad(some.bad, some.rows)
    most = decode_json(good * 2 + b"x\n" * 3, TABLE, bounds=BOUNDS)
    with pytest.raises(DataError, match="most rows of the push are bad: bad=3 rows=5; the first: row=2 not JSON"):
        BOUNDS.refuse_bad(most.bad, most.rows)


def test_an_object_over_many_lines_is_one_row_though_each_line_is_none() -> None:
    text = b'{"id": 1, "on": true, "name":\n' + b"\n\n \n" * 40 + b'"a"}'
    spread = b"\n".join([b"{", b'"id": 1,', b'"on": true,', b'"name": "a"', *[b""] * 5, b"}"])
    for body in (text, spread):
        assert decode_json(body, TABLE, bounds=PushBounds(bad_rows_max=2)).batch.to_rows() == [((1, "a", True), 1)]


def test_what_python_would_make_many_times_longer_is_refused_by_its_length() -> None:
    from dbsp.io.formats import json_rows  # noqa: PLC0415

    with pytest.raises(CapacityError, match="an array of rows in JSON is too long"):
        decode_json(b"[" + b" " * json_rows.DOCUMENT_BYTES_MAX + b"]", TABLE, bounds=BOUNDS)
    with pytest.raises(CapacityError, match="a row in JSON is too long"):
        decode_json(b'{"name": [' + b"0," * json_rows.ROW_BYTES_MAX + b"0]}", TABLE, bounds=BOUNDS)
    with pytest.raises(CapacityError, match="a transaction is too long"):
        tables_in(b'{"t": [' + b" " * 100 + b"]}", bytes_max=100)


@given(
    st.lists(
        st.sampled_from(['{"id": 1, "name": "a", "on": true}', '{"id": "x"}', "1", '{"delete": {"id": 2}}']), max_size=9
    )
)
def test_bounds_change_nothing_of_what_they_let_in(lines: list[str]) -> None:
    for body in ("\n".join(lines), "[" + ", ".join(lines) + "]"):
        plain, bound = decode_json(body.encode(), TABLE), decode_json(body.encode(), TABLE, bounds=BOUNDS)
        assert plain.batch.to_rows() == bound.batch.to_rows()
        assert (plain.bad, plain.operations.tolist()) == (bound.bad, bound.operations.tolist())
