"""Join: pairs of rows whose keys are equal.

**Law** bilinear: D(a ⋈ b) = Da ⋈ b + a ⋈ Db + Da ⋈ Db, with a and b as of the step before.

On one side the join key may be the primary key of an append-only table. Rows of the other side are then kept only until that
table has their key.
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
    """Inner equi-join, in which nulls are never equal.

    `columns` lists the output columns as (side 0 or 1, input column, output name).
    """

    INPUTS: ClassVar[tuple[str, ...]] = ("left", "right")
    left: Node
    right: Node
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    columns: tuple[tuple[int, str, str], ...]
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the node's text in `explain`: the keys."""
        if not self.left_on:
            return "cross join"
        keys = zip(self.left_on, self.right_on, strict=True)
        on = ", ".join(a if a == b else f"{a} = {b}" for a, b in keys)
        return f"join on {on}"

    def carried(self, side: int, name: str) -> frozenset[str]:
        """Return the output names of the column; a right key is also found under the name of its left key."""
        return carried_by_pairs(self.columns, dict(zip(self.right_on, self.left_on, strict=True)), side, name)

    def kept(self, need: Need) -> Need:
        """Return the needed columns alone."""
        return need

    def wanted(self, kept: Need) -> tuple[Need, ...]:
        """Return the kept columns and the keys of each side."""
        sides = [frozenset(name for of, name, out in self.columns if of == side and out in kept) for side in (0, 1)]
        return sides[0] | frozenset(self.left_on), sides[1] | frozenset(self.right_on)

    def filtered(self, condition: Expression, over: Callable[[Node, Expression], Node]) -> Node | None:
        """Push the condition to the first side that has all columns that it reads."""
        for side, child in enumerate((self.left, self.right)):
            names: dict[str, Expression] = {out: ColumnRef(name) for of, name, out in self.columns if of == side}
            if condition.columns() <= names.keys():
                moved = over(child, condition.substitute(names))
                return replace(self, left=moved) if side == 0 else replace(self, right=moved)
        return None

    def appends(self, inputs: Sequence[bool]) -> bool:
        """Return whether both inputs are append-only: a pair stays as long as both of its rows do."""
        return all(inputs)

    def unique(self, names: Need) -> bool:
        """Return whether the columns identify both rows of a pair, or one row that has at most one partner."""
        left, right = named_sides(self.columns, names)
        for mine, other in zip(self.left_on, self.right_on, strict=True):
            left, right = left | ({mine} if other in right else set()), right | ({other} if mine in left else set())
        return (
            self.left.unique(left) and (self.right.unique(right) or self.right.unique(frozenset(self.right_on)))
        ) or (self.right.unique(right) and self.left.unique(frozenset(self.left_on)))

    def refusal_in_recursion(self, varies: Sequence[bool]) -> LoopRefusal | None:  # noqa: ARG002 (any input may vary)
        """Return None: the join is linear in each side."""
        return None

    def in_iterations(self, inputs: Sequence[Node], varies: Sequence[bool]) -> Node:
        """Return the join whose pairs exist from the later iteration of their two rows on."""
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
        """Distribute both sides by the key and add the join operator.

        If one side's key is the primary key of an append-only table, the operator is `UniqueJoin`. It also reads that table's
        keys.
        """
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
        """Return the side (0 left, 1 right) whose key is the primary key of an append-only table, and the table (record 0023).

        Return None if neither side has such a key.
        """
        for side, (child, on) in enumerate(((self.left, self.left_on), (self.right, self.right_on))):
            table = child.keyed(on)
            if isinstance(table, Table):
                return side, table
        return None

    def of(self, operator: physical.JoinOperator) -> Operator:
        """Return the operator to run; a subclass may wrap the plain join."""
        return operator


def keys_of(planning: Planning, table: Table) -> Flow:
    """Return the flow of the keys of an append-only table.

    The flow uses the trace in which the table's operator already stores these keys, so that they are stored once.
    """
    builder, flow = planning.builder, planning.input(table)
    keys = builder.settle(flow.pick(table.primary_key), table.source)
    if keys.node != flow.node:
        builder.shared.owns(keys.node, builder.nodes[flow.node].traces[0], flow.node)
    return keys


def named_sides(columns: Sequence[tuple[int, str, str]], names: Need) -> tuple[Need, Need]:
    """Return the input columns of the left and of the right side that these output names hold."""
    left, right = (frozenset(own for of, own, out in columns if of == side and out in names) for side in (0, 1))
    return left, right
