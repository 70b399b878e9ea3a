"""The nodes of a recursion's body, each in its form on rows with an iteration.

`dbsp.operators.iterations.histories` describes such rows. Linear nodes carry the iteration along, and a join takes the later
of two. Distinct, min and max become functions of the iteration. A stream from outside the loop is there from iteration 0 on.
Its rows get their iteration only where they are added to rows that have one. A node that has no such form is refused when the
circuit is built.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from dbsp.algebra.select import Select
from dbsp.circuit.graph import in_order
from dbsp.circuit.nodes import Need, Node, Planning
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.errors import CircuitError
from dbsp.expr.build import Expr, col, lit
from dbsp.expr.expression import ColumnRef, Expression
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.resolving import resolve
from dbsp.operators.iterations.extremes import ExtremesOverIterations, IterationExtreme
from dbsp.operators.iterations.histories import ITERATION, ITERATION_COLUMN, with_iteration
from dbsp.operators.iterations.sets import SetOverIterations
from dbsp.plan.builder import Flow
from dbsp.stored import stored, stored_name
from dbsp.zset.schema import INT64, Schema

CAN = (
    "a recursion can hold select, with_columns, filter, explode, inner joins (not null-safe), union, distinct, min and max,"
    " and difference, semi and anti joins against a stream that does not depend on it"
)
RESULT = (
    "aggregate the recursion's result (its rows are a set: a column with the path keeps equal ones apart), or, where it depends"
    " on itself and need not end, write out as many rounds as are wanted, each a join and a group_by"
)
INSTEAD = dict.fromkeys(
    ("arg_min", "arg_max", "first", "last"),
    "keep the min or max inside, and find the row that has it by a join after the recursion",
)


@stored("Given", "number")
@dataclass(frozen=True, slots=True, kw_only=True)
class Given(Node):
    """A stream whose flow is known: a view of the iteration before, or a stream from outside the loop."""

    INPUTS: ClassVar[tuple[str, ...]] = ()
    number: int
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the node's text in `explain`: its number."""
        return f"given {self.number}"

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (none is followed)
        """Return the empty set: the node has no input."""
        return frozenset()

    def kept(self, need: Need) -> Need:
        """Return the needed columns alone."""
        return need

    def plan(self, planning: Planning) -> Flow:
        """Return the flow that the planner stored for this node."""
        return planning.input(self)


@stored("SetByRound", "kind")
@dataclass(frozen=True, slots=True, kw_only=True)
class SetByIteration(Node):
    """Distinct (one input) or difference (two inputs) of rows that carry their iteration."""

    INPUTS: ClassVar[tuple[str, ...]] = ("inputs",)
    kind: str
    inputs: tuple[Node, ...]
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def children(self) -> tuple[Node, ...]:
        """Return the inputs: one for distinct, two for difference."""
        return self.inputs

    def with_children(self, children: tuple[Node, ...]) -> Self:
        """Return the operation on other inputs."""
        return replace(self, inputs=children)

    def __str__(self) -> str:
        """Return the node's text in `explain`: the kind of operation."""
        return f"{self.kind} by round"

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (none is followed)
        """Return the empty set: the planner makes this node, after columns are followed."""
        return frozenset()

    def plan(self, planning: Planning) -> Flow:
        """Distribute the inputs by the row without its iteration, so that all iterations of a row meet."""
        row = tuple(name for name in self.schema.names if name != ITERATION)
        flows = [planning.input(child).pick(self.schema.names) for child in self.inputs]
        flows = planning.builder.together(flows, [row] * len(flows), self.source)
        operator = SetOverIterations(kind=self.kind, schema=self.schema)
        nodes = tuple(flow.node for flow in flows)
        made = planning.builder.add(self.kind, operator, nodes, self.schema, self.source)
        return Flow(node=made, schema=self.schema, distribution=row)


@stored("ExtremesByRound", "keys extremes")
@dataclass(frozen=True, slots=True, kw_only=True)
class ExtremesByIteration(Node):
    """Min and max of groups of rows that carry their iteration."""

    input: Node
    keys: tuple[str, ...]
    extremes: tuple[IterationExtreme, ...]
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the node's text in `explain`: the keys and the aggregates."""
        return f"aggregate by ({', '.join(self.keys)}) {', '.join(map(str, self.extremes))} by round"

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (there is one input)
        """Return the set of the column's own name, if the node still has the column."""
        return frozenset([name]).intersection(self.schema.names)

    def wanted(self, kept: Need) -> tuple[Need, ...]:  # noqa: ARG002 (all are kept)
        """Return the keys, the arguments of the aggregates, and the iteration."""
        return (frozenset(self._columns()),)

    def _columns(self) -> frozenset[str]:
        return frozenset((*self.keys, *(extreme.column for extreme in self.extremes), ITERATION))

    def plan(self, planning: Planning) -> Flow:
        """Distribute the rows by the keys and add the operator at the owners of the groups."""
        wanted = self._columns()
        flow = planning.input(self.input)
        flow = flow.pick(tuple(name for name in self.input.schema.names if name in wanted))
        flow = planning.builder.distribute(flow, self.keys, self.source)
        operator = ExtremesOverIterations(rows=flow.schema, keys=self.keys, extremes=self.extremes, schema=self.schema)
        made = planning.builder.add("extremes", operator, (flow.node,), self.schema, self.source)
        return Flow(node=made, schema=self.schema, distribution=self.keys)


def lifted(roots: Sequence[Node], inside: frozenset[int], given: Mapping[int, Node]) -> tuple[Node, ...]:
    """Return the roots on rows with an iteration, each one iteration later: a definition takes effect in the next iteration.

    `given` maps the identity of each variable and of each stream from outside to the node that replaces it.
    """
    made: dict[int, Node] = dict(given)
    for node in in_order(roots):
        if id(node) in inside and id(node) not in made:
            inputs = [made.get(id(child), child) for child in node.children()]
            varies = [id(child) in inside for child in node.children()]
            check(node, varies)
            made[id(node)] = node.in_iterations(inputs, varies)
    found = []
    for root in roots:
        node = made[id(root)] if id(root) in inside else from_start(made[id(root)])
        found.append(with_iteration_column(node, root.schema, col(ITERATION) + 1, root.source))
    return tuple(found)


def check(node: Node, varies: Sequence[bool]) -> None:
    """Raise `CircuitError` if the node cannot be inside a loop; `varies` tells which inputs depend on the loop."""
    line = "" if node.source is None else f" at={node.source}"
    refusal = node.refusal_in_recursion(varies)
    if refusal is None:
        return
    if refusal.message:
        raise CircuitError(f"{refusal.message}{line}", refusal.hint)
    hint = f"{CAN}; apply it before the recursion, or to its result"
    raise CircuitError(f"{_kind(node)} cannot be inside a recursion: node={node}{line}", hint)


def _kind(node: Node) -> str:
    name = stored_name(type(node))
    return "a recursion" if name in ("Recursion", "RecursiveView") else name


def from_start_where_fixed(inputs: Sequence[Node], varies: Sequence[bool]) -> tuple[Node, ...]:
    """Return the inputs with iterations: an input that does not depend on the loop is there from iteration 0 on."""
    return tuple(node if moves else from_start(node) for node, moves in zip(inputs, varies, strict=True))


def set_by_iteration(kind: str, node: Node, inputs: Sequence[Node], varies: Sequence[bool]) -> Node:
    """Return `distinct` or `difference` of rows that carry their iteration."""
    sides = from_start_where_fixed(inputs, varies)
    return SetByIteration(kind=kind, inputs=sides, schema=with_iteration(node.schema), source=node.source)


def from_start(node: Node) -> Node:
    """Return the rows of a stream from outside the loop, with iteration 0."""
    return with_iteration_column(node, node.schema, lit(0, INT64), node.source)


def with_iteration_column(node: Node, schema: Schema, value: Expr, source: SourceLine | None) -> Node:
    """Return the columns of `schema` and the iteration, computed by `value`."""
    found: Expression = resolve(unwrap(value), node.schema)
    columns = (*((name, ColumnRef(name)) for name in schema.names), (ITERATION, found))
    return Select(input=node, columns=columns, schema=Schema((*schema.columns, ITERATION_COLUMN)), source=source)
