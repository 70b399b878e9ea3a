"""The two shapes of Debezium's changes in JSON: an envelope with the rows before and after, or flat, a row that may say it went.

Flat is what the transformation `ExtractNewRecordState` leaves: the row after, or, of a delete, the row before with
`"__deleted": "true"` (`delete.tombstone.handling.mode=rewrite`).
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from dbsp.io.formats.json_rows import whole
from dbsp.io.formats.json_scan import count_plain_rows
from dbsp.io.formats.runs import require
from dbsp.zset.schema import STRING

DELETED = "__deleted"

Changes = tuple[pa.Array, pa.Array, pa.Array]
"""Rows before, rows after (null where there is none), and `op`."""


class Shape(Protocol):
    """How a message holds rows."""

    def described(self, fields: Sequence[Any]) -> Sequence[Any]:
        """The fields of a row, out of those of the message's schema; `KeyError` or `TypeError` if there are none."""

    def rows(self, message: Any) -> list[dict[str, Any]]:
        """The rows in a message."""

    def one(self, column: str, value: Any) -> dict[str, Any]:
        """A message whose row after has this value alone."""

    def parsed(self, payloads: Sequence[bytes], row: pa.DataType) -> Changes:
        """What the messages say, with these columns; raises one of `MISFITS` if one does not fit."""


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


ENVELOPE: Shape = _Envelope()
FLAT: Shape = _Flat()


def _parsed(payloads: Sequence[bytes], wanted: pa.Schema) -> list[pa.Array]:
    """These members of every message, by pyarrow's parser, which is shown plain objects alone."""
    block = b"\n".join(payload.replace(b"\n", b" ").replace(b"\r", b" ") for payload in payloads)
    block.decode()  # the parser does not look
    plain = count_plain_rows(np.frombuffer(block, np.uint8)) == len(payloads)
    require(plain, "not one object, or nested too deeply")
    parsed = pj.read_json(
        io.BytesIO(block),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(block) + 1),
        parse_options=pj.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="ignore"),
    )
    require(parsed.num_rows == len(payloads), "not one object")
    return [whole(column) for column in parsed.columns]
