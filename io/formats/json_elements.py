"""Streaming over the elements of a JSON array: only one element at a time exists as Python values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

_SPACE = re.compile(r"[ \t\r\n]*")


def walk_elements(text: str, at: int, decoder: json.JSONDecoder, visit: Callable[[Any, int, int], None]) -> int:
    """Visit each element of the array at `at`, with its start and end; return the end of the array.

    **Errors** `ValueError` if the text is no array; some elements may have been visited by then.

    **Example**

    >>> found = []
    >>> walk_elements('[1, {"a": 2}] ', 0, json.JSONDecoder(), lambda *each: found.append(each)), found
    (13, [(1, 1, 2), ({'a': 2}, 4, 12)])
    """
    if text[at : at + 1] != "[":
        raise json.JSONDecodeError("Expecting '['", text, at)
    at = _behind_space(text, at + 1)
    if text[at : at + 1] == "]":
        return at + 1
    while True:
        try:
            value, end = decoder.raw_decode(text, at)
        except StopIteration:  # older versions of Python raise it at the end of the text
            raise json.JSONDecodeError("Expecting value", text, at) from None
        visit(value, at, end)
        at = _behind_space(text, end)
        if text[at : at + 1] == "]":
            return at + 1
        if text[at : at + 1] != ",":
            raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
        at = _behind_space(text, at + 1)


def _behind_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()
