"""Parse DuckDB's dialect with sqlglot's parser, extended to refuse the arguments that sqlglot would drop silently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.parsers.duckdb import DuckDBParser

from dbsp.errors import CircuitError
from dbsp.sql.errors import MisplacedError
from dbsp.sql.walks import children


class Histogram(exp.Expression, exp.AggFunc):
    """The call `histogram(x)`, for which sqlglot has no node."""


class Parser(DuckDBParser):
    """A parser that refuses a call whose node lacks the last of its arguments.

    sqlglot makes the node of a call from as many arguments as the function has. Some functions silently drop further
    ones: `sha256(a, b)` becomes `sha256(a)`.
    """

    FUNCTIONS = {  # noqa: RUF012
        **{name: made for name, made in DuckDBParser.FUNCTIONS.items() if not name.endswith("PARAMETERIZED_AGG")},
        "HISTOGRAM": Histogram.from_arg_list,
    }
    """The parser's functions by name. DuckDB lacks the two added functions, so sqlglot cannot write their nodes as SQL."""
    FUNCTION_PARSERS = {name: parse for name, parse in DuckDBParser.FUNCTION_PARSERS.items() if name != "INITCAP"}  # noqa: RUF012
    """Functions with a special parser. INITCAP is removed, because its parser ignores all arguments after the second."""

    def validate_expression(self, expression: Any, args: Any = None) -> Any:
        """Return the node of a call, as sqlglot's parser does; refuse the call if its last argument is not in the node."""
        made = super().validate_expression(expression, args)
        remade = isinstance(made, _REMADE) and len(args or ()) <= _OPERANDS
        if args and isinstance(args[-1], exp.Expr) and not remade and not _holds(made, args):
            shown = args[-1].sql(dialect="duckdb")
            raise MisplacedError(f"too many arguments: argument={shown}", "docs/sql.md lists the calls", self._called())
        return made

    def _parse_distinct_arg_function(self, func: Any, distinct_index: int = 0) -> Any:
        """Parse the arguments of a quantile, and validate its node too, which sqlglot does not."""
        validated: Any = _Validated(self, func)
        return super()._parse_distinct_arg_function(validated, distinct_index)

    def at(self) -> Any:
        """Return the current token, or the last one at the end of the text."""
        return self._tokens[min(self._index, len(self._tokens) - 1)]

    def _called(self) -> Any:
        """Return the token of the function's name before the open brackets."""
        at, depth = self._index - 1, 0
        while at > 0 and (depth or self._tokens[at].token_type.name != "L_PAREN"):
            kind = self._tokens[at].token_type.name
            depth += (kind == "R_PAREN") - (kind == "L_PAREN")
            at -= 1
        return self._tokens[max(at - 1, 0)]


@dataclass(frozen=True, slots=True)
class _Validated:
    """Stand-in for a node class, whose nodes the parser validates as soon as they are made."""

    parser: Parser
    kind: Any

    def from_arg_list(self, args: list[Any]) -> Any:
        """Make the node of a call from its arguments, and validate it."""
        return self.parser.validate_expression(self.kind.from_arg_list(args), args)


def parsed(tokens: list[Any], text: str, dialect: Any) -> list[Any]:
    """Return the trees of a text's statements.

    An error in sqlglot that is none of its own classes becomes an error at the current token. For example, `var_map(a)`
    makes sqlglot fail with an IndexError.
    """
    parser = Parser(dialect=dialect)
    try:
        found: list[Any] = parser.parse(tokens, text)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, CircuitError | SqlglotError):
            raise
        raise MisplacedError("not SQL: the parser gives up here", "the dialect is DuckDB's", parser.at()) from error
    return found


_REMADE = (exp.JSONExtractScalar, exp.JSONExtract, exp.TimeToStr, exp.StrToTime)
"""Calls whose second argument, a constant text, becomes another node in the parser, so that `_holds` does not find it."""
_OPERANDS = 2


def _holds(made: Any, args: Sequence[Any]) -> bool:
    """Return whether the last argument is part of the node that was made from all arguments."""
    given = {id(each) for each in args}
    waiting = [made]
    while waiting:
        node = waiting.pop()
        if node is args[-1]:
            return True
        if id(node) not in given:
            waiting += children(node)
    return False
