"""Report errors in SQL text: the problem, the text at fault, its line and column, and a hint what to write instead."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa

from dbsp.diagnostics.source_lines import SourceLine
from dbsp.errors import CircuitError, DbspError

_SHOWN = 60
_CAUSES = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, pa.ArrowException)
"""Errors that Python and Arrow raise for unsuitable arguments, such as a value out of range or a date that does not exist."""
_HINTS = {
    "does not work on these types": "cast one of them, such as cast(x as bigint)",
    "needs an order": "write over (order by …)",
    "needs one ordering column": "order by one time, date or whole number, or write rows between … and …",
    "now() is allowed in filters only": "compare it in WHERE, such as where ts > now() - interval 1 hour",
    "there is no cast": "write try_cast, or a cast by way of varchar",
}
"""The hint in SQL's words for each hint in Python's words that a stream's method gives."""


class MisplacedError(CircuitError):
    """An error at a token, raised before the parser has made a node."""

    def __init__(self, message: str, hint: str, token: Any) -> None:
        """Create the error and store the token for its place."""
        super().__init__(message, hint)
        self.token = token


@dataclass(frozen=True, slots=True)
class Script:
    """SQL text, and the path of its file if it was read from one."""

    text: str
    file: str | None = None

    def place(self, offset: int) -> tuple[int, int]:
        """Return the line and column of a character offset, both counted from 1."""
        before = self.text[:offset]
        return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1

    def said(self, error: CircuitError, shown: str, place: tuple[int, int], source: SourceLine | None) -> CircuitError:
        """Return the error extended by the text at fault and its place.

        The place is in the script's file if there is one. Otherwise it is in the SQL text, followed by the Python line
        that passed it.
        """
        line, column = place
        where = f"at={self.file}:{line}:{column}" if self.file else f"sql={line}:{column}"
        if self.file is None and source is not None:
            where = f"{where} at={source}"
        found = CircuitError(f"{error.message} text={shown!r} {where}", error.hint)
        found.located = True
        return found


class PlacedError(CircuitError):
    """An error at a node of the query, not yet extended by its place; `reported` adds the place."""

    def __init__(self, message: str, hint: str | None, node: Any) -> None:
        """Create the error and store the node for its place."""
        super().__init__(message, hint)
        self.node = node


def name_of(node: Any) -> str:
    """Return the name that DuckDB has for a function, in lower case; sqlglot may have another one."""
    text = _written(node)
    name = text.partition("(")[0].strip().casefold()
    return name if name.isidentifier() and name != "cast" else str(node.sql_name()).casefold()


def _written(node: Any) -> str:
    """Return a node as SQL text, or its name alone if the parser's generator fails because arguments are missing."""
    from sqlglot.errors import ErrorLevel, SqlglotError  # noqa: PLC0415 (an extra: only SQL needs it)

    try:
        text: str = node.sql(dialect="duckdb", unsupported_level=ErrorLevel.IGNORE)
    except (SqlglotError, ValueError, AttributeError):
        return str(node.sql_name()).casefold() if hasattr(node, "sql_name") else str(node.key)
    return text


def refuse(node: Any, message: str, hint: str) -> NoReturn:
    """Raise a `PlacedError` at the node: the message names what the dialect lacks, the hint what to write."""
    raise PlacedError(message, hint, node)


def understood(node: Any, keys: Collection[str]) -> None:
    """Refuse a node with a non-empty argument outside `keys`, so that no clause which sqlglot knows is ignored silently."""
    for key, value in node.args.items():
        if key not in keys and value not in (None, False, []):
            what = f"{type(node).__name__.lower()} with {key.rstrip('_')}"
            refuse(node, f"the dialect does not have this: what={what}", "docs/sql.md says what there is")


@dataclass(frozen=True, slots=True)
class about:  # noqa: N801 (it is used as a function)
    """Context manager that attaches a node to the errors raised within, unless they carry a node already.

    Errors of streams get a hint in SQL's words. Errors of Python and Arrow about unsuitable values become
    `PlacedError`s.
    """

    node: Any

    def __enter__(self) -> None:
        """Do nothing; the work is in `__exit__`."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Replace an error without a place by a `PlacedError` at the node; let all others pass."""
        if isinstance(error, _CAUSES) and not isinstance(error, DbspError | RecursionError):
            said = " ".join(str(error).split())[:_SHOWN]
            raise PlacedError(
                f"these arguments do not fit: cause={said}", "docs/sql.md says what there is", self.node
            ) from error
        if not isinstance(error, CircuitError) or isinstance(error, PlacedError):
            return
        message = error.message.rpartition(" at=")[0] if error.located else error.message
        hint = next((hint for said, hint in _HINTS.items() if said in message), error.hint)
        raise PlacedError(message, hint, self.node) from error.__cause__


@contextmanager
def reported(script: Script, source: SourceLine | None) -> Iterator[None]:
    """Add the text at fault, its line and its column to errors that leave the block."""
    try:
        yield
    except PlacedError as error:
        place = script.place(offset_of(error.node))
        raise script.said(error, shown(error.node, script.text), place, source) from error.__cause__
    except RecursionError as error:
        failed = CircuitError(
            "the query nests too deeply", "name the inner part in WITH, or make it a column of a query in FROM"
        )
        raise script.said(failed, script.text.strip().partition("\n")[0][:_SHOWN], (1, 1), source) from error


def offset_of(node: Any) -> int:
    """Return the offset where a node's text begins: the first position that the parser marked in the node, or in its parents."""
    starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
    if not starts and node.parent is not None:
        return offset_of(node.parent)
    return min(starts, default=0)


def shown(node: Any, text: str) -> str:
    """Return a node's text as the user wrote it, closing brackets included, cut to 60 characters."""
    ends = [part.meta["end"] for part in node.walk() if "end" in part.meta]
    found = text[offset_of(node) : max(ends) + 1] if ends else _written(node)
    rest = text[max(ends) + 1 :] if ends else ""
    while found.count("(") > found.count(")") and ")" in rest:
        more, _, rest = rest.partition(")")
        found = f"{found}{more})"
    found = " ".join(found.split())
    return found if len(found) <= _SHOWN else f"{found[: _SHOWN - 1]}…"
