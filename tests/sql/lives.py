"""Tables of all kinds, random lives of them, and the circuits of queries over them.

Tables: `t` and `u` have no key and may hold a row several times, `p` has a primary key, `e` is append-only, `q` is both.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

import dbsp
from dbsp.errors import CircuitError
from tests.sql.drawing import Draw
from tests.sql.kinds import BOOL, DAY, DEC, FLOAT, INT, LIST, STRUCT, TEXT, TIME, Column, Scope
from tests.sql.playing import FULL_HASH, Life, Row, Step, circuit_with

_STRUCT = dbsp.struct_of({"x": dbsp.INT64, "y": dbsp.STRING})
TABLES = {
    "t": dbsp.table(
        "t",
        {
            "id": dbsp.INT64, "k": dbsp.STRING, "a": dbsp.INT64, "b": dbsp.INT32, "d": dbsp.decimal(9, 2), "f": dbsp.FLOAT64,
            "day": dbsp.DATE, "ts": dbsp.TIMESTAMP, "s": _STRUCT, "l": dbsp.list_of(dbsp.INT64), "p": dbsp.BOOL,
        },
    ),
    "u": dbsp.table(
        "u",
        {
            "k": dbsp.STRING, "a": dbsp.INT32, "c": dbsp.INT64, "d": dbsp.decimal(12, 4), "f": dbsp.FLOAT32,
            "ts": dbsp.TIMESTAMP, "s": _STRUCT,
        },
    ),
    "p": dbsp.table(
        "p", {"id": dbsp.INT64, "k": dbsp.STRING, "a": dbsp.INT64, "f": dbsp.FLOAT64, "day": dbsp.DATE}, primary_key="id"
    ),
    "e": dbsp.table(
        "e", {"k": dbsp.STRING, "a": dbsp.INT64, "c": dbsp.INT64, "ts": dbsp.TIMESTAMP, "p": dbsp.BOOL}, append_only=True
    ),
    "q": dbsp.table(
        "q", {"id": dbsp.INT64, "k": dbsp.STRING, "d": dbsp.decimal(9, 2)}, primary_key="id", append_only=True
    ),
}  # fmt: skip
KEYED = ("p", "q")
GROWING = ("e", "q")
_VALUES: dict[str, tuple[Any, ...]] = {
    INT: (1, 0, 1, 2, 1, 3, -1, None),
    TEXT: ("x", "y", "x", "", "é", "X", None),
    DEC: (Decimal("1.00"), Decimal("2.25"), Decimal("1.00"), Decimal("2.50"), Decimal("0.00"), Decimal("-1.50"), None),
    FLOAT: (1.0, 0.0, 1.0, 2.25, 1.0, 2.5, -0.5, None, -0.0, math.nan, math.inf),
    DAY: (dt.date(2024, 2, 29), dt.date(2024, 1, 31), dt.date(2024, 2, 29), dt.date(1969, 12, 31), dt.date(2024, 2, 1), None),
    TIME: (dt.datetime(2024, 2, 29), dt.datetime(2024, 2, 29, 12), dt.datetime(2024, 2, 29),
           dt.datetime(2024, 1, 31, 23, 59, 59, 999999), dt.datetime(1969, 12, 31, 1), None),
    BOOL: (True, False, None),
    STRUCT: ({"x": 0, "y": "u"}, {"x": 1, "y": None}, {"x": None, "y": ""}, {"x": 1, "y": "u"}, None),
    LIST: ([1], [1, 2], [], [2, 1, None], [None], None),
}  # fmt: skip
"""The first ones more often, so that keys meet."""
_KINDS = {dbsp.INT64: INT, dbsp.INT32: INT, dbsp.FLOAT64: FLOAT, dbsp.FLOAT32: FLOAT, dbsp.STRING: TEXT, dbsp.DATE: DAY,
          dbsp.TIMESTAMP: TIME, dbsp.BOOL: BOOL, _STRUCT: STRUCT}  # fmt: skip


def _kind(type_: Any) -> str:
    return _KINDS.get(type_) or (DEC if pa.types.is_decimal(type_) else LIST)


COLUMNS: dict[str, Scope] = {
    name: tuple(Column(field.name, _kind(field.type)) for field in table.schema.to_arrow())
    for name, table in TABLES.items()
}


def life(draw: Draw) -> Life:
    """A random life of the tables that the query reads."""
    held: dict[str, list[Row]] = {name: [] for name in sorted(draw.tables)}
    steps = tuple(_step(draw, held) for _ in range(draw.pick(3, 4, 5, 2)))
    return Life(
        steps,
        draw.pick(1, 2, 3),
        draw.pick(1, 1, 2),
        draw.pick(FULL_HASH, FULL_HASH, FULL_HASH, 2),
        draw.pick(False, True),
    )


def _step(draw: Draw, held: dict[str, list[Row]]) -> Step:
    changes: list[tuple[str, Row, bool]] = []
    share = draw.pick(1, 1, 0.3, 3)
    for _ in range(len(held) * (draw.pick(2, 4, 6, 1, 2, 4, 0) if any(held.values()) else draw.pick(10, 14, 18, 4))):
        _change(draw, held, changes, share)
    emptied = [name for name in held if name not in GROWING]
    if emptied and draw.now_and_then(0.1):
        name = draw.of(emptied)
        changes += [(name, row, False) for row in held[name]]
        held[name] = []
    return Step(tuple(changes), draw.pick("", "", "", "", "restart", "checkpoint", 2, 3, 1))


def _change(draw: Draw, held: dict[str, list[Row]], changes: list[tuple[str, Row, bool]], share: float) -> None:
    """A row comes; or one goes, comes back, takes another's place, comes once more, or comes and goes at once.

    Most rows of a step go where `share` is above 1.
    """
    table = draw.of(list(held))
    rows = held[table]
    if rows and table not in GROWING and draw.now_and_then(min(0.95, share * min(0.4, len(rows) / 10))):
        gone = rows.pop(draw.below(len(rows)))
        changes.append((table, gone, False))
        if draw.now_and_then(0.2):
            rows.append(gone)
            changes.append((table, gone, True))
        return
    again = rows and table not in KEYED and draw.now_and_then(0.2)
    row = draw.of(rows) if again else _row(draw, table, len(rows))
    if table == "p":
        rows[:] = [other for other in rows if other[0] != row[0]]
    rows.append(row)
    changes.append((table, row, True))
    if table not in GROWING and draw.now_and_then(0.1):
        rows.remove(row)
        changes.append((table, row, False))


def _row(draw: Draw, table: str, number: int) -> Row:
    row = tuple(draw.of(_VALUES[column.kind]) for column in COLUMNS[table])
    if table == "t":
        return (draw.below(6), *row[1:])
    if table in KEYED:  # a key of `q` comes once: the first row of a key stays, and DuckDB has no such tables
        return (number if table == "q" else draw.below(6), *row[1:])
    return row


def circuit_of(text: str, views: Mapping[str, str]) -> Any:
    """The circuit of a query and of the views that it names; None where the query is refused by name."""
    streams: dict[str, Any] = dict(TABLES)
    try:
        for name, query in views.items():
            streams[name] = dbsp.sql(query, **streams)
        shown = {"v": dbsp.sql(text, **streams), **{name: streams[name] for name in [*views][:1]}}
        return circuit_with(shown, TABLES["t"])
    except CircuitError:
        return None
