"""The operators that DBSP is made of, on the stream of changes itself: delay, integration, differentiation, lifted operators.

The rest of the engine never uses them: its operators are the incremental ones that the paper derives from these. They are for
writing the paper's equations down and trying them (`dbsp.core`).

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
    """`delay`, `integrate`, `differentiate` or `distinct` of the Z-set that each step brings.

    **State** the Z-set of the step before (delay, differentiate), the sum of all (integrate), nothing (distinct).

    **Cost** the Z-set of the step before, or the sum of all, at every step: that is what these operators say.
    """

    depends_on_time: ClassVar[Time] = Time.STEPS
    kind: str
    schema: Schema

    def __str__(self) -> str:
        """Which one."""
        return f"{self.kind} of the stream"

    def arrangements(self) -> tuple[Arrangement, ...]:
        """What it remembers."""
        return () if self.kind == "distinct" else (Arrangement(schema=self.schema, key=self.schema.names),)

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """The Z-set of this step of the output."""
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
    """The lifted join: pairs of rows of one step; it remembers nothing."""

    depends_on_time: ClassVar[Time] = Time.STEPS
    join: JoinOperator

    def __str__(self) -> str:
        """The keys."""
        return f"{self.join} within a step"

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """The pairs that the incremental join makes out of an empty past."""
        past = _Empty(self.join.arrangements())
        return self.join.step(context, past, inputs)


@dataclass(frozen=True, slots=True)
class _Empty:
    """A past in which nothing happened."""

    arrangements: tuple[Arrangement, ...]

    def spine(self, index: int) -> Spine:
        """An empty trace."""
        return Spine(self.arrangements[index], SpineState(), MemoryChunks())

    def retention_bound(self, index: int) -> RetentionBound | None:  # noqa: ARG002 (protocol)
        """Nothing is closed."""
        return None

    def append(self, index: int, batch: Batch, retention: RetentionBound | None = None) -> None:
        """Nothing is remembered."""
