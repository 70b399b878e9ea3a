"""Distinct counts over frames without a bound, computed as counts of the rows that are the first with their value.

**Law** A frame that starts at the partition's start has as many distinct values as rows that are the first with their
value. A frame that reaches to the partition's end has as many as rows that are the last with their value. Whether a row
is first depends only on its neighbour among the rows with the same value. Unlike distinct values, flagged rows can be
counted in blocks, whose counts add up.

Not covered: frames with two bounds, where the first row of a value differs from frame to frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from dbsp.algebra.window import WindowNode
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.expr.build import Expr, when
from dbsp.expr.expression import ColumnRef
from dbsp.operators.order.window_calls import WindowCall
from dbsp.stream.handle import Handle
from dbsp.zset.schema import Column, OrderBy, Schema, is_list, is_struct

S = TypeVar("S", bound=Handle)


def first_of_values(
    stream: S, partition: tuple[str, ...], order: tuple[OrderBy, ...], calls: Sequence[WindowCall],
    source: SourceLine | None,
) -> tuple[S, tuple[WindowCall, ...]]:  # fmt: skip
    """Return the stream with a flag column for each column counted this way, and the calls, which count flags instead.

    Other calls are returned unchanged.
    """
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
    """Return whether the call is a distinct count, of values that can be a key, over a frame without a bound on one side."""
    if call.function != "count_distinct" or call.frame is None or call.frame.bounded:
        return False
    type_ = schema[str(call.column)].type
    return not (is_list(type_) or is_struct(type_))


def _flagged(
    stream: S, partition: tuple[str, ...], order: tuple[OrderBy, ...], column: str, from_start: bool,
    source: SourceLine | None,
) -> tuple[S, str]:  # fmt: skip
    """Return the stream with a column that is true in the first row (or the last one) of each value, and null elsewhere.

    The window operator orders equal rows by all columns, the new ones included. The flagged row has to stay the first
    of them: its true sorts before the nulls of the others. For the last row, one more column before the flag makes it
    sort last.
    """
    near, tie, flag = (_free(stream.schema, f"__{what}_{column}") for what in ("near", "tie", "flag"))
    neighbour = WindowCall(name=near, function="lag" if from_start else "lead", column=column, offset=1)
    schema = Schema((*stream.schema.columns, Column(near, stream.schema[column].type)))
    kept = [(name, name) for name in stream.schema.names]
    node = WindowNode(
        input=stream.node, partition=tuple(dict.fromkeys((*partition, column))), order=order, calls=(neighbour,),
        schema=schema, source=source,
    )  # fmt: skip
    alone = Expr(ColumnRef(near)).is_null()
    first = when(alone & Expr(ColumnRef(column)).is_not_null(), True).otherwise(None)
    ties = [] if from_start else [(tie, alone)]
    return stream._made(node)._selected([*kept, *ties, (flag, first)], source), flag


def _free(schema: Schema, name: str) -> str:
    """Return the name, extended by underscores until no column has it."""
    while name in schema:
        name += "_"
    return name
