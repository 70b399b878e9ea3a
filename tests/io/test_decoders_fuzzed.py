"""Whatever bytes arrive, a decoder refuses them or makes rows of them: it ends no process and takes no time out of proportion."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dbsp.expr.cast import convert_or_null
from dbsp.io.formats.json_scan import holds_long_exponent
from dbsp.io.kafka.messages import MessageReading, reader_of
from dbsp.io.parquet import thrift
from dbsp.zset.fitting import array_of
from tests.io import fuzzed_decoders as fuzzed
from tests.pace import anew

ROOT = Path(__file__).parents[2]
EACH = 2000 if anew() else 60


def ended(notes: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.io.fuzzed_decoders", str(notes), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, cwd=ROOT)


def test_no_mutant_ends_or_holds_up_the_process(tmp_path: Path) -> None:
    seed = int.from_bytes(os.urandom(4)) if anew() else 0
    notes = tmp_path / "notes"
    child = ended(notes, str(seed), str(EACH))
    assert child.returncode == 0, f"seed={seed} case={notes.read_text()[:2000]}\n{child.stderr[-2000:]}"
    assert notes.read_text() == f"done {len(fuzzed.CASES) * (EACH + len(fuzzed.TOKENS))}"


def test_without_the_bounds_a_mutant_ends_it(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    assert ended(notes, "0", "0", "unbounded").returncode == -signal.SIGSEGV
    assert "e-99999999" in notes.read_text()


@pytest.mark.parametrize("text", ["1e-99999999", "0e-2147483647", "1.5E-1000", "0." + "0" * 100_000 + "1"])
def test_numbers_of_too_many_places_are_refused_where_they_come_in(text: str) -> None:
    with pytest.raises(pa.ArrowInvalid, match="at most 76 places"):
        array_of([Decimal(text)], pa.decimal128(10, 2))
    with pytest.raises(pa.ArrowInvalid, match="at most 76 places"):
        array_of([[{"x": Decimal(text)}]], pa.list_(pa.struct([("x", pa.decimal128(10, 2))])))
    assert convert_or_null(pa.array([text, "2"]), pa.decimal128(10, 2)).to_pylist() == [None, Decimal("2.00")]


@pytest.mark.parametrize(
    ("block", "found"),
    [
        (b'{"d": 1e-99999999}', True),
        (b'{"d": "1e-9999"}', True),
        (b'{"d": "1.E+12345"}', True),
        (b'{"d": "1\\u0065-99999999"}', True),
        (b'{"d": "-1e9999", "e": 2}', True),
        (b'{"d": 1e-999}', False),
        (b'{"d": "0b1e4000-7e60-11ee"}', False),
        (b'{"d": "a1e40000", "e": "1e40000a"}', False),
        (b'{"d": "e12345 \\u003c \\u00e9"}', False),
    ],
)
def test_long_exponents_are_found_and_words_are_none(block: bytes, found: bool) -> None:
    assert holds_long_exponent(np.frombuffer(block, np.uint8)) is found


def avro(schema: Any, body: bytes) -> list[str]:
    reader = reader_of("avro", fuzzed.FLAT, MessageReading(registry=fuzzed._Schemas(json.dumps(schema).encode())))
    push, _ = reader.decode([struct.pack(">bI", 0, 7) + body])
    return [row.reason for row in push.bad]


@pytest.mark.parametrize("size", [-1, -1099511627776, 1 << 62, "3", None, True])
def test_a_fixed_type_without_a_size_makes_bad_rows(size: Any) -> None:
    fields = [{"name": "raw", "type": {"type": "fixed", "name": "F", "size": size}}]
    (reason,) = avro({"type": "record", "name": "R", "fields": fields}, b"abc")
    assert "the schema is not read: a fixed type of no such size" in reason


def test_types_that_name_each_other_twice_are_too_long() -> None:
    fields: Any = [{"name": "x", "type": "long"}]
    for depth in range(40):
        inner = {"type": "record", "name": f"R{depth}", "fields": fields}
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": f"R{depth}"}]
    (reason,) = avro({"type": "record", "name": "R", "fields": fields}, b"")
    assert "the schema is not read: too long" in reason


def test_lists_of_nothing_take_no_more_time_than_their_bytes() -> None:
    nulls = {"type": "array", "items": {"type": "array", "items": "null"}}
    schema = {"type": "record", "name": "R", "fields": [{"name": "l", "type": nulls}]}
    inner = b"\x80\x80\x06\x00"  # so many nulls, and no more
    body = b"\xc0\x8d\x03" + inner * 25_000 + b"\x00"
    began = time.process_time()
    assert avro(schema, body) == ["the bytes do not fit their schema"]
    assert time.process_time() - began < 1


def test_a_number_in_a_footer_ends() -> None:
    for data in (b"\x15" + b"\xff" * (1 << 18), b"\x19" * 5000):
        began = time.process_time()
        with pytest.raises(thrift.ThriftError):
            thrift.ThriftReader(data).struct()
        assert time.process_time() - began < 1
