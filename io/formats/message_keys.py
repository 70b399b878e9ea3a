"""Keys of messages as primary keys: a message without a value, a tombstone, deletes the row of its key.

A key is a JSON object that has the columns of the primary key, or of one column its JSON text; Kafka Connect's
`{"schema": …, "payload": …}` may stand around either. For one column of texts whatever is no JSON text is the text itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from dbsp.algebra.table import Table
from dbsp.errors import ConfigError
from dbsp.io.formats.json_rows import bad_row, decode_json_lines
from dbsp.io.formats.runs import Decoded, WrongMessageError, by_kind, require
from dbsp.zset.schema import STRING

NO_KEY = "a message without a value and without a key"
_CONNECT = {"schema", "payload"}
_NOT_JSON = object()


def refuse_without_key(table: Table, format_: str) -> None:
    """`ConfigError` unless a row takes the place of the one with its key."""
    if not table.replaces:
        raise ConfigError(
            f"messages that replace rows need a table with a primary key: table={table.name} format={format_}",
            "declare the key, and not append_only; or read changes, in which a delete has the whole row",
        )


def values_or_keys(values: Sequence[bytes | None], keys: Sequence[bytes | None]) -> list[bytes | None]:
    """Of each message what there is to read: its value, or its key where it has none."""
    return [key if value is None else value for value, key in zip(values, keys, strict=True)]


def deletes_of(keys: Sequence[bytes | None], table: Table) -> Decoded:
    """The delete that each key stands for, or a bad row.

    **Example**

    >>> from dbsp.zset.schema import INT64, Schema
    >>> table = Table(name="t", schema=Schema.of({"id": INT64, "n": INT64}), primary_key=("id",))
    >>> push, _ = deletes_of([b'{"id": 7}', b"8", b"x"], table)
    >>> push.batch.to_rows(), push.operations.tolist(), push.bad[0].reason
    ([((7, None), 1), ((8, None), 1)], [1, 1], 'the key is not JSON')
    """
    lines = [_line(key, table) for key in keys]
    return by_kind([isinstance(line, bytes) for line in lines], lines, lambda _, alike: _read(alike, table), table)


def _read(lines: list[Any], table: Table) -> list[Decoded]:
    if isinstance(lines[0], bytes):
        return [(decode_json_lines(b"\n".join(lines), table, extras=True), np.ones(len(lines), np.int64))]
    return lines


def _line(key: bytes | None, table: Table) -> bytes | Decoded:
    try:
        require(key is not None, NO_KEY)
        return b'{"delete": ' + key_object(_payload(key or b""), table) + b"}"
    except WrongMessageError as error:
        return bad_row(str(error), key or b"", table), np.ones(1, np.int64)


def _payload(key: bytes) -> bytes:
    found = _parsed(key)
    if isinstance(found, dict) and found.keys() == _CONNECT:
        return json.dumps(found["payload"]).encode()
    return key


def key_object(key: bytes, table: Table) -> bytes:
    """A key as one line that is an object; `WrongMessageError` for one that cannot be the table's."""
    found = _parsed(key)
    if isinstance(found, dict):
        return key.replace(b"\n", b" ").replace(b"\r", b" ").strip()
    require(len(table.primary_key) == 1, "the key is not an object, and the table's key has several columns")
    (name,) = table.primary_key
    if table.schema[name].type == STRING and not isinstance(found, str):
        key = _quoted(key)
    else:
        require(found is not _NOT_JSON, "the key is not JSON")
    return b"{" + json.dumps(name).encode() + b": " + key + b"}"


def _quoted(text: bytes) -> bytes:
    try:
        return json.dumps(text.decode()).encode()
    except UnicodeDecodeError:
        raise WrongMessageError("the key is not UTF-8") from None


def _parsed(key: bytes) -> Any:
    try:
        return json.loads(key)
    except (ValueError, RecursionError):
        return _NOT_JSON
