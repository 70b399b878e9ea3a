"""Tables: the sources of streams."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence

from dbsp.algebra.table import Table
from dbsp.circuit.names import check_name
from dbsp.diagnostics.source_lines import located, user_line
from dbsp.errors import CircuitError
from dbsp.expr.names import missing_column
from dbsp.stream.schemas import Columns, as_schema
from dbsp.stream.stream import Stream
from dbsp.zset.schema import Column, Schema


def table(
    name: str,
    columns: Columns,
    primary_key: str | Sequence[str] | None = None,
    watermark: Mapping[str, datetime.timedelta] | None = None,
    append_only: bool = False,
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
        made = Stream(Table(name=name, schema=schema, primary_key=key, append_only=bool(append_only), source=source))
        if not isinstance(watermark, Mapping | None):
            raise CircuitError(f"a watermark is a dict: got={watermark!r}", 'such as {"at": dbsp.minutes(5)}')
        for column, lateness in (watermark or {}).items():
            made = made.with_watermark(column, lateness)
        return made
