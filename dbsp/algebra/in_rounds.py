"""The nodes of a recursion's body, each as what it is on rows with a round (`dbsp.operators.rounds.rounds`).

Linear nodes carry the round along, a join takes the later one, distinct and min or max become functions of the round. What
comes from outside the loop is there from round 0 on: it gets its round only where it is added to rows that have one. A node
that has no entry here is refused when the circuit is built.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from dbsp.algebra.difference import Difference
from dbsp.algebra.distinct import Distinct
from dbsp.algebra.explode import Explode
from dbsp.algebra.filter import Filter
from dbsp.algebra.group_by import GroupBy
from dbsp.algebra.join import Join
from dbsp.algebra.select import Select
from dbsp.algebra.side_join import SEMI, SideJoin
from dbsp.algebra.union import Union
from dbsp.circuit.graph import in_order
from dbsp.circuit.nodes import Need, Node, Planning
from dbsp.errors import CircuitError
from dbsp.expr.build import Expr, col, greatest, lit
from dbsp.expr.expression import ColumnRef, Expression
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.resolving import resolve
from dbsp.operators.rounds.round_extremes import Extreme, RoundExtremes
from dbsp.operators.rounds.round_set import RoundSet
from dbsp.operators.rounds.rounds import ROUND, ROUND_COLUMN, ROUND_RIGHT, in_rounds
from dbsp.plan.builder import Flow
from dbsp.source_lines import SourceLine
from dbsp.stored import stored
from dbsp.zset.schema import INT64, Column, Schema

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
    """A stream whose flow is known: a view of the round before, or what comes from outside the loop."""

    INPUTS: ClassVar[tuple[str, ...]] = ()
    number: int
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Its number."""
        return f"given {self.number}"

    def kept(self, need: Need) -> Need:
        """What is needed, no more."""
        return need

    def plan(self, planning: Planning) -> Flow:
        """The flow it was given."""
        return planning.input(self)


@stored("SetByRound", "kind")
@dataclass(frozen=True, slots=True, kw_only=True)
class SetByRound(Node):
    """Distinct (one input) or difference (two) of rows with rounds."""

    INPUTS: ClassVar[tuple[str, ...]] = ("inputs",)
    kind: str
    inputs: tuple[Node, ...]
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def children(self) -> tuple[Node, ...]:
        """The sides."""
        return self.inputs

    def __str__(self) -> str:
        """Which one."""
        return f"{self.kind} by round"

    def plan(self, planning: Planning) -> Flow:
        """Both sides distributed by the row."""
        row = tuple(name for name in self.schema.names if name != ROUND)
        flows = [planning.input(child).pick(self.schema.names) for child in self.inputs]
        flows = planning.builder.together(flows, [row] * len(flows), self.source)
        operator = RoundSet(kind=self.kind, schema=self.schema)
        nodes = tuple(flow.node for flow in flows)
        made = planning.builder.add(self.kind, operator, nodes, self.schema, self.source)
        return Flow(node=made, schema=self.schema, distribution=row)


@stored("ExtremesByRound", "keys extremes")
@dataclass(frozen=True, slots=True, kw_only=True)
class ExtremesByRound(Node):
    """Min and max of groups of rows with rounds."""

    input: Node
    keys: tuple[str, ...]
    extremes: tuple[Extreme, ...]
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Keys and aggregates."""
        return f"aggregate by ({', '.join(self.keys)}) {', '.join(map(str, self.extremes))} by round"

    def wanted(self, kept: Need) -> tuple[Need, ...]:  # noqa: ARG002 (all are kept)
        """Keys, arguments, the round."""
        return (frozenset(self._columns()),)

    def _columns(self) -> frozenset[str]:
        return frozenset((*self.keys, *(extreme.column for extreme in self.extremes), ROUND))

    def plan(self, planning: Planning) -> Flow:
        """The rows at the owners of the groups."""
        wanted = self._columns()
        flow = planning.input(self.input)
        flow = flow.pick(tuple(name for name in self.input.schema.names if name in wanted))
        flow = planning.builder.distribute(flow, self.keys, self.source)
        operator = RoundExtremes(rows=flow.schema, keys=self.keys, extremes=self.extremes, schema=self.schema)
        made = planning.builder.add("extremes", operator, (flow.node,), self.schema, self.source)
        return Flow(node=made, schema=self.schema, distribution=self.keys)


def lifted(roots: Sequence[Node], inside: frozenset[int], given: Mapping[int, Node]) -> tuple[Node, ...]:
    """The roots on rows with a round, each one round later: what they say becomes true in the next round.

    `given` are, by identity, the nodes for variables and for streams of outside.
    """
    made: dict[int, Node] = dict(given)
    for node in in_order(roots):
        if id(node) in inside and id(node) not in made:
            inputs = [made.get(id(child), child) for child in node.children()]
            made[id(node)] = _lifted(node, inputs, [id(child) in inside for child in node.children()])
    found = []
    for root in roots:
        node = made[id(root)] if id(root) in inside else _from_start(made[id(root)])
        found.append(_with_round(node, root.schema, col(ROUND) + 1, root.source))
    return tuple(found)


def check(node: Node, varies: Sequence[bool]) -> None:
    """Refuse a node that cannot stand inside a loop; `varies` says which inputs do."""
    line = "" if node.source is None else f" at={node.source}"
    match node:
        case Filter() | Select() | Union() | Distinct():
            return
        case Join() if type(node) is Join:  # not one that looks at a step alone
            return
        case Explode():
            return
        case SideJoin() if node.how in SEMI and node.where is None and node.interval is None and not varies[1]:
            return
        case Difference():
            if varies[1]:
                message = "a recursion subtracts what depends on itself: it may go back and forth for ever"
                raise CircuitError(f"{message}{line}", "subtract a fixed stream inside, or subtract from the result")
        case GroupBy():
            for call in node.aggregates:
                if call.function not in ("min", "max"):
                    hint = f"{INSTEAD.get(call.function, RESULT)}; {CAN}"
                    raise CircuitError(f"{call.function} cannot stand inside a recursion: aggregate={call}{line}", hint)
        case _:
            hint = f"{CAN}; apply it before the recursion, or to its result"
            raise CircuitError(f"{_kind(node)} cannot stand inside a recursion: node={node}{line}", hint)


def _kind(node: Node) -> str:
    return "a recursion" if type(node).__name__ in ("Recursion", "RecursiveView") else type(node).__name__


def _lifted(node: Node, inputs: Sequence[Node], varies: Sequence[bool]) -> Node:
    """One node on inputs with rounds, where they vary."""
    check(node, varies)
    match node:
        case Filter() | Explode():
            return replace(node, input=inputs[0], schema=in_rounds(node.schema))
        case SideJoin():  # with a fixed right side, linear in the left one
            pairs = (*node.columns, (0, ROUND, ROUND))
            return replace(node, left=inputs[0], right=inputs[1], columns=pairs, schema=in_rounds(node.schema))
        case Select():
            columns = (*node.columns, (ROUND, ColumnRef(ROUND)))
            return replace(node, input=inputs[0], columns=columns, schema=in_rounds(node.schema))
        case Union():
            sides = tuple(side if moves else _from_start(side) for side, moves in zip(inputs, varies, strict=True))
            return replace(node, inputs=sides, schema=in_rounds(node.schema))
        case Join():
            return _join(node, inputs, varies)
        case GroupBy():
            extremes = tuple(
                Extreme(name=call.name, column=str(call.column), descending=call.function == "max")
                for call in node.aggregates
            )
            schema = in_rounds(node.schema)
            return ExtremesByRound(
                input=inputs[0], keys=node.keys, extremes=extremes, schema=schema, source=node.source
            )
        case _:
            kind = "distinct" if isinstance(node, Distinct) else "difference"
            sides = tuple(side if moves else _from_start(side) for side, moves in zip(inputs, varies, strict=True))
            return SetByRound(kind=kind, inputs=sides, schema=in_rounds(node.schema), source=node.source)


def _join(node: Join, inputs: Sequence[Node], varies: Sequence[bool]) -> Node:
    """A pair is there when the later of its rows is."""
    left, right = inputs
    if not all(varies):
        columns = (*node.columns, (0 if varies[0] else 1, ROUND, ROUND))
        return replace(node, left=left, right=right, columns=columns, schema=in_rounds(node.schema))
    columns = (*node.columns, (0, ROUND, ROUND), (1, ROUND, ROUND_RIGHT))
    schema = Schema((*in_rounds(node.schema).columns, Column(ROUND_RIGHT, INT64, nullable=False)))
    joined = replace(node, left=left, right=right, columns=columns, schema=schema)
    return _with_round(joined, node.schema, greatest(col(ROUND), col(ROUND_RIGHT)), node.source)


def _from_start(node: Node) -> Node:
    """Rows of outside, there from round 0 on."""
    return _with_round(node, node.schema, lit(0, INT64), node.source)


def _with_round(node: Node, schema: Schema, value: Expr, source: SourceLine | None) -> Node:
    """The columns of `schema`, with this round."""
    found: Expression = resolve(unwrap(value), node.schema)
    columns = (*((name, ColumnRef(name)) for name in schema.names), (ROUND, found))
    return Select(input=node, columns=columns, schema=Schema((*schema.columns, ROUND_COLUMN)), source=source)
