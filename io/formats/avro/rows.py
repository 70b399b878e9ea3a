"""Messages in Avro as rows: each record is a row, or a change of Debezium's.

A message begins with a zero byte and the number of its schema. The table's columns are matched by name; other fields
are not read, and a missing column has its default, else null. In a plain record a field `__op` is 0 for an insert, 1
for a delete, as in Parquet files. A field `__deleted` is "true" or "false", as Debezium's `ExtractNewRecordState` writes it.

In a table with a primary key, a plain message without a value is a tombstone. It deletes the row of its key, which is
Avro too, or any key that `message_keys` reads. Messages of one schema are decoded together
(`dbsp.io.formats.avro.decode`).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.algebra.table import NO_DELETE, Table
from dbsp.io.formats.avro.decode import Code
from dbsp.io.formats.avro.program import Compiler, Made, Messages, Program, column_of
from dbsp.io.formats.avro.registry import RegisteredSchema, Registry
from dbsp.io.formats.debezium_shapes import DELETED
from dbsp.io.formats.envelopes import change_rows
from dbsp.io.formats.json_rows import bad_row
from dbsp.io.formats.message_keys import deletes_of, values_or_keys
from dbsp.io.formats.runs import MISFITS, Decoded, WrongMessageError, by_kind, good_rows, in_halves, no_rows, require
from dbsp.logs import DELETE, INSERT
from dbsp.zset.schema import STRING, is_struct

OPERATION = "__op"
_HEAD = struct.Struct(">bI")
_NO_HEAD = "not Avro with the number of its schema in front"


class AvroRows:
    """A decoder of one table's messages, each a record that is a row; it caches the schemas.

    **Cost** some two million messages a second of six columns.
    """

    def __init__(self, table: Table, registry: Registry) -> None:
        """Store the table and the registry of its topic."""
        self.reads_keys = table.replaces
        self._table, self._registry = table, registry
        self._readers: dict[tuple[int, type[_Reader]], _Reader] = {}

    def decode(self, values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None) -> Decoded:
        """Return the rows of all messages in order, and each message's number of rows.

        **Errors** those of the registry for a schema that is not cached; none for a message's content.
        """
        messages = values_or_keys(values, keys) if self.reads_keys and keys is not None else values
        kinds = [(value is None, _number(message)) for value, message in zip(values, messages, strict=True)]
        return by_kind(kinds, messages, self._run, self._table)

    def _run(self, kind: tuple[bool, int | None], messages: Sequence[bytes | None]) -> list[Decoded]:
        """Decode messages of one schema, or messages without a schema number, or the keys of tombstones."""
        without_value, number = kind
        if number is None:
            return self._tombstones(messages) if without_value else [self._wrong(_NO_HEAD, each) for each in messages]
        reader = self._reader(number, _Keys if without_value else self._records)
        return in_halves([each for each in messages if each], reader.rows, _reason, self._table)

    def _tombstones(self, keys: Sequence[bytes | None]) -> list[Decoded]:
        if self.reads_keys:
            return [deletes_of(keys, self._table)]
        return [self._wrong("a message without a value", None)] * len(keys)

    def _wrong(self, reason: str, message: bytes | None) -> Decoded:
        return bad_row(reason, message or b"", self._table), np.ones(1, np.int64)

    def _reader(self, number: int, kind: type[_Reader]) -> _Reader:
        if (number, kind) not in self._readers:
            self._readers[number, kind] = kind(self._table, self._registry.schema(number))
        return self._readers[number, kind]

    @property
    def _records(self) -> type[_Reader]:
        return _Records


class AvroChanges(AvroRows):
    """A decoder of records that are Debezium's changes; tombstones are ignored."""

    def __init__(self, table: Table, registry: Registry) -> None:
        """Store the table and the registry of its topic."""
        super().__init__(table, registry)
        self.reads_keys = False

    def _tombstones(self, keys: Sequence[bytes | None]) -> list[Decoded]:
        return [no_rows(self._table, len(keys))]

    @property
    def _records(self) -> type[_Reader]:
        return _Changes


class _Reader:
    """A decoder for one schema; if the schema is unreadable, all its messages are bad with that reason."""

    def __init__(self, table: Table, schema: RegisteredSchema) -> None:
        self._table = table
        self._refusal: str | None = None
        compiler = Compiler(schema.definitions)
        self._program: Program = compiler.program
        try:
            require(schema.kind == "AVRO", f"a schema of another kind: {schema.kind}")
            self._compile(compiler, schema.schema)
            self._program.emit(Code.END)
        except (*MISFITS, KeyError, TypeError, AttributeError, RecursionError) as error:
            self._refusal = f"the schema is not read: {error}"

    def _compile(self, compiler: Compiler, schema: Any) -> None:
        raise NotImplementedError

    def _rows(self, messages: Messages) -> Decoded:
        raise NotImplementedError

    def rows(self, values: Sequence[bytes]) -> Decoded:
        """Return the rows of messages that are all good; raise one of `MISFITS` if one is not."""
        if self._refusal is not None:
            raise WrongMessageError(self._refusal)
        return self._rows(self._program.run([value[_HEAD.size :] for value in values]))

    def _columns(self, fields: Mapping[str, Made], messages: Messages) -> list[pa.Array]:
        return [
            column_of(fields.get(column.name), messages, column.name, column.type)
            if column.name in fields
            else self._table.absent(column, len(messages))
            for column in self._table.schema
        ]


class _Records(_Reader):
    def _compile(self, compiler: Compiler, schema: Any) -> None:
        _, self._fields = compiler.record(schema, {**_wanted(self._table), OPERATION: None, DELETED: None})

    def _rows(self, messages: Messages) -> Decoded:
        deletes = self._said(messages, OPERATION, pa.int64(), int(INSERT), int(DELETE))
        deletes |= self._said(messages, DELETED, STRING, "false", "true")
        require(not (self._table.append_only and deletes.any()), NO_DELETE)
        rows = good_rows(self._table, self._columns(self._fields, messages), deletes)
        return rows, np.ones(len(messages), np.int64)

    def _said(self, messages: Messages, name: str, type_: pa.DataType, insert: Any, delete: Any) -> Any:
        """Return the mask of messages that this field marks as deletes; all False if the schema lacks the field."""
        if name not in self._fields or name in self._table.schema:
            return np.zeros(len(messages), np.bool_)
        said = column_of(self._fields[name], messages, name, type_)
        known = pc.all(pc.is_in(said, pa.array([insert, delete], type_)), min_count=0).as_py()
        require(known, f"column {name}: neither {insert} (insert) nor {delete} (delete)")
        return pc.equal(said, delete).to_numpy(zero_copy_only=False)


class _Keys(_Reader):
    """A decoder of keys of tombstones: a record with the table's key, or the value of its only column."""

    def _compile(self, compiler: Compiler, schema: Any) -> None:
        if not (isinstance(schema, Mapping) and schema.get("type") == "record"):
            require(len(self._table.primary_key) == 1, "the key is no record, and the table's key has several columns")
            schema = {"type": "record", "name": "key", "fields": [{"name": self._table.primary_key[0], "type": schema}]}
        _, self._fields = compiler.record(schema, dict.fromkeys(self._table.primary_key))

    def _rows(self, messages: Messages) -> Decoded:
        columns = self._columns(self._fields, messages)
        return good_rows(self._table, columns, np.ones(len(messages), np.bool_)), np.ones(len(messages), np.int64)


class _Changes(_Reader):
    def _compile(self, compiler: Compiler, schema: Any) -> None:
        wanted = _wanted(self._table)
        _, self._fields = compiler.record(schema, {"before": wanted, "after": wanted, "op": None})
        require({"before", "after", "op"} <= self._fields.keys(), "not one of Debezium's changes")
        self._named = compiler.names_in(schema, "after")

    def _rows(self, messages: Messages) -> Decoded:
        type_ = pa.struct([(column.name, column.type) for column in self._table.schema])
        before, after = (self._fields[name](messages, type_) for name in ("before", "after"))
        was, comes = (rows.is_valid().to_numpy(zero_copy_only=False) for rows in (before, after))
        found = pa.concat_arrays([before, after]).flatten()
        columns = [
            column if part.name in self._named else self._table.absent(part, len(column))
            for part, column in zip(self._table.schema, found, strict=True)
        ]
        return change_rows(self._table, columns, was, comes, self._fields["op"](messages, STRING))


def _number(value: bytes | None) -> int | None:
    """Return the schema number of a message; None if it has none."""
    if value is None or len(value) < _HEAD.size or value[0] != 0:
        return None
    return int(_HEAD.unpack_from(value)[1])


def _wanted(table: Table) -> dict[str, Any]:
    return {column.name: _inside(column.type) for column in table.schema}


def _inside(type_: pa.DataType) -> dict[str, Any] | None:
    return {part.name: _inside(part.type) for part in type_} if is_struct(type_) else None


def _reason(_value: bytes, error: Exception) -> str:
    return str(error)
