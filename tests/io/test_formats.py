"""JSON and Arrow: every row gets one verdict, however the bytes are cut; nothing a sender writes crashes the process."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dbsp
from dbsp.algebra.table import Table
from dbsp.errors import DataError
from dbsp.io.formats import decode_arrow, decode_json, encode_arrow, encode_json, json_rows, pieces, tables_in
from dbsp.io.formats.json_output import upsert_messages
from dbsp.io.formats.json_rows import decode_json_lines
from dbsp.io.formats.json_scan import count_plain_rows
from dbsp.io.pushed import PAYLOAD_CHARS_MAX, Push
from dbsp.zset import schema as t
from dbsp.zset.batch import Batch
from dbsp.zset.schema import Column, Schema
from tests.pace import examples

TYPES = {
    "flag": t.BOOL,
    "tiny": t.INT8,
    "big": t.UINT64,
    "long": t.INT64,
    "single": t.FLOAT32,
    "double": t.FLOAT64,
    "money": t.decimal(6, 2),
    "text": t.STRING,
    "blob": t.BINARY,
    "day": t.DATE,
    "clock": t.TIME,
    "local": t.TIMESTAMP,
    "utc": t.TIMESTAMP_UTC,
    "wait": t.DURATION,
    "tags": t.list_of(t.STRING),
    "sizes": t.list_of(t.INT32),
    "days": t.list_of(t.DATE),
    "shares": t.list_of(t.FLOAT32),
    "place": t.struct_of({"street": t.STRING, "since": t.DATE, "at": t.struct_of({"x": t.FLOAT32, "key": t.BINARY})}),
    "parts": t.list_of(t.struct_of({"n": t.INT8, "cost": t.decimal(6, 2), "tags": t.list_of(t.STRING)})),
    "grid": t.list_of(t.list_of(t.INT8)),
}
ALL = Table(
    name="all", schema=Schema.of([Column("id", t.INT64, nullable=False), *(Column(n, c) for n, c in TYPES.items())])
)
KEYED = Table(
    name="keyed",
    schema=Schema.of([Column("id", t.INT64, nullable=False), Column("name", t.STRING, nullable=False)]),
    primary_key=("id",),
)

GOOD = {
    "flag": ["true", "false"],
    "tiny": ["-128", "127", "-0", "1.0", "1e2"],
    "big": ["18446744073709551615", "0"],
    "long": ["-9223372036854775808", "9223372036854775807"],
    "single": ["0.1", "1e38", "NaN", "16777217", "-0.0"],
    "double": ["0.1", "5", "-Infinity", "1e-320", "123456789012345678901234567890", "NaN"],
    "money": ["1", "1.50", '"-1234.56"', "1e1", '"1.500"', '".5"', "-0.0"],
    "text": ['""', '"Infinity n\\u00e4her \\ud83d\\ude00 \\u0000 \\" }{"', '"null"'],
    "blob": ['""', '"00ffAB"'],
    "day": ['"2024-02-29"', '"0001-01-01"', '"9999-12-31"'],
    "clock": ['"23:59:59.999999"', '"00:00:00"', '"12:30"', '"12"'],
    "local": ['"2024-02-29 23:59:59.5"', '"2024-02-29T10:00:00"', '"2024-02-29"'],
    "utc": ['"2024-02-29T10:00:00Z"', '"2024-02-29T10:00:00"', '"2024-02-29"', '"2024-02-29 10:00:00.25+02:00"'],
    "wait": ["-5", "0", '"1 day, 1:00:00"', '"-02:03:04.5"', '"PT1H"'],
    "tags": ["[]", '["a", null, ""]', '["x\\u00e4]["]', "[ ]"],
    "sizes": ["[1,2,-3]", "[null]", "[ 5 ]", "[]"],
    "days": ['["2024-02-29", null]', "[]"],
    "shares": ["[0.1, NaN, -0.0, 1]", "[]"],
    "place": [
        "{}",
        '{"street": "Elm \\"7\\"", "since": "2024-02-29", "at": {"x": 0.1, "key": "00ff"}}',
        '{"at": null, "street": null}',
        '{"at": {}}',
    ],
    "parts": ["[]", "[null, {}]", '[{"n": 1, "cost": "1.50", "tags": ["a", null]}, {"tags": []}]', '[{"n": null}]'],
    "grid": ["[]", "[[], null, [1, null]]"],
}
BY_ROW = ("-Infinity", "1.0", "1e2")
"""Good values that the fast way leaves to the other."""
BAD = {
    "flag": ["1", '"true"', "[]"],
    "tiny": ["128", "1.5", "1e3", "1e-2", '"5"', "true", "NaN", "9" * 5000],
    "big": ["-1", "18446744073709551616"],
    "long": ["9223372036854775808", "1.5", '"1"', "{}"],
    "single": ["1e39", '"0.1"', "true"],
    "double": ["1e400", '"1"', "[1]", "Inf", "-Inf", "nan"],
    "money": ["1.505", "99999", '"1_0"', '"NaN"', '""', '" 1"', "true", "NaN"],
    "text": ["5", '"\\ud800"', "{}", '"\t"'],
    "blob": ['"0"', '"zz"', '"00 11"', "5"],
    "day": ['"20240101"', '"0000-01-01"', '"2023-02-29"', '"2024-01-01T00:00:00"', "19000"],
    "clock": ['"24:00:00"', '"x"', '"1"', '"12:00:00Z"', '"-01:00:00"'],
    "local": ['"2024-02-29T10:00:00Z"', '"0000-01-01 00:00:00"', '"2024-02-29 10:00:00.1234567"', "0"],
    "utc": ['"2024-02-29T10:00:00 Z"', '"2024-02-30T10:00:00Z"', '"2024-02-30"'],
    "wait": ["1.5", '"1"', "9223372036854775808", '"999999999 days"', '"PT"', '""', '"1 month"'],
    "tags": ["[1]", '"a"', "[[]]", '[{"a": 1}]', "{}", '["\\ud800"]'],
    "sizes": ["[1.5]", "[2147483648]", '["1"]', "5", "[true]"],
    "days": ['["2023-02-29"]', "[5]", '"2024-02-29"'],
    "shares": ["[1e39]", '["1"]'],
    "place": [
        "[]",
        "5",
        '"Elm"',
        '{"city": "x"}',
        '{"street": 5}',
        '{"street": "a", "street": "b"}',
        '{"since": "2023-02-29"}',
        '{"at": []}',
        '{"at": {"x": 1e39}}',
        '{"at": {"y": 1}}',
    ],
    "parts": ["{}", "[[]]", '[{"n": 128}]', '[{"m": 1}]', '[{"cost": 1.505}]', '[{"tags": [1]}]', "[1]"],
    "grid": ["[1]", "[[128]]", "[[[1]]]", '[{"a": 1}]'],
}
STRANGE = [
    b"null",
    b"5",
    b'"x"',
    b"[]",
    b"[[",
    b"{",
    b"}",
    b"{}",
    b"{}{}",
    b'{"id":1}{"id":2}',
    b'{"id":1} null',
    b'{"id":\xff}',
    b'{"id":1,"id":2}',
    b'{"id":1,"other":2}',
    b'{"id":1,"other":2,"other":3}',
    b'{"id":1,"other":{"insert":{}}}',
    b'{"id":1,"other":[{"x":"\\ud800"}, 1e999, 00]}',
    b'{"id":1,"insert":{"id":2},"other":1}',
    b'{"insert":{"id":1,"other":1},"more":null}',
    b'{"insert":{"id":1}}',
    b'{"delete":{"id":1}}',
    b'{"insert":{"id":1},"delete":{"id":1}}',
    b'{"insert":null,"delete":{"id":4}}',
    b'{"insert":{"id":1},"x":1}',
    b'{"insert":5}',
    b'{"insert":{"insert":{}}}',
    b"\x00",
    b'{"id":1}\x00',
    b'{"id":1}\r',
    b'{"id":01}',
    b"{'id':1}",
    b'{"id":1,}',
    b'\xef\xbb\xbf{"id":1}',
    b'{"id" 1}',
    b'{"id":1}//',
    b"nullnull",
    b'{"id":1} ,',
]


def verdicts(push: Push) -> list[tuple[Any, ...]]:
    """Per row: bad with reason and payload, or operation and values (NaN made equal to itself)."""
    good = [("good", int(op), repr(row)) for op, (row, _) in zip(push.operations, push.batch.to_rows(), strict=True)]
    found: list[Any] = [None] * push.rows
    for row in push.bad:
        found[row.index] = ("bad", row.reason, row.payload)
    for place, row in zip(push.good_indices(), good, strict=True):
        found[place] = row
    return found


def line(column: str, value: str) -> bytes:
    return f'{{"id": 1, "{column}": {value}}}'.encode()


@pytest.mark.parametrize("column", list(TYPES))
def test_good_values_are_taken_by_the_fast_way_and_bad_ones_are_not(column: str) -> None:
    for value in GOOD[column]:
        fast = json_rows._decode_fast(line(column, value), ALL)
        assert fast is not None or value in BY_ROW, value
        assert decode_json(line(column, value), ALL).bad == (), value
    for value in BAD[column]:
        assert json_rows._decode_fast(line(column, value), ALL) is None, value
        push = decode_json(line(column, value), ALL)
        assert len(push.batch) == 0, value
        assert len(push.bad) == 1, value
        assert push.bad[0].payload == line(column, value).decode()


rows = st.one_of(
    st.sampled_from(STRANGE),
    st.sampled_from([(c, v) for c, values in (*GOOD.items(), *BAD.items()) for v in values]).map(lambda cv: line(*cv)),
    st.sampled_from([(c, v) for c, values in GOOD.items() for v in values]).map(lambda cv: line(*cv)),
    st.sampled_from([(c, v) for c, values in GOOD.items() for v in values]).map(
        lambda cv: b'{"insert":' + line(*cv) + b"}"
    ),
)


@pytest.mark.parametrize("extras", [False, True])
@pytest.mark.parametrize("row", STRANGE)
def test_strange_rows_have_the_same_verdict_both_ways(row: bytes, extras: bool) -> None:
    assert verdicts(decode_json_lines(row, ALL, extras=extras)) == verdicts(json_rows._decode_lines([row], ALL, extras))


EXTRAS = {
    b'{"id": 1, "name": "a", "other": {"x": [1]}, "other": 5}': (1, "a"),
    b'{"insert": {"id": 1, "name": "a", "other": 1}, "more": null}': (1, "a"),
    b'{"id": 7, "insert": {"id": 1, "name": "a"}}': (1, "a"),
    b'{"id": 1, "name": "a", "at": {"insert": 5}}': (1, "a"),
    b'{"id": 1, "id": 2, "name": "a"}': "repeated name: id",
    b'{"insert": {"id": 1}, "insert": {"id": 2}}': "repeated name: insert",
    b'{"other": 1, "name": "a"}': "column id: missing or null",
    b'{"id": "x", "other": 1}': "column id: expected int64, found a string",
}


@pytest.mark.parametrize(("row", "expected"), EXTRAS.items())
def test_names_that_the_table_does_not_have_are_passed_over_where_it_is_said(row: bytes, expected: Any) -> None:
    push = decode_json(row, KEYED, extras=True)
    assert [found for found, _ in push.batch.to_rows()] + [bad.reason for bad in push.bad] == [expected]
    assert len(decode_json(row, KEYED).bad) == 1


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(rows, min_size=1, max_size=8), st.booleans())
def test_a_row_has_one_verdict_whatever_stands_beside_it(lines: Sequence[bytes], extras: bool) -> None:
    alone = [verdicts(json_rows._decode_lines([row], ALL, extras))[0] for row in lines]
    assert verdicts(decode_json_lines(b"\n".join(lines), ALL, extras=extras)) == alone


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(rows, min_size=1, max_size=4), st.data(), st.booleans())
def test_mutated_bytes_have_the_same_verdict_both_ways(
    lines: Sequence[bytes], data: st.DataObject, extras: bool
) -> None:
    body = bytearray(b"\n".join(lines))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.sampled_from(list(b'{}[]",:\n \\n1Inul\x00\xff')))
    rows = [row for row in bytes(body).split(b"\n") if row.strip()]
    slow = [verdicts(json_rows._decode_lines([row], ALL, extras))[0] for row in rows]
    assert verdicts(decode_json_lines(bytes(body), ALL, extras=extras)) == slow


def test_the_parser_that_is_guarded_against_does_crash() -> None:
    """The reason for the scan: if pyarrow is mended one day, the guard may go."""
    code = "import io, pyarrow.json as j, pyarrow as pa; j.read_json(io.BytesIO(b'null\\n{\"a\":1}'), parse_options="
    code += "j.ParseOptions(explicit_schema=pa.schema([('a', pa.int64())]), unexpected_field_behavior='error'))"
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode < 0


def test_scan_counts_plain_rows_only() -> None:
    def count(data: bytes) -> int:
        return int(count_plain_rows(np.frombuffer(data, dtype=np.uint8)))

    assert count(b"") == 0
    assert count(b'{"a":1}\n\n  {"a":"}{"}\r\n') == 2
    for data in (
        b"{}{}",
        b"{\n}",
        b"null",
        b'{"a":[1\n]}',
        b'{"a":' * 17 + b"1" + b"}" * 17,
        b'{"a":"\n"}',
        b'{"a":"',
        b"{}}",
        b"{} null",
        b'{"a":Inf}',
    ):
        assert count(data) == -1, data
    assert count(b'{"a":' * 16 + b"1" + b"}" * 16) == 1


def test_documents() -> None:
    assert [
        row for row, _ in decode_json(b'[{"id": 1, "name": "a"}, {"delete": {"id": 2}}]', KEYED).batch.to_rows()
    ] == [
        (1, "a"),
        (2, None),
    ]
    array = decode_json(b' [{"id": 1}, {"id" : 2, "name": "b"}, [1, {"x": 1.50}] ] ', KEYED)
    assert [(row.index, row.payload) for row in array.bad] == [(0, '{"id": 1}'), (2, '[1, {"x": 1.50}]')]
    assert decode_json(b'[{"id": 1}', KEYED).bad[0].payload == '[{"id": 1}'
    assert decode_json(b'{\n "id": 1,\n "name": "a"\n}\n', KEYED).batch.to_rows() == [((1, "a"), 1)]
    assert decode_json(b"", KEYED).rows == 0
    assert decode_json(b"[]", KEYED).rows == 0


@pytest.mark.parametrize(
    "body", [b'{"id": 1}\n{"id": 2}', b'[{"id": 1}, {"id": 2}]', b' {"id": 1}\n', b'{\n"id": 1\n}', b""]
)
def test_a_byte_order_mark_begins_no_row(body: bytes) -> None:
    mark = b"\xef\xbb\xbf"
    assert verdicts(decode_json(mark + body, KEYED)) == verdicts(decode_json(body, KEYED))
    assert tables_in(mark + b'{"t": [1]}') == {"t": b"[1]"}


def test_a_byte_order_mark_further_down_is_told() -> None:
    push = decode_json(b'{"id": 1, "name": "a"}\n\xef\xbb\xbf{"id": 2}', KEYED)
    reason = "a byte order mark that does not begin the whole"
    assert [(row.index, row.reason, row.payload) for row in push.bad] == [(1, reason, '\ufeff{"id": 2}')]


def test_deep_nesting_and_noise_do_not_crash() -> None:
    deep = b'{"id":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}"
    for data in (deep, b"[" * 1_000_000, b'{"a":' * 500_000, bytes(range(256)) * 100, b"[" + deep + b"]"):
        push = decode_json(data, KEYED)
        assert len(push.batch) == 0
        assert push.bad
        assert all(len(row.reason) <= json_rows.REASON_CHARS_MAX for row in push.bad)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.sampled_from([(38, 38), (38, 36), (38, 20), (20, 20), (12, 2), (5, 0)]),
    st.lists(st.decimals(allow_nan=False, allow_infinity=False, places=3), min_size=1, max_size=5),
    st.booleans(),
)
def test_decimals_are_exact_or_bad_rows(type_: tuple[int, int], numbers: Sequence[Decimal], quoted: bool) -> None:
    """Where pyarrow's own parser makes other numbers of them: 7 with 38 places."""
    schema = {"d": dbsp.decimal(*type_), "s": dbsp.struct_of({"d": dbsp.decimal(*type_)})}
    (table,) = dbsp.circuit("c", {"v": dbsp.table("t", schema)}).tables
    texts = [f'"{number:f}"' if quoted else f"{number:f}" for number in numbers]
    places = type_[1]
    good = [n for n in numbers if abs(n) < Decimal(10) ** (type_[0] - places) and n == round(n, min(places, 3))]
    inside = [f'{{"d": {text}}}' for text in texts]
    for name, lines in (("d", inside), ("s", [f'{{"s": {line}}}' for line in inside])):
        push = decode_json("\n".join(lines).encode(), table)
        column = push.batch.column(name).to_pylist()
        assert [value["d"] if name == "s" else value for value in column] == good
        assert len(push.bad) == len(numbers) - len(good)


def test_nulls_and_keys() -> None:
    push = decode_json(
        b'{"delete":{"id":1}}\n{"insert":{"id":1}}\n{"delete":{"name":"a"}}\n{"insert":{"id":2,"name":"b"}}', KEYED
    )
    assert verdicts(push) == [
        ("good", 1, "(1, None)"),
        ("bad", "column name: missing or null", '{"insert":{"id":1}}'),
        ("bad", "column id: missing or null", '{"delete":{"name":"a"}}'),
        ("good", 0, "(2, 'b')"),
    ]


def everything() -> Batch:
    lines = [line(column, value) for column, values in GOOD.items() for value in values] + [b'{"id": 7}']
    batch = decode_json(b"\n".join(lines), ALL).batch
    return Batch.of(batch.schema, batch.columns, np.array([(-1) ** n * (1 + n % 3) for n in range(len(batch))]))


def test_json_is_the_same_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """An array of texts holds 2 GiB: what is written of a large step is made of several."""
    batch = everything()
    whole = encode_json(batch)
    monkeypatch.setattr(pieces, "TEXT_ROWS", 5)
    monkeypatch.setattr(pieces, "TEXT_BYTES", batch.nbytes // 10)
    assert encode_json(batch) == whole
    lengths = [len(piece) for piece in pieces.for_texts(batch)]
    assert sum(lengths) == len(batch)
    assert 1 <= min(lengths) < max(lengths) <= 5


def test_json_out_and_in_again() -> None:
    batch = everything()
    written = encode_json(batch).decode().splitlines()
    assert len(written) == len(batch)
    plain = []
    for text, weight in zip(written, batch.weight, strict=True):
        value = json.loads(text)
        assert value.pop("weight", 1) == abs(weight)
        assert list(value) == ["insert" if weight > 0 else "delete"]
        plain.append(text.removesuffix(f',"weight":{abs(weight)}}}') + ("}" if abs(weight) != 1 else ""))
    again = decode_json("\n".join(plain).encode(), ALL)
    assert again.bad == ()
    assert repr([row for row, _ in again.batch.to_rows()]) == repr([row for row, _ in batch.to_rows()])
    assert encode_json(batch.slice(0, 0)) == b""
    assert encode_json(batch.slice(3, 9)) == "".join(f"{text}\n" for text in written[3:9]).encode()
    with pytest.raises(DataError, match="weight 0"):
        encode_json(Batch.of(batch.schema, batch.columns, np.zeros(len(batch))))


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def test_upserts_say_what_the_row_of_a_key_is_now() -> None:
    schema = Schema.of({"k": t.INT64, "j": t.STRING, "v": t.INT64})
    changes = [
        ((1, "a", 5), -1),
        ((1, "a", 6), 1),
        ((2, "b", 7), -1),
        ((3, None, 8), 1),
        ((4, "c", 1), 2),
        ((4, "c", 1), -2),
    ]
    columns = [pa.array([row[at] for row, _ in changes], column.type) for at, column in enumerate(schema)]
    batch = Batch.of(schema, columns, np.array([[weight] for _, weight in changes], dtype=np.int64))
    keys, rows = upsert_messages(batch, ("k",))
    assert dict(zip(keys.to_pylist(), rows.to_pylist(), strict=True)) == {
        "1": '{"k":1,"j":"a","v":6}', "2": None, "3": '{"k":3,"j":null,"v":8}',
    }  # fmt: skip
    assert upsert_messages(batch, ("k", "j"))[0].to_pylist()[-1] == '{"k":3,"j":null}'
    for weights in ([1, 1], [2, -1]):
        twice = Batch.of(
            schema, [column.take(pa.array([0, 1])) for column in columns], np.array([[w] for w in weights])
        )
        with pytest.raises(DataError, match="a step inserted two rows of one key"):
            upsert_messages(twice, ("k",))


def test_arrow_in() -> None:
    ids, names = pa.array([1, 2, None, 4, 5]), pa.array(["a", None, "c", None, "e"]).dictionary_encode()
    table = pa.table({"name": names, "id": ids, "__op": pa.array([0, 1, 0, 0, 7], pa.int8())})
    assert verdicts(decode_arrow(stream(table), KEYED)) == [
        ("good", 0, "(1, 'a')"),
        ("good", 1, "(2, None)"),
        ("bad", "column id: missing or null", '{"id": null, "name": "c"}'),
        ("bad", "column name: missing or null", '{"id": 4, "name": null}'),
        ("bad", "__op is neither 0 nor 1", '{"id": 5, "name": "e"}'),
    ]
    wrong = [pa.table({"id": ["x"]}), pa.table({"id": [1], "more": [2]}), pa.table({"id": [1], "__op": ["i"]})]
    for data in (b"", b"noise" * 100, *(stream(made) for made in wrong), stream(table)[:-40]):
        push = decode_arrow(data, KEYED)
        assert (len(push.batch), len(push.bad)) == (0, 1), data


def test_a_day_of_no_calendar_makes_its_row_bad() -> None:
    """As in JSON, which has no text for it; a struct or list with one inside, too."""
    table = dbsp.table(
        "t", {"id": dbsp.INT64, "day": dbsp.DATE, "part": dbsp.struct_of({"times": dbsp.list_of(dbsp.TIMESTAMP)})}
    )
    days = pa.array([0, 4_000_000, None, -800_000, 2_932_896], pa.int32()).cast(pa.date32())
    times = pa.array([[1, None], None, [2, 2**62], [], None]).cast(pa.list_(pa.timestamp("us")))
    parts = pa.StructArray.from_arrays([times], ["times"])
    push = decode_arrow(stream(pa.table({"id": range(5), "day": days, "part": parts})), table.node)
    assert push.batch.column("id").to_pylist() == [0, 4]
    outside = "a day outside of the years 1 to 9999"
    assert [(bad.index, bad.reason) for bad in push.bad] == [
        (1, f"column day: {outside}"), (2, f"column part: {outside}"), (3, f"column day: {outside}")
    ]  # fmt: skip


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_damaged_arrow_does_not_crash(data: st.DataObject) -> None:
    body = bytearray(stream(pa.table({"id": [1, 2], "name": ["a", "b"]})))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    decode_arrow(bytes(body), KEYED)


@pytest.mark.parametrize("encoded", [False, True])
def test_arrow_of_a_type_that_pyarrow_has_no_class_for_is_a_bad_push(encoded: bool) -> None:
    """It is found by what the unit of an interval is in the stream: 2 for months, days and nanoseconds, 0 for months."""
    column = pa.array([pa.MonthDayNano([1, 2, 3])])
    if encoded:
        column = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), column)
    whole, found = stream(pa.table({"id": [1], "name": column})), set()
    for place in (place for place, byte in enumerate(whole) if byte == 2):
        push = decode_arrow(whole[:place] + b"\0" + whole[place + 1 :], KEYED)
        assert len(push.bad) == 1
        found.add(push.bad[0].reason)
    reason = "not an Arrow stream of this table: columns of this type cannot be read: "
    assert any(each.startswith(reason) and "month_interval" in each for each in found), found


def test_of_a_large_body_that_is_no_arrow_stream_the_beginning_is_shown() -> None:
    (bad,) = decode_arrow(b"no stream " * 100_000, ALL).bad
    assert len(bad.payload) == PAYLOAD_CHARS_MAX
    assert base64.b64decode(bad.payload).startswith(b"no stream ")


def test_arrow_out() -> None:
    batch = everything()
    with pa.ipc.open_stream(encode_arrow(batch)) as reader:
        table = reader.read_all()
    assert table.column("weight").to_pylist() == batch.weight.tolist()
    assert repr(Batch.from_arrow(table, batch.schema).to_rows()) == repr([(row, 1) for row, _ in batch.to_rows()])


@pytest.mark.parametrize("value", ["zz", "0", "abc"])
def test_a_binary_that_is_not_read_names_its_form(value: str) -> None:
    table = dbsp.table("t", {"b": dbsp.BINARY}).node
    (bad,) = decode_json(json.dumps({"b": value}).encode(), table).bad
    assert bad.reason == f"column b: not a valid binary (an even number of hexadecimal digits): {value}"
