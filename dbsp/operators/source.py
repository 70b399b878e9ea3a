"""Source of a table's changes: the executor passes the input log's rows of the step.

A table without a primary key arrives as a loose Z-set. A table with a primary key arrives as operations: the row, `__operation`
(0 insert, 1 delete) and `__position`, which orders the operations of a step. A deleted row needs only its key.
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
    """Forward the changes of one table."""

    depends_on_time: ClassVar[Time] = Time.NOTHING
    table: str

    def __str__(self) -> str:
        """Return the operator's name with the table."""
        return f"source {self.table}"

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """Return the table's changes in this step."""
        return inputs[0]

    def reads_table(self) -> str:
        """Return the name of the table."""
        return self.table

    def signature(self, given: SignatureParts) -> str:
        """Return the signature of the table's rows."""
        return given.table(self.table)


def operations_schema(schema: Schema, primary_key: tuple[str, ...]) -> Schema:
    """Return the schema of the operations on a table with a primary key; all other columns are nullable, for deletes."""
    columns = (Column(c.name, c.type, c.name not in primary_key) for c in schema)
    return Schema((*columns, Column(OPERATION, INT8, nullable=False), Column(POSITION, INT64, nullable=False)))
