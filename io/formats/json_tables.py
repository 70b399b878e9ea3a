"""Rows of several tables in one JSON object: `{"orders": [{"id": 1}], "names": [{"delete": {"id": 2}}]}`."""

from __future__ import annotations

import json
import re

from dbsp.errors import CapacityError, DataError
from dbsp.io.formats.json_elements import walk_elements
from dbsp.io.formats.lines import MARK

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)
"""Finds the end of a value; the reader of the table decodes the value itself."""
HINT = 'send one object of tables and their rows: {"orders": [{"id": 1}], "names": [{"delete": {"id": 2}}]}'


def tables_in(data: bytes, bytes_max: int = 64 << 20) -> dict[str, bytes]:
    """Return the bytes of each table's rows, an array each, as they were written.

    **Errors** `DataError` for anything else; `CapacityError` for more than `bytes_max`, because a document is read as
    one text.

    **Example**

    >>> tables_in(b'{"t": [{"price": 0.10}], "u": []}')
    {'t': b'[{"price": 0.10}]', 'u': b'[]'}
    """
    if len(data) > bytes_max:
        raise CapacityError(
            f"a transaction is too long: bytes={len(data)} bytes_max={bytes_max}", "send fewer rows in one"
        )
    try:
        return _members(data.removeprefix(MARK).decode())
    except (ValueError, IndexError, RecursionError) as error:
        raise DataError(f"not rows of several tables: {error}", HINT) from None


def _members(text: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    at = _after(text, 0, "{")
    while text[at] != "}":
        name, end = _DECODER.raw_decode(text, at)
        begin = _after(text, end, ":")
        if not isinstance(name, str) or text[begin] != "[":
            raise ValueError(f"a table's name and its array are wanted: found={text[at : at + 80]}")
        end = walk_elements(text, begin, _DECODER, lambda *_: None)
        if name in found:
            raise ValueError(f"a table is there twice: table={name}")
        found[name] = text[begin:end].encode()
        at = _SPACE.match(text, end).end()  # type: ignore[union-attr]
        if text[at] != "}":
            at = _after(text, at, ",")
    if _SPACE.match(text, at + 1).end() != len(text):  # type: ignore[union-attr]
        raise ValueError("there is text after the object")
    return found


def _after(text: str, at: int, mark: str) -> int:
    """Return the position after a mark and the spaces around it; raise a `ValueError` if the mark is absent."""
    at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
    if text[at] != mark:
        raise ValueError(f"expected {mark} at character {at}")
    return _SPACE.match(text, at + 1).end()  # type: ignore[union-attr]
