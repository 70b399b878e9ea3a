"""The two shapes of Debezium's changes in JSON: an envelope with the rows before and after, and a flat row.

The transformation `ExtractNewRecordState` writes the flat shape: the row after the change, or, for a delete, the row
before it with `"__deleted": "true"` (`delete.tombstone.handling.mode=rewrite`).
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from dbsp.io.formats.json_rows import whole
from dbsp.io.formats.json_scan import count_plain_rows, holds_long_exponent
from dbsp.io.formats.runs import WrongMessageError, require
from dbsp.zset.decimal_texts import check_text, holds_decimals
from dbsp.zset.schema import STRING, is_list, is_struct

DELETED = "__deleted"

Changes = tuple[pa.Array, pa.Array, pa.Array]
"""Rows before, rows after (null where there is none), and `op`."""


class EnvelopeShape(Protocol):
    """The place of rows within a message."""

    def described(self, fields: Sequence[Any]) -> Sequence[Any]:
        """Return the fields of a row, out of the fields of the message's schema.

        **Errors** `KeyError` or `TypeError` if the schema has none.
        """

    def rows(self, message: Any) -> list[dict[str, Any]]:
        """Return the rows in a message."""

    def one(self, column: str, value: Any) -> dict[str, Any]:
        """Return a message whose row after the change has this value alone."""

    def parsed(self, payloads: Sequence[bytes], row: pa.DataType) -> Changes:
        """Parse the changes of messages with these columns; raise one of `MISFITS` if one does not fit."""


class _Envelope:
    def described(self, fields: Sequence[Any]) -> Sequence[Any]:
        found: Sequence[Any] = next(part for part in fields if part["field"] == "after")["fields"]
        return found

    def rows(self, message: Any) -> list[dict[str, Any]]:
        found = [message.get("before"), message.get("after")] if isinstance(message, dict) else []
        return [row for row in found if isinstance(row, dict)]

    def one(self, column: str, value: Any) -> dict[str, Any]:
        return {"after": {column: value}}

    def parsed(self, payloads: Sequence[bytes], row: pa.DataType) -> Changes:
        before, after, op = _parsed(payloads, pa.schema([("before", row), ("after", row), ("op", STRING)]))
        return before, after, op


class _Flat:
    def described(self, fields: Sequence[Any]) -> Sequence[Any]:
        return fields

    def rows(self, message: Any) -> list[dict[str, Any]]:
        return [message] if isinstance(message, dict) else []

    def one(self, column: str, value: Any) -> dict[str, Any]:
        return {column: value}

    def parsed(self, payloads: Sequence[bytes], row: pa.DataType) -> Changes:
        *columns, deleted = _parsed(payloads, pa.schema([*row, (DELETED, STRING)]))
        known = pc.is_in(deleted, pa.array(["true", "false", None], STRING))
        require(pc.all(known, min_count=0).as_py(), f'{DELETED}: neither "true" nor "false"')
        gone = pc.fill_null(pc.equal(deleted, "true"), False)
        before, after = (
            pa.StructArray.from_arrays(columns, fields=list(row), mask=mask) for mask in (pc.invert(gone), gone)
        )
        return before, after, pc.if_else(gone, "d", "c")


ENVELOPE: EnvelopeShape = _Envelope()
FLAT: EnvelopeShape = _Flat()


def _check_decimals(value: Any, type_: pa.DataType, name: str) -> None:
    """Raise a `WrongMessageError` for a decimal that would crash the parser's process.

    An object is a tuple of pairs here, because its names may repeat.
    """
    if is_struct(type_) and isinstance(value, tuple):
        for field, part in value:
            place = type_.get_field_index(field)
            if place >= 0:
                _check_decimals(part, type_.field(place).type, field)
    elif is_list(type_) and isinstance(value, list):
        for part in value:
            _check_decimals(part, type_.value_type, name)
    elif pa.types.is_decimal(type_) and isinstance(value, str):
        try:
            check_text(value)
        except pa.ArrowInvalid as error:
            raise WrongMessageError(f"column {name}: {error}") from None


def _parsed(payloads: Sequence[bytes], wanted: pa.Schema) -> list[pa.Array]:
    """Parse these members of every message with pyarrow; only plain objects reach its parser (`json_scan`)."""
    block = b"\n".join(payload.replace(b"\n", b" ").replace(b"\r", b" ") for payload in payloads)
    block.decode()  # the parser does not check for UTF-8
    plain = count_plain_rows(np.frombuffer(block, np.uint8)) == len(payloads)
    require(plain, "not one object, or nested too deeply")
    if holds_decimals(pa.struct(list(wanted))) and holds_long_exponent(np.frombuffer(block, np.uint8)):
        for payload in payloads:
            pairs = json.loads(payload, parse_int=str, parse_float=str, object_pairs_hook=tuple)
            _check_decimals(pairs, pa.struct(list(wanted)), "")
    parsed = pj.read_json(
        io.BytesIO(block),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(block) + 1),
        parse_options=pj.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="ignore"),
    )
    require(parsed.num_rows == len(payloads), "not one object")
    return [whole(column) for column in parsed.columns]
