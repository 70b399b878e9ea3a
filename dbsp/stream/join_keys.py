"""Construction of joins: key columns, their common type, and the names of the output's columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pyarrow as pa

from dbsp.algebra.filter import Filter
from dbsp.algebra.join import Join
from dbsp.algebra.select import Select
from dbsp.algebra.side_join import SEMI, SideJoin
from dbsp.circuit.nodes import Node
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.errors import CircuitError
from dbsp.expr.build import Expr, column_name
from dbsp.expr.cast import castable, to_type
from dbsp.expr.expression import Call, ColumnRef, Expression, conjuncts
from dbsp.expr.logic import AND
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.names import missing_column
from dbsp.expr.resolving import resolve
from dbsp.expr.type_names import spelled
from dbsp.expr.types import common_integer, is_integer
from dbsp.plan.pushdown import is_total
from dbsp.stream.owners import placed_in_pairs
from dbsp.zset.schema import BOOL, Column, Schema

On = str | Sequence[str] | Mapping[str, str] | None
Names = str | Sequence[str] | None
Pairs = tuple[tuple[int, str, str], ...]
HOWS = ("inner", "left", "right", "full", "semi", "anti")
ON = 'write on="k" or on={"left": "right"} for what is equal, and where=condition for the rest, with columns as after the join'
CUT: Mapping[str, tuple[int, ...]] = {"left": (1,), "right": (0,), "full": (), "semi": (0, 1), "anti": (1,)}
"""By kind of join, the sides (0: left, 1: right) whose rows without a partner do not affect the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Two nodes and their key columns; each pair of keys has one type."""

    left: Node
    right: Node
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]

    def met(self, left: str, right: str, source: SourceLine | None) -> Sides:
        """Return the sides with two more columns cast to a common type."""
        type_ = _key_type(left, self.left.schema[left].type, right, self.right.schema[right].type)
        return replace(self, left=_cast(self.left, left, type_, source), right=_cast(self.right, right, type_, source))


def sides_of(
    left: Node, right: Node, keys: tuple[tuple[str, ...], tuple[str, ...]], source: SourceLine | None
) -> Sides:
    """Return both sides with their keys checked and cast to common types; raise `CircuitError` for an unknown column."""
    for names, schema, other in zip(keys, (left.schema, right.schema), ("right", "left"), strict=True):
        for name in names:
            if name not in schema:
                error = missing_column(name, schema)
                there = name in (right.schema if other == "right" else left.schema)
                differ = f'; the {other} side has it: on={{"left": "right"}} where the names differ' if there else ""
                raise CircuitError(error.message, f"{error.hint}{differ}")
    sides = Sides(left=left, right=right, left_on=keys[0], right_on=keys[1])
    for left_key, right_key in zip(*keys, strict=True):
        sides = sides.met(left_key, right_key, source)
    return sides


def join_node(
    left: Node, right: Node, on: On, left_on: Names, right_on: Names, suffix: str | None, source: SourceLine | None
) -> Join:
    """Return an inner join of two nodes."""
    sides = sides_of(left, right, keys_of(on, left_on, right_on), source)
    columns, schema = output(sides, "inner", suffix, null_safe=False)
    return _plain(sides, columns, schema, source)


def _plain(sides: Sides, columns: Pairs, schema: Schema, source: SourceLine | None) -> Join:
    return Join(
        left=sides.left, right=sides.right, left_on=sides.left_on, right_on=sides.right_on, columns=columns,
        schema=schema, source=source,
    )  # fmt: skip


def joined(sides: Sides, how: str, suffix: str | None, where: Any, null_safe: bool, source: SourceLine | None) -> Node:
    """Return a join of any kind, with an optional condition on its pairs.

    An inner join with a condition is a filter over the join. In other joins the condition decides which rows have a
    partner, so the operator evaluates it.
    """
    if how not in HOWS:
        raise CircuitError(f"no such join: how={how!r}", f"one of {', '.join(HOWS)}")
    if not isinstance(null_safe, bool):
        raise CircuitError(f"null_safe is True or False: got={null_safe!r}")
    naming = suffix if how not in SEMI else suffix or "_right"
    pairs, pair_schema = output(sides, "inner", naming, null_safe=null_safe)
    condition = None if where is None else condition_of(where, sides, pairs, pair_schema)
    if how == "inner" and condition is not None:
        inner = joined(sides, how, suffix, None, null_safe, source)
        return Filter(input=inner, predicate=condition, schema=pair_schema, source=source)
    if how == "inner" and not null_safe:
        return _plain(sides, pairs, pair_schema, source)
    if condition is not None:
        sides, condition = _cut_down(sides, how, pairs, condition, source)
    columns, schema = output(sides, how, suffix, null_safe=null_safe)
    return SideJoin(
        left=sides.left, right=sides.right, how=how, left_on=sides.left_on, right_on=sides.right_on, columns=columns,
        schema=schema, where=condition, reads=reads_of(sides, pairs, condition), null_safe=null_safe, source=source,
    )  # fmt: skip


def condition_of(where: Any, sides: Sides, pairs: Pairs, schema: Schema) -> Expression:
    """Return the resolved condition on pairs of rows; its columns are named as in the output of the inner join."""
    if not isinstance(where, Expr):
        raise CircuitError(f"where takes an expression: got={where!r}", 'such as dbsp.col("x") < dbsp.col("y")')
    keys = dict(zip(sides.right_on, sides.left_on, strict=True))
    condition = resolve(placed_in_pairs(unwrap(where), sides.left, sides.right, pairs, keys), schema)
    if condition.type(schema) != BOOL:
        hint = f"write a comparison, such as ({condition}) != 0"
        raise CircuitError(f"where takes a condition: got={condition} type={condition.type(schema)}", hint)
    return condition


def reads_of(sides: Sides, pairs: Pairs, condition: Expression | None) -> Pairs:
    """Return the columns of a pair that the condition reads, and the left keys; nothing without a condition."""
    if condition is None:
        return ()
    read = condition.columns()
    return tuple(pair for pair in pairs if pair[2] in read or (pair[0] == 0 and pair[1] in sides.left_on))


def _cut_down(
    sides: Sides, how: str, pairs: Pairs, condition: Expression, source: SourceLine | None
) -> tuple[Sides, Expression | None]:
    """Move the parts of the condition that read one side alone below the join, as filters of that side.

    That is correct only for a side whose rows without a partner are not in the result. Only parts that cannot fail are
    moved, as with other filters.
    """
    keys = dict(zip(sides.left_on, sides.right_on, strict=True))
    rest: list[Expression] = []
    for part in conjuncts(condition):
        for side in CUT[how] if is_total(part) else ():
            own: dict[str, Expression] = {out: ColumnRef(name) for of, name, out in pairs if of == side}
            if side == 1:
                own |= {out: ColumnRef(keys[name]) for of, name, out in pairs if of == 0 and name in keys}
            if part.columns() <= own.keys():
                node = sides.right if side else sides.left
                below = Filter(input=node, predicate=part.substitute(own), schema=node.schema, source=source)
                sides = replace(sides, right=below) if side else replace(sides, left=below)
                break
        else:
            rest.append(part)
    return sides, reduce(lambda left, right: Call(AND, (left, right)), rest) if rest else None


def _names(names: Names) -> tuple[str, ...]:
    if names is None:
        return ()
    listed = (names,) if isinstance(names, str | Expr) else names
    return tuple(column_name(name, ON) for name in listed)


def keys_of(on: On, left_on: Names = None, right_on: Names = None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the left and the right keys; raise `CircuitError` if their numbers differ, or one is named twice."""
    if on is not None and (left_on is not None or right_on is not None):
        raise CircuitError("a join has its keys twice", "give on=, or left_on= and right_on=")
    if isinstance(on, Mapping):
        left, right = tuple(on.keys()), tuple(on.values())
    elif on is not None:
        left = right = _names(on)
    else:
        left, right = _names(left_on), _names(right_on)
    if not left or len(left) != len(right):
        hint = (
            'write on="key", on=["a", "b"] or on={"left column": "right column"}; for a condition alone'
            ' .cross_join(other, where=condition), and for how="left", "semi" or "anti" a key that is the same everywhere,'
            " .with_columns(all=dbsp.lit(1)) on both sides"
        )
        raise CircuitError(
            f"a join needs as many left as right keys, at least one: left={list(left)} right={list(right)}", hint
        )
    if len(set(left)) != len(left) or len(set(right)) != len(right):
        hint = 'a list names keys that both sides have; for different names write on={"left column": "right column"}'
        raise CircuitError(f"a join names a key twice: left={list(left)} right={list(right)}", hint)
    return left, right


def _key_type(left_name: str, left: pa.DataType, right_name: str, right: pa.DataType) -> pa.DataType:
    if left == right:
        return left
    common = common_integer(left, right) if is_integer(left) and is_integer(right) else None
    if common is None:
        cast = f'.with_columns({right_name}=dbsp.col("{right_name}").cast({spelled(left)}))'
        hint = f"write {cast} on the right side" if castable(right, left) else "join on columns of one type"
        raise CircuitError(f"join keys have different types: {left_name}={left} {right_name}={right}", hint)
    return common


def _cast(node: Node, key: str, type_: pa.DataType, source: SourceLine | None) -> Node:
    """Return the node with its key column in the common type."""
    own = node.schema[key]
    if own.type == type_:
        return node
    columns = tuple(
        (name, to_type(ColumnRef(name), own.type, type_) if name == key else ColumnRef(name))
        for name in node.schema.names
    )
    schema = Schema(tuple(Column(c.name, type_, c.nullable) if c.name == key else c for c in node.schema))
    return Select(input=node, columns=columns, schema=schema, source=source)


def output(sides: Sides, how: str, suffix: str | None, *, null_safe: bool) -> tuple[Pairs, Schema]:
    """Return the output's columns, as (side, input name, output name), and its schema.

    A right key is left out, and so are all right columns of a semi or anti join.
    """
    left, right = sides.left.schema, sides.right.schema
    key_of = dict(zip(sides.left_on, sides.right_on, strict=True))
    columns = []
    for column in left:
        key = None if column.name not in key_of else right[key_of[column.name]]
        columns.append(Column(column.name, column.type, _nullable(column, key, how, null_safe=null_safe)))
    picked = [(0, name, name) for name in left.names]
    taken = set(left.names)
    for column in right:
        if column.name in sides.right_on or how in SEMI:
            continue
        name = column.name
        if name in taken and suffix is not None:
            name += suffix
        if name in taken:
            hint = "give a suffix=, or rename one side with .rename"
            raise CircuitError(f"both sides of a join have this column: column={name}", hint)
        taken.add(name)
        picked.append((1, column.name, name))
        columns.append(Column(name, column.type, column.nullable or how in ("left", "full")))
    return tuple(picked), Schema(tuple(columns))


def _nullable(column: Column, key: Column | None, how: str, *, null_safe: bool) -> bool:
    """Return whether a left column of the output may be null.

    A key that met an equal one is not null. In outer joins the key is that of the side that has the row.
    """
    if key is None:
        return column.nullable or how in ("right", "full")
    match how:
        case "left" | "anti":
            return column.nullable
        case "right":
            return key.nullable
        case "full":
            return column.nullable or key.nullable
    return null_safe and column.nullable
