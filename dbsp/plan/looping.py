"""Plans a recursion: a body with its own segments and exchanges, which runs once per iteration between two outer segments.

The streams that the body reads from outside are brought into one outer segment and enter the body there. The rows that a body
sends back travel by all columns of the view, to the owner of the row, which stores the view. The nodes of the body are planned
like any others, on rows with an iteration (`dbsp.algebra.iterations`). Traces and exchanges have numbers of the whole plan.

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
    """A recursion that is planned: the definitions `bodies` of the views `names`."""

    bodies: tuple[Node, ...]
    names: tuple[str, ...]
    max_rounds: int
    source: SourceLine | None


def loop_flows(planning: Planning, node: Loop, inside: frozenset[int]) -> tuple[Flow, ...]:
    """Plan a recursion and return the flow of each of its views; `inside` are the nodes that the loop computes."""
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
    """Return the variables of a loop, and the nodes from outside that its body reads."""
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
        """Begin an empty body; `roots` are the definitions on rows with an iteration."""
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
        """Return the builder of the body's nodes."""
        return self.planning.builder

    def _exchange(self, builder: Builder, depth: int, sender: int, receiver: int, flow: Flow, key: Key) -> int:
        """Add an exchange between two nodes of the body, or with one end (`OUTSIDE`) in the other graph; return its number."""
        number = self.outer.numbers.exchange()
        builder.exchanges.append(
            ExchangeSpec(id=number, depth=depth, sender=sender, receiver=receiver, key=key, schema=flow.schema,
                         weights=flow.weights, local=OUTSIDE in (sender, receiver))
        )  # fmt: skip
        return number

    def enter(self, leaves: list[tuple[Node, Given]]) -> tuple[int, list[tuple[int, int]]]:
        """Bring the streams that the body reads into one outer segment, and from there into the body.

        Return that segment, and the pairs of an outer and an inner exchange.
        """
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
        """Add per view a node that receives the returned rows, and a distinct over it, which is the view.

        Return the receiving nodes.
        """
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
        """Plan the nodes between the inputs of the body and its roots."""
        for each in in_order(roots):
            if id(each) not in self.planning.flows:
                self.planning.plan(each)

    def close(
        self, depth: int, entered: list[tuple[int, int]], fed: list[int], roots: tuple[Node, ...]
    ) -> tuple[Flow, ...]:
        """Send the rows of the definitions back and the views out, store the loop, and return the views' flows."""
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
    """Return the needed columns, in the order of the leaf's schema."""
    return tuple(name for name in leaf.schema.names if name in need)
