"""From text to sqlglot's tree, in DuckDB's dialect; sqlglot is needed by those alone who write SQL."""

from __future__ import annotations

import logging
import re
from typing import Any

from dbsp.errors import CircuitError, ConfigError
from dbsp.source_lines import SourceLine
from dbsp.sql.errors import Script


def statements_of(script: Script, source: SourceLine | None) -> list[Any]:
    """The statements of a script, without empty ones."""
    found = [statement for statement in _parsed(script, script.text, source) if statement is not None]
    for statement in found:
        if type(statement).__name__ == "Command":
            _refuse_command(script, statement, source)
    return [_in_one_form(statement) for statement in found if type(statement).__name__ != "Semicolon"]


def _in_one_form(statement: Any) -> Any:
    """The statement with `x in (values …)` as a look among the rows of a query."""
    exp = parser().exp
    for node in statement.find_all(exp.In):
        found = node.expressions
        if len(found) == 1 and isinstance(found[0], exp.Values):
            node.set("expressions", None)
            node.set("query", exp.Subquery(this=found[0]))
    return statement


def _parsed(script: Script, text: str, source: SourceLine | None) -> list[Any]:
    """The statements, or an error that tells where the text is none; what the parser logs of it is in the error."""
    sqlglot, logger = parser(), logging.getLogger("sqlglot")
    before, logger.disabled = logger.disabled, True
    try:
        found: list[Any] = sqlglot.parse(text, read="duckdb")
    except (sqlglot.errors.ParseError, sqlglot.errors.TokenError) as error:
        raise _syntax(script, error, source) from None
    finally:
        logger.disabled = before
    return found


def _refuse_command(script: Script, statement: Any, source: SourceLine | None) -> None:
    """The parser gave up on a whole statement: where its query is wrong, if that is it."""
    text = str(statement.expression)
    begin = max(script.text.find(text), 0)
    inside = re.search(r"\bas\b", text, re.IGNORECASE)
    if inside is not None:
        end = begin + inside.end()
        _parsed(script, re.sub(r"[^\n]", " ", script.text[:end]) + script.text[end : begin + len(text)], source)
    first = text.strip().partition("\n")[0]
    failed = CircuitError(
        f"not a statement: statement={str(statement.this).lower()}", "docs/sql.md says what a script has"
    )
    raise script.said(failed, first, script.place(begin), source)


def parser() -> Any:
    """sqlglot, or the error that says how to get it."""
    try:
        import sqlglot  # noqa: PLC0415 (an extra: only SQL needs it)
        import sqlglot.errors  # noqa: PLC0415
    except ModuleNotFoundError:
        raise ConfigError("circuits in SQL need sqlglot, which is not installed", "pip install 'dbsp[sql]'") from None
    return sqlglot


def _syntax(script: Script, error: Any, source: SourceLine | None) -> CircuitError:
    """A syntax error with our way of telling where."""
    first = error.errors[0] if getattr(error, "errors", None) else {}
    message = str(first.get("description") or str(error).partition("\n")[0]).rstrip(".")
    line, highlight = first.get("line") or 1, first.get("highlight") or ""
    column = max(1, (first.get("col") or 1) - len(highlight) + 1)
    if "<class" in message:
        message = "something is missing"
    failed = CircuitError(f"not SQL: {message[:1].lower()}{message[1:]}", "the dialect is DuckDB's")
    return script.said(failed, highlight, (line, column), source)
