"""Types of DuckDB that a result cannot hold as they are: their values become texts.

DuckDB hands a BIGNUM and a BIT to Arrow as bytes of its own form, and a TIMETZ without its offset. A UHUGEINT becomes a
decimal that may be negative. A reader would show other values than DuckDB. An ENUM becomes a dictionary, which not every
reader of Arrow streams takes. The text of each is what DuckDB itself shows.
"""

from __future__ import annotations

import duckdb
from duckdb.sqltypes import DuckDBPyType

from dbsp.coordinator.query.quoting import identifier

WRITTEN = frozenset({"bignum", "bit", "enum", "time with time zone", "time_ns", "uhugeint"})
NESTED = frozenset({"list", "array", "struct", "map", "tuple"})


def readable(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.DuckDBPyRelation:
    """Return a SELECT with texts in place of values that Arrow cannot hold, also within lists and structs.

    >>> with duckdb.connect() as connection:
    ...     readable(connection, "select '101'::bit as b, [1::bignum] as n, 1 as i").fetchall()
    [('101', ['1'], 1)]
    """
    relation = connection.sql(sql)
    casts = [_readable_type(each) for each in relation.types]
    if not any(casts):
        return relation
    columns = [
        f"{f'CAST(#{place} AS {cast})' if cast else f'#{place}'} AS {identifier(name)}"
        for place, (name, cast) in enumerate(zip(relation.columns, casts, strict=True), 1)
    ]
    return connection.sql(_without_end(sql)).project(", ".join(columns))


def _without_end(sql: str) -> str:
    """Return one statement without its semicolon and a comment after it, as it may be a subquery."""
    text = sql.encode()
    ends = [place for place, _kind in duckdb.tokenize(sql) if text[place : place + 1] == b";"]
    return text[: ends[0]].decode() if ends else sql


def _readable_type(found: DuckDBPyType) -> str | None:
    """Return the type to cast to; None if values of the type are readable as they are."""
    if found.id in WRITTEN:
        return "VARCHAR"
    if found.id not in NESTED:
        return None
    parts = [(name, child) for name, child in found.children if isinstance(child, DuckDBPyType)]
    casts = [_readable_type(child) for _name, child in parts]
    if not any(casts):
        return None
    made = [cast or str(child) for cast, (_name, child) in zip(casts, parts, strict=True)]
    match found.id:
        case "list":
            return f"{made[0]}[]"
        case "array":
            return f"{made[0]}[{dict(found.children)['size']}]"
        case "struct":
            return f"STRUCT({', '.join(f'{identifier(name)} {part}' for (name, _child), part in zip(parts, made, strict=True))})"
    return f"{found.id}({', '.join(made)})"
