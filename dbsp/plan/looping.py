"""Planning a recursion: a body with segments and exchanges of its own, run once per round between two outer segments.

What the body reads from outside is brought into one outer segment and goes in there; rows that a body sends back travel by
the columns of the view, to the owner of the row, who keeps the view. The body's nodes are planned like any others, on rows
with a round (`dbsp.algebra.iterations`); traces and exchanges have numbers of the whole plan.

Source: design record 0010.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from dbsp.algebra.iterations import Given, lifted
from dbsp.algebra.variable import Variable
from dbsp.circuit.graph import in_order, shared
from dbsp.circuit.nodes import Node, Planning
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.operators.iterations.histories import with_iteration
from dbsp.operators.iterations.sets import SetOverIterations
from dbsp.plan.builder import Builder, Flow, Key
from dbsp.plan.nodes import BuiltLoop, ExchangeSpec
from dbsp.plan.pruning import needed_columns

OUTSIDE = -1
"""The number of a node, a depth, a segment of the other graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A recursion as it is planned: the definitions of the views `names`."""

    bodies: tuple[Node, ...]
    names: tuple[str, ...]
    max_rounds: int
    source: SourceLine | None


def loop_flows(planning: Planning, node: Loop, inside: frozenset[int]) -> tuple[Flow, ...]:
    """The flow of each view of a recursion."""
    outer = planning.builder
    views, outside = _leaves(node, inside)
    names = {id(leaf): number for number, leaf in enumerate((*views, *outside))}
    given = {id(leaf): Given(number=names[id(leaf)], schema=with_iteration(leaf.schema)) for leaf in views}
    given |= {id(leaf): Given(number=names[id(leaf)], schema=leaf.schema) for leaf in outside}
    roots = shared(lifted(node.bodies, inside, given))
    leaves = {leaf.number: leaf for leaf in in_order(roots) if isinstance(leaf, Given)}
    body = _Body(outer, node, roots, planning)
    depth, entered = body.enter([(leaf, leaves[names[id(leaf)]]) for leaf in outside if names[id(leaf)] in leaves])
    returns = body.feed({leaf.name: leaves[names[id(leaf)]] for leaf in views if names[id(leaf)] in leaves})
    body.run(roots)
    return body.close(depth, entered, returns, roots)


def _leaves(node: Loop, inside: frozenset[int]) -> tuple[list[Variable], list[Node]]:
    """The variables of a loop, and the nodes of outside that its body reads."""
    views: dict[int, Variable] = {}
    outside: dict[int, Node] = {}
    for each in in_order(node.bodies):
        if isinstance(each, Variable) and id(each) in inside:
            views[id(each)] = each
        elif id(each) in inside:
            outside.update({id(child): child for child in each.children() if id(child) not in inside})
    outside.update({id(root): root for root in node.bodies if id(root) not in inside})
    return list(views.values()), list(outside.values())


class _Body:
    """The body of one loop while it is planned."""

    def __init__(self, outer: Builder, node: Loop, roots: tuple[Node, ...], planning: Planning) -> None:
        """Nothing yet; `roots` are on rows with a round."""
        readers = Counter(id(child) for each in in_order(roots) for child in each.children())
        readers.update(id(root) for root in roots)
        self.outer, self.node, self.outside = outer, node, planning
        builder = Builder(numbers=outer.numbers, prefix=f"{node.names[0]}.")
        self.planning = replace(
            planning,
            builder=builder,
            need=needed_columns(roots),
            readers=readers,
            flows={},
            inside=frozenset(),
            appending=frozenset(),
            loops={},
        )
        self.edges: list[Flow] = []

    @property
    def builder(self) -> Builder:
        """Where its nodes are made."""
        return self.planning.builder

    def _exchange(self, builder: Builder, depth: int, sender: int, receiver: int, flow: Flow, key: Key) -> int:
        """An exchange with an end outside of one of the graphs."""
        number = self.outer.numbers.exchange()
        builder.exchanges.append(
            ExchangeSpec(id=number, depth=depth, sender=sender, receiver=receiver, key=key, schema=flow.schema,
                         weights=flow.weights, local=OUTSIDE in (sender, receiver))
        )  # fmt: skip
        return number

    def enter(self, leaves: list[tuple[Node, Given]]) -> tuple[int, list[tuple[int, int]]]:
        """Bring what the body reads into one outer segment, and from there in."""
        outer, source = self.outer, self.node.source
        need = self.planning.need
        flows = [self.outside.input(leaf).pick(_ordered(leaf, need[id(given)])) for leaf, given in leaves]
        moved = outer.lifted(flows, source)
        depth = max((outer.segment(flow) for flow in moved), default=0)
        pairs = []
        for flow, (_, given) in zip(moved, leaves, strict=True):
            key = flow.distribution if flow.distribution is not None else flow.schema.names
            sent = self._exchange(outer, depth, flow.node, OUTSIDE, flow, key)
            arrived = self.builder.receive(0, flow.schema, source)
            pairs.append((sent, self._exchange(self.builder, OUTSIDE, OUTSIDE, arrived, flow, key)))
            self.planning.flows[id(given)] = replace(flow, node=arrived)
        return depth, pairs

    def feed(self, variables: dict[str, Given]) -> list[int]:
        """Per view the node that is given what came back, and its distinct: the view."""
        fed = []
        for name, root in zip(self.node.names, self.node.bodies, strict=True):
            row, schema = root.schema.names, with_iteration(root.schema)
            arrived = self.builder.receive(0, schema, self.node.source)
            edge = self.builder.add(
                name, SetOverIterations(kind="distinct", schema=schema), (arrived,), schema, self.node.source
            )
            flow = Flow(node=edge, schema=schema, distribution=row)
            self.edges.append(flow)
            fed.append(arrived)
            if name in variables:
                self.planning.flows[id(variables[name])] = flow
        return fed

    def run(self, roots: tuple[Node, ...]) -> None:
        """Plan the nodes between."""
        for each in in_order(roots):
            if id(each) not in self.planning.flows:
                self.planning.plan(each)

    def close(
        self, depth: int, entered: list[tuple[int, int]], fed: list[int], roots: tuple[Node, ...]
    ) -> tuple[Flow, ...]:
        """Send the bodies' rows back, and the views out; the views' flows."""
        builder, outer, node = self.builder, self.outer, self.node
        sent = [builder.settle(self.planning.input(root).pick(root.schema.names), node.source) for root in roots]
        last = max((builder.segment(flow) for flow in sent), default=0)
        returns, leaves, flows = [], [], []
        for arrived, flow, edge, root in zip(fed, sent, self.edges, node.bodies, strict=True):
            row = root.schema.names
            returns.append(self._exchange(builder, last, flow.node, arrived, flow, row))
            out = self._exchange(builder, OUTSIDE, edge.node, OUTSIDE, edge, row)
            left = outer.receive(depth + 1, root.schema, node.source)
            result = Flow(node=left, schema=root.schema, distribution=row)
            leaves.append((out, self._exchange(outer, depth, OUTSIDE, left, result, row)))
            flows.append(result)
        outer.loops.append(
            BuiltLoop(depth=depth, views=node.names, place=flows[0].node, max_rounds=node.max_rounds, enters=tuple(entered),
                      leaves=tuple(leaves), returns=tuple(returns), nodes=tuple(builder.nodes),
                      exchanges=tuple(builder.exchanges), segments=last + 1)
        )  # fmt: skip
        return tuple(flows)


def _ordered(leaf: Node, need: frozenset[str]) -> Key:
    """The needed columns, in the leaf's order."""
    return tuple(name for name in leaf.schema.names if name in need)
