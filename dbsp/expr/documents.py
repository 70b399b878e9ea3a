"""Read fields of JSON texts by a path such as `$.user.tags[0]`.

**Cost** one parse in Python for each distinct text of a batch; other expressions use kernels on whole columns.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dbsp.errors import CircuitError
from dbsp.expr.expression import Expression, Function, Operands
from dbsp.expr.strings import fit_text
from dbsp.zset.schema import INT64, STRING, list_of

Key = str | int
_PATH = re.compile(r"""\$((?:\.[A-Za-z_]\w*|\["(?:[^"\\]|\\.)*"\]|\[\d+\])*)""")
_KEY = re.compile(r"""\.([A-Za-z_]\w*)|\["((?:[^"\\]|\\.)*)"\]|\[(\d+)\]""")
_ABSENT = object()


def keys_of(path: Any) -> tuple[Key, ...]:
    """Return the names and list positions of a path, in order; raise `CircuitError` if the path is malformed."""
    found = _PATH.fullmatch(path) if isinstance(path, str) else None
    if found is None:
        hint = 'write "$.name", "$.list[0]", "$[\\"a name\\"]", one after the other'
        raise CircuitError(f"not a path into JSON: path={path!r}", hint)
    keys: list[Key] = []
    for name, quoted, index in _KEY.findall(found.group(1)):
        keys.append(int(index) if index else name or json.loads(f'"{quoted}"'))
    return tuple(keys)


def _fit_path(operands: Operands) -> tuple[Expression, ...]:
    keys_of(operands.options[0])
    return fit_text(operands)


def _at(text: str, keys: tuple[Key, ...]) -> Any:
    """Return the value at a path; `_ABSENT` if the text is not JSON or has no value there."""
    try:
        value = json.loads(text, parse_float=_Number, parse_int=_Number, parse_constant=_refuse)
    except ValueError:
        return _ABSENT
    for key in keys:
        if isinstance(key, int):
            if not isinstance(value, list) or key >= len(value):
                return _ABSENT
        elif not isinstance(value, dict) or key not in value:
            return _ABSENT
        value = value[key]
    return value


def _refuse(constant: str) -> Any:
    """Raise `ValueError` for NaN and Infinity: Python reads them, but they are not JSON."""
    raise ValueError(constant)


class _Number(str):
    """A JSON number kept as its source text, so that no digit is lost."""

    __slots__ = ()


def _text(value: Any) -> str | None:
    """Return a scalar as text, an object or list as JSON, and None for null or an absent value."""
    if value is _ABSENT or value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str) else _encoded(value)


def _encoded(value: Any) -> str:
    """Return a value as JSON without spaces; numbers keep their source text."""
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k, ensure_ascii=False)}:{_encoded(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_encoded, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _count(value: Any) -> int | None:
    return len(value) if isinstance(value, list | dict) else None


def _elements(value: Any) -> list[str | None] | None:
    """Return the elements of a list as `_text` writes them; None if the value is not a list."""
    return [_text(element) for element in value] if isinstance(value, list) else None


def _by_text(values: pa.Array, path: str, of: Any, type_: pa.DataType) -> pa.Array:
    """Return a column with `of` applied to the value at a path; each distinct text is parsed once."""
    keys = keys_of(path)
    encoded = pc.dictionary_encode(values)
    found = pa.array([of(_at(text, keys)) for text in encoded.dictionary.to_pylist()], type_)
    return found.take(encoded.indices)


JSON_VALUE = Function(
    name="json_value",
    fit=_fit_path,
    result=lambda *_: STRING,
    compute=lambda values, path: _by_text(values, path, _text, STRING),
    nulls="always",
    expensive=True,
    text="{0}.json_value({1})",
)
JSON_ELEMENTS = Function(
    name="json_elements",
    fit=_fit_path,
    result=lambda *_: list_of(STRING),
    compute=lambda values, path: _by_text(values, path, _elements, list_of(STRING)),
    nulls="always",
    expensive=True,
    text="{0}.json_elements({1})",
)
JSON_LENGTH = Function(
    name="json_length",
    fit=_fit_path,
    result=lambda *_: INT64,
    compute=lambda values, path: _by_text(values, path, _count, INT64),
    nulls="always",
    expensive=True,
    text="{0}.json_length({1})",
)

FUNCTIONS = (JSON_VALUE, JSON_LENGTH, JSON_ELEMENTS)
