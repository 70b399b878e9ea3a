"""Message keys as primary keys: a message without a value, a tombstone, deletes the row of its key.

A message whose rows have another key than the message is bad, because its tombstone would never delete them.

A key is a JSON object with the columns of the primary key, or the JSON text of the only column. Kafka Connect's
`{"schema": …, "payload": …}` may wrap either. For a single text column, a key that is no JSON text is the value
itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbsp.algebra.table import Table
from dbsp.errors import ConfigError
from dbsp.io.formats.json_rows import bad_row, decode_json_lines, text_of
from dbsp.io.formats.runs import Decoded, WrongMessageError, by_kind, require
from dbsp.io.formats.wire import to_json_text
from dbsp.io.pushed import PAYLOAD_CHARS_MAX, BadRow, Push
from dbsp.zset.equality import equal_keys
from dbsp.zset.schema import STRING, Schema

NO_KEY = "a message without a value and without a key"
_CONNECT = {"schema", "payload"}
_NOT_JSON = object()
_NOT_PLAIN = (b"\\", b'"schema"', b'"insert"', b'"delete"')
"""Bytes that a key contains if it may be an envelope, also one whose words are spelled with escapes."""


def refuse_without_key(table: Table, format_: str) -> None:
    """Raise a `ConfigError` unless a row of the table replaces the row with its key."""
    if not table.replaces:
        raise ConfigError(
            f"messages that replace rows need a table with a primary key: table={table.name} format={format_}",
            "declare the key, and not append_only; or read changes, in which a delete has the whole row",
        )


def values_or_keys(values: Sequence[bytes | None], keys: Sequence[bytes | None]) -> list[bytes | None]:
    """Return the value of each message, or its key if it has no value."""
    return [key if value is None else value for value, key in zip(values, keys, strict=True)]


def deletes_of(keys: Sequence[bytes | None], table: Table) -> Decoded:
    """Return the delete of each key's row, or a bad row.

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
    """Return a key as one line with an object; raise a `WrongMessageError` if it cannot be a key of the table."""
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


def under_their_keys(
    found: Decoded, values: Sequence[bytes | None], keys: Sequence[bytes | None], table: Table
) -> Decoded:
    """Return the rows of messages; those whose key differs from their message's key become bad.

    Messages without a value or without a key are unchanged.

    >>> from dbsp.zset.schema import INT64, Schema
    >>> table = Table(name="t", schema=Schema.of({"id": INT64}), primary_key=("id",))
    >>> push, _ = under_their_keys(deletes_of([b"7", b"8"], table), [b"", b""], [b'{"id": 7}', b"9"], table)
    >>> push.batch.to_rows(), push.bad[0].reason
    ([((7,), 1)], 'column id: 8 in the value, 9 in the key of the message')
    """
    push, counts = found
    keyed = [value is not None and key is not None for value, key in zip(values, keys, strict=True)]
    said = _said([key for key, read in zip(keys, keyed, strict=True) if read and key is not None], table)
    of_message = np.full(len(counts), -1)
    of_message[keyed] = np.arange(said.rows)
    message_of = np.repeat(np.arange(len(counts)), counts)[push.good_indices()]
    reasons = _differing(push, said, of_message[message_of], table)
    if not reasons:
        return found
    numbers = push.good_indices()
    bad = [
        BadRow(
            index=int(numbers[row]), reason=reason,
            payload=text_of(values[message_of[row]] or b"")[:PAYLOAD_CHARS_MAX],
        )
        for row, reason in reasons.items()
    ]  # fmt: skip
    keep = np.ones(len(push.batch), np.bool_)
    keep[list(reasons)] = False
    every = tuple(sorted((*push.bad, *bad), key=lambda row: row.index))
    return Push(batch=push.batch.filter(keep), operations=push.operations[keep], bad=every), counts


def _said(keys: Sequence[bytes], table: Table) -> Push:
    """Return the result of `deletes_of` for keys that are not null.

    If all keys are plain objects, or whole numbers, they are parsed as lines, which is much faster.
    """
    head = b"{" + json.dumps(table.primary_key[0]).encode() + b": "
    numbers = len(table.primary_key) == 1 and all(map(bytes.isdigit, keys))
    joined = b"\n".join([head + key + b"}" for key in keys] if numbers else keys)
    alike = (numbers or all(key[:1] == b"{" for key in keys)) and joined.count(b"\n") == len(keys) - 1
    if alike and not any(each in joined for each in _NOT_PLAIN):
        columns = tuple(replace(column, nullable=column.name not in table.primary_key) for column in table.schema)
        rows = decode_json_lines(joined, replace(table, schema=Schema(columns)), extras=True)
        if not rows.bad:
            return rows
    return deletes_of(keys, table)[0]


def _differing(push: Push, said: Push, key_of: NDArray[np.int64], table: Table) -> dict[int, str]:
    """Return the reasons of the rows that do not have their message's key, by row number.

    `key_of[i]` is the number of row i's key, -1 without one.
    """
    place = np.full(said.rows, -1)
    place[said.good_indices()] = np.arange(len(said.batch))
    unread = {row.index: f"the key of the message: {row.reason}" for row in said.bad}
    keyed = np.flatnonzero(key_of >= 0)
    reasons = {row: unread[key_of[row]] for row in keyed[place[key_of[keyed]] < 0].tolist()}
    rows = keyed[place[key_of[keyed]] >= 0]
    others = place[key_of[rows]]
    for name in table.primary_key:
        held, wanted = push.batch.column(name), said.batch.column(name)
        for at in np.flatnonzero(~equal_keys(held, rows, wanted, others)).tolist():
            shown, key = (
                to_json_text(each.slice(int(row), 1))[0] for each, row in ((held, rows[at]), (wanted, others[at]))
            )
            reasons.setdefault(int(rows[at]), f"column {name}: {shown} in the value, {key} in the key of the message")
    return reasons
