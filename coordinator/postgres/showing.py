"""The name of the variable that a SHOW asks for, and the columns of its result."""

from __future__ import annotations

import pyarrow as pa

from dbsp.coordinator.postgres.statements import Statement, pieces_of, unquoted
from dbsp.coordinator.postgres.variables import REPORTED


def shown_name(statement: Statement) -> str:
    """Return the name of the variable that a SHOW asks for."""
    pieces = pieces_of(statement.text)[1:]
    if pieces == ["TRANSACTION", "ISOLATION", "LEVEL"]:
        return "transaction_isolation"
    if pieces == ["TIME", "ZONE"]:
        return "timezone"
    if pieces == ["SESSION", "AUTHORIZATION"]:
        return "session_authorization"
    return "".join(unquoted(piece) for piece in pieces)


def shown_schema(statement: Statement) -> pa.Schema:
    """Return the columns of a SHOW."""
    name = shown_name(statement)
    names = ["name", "setting", "description"] if name == "all" else [REPORTED.get(name, name)]
    return pa.schema([(each, pa.string()) for each in names])
