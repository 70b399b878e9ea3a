"""Map: a user's Python function, called once per changed row, or once per batch of them.

**Law** linear, provided the function is pure: a retraction calls it again and must get the same rows.

**Cost** of a function of rows: Python per row, which no other operator has. Equal rows are added up first, so each is asked
once per step.

**Errors** a row on which the function raises, or returns what does not fit, leaves by the error policy; there is no value
to make null, so `null` is like `dead-letter` here.
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
    """Rows become what the function makes of them."""

    depends_on_time: ClassVar[Time] = Time.NOTHING
    function: UserFunction

    def __str__(self) -> str:
        """The function."""
        return f"{CALLED[self.function.kind]} {self.function.name}"

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """The function's rows, each with the weight of the row it came from."""
        schema = self.function.schema
        batch = consolidate(inputs[0])
        if len(batch) == 0:
            return Batch.empty(schema)
        origin, columns, failures = self.function.apply(batch)
        report(context, batch, batch.schema.names, batch.weight, dict(failures))
        return Batch.of(schema, columns, batch.weight[origin])
