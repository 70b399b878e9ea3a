"""DBSP's basic operators on the stream of changes: delay, integration, differentiation, lifted operators.

The rest of the engine never uses these operators: it has the incremental operators that the paper derives from them. The basic
operators serve to write down the paper's equations and to try them (`dbsp.core`).

Source: DBSP, section 2 (streams) and 4 (incremental computation).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dbsp.errors import InternalError
from dbsp.operators.joins.join import JoinOperator
from dbsp.operators.operator import Operator, State, StepContext, Time
from dbsp.stored import stored
from dbsp.trace.chunks import MemoryChunks
from dbsp.trace.retention import RetentionBound
from dbsp.trace.spine import Spine, SpineState
from dbsp.zset.batch import Batch, arrange, concat, consolidate
from dbsp.zset.schema import Arrangement, Schema


@stored("Streaming", "kind schema")
@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingOperator(Operator):
    """Apply `delay`, `integrate`, `differentiate` or `distinct` to the Z-set of each step.

    **State** The Z-set of the previous step (delay, differentiate), the sum of all Z-sets (integrate), nothing (distinct).

    **Cost** Every step reads the stored Z-set in full, as the definitions of these operators require.
    """

    depends_on_time: ClassVar[Time] = Time.STEPS
    kind: str
    schema: Schema

    def __str__(self) -> str:
        """Return the kind of operator as text."""
        return f"{self.kind} of the stream"

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangement of the stored Z-set by row; empty for `distinct`."""
        return () if self.kind == "distinct" else (Arrangement(schema=self.schema, key=self.schema.names),)

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """Return the Z-set of the output stream at this step."""
        now = consolidate(inputs[0])
        if self.kind == "distinct":
            rows = now.take(np.flatnonzero(now.weight > 0))
            return rows.with_weights(np.ones(len(rows), np.int64))
        (arrangement,) = self.arrangements()
        kept = concat([part.loose() for part in state.spine(0).parts()], self.schema)
        if self.kind == "integrate":
            state.append(0, arrange(now, arrangement))
            return concat([kept, now], self.schema)
        change = arrange(concat([now.loose(), kept.negate()], self.schema), arrangement)
        state.append(0, change)
        match self.kind:
            case "delay":
                return kept
            case "differentiate":
                return change
            case _:
                raise InternalError(f"no such operator on streams: kind={self.kind}")


@stored("StepJoin", "join")
@dataclass(frozen=True, slots=True, kw_only=True)
class StepJoinOperator(Operator):
    """Lifted join: pair the rows of a single step, without state."""

    depends_on_time: ClassVar[Time] = Time.STEPS
    join: JoinOperator

    def __str__(self) -> str:
        """Return the join's keys."""
        return f"{self.join} within a step"

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """Return the pairs that the incremental join computes with empty traces."""
        past = _Empty(self.join.arrangements())
        return self.join.step(context, past, inputs)


@dataclass(frozen=True, slots=True)
class _Empty:
    """A `State` whose traces are empty and that discards appended batches."""

    arrangements: tuple[Arrangement, ...]

    def spine(self, index: int) -> Spine:
        """Return an empty trace."""
        return Spine(self.arrangements[index], SpineState(), MemoryChunks())

    def retention_bound(self, index: int) -> RetentionBound | None:  # noqa: ARG002 (protocol)
        """Return None: no waterline closes any row."""
        return None

    def append(self, index: int, batch: Batch, retention: RetentionBound | None = None) -> None:
        """Discard the batch."""
