"""Distinct counts over frames without a bound, as counts of the rows that are the first with their value.

**Law** in a frame that reaches from the partition's start there are as many different values as rows that are the first with
theirs; in one that reaches to its end, as rows that are the last with theirs. Which rows are depends on a row's neighbour among
the rows of its value alone, and a count over such a frame can be summed up in blocks.

Left out: frames with both bounds, in which another row is the first for every place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dbsp.algebra.window import Window
from dbsp.expr.build import Expr, when
from dbsp.expr.expression import ColumnRef
from dbsp.operators.order.window_calls import WindowCall
from dbsp.source_lines import SourceLine
from dbsp.stream.handle import Handle
from dbsp.zset.schema import Column, OrderBy, Schema, is_list, is_struct


def first_of_values(
    stream: Handle, partition: tuple[str, ...], order: tuple[OrderBy, ...], calls: Sequence[WindowCall],
    source: SourceLine | None,
) -> tuple[Handle, tuple[WindowCall, ...]]:  # fmt: skip
    """The stream with a column for each column whose different values are counted so, and calls that count these."""
    flags: dict[tuple[str, bool], str] = {}
    made: list[WindowCall] = []
    for call in calls:
        if call.column is None or call.frame is None or not _counts_firsts(call, stream.schema):
            made.append(call)
            continue
        asked = call.column, call.frame.preceding is None
        if asked not in flags:
            stream, flags[asked] = _flagged(stream, partition, order, *asked, source)
        made.append(replace(call, function="count", column=flags[asked]))
    return stream, tuple(made)


def _counts_firsts(call: WindowCall, schema: Schema) -> bool:
    """Whether it is a distinct count of a frame without a bound, of values that can be a key."""
    if call.function != "count_distinct" or call.frame is None or call.frame.bounded:
        return False
    type_ = schema[str(call.column)].type
    return not (is_list(type_) or is_struct(type_))


def _flagged(
    stream: Handle, partition: tuple[str, ...], order: tuple[OrderBy, ...], column: str, from_start: bool,
    source: SourceLine | None,
) -> tuple[Handle, str]:  # fmt: skip
    """The stream with a column that is true in the first row with each value, or in the last one, else null.

    Rows that are equal take a place each, and with it they are equal no more: the first of them must stay in front, which a null
    in the others sees to, and the last one behind, for which there is one more column, before it.
    """
    near, tie, flag = (_free(stream.schema, f"__{what}_{column}") for what in ("near", "tie", "flag"))
    neighbour = WindowCall(name=near, function="lag" if from_start else "lead", column=column, offset=1)
    schema = Schema((*stream.schema.columns, Column(near, stream.schema[column].type)))
    kept = [(name, name) for name in stream.schema.names]
    node = Window(
        input=stream.node, partition=tuple(dict.fromkeys((*partition, column))), order=order, calls=(neighbour,),
        schema=schema, source=source,
    )  # fmt: skip
    alone = Expr(ColumnRef(near)).is_null()
    first = when(alone & Expr(ColumnRef(column)).is_not_null(), True).otherwise(None)
    ties = [] if from_start else [(tie, alone)]
    return stream._made(node)._selected([*kept, *ties, (flag, first)], source), flag


def _free(schema: Schema, name: str) -> str:
    """A name that no column has."""
    while name in schema:
        name += "_"
    return name
