"""Join: pairs of rows whose keys are equal.

**Law** bilinear: D(a ⋈ b) = Da ⋈ b + a ⋈ Db + Da ⋈ Db, with a and b as of the step before. Where the key is the primary key of
an append-only table on one side, rows of the other side are kept only until that table has their key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from dbsp.algebra.iterations import with_iteration_column
from dbsp.algebra.table import Table
from dbsp.circuit.nodes import LoopRefusal, Need, Node, Planning, carried_by_pairs
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.expr.build import col, greatest
from dbsp.expr.expression import ColumnRef, Expression
from dbsp.operators.iterations.histories import ITERATION, ITERATION_RIGHT, with_iteration
from dbsp.operators.joins import join as physical
from dbsp.operators.joins.unique_join import UniqueJoin
from dbsp.operators.operator import Operator
from dbsp.plan.builder import Flow
from dbsp.stored import stored
from dbsp.zset.schema import INT64, Column, Schema


@stored("Join", "left_on right_on columns")
@dataclass(frozen=True, slots=True, kw_only=True)
class Join(Node):
    """Inner equi-join; `columns` lists (side 0 or 1, input column, output name); nulls are never equal."""

    INPUTS: ClassVar[tuple[str, ...]] = ("left", "right")
    left: Node
    right: Node
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    columns: tuple[tuple[int, str, str], ...]
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """The keys."""
        if not self.left_on:
            return "cross join"
        keys = zip(self.left_on, self.right_on, strict=True)
        on = ", ".join(a if a == b else f"{a} = {b}" for a, b in keys)
        return f"join on {on}"

    def carried(self, side: int, name: str) -> frozenset[str]:
        """Return the columns of the pairs; a right key has the name of the left one."""
        return carried_by_pairs(self.columns, dict(zip(self.right_on, self.left_on, strict=True)), side, name)

    def kept(self, need: Need) -> Need:
        """What is needed, no more."""
        return need

    def wanted(self, kept: Need) -> tuple[Need, ...]:
        """Each side's own columns, and its keys."""
        sides = [frozenset(name for of, name, out in self.columns if of == side and out in kept) for side in (0, 1)]
        return sides[0] | frozenset(self.left_on), sides[1] | frozenset(self.right_on)

    def filtered(self, condition: Expression, over: Callable[[Node, Expression], Node]) -> Node | None:
        """On the side that has all its columns."""
        for side, child in enumerate((self.left, self.right)):
            names: dict[str, Expression] = {out: ColumnRef(name) for of, name, out in self.columns if of == side}
            if condition.columns() <= names.keys():
                moved = over(child, condition.substitute(names))
                return replace(self, left=moved) if side == 0 else replace(self, right=moved)
        return None

    def appends(self, inputs: Sequence[bool]) -> bool:
        """A pair stays while its rows do."""
        return all(inputs)

    def unique(self, names: Need) -> bool:
        """Where both rows of a pair are told apart, or the rows of one side, which then has one partner at most."""
        left, right = named_sides(self.columns, names)
        for mine, other in zip(self.left_on, self.right_on, strict=True):
            left, right = left | ({mine} if other in right else set()), right | ({other} if mine in left else set())
        return (
            self.left.unique(left) and (self.right.unique(right) or self.right.unique(frozenset(self.right_on)))
        ) or (self.right.unique(right) and self.left.unique(frozenset(self.left_on)))

    def refusal_in_recursion(self, varies: Sequence[bool]) -> LoopRefusal | None:  # noqa: ARG002 (any input may vary)
        """Return None: pairs of rows are linear in both sides."""
        return None

    def in_iterations(self, inputs: Sequence[Node], varies: Sequence[bool]) -> Node:
        """Return the pairs, each there from the later iteration of its rows on."""
        left, right = inputs
        if not all(varies):
            columns = (*self.columns, (0 if varies[0] else 1, ITERATION, ITERATION))
            return replace(self, left=left, right=right, columns=columns, schema=with_iteration(self.schema))
        columns = (*self.columns, (0, ITERATION, ITERATION), (1, ITERATION, ITERATION_RIGHT))
        schema = Schema((*with_iteration(self.schema).columns, Column(ITERATION_RIGHT, INT64, nullable=False)))
        joined = replace(self, left=left, right=right, columns=columns, schema=schema)
        later = greatest(col(ITERATION), col(ITERATION_RIGHT))
        return with_iteration_column(joined, self.schema, later, self.source)

    def plan(self, planning: Planning) -> Flow:
        """Both sides distributed by the key."""
        needed = planning.needed(self)
        columns = tuple(column for column in self.columns if column[2] in needed)
        keys = [self.left_on, self.right_on]
        unique = self.unique_side()
        sides = planning.sides(self)
        if unique is not None:
            sides.append(keys_of(planning, unique[1]))
            keys.append(unique[1].primary_key)
        left, right, *of_table = planning.builder.together(sides, keys, self.source)
        schema = self.schema.select(needed)
        join = physical.JoinOperator(
            left=left.schema,
            right=right.schema,
            left_on=self.left_on,
            right_on=self.right_on,
            columns=columns,
            schema=schema,
        )
        kind, operator = "join", self.of(join)
        if unique is not None:
            kind, operator = "unique", UniqueJoin(shape=join.shape, unique=unique[0], keys=of_table[0].schema)
        inputs = tuple(flow.node for flow in (left, right, *of_table))
        made = planning.builder.add(kind, operator, inputs, schema, self.source)
        outputs = {(side, name): out for side, name, out in reversed(columns)}
        distribution = [
            outputs.get((0, a), outputs.get((1, b))) for a, b in zip(self.left_on, self.right_on, strict=True)
        ]
        known = tuple(name for name in distribution if name is not None)
        return Flow(node=made, schema=schema, distribution=known if len(known) == len(distribution) else None)

    def unique_side(self) -> tuple[int, Table] | None:
        """A side (0 left, 1 right) whose key is the primary key of an append-only table, and that table (record 0023)."""
        for side, (child, on) in enumerate(((self.left, self.left_on), (self.right, self.right_on))):
            table = child.keyed(on)
            if isinstance(table, Table):
                return side, table
        return None

    def of(self, operator: physical.JoinOperator) -> Operator:
        """The operator to run."""
        return operator


def keys_of(planning: Planning, table: Table) -> Flow:
    """The keys of an append-only table, which are kept where its second rows are found out."""
    builder, flow = planning.builder, planning.input(table)
    keys = builder.settle(flow.pick(table.primary_key), table.source)
    if keys.node != flow.node:
        builder.shared.owns(keys.node, builder.nodes[flow.node].traces[0], flow.node)
    return keys


def named_sides(columns: Sequence[tuple[int, str, str]], names: Need) -> tuple[Need, Need]:
    """The columns of the left side and of the right one that stand under these names."""
    left, right = (frozenset(own for of, own, out in columns if of == side and out in names) for side in (0, 1))
    return left, right
