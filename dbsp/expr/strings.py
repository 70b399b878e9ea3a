"""Text: case, length, search, parts. Lengths and positions count characters; positions start at 1, as in SQL."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dbsp.errors import CircuitError
from dbsp.expr.expression import Expression, Function, Operands
from dbsp.expr.types import type_of, typed
from dbsp.zset.buffers import text_array, text_view
from dbsp.zset.kernels import split_parts
from dbsp.zset.schema import BOOL, INT64, STRING

CONSTANT = (
    "it is the same on every row: give it as a str; for one of a column write .map(function, schema={…}) on the stream"
)
"""The hint where a text was expected and another value was given."""
LONGEST = 2**31
"""A length that no text reaches."""
MADE_LENGTH_MAX = 1 << 24
"""Limit of the length of a text made by padding or repeating: a width that is wrong by a typing error fails its row."""
FIRST_BEYOND_ASCII = 128


def fit_text(operands: Operands) -> tuple[Expression, ...]:
    """Accept text arguments only."""
    args = typed(operands, STRING)
    for arg, own in zip(args, operands.types, strict=True):
        if type_of(arg, own) != STRING:
            raise operands.refuse(f"it is for text: write {arg}.cast(dbsp.STRING)")
    return args


def _fit_pattern(operands: Operands) -> tuple[Expression, ...]:
    (pattern,) = operands.options
    if not isinstance(pattern, str):
        raise CircuitError(f"the pattern must be a constant text: pattern={pattern!r}", CONSTANT)
    return fit_text(operands)


def _fit_substr(operands: Operands) -> tuple[Expression, ...]:
    start, length = operands.options
    if start < 1 or (length is not None and length < 0):
        raise CircuitError(
            f"positions count from 1 and lengths from 0: start={start} length={length}",
            "write .substr(1, 3) for the first three",
        )
    return fit_text(operands)


def _fit_replace(operands: Operands) -> tuple[Expression, ...]:
    if not operands.options[0]:
        raise CircuitError(
            'nothing to look for: old=""', 'for text before it write dbsp.lit("…") + x, after it x + "…"'
        )
    return fit_text(operands)


def _substr(values: pa.Array, start: int, length: int | None) -> pa.Array:
    return pc.utf8_slice_codeunits(values, start - 1, None if length is None else start - 1 + length)


def _function(
    name: str, type_: pa.DataType, compute: Callable[..., Any], fit: Callable[..., Any] = fit_text, text: str = ""
) -> Function:
    return Function(name=name, fit=fit, result=lambda *_: type_, compute=compute, text=text or f"{{0}}.{name}()")


def _search(name: str, compute: Callable[..., Any]) -> Function:
    return _function(name, BOOL, compute, _fit_pattern, f"{{0}}.{name}({{1}})")


def _fit_width(operands: Operands) -> tuple[Expression, ...]:
    width, fill = operands.options
    if width < 0 or not isinstance(fill, str) or len(fill) != 1:
        raise CircuitError(
            f"padding needs a width from 0 and one character: width={width} fill={fill!r}", 'write .lpad(8, "0")'
        )
    return fit_text(operands)


def _fit_count(operands: Operands) -> tuple[Expression, ...]:
    (count,) = operands.options
    if count < 0:
        raise CircuitError(f"a number of characters is not negative: count={count}", "count from the other end instead")
    return fit_text(operands)


def _fit_split(operands: Operands) -> tuple[Expression, ...]:
    separator, number = operands.options
    if not isinstance(separator, str) or not separator or number < 1:
        raise CircuitError(
            f"parts are counted from 1 and separated by a text: separator={separator!r} number={number}",
            'write .split_part(",", 1) for the first',
        )
    return fit_text(operands)


def _position(values: pa.Array, text: str) -> pa.Array:
    """Return the character position of a text, counted from 1; 0 if it is absent.

    Arrow finds the position in bytes, so the characters before it are counted.
    """
    parts = pc.split_pattern(values, text, max_splits=1) if text else None
    if parts is None:
        return pc.if_else(pc.is_valid(values), 1, pa.scalar(None, INT64))
    before = pc.add(pc.utf8_length(pc.list_element(parts, 0)).cast(INT64), 1)
    return pc.if_else(pc.greater(pc.list_value_length(parts), 1), before, 0)


def _split_part(values: pa.Array, separator: str, number: int) -> pa.Array:
    """Return the number-th part; empty where there are fewer.

    Arrow's split makes a list of all parts and takes four times as long.
    """
    parts = text_array(*split_parts(text_view(values), separator.encode(), min(number, LONGEST)), STRING)
    return pc.if_else(values.is_valid(), parts, pa.scalar(None, STRING)) if values.null_count else parts


def _by_letters(
    ascii_only: Callable[[pa.Array], pa.Array], any_: Callable[[pa.Array], pa.Array]
) -> Callable[..., pa.Array]:
    """Return a function that uses `ascii_only`, which is many times as fast, for columns of ASCII, and `any_` for others."""

    def compute(values: pa.Array) -> pa.Array:
        offsets, data = text_view(values)
        return (ascii_only if data[offsets[0] : offsets[-1]].max(initial=0) < FIRST_BEYOND_ASCII else any_)(values)

    return compute


def _padded(pad: Callable[..., pa.Array]) -> Callable[..., pa.Array]:
    """Return a function that pads a text to the width, or cuts it down to it, as in SQL."""

    def padded(values: pa.Array, width: int, fill: str) -> pa.Array:
        _refuse_longer(width)
        return pc.utf8_slice_codeunits(pad(values, width, fill), 0, width)

    return padded


def _repeated(values: pa.Array, count: int) -> pa.Array:
    _refuse_longer((pc.max(pc.binary_length(values)).as_py() or 0) * count)
    return pc.binary_repeat(values, count)


def _refuse_longer(length: int) -> None:
    """Refuse a text that would fill the memory, or end the process: Arrow allocates the width that a row names."""
    if length > MADE_LENGTH_MAX:
        raise pa.ArrowInvalid(f"a text of more than {MADE_LENGTH_MAX} characters: length={length}")


def _right(values: pa.Array, count: int) -> pa.Array:
    return pc.utf8_slice_codeunits(values, -count, None) if count else pc.utf8_slice_codeunits(values, 0, 0)


def _joined(*data: Any) -> pa.Array:
    """Join the texts that are not null, with the separator between them; the separator is the last argument.

    Texts are joined pair by pair: Arrow's own join with `null_handling="skip"` drops rows whose texts are all null.
    """
    *texts, separator = data

    def pair(left: Any, right: Any) -> Any:
        both = pc.binary_join_element_wise(left, right, separator)
        return pc.coalesce(both, left, right)

    return pc.coalesce(reduce(pair, texts), "")


LOWER = _function("lower", STRING, _by_letters(pc.ascii_lower, pc.utf8_lower))
UPPER = _function("upper", STRING, _by_letters(pc.ascii_upper, pc.utf8_upper))
TRIM = _function("trim", STRING, pc.utf8_trim_whitespace)
LENGTH = _function("length", INT64, _by_letters(pc.binary_length, pc.utf8_length))
STARTS_WITH = _search("starts_with", pc.starts_with)
ENDS_WITH = _search("ends_with", pc.ends_with)
CONTAINS = _search("contains", pc.match_substring)
LIKE = _search("like", pc.match_like)
ILIKE = _search("ilike", lambda values, pattern: pc.match_like(values, pattern, ignore_case=True))
SUBSTR = _function("substr", STRING, _substr, _fit_substr, "{0}.substr({1}, {2})")
REPLACE = _function(
    "replace",
    STRING,
    pc.replace_substring,
    _fit_replace,
    "{0}.replace({1}, {2})",
)
CONCAT = _function("concat", STRING, lambda *data: pc.binary_join_element_wise(*data, ""), fit_text, "concat({0}, {1})")

LEFT = _function("left", STRING, lambda v, n: pc.utf8_slice_codeunits(v, 0, n), _fit_count, "{0}.left({1})")
RIGHT = _function("right", STRING, _right, _fit_count, "{0}.right({1})")
REVERSE = _function("reverse", STRING, pc.utf8_reverse)
REPEAT = _function("repeat", STRING, _repeated, _fit_count, "{0}.repeat({1})")
TITLE = _function("title", STRING, pc.utf8_title)
LPAD = _function("lpad", STRING, _padded(pc.utf8_lpad), _fit_width, "{0}.lpad({1}, {2})")
RPAD = _function("rpad", STRING, _padded(pc.utf8_rpad), _fit_width, "{0}.rpad({1}, {2})")
STRIP = _function("strip", STRING, pc.utf8_trim, fit_text, "{0}.strip({1})")
LTRIM = _function("ltrim", STRING, pc.utf8_ltrim_whitespace)
RTRIM = _function("rtrim", STRING, pc.utf8_rtrim_whitespace)
POSITION = _function("position", INT64, _position, _fit_pattern, "{0}.position({1})")
SPLIT_PART = _function("split_part", STRING, _split_part, _fit_split, "{0}.split_part({1}, {2})")
CONCAT_WS = Function(name="concat_ws", fit=fit_text, result=lambda *_: STRING, compute=_joined, nulls="never")

FUNCTIONS = (
    LEFT,
    RIGHT,
    REVERSE,
    REPEAT,
    TITLE,
    LPAD,
    RPAD,
    STRIP,
    LTRIM,
    RTRIM,
    POSITION,
    SPLIT_PART,
    CONCAT_WS,
    LOWER,
    UPPER,
    TRIM,
    LENGTH,
    STARTS_WITH,
    ENDS_WITH,
    CONTAINS,
    LIKE,
    ILIKE,
    SUBSTR,
    REPLACE,
    CONCAT,
)
