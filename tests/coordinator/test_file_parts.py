"""Files of rows in parts: the rows of one body, whatever the size of a part; packed files; repeats after an interruption."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dbsp
from dbsp.coordinator.client import file_parts, file_push
from dbsp.coordinator.client.bodies import Pushed
from dbsp.coordinator.client.file_parts import FilePart, parts
from dbsp.coordinator.client.file_push import FileOptions, push_file
from dbsp.coordinator.commands.push_commands import _parts_text
from dbsp.coordinator.http.kinds import CSV
from dbsp.coordinator.service import Service
from dbsp.errors import DataError, OverloadedError, UnavailableError
from dbsp.io.formats.csv_scan import line_ends
from tests.coordinator.shop import answering, script, settings

ROWS = [{"id": number, "customer": f'c{number % 7}\n"é,', "amount": number} for number in range(500)]
TABLE = pa.Table.from_pylist(ROWS)


def csv_text(rows: list[dict[str, Any]], newline: str = "\n") -> bytes:
    quoted = ('"' + row["customer"].replace('"', '""') + '"' for row in rows)
    lines = [f"{row['id']},{text},{row['amount']}" for row, text in zip(rows, quoted, strict=True)]
    return newline.join(["id,customer,amount", *lines, ""]).encode()


def cut(data: bytes, size: int, kind: str | None = None) -> list[FilePart]:
    found = list(parts(io.BytesIO(data), kind, size))
    assert [part.last for part in found] == [False] * (len(found) - 1) + [True]
    return found


def packed(data: bytes, kind: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, kind) as out:
        out.write(data)
    return bytes(sink.getvalue().to_pybytes())


@example('"\n"', 2)
@given(st.text(alphabet='a,"\r\n', max_size=40), st.integers(1, 40))
def test_records_end_where_the_service_ends_them(text: str, size: int) -> None:
    data = text.encode()
    end = file_parts._last_record_end(b",")(data[:size])
    ends = line_ends(np.frombuffer(data, np.uint8), 0, ord(","))
    assert end == 0 or end - 1 in ends


def test_a_cut_at_any_line_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: quotes are not looked at."""
    monkeypatch.setattr(file_parts, "_last_record_end", lambda _delimiter: lambda data: data.rfind(b"\n") + 1)
    with pytest.raises(AssertionError):
        test_records_end_where_the_service_ends_them()


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", file_parts.MARK])
def test_each_part_of_csv_has_the_header_and_whole_records(newline: str, mark: bytes) -> None:
    data = mark + csv_text(ROWS, newline)
    header = mark + f"id,customer,amount{newline}".encode()
    found = cut(data, 1000, CSV)
    assert len(found) > 5
    assert all(part.body.startswith(header) and part.content_type == CSV for part in found)
    assert header + b"".join(part.body.removeprefix(header) for part in found) == data
    assert max(len(part.body) for part in found) <= 1000
    lines = (header + found[0].body.removeprefix(header)).count(b"\n")
    assert found[1].begins == f"line {1 + lines}"


@pytest.mark.parametrize("kind", ["lines", "array", "pretty"])
def test_parts_of_json_have_its_rows_as_they_are_written(kind: str) -> None:
    rows = [*ROWS, {"id": 1, "amount": 1.50, "customer": "]"}]
    array = json.dumps(rows, indent=2 if kind == "pretty" else None)
    data = "\n".join(map(json.dumps, rows)) if kind == "lines" else f" {array}\n"
    found = cut(data.encode(), 3000)
    assert len(found) > 5
    if kind == "lines":
        assert b"".join(part.body for part in found) == data.encode()
    else:
        assert [row for part in found for row in json.loads(part.body)] == rows
        assert b"1.5" in found[-1].body
    assert found[0].begins == ("line 1" if kind == "lines" else "row 1")


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("", "no JSON, or has no end"),
        ("] 1", "follows the end"),
        ("x]", "no comma"),
        (",nope]", "after row 500: the row"),
    ],
)
def test_a_broken_array_names_the_row(end: str, said: str) -> None:
    data = json.dumps(ROWS)[:-1] + (end or ",")
    with pytest.raises(DataError, match=said):
        cut(data.encode(), 3000)


def test_files_of_tables_are_cut_between_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_parts, "BATCH_ROWS", 64)
    parquet, stream, file = io.BytesIO(), io.BytesIO(), io.BytesIO()
    pq.write_table(TABLE, parquet, row_group_size=100)
    for sink, opened in ((stream, pa.ipc.new_stream), (file, pa.ipc.new_file)):
        with opened(sink, TABLE.schema) as writer:
            writer.write_table(TABLE)
    for data in (parquet.getvalue(), stream.getvalue(), file.getvalue(), gzip.compress(parquet.getvalue())):
        found = cut(data, 2000)
        assert len(found) > 5
        assert pa.concat_tables(pa.ipc.open_stream(part.body).read_all() for part in found) == TABLE
        assert found[1].begins == f"row {1 + pa.ipc.open_stream(found[0].body).read_all().num_rows}"
    with pytest.raises(DataError, match="Parquet file cannot be read"):
        cut(parquet.getvalue()[:-9], 2000)
    with pytest.raises(DataError, match="Arrow IPC file cannot be read"):
        cut(stream.getvalue()[:-200], 2000)


PACKED = {
    "gzip": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zstd": lambda data: packed(data, "zstd"),
    "lz4": lambda data: packed(data, "lz4"),
}  # fmt: skip


@pytest.mark.parametrize("kind", PACKED)
def test_packed_files_are_unpacked_as_streams(kind: str) -> None:
    pack, data = PACKED[kind], csv_text(ROWS)
    assert cut(pack(data), 1000, CSV) == cut(data, 1000, CSV)
    assert cut(pack(data[:999]) + pack(data[999:]), 1000, CSV) == cut(data, 1000, CSV), "packed in two pieces"
    for damaged in (pack(data)[:-20], pack(data)[:40] + b"x" * 20 + pack(data)[60:]):
        with pytest.raises(DataError, match="the packed file cannot be read"):
            cut(damaged, 1000, CSV)


def test_memory_is_bounded_by_a_part() -> None:
    """Of a file of 100 parts no more than three parts are read ahead of the one that is used."""

    class Counted(io.RawIOBase):
        taken = 0

        def read(self, size: int = -1) -> bytes:
            self.taken += size
            return b'{"id": 1}\n'[:size] * (size // 10) + b"\n" * (size % 10) if self.taken < 10_000_000 else b""

    file = Counted()
    for part in parts(file, None, 100_000):  # type: ignore[arg-type]  # it only reads
        assert file.taken <= (part.number + 4) * 100_000


# --- pushes -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def asking(client: httpx.Client) -> dbsp.Client:
    return dbsp.Client(url=str(client.base_url))


def totals(asking: dbsp.Client) -> tuple[int, int]:
    asking.push("orders", [{"id": 100_000, "customer": "end", "amount": 0}], wait_s=60)
    found = asking.query("SELECT sum(orders) AS n, sum(amount) AS s FROM per_customer").to_pylist()[0]
    return int(found["n"]) - 1, int(found["s"])


def test_a_repeat_after_an_interruption_adds_nothing_twice(
    asking: dbsp.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_push, "AGAIN_S", 0.0)
    began: list[tuple[str, int]] = []
    sent: list[int] = []

    def push(table: str, body: bytes, **options: Any) -> Any:
        sent.append(options["sequence"])
        if len(sent) == 2:
            raise OverloadedError("too many rows wait")
        if len(sent) == 5:
            raise KeyboardInterrupt
        return asking.push(table, body, **options)

    options = FileOptions(part_bytes=2000, content_type=CSV, began=lambda name, number: began.append((name, number)))
    with pytest.raises(KeyboardInterrupt):
        push_file(push, "orders", io.BytesIO(csv_text(ROWS)), options)
    assert sent == [0, 1, 1, 2, 3]
    [(name, number)] = began
    again = FileOptions(part_bytes=2000, content_type=CSV, producer=name, sequence=number)
    found = push_file(asking.push, "orders", io.BytesIO(csv_text(ROWS)), again)
    assert (found.repeated, found.bad_rows, found.rows) == (3, 0, 500)
    ends = [(part.first, part.end) for part in found.parts]
    assert [first for first, _ in ends] == [0, *(end for _, end in ends[:-1])], "each row once, in order"
    assert totals(asking) == (500, sum(range(500)))


def test_an_error_names_the_part_what_is_durable_and_how_to_go_on(asking: dbsp.Client) -> None:
    rows = [json.dumps(row) for row in ROWS]
    text = "\n".join(rows[:250]) + "\n" + "nonsense nonsense nonsense nonsense nonsense\n" * 250
    options = FileOptions(part_bytes=4000, producer="me", sequence=7)
    with pytest.raises(DataError) as found:
        push_file(asking.push, "orders", io.BytesIO(text.encode()), options)
    assert "most rows of the push are bad" in found.value.message
    assert "from line " in found.value.message
    assert "parts 1 to 3 are durable" in found.value.message
    assert "producer=me sequence=7" in str(found.value.hint)
    mended = "\n".join(rows).encode()
    assert push_file(asking.push, "orders", io.BytesIO(mended), options).repeated == 3
    assert totals(asking) == (500, sum(range(500)))
    with pytest.raises(UnavailableError):  # before the first part it does not wait
        dbsp.Client(url="http://127.0.0.1:9").push_file("orders", io.BytesIO(text.encode()))


@pytest.mark.parametrize("part_bytes", [1000, 1 << 20])
def test_csv_that_was_taken_for_json_says_how_to_name_it(asking: dbsp.Client, part_bytes: int) -> None:
    for data in (csv_text(ROWS), file_parts.MARK + csv_text(ROWS)):
        with pytest.raises(DataError) as refused:
            push_file(asking.push, "orders", io.BytesIO(gzip.compress(data)), FileOptions(part_bytes=part_bytes))
        assert str(refused.value.hint).startswith("the rows were read as JSON; CSV and TSV are known by the ending")
    with pytest.raises(DataError) as refused:
        push_file(asking.push, "orders", io.BytesIO(b'{"id": 1, "nothing": 2}'), FileOptions(part_bytes=part_bytes))
    assert "--format" not in str(refused.value.hint)


def test_the_command_pushes_a_large_packed_file_in_parts(folder: Path, tmp_path: Path) -> None:
    """No checkpoint is taken meanwhile: after one, the places of parts that were pushed before are not known any more."""
    with Service(settings(folder, "checkpoint.interval_s=3600")) as service, answering(service) as client:
        pushed_in_parts(client, tmp_path)


def test_rows_whose_places_are_not_known_any_more_are_not_counted() -> None:
    again = Pushed(table="t", first=0, end=0, repeated=True)
    found = file_push.PushedFile(table="t", producer="p", parts=[again, again])
    assert _parts_text(found).startswith("the rows of t are durable, in 2 parts; 2 of the parts were pushed before")


def pushed_in_parts(client: httpx.Client, tmp_path: Path) -> None:
    rows = [{"id": number, "customer": "c" * 100, "amount": 1} for number in range(20_000)]
    data = csv_text(rows).replace(b"19000,", b"bad,")
    (tmp_path / "orders.csv.gz").write_bytes(gzip.compress(data))
    url = str(client.base_url)
    command = ("--url", url, "push", "orders", str(tmp_path / "orders.csv.gz"), "--part-mb", "1", "--wait", "60")
    done = script("cli", *command, "--strict")
    assert done.returncode == 3, done.stderr
    assert "20000 rows of orders are durable, in 3 parts; the next number of push-" in done.stdout
    assert "; bad rows: 1, the first: column id" in done.stdout
    assert "processed: the views have them" in done.stdout
    assert 'bad row: {"part": 3, "begins": "line ' in done.stderr
    again = done.stderr.split("repeat the command with ")[1].split(":")[0].split()
    assert again[-2:] == ["--part-mb", "1"]
    repeated = script("cli", *command[:5], *again)
    assert "20000 rows of orders are durable, in 3 parts; 3 of the parts were pushed before" in repeated.stdout
    assert client.get("/v1/status").json()["rows_in"] == 19_999
    stopped = script("cli", "--json", *command[:5], "--part-mb", "1", "--strict")
    assert json.loads(stopped.stdout)["stopped"] is False, "the last part is the bad one"
