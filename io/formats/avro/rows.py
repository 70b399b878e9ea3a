"""Messages in Avro as rows: a record is a row, or one of Debezium's changes.

A message begins with a zero byte and the number of its schema; the table's columns are found by name, others are not read,
one that is missing is null. In a plain record a field `__op` says 0 for an insert, 1 for a delete, as in Parquet files, and a
field `__deleted` says "true" or "false", as Debezium's `ExtractNewRecordState` leaves it. Messages of one schema are decoded
together (`dbsp.io.formats.avro.decode`).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.algebra.table import NO_DELETE, Table
from dbsp.io.formats.avro.decode import Code
from dbsp.io.formats.avro.program import Compiler, Made, Messages, Program, column_of
from dbsp.io.formats.avro.registry import Registry, Schema
from dbsp.io.formats.debezium_shapes import DELETED
from dbsp.io.formats.envelopes import change_rows
from dbsp.io.formats.json_rows import bad_row
from dbsp.io.formats.runs import MISFITS, Decoded, WrongMessageError, good_rows, in_halves, joined, no_rows, require
from dbsp.logs import DELETE, INSERT
from dbsp.zset.schema import STRING, is_struct

OPERATION = "__op"
_HEAD = struct.Struct(">bI")
_NO_HEAD = "not Avro with the number of its schema in front"


class AvroRows:
    """Reads the messages of one table's topic, each a record that is a row; remembers the schemas it has met.

    **Cost** some two million messages a second of six columns.
    """

    def __init__(self, table: Table, registry: Registry) -> None:
        """For one table's topic."""
        self._table, self._registry = table, registry
        self._readers: dict[int, _Reader] = {}

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """The rows of all messages, in order, and how many each has.

        **Errors** those of the registry, for a schema that was not met before; none for what a message holds.
        """
        numbers = [_number(value) for value in values]
        pieces: list[Decoded] = []
        at = 0
        for number, group in groupby(numbers):
            run = values[at : at + len(list(group))]
            at += len(run)
            if number is None:
                pieces += [self._alone(value) for value in run]
            else:
                pieces += in_halves([value for value in run if value], self._reader(number).rows, _reason, self._table)
        return joined(pieces, self._table)

    def _alone(self, value: bytes | None) -> Decoded:
        """A message that names no schema."""
        reason = "a message without a value" if value is None else _NO_HEAD
        return bad_row(reason, value or b"", self._table), np.ones(1, np.int64)

    def _reader(self, number: int) -> _Reader:
        if number not in self._readers:
            self._readers[number] = self._made(self._registry.schema(number))
        return self._readers[number]

    def _made(self, schema: Schema) -> _Reader:
        return _Records(self._table, schema)


class AvroChanges(AvroRows):
    """The same of records that are Debezium's changes; messages without a value are tombstones, which say nothing."""

    def _alone(self, value: bytes | None) -> Decoded:
        return no_rows(self._table, 1) if value is None else super()._alone(value)

    def _made(self, schema: Schema) -> _Reader:
        return _Changes(self._table, schema)


class _Reader:
    """Reads messages of one schema; one that cannot be read makes all its messages bad, each with the reason."""

    def __init__(self, table: Table, schema: Schema) -> None:
        self._table = table
        self._refusal: str | None = None
        compiler = Compiler(schema.definitions)
        self._program: Program = compiler.program
        try:
            require(schema.kind == "AVRO", f"a schema of another kind: {schema.kind}")
            self._compile(compiler, schema.schema)
            self._program.emit(Code.END)
        except (*MISFITS, KeyError, TypeError) as error:
            self._refusal = f"the schema is not read: {error}"

    def _compile(self, compiler: Compiler, schema: Any) -> None:
        raise NotImplementedError

    def _rows(self, messages: Messages) -> Decoded:
        raise NotImplementedError

    def rows(self, values: Sequence[bytes]) -> Decoded:
        """The rows of messages that are all good; raises one of `MISFITS` if one is not."""
        if self._refusal is not None:
            raise WrongMessageError(self._refusal)
        return self._rows(self._program.run([value[_HEAD.size :] for value in values]))

    def _columns(self, fields: Mapping[str, Made], messages: Messages) -> list[pa.Array]:
        return [column_of(fields.get(column.name), messages, column.name, column.type) for column in self._table.schema]


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
        """Which messages are deletes by this field, where the schema has it."""
        if name not in self._fields or name in self._table.schema:
            return np.zeros(len(messages), np.bool_)
        said = column_of(self._fields[name], messages, name, type_)
        known = pc.all(pc.is_in(said, pa.array([insert, delete], type_)), min_count=0).as_py()
        require(known, f"column {name}: neither {insert} (insert) nor {delete} (delete)")
        return pc.equal(said, delete).to_numpy(zero_copy_only=False)


class _Changes(_Reader):
    def _compile(self, compiler: Compiler, schema: Any) -> None:
        wanted = _wanted(self._table)
        _, self._fields = compiler.record(schema, {"before": wanted, "after": wanted, "op": None})
        require({"before", "after", "op"} <= self._fields.keys(), "not one of Debezium's changes")

    def _rows(self, messages: Messages) -> Decoded:
        type_ = pa.struct([(column.name, column.type) for column in self._table.schema])
        before, after = (self._fields[name](messages, type_) for name in ("before", "after"))
        was, comes = (rows.is_valid().to_numpy(zero_copy_only=False) for rows in (before, after))
        columns = pa.concat_arrays([before, after]).flatten()
        return change_rows(self._table, columns, was, comes, self._fields["op"](messages, STRING))


def _number(value: bytes | None) -> int | None:
    """The number of the message's schema."""
    if value is None or len(value) < _HEAD.size or value[0] != 0:
        return None
    return int(_HEAD.unpack_from(value)[1])


def _wanted(table: Table) -> dict[str, Any]:
    return {column.name: _inside(column.type) for column in table.schema}


def _inside(type_: pa.DataType) -> dict[str, Any] | None:
    return {part.name: _inside(part.type) for part in type_} if is_struct(type_) else None


def _reason(_value: bytes, error: Exception) -> str:
    return str(error)
