"""Joins beyond the plain inner one: outer, semi, anti, null-safe, with a condition on the pairs, by time, lookup.

A filter is pushed only to a side that has a row in every output row. It is never pushed to a side that an outer join fills
with nulls. A condition on keys alone may be pushed to any preserved side; if both sides are preserved, it is pushed to both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from dbsp.algebra.join import named_sides
from dbsp.circuit.nodes import LoopRefusal, Need, Node, Planning, carried_by_pairs
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.expr.expression import ColumnRef, Expression
from dbsp.operators.iterations.histories import ITERATION, with_iteration
from dbsp.operators.joins.asof_join import AsofJoinOperator
from dbsp.operators.joins.conditional_join import PRESERVED, ConditionalJoin, TimeInterval
from dbsp.operators.joins.join import JoinOperator
from dbsp.operators.joins.join_shape import JoinShape
from dbsp.operators.joins.lookup_join import LookupJoinOperator
from dbsp.operators.joins.outer_join import OuterJoin
from dbsp.operators.joins.semi_join import SemiJoin
from dbsp.operators.operator import Operator
from dbsp.plan.builder import Flow
from dbsp.stored import stored
from dbsp.zset.schema import Schema

Columns = tuple[tuple[int, str, str], ...]
SEMI = ("semi", "anti")


@stored("SideJoin", "how left_on right_on columns where reads interval null_safe")
@dataclass(frozen=True, slots=True, kw_only=True)
class SideJoin(Node):
    """A join of the type `how`: left, right, full, semi, anti or inner.

    `reads` lists the columns that `where` reads, in the form of `columns`: (side, input column, name).
    """

    INPUTS: ClassVar[tuple[str, ...]] = ("left", "right")
    left: Node
    right: Node
    how: str
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    columns: Columns
    schema: Schema
    where: Expression | None = None
    reads: Columns = ()
    interval: TimeInterval | None = None
    null_safe: bool = False
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the node's text in `explain`: the type of join, the keys and the conditions."""
        also = [str(part) for part in (self.interval, self.where) if part is not None]
        where = f" where {' and '.join(also)}" if also else ""
        return f"{self.how} join {_keys_text(self)}{where}"

    def carried(self, side: int, name: str) -> frozenset[str]:
        """Return the output names of the column; a right key is also found under the name of its left key."""
        return carried_by_pairs(self.columns, dict(zip(self.right_on, self.left_on, strict=True)), side, name)

    def ambiguous(self, side: int, name: str) -> bool:
        """Return whether the name is a key of a side that may be without a row."""
        return (
            side in {"left": (1,), "right": (0,), "full": (0, 1)}.get(self.how, ())
            and name in (self.left_on, self.right_on)[side]
        )

    def kept(self, need: Need) -> Need:
        """Return the needed columns alone."""
        return need

    def wanted(self, kept: Need) -> tuple[Need, ...]:
        """Return the kept columns of each side, its keys, and the columns that the conditions read."""
        times = ((), ()) if self.interval is None else ((self.interval.left,), (self.interval.right,))
        reads = [frozenset(own for of, own, _ in self.reads if of == side) for side in (0, 1)]
        left, right = _wanted(self, kept)
        return left | reads[0] | {*times[0]}, right | reads[1] | {*times[1]}

    def filtered(self, condition: Expression, over: Callable[[Node, Expression], Node]) -> Node | None:
        """Push the condition to a preserved side, or to a side whose rows appear only with their partners."""
        sides = (0,) if self.how in SEMI else (0, 1) if self.how == "inner" else PRESERVED[self.how]
        return _filtered(self, condition, over, sides, both=len(PRESERVED[self.how]) > 1)

    def appends(self, inputs: Sequence[bool]) -> bool:
        """Return whether the join is inner or semi and its inputs are append-only.

        A row without a partner may find one later, so the other types retract rows.
        """
        return self.how in ("inner", "semi") and all(inputs)

    def unique(self, names: Need) -> bool:
        """Return whether the columns identify left rows, and each left row has at most one partner or an identified one.

        Joins that keep right rows without a partner return False.
        """
        left, right = named_sides(self.columns, names)
        if self.how in SEMI:
            return self.left.unique(left)
        right |= {other for mine, other in zip(self.left_on, self.right_on, strict=True) if mine in left}
        partners = self.right.unique(right) or self.right.unique(frozenset(self.right_on))
        return self.how in ("inner", "left") and self.left.unique(left) and partners

    def refusal_in_recursion(self, varies: Sequence[bool]) -> LoopRefusal | None:
        """Return a refusal of all joins but semi and anti joins with a fixed right side and without a condition."""
        fits = self.how in SEMI and self.where is None and self.interval is None and not varies[1]
        return None if fits else LoopRefusal()

    def in_iterations(self, inputs: Sequence[Node], varies: Sequence[bool]) -> Node:  # noqa: ARG002 (the right side is fixed)
        """Return the join with the iteration of the left row, in which it is linear."""
        pairs = (*self.columns, (0, ITERATION, ITERATION))
        return replace(self, left=inputs[0], right=inputs[1], columns=pairs, schema=with_iteration(self.schema))

    def plan(self, planning: Planning) -> Flow:
        """Distribute both sides by the key and add the operator."""
        kind = {"semi": "semi_join", "anti": "anti_join"}.get(self.how, "join")
        return _planned(self, planning, kind, self._operator)

    def _operator(self, shape: JoinShape) -> Operator:
        """Return the cheapest operator that computes this join."""
        if self.where is not None or self.interval is not None:
            reads = self.reads if self.where is not None else ()
            return ConditionalJoin(shape=shape, how=self.how, where=self.where, reads=reads, interval=self.interval)
        if self.how in SEMI:
            return SemiJoin(shape=shape, anti=self.how == "anti")
        if self.how == "inner":
            return JoinOperator(
                left=shape.left, right=shape.right, left_on=shape.left_on, right_on=shape.right_on,
                columns=shape.columns, schema=shape.schema, null_safe=shape.null_safe,
            )  # fmt: skip
        return OuterJoin(shape=shape, preserved=PRESERVED[self.how])


@stored("AsofJoin", "left_on right_on left_time right_time forward exact tolerance outer columns null_safe")
@dataclass(frozen=True, slots=True, kw_only=True)
class AsofJoin(Node):
    """Each left row with the right row of its key that is nearest in time."""

    INPUTS: ClassVar[tuple[str, ...]] = ("left", "right")
    left: Node
    right: Node
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    left_time: str
    right_time: str
    forward: bool
    exact: bool
    tolerance: int | None
    outer: bool
    columns: Columns
    schema: Schema
    null_safe: bool = False
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the node's text in `explain`: the keys, the times and the tolerance."""
        within = "" if self.tolerance is None else f" within {self.tolerance}"
        direction = "forward" if self.forward else "backward"
        return f"as-of join {_keys_text(self)} {self.right_time} {direction} from {self.left_time}{within}"

    def carried(self, side: int, name: str) -> frozenset[str]:
        """Return the output names of the column; a right key is also found under the name of its left key."""
        return carried_by_pairs(self.columns, dict(zip(self.right_on, self.left_on, strict=True)), side, name)

    def ambiguous(self, side: int, name: str) -> bool:
        """Return whether the name is a key of a side that may be without a row."""
        return side in ((1,) if self.outer else ()) and name in (self.left_on, self.right_on)[side]

    def kept(self, need: Need) -> Need:
        """Return the needed columns alone."""
        return need

    def wanted(self, kept: Need) -> tuple[Need, ...]:
        """Return the kept columns, the keys and the time of the left; all columns of the right, because they decide ties."""
        return _wanted(self, kept)[0] | {self.left_time}, frozenset(self.right.schema.names)

    def filtered(self, condition: Expression, over: Callable[[Node, Expression], Node]) -> Node | None:
        """Push the condition to the left side: each left row has its result independently of the others."""
        return _filtered(self, condition, over, (0,), both=False)

    def plan(self, planning: Planning) -> Flow:
        """Distribute both sides by the key and add the operator."""
        return _planned(self, planning, "asof_join", self._operator)

    def _operator(self, shape: JoinShape) -> Operator:
        return AsofJoinOperator(
            shape=shape, left_time=self.left_time, right_time=self.right_time, forward=self.forward, exact=self.exact,
            tolerance=self.tolerance, outer=self.outer,
        )  # fmt: skip


@stored("LookupJoin", "left_on right_on outer columns null_safe")
@dataclass(frozen=True, slots=True, kw_only=True)
class LookupJoin(Node):
    """Each new left row with the right rows of its key as of the step in which the left row arrives."""

    INPUTS: ClassVar[tuple[str, ...]] = ("left", "right")
    left: Node
    right: Node
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    outer: bool
    columns: Columns
    schema: Schema
    null_safe: bool = False
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the node's text in `explain`: the keys."""
        return f"lookup join {_keys_text(self)}"

    def carried(self, side: int, name: str) -> frozenset[str]:
        """Return the output names of the column; a right key is also found under the name of its left key."""
        return carried_by_pairs(self.columns, dict(zip(self.right_on, self.left_on, strict=True)), side, name)

    def ambiguous(self, side: int, name: str) -> bool:
        """Return whether the name is a key of a side that may be without a row."""
        return side in ((1,) if self.outer else ()) and name in (self.left_on, self.right_on)[side]

    def kept(self, need: Need) -> Need:
        """Return the needed columns alone."""
        return need

    def wanted(self, kept: Need) -> tuple[Need, ...]:
        """Return the kept columns and the keys of each side."""
        return _wanted(self, kept)

    def filtered(self, condition: Expression, over: Callable[[Node, Expression], Node]) -> Node | None:
        """Push the condition to the left side."""
        return _filtered(self, condition, over, (0,), both=False)

    def plan(self, planning: Planning) -> Flow:
        """Distribute both sides by the key and add the operator."""
        return _planned(self, planning, "lookup_join", lambda shape: LookupJoinOperator(shape=shape, outer=self.outer))


AnyJoin = SideJoin | AsofJoin | LookupJoin


def _keys_text(node: AnyJoin) -> str:
    pairs = zip(node.left_on, node.right_on, strict=True)
    keys = "on " + ", ".join(a if a == b else f"{a} = {b}" for a, b in pairs) if node.left_on else "of all rows"
    return keys + (" null-safe" if node.null_safe else "")


def _wanted(node: AnyJoin, kept: Need) -> tuple[Need, Need]:
    """Return the kept columns and the keys of each side."""
    sides = [frozenset(name for of, name, out in node.columns if of == side and out in kept) for side in (0, 1)]
    return sides[0] | frozenset(node.left_on), sides[1] | frozenset(node.right_on)


def _filtered(
    node: AnyJoin,
    condition: Expression,
    over: Callable[[Node, Expression], Node],
    sides: tuple[int, ...],
    *,
    both: bool,
) -> Node | None:
    """Return the node with the condition on one of these sides; None if no side has all columns that it reads.

    With `both`, the condition must hold on every preserved side, so it may read keys alone.
    """
    own: list[dict[str, Expression]] = []
    for side, keys in enumerate((node.left_on, node.right_on)):
        names: dict[str, Expression] = {out: ColumnRef(name) for of, name, out in node.columns if of == side}
        if side == 1:
            key_of = dict(zip(node.left_on, keys, strict=True))
            names |= {out: ColumnRef(key_of[name]) for of, name, out in node.columns if of == 0 and name in key_of}
        own.append(names)
    fits = [side for side in sides if condition.columns() <= own[side].keys()]
    if both and condition.columns() - (own[0].keys() & own[1].keys()):
        return None
    if not fits:
        return None
    for side in fits if both else fits[:1]:
        name = "right" if side else "left"
        node = replace(node, **{name: over(getattr(node, name), condition.substitute(own[side]))})  # type: ignore[arg-type]
    return node


def _planned(node: AnyJoin, planning: Planning, kind: str, make: Callable[[JoinShape], Operator]) -> Flow:
    """Distribute both sides by the key, read the needed columns alone, and add the operator that `make` returns."""
    needed = planning.needed(node)
    columns = tuple(column for column in node.columns if column[2] in needed)
    left, right = planning.builder.together(planning.sides(node), [node.left_on, node.right_on], node.source)
    schema = node.schema.select(needed)
    shape = JoinShape(
        left=left.schema, right=right.schema, left_on=node.left_on, right_on=node.right_on, columns=columns,
        schema=schema, null_safe=node.null_safe,
    )  # fmt: skip
    made = planning.builder.add(kind, make(shape), (left.node, right.node), schema, node.source)
    outputs = {name: out for side, name, out in reversed(columns) if side == 0}
    known = tuple(outputs[name] for name in node.left_on if name in outputs)
    return Flow(node=made, schema=schema, distribution=known if len(known) == len(node.left_on) else None)
