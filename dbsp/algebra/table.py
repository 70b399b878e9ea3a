"""Table: the input of a circuit.

**Law** without a primary key: the sum of the pushed rows. With one: the last row of each key that was not deleted. An
append-only table with a primary key: the first row of each key. A row that does not name a column has the column's
default there, else null (design record 0065).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pyarrow as pa

from dbsp.circuit.nodes import Need, Node, Planning
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.expr.constants import shown
from dbsp.expr.expression import Literal
from dbsp.operators.keep_first import KeepFirst
from dbsp.operators.source import OPERATION, POSITION, SourceOperator, operations_schema
from dbsp.operators.upsert import Upsert
from dbsp.plan.builder import Flow
from dbsp.stored import stored
from dbsp.zset.schema import Column, Schema

NO_DELETE = "a delete in an append-only table"


@stored("Table", "name primary_key append_only defaults?")
@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Node):
    """A table that changes. With a primary key an insert replaces the row of that key and a delete needs only the key.

    An `append_only` table never loses a row: the reader of its input refuses a delete. With a primary key the first row of a key
    stays, and each later row of that key is a dead letter. `defaults` has a constant of the column's type for each column that
    has one.
    """

    INPUTS: ClassVar[tuple[str, ...]] = ()
    name: str
    schema: Schema
    primary_key: tuple[str, ...] = ()
    append_only: bool = False
    defaults: tuple[tuple[str, Literal], ...] = ()
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the node's text in `explain`: the name, the columns and the key."""
        key = f" primary key ({', '.join(self.primary_key)})" if self.primary_key else ""
        filled = ", ".join(f"{name} = {shown(value.value)}" for name, value in self.defaults)
        more = f"{' append-only' if self.append_only else ''}{f' defaults ({filled})' if filled else ''}"
        return f"table {self.name} {self.schema}{key}{more}"

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (none is followed)
        """Return the empty set: the node has no input."""
        return frozenset()

    def default(self, name: str) -> Literal | None:
        """Return the default of a column; None if it has none."""
        return next((value for column, value in self.defaults if column == name), None)

    def may_lack(self, column: Column) -> bool:
        """Return whether a row need not name the column: it may be null or has a default, and is not part of the key."""
        return column.name not in self.primary_key and (column.nullable or self.default(column.name) is not None)

    def absent(self, column: Column, rows: int) -> pa.Array:
        """Return the values of a column that `rows` rows do not name: its default, else null."""
        value = self.default(column.name)
        if value is None:
            return pa.nulls(rows, column.type)
        return pa.array([value.value], column.type).take(pa.array(np.zeros(rows, np.int64)))

    @property
    def replaces(self) -> bool:
        """Return whether a row replaces the row that has its key; a pushed row may then be a delete, with the key alone."""
        return bool(self.primary_key) and not self.append_only

    def kept(self, need: Need) -> Need:
        """Return the needed columns and the primary key, which decides the identity of rows."""
        return need | frozenset(self.primary_key)

    def appends(self, inputs: Sequence[bool]) -> bool:  # noqa: ARG002 (there are none)
        """Return whether the table is declared append-only."""
        return self.append_only

    def keyed(self, names: tuple[str, ...]) -> Table | None:
        """Return the table if it is append-only and these columns are its primary key; else None."""
        return self if self.append_only and self.primary_key and self.primary_key == names else None

    def unique(self, names: Need) -> bool:
        """Return whether the columns include the primary key; False if there is none."""
        return bool(self.primary_key) and names.issuperset(self.primary_key)

    def plan(self, planning: Planning) -> Flow:
        """Add a source; with a primary key, exchange the operations by key, with the needed columns alone."""
        builder, schema = planning.builder, self.schema.select(planning.needed(self))
        if not self.primary_key:
            made = builder.add("source", SourceOperator(table=self.name), (), self.schema, self.source)
            return Flow(node=made, schema=self.schema, distribution=None).pick(schema.names)
        operations = operations_schema(self.schema, self.primary_key)
        made = builder.add("source", SourceOperator(table=self.name), (), operations, self.source)
        flow = Flow(node=made, schema=operations, distribution=None).pick((*schema.names, OPERATION, POSITION))
        flow = builder.distribute(flow, self.primary_key, self.source)
        if self.append_only:
            first = KeepFirst(schema=schema, key=self.primary_key)
            kept = builder.add("first", first, (flow.node,), schema, self.source)
        else:
            upsert = Upsert(schema=schema, key=self.primary_key)
            kept = builder.add("upsert", upsert, (flow.node,), schema, self.source)
        return Flow(node=kept, schema=schema, distribution=self.primary_key)
