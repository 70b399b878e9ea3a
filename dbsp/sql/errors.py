"""Errors of SQL text: what is wrong, the text at fault, its line and column, and what to write instead."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa

from dbsp.errors import CircuitError, DbspError
from dbsp.source_lines import SourceLine

_SHOWN = 60
_CAUSES = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, pa.ArrowException)
"""What Python and Arrow raise for values that a function does not take: a value out of range, a date that does not exist."""
_HINTS = {
    "does not work on these types": "cast one of them, such as cast(x as bigint)",
    "needs an order": "write over (order by …)",
    "needs one ordering column": "order by one time, date or whole number, or write rows between … and …",
    "now() stands in filters alone": "compare it in WHERE, such as where ts > now() - interval 1 hour",
    "there is no cast": "write try_cast, or a cast by way of varchar",
}
"""What to write in SQL where the streams below say what to write in Python."""


class MisplacedError(CircuitError):
    """An error of a token."""

    def __init__(self, message: str, hint: str, token: Any) -> None:
        """Keep the token."""
        super().__init__(message, hint)
        self.token = token


@dataclass(frozen=True, slots=True)
class Script:
    """SQL text and the file that it stands in, if there is one."""

    text: str
    file: str | None = None

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column, both from 1."""
        before = self.text[:offset]
        return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1

    def said(self, error: CircuitError, shown: str, place: tuple[int, int], source: SourceLine | None) -> CircuitError:
        """The error with the text and where it stands."""
        line, column = place
        where = f"at={self.file}:{line}:{column}" if self.file else f"sql={line}:{column}"
        if self.file is None and source is not None:
            where = f"{where} at={source}"
        found = CircuitError(f"{error.message} text={shown!r} {where}", error.hint)
        found.located = True
        return found


class PlacedError(CircuitError):
    """An error on its way up, with the part of the query that it is about."""

    def __init__(self, message: str, hint: str | None, node: Any) -> None:
        """Keep the node."""
        super().__init__(message, hint)
        self.node = node


def name_of(node: Any) -> str:
    """What DuckDB calls a function, which the parser may have another name for."""
    text = _written(node)
    name = text.partition("(")[0].strip().casefold()
    return name if name.isidentifier() else str(node.sql_name()).casefold()


def _written(node: Any) -> str:
    """Return a node as SQL; of a call that lacks arguments its name, because the parser cannot write it."""
    from sqlglot.errors import SqlglotError  # noqa: PLC0415 (an extra: only SQL needs it)

    try:
        text: str = node.sql(dialect="duckdb")
    except (SqlglotError, ValueError, AttributeError):
        return str(node.sql_name()).casefold() if hasattr(node, "sql_name") else str(node.key)
    return text


def refuse(node: Any, message: str, hint: str) -> NoReturn:
    """The dialect does not have this: what it is, and what to write."""
    raise PlacedError(message, hint, node)


def understood(node: Any, keys: Collection[str]) -> None:
    """Refuse a part of a node that nothing here reads: what the parser knows and the dialect does not must not be passed over."""
    for key, value in node.args.items():
        if key not in keys and value not in (None, False, []):
            what = f"{type(node).__name__.lower()} with {key.rstrip('_')}"
            refuse(node, f"the dialect does not have this: what={what}", "docs/sql.md says what there is")


@dataclass(frozen=True, slots=True)
class about:  # noqa: N801 (it is used as a function)
    """Errors of the streams below are about this part of the query, unless they know better."""

    node: Any

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise an error that names the node."""
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
    """Errors that leave name the line and column of the script."""
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
    """Where the text of a node begins: at the first of its words that the parser has marked."""
    starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
    if not starts and node.parent is not None:
        return offset_of(node.parent)
    return min(starts, default=0)


def shown(node: Any, text: str) -> str:
    """The text of a node as it is written, to the end of its brackets, cut where it is long."""
    ends = [part.meta["end"] for part in node.walk() if "end" in part.meta]
    found = text[offset_of(node) : max(ends) + 1] if ends else _written(node)
    rest = text[max(ends) + 1 :] if ends else ""
    while found.count("(") > found.count(")") and ")" in rest:
        more, _, rest = rest.partition(")")
        found = f"{found}{more})"
    found = " ".join(found.split())
    return found if len(found) <= _SHOWN else f"{found[: _SHOWN - 1]}…"
