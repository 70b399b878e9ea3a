"""Mutants of messages and files for every decoder, run in a process of their own: they may end it, and then its notes name one.

A mutant is a good sample with bytes flipped, cut, doubled, or with a token put in that once ended or held up a process.
"""

from __future__ import annotations

import io
import json
import random
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from dbsp.algebra.table import Table
from dbsp.expr.cast import convert_or_null
from dbsp.io.formats import decode_json, encode_arrow, json_rows
from dbsp.io.formats.avro.registry import RegisteredSchema, Registry
from dbsp.io.formats.debezium import Encodings
from dbsp.io.imported_file import ImportedFileReader, examine_file
from dbsp.io.kafka.messages import MessageReading, reader_of
from dbsp.io.parquet.cut import read_footer
from dbsp.io.parquet.thrift import ThriftError
from dbsp.io.texts import UnfinishedError
from dbsp.zset import decimal_texts
from dbsp.zset.schema import BINARY, DATE, INT64, STRING, TIMESTAMP, Column, Schema, decimal, list_of, struct_of

CPU_S_MAX = 3.0
"""A mutant of some hundred bytes takes a millisecond; the slow ones of old took seconds each."""
SCHEMA = Schema(
    (
        Column("id", INT64, nullable=False),
        Column("dec", decimal(10, 2)),
        Column("name", STRING),
        Column("at", TIMESTAMP),
        Column("day", DATE),
        Column("raw", BINARY),
    )
)
FLAT = Table(name="t", schema=SCHEMA, primary_key=("id",))
NESTED = Table(
    name="n",
    schema=Schema((*SCHEMA, Column("l", list_of(decimal(20, 5))), Column("s", struct_of({"x": decimal(38, 10)})))),
)
ROW = {"id": 1, "dec": "1.50", "name": "a", "at": "2024-05-31 10:00:00", "day": "2024-05-31", "raw": "00ff"}
NESTED_ROW = {**ROW, "l": ["1.5", 2], "s": {"x": "1e-3"}}
CHANGE = {"before": None, "after": {**ROW, "raw": "AP8="}, "op": "c"}
AVRO_ROW: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "dec", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}]},
        {"name": "name", "type": {"type": "enum", "name": "E", "symbols": ["a", "b"]}},
        {"name": "raw", "type": {"type": "fixed", "name": "F", "size": 3}},
        {"name": "other", "type": {"type": "array", "items": {"type": "array", "items": "null"}}},
        {"name": "more", "type": {"type": "map", "values": ["null", "string"]}},
    ],
}
TOKENS = [
    b"1e-99999999",
    b'"1e-99999999"',
    b"\\u0031e-99999999",
    b"0e-2147483647",
    b"1e99999999",
    b"-1.5E-1000000",
    b"null",
    b"[]",
    b"{}",
    b"[" * 200,
    b'{"a":' * 200,
    b"\xff" * 40,
    b"\x00" * 9,
    b"9" * 500,
    b"NaN",
    b"\xef\xbb\xbf",
    b"\n",
    b'"',
    b"\\",
    b"9999999999999",
    b"-1099511627776",
    b"\x80" * 20 + b"\x01",
    b"9999-99-99",
    b"\xf0\x9f\x98\x80",
    b"\x01" * 40,
]


class _Schemas(Registry):
    """A registry that holds one schema."""

    def __init__(self, text: bytes) -> None:
        super().__init__(url="")
        object.__setattr__(self, "text", text)

    def schema(self, number: int) -> RegisteredSchema:
        return RegisteredSchema("AVRO", json.loads(self.text))  # type: ignore[attr-defined]


def mutant(chance: random.Random, data: bytes) -> bytes:
    """Some damage to the bytes."""
    for _ in range(chance.randint(1, 3)):
        at, end = sorted(chance.choices(range(len(data) + 1), k=2))
        end = min(end, at + chance.choice((1, 4, 60)))
        kind = chance.randrange(5)
        if kind == 0 and data:
            at = min(at, len(data) - 1)
            data = data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]
        elif kind == 1:
            data = data[:at] + data[end:]
        elif kind == 2:
            data = data[:at] + data[at:end] * chance.randint(2, 40) + data[end:]
        elif kind == 3:
            data = data[:at] + chance.choice(TOKENS) + data[end:]
        else:
            data = _without_a_value(chance, data)
    return data


def _without_a_value(chance: random.Random, data: bytes) -> bytes:
    """A token in the place of what stands behind a colon or a comma."""
    places = [at + 1 for at, byte in enumerate(data) if byte in b":,"]
    if not places:
        return data
    at = chance.choice(places)
    end = min((found for mark in b",}]\n" if (found := data.find(bytes([mark]), at)) >= 0), default=len(data))
    return data[:at] + chance.choice(TOKENS) + data[end:]


def _avro_message() -> bytes:
    out = io.BytesIO()
    row = {"id": 1, "dec": None, "name": "a", "raw": b"abc", "other": [[None], []], "more": {"k": "v"}}
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(AVRO_ROW))), row)
    return struct.pack(">bI", 0, 7) + out.getvalue()


def _arrow(table: Table, row: dict[str, Any]) -> bytes:
    return encode_arrow(decode_json(json.dumps(row).encode(), table).batch)


def _parquet() -> bytes:
    sink = pa.BufferOutputStream()
    rows = pa.table({"id": [1, 2], "dec": pa.array(["1.50", None]).cast(pa.decimal128(10, 2)), "name": ["a", "b"]})
    pq.write_table(rows, sink)
    return bytes(sink.getvalue().to_pybytes())


def _messages(format_: str, sample: bytes, table: Table = FLAT, decimals: str = "text") -> tuple[bytes, Any]:
    def decode(data: bytes, chance: random.Random, _folder: Path) -> None:
        reading = MessageReading(encodings=Encodings(decimals=decimals, timestamps="us"), extras=chance.random() < 0.5)
        reader = reader_of(format_, table, reading)
        keys = [b"7", data, None] if reader.reads_keys else None
        reader.decode([sample, data, None], keys)

    return sample, decode


def _avro(sample: bytes, *, of_schema: bool) -> tuple[bytes, Any]:
    message = _avro_message()

    def decode(data: bytes, _chance: random.Random, _folder: Path) -> None:
        try:
            registry = _Schemas(data if of_schema else json.dumps(AVRO_ROW).encode())
            registry.schema(7)
        except (ValueError, RecursionError):
            return  # the registry itself does not hold what is no JSON
        reader_of("avro", FLAT, MessageReading(registry=registry)).decode([message if of_schema else data])

    return sample, decode


def _files(name: str, sample: bytes) -> tuple[bytes, Any]:
    def decode(data: bytes, _chance: random.Random, folder: Path) -> None:
        path = folder / name
        path.write_bytes(data)
        try:
            found = examine_file(path, FLAT)
        except UnfinishedError:
            return
        ImportedFileReader(FLAT).read(path, found, 0, found.rows)

    return sample, decode


def _footer(data: bytes, _chance: random.Random, folder: Path) -> None:
    path = folder / "footer"
    path.write_bytes(data + len(data).to_bytes(4, "little") + b"PAR1")
    with path.open("rb") as file:
        try:
            read_footer(file.fileno(), path.stat().st_size)
        except ThriftError:
            return


def _cast(data: bytes, _chance: random.Random, _folder: Path) -> None:
    texts = pa.array([data.decode("utf-8", "replace"), "1.5"])
    for type_ in (pa.decimal128(10, 2), pa.decimal128(38, 38), INT64, TIMESTAMP, DATE, pa.float64(), pa.bool_()):
        convert_or_null(texts, type_)


Decoder = Callable[[bytes, random.Random, Path], None]
_LINE = json.dumps(ROW).encode()
CASES: dict[str, tuple[bytes, Decoder]] = {
    "json": _messages("json", _LINE),
    "json lines": _messages(
        "json", json.dumps({"insert": NESTED_ROW}).encode() + b"\n" + json.dumps(NESTED_ROW).encode(), NESTED
    ),
    "json array": _messages("json", json.dumps([ROW, NESTED_ROW]).encode(), NESTED),
    "upsert": _messages("upsert", _LINE),
    "arrow": _messages("arrow", _arrow(NESTED, NESTED_ROW), NESTED),
    "debezium": _messages("debezium", json.dumps(CHANGE).encode()),
    "debezium bytes": _messages(
        "debezium", json.dumps({**CHANGE, "after": {**ROW, "dec": "AP8="}}).encode(), decimals="bytes"
    ),
    "debezium schema": _messages(
        "debezium",
        json.dumps(
            {
                "schema": {
                    "type": "struct",
                    "fields": [
                        {
                            "field": "after",
                            "type": "struct",
                            "fields": [
                                {"field": "id", "type": "int64"},
                                {
                                    "field": "dec",
                                    "type": "bytes",
                                    "name": "org.apache.kafka.connect.data.Decimal",
                                    "parameters": {"scale": "2"},
                                },
                            ],
                        }
                    ],
                },
                "payload": {"before": None, "after": {"id": 1, "dec": "AP8="}, "op": "c"},
            }
        ).encode(),
    ),
    "debezium-flat": _messages("debezium-flat", json.dumps({**ROW, "raw": "AP8=", "__deleted": "false"}).encode()),
    "avro": _avro(_avro_message(), of_schema=False),
    "avro schema": _avro(json.dumps(AVRO_ROW).encode(), of_schema=True),
    "csv": _files("rows.csv", b"id,dec,name,at,day,raw\n1,1.50,a,2024-05-31 10:00:00,2024-05-31,x\n"),
    "jsonl": _files("rows.jsonl", _LINE + b"\n" + _LINE),
    "parquet": _files("rows.parquet", _parquet()),
    "footer": (_parquet()[4:-8], _footer),
    "cast": (b"1.5", _cast),
}


def mutants(seed: int, each: int) -> Iterator[tuple[str, bytes, random.Random]]:
    """All mutants of a seed, with the names of their decoders; the tokens alone first."""
    for name, (sample, _) in CASES.items():
        chance = random.Random(f"{seed} {name}")
        for token in TOKENS:
            yield name, token, chance
        for _ in range(each):
            yield name, mutant(chance, sample), chance


def run(notes: Path, seed: int, each: int) -> None:
    """Show every mutant to its decoder; `notes` holds the one under way, and at the end how many there were."""
    count = 0
    with notes.open("w+b", buffering=0) as out:
        for name, data, chance in mutants(seed, each):
            out.seek(0)
            out.truncate()
            out.write(repr((name, data)).encode())
            began = time.process_time()
            CASES[name][1](data, chance, notes.parent)
            took = time.process_time() - began
            assert took < CPU_S_MAX, f"a decoder takes too long: seconds={took} name={name} data={data!r}"
            count += 1
        out.seek(0)
        out.truncate()
        out.write(f"done {count}".encode())


if __name__ == "__main__":
    if sys.argv[4:] == ["unbounded"]:  # the planted bug: texts of decimals go to Arrow as they are
        decimal_texts.check_text = lambda _text: None
        json_rows.holds_long_exponent = lambda _data: False
    run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
