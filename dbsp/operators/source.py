"""The source of a table's changes: the executor gives it what the input log holds for the step.

A table without a primary key arrives as a loose Z-set. One with a key arrives as operations: the row, `__operation`
(0 insert, 1 delete) and `__position`, which orders the operations of a step; of a deleted row only the key need be there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dbsp.operators.operator import Operator, SignatureParts, State, StepContext, Time
from dbsp.stored import stored
from dbsp.zset.batch import Batch
from dbsp.zset.schema import INT8, INT64, Column, Schema

OPERATION = "__operation"
POSITION = "__position"


@stored("Source", "table")
@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOperator(Operator):
    """Hands on the changes of one table."""

    depends_on_time: ClassVar[Time] = Time.NOTHING
    table: str

    def __str__(self) -> str:
        """The table."""
        return f"source {self.table}"

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """The table's changes."""
        return inputs[0]

    def reads_table(self) -> str:
        """Return the table."""
        return self.table

    def signature(self, given: SignatureParts) -> str:
        """Return the signature of the table's rows."""
        return given.table(self.table)


def operations_schema(schema: Schema, primary_key: tuple[str, ...]) -> Schema:
    """The schema in which a table with a primary key arrives: outside the key a delete may leave anything null."""
    columns = (Column(c.name, c.type, c.name not in primary_key) for c in schema)
    return Schema((*columns, Column(OPERATION, INT8, nullable=False), Column(POSITION, INT64, nullable=False)))
