"""Decides how the traces and views that a changed circuit adds get the content that they would have had from the beginning.

One step without input does this, the *backfill step*. In it each node of the plan is in one of three modes:

- *still*: its past is not needed, or there is none; it emits nothing.
- *known*: its past is needed, and is read from a kept trace that is the sum of its rows or determines its output. These rows
  are its change.
- *runs*: it takes the step as the first of all, from empty traces, with the past of its inputs as their change. Of the rows
  that it adds to traces, only those of traces that were not kept are written. A table also runs if no kept trace has its rows
  and its input log still has all rows that the steps have read. It reads them once more (`Backfill.past`).

The past is needed of each owner of a trace that was not kept, and of the node of each new view. It is also needed of all nodes
that these read, up to the nodes in mode *known*. All other nodes are still. Time does not advance: the clock and the waterlines
are those of the step before.

**Law** the change of a node for the whole past of its inputs at once is the sum of all its changes. It does not depend on how
the past was split into steps. So afterwards the new traces have the content that they would have had. The changes of new views
in this step are the whole views.

The law holds for each operator whose output does not depend on when rows arrive. The output of others depends on a clock, a
waterline, or the paper's streams of steps. Such an operator is never run; if it would have to be, there is no backfill.

Source: design record 0024.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dbsp.logs import Range
from dbsp.logs.step_commands import BACKFILL
from dbsp.operators.operator import OUTPUT, AsKept, Shows, Time
from dbsp.plan.nodes import PlanNode
from dbsp.plan.plan import Plan
from dbsp.plan.signatures import roots
from dbsp.store import TraceSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """The input of a backfill step: which state was there before, and which was not.

    - `kept`: the traces that were kept; `views`: the new views; `known`: the nodes that the old circuit had.
    - `fresh`: the tables without a past.
    - `past`: the rows of tables that are read from the input log once more, which are all rows that steps have read of them.
    - `taken_back`: how the old rows of edited views are read, for outputs whose readers add up the changes
      (`dbsp.plan.stored_views`). The step retracts these rows.
    """

    kept: frozenset[int]
    views: frozenset[str]
    known: frozenset[int]
    fresh: frozenset[str] = frozenset()
    past: tuple[Range, ...] = ()
    taken_back: str = ""

    @property
    def read_again(self) -> frozenset[str]:
        """Return the tables whose rows are read once more."""
        return frozenset(range_.table for range_ in self.past)

    def to_text(self) -> str:
        """Return the command that a step record stores for this backfill."""
        lists = {"kept": self.kept, "views": self.views, "known": self.known, "fresh": self.fresh}
        stands: dict[str, Any] = {name: sorted(each) for name, each in lists.items()}
        if self.past:
            stands["past"] = [[each.table, each.partition, each.first, each.last] for each in self.past]
        if self.taken_back:
            stands["taken_back"] = self.taken_back
        return BACKFILL + json.dumps(stands, separators=(",", ":"))


def backfill_of(commands: Iterable[str]) -> Backfill | None:
    """Return the backfill that a step record asks for; None for any other step.

    >>> step = Backfill(kept=frozenset([3]), views=frozenset(["a b"]), known=frozenset())
    >>> step.to_text()
    'fill {"kept":[3],"views":["a b"],"known":[],"fresh":[]}'
    >>> backfill_of([step.to_text()]) == step
    True
    """
    for command in commands:
        if command.startswith(BACKFILL):
            found = json.loads(command[len(BACKFILL) :])
            past = tuple(
                Range(table=table, partition=partition, first=first, last=last)
                for table, partition, first, last in found.pop("past", ())
            )
            taken_back = found.pop("taken_back", "")
            sets = {name: frozenset(each) for name, each in found.items()}
            return Backfill(**sets, past=past, taken_back=taken_back)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPast:
    """The past of a node: the rows of a kept trace in a segment, converted by the operator `shows`."""

    trace: TraceSpec
    segment: int
    shows: Shows


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A node whose past is needed and not available; `views` are the views that need it.

    `table` is the table that the node reads, if it is a source.
    """

    node: int
    table: str | None
    views: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Modes:
    """The modes of all nodes that are not still.

    `once` are nodes whose whole past is a constant. `sent` are the exchanges that carry rows. `missing` are the nodes whose
    past is not available.
    """

    known: Mapping[int, KnownPast]
    runs: frozenset[int]
    once: frozenset[int]
    sent: frozenset[int]
    missing: tuple[Missing, ...]


def modes(plan: Plan, backfill: Backfill) -> Modes:
    """Return the mode of each node in the backfill step."""
    return _Asking(plan, backfill).modes()


def depends_on_time(node: PlanNode) -> bool:
    """Return whether the node's output depends on when rows arrived: by its operator, or by the rows that its traces drop."""
    return node.operator.depends_on_time is not Time.NOTHING or any(closed is not None for closed in node.closing)


class _Asking:
    """The search from new traces and views upstream to the nodes whose past can be read; it finds the mode of each."""

    def __init__(self, plan: Plan, backfill: Backfill) -> None:
        self.plan, self.backfill = plan, backfill
        self.roots = roots(plan)
        self.sums = dict(self._sums())
        self.senders = {spec.receiver: spec.sender for spec in plan.exchanges}
        self._sent_on()
        self.fed = {spec.id: spec.sender for spec in plan.exchanges}
        arrivals = {spec.id: spec.receiver for spec in plan.exchanges}
        self.behind = {arrivals[outer]: loop for loop in plan.loops for _, outer in loop.leaves}
        self.turning: set[int] = set()
        self.known: dict[int, KnownPast] = {}
        self.once: set[int] = set()
        self.runs: set[int] = set()
        self.missing: dict[int, set[str]] = {}

    def modes(self) -> Modes:
        """Search from the node of each new trace and each new view, and return the modes found."""
        views = {view.name: view for view in self.plan.views}
        for node in self.plan.nodes:
            if any(trace.id not in self.backfill.kept for trace in node.own):
                self._ask(node.id, self._readers(node.id))
        for view in views.values():
            lacks = view.integrates and view.trace is not None and view.trace.id not in self.backfill.kept
            if lacks or view.name in self.backfill.views:
                self._ask(view.node, [view.name])
        self._ask_loops()
        missing = (
            Missing(node=node, table=self.plan.nodes[node].operator.reads_table(), views=tuple(sorted(names)))
            for node, names in sorted(self.missing.items())
        )
        entered = {outer for loop in self.plan.loops if loop.id in self.turning for outer, _ in loop.enters}
        sent = entered.union(spec.id for spec in self.plan.exchanges if spec.receiver in self.runs)
        return Modes(
            known=self.known,
            runs=frozenset(self.runs),
            once=frozenset(self.once),
            sent=frozenset(sent),
            missing=tuple(missing),
        )

    def _ask_loops(self) -> None:
        """Search from all inputs of each loop with a new trace."""
        for loop in self.plan.loops:
            if any(trace.id not in self.backfill.kept for trace in loop.body.all_traces()):
                self.turning.add(loop.id)
                for outer, _ in loop.enters:
                    self._ask(self.fed[outer], self._readers(loop.place))

    def _ask(self, start: int, views: Iterable[str]) -> None:
        """Find the mode of a node and, if it has to run, of the nodes that it reads.

        If the past of a node is not available, `missing` gets the node with the names of `views`.
        """
        waiting, names = [start], set(views)
        seen: set[int] = set()
        while waiting:
            number = waiting.pop()
            if number in seen:
                continue
            seen.add(number)
            if not self._note(self.plan.nodes[number]):
                self.missing.setdefault(number, set()).update(names)
            elif number in self.runs:
                waiting.extend(self._read(self.plan.nodes[number]))

    def _note(self, node: PlanNode) -> bool:
        """Record the mode of one node; return False if its past is not available."""
        lacks = any(trace.id not in self.backfill.kept for trace in node.own)
        table = node.operator.reads_table()
        if table is not None and table in self.backfill.fresh:
            return True
        if node.operator.whole_past() is not None:
            self.once.add(node.id)
            return True
        if not lacks and (known := self._known_past(node)) is not None:
            self.known[node.id] = known
            return True
        if table is not None and table in self.backfill.read_again:
            self.runs.add(node.id)
            return True
        if table is not None or depends_on_time(node):
            return False
        if node.id in self.behind:
            self.turning.add(self.behind[node.id].id)
        self.runs.add(node.id)
        return True

    def _known_past(self, node: PlanNode) -> KnownPast | None:
        """Return the kept trace that holds or determines the node's output; None if there is none."""
        found = self.sums.get(self.roots[node.id])
        if found is not None:
            return found
        shows = None if any(closed is not None for closed in node.closing) else node.operator.shows()
        if shows is None or node.traces[0].id not in self.backfill.kept:
            return None
        return KnownPast(trace=node.traces[0], segment=self._home(node, 0), shows=shows)

    def _sums(self) -> Iterator[tuple[int, KnownPast]]:
        """Yield each kept trace that is the sum of all rows of a stream, with the node from which the stream originates."""
        for node in self.plan.nodes:
            for index, integral in enumerate(node.operator.integrals()):
                trace = node.traces[index]
                if integral is None or integral.left_out(trace.arrangement.schema):
                    continue
                if node.closing and node.closing[index] is not None:
                    continue
                stream = node.id if integral.stream == OUTPUT else node.inputs[integral.stream]
                yield from self._sum(stream, trace, self._home(node, index))
        for view in self.plan.views:
            if view.integrates and view.trace is not None:
                yield from self._sum(view.node, view.trace, self.plan.nodes[view.node].segment)

    def _sum(self, stream: int, trace: TraceSpec, segment: int) -> Iterator[tuple[int, KnownPast]]:
        if trace.id in self.backfill.kept and trace.arrangement.schema == self.plan.nodes[stream].schema:
            yield self.roots[stream], KnownPast(trace=trace, segment=segment, shows=AsKept())

    def _home(self, node: PlanNode, index: int) -> int:
        """Return the segment to which a trace of a node belongs."""
        trace_owner = node.trace_owner(index)
        return self.plan.nodes[node.id if trace_owner is None else trace_owner].segment

    def _sent_on(self) -> None:
        """Let a kept trace after the first exchange also tell the past of the exchange's sender.

        Before the first exchange a table's rows may be on any worker, so rows at their owners are as good.
        """
        for spec in self.plan.exchanges:
            if spec.local or self.plan.nodes[spec.sender].segment:
                continue
            found = self.sums.get(self.roots[spec.receiver])
            if found is not None:
                self.sums.setdefault(spec.sender, found)

    def _read(self, node: PlanNode) -> Iterable[int]:
        """Return the nodes that a node reads, also across an exchange or a loop."""
        if node.id in self.behind:
            return [self.fed[outer] for outer, _ in self.behind[node.id].enters]
        return (self.senders[node.id],) if node.id in self.senders else node.inputs

    def _readers(self, start: int) -> tuple[str, ...]:
        """Return the names of the views that depend on a node."""
        reached = {start}
        for node in self.plan.nodes:
            if node.id not in reached and reached.intersection(self._read(node)):
                reached.add(node.id)
        return tuple(sorted(view.name for view in self.plan.views if view.node in reached))
