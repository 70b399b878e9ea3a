"""Run a backfill step (`dbsp.plan.backfill`): decide what each node reads, and which of its results are written.

The segments run as in any other step, by the same function. For a node that does not run, this module passes the sum of
its past changes as its change. A node that runs sees its kept traces empty, because they already contain the rows that
the node adds in this step.

Where the readers of an output add up its changes, the step also retracts the old rows of edited views (`Backfill.taken_back`).
Each worker reads its own part of the view's old trace, which the changed version retains. Rows that are in the old view and
in the new one on the same worker are not written. If the columns differ, the old rows are a part of their own
(`dbsp.circuit.names.former`).

**Law** The changes of an edited view, from its first step on, add up to the view as it is now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import TracebackType

from dbsp.circuit.names import former
from dbsp.plan.backfill import Backfill, KnownPast, Modes, modes
from dbsp.plan.plan import Plan, ViewSpec
from dbsp.plan.stored_views import views_of
from dbsp.steps.segment import SegmentResult
from dbsp.store import StepTransaction, TraceSpec
from dbsp.trace.chunks import MemoryChunks
from dbsp.trace.manifest import SpineState
from dbsp.trace.retention import RetentionBound
from dbsp.trace.spine import Spine
from dbsp.zset.batch import Batch, arrange, concat, consolidate
from dbsp.zset.schema import Arrangement


@dataclass(slots=True)
class Emptied:
    """A step's transaction in which the kept traces are empty, and are not changed."""

    begun: StepTransaction
    kept: frozenset[int]
    done: bool = field(init=False)

    def __post_init__(self) -> None:
        """Copy from the wrapped transaction whether the step was written before."""
        self.done = self.begun.done

    def __enter__(self) -> Emptied:
        """Return this transaction; the wrapped transaction is already entered."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: the caller leaves the wrapped transaction."""

    def spine(self, trace: TraceSpec) -> Spine:
        """Return the trace; an empty one if the trace was kept."""
        if trace.id in self.kept:
            return Spine(trace.arrangement, SpineState(), MemoryChunks())
        return self.begun.spine(trace)

    def append(self, trace: TraceSpec, batch: Batch, retention: RetentionBound | None = None) -> None:
        """Add a batch, unless the trace was kept."""
        if trace.id not in self.kept:
            self.begun.append(trace, batch, retention)

    def finish(self) -> None:
        """Write the added batches."""
        self.begun.finish()


@dataclass(frozen=True, kw_only=True)
class BackfillSegment:
    """A segment of a backfill step."""

    plan: Plan
    segment: int
    backfill: Backfill
    modes: Modes

    @classmethod
    def of(cls, plan: Plan, segment: int, backfill: Backfill) -> BackfillSegment:
        """Return the segment, with the mode of each of its nodes."""
        return cls(plan=plan, segment=segment, backfill=backfill, modes=modes(plan, backfill))

    @cached_property
    def taken_back(self) -> tuple[ViewSpec, ...]:
        """Return the specs by which the last segment reads, and retracts, the old rows of edited views; empty before it."""
        if self.segment < self.plan.segments - 1:
            return ()
        return tuple(views_of(self.backfill.taken_back).values())

    def shared(self) -> Mapping[int, Sequence[TraceSpec]]:
        """Return the traces that this segment reads, by the segment that owns them: shared ones, and those of kept views."""
        found = {of: {trace.id: trace for trace in traces} for of, traces in self.plan.shared(self.segment).items()}
        for node in self.plan.segment(self.segment):
            known = self.modes.known.get(node.id)
            if known is not None and known.segment != self.segment:
                found.setdefault(known.segment, {})[known.trace.id] = known.trace
        for view in self.taken_back:
            if view.trace is not None:
                found.setdefault(self.segment, {})[view.trace.id] = view.trace
        return {of: tuple(traces.values()) for of, traces in sorted(found.items())}

    def emptied(self, begun: StepTransaction) -> StepTransaction:
        """Return the transaction for the operators: `begun`, with the kept traces empty."""
        return Emptied(begun, self.backfill.kept)

    def given(self, begun: StepTransaction) -> dict[int, Batch]:
        """Return the changes of the nodes that do not run: all rows that each node has emitted so far."""
        found = {}
        for node in self.plan.segment(self.segment):
            known = self.modes.known.get(node.id)
            if known is not None:
                found[node.id] = self._past(begun, known)
            elif (whole := node.operator.whole_past()) is not None and node.id in self.modes.once:
                found[node.id] = whole
            elif node.id not in self.modes.runs:
                found[node.id] = Batch.empty(node.schema)
        return found

    def _past(self, begun: StepTransaction, known: KnownPast) -> Batch:
        """Return all rows of a node so far."""
        return known.shows.shown(_whole(begun, known.trace), self.plan.circuit.error_policy).loose()

    def _before(self, begun: StepTransaction, view: ViewSpec) -> Batch:
        """Return all rows that an edited view had on this worker."""
        assert view.trace is not None  # noqa: S101 - views without a trace are not stored
        rows = _whole(begun, view.trace)
        return (rows if view.shows is None else view.shows.shown(rows, self.plan.circuit.error_policy)).loose()

    def outputs(self, made: Mapping[str, Batch], begun: StepTransaction) -> Mapping[str, Batch]:
        """Return the changes of the views in the step, including the retractions of the rows that edited views had before."""
        found = dict(made)
        schemas = {view.name: view.schema for view in self.plan.views}
        for view in self.taken_back:
            old = self._before(begun, view).negate()
            new = found.get(view.name, Batch.empty(schemas[view.name]))
            both = old.schema.for_both(new.schema)
            if both is None:
                found[former(view.name)] = consolidate(old)
            else:
                found[view.name] = consolidate(concat([old, new], both))
        return found

    def result(self, made: SegmentResult) -> SegmentResult:
        """Return the segment's result without the rows that no one reads.

        The result keeps rows sent to nodes that run, new views, and failures at new nodes.
        """
        wanted = self.modes.sent
        known = {self.plan.nodes[number].name for number in self.backfill.known}
        return replace(
            made,
            sent={number: batch if number in wanted else batch.slice(0, 0) for number, batch in made.sent.items()},
            views={name: batch if name in self.backfill.views else batch.slice(0, 0) for name, batch in made.views.items()},
            dead=tuple(letter for letter in made.dead if letter.origin not in known),
            failed=tuple(row for row in made.failed if row.node not in self.backfill.known),
            signals=(),
        )  # fmt: skip


def _whole(begun: StepTransaction, trace: TraceSpec) -> Batch:
    """Return all rows of a trace as of the step before."""
    arrangement: Arrangement = trace.arrangement
    parts = list(begun.spine(trace).parts())
    rows = concat(parts, arrangement.schema) if parts else Batch.empty(arrangement.schema, arrangement.weights)
    return arrange(rows, arrangement)
