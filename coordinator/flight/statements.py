"""A statement with the values of its parameters, as bytes that a client holds.

The service stores no prepared statements: the handle of one is the statement itself, and binding returns a new handle
with the values. So no store has to be bounded or cleaned up, and a handle is valid after a restart. Clients since Arrow
17 use the new handle; older clients get the error that a parameter has no value.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta

import pyarrow as pa
import sqlglot
from sqlglot.errors import SqlglotError

from dbsp.coordinator.query.pg_types import type_of
from dbsp.coordinator.query.statement import STATEMENT_CHARS_MAX
from dbsp.errors import CapacityError, ConfigError

VALUES_CHARS_MAX = 1 << 20
Value = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True)
class SentStatement:
    """The text of a statement, and for each parameter PostgreSQL's name of its type and its value as text."""

    sql: str
    values: tuple[Value, ...] = ()

    @property
    def handle(self) -> bytes:
        """Return the statement as bytes."""
        return json.dumps([self.sql, self.values]).encode()

    @staticmethod
    def of(handle: bytes) -> SentStatement:
        """Return the statement of a handle. **Errors** `ConfigError` for bytes that this service did not make."""
        try:
            sql, values = json.loads(handle)
            found = SentStatement(
                str(sql), tuple((_text_or_none(type_), _text_or_none(text)) for type_, text in values)
            )
        except (ValueError, TypeError, RecursionError):
            raise ConfigError("not a handle of a statement", "prepare the statement again") from None
        return found

    def bind(self, rows: pa.Table) -> SentStatement:
        """Return the statement with the values of one row.

        **Errors** `ConfigError` for more or fewer rows and for values of a kind that no parameter has; `CapacityError` for
        too long ones.

        **Example**

        >>> SentStatement("select $1").bind(pa.table({"0": [7]})).values
        (('int8', '7'),)
        """
        if len(rows) != 1:
            raise ConfigError(
                f"one row of parameters is needed: rows={len(rows)}", "run the statement once for each row"
            )
        values = tuple(_value(number, rows.column(number)[0]) for number in range(rows.num_columns))
        size = sum(len(text or "") for _, text in values)
        if size > VALUES_CHARS_MAX:
            raise CapacityError(f"the parameters are too long: chars={size} chars_max={VALUES_CHARS_MAX}")
        return replace(self, values=values)


def numbered(sql: str) -> str:
    """Return a statement whose parameters are `$1`, `$2` and so on, where the client wrote `?`.

    **Example**

    >>> numbered("select '?', ? where a > ?")
    "select '?', $1 where a > $2"
    """
    if "?" not in sql or len(sql) > STATEMENT_CHARS_MAX:
        return sql
    try:
        found = [
            token.start for token in sqlglot.tokenize(sql, read="postgres") if token.token_type.name == "PLACEHOLDER"
        ]
    except SqlglotError:
        return sql  # the statement is invalid: its parser raises the error later
    parts = [sql[begin:end] for begin, end in zip([0, *(at + 1 for at in found)], [*found, len(sql)], strict=True)]
    return parts[0] + "".join(f"${number}{part}" for number, part in enumerate(parts[1:], 1))


def _text_or_none(given: object) -> str | None:
    if given is not None and not isinstance(given, str):
        raise TypeError(given)
    return given


def _value(number: int, scalar: pa.Scalar) -> Value:
    """Return the name of the type and the value of a parameter."""
    if pa.types.is_null(scalar.type):
        return None, None
    type_ = type_of(scalar.type)
    value = scalar.as_py()
    if value is None:
        return type_.name, None
    match value:
        case bool():
            text = "true" if value else "false"
        case bytes():
            text = "".join(f"\\x{each:02X}" for each in value)
        case datetime():
            text = value.isoformat(" ")
        case date() | time():
            text = value.isoformat()
        case timedelta():
            text = f"{value.days} days {value.seconds} seconds {value.microseconds} microseconds"
        case list() | dict() | tuple():
            raise ConfigError(
                f"a parameter of a kind that is not supported: parameter={number + 1} type={scalar.type}",
                "write the list into the statement",
            )
        case _:
            text = str(value)
    return type_.name, text
