"""Fill columns that JSON rows do not name with the column's default; a written null stays a null.

PyArrow's parser returns a null in both cases. So the text of a whole block is searched for the column's name. Rows are
parsed one by one only where that leaves it open.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from dbsp.algebra.table import Table
from dbsp.io.formats.wire import to_json_text

_ESCAPED = b"\\u"
"""JSON's escape of a character by its code: a text that has one may spell a name in other characters."""

_ESCAPABLE = re.compile(r'["\\/\x00-\x1f]')


def default_texts(table: Table) -> Iterator[tuple[str, str]]:
    """Yield the columns that have a default, each with the default as JSON text."""
    for name, value in table.defaults:
        if name in table.schema:
            yield name, to_json_text(pa.array([value.value], table.schema[name].type))[0].as_py()


def filled(columns: Sequence[pa.Array], block: bytes, table: Table) -> list[pa.Array] | None:
    """Return the parsed columns of a block with defaults where rows do not name them; None if rows must be parsed alone."""
    made = list(columns)
    for place, column in enumerate(table.schema):
        if table.default(column.name) is None or not (nulls := made[place].null_count):
            continue
        if _has_escapes(block, column.name) or _null_of(column.name).search(block):
            return None
        chosen = np.arange(len(made[place]))
        chosen[made[place].is_null().to_numpy(zero_copy_only=False)] = len(chosen) + np.arange(nulls)
        made[place] = pa.concat_arrays([made[place], table.absent(column, nulls)]).take(pa.array(chosen))
    return made


def unnamed(payload: bytes, table: Table) -> frozenset[str]:
    """Return the columns with a default that an object in JSON, and the objects in it, do not name."""
    names = frozenset(name for name, _ in table.defaults)
    if not names:
        return names
    if not any(_has_escapes(payload, name) for name in names):
        return frozenset(name for name in names if not _name_of(name).search(payload))
    try:
        return names - _names_in(json.loads(payload))
    except (ValueError, RecursionError):
        return frozenset()  # the decoder reports what is wrong with the payload


def _names_in(value: Any) -> frozenset[str]:
    if isinstance(value, list):
        return frozenset().union(*map(_names_in, value))
    return frozenset(value).union(*map(_names_in, value.values())) if isinstance(value, Mapping) else frozenset()


def _has_escapes(text: bytes, name: str) -> bool:
    """Return whether the name may be written in the text otherwise than in its own characters."""
    return _ESCAPED in text or _ESCAPABLE.search(name) is not None


@cache
def _name_of(name: str) -> re.Pattern[bytes]:
    """Return the pattern of a name in front of its value."""
    return re.compile(re.escape(json.dumps(name, ensure_ascii=False).encode()) + rb"\s*:")


@cache
def _null_of(name: str) -> re.Pattern[bytes]:
    return re.compile(_name_of(name).pattern + rb"\s*null")
