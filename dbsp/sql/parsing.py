"""Parse SQL text into sqlglot's trees, in DuckDB's dialect.

sqlglot is an optional dependency, so this module imports it only when it parses.
"""

from __future__ import annotations

import logging
import re
from typing import Any

from dbsp.diagnostics.source_lines import SourceLine
from dbsp.errors import CircuitError, ConfigError
from dbsp.sql.errors import MisplacedError, Script, reported

NESTING_MAX = 250
"""The maximum depth of brackets, functions, subqueries and CASEs inside each other."""


def statements_of(script: Script, source: SourceLine | None) -> list[Any]:
    """Return the trees of a script's statements, without empty ones, after `check_arguments` has passed each."""
    found = [statement for statement in _parsed(script, script.text, source) if statement is not None]
    from dbsp.sql.arguments import check_arguments  # noqa: PLC0415 (it needs sqlglot, an extra, which is there by now)

    for statement in found:
        if type(statement).__name__ == "Command":
            _refuse_command(script, statement, source)
    kept = [_in_one_form(statement) for statement in found if type(statement).__name__ != "Semicolon"]
    with reported(script, source):
        for statement in kept:
            check_arguments(statement)
    return kept


def _in_one_form(statement: Any) -> Any:
    """Return the statement with `x in (values …)` rewritten as IN over a query."""
    exp = parser().exp
    from dbsp.sql.walks import parts  # noqa: PLC0415 (as above)

    for node in [part for part in parts(statement) if isinstance(part, exp.In)]:
        found = node.expressions
        if len(found) == 1 and isinstance(found[0], exp.Values):
            node.set("expressions", None)
            node.set("query", exp.Subquery(this=found[0]))
    for number, node in enumerate(reversed([part for part in parts(statement) if isinstance(part, exp.Lambda)])):
        _number_parameters(node, number)  # inner lambdas first
    for node in [part for part in parts(statement) if isinstance(part, exp.Anonymous)]:
        if node.name.casefold() in _APPLIED and len(node.expressions) == len(("list", "lambda")):
            node.replace(exp.Transform(this=node.expressions[0], expression=node.expressions[1]))
    return statement


_APPLIED = ("list_apply", "array_apply", "array_transform")
"""DuckDB's other names of `list_transform`, for which sqlglot has no node."""


def _number_parameters(node: Any, number: int) -> None:
    """Number a lambda, and the uses of its parameters in its body.

    sqlglot has made plain identifiers of most of them. A name in other letters, `X` for `x`, is still a column.
    """
    exp = parser().exp
    from dbsp.sql.walks import is_parameter, number_lambda, parts  # noqa: PLC0415 (as above)

    number_lambda(node, number)
    names = {parameter.name.casefold() for parameter in node.expressions}
    for part in parts(node.this):
        of_column = isinstance(part, exp.Column) and part.args.get("table") is None
        if part.name.casefold() not in names or is_parameter(part) or not (of_column or _is_value(part)):
            continue
        use = part.replace(part.this) if of_column else part
        number_lambda(use, number)


def _is_value(part: Any) -> bool:
    """Return whether an identifier is a value by itself, not the name of a column, a field or a parameter."""
    exp = parser().exp
    if type(part) is not exp.Identifier or isinstance(part.parent, exp.Column | exp.TableAlias | exp.Alias):
        return False
    is_field = isinstance(part.parent, exp.Dot) and part.arg_key == "expression"
    is_name = isinstance(part.parent, exp.PropertyEQ) and part.arg_key == "this"
    return not (is_field or is_name or (isinstance(part.parent, exp.Lambda) and part.arg_key == "expressions"))


_OPENING = ("L_PAREN", "L_BRACKET", "L_BRACE", "CASE")
_CLOSING = ("R_PAREN", "R_BRACKET", "R_BRACE", "END")
_NO_ELEMENT = (
    "COMMA",
    "SELECT",
    "DISTINCT",
    "FROM",
    "WITH",
    "GROUP_BY",
    "ORDER_BY",
    "PARTITION_BY",
    "L_PAREN",
    "L_BRACKET",
)
"""Tokens after which a comma has no element before it; sqlglot leaves such an element out silently."""
_NUMBER = r"(?:\d[\d_]*(?:\.[\d_]*)?|\.\d[\d_]*)(?:[eE][+-]?\d+)?"
_PREFIX = ("NOT", "DASH", "TILDE", "PLUS")


def _tokens(text: str) -> list[Any]:
    """Return the tokens of a text; refuse one that nests deeper than `NESTING_MAX`."""
    found: list[Any] = []
    begin = depth = signs = 0
    before = ""
    for token in parser().Dialect.get_or_raise("duckdb").tokenize(text):
        if token.start < begin:
            continue
        kind = token.token_type.name
        if kind == "COMMA" and before in _NO_ELEMENT:
            raise MisplacedError("not SQL: something is missing before the comma", "the dialect is DuckDB's", token)
        before = kind
        depth = max(depth + (kind in _OPENING) - (kind in _CLOSING), 0)
        signs = signs + 1 if kind in _PREFIX else 0
        if depth + signs > NESTING_MAX:
            hint = "name the inner part in WITH, or make it a column of a query in FROM"
            raise MisplacedError(f"nested too deeply: levels={depth + signs} max={NESTING_MAX}", hint, token)
        parts = _apart(token, text) if kind == "NUMBER" else [token]
        begin = parts[-1].end + 1
        found += parts
    return found


def _apart(token: Any, text: str) -> list[Any]:
    """Return the tokens of a number to which the tokenizer has added the sign and number after it, as in `1e3+1`."""
    kinds, token_of = type(token.token_type), type(token)
    found: list[Any] = []
    at = token.start
    while at <= token.end:
        match = re.compile(r"[+-]" if len(found) % 2 else _NUMBER).match(text, at)
        if match is None:
            raise MisplacedError(f"not a number: number={token.text}", "write 1e3 for 1000.0", token)
        kind = token.token_type if len(found) % 2 == 0 else kinds.PLUS if match[0] == "+" else kinds.DASH
        column = token.col - token.end + match.end() - 1
        written = match[0].replace("_", "")
        found.append(
            token_of(kind, written, token.line, column, at, match.end() - 1, token.comments if not found else None)
        )
        at = match.end()
    if len(found) % 2 == 0:  # the token ends with a sign: its number is the next token
        begin = found[-1].end + 1
        match = re.compile(_NUMBER).match(text, begin)
        if match is not None:
            end = match.end() - 1
            found.append(token_of(token.token_type, match[0].replace("_", ""), token.line, token.col, begin, end))
    return [token] if len(found) == 1 and found[0].end == token.end else found


def _parsed(script: Script, text: str, source: SourceLine | None) -> list[Any]:
    """Return the trees of the statements; raise a located error if the text is not SQL.

    The parser's own log is off meanwhile, because the error contains what it would log.
    """
    sqlglot, logger = parser(), logging.getLogger("sqlglot")
    from dbsp.sql.parser import parsed  # noqa: PLC0415 (as above)

    before, logger.disabled = logger.disabled, True
    try:
        dialect = sqlglot.Dialect.get_or_raise("duckdb")
        dialect.to_json_path = lambda path: path  # unchanged, because 'a.b' is one key and '$.a.b' a path
        found: list[Any] = parsed(_tokens(text), text, dialect)
    except MisplacedError as error:
        raise script.said(error, error.token.text, script.place(error.token.start), source) from None
    except (sqlglot.errors.ParseError, sqlglot.errors.TokenError) as error:
        raise _syntax(script, error, source) from None
    finally:
        logger.disabled = before
    return found


_FOLLOWING = re.compile(r"\bcreate\s+(or\s+replace\s+)?(materialized\s+)?(table|view)\b", re.IGNORECASE)


def _refuse_command(script: Script, statement: Any, source: SourceLine | None) -> None:
    """Refuse a statement that the parser gave up on, at the faulty place of its query if the query is the reason."""
    text = str(statement.expression)
    begin = max(script.text.find(text), 0)
    if (following := _FOLLOWING.search(text)) is not None:
        failed = CircuitError("a `;` is missing between two statements", "write `;` between two statements")
        raise script.said(failed, following[0], script.place(begin + following.start()), source)
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
    """Return the module sqlglot, or raise an error that says how to install it."""
    try:
        import sqlglot  # noqa: PLC0415 (an extra: only SQL needs it)
        import sqlglot.errors  # noqa: PLC0415 (as above)
    except ModuleNotFoundError:
        raise ConfigError(
            "circuits in SQL need sqlglot, which is not installed", "pip install 'dbsp-engine[sql]'"
        ) from None
    return sqlglot


def _syntax(script: Script, error: Any, source: SourceLine | None) -> CircuitError:
    """Return a syntax error of sqlglot as a `CircuitError` with our form of the place."""
    first = error.errors[0] if getattr(error, "errors", None) else {}
    message = str(first.get("description") or str(error).partition("\n")[0]).rstrip(".")
    line, highlight = first.get("line") or 1, first.get("highlight") or ""
    column = max(1, (first.get("col") or 1) - len(highlight) + 1)
    if "<class" in message:
        message = "something is missing"
    message = message.partition(" but got <")[0]
    written = " ".join(script.text.casefold().split())
    hint = next((hint for text, hint in _FOREIGN.items() if text in written), "the dialect is DuckDB's")
    failed = CircuitError(f"not SQL: {message[:1].lower()}{message[1:]}", hint)
    return script.said(failed, highlight, (line, column), source)


_TEMPLATE = "templates, such as those of dbt, are not filled in here: give the text after `dbt compile`"
_FOREIGN = {
    "{{": _TEMPLATE,
    "{%": _TEMPLATE,
    "create source": "write create table; where its rows come from is in `pipeline.toml`, section [input]",
    "create sink": "write create view; where its changes go is in `pipeline.toml`, section [output]",
    "descriptor(": "group by time_bucket(interval '1 hour', ts); windows that overlap are in Python (docs/streams.md)",
}
"""Hints for texts that are not SQL here and have these words of other systems."""
