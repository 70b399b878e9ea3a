"""From text to sqlglot's tree, in DuckDB's dialect; sqlglot is needed by those alone who write SQL."""

from __future__ import annotations

from typing import Any

from dbsp.circuit.nodes import SourceLine
from dbsp.errors import CircuitError, ConfigError
from dbsp.sql.errors import Script


def statements_of(script: Script, source: SourceLine | None) -> list[Any]:
    """The statements of a script, without empty ones."""
    sqlglot = parser()
    try:
        found = sqlglot.parse(script.text, read="duckdb")
    except (sqlglot.errors.ParseError, sqlglot.errors.TokenError) as error:
        raise _syntax(script, error, source) from None
    return [statement for statement in found if statement is not None and not _is_semicolon(statement)]


def parser() -> Any:
    """sqlglot, or the error that says how to get it."""
    try:
        import sqlglot  # noqa: PLC0415 (an extra: only SQL needs it)
        import sqlglot.errors  # noqa: PLC0415
    except ModuleNotFoundError:
        raise ConfigError("circuits in SQL need sqlglot, which is not installed", "pip install 'dbsp[sql]'") from None
    return sqlglot


def _is_semicolon(statement: Any) -> bool:
    return type(statement).__name__ == "Semicolon"


def _syntax(script: Script, error: Any, source: SourceLine | None) -> CircuitError:
    """A syntax error with our way of telling where."""
    first = error.errors[0] if getattr(error, "errors", None) else {}
    message = str(first.get("description") or str(error).partition("\n")[0]).rstrip(".")
    line, highlight = first.get("line") or 1, first.get("highlight") or ""
    column = max(1, (first.get("col") or 1) - len(highlight) + 1)
    failed = CircuitError(f"not SQL: {message[:1].lower()}{message[1:]}", "the dialect is DuckDB's")
    return script.said(failed, highlight, (line, column), source)
