"""The parts that a plan is built of: physical nodes, exchanges between segments, and loops whose bodies are built."""

from __future__ import annotations

from dataclasses import dataclass

from dbsp.diagnostics.source_lines import SourceLine
from dbsp.operators.monotone_bounds import Bound
from dbsp.operators.operator import Operator
from dbsp.store import TraceSpec
from dbsp.zset.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanNode:
    """One physical node: an operator, the nodes it reads, its segment and the traces it keeps.

    `closing` names, for each trace, a column and the bound below which its rows are needed no more.
    No step takes a row away from a node that `appends`; a node changes no more below a bound of its columns `bounded`.
    `trace_owners` names, for each trace, the node it belongs to if that is another one, or another place of this one.
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
        """The traces that it adds to."""
        return tuple(trace for index, trace in enumerate(self.traces) if self.trace_owner(index) is None)

    def trace_owner(self, index: int) -> int | None:
        """The node whose trace the index-th one is; None for its own."""
        return self.trace_owners[index] if self.trace_owners else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeSpec:
    """Rows of node `sender` (segment depth) go to the owner of their key; node `receiver` (segment depth + 1) is a `Receive`.

    Rows of a `local` one stay on their worker: they go into a loop, or come out of it. The end that lies in the other graph
    is -1. Those of a `lifted` one are where they belong already, and only go on to the next segment.
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
