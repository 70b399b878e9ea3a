"""Regular expressions, in RE2's syntax: linear time on every text, and so no back-references and no look-around."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dbsp.errors import CircuitError
from dbsp.expr.expression import Expression, Function, Operands
from dbsp.expr.strings import CONSTANT, fit_text
from dbsp.zset.schema import BOOL, INT64, STRING

_WHOLE = "whole__"


def _check(compute: Callable[[pa.Array], Any], pattern: Any) -> None:
    """Try a pattern on an empty text, so that a wrong one is refused when the circuit is built."""
    if not isinstance(pattern, str):
        raise CircuitError(f"the pattern must be a constant text: pattern={pattern!r}", CONSTANT)
    try:
        compute(pa.array([""], STRING))
    except pa.ArrowInvalid as error:
        hint = "it is written in RE2's syntax, which has no back-references and no look-around"
        raise CircuitError(f"not a regular expression: pattern={pattern!r} reason={error}", hint) from error


def _fit_pattern(operands: Operands) -> tuple[Expression, ...]:
    pattern = operands.options[0]
    _check(lambda texts: pc.match_substring_regex(texts, pattern), pattern)
    return fit_text(operands)


def _fit_replace(operands: Operands) -> tuple[Expression, ...]:
    pattern, new, _ = operands.options
    if not isinstance(new, str):
        raise CircuitError(f"the replacement must be a constant text: new={new!r}", CONSTANT)
    _check(lambda texts: pc.replace_substring_regex(texts, pattern, new), pattern)
    return fit_text(operands)


def _fit_extract(operands: Operands) -> tuple[Expression, ...]:
    pattern, group = operands.options
    _check(lambda texts: pc.match_substring_regex(texts, pattern), pattern)
    named, names = _named(pattern)
    wanted = names.get(group)
    if wanted is None:
        raise CircuitError(
            f"the pattern has no such group: pattern={pattern!r} group={group!r}", "0 is the whole match"
        )
    _check(lambda texts: pc.extract_regex(texts, named), named)
    return fit_text(operands)


def _named(pattern: str) -> tuple[str, dict[int | str, str]]:
    """Return the pattern with every group named, as Arrow needs, and the names by number (0: all) and user's name."""
    names: dict[int | str, str] = {0: _WHOLE}
    out: list[str] = []
    position, in_class, number = 0, False, 0
    while position < len(pattern):
        char = pattern[position]
        if char == "\\":
            out.append(pattern[position : position + 2])
            position += 2
            continue
        in_class = (in_class or char == "[") and char != "]"
        own = re.match(r"\(\?P?<(\w+)>", pattern[position:])
        if char == "(" and not in_class and own is not None:
            number += 1
            names[number] = names[own.group(1)] = own.group(1)
            out.append(f"(?P<{own.group(1)}>")
            position += own.end()
            continue
        if char == "(" and not in_class and pattern[position + 1 : position + 2] != "?":
            number += 1
            names[number] = f"group{number}__"
            out.append(f"(?P<group{number}__>")
        else:
            out.append(char)
        position += 1
    return f"(?P<{_WHOLE}>{''.join(out)})", names


def _extract(values: pa.Array, pattern: str, group: int | str) -> pa.Array:
    """Return the text of one group of the first match; null without a match."""
    named, names = _named(pattern)
    return pc.struct_field(pc.extract_regex(values, named), names[group])


def _replace(values: pa.Array, pattern: str, new: str, every: bool) -> pa.Array:
    return pc.replace_substring_regex(values, pattern, new, max_replacements=None if every else 1)


REGEXP_MATCH = Function(
    name="regexp_match",
    fit=_fit_pattern,
    result=lambda *_: BOOL,
    compute=pc.match_substring_regex,
    text="{0}.regexp_match({1})",
)
REGEXP_COUNT = Function(
    name="regexp_count",
    fit=_fit_pattern,
    result=lambda *_: INT64,
    compute=pc.count_substring_regex,
    expensive=True,
    text="{0}.regexp_count({1})",
)
REGEXP_REPLACE = Function(
    name="regexp_replace",
    fit=_fit_replace,
    result=lambda *_: STRING,
    compute=_replace,
    expensive=True,
    text="{0}.regexp_replace({1}, {2}, {3})",
)
REGEXP_EXTRACT = Function(
    name="regexp_extract",
    fit=_fit_extract,
    result=lambda *_: STRING,
    compute=_extract,
    nulls="always",
    expensive=True,
    text="{0}.regexp_extract({1}, {2})",
)

FUNCTIONS = (REGEXP_MATCH, REGEXP_COUNT, REGEXP_REPLACE, REGEXP_EXTRACT)
