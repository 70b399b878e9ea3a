"""Text: case, length, search, parts. Lengths and positions count characters; positions start at 1, as in SQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dbsp.errors import CircuitError
from dbsp.expr.expression import Expression, Function, Literal, Operands
from dbsp.expr.types import typed
from dbsp.zset.schema import BOOL, INT64, STRING


def _fit_text(operands: Operands) -> tuple[Expression, ...]:
    args = typed(operands, STRING)
    for arg, own in zip(args, operands.types, strict=True):
        if (arg.dtype if isinstance(arg, Literal) else own) != STRING:
            raise operands.refuse(f"it is for text: write {arg}.cast(dbsp.STRING)")
    return args


def _fit_pattern(operands: Operands) -> tuple[Expression, ...]:
    (pattern,) = operands.options
    if not isinstance(pattern, str):
        raise CircuitError(f"the pattern is a constant text: pattern={pattern!r}", "give it as a str")
    if operands.function == "regexp_match":
        try:
            pc.match_substring_regex(pa.array([], STRING), pattern)
            pc.match_substring_regex(pa.array([""], STRING), pattern)
        except pa.ArrowInvalid as error:
            hint = "it is written in RE2's syntax, which has no back-references and no look-around"
            raise CircuitError(f"not a regular expression: pattern={pattern!r} reason={error}", hint) from error
    return _fit_text(operands)


def _fit_substr(operands: Operands) -> tuple[Expression, ...]:
    start, length = operands.options
    if start < 1 or (length is not None and length < 0):
        raise CircuitError(
            f"positions count from 1 and lengths from 0: start={start} length={length}",
            "write .substr(1, 3) for the first three",
        )
    return _fit_text(operands)


def _substr(values: pa.Array, start: int, length: int | None) -> pa.Array:
    return pc.utf8_slice_codeunits(values, start - 1, None if length is None else start - 1 + length)


def _function(
    name: str, type_: pa.DataType, compute: Callable[..., Any], fit: Callable[..., Any] = _fit_text, text: str = ""
) -> Function:
    return Function(name=name, fit=fit, result=lambda *_: type_, compute=compute, text=text or f"{{0}}.{name}()")


def _search(name: str, compute: Callable[..., Any]) -> Function:
    return _function(name, BOOL, compute, _fit_pattern, f"{{0}}.{name}({{1}})")


LOWER = _function("lower", STRING, pc.utf8_lower)
UPPER = _function("upper", STRING, pc.utf8_upper)
TRIM = _function("trim", STRING, pc.utf8_trim_whitespace)
LENGTH = _function("length", INT64, pc.utf8_length)
STARTS_WITH = _search("starts_with", pc.starts_with)
ENDS_WITH = _search("ends_with", pc.ends_with)
CONTAINS = _search("contains", pc.match_substring)
LIKE = _search("like", pc.match_like)
REGEXP_MATCH = _search("regexp_match", pc.match_substring_regex)
SUBSTR = _function("substr", STRING, _substr, _fit_substr, "{0}.substr({1}, {2})")
REPLACE = _function(
    "replace",
    STRING,
    pc.replace_substring,
    _fit_text,
    "{0}.replace({1}, {2})",
)
CONCAT = _function(
    "concat", STRING, lambda *data: pc.binary_join_element_wise(*data, ""), _fit_text, "concat({0}, {1})"
)

FUNCTIONS = (
    LOWER,
    UPPER,
    TRIM,
    LENGTH,
    STARTS_WITH,
    ENDS_WITH,
    CONTAINS,
    LIKE,
    REGEXP_MATCH,
    SUBSTR,
    REPLACE,
    CONCAT,
)
