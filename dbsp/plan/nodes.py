"""The parts of a plan: physical nodes, exchanges between segments, and loops whose bodies are built."""

from __future__ import annotations

from dataclasses import dataclass

from dbsp.diagnostics.source_lines import SourceLine
from dbsp.operators.monotone_bounds import Bound
from dbsp.operators.operator import Operator
from dbsp.store import TraceSpec
from dbsp.zset.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanNode:
    """A physical node: an operator, the nodes that it reads, its segment and its traces.

    - `closing` names, for each trace, a column and the bound below which its rows are needed no more.
    - `appends`: no step takes a row away from the node.
    - `bounded`: the columns that have a bound below which the node never changes again.
    - `trace_owners` names, for each trace, its owner if another node owns it. The node's own number stands for another index of
      the same node.
    """

    id: int
    name: str
    operator: Operator
    inputs: tuple[int, ...]
    segment: int
    traces: tuple[TraceSpec, ...]
    schema: Schema
    source: SourceLine | None
    closing: tuple[tuple[str, Bound] | None, ...] = ()
    appends: bool = False
    bounded: tuple[str, ...] = ()
    trace_owners: tuple[int | None, ...] = ()

    @property
    def own(self) -> tuple[TraceSpec, ...]:
        """Return the traces that the node adds to."""
        return tuple(trace for index, trace in enumerate(self.traces) if self.trace_owner(index) is None)

    def trace_owner(self, index: int) -> int | None:
        """Return the node that owns the trace with this index; None if this node does."""
        return self.trace_owners[index] if self.trace_owners else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeSpec:
    """An exchange from node `sender` (segment `depth`) to node `receiver`, a `Receive` (segment `depth` + 1), by a key's hash.

    Rows of a `local` exchange stay on their worker: they enter or leave a loop, and the end in the other graph is -1. Rows of a
    `lifted` exchange are on the right worker already, and only move to the next segment.
    """

    id: int
    depth: int
    sender: int
    receiver: int
    key: tuple[str, ...]
    schema: Schema
    weights: int
    local: bool = False
    lifted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltLoop:
    """A recursion whose body is built; `dbsp.plan.plan.LoopSpec` describes the fields and holds the body as a plan."""

    depth: int
    views: tuple[str, ...]
    place: int
    max_rounds: int
    enters: tuple[tuple[int, int], ...]
    leaves: tuple[tuple[int, int], ...]
    returns: tuple[int, ...]
    nodes: tuple[PlanNode, ...]
    exchanges: tuple[ExchangeSpec, ...]
    segments: int
