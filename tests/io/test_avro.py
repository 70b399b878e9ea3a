"""Avro: what fastavro wrote is read, whatever else is in the records; a message has one verdict whatever stands beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp.algebra.table import Table
from dbsp.errors import ConfigError, UnavailableError
from dbsp.io.formats.avro.registry import Registry
from dbsp.io.formats.avro.rows import AvroChanges, AvroRows
from dbsp.io.pushed import Push
from dbsp.zset.schema import INT64, STRING, Column, Schema, struct_of
from tests.io.avro_samples import INNER, NUMBER, PASSED_OVER, READ, Held, encoded
from tests.io.registry import Registry as Stub
from tests.io.registry import registry
from tests.pace import examples

COLUMNS = {kind: type_ for kind, (_, type_, _) in READ.items()}
ALL = Table(name="t", schema=Schema(tuple(Column(kind, type_) for kind, type_ in COLUMNS.items())))
KEYED = Table(name="k", schema=Schema.of({"id": INT64, "name": STRING}), primary_key=("id",))
EVENTS = Table(name="e", schema=Schema.of({"id": INT64, "name": STRING}), append_only=True)
ROW = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}],
}
CHANGE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.orders",
    "fields": [
        {"name": "before", "type": ["null", {**ROW, "name": "Value"}], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {
            "name": "source",
            "type": {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": ["null", "long"]}]},
        },
        {"name": "op", "type": "string"},
    ],
}


def rows(push: Push) -> list[tuple[Any, ...]]:
    return [row for row, _ in push.batch.to_rows()]


def verdicts(push: Push, counts: Any) -> list[list[Any]]:
    """Per message what became of it."""
    found: list[Any] = [None] * push.rows
    for place, row, operation in zip(push.good_indices(), rows(push), push.operations, strict=True):
        found[place] = (int(operation), repr(row))
    for bad in push.bad:
        found[bad.index] = (bad.reason, bad.payload)
    ends = np.cumsum(counts)
    return [found[end - count : end] for end, count in zip(ends, counts, strict=True)]


@st.composite
def records(draw: st.DrawFn) -> tuple[Any, list[dict[str, Any]]]:
    """A schema with some columns of `ALL`, in any order, nullable or not, among fields that nobody wants; and rows."""
    kinds = draw(st.permutations(list(READ)).map(lambda found: found[: draw(st.integers(1, 8))]))
    fields, values = [], {}
    for kind in kinds:
        avro, _, drawn = READ[kind]
        union = draw(st.sampled_from([None, ["null", avro], [avro, "null"]]))
        fields.append({"name": kind, "type": union or avro})
        values[kind] = drawn if union is None else st.none() | drawn
    for kind in draw(st.lists(st.sampled_from(sorted(PASSED_OVER)), unique=True, max_size=3)):
        avro, drawn = PASSED_OVER[kind]
        fields.insert(draw(st.integers(0, len(fields))), {"name": f"other_{kind}", "type": avro})
        values[f"other_{kind}"] = drawn
    inner = [{"name": "inner", "type": INNER}]
    schema = {"type": "record", "name": "R", "namespace": draw(st.sampled_from(["", "a.b"])), "fields": inner + fields}
    held = st.fixed_dictionaries({"inner": st.just({"z": 1}), **values})
    return schema, draw(st.lists(held, min_size=1, max_size=6))


@settings(max_examples=examples(150), deadline=None)
@given(records())
def test_what_fastavro_wrote_is_read(case: tuple[Any, Sequence[Mapping[str, Any]]]) -> None:
    schema, written = case
    push, counts = AvroRows(ALL, Held(schema)).decode([encoded(schema, row) for row in written])  # type: ignore[arg-type]
    assert push.bad == ()
    assert counts.tolist() == [1] * len(written)
    found = [dict(zip(COLUMNS, row, strict=True)) for row in rows(push)]
    assert found == [{kind: row.get(kind) for kind in COLUMNS} for row in written]


@settings(max_examples=examples(150), deadline=None)
@given(records(), st.data())
def test_a_message_has_one_verdict_whatever_stands_beside_it(case: tuple[Any, Any], data: st.DataObject) -> None:
    schema, written = case
    messages = [bytearray(encoded(schema, row)) for row in written]
    for _ in range(data.draw(st.integers(0, 4))):
        message = data.draw(st.sampled_from(messages))
        at = data.draw(st.integers(0, len(message)))
        message[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    values = [bytes(message) for message in messages]
    reader = AvroRows(ALL, Held(schema))  # type: ignore[arg-type]
    together = verdicts(*reader.decode(values))
    assert together == [verdicts(*AvroRows(ALL, Held(schema)).decode([value]))[0] for value in values]  # type: ignore[arg-type]


def test_a_record_within_a_record_is_a_struct() -> None:
    place = struct_of({"street": STRING, "at": struct_of({"x": INT64})})
    table = Table(name="t", schema=Schema.of({"id": INT64, "place": place}))
    at = {"type": "record", "name": "At", "fields": [{"name": "y", "type": "string"}, {"name": "x", "type": "int"}]}
    inner = {
        "type": "record",
        "name": "Place",
        "fields": [{"name": "at", "type": ["null", at]}, {"name": "street", "type": "string"}],
    }
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "id", "type": "long"}, {"name": "place", "type": ["null", inner]}],
    }
    written = [
        {"id": 1, "place": None},
        {"id": 2, "place": {"at": None, "street": "Elm"}},
        {"id": 3, "place": {"at": {"y": "?", "x": 5}, "street": ""}},
    ]
    push, _ = AvroRows(table, Held(schema)).decode([encoded(schema, row) for row in written])  # type: ignore[arg-type]
    assert rows(push) == [
        (1, None), (2, {"street": "Elm", "at": None}), (3, {"street": "", "at": {"x": 5}}),
    ]  # fmt: skip


def test_bytes_that_do_not_fit_their_schema_are_bad() -> None:
    whole = encoded(ROW, {"id": 300, "name": "abc"})
    hurt = [whole[:end] for end in range(5, len(whole))] + [whole + b"\0", whole[:5] + b"\xff" * 11, whole[:7] + b"\4a"]
    hurt += [whole[:7] + b"\2\1", whole[:7] + b"\2\xfe\xff\xff\xff\xff\xff\xff\xff\xff\1", whole[:7] + b"\2\2\xff"]
    push, counts = AvroRows(KEYED, Held(ROW)).decode([whole, *hurt, whole])  # type: ignore[arg-type]
    assert counts.tolist() == [1] * (len(hurt) + 2)
    assert rows(push) == [(300, "abc")] * 2
    reasons = [bad.reason for bad in push.bad]
    assert reasons[:-1] == ["the bytes do not fit their schema"] * (len(hurt) - 1)
    assert reasons[-1].startswith("column name: not a valid string: ")  # not UTF-8


def test_plain_records_delete_by_a_column() -> None:
    schema = {**ROW, "fields": [*ROW["fields"], {"name": "__op", "type": "int"}]}
    written = [{"id": 1, "name": "a", "__op": 0}, {"id": 1, "name": None, "__op": 1}, {"id": 2, "name": "b", "__op": 2}]
    messages = [encoded(schema, row) for row in written]
    push, _ = AvroRows(KEYED, Held(schema)).decode(messages)  # type: ignore[arg-type]
    assert rows(push) == [(1, "a"), (1, None)]
    assert push.operations.tolist() == [0, 1]
    assert [bad.reason for bad in push.bad] == ["column __op: neither 0 (insert) nor 1 (delete)"]
    flat = {**ROW, "fields": [*ROW["fields"], {"name": "__deleted", "type": ["null", "string"]}]}
    flattened = [encoded(flat, {"id": 1, "name": "a", "__deleted": said}) for said in ("false", "true", "maybe")]
    push, _ = AvroRows(KEYED, Held(flat)).decode(flattened)  # type: ignore[arg-type]
    assert push.operations.tolist() == [0, 1]
    assert [bad.reason for bad in push.bad] == ["column __deleted: neither false (insert) nor true (delete)"]
    push, _ = AvroRows(EVENTS, Held(schema)).decode(messages[:2])  # type: ignore[arg-type]
    assert [bad.reason for bad in push.bad] == ["a delete in an append-only table"]


def test_changes_of_a_database() -> None:
    def change(op: str, before: Any, after: Any) -> bytes:
        names = ("id", "name")
        parts = {
            name: None if row is None else dict(zip(names, row, strict=True))
            for name, row in (("before", before), ("after", after))
        }
        return encoded(CHANGE, {**parts, "source": {"lsn": 5}, "op": op})

    messages = [
        change("r", None, (1, "a")),
        change("u", None, (1, "b")),
        None,
        change("u", (1, "b"), (2, "b")),
        change("d", (2, None), None),
        change("t", None, None),
    ]
    push, counts = AvroChanges(KEYED, Held(CHANGE)).decode(messages)  # type: ignore[arg-type]
    assert rows(push) == [(1, "a"), (1, "b"), (1, "b"), (2, "b"), (2, None)]
    assert push.operations.tolist() == [0, 0, 1, 0, 1]
    assert counts.tolist() == [1, 1, 0, 2, 1, 1]
    assert [(bad.index, bad.reason[:12]) for bad in push.bad] == [(5, "not a change")]


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ({"name": "id", "type": ["long", "string"]}, "column id: not a valid int64: a union of several types"),
        ({"name": "id", "type": {"type": "array", "items": "long"}}, "column id: not a valid int64: lists and maps"),
        ({"name": "id", "type": "string"}, "column id: not a valid int64: a text for int64"),
        ({"name": "other", "type": {"type": "record", "name": "R", "fields": []}}, "the schema is not read"),
        ({"name": "other", "type": "Unheard"}, "the schema is not read: no such type: Unheard"),
        ({"name": "other", "type": "long"}, "column id: missing or null"),
    ],
)
def test_a_schema_that_does_not_fit_makes_its_messages_bad(field: Any, reason: str) -> None:
    schema = {"type": "record", "name": "R", "fields": [field]}
    value = [5] if "array" in str(field) else "x" if "string" in str(field) else 5
    message = b"\0\0\0\0\7\2" if "not read" in reason else encoded(schema, {field["name"]: value})
    push, _ = AvroRows(KEYED, Held(schema)).decode([message])  # type: ignore[arg-type]
    assert [bad.reason[: len(reason)] for bad in push.bad] == [reason]


# ---- the registry ----


def test_schemas_come_from_the_registry_with_what_they_refer_to() -> None:
    outer = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "x.Name"}],
    }
    inner = {"type": "enum", "name": "Name", "namespace": "x", "symbols": ["a", "b"]}
    answers = {
        f"/schemas/ids/{NUMBER}": (
            200,
            {"schema": json.dumps(outer), "references": [{"name": "x.Name", "subject": "a/b", "version": 3}]},
        ),
        "/subjects/a%2Fb/versions/3": (200, {"schema": json.dumps(inner)}),
    }
    with registry(Stub(answers=answers, login="Basic bWU6c2VjcmV0")) as held:
        reader = AvroRows(KEYED, Registry(held.url, "me:secret"))
        push, _ = reader.decode([b"\0\0\0\0\7\2\2"])
        with pytest.raises(ConfigError, match="refuses the login"):
            Registry(held.url).schema(NUMBER)
    assert rows(push) == [(1, "b")]
    push, _ = reader.decode([b"\0\0\0\0\7\4\0"])  # it is remembered: nobody is asked
    assert rows(push) == [(2, "a")]


def test_a_registry_that_does_not_answer_says_nothing_about_the_message() -> None:
    with registry(Stub(answers={f"/schemas/ids/{NUMBER}": (500, {"message": "later"})})) as held:
        reader = AvroRows(KEYED, Registry(held.url))
        for head in (b"\0\0\0\0\7", b"\0\0\0\0\x08"):
            with pytest.raises(UnavailableError, match="does not have the schema"):
                reader.decode([head])
    with pytest.raises(UnavailableError, match="cannot be asked"):
        reader.decode([b"\0\0\0\0\7\2\2"])


def test_a_schema_of_another_kind_makes_its_messages_bad() -> None:
    answers = {f"/schemas/ids/{NUMBER}": (200, {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"})}
    with registry(Stub(answers=answers)) as held:
        push, _ = AvroRows(KEYED, Registry(held.url)).decode([b"\0\0\0\0\7\2\2"])
    assert [bad.reason for bad in push.bad] == ["the schema is not read: a schema of another kind: PROTOBUF"]
