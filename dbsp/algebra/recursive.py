"""Recursion: views that read themselves, with the rows of the first iteration that changes nothing.

**Law** let x(0) be empty and x(r + 1) = distinct(body(x(r))), for all views at once. The result is the first x(r) that equals
x(r + 1). It depends on the tables of this step alone, not on their history. A row that only supports itself therefore
disappears with the row that first led to it.
Source: DBSP, recursive queries; design record 0010.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from dbsp.algebra.variable import LoopId, Variable
from dbsp.circuit.graph import in_order
from dbsp.circuit.nodes import Node, Planning
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.plan.builder import Flow
from dbsp.plan.looping import Loop, loop_flows
from dbsp.stored import stored
from dbsp.zset.schema import Schema


@stored("Recursion", "names loop max_rounds")
@dataclass(frozen=True, slots=True, kw_only=True)
class Recursion(Node):
    """The loop of the views `names`; `bodies` are their definitions, with a `Variable` where a view is read."""

    INPUTS: ClassVar[tuple[str, ...]] = ("bodies",)
    bodies: tuple[Node, ...]
    names: tuple[str, ...]
    loop: LoopId
    max_rounds: int
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the node's text in `explain`: the views and the limit of iterations."""
        return f"recursive {', '.join(self.names)} max_rounds={self.max_rounds}"

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (none is followed)
        """Return the empty set: the views of the loop are read through `RecursiveView`."""
        return frozenset()

    def children(self) -> tuple[Node, ...]:
        """Return the definitions of the views."""
        return self.bodies

    def with_children(self, children: tuple[Node, ...]) -> Self:
        """Return the loop with other definitions."""
        return replace(self, bodies=children)

    def plan(self, planning: Planning) -> Flow:
        """Plan the loop as a plan of its own, which runs between two segments, and store the flows of its views."""
        loop = Loop(bodies=self.bodies, names=self.names, max_rounds=self.max_rounds, source=self.source)
        flows = loop_flows(planning, loop, inside(self.bodies, self.loop))
        planning.loops[id(self)] = flows
        return flows[0]


@stored("RecursiveView", "name index")
@dataclass(frozen=True, slots=True, kw_only=True)
class RecursiveView(Node):
    """A single view of a loop, with its rows after the last iteration."""

    input: Node
    name: str
    index: int
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the node's text in `explain`: the view's name."""
        return f"view {self.name}"

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (there is one input)
        """Return the set of the column's own name, if the node still has the column."""
        return frozenset([name]).intersection(self.schema.names)

    def plan(self, planning: Planning) -> Flow:
        """Return the flow that the loop made for this view."""
        return planning.loops[id(self.input)][self.index]


def inside(roots: Iterable[Node], loop: LoopId | None = None) -> frozenset[int]:
    """Return the identities of the nodes that the loop computes; without `loop`, of those that any loop computes.

    A loop computes the nodes between its `Variable`s and its `Recursion`.
    """
    free: dict[int, frozenset[LoopId]] = {}
    for node in in_order(roots):
        if isinstance(node, Variable):
            free[id(node)] = frozenset((node.loop,))
            continue
        read: frozenset[LoopId] = frozenset().union(*(free[id(child)] for child in node.children()))
        free[id(node)] = read - {node.loop} if isinstance(node, Recursion) else read
    return frozenset(number for number, loops in free.items() if (loops if loop is None else loop in loops))
