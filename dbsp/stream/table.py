"""Tables: the sources of streams."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from dbsp.algebra.table import Table
from dbsp.circuit.names import check_name
from dbsp.diagnostics.source_lines import located, user_line
from dbsp.errors import CircuitError
from dbsp.expr.expression import Literal
from dbsp.expr.names import missing_column
from dbsp.expr.type_names import spelled
from dbsp.stream.schemas import Columns, as_schema
from dbsp.stream.stream import Stream
from dbsp.zset.fitting import array_of
from dbsp.zset.given import values_given
from dbsp.zset.schema import Column, Schema


def table(
    name: str,
    columns: Columns,
    primary_key: str | Sequence[str] | None = None,
    watermark: Mapping[str, datetime.timedelta] | None = None,
    append_only: bool = False,
    defaults: Mapping[str, Any] | None = None,
) -> Stream:
    """Declare a table that the pipeline's inputs change.

    **Shape** With a primary key, an insert replaces the row of that key and a delete needs only the key; key columns
    are never null. Without one the table is a Z-set: a row may occur several times. A delete of an absent row counts -1
    and cancels the next insert of that row.

    A watermark, `watermark={"at": lateness}`, bounds how late a row may be in its input partition, as `with_watermark`
    does.

    Rows of an `append_only` table are never deleted. A delete is refused to its sender, or becomes a dead letter if the
    sender cannot be reached. With a primary key no row is replaced either: the first row of a key stays, and every
    other one is a dead letter. An inner join on that key then drops a row of the other side once the row has found its
    partner.

    `defaults={"cents": 0}` gives columns a value for rows that do not name them. A row that says null has null. If a column
    is added to a table with rows, the old rows have its default. Without one they are null.

    **State** With a primary key the rows, with the columns that are read, or the keys alone if `append_only`; else
    none.

    **Cost** With a primary key a look-up of the old row per changed row.

    **Example**

    >>> import dbsp
    >>> dbsp.table("airlines", {"code": dbsp.STRING, "name": dbsp.STRING}, primary_key="code")
    Stream(Table (code: string not null, name: string))

    >>> prices = dbsp.table("prices", {"item": dbsp.STRING, "cents": dbsp.INT64}, primary_key="item")
    >>> with dbsp.open(dbsp.circuit("demo", {"prices": prices})) as run:
    ...     run.push("prices", [{"item": "tea", "cents": 300}])
    ...     _ = run.step()
    ...     run.push("prices", [{"item": "tea", "cents": 320}])
    ...     print(run.step()["prices"].to_rows())
    ...     run.delete("prices", [{"item": "tea"}])
    ...     print(run.step()["prices"].to_rows())
    [(('tea', 300), -1), (('tea', 320), 1)]
    [(('tea', 320), -1)]
    """
    source = user_line()
    with located(source):
        check_name("table", name)
        schema = as_schema(columns)
        if not len(schema):
            raise CircuitError(f"a table needs at least one column: table={name}")
        key = (primary_key,) if isinstance(primary_key, str) else tuple(primary_key or ())
        for column in key:
            if column not in schema:
                raise missing_column(column, schema)
        if len(set(key)) != len(key):
            raise CircuitError(f"a primary key names a column twice: primary_key={list(key)}")
        schema = Schema(tuple(Column(c.name, c.type, c.nullable and c.name not in key) for c in schema))
        made = Stream(
            Table(
                name=name, schema=schema, primary_key=key, append_only=bool(append_only), source=source,
                defaults=_defaults(schema, key, defaults),
            )
        )  # fmt: skip
        if not isinstance(watermark, Mapping | None):
            raise CircuitError(f"a watermark is a dict: got={watermark!r}", 'such as {"at": dbsp.minutes(5)}')
        for column, lateness in (watermark or {}).items():
            made = made.with_watermark(column, lateness)
        return made


def _defaults(schema: Schema, key: Sequence[str], given: Mapping[str, Any] | None) -> tuple[tuple[str, Literal], ...]:
    """Return the defaults as constants of their columns' types, in the order of the columns; null is no default."""
    if not isinstance(given, Mapping | None):
        raise CircuitError(f"defaults are a dict: got={given!r}", 'such as {"cents": 0}')
    given = given or {}
    for name in given:
        if name not in schema:
            raise missing_column(name, schema)
        if name in key:
            raise CircuitError(f"a column of the primary key has no default: column={name}", "leave the default out")
    return tuple((c.name, _default(c, given[c.name])) for c in schema if given.get(c.name) is not None)


def _default(column: Column, value: Any) -> Literal:
    """Return a value as a constant of the column's type."""
    try:
        fitted = array_of(values_given([value], column.type), column.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, ArithmeticError) as error:
        place = f"column={column.name} type={spelled(column.type)}"
        raise CircuitError(
            f"a default that does not fit its column: {place} error={error}", "give a constant of its type"
        ) from None
    return Literal(fitted[0].as_py(), column.type)
