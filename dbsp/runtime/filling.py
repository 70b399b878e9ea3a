"""Running a filling step (`dbsp.plan.filling`): what each node is given, and what of its work is written.

The segments run as in any other step, by the same function; a node that does not run is given its change. A node that runs sees
its kept traces empty, and what it would add to them is there already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType

import numpy as np

from dbsp.plan.filling import Filling, Modes, Told, modes
from dbsp.plan.plan import Plan
from dbsp.step import SegmentResult
from dbsp.store import StepTransaction, TraceSpec
from dbsp.trace.chunks import MemoryChunks
from dbsp.trace.floor import Floor
from dbsp.trace.manifest import SpineState
from dbsp.trace.spine import Spine
from dbsp.zset.batch import Batch, arrange, concat


@dataclass(slots=True)
class Emptied:
    """A step's transaction in which the kept traces are empty, and stay as they are."""

    begun: StepTransaction
    kept: frozenset[int]
    done: bool = field(init=False)

    def __post_init__(self) -> None:
        """It was written before if that was."""
        self.done = self.begun.done

    def __enter__(self) -> Emptied:
        """It was entered by whoever began it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """It is left by whoever began it."""

    def spine(self, trace: TraceSpec) -> Spine:
        """The trace, or an empty one."""
        if trace.id in self.kept:
            return Spine(trace.arrangement, SpineState(), MemoryChunks())
        return self.begun.spine(trace)

    def append(self, trace: TraceSpec, batch: Batch, floor: Floor | None = None) -> None:
        """Add to a trace that was not kept."""
        if trace.id not in self.kept:
            self.begun.append(trace, batch, floor)

    def finish(self) -> None:
        """Write what was added."""
        self.begun.finish()


@dataclass(frozen=True, slots=True, kw_only=True)
class FillingSegment:
    """One segment of a filling step."""

    plan: Plan
    segment: int
    filling: Filling
    modes: Modes

    @classmethod
    def of(cls, plan: Plan, segment: int, filling: Filling) -> FillingSegment:
        """The segment, with what its nodes do."""
        return cls(plan=plan, segment=segment, filling=filling, modes=modes(plan, filling))

    def lent(self) -> Mapping[int, Sequence[TraceSpec]]:
        """The traces of other segments that are read, beside those that it always reads."""
        found = {of: {trace.id: trace for trace in traces} for of, traces in self.plan.lent(self.segment).items()}
        for node in self.plan.segment(self.segment):
            told = self.modes.told.get(node.id)
            if told is not None and told.segment != self.segment:
                found.setdefault(told.segment, {})[told.trace.id] = told.trace
        return {of: tuple(traces.values()) for of, traces in sorted(found.items())}

    def emptied(self, begun: StepTransaction) -> StepTransaction:
        """The transaction that nodes see."""
        return Emptied(begun, self.filling.kept)

    def given(self, begun: StepTransaction) -> dict[int, Batch]:
        """The changes of the nodes that do not run."""
        found = {}
        for node in self.plan.segment(self.segment):
            told = self.modes.told.get(node.id)
            if told is not None:
                found[node.id] = self._past(begun, told)
            elif node.id in self.modes.once:
                found[node.id] = Batch(schema=node.schema, columns=(), weights=np.ones((1, 1), np.int64))
            elif node.id not in self.modes.runs:
                found[node.id] = Batch.empty(node.schema)
        return found

    def _past(self, begun: StepTransaction, told: Told) -> Batch:
        """All rows of a node so far."""
        arrangement = told.trace.arrangement
        parts = list(begun.spine(told.trace).parts())
        rows = concat(parts, arrangement.schema) if parts else Batch.empty(arrangement.schema, arrangement.weights)
        return told.shows.shown(arrange(rows, arrangement), self.plan.circuit.error_policy).loose()

    def result(self, made: SegmentResult) -> SegmentResult:
        """What of the segment's result leaves it: rows for nodes that run, views that are new, what failed at new nodes."""
        wanted = self.modes.sent
        known = {self.plan.nodes[number].name for number in self.filling.known}
        return replace(
            made,
            sent={number: batch if number in wanted else batch.slice(0, 0) for number, batch in made.sent.items()},
            views={name: batch if name in self.filling.views else batch.slice(0, 0) for name, batch in made.views.items()},
            dead=tuple(letter for letter in made.dead if letter.origin not in known),
            failed=tuple(row for row in made.failed if row.node not in self.filling.known),
            signals=(),
        )  # fmt: skip
