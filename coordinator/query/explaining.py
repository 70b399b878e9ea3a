"""Parse `EXPLAIN SELECT …`, which shows the parts of views that a query would read, and DuckDB's plan.

`EXPLAIN ANALYZE SELECT …` reads the views and runs the query, with DuckDB's times.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from dbsp.errors import ConfigError

PLAN_SCHEMA = pa.schema([("QUERY PLAN", pa.string())])
_HEAD = re.compile(r"(?is)(?:\s|--[^\n]*\n|/\*.*?\*/)*explain\b")
_WORD = re.compile(r"(?i)\s*(analyze|analyse|verbose)\b")
_OPTIONS = re.compile(r"(?is)\s*\(([\w\s,]*)\)")
_KNOWN = frozenset(
    {"analyze", "analyse", "verbose", "costs", "buffers", "settings", "timing", "summary", "wal", "format"}
)
_OFF = frozenset({"false", "off", "0"})


@dataclass(frozen=True, slots=True)
class Explained:
    """The statement that is explained, and whether it also runs."""

    sql: str
    analyze: bool = False


def explained(sql: str) -> Explained | None:
    """Return the statement of an EXPLAIN; None for other statements. Options are those of PostgreSQL; the form is text.

    **Errors** `ConfigError` for options that do not exist, and for other forms.

    **Example**

    >>> explained("explain analyze select 1"), explained("EXPLAIN (ANALYZE off, COSTS) select 1"), explained("select 1")
    (Explained(sql=' select 1', analyze=True), Explained(sql=' select 1', analyze=False), None)
    """
    head = _HEAD.match(sql)
    if head is None:
        return None
    rest, analyze = sql[head.end() :], False
    options = _OPTIONS.match(rest)
    if options is not None and _is_option(options[1]):
        for option in options[1].split(","):
            analyze = _option(option.lower().split(), analyze=analyze)
        return Explained(rest[options.end() :], analyze)
    while (word := _WORD.match(rest)) is not None:
        analyze = analyze or word[1].lower().startswith("anal")
        rest = rest[word.end() :]
    return Explained(rest, analyze)


def _is_option(text: str) -> bool:
    """Return whether a text in parentheses has options, and is not the SELECT itself."""
    return text.strip().lower().split(" ")[0] not in ("select", "values", "table", "with", "from")


def _option(words: Sequence[str], *, analyze: bool) -> bool:
    """Return whether the statement is to run, after one more option."""
    name, *value = words or [""]
    if name not in _KNOWN or len(value) > 1:
        raise ConfigError(f"not an option of EXPLAIN: {' '.join(words)[:60]!r}", "write EXPLAIN ANALYZE SELECT …")
    if name == "format" and value != ["text"]:
        raise ConfigError("the result of EXPLAIN is text only", "leave FORMAT out")
    return not value or value[0] not in _OFF if name.startswith("anal") else analyze


def plan_table(lines: Sequence[str]) -> pa.Table:
    """Return the lines of a plan as PostgreSQL shows them: rows of one column."""
    return pa.table([pa.array(lines, pa.string())], schema=PLAN_SCHEMA)
