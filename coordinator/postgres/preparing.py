"""PREPARE and EXECUTE as statements: read the name, the types, the statement and the values.

A value is a constant: a number, a text, true, false or null, with a cast if wanted. Drivers send other values by messages of the
protocol.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dbsp.coordinator.postgres.messages import TEXT_FORMAT
from dbsp.coordinator.postgres.parameters import text_of, type_name
from dbsp.coordinator.postgres.refusals import READ_ONLY, SYNTAX, PostgresRefusal
from dbsp.coordinator.postgres.results import Portal, Prepared
from dbsp.coordinator.postgres.statements import located, split, unquoted
from dbsp.coordinator.postgres.subscribing import SUBSCRIBE, parameters_of
from dbsp.coordinator.query.pg_types import BY_OID, OIDS

NO_TYPE = "42704"
PREPARE_FORM = "write PREPARE name (integer, text) AS SELECT …"
EXECUTE_FORM = "write EXECUTE name (1, 'text', null)"
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(E[+-]?\d+)?")
_LENGTH = re.compile(r" \( [^)]* \)")


@dataclass(frozen=True, slots=True)
class PrepareStatement:
    """The name, the types of the parameters, and the text of a PREPARE."""

    name: str
    types: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True)
class ExecuteStatement:
    """The name and the values of an EXECUTE, as texts; None is null."""

    name: str
    values: tuple[str | None, ...]


def prepare_of(sql: str) -> PrepareStatement:
    """Return the parts of a PREPARE.

    **Example**

    >>> prepare_of("prepare p (int, text) as select $1, $2")
    PrepareStatement(name='p', types=(23, 25), text='select $1, $2')
    """
    pieces = located(sql)
    words = [word for word, _, _ in pieces]
    if len(words) < 4 or "AS" not in words:  # noqa: PLR2004 - PREPARE name AS statement
        raise PostgresRefusal(SYNTAX, "not a PREPARE statement", PREPARE_FORM)
    place = words.index("AS")
    types = [_oid(each) for each in _listed(words[2:place], PREPARE_FORM)]
    text = sql[pieces[place][2] :].strip()
    found = split(text)
    if len(found) != 1 or not (found[0].is_read or found[0].verb == SUBSCRIBE):
        raise PostgresRefusal(READ_ONLY, "a prepared statement is a SELECT or a SUBSCRIBE", PREPARE_FORM)
    return PrepareStatement(unquoted(words[1]), tuple(types), text)


def execute_of(sql: str) -> ExecuteStatement:
    """Return the parts of an EXECUTE.

    **Example**

    >>> execute_of("execute p (-1, 'it''s', null, true, date '2024-01-01', '5'::int)").values
    ('-1', "it's", None, 'true', '2024-01-01', '5')
    """
    words = [word for word, _, _ in located(sql)]
    if len(words) < 2:  # noqa: PLR2004 - EXECUTE name
        raise PostgresRefusal(SYNTAX, "EXECUTE needs the name of a prepared statement", EXECUTE_FORM)
    return ExecuteStatement(unquoted(words[1]), tuple(map(_value, _listed(words[2:], EXECUTE_FORM))))


def executed(asked: ExecuteStatement, prepared: Prepared) -> Portal:
    """Return the portal of a prepared statement with the values of an EXECUTE."""
    statement, given = prepared.statement, len(asked.values)
    if statement is not None and statement.verb == "EXECUTE":
        raise PostgresRefusal(SYNTAX, f'prepared statement "{asked.name[:60]}" is an EXECUTE itself', EXECUTE_FORM)
    wanted = 0 if statement is None else parameters_of(statement.text)
    if given != wanted:
        raise PostgresRefusal(
            SYNTAX, f'wrong number of parameters for prepared statement "{asked.name[:60]}": expected={wanted} given={given}'
        )  # fmt: skip
    types = [*prepared.types, *[0] * (given - len(prepared.types))]
    values = [(type_name(oid), text_of(None if value is None else value.encode(), oid, TEXT_FORMAT))
              for oid, value in zip(types, asked.values, strict=False)]  # fmt: skip
    return Portal(statement, tuple(values))


def _listed(words: Sequence[str], form: str) -> list[list[str]]:
    """Return the words of each element of a list in parentheses; nothing without a list."""
    if not words:
        return []
    if words[0] != "(" or words[-1] != ")":
        raise PostgresRefusal(SYNTAX, f'syntax error at or near "{words[0][:60]}"', form)
    found: list[list[str]] = [[]]
    depth = 0
    for word in words[1:-1]:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(word, 0)
        if word == "," and not depth:
            found.append([])
        else:
            found[-1].append(word)
    if depth or not all(found):
        raise PostgresRefusal(SYNTAX, f"a list with an empty element: {' '.join(words)[:80]}", form)
    return found


def _oid(words: Sequence[str]) -> int:
    """Return the number of a type; its length or precision in parentheses has no effect on a parameter."""
    name = _LENGTH.sub("", " ".join(word.lower() for word in words))
    found = OIDS.get(name.removesuffix(" [ ]"))
    if not isinstance(found, int) or found not in BY_OID:
        raise PostgresRefusal(NO_TYPE, f'type "{name[:60]}" does not exist', PREPARE_FORM)
    return BY_OID[found].array if name.endswith(" [ ]") else found


def _value(words: Sequence[str]) -> str | None:
    """Return a constant as text; None for null."""
    if ":" in words and words[words.index(":") : words.index(":") + 2] == [":", ":"]:
        words = words[: words.index(":")]  # a cast: the parameter's own type decides
    match list(words):
        case ["NULL"]:
            return None
        case ["TRUE" | "FALSE" as word]:
            return word.lower()
        case [*names, text] if text.startswith("'") and all(map(str.isidentifier, names)):
            return unquoted(text)
    if _NUMBER.fullmatch("".join(words)):
        return "".join(words)
    raise PostgresRefusal("0A000", f"EXECUTE takes constants: {' '.join(words)[:80]}", EXECUTE_FORM)
