"""Joins as the DSL builds them: which columns are the keys, in which type they meet, and what the output's columns are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from dbsp.algebra.join import Join
from dbsp.algebra.select import Select
from dbsp.circuit.nodes import Node, SourceLine
from dbsp.errors import CircuitError
from dbsp.expr.build import Expr, column_name
from dbsp.expr.cast import castable, to_type
from dbsp.expr.expression import ColumnRef
from dbsp.expr.names import missing_column
from dbsp.expr.type_names import spelled
from dbsp.expr.types import common_integer, is_integer
from dbsp.zset.schema import Column, Schema

On = str | Sequence[str] | Mapping[str, str] | None
Names = str | Sequence[str] | None


def join_node(
    left: Node, right: Node, on: On, left_on: Names, right_on: Names, suffix: str | None, source: SourceLine | None
) -> Join:
    """An inner join of two nodes."""
    left_keys, right_keys = _keys(on, left_on, right_on)
    for names, schema in ((left_keys, left.schema), (right_keys, right.schema)):
        for name in names:
            if name not in schema:
                raise missing_column(name, schema)
    for left_key, right_key in zip(left_keys, right_keys, strict=True):
        common = _key_type(left_key, left.schema[left_key].type, right_key, right.schema[right_key].type)
        left, right = _cast(left, left_key, common, source), _cast(right, right_key, common, source)
    columns, schema = _output(left.schema, right.schema, left_keys, right_keys, suffix)
    return Join(
        left=left, right=right, left_on=left_keys, right_on=right_keys, columns=columns, schema=schema, source=source
    )


def _names(names: Names) -> tuple[str, ...]:
    if names is None:
        return ()
    return (column_name(names),) if isinstance(names, str | Expr) else tuple(map(column_name, names))


def _keys(on: On, left_on: Names, right_on: Names) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if on is not None and (left_on is not None or right_on is not None):
        raise CircuitError("a join has its keys twice", "give on=, or left_on= and right_on=")
    if isinstance(on, Mapping):
        left, right = tuple(on.keys()), tuple(on.values())
    elif on is not None:
        left = right = _names(on)
    else:
        left, right = _names(left_on), _names(right_on)
    if not left or len(left) != len(right):
        hint = 'write on="key", on=["a", "b"] or on={"left column": "right column"}'
        raise CircuitError(
            f"a join needs as many left as right keys, at least one: left={list(left)} right={list(right)}", hint
        )
    if len(set(left)) != len(left) or len(set(right)) != len(right):
        raise CircuitError(f"a join names a key twice: left={list(left)} right={list(right)}")
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
    """The node with its key column in the common type."""
    own = node.schema[key]
    if own.type == type_:
        return node
    columns = tuple(
        (name, to_type(ColumnRef(name), own.type, type_) if name == key else ColumnRef(name))
        for name in node.schema.names
    )
    schema = Schema(tuple(Column(c.name, type_, c.nullable) if c.name == key else c for c in node.schema))
    return Select(input=node, columns=columns, schema=schema, source=source)


def _output(
    left: Schema, right: Schema, left_keys: tuple[str, ...], right_keys: tuple[str, ...], suffix: str | None
) -> tuple[tuple[tuple[int, str, str], ...], Schema]:
    """The columns (side, input name, output name) and the schema; a key that met an equal one is not null."""
    picked = [(0, name, name) for name in left.names]
    columns = [Column(c.name, c.type, c.nullable and c.name not in left_keys) for c in left]
    taken = set(left.names)
    for column in right:
        if column.name in right_keys:
            continue
        name = column.name
        if name in taken and suffix is not None:
            name += suffix
        if name in taken:
            hint = "give a suffix=, or rename one side with .rename"
            raise CircuitError(f"both sides of a join have this column: column={name}", hint)
        taken.add(name)
        picked.append((1, column.name, name))
        columns.append(Column(name, column.type, column.nullable))
    return tuple(picked), Schema(tuple(columns))
