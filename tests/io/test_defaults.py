"""A row that does not name a column has the column's default, a row that says null has null, however rows come in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dbsp
from dbsp.algebra.table import Table
from dbsp.errors import CircuitError
from dbsp.io.formats import absent, decode_arrow, decode_json
from dbsp.io.formats.avro.rows import AvroChanges, AvroRows
from dbsp.io.formats.debezium import DebeziumJson, Encodings
from dbsp.io.imported_file import ImportedFileReader, examine_file
from dbsp.io.pushed import Push, PushBounds
from dbsp.io.texts import decode_csv
from dbsp.logs import INSERT
from dbsp.runtime.pushed import rows_to_batch
from dbsp.zset.schema import Column
from tests.io.avro_samples import Held, encoded
from tests.pace import examples

Row = Mapping[str, Any]
QUOTED = 'ä"/b'
"""A name that JSON can write in several ways."""
TYPES = {
    "id": dbsp.INT64, "n": dbsp.INT64, "text": dbsp.STRING, QUOTED: dbsp.STRING, "d": dbsp.decimal(6, 2),
    "plain": dbsp.INT64, "must": dbsp.INT64,
}  # fmt: skip
DEFAULTS = {"n": 7, "text": 'so "so"', QUOTED: "x", "d": Decimal("1.50"), "must": 3}
VALUES = {
    "n": [0, 7, -3], "text": ["", "null", '"n": null'], QUOTED: ["y"], "d": [Decimal("0.25")], "plain": [1], "must": [9],
}  # fmt: skip


def declared(types: Mapping[str, Any]) -> Table:
    columns = [Column(name, type_, nullable=name not in ("id", "must")) for name, type_ in types.items()]
    made: Any = dbsp.table("t", columns, defaults={name: value for name, value in DEFAULTS.items() if name in types})
    return made.node


TABLE = declared(TYPES)
PLAIN = declared({name: type_ for name, type_ in TYPES.items() if name != QUOTED})
"""The table without the name that Avro cannot have."""


@st.composite
def several(draw: st.DrawFn, *, alike: bool = False) -> list[Row]:
    """Rows that name some columns each; `alike`, all name the same."""
    names = draw(st.sets(st.sampled_from(list(VALUES))))
    made = []
    for number in range(draw(st.integers(1, 6))):
        if not alike:
            names = draw(st.sets(st.sampled_from(list(VALUES))))
        said = {
            name: draw(st.sampled_from([*VALUES[name], *([] if name == "must" else [None])])) for name in sorted(names)
        }
        made.append({"id": number, **said})
    return made


def expected(rows: Iterable[Row], table: Table) -> list[tuple[Any, ...]]:
    default = dict.fromkeys(table.schema.names) | DEFAULTS
    return [tuple(row.get(name, default[name]) for name in table.schema.names) for row in rows]


def text(row: Any, *, ascii_only: bool) -> str:
    return json.dumps(row, default=str, ensure_ascii=ascii_only)


def only(push: Push) -> list[tuple[Any, ...]]:
    assert not push.bad, push.bad[0].reason
    return [row for row, _ in push.batch.to_rows()]


def python(rows: Sequence[Row], table: Table, _ascii: bool) -> Any:
    return [row for row, _ in rows_to_batch(table, rows, INSERT).to_rows()]


def lines(rows: Sequence[Row], table: Table, ascii_only: bool) -> Any:
    return only(decode_json("\n".join(text(row, ascii_only=ascii_only) for row in rows).encode(), table))


def enveloped(rows: Sequence[Row], table: Table, ascii_only: bool) -> Any:
    return only(decode_json("\n".join(text({"insert": row}, ascii_only=ascii_only) for row in rows).encode(), table))


def array(rows: Sequence[Row], table: Table, ascii_only: bool) -> Any:
    return only(decode_json(text(list(rows), ascii_only=ascii_only).encode(), table))


def debezium(rows: Sequence[Row], table: Table, ascii_only: bool) -> Any:
    sent = [text({"before": None, "after": row, "op": "c"}, ascii_only=ascii_only).encode() for row in rows]
    return only(DebeziumJson(table, Encodings(decimals="text")).decode(sent)[0])


def described(rows: Sequence[Row], table: Table, ascii_only: bool) -> Any:
    """Messages of Debezium with a schema, each with the fields of its row."""
    kinds = {dbsp.INT64: "int64", dbsp.STRING: "string", TYPES["d"]: "string"}
    sent = []
    for row in rows:
        fields = [{"field": name, "type": kinds[TYPES[name]]} for name in row]
        schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
        payload = {"before": None, "after": row, "op": "c"}
        sent.append(text({"schema": schema, "payload": payload}, ascii_only=ascii_only).encode())
    return only(DebeziumJson(table, Encodings(decimals="text")).decode(sent)[0])


ONE_BY_ONE: dict[str, Callable[[Sequence[Row], Table, bool], Any]] = {
    "python": python, "lines": lines, "enveloped": enveloped, "array": array, "debezium": debezium, "described": described,
}  # fmt: skip


@pytest.mark.parametrize("way", ONE_BY_ONE)
@settings(max_examples=examples(40), deadline=None)
@given(several(), st.sampled_from([TABLE, PLAIN]), st.booleans())
def test_each_row_that_does_not_name_a_column_has_its_default(
    way: str, rows: list[Row], table: Table, ascii_only: bool
) -> None:
    rows = [{name: value for name, value in row.items() if name in table.schema} for row in rows]
    assert ONE_BY_ONE[way](rows, table, ascii_only) == expected(rows, table)


def stored(rows: Sequence[Row]) -> pa.Table:
    return pa.table({name: pa.array([row[name] for row in rows], TYPES[name]) for name in rows[0]})


def arrow(rows: Sequence[Row]) -> Any:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, stored(rows).schema) as writer:
        writer.write_table(stored(rows))
    return only(decode_arrow(bytes(sink.getvalue()), TABLE))


def parquet(rows: Sequence[Row]) -> Any:
    """A file whose later columns the table may lack: those without a default must be there."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "1.parquet"
        whole = [{"plain": None, **row} for row in rows]
        pq.write_table(stored(whole), path)
        reader = ImportedFileReader(TABLE)
        noted = examine_file(path, TABLE)
        some = reader.read(path, noted, 0, noted.rows, frozenset(["n"]))
        assert some.batch.column("n").to_pylist() == [row[1] for row in expected(rows, TABLE)]
        return only(reader.read(path, noted, 0, noted.rows))


def csv(rows: Sequence[Row]) -> Any:
    """No texts: an empty one is a null in CSV."""
    rows = [{name: value for name, value in row.items() if name not in ("text", QUOTED)} for row in rows]
    shown = [",".join(rows[0]), *(",".join("" if each is None else str(each) for each in row.values()) for row in rows)]
    return only(decode_csv("\n".join(shown).encode(), TABLE, PushBounds()))


COLUMNS: dict[str, Callable[[Sequence[Row]], Any]] = {"arrow": arrow, "parquet": parquet}


@settings(max_examples=examples(40), deadline=None)
@given(several(alike=True))
def test_an_absent_column_has_its_default(rows: list[Row]) -> None:
    for way in COLUMNS.values():
        assert way(rows) == expected(rows, TABLE)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    assert [row for row, _ in rows_to_batch(TABLE, columns, INSERT).to_rows()] == expected(rows, TABLE)
    bare = [{name: value for name, value in row.items() if name not in ("text", QUOTED)} for row in rows]
    assert csv(rows) == expected(bare, TABLE)


@settings(max_examples=examples(30), deadline=None)
@given(several(alike=True))
def test_fields_that_a_schema_of_avro_lacks_have_their_default(rows: list[Row]) -> None:
    kinds = {dbsp.INT64: "long", dbsp.STRING: "string", TYPES["d"]: "string"}
    rows = [
        {name: str(value) if isinstance(value, Decimal) else value for name, value in row.items() if name != QUOTED}
        for row in rows
    ]
    fields = [{"name": name, "type": ["null", kinds[TYPES[name]]]} for name in rows[0]]
    record = {"type": "record", "name": "R", "namespace": "of.tests", "fields": fields}
    plain = AvroRows(PLAIN, Held(record)).decode([encoded(record, row) for row in rows])[0]
    change = {"type": "record", "name": "Envelope", "fields": [
        {"name": "before", "type": ["null", record]}, {"name": "after", "type": ["null", "of.tests.R"]},
        {"name": "op", "type": "string"},
    ]}  # fmt: skip
    sent = [encoded(change, {"before": None, "after": row, "op": "c"}) for row in rows]
    place = PLAIN.schema.index("d")
    wanted = [(*row[:place], row[place] and Decimal(row[place]), *row[place + 1 :]) for row in expected(rows, PLAIN)]
    assert only(plain) == wanted
    assert only(AvroChanges(PLAIN, Held(change)).decode(sent)[0]) == wanted


def test_a_delete_from_a_table_without_a_key_names_the_row_with_its_default() -> None:
    with dbsp.open(
        dbsp.circuit("c", {"v": dbsp.table("t", {"k": dbsp.INT64, "x": dbsp.INT64}, defaults={"x": 5})})
    ) as run:
        run.push("t", [{"k": 1}, {"k": 2, "x": None}])
        run.step()
        run.delete("t", [{"k": 1}, {"k": 2, "x": None}])
        run.step()
        assert run.view("v").to_pylist() == []


@pytest.mark.parametrize(
    ("defaults", "message"),
    [
        ({"y": 1}, 'no such column: column="y"'),
        ({"k": 1}, "a column of the primary key has no default: column=k"),
        ({"x": "one"}, "a default that does not fit its column: column=x"),
        ({"x": 1 << 70}, "a default that does not fit its column: column=x"),
        ([("x", 1)], "defaults are a dict"),
    ],
)
def test_a_default_that_cannot_be_is_refused(defaults: Any, message: str) -> None:
    with pytest.raises(CircuitError, match=message):
        dbsp.table("t", {"k": dbsp.INT64, "x": dbsp.INT64}, primary_key="k", defaults=defaults)


def test_a_null_that_counts_as_an_absence_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[Row] = [{"id": 1, "n": None}, {"id": 2, "n": None}]
    assert lines(rows, PLAIN, False) == expected(rows, PLAIN)
    monkeypatch.setattr(absent, "_null_of", lambda _name: absent._name_of("no such name"))
    assert lines(rows, PLAIN, False) != expected(rows, PLAIN)
