"""The state of planning one circuit: the flows of the nodes done so far, and which columns of each are needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dbsp.plan.builder import Builder, Flow, Key

if TYPE_CHECKING:
    from dbsp.circuit.nodes import Circuit, Need, Node


@dataclass(slots=True)
class Planning:
    """The flows of the logical nodes done so far, by identity; `readers` counts who reads a node.

    No step takes a row away from the nodes `appending`.

    Nodes `inside` a recursion are planned by it; `loops` are the flows of its views. `wider` has, by node and input, the columns
    that are read so that a trace can be shared (`dbsp.plan.widening`).
    """

    circuit: Circuit
    builder: Builder
    need: dict[int, Need]
    readers: Counter[int]
    inside: frozenset[int] = frozenset()
    appending: frozenset[int] = frozenset()
    flows: dict[int, Flow] = field(default_factory=dict)
    loops: dict[int, tuple[Flow, ...]] = field(default_factory=dict)
    wider: Mapping[tuple[int, int], Need] = field(default_factory=dict)

    def plan(self, node: Node) -> None:
        """Make the flow of a node whose inputs are done; one that is read twice is settled, so that it runs once."""
        if id(node) in self.inside:
            return
        flow = node.plan(self)
        if self.readers[id(node)] > 1:
            flow = self.builder.settle(flow, node.source)
        self.flows[id(node)] = flow
        if self.appends(node):
            self.builder.appending.add(flow.node)

    def appends(self, node: Node) -> bool:
        """Whether no step ever takes a row away from a node."""
        return id(node) in self.appending

    def input(self, node: Node) -> Flow:
        """The flow of a node that is done."""
        return self.flows[id(node)]

    def sides(self, node: Node) -> list[Flow]:
        """The flows of a node's inputs, with the columns that it reads."""
        picked = []
        for number, (child, wanted) in enumerate(
            zip(node.children(), node.wanted(frozenset(self.needed(node))), strict=True)
        ):
            names = self.wider.get((id(node), number), wanted)
            picked.append(self.input(child).pick(tuple(name for name in child.schema.names if name in names)))
        return picked

    def needed(self, node: Node) -> Key:
        """The columns that are needed of a node, in its order."""
        return tuple(name for name in node.schema.names if name in self.need[id(node)])
