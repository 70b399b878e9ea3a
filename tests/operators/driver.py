"""One operator, driven step by step on a database in memory, its answer summed up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dbsp.operators.operator import Operator, StepContext
from dbsp.store import CheckpointId, StepTransaction, TraceSpec
from dbsp.trace.memory import MemoryDatabase
from dbsp.trace.retention import RetentionBound
from dbsp.trace.spine import Spine
from dbsp.zset.batch import Batch
from dbsp.zset.schema import Schema

Rows = Counter[tuple[Any, ...]]
NAN = "nan"


@dataclass
class NodeState:
    transaction: StepTransaction
    traces: tuple[TraceSpec, ...]

    def spine(self, index: int) -> Spine:
        return self.transaction.spine(self.traces[index])

    def retention_bound(self, index: int) -> RetentionBound | None:
        return None

    def append(self, index: int, batch: Batch, retention: RetentionBound | None = None) -> None:
        self.transaction.append(self.traces[index], batch, retention)


class Driver:
    """Feeds an operator; `answer` is the sum of all it gave."""

    def __init__(self, operator: Operator, policy: str = "dead-letter", chunk_bytes_max: int = 400) -> None:
        self.operator = operator
        self.traces = tuple(TraceSpec(id=i, arrangement=a) for i, a in enumerate(operator.arrangements()))
        first = CheckpointId(run="test", epoch=1, step=0, layout_version=1, fingerprint="")
        self.database = MemoryDatabase(first, chunk_bytes_max=chunk_bytes_max)
        self.database.open(0, epoch=1)
        self.policy = policy
        self.steps = 0
        self.answer: Rows = Counter()
        self.dead: list[tuple[str, str, int]] = []

    def step(self, *inputs: Batch) -> Rows:
        """The rows one step gave, added up, zeros left out."""
        context = StepContext(number=self.steps, depends_on=self.operator.depends_on_time, error_policy=self.policy)
        with self.database.begin(1, self.steps, 0, self.traces) as transaction:
            out = self.operator.step(context, NodeState(transaction, self.traces), inputs)
            transaction.finish()
        self.steps += 1
        self.dead += [(failure.payload, failure.reason, failure.weight) for failure in context.failures]
        change = total(out.to_rows())
        self.answer = total([*self.answer.items(), *change.items()])
        return change

    def stored(self, index: int) -> Rows:
        """What a trace holds."""
        with self.database.read_trace(self.traces[index]) as spine:
            return total(pair for part in spine.parts() for pair in part.to_rows())


def total(pairs: Iterable[tuple[tuple[Any, ...], Any]]) -> Rows:
    """(row, weight) pairs added up; NaN is itself, zeros are left out."""
    summed: Rows = Counter()
    for row, weight in pairs:
        summed[plain(row)] += weight if isinstance(weight, int) else 1
    return Counter({row: weight for row, weight in summed.items() if weight})


def plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Values that compare as the engine's do."""
    return tuple(NAN if isinstance(v, float) and math.isnan(v) else v + 0.0 if isinstance(v, float) else v for v in row)


def batch(schema: Schema, pairs: Iterable[tuple[tuple[Any, ...], int]]) -> Batch:
    """A loose batch of (row, weight) pairs."""
    return Batch.from_rows(schema, list(pairs))
