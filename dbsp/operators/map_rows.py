"""Map: call a user's Python function once per changed row, or once per batch of changed rows.

**Law** Linear if the function is pure: a retraction calls the function again and must get the same rows.

**Cost** A function of rows costs a Python call per row, unlike any other operator. Rows are consolidated first, so the function
gets each distinct row once per step.

**Errors** A row on which the function raises, or returns a value that does not fit, leaves by the error policy. No value can
become null, so `null` acts like `dead-letter` here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dbsp.expr.functions import CALLED, UserFunction
from dbsp.operators.failures import report
from dbsp.operators.operator import Operator, State, StepContext, Time
from dbsp.stored import stored
from dbsp.zset.batch import Batch, consolidate


@stored("MapRows", "function")
@dataclass(frozen=True, slots=True, kw_only=True)
class MapRowsOperator(Operator):
    """Replace each row by the rows that the user's function returns."""

    depends_on_time: ClassVar[Time] = Time.NOTHING
    function: UserFunction

    def __str__(self) -> str:
        """Return the kind and the name of the function."""
        return f"{CALLED[self.function.kind]} {self.function.name}"

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """Return the function's rows, each with the weight of its input row."""
        schema = self.function.schema
        batch = consolidate(inputs[0])
        if len(batch) == 0:
            return Batch.empty(schema)
        origin, columns, failures = self.function.apply(batch)
        report(context, batch, batch.schema.names, batch.weight, dict(failures))
        return Batch.of(schema, columns, batch.weight[origin])
