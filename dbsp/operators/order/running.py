"""Summaries of the rows outside the stretches that are read, computed from stored blocks instead of rows.

Functions whose frame reaches to an end of the partition need these summaries. A frame from the partition's start needs all
blocks before a stretch, and a frame to the partition's end all blocks after the stretch. A function over all rows has one
value per partition, computed from all its blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dbsp.operators.order.blocks import Blocks, BlocksChange
from dbsp.operators.order.summaries import Summaries, Summing
from dbsp.operators.order.window_calls import WindowCall
from dbsp.operators.order.window_places import I64, U64, Beyond, Mask, WindowPlaces
from dbsp.operators.order.window_values import values_of
from dbsp.zset.batch import Batch
from dbsp.zset.equality import equal_keys
from dbsp.zset.schema import OrderBy, Schema

Seen = Mapping[str, Beyond]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningTotals:
    """The summaries of all rows of some partitions before and after the change.

    `of` has for each partition its index in both summaries, or -1 for a partition without a summary.
    """

    of: I64
    old: Summaries
    new: Summaries


def totals(calls: Sequence[WindowCall], summing: Summing, change: BlocksChange) -> RunningTotals:
    """Return the totals of the partitions that have stored blocks, if a call needs totals.

    The other partitions need no total, because all their rows are read anyway.
    """
    blocks = change.blocks
    divided = blocks.divided
    if not any(call.total for call in calls):
        nothing = blocks.summaries.take(np.zeros(0, np.int64))
        return RunningTotals(of=np.full(len(divided), -1), old=nothing, new=nothing)
    count = int(divided.sum())
    number = np.where(divided, np.cumsum(divided) - 1, -1)
    left, came = np.flatnonzero(~change.touched), np.flatnonzero(divided[change.part])
    parts = blocks.summaries.take(left).and_of(change.summaries.take(came))
    of_parts = np.concatenate([blocks.part[left], change.part[came]])
    return RunningTotals(
        of=number,
        old=summing.merged(blocks.summaries, number[blocks.part], count),
        new=summing.merged(parts, number[of_parts], count),
    )


def other_totals(
    calls: Sequence[WindowCall],
    summing: Summing,
    found: RunningTotals,
    like: Batch,
    order: tuple[OrderBy, ...],
    schema: Schema,
) -> Mask:
    """Return the mask of the partitions whose total changes; `like` has rows of the schema that was summed up."""
    changed = np.zeros(len(found.of), np.bool_)
    of = np.flatnonzero(found.of >= 0)
    if not len(of):
        return changed
    rows, at, none = like.take(np.zeros(len(of), np.int64)), np.arange(len(of)), np.zeros(len(of), np.int64)
    for call in calls:
        if not call.total:
            continue
        values, failures = [], []
        for sums in (found.old, found.new):
            seen = summing.beyond(sums, at)
            places = WindowPlaces(rows=rows, segment=at, order=order, before=none, values_before=none, beyond=seen)
            column, failed = values_of(call, places, schema)
            values.append(column)
            failures.append(np.logical_or.reduce([np.zeros(len(of), np.bool_), *failed.values()]))
        changed[of] |= ~equal_keys(values[0], at, values[1], at) | (failures[0] != failures[1])
    return changed


def beyond(
    calls: Sequence[WindowCall], summing: Summing, blocks: Blocks, found: RunningTotals, part: I64, low: U64, high: U64
) -> tuple[Seen, Seen]:
    """Return for each call the summaries of the rows outside each stretch, before and after the change.

    Stretches consist of whole blocks.
    """
    both: dict[str, Beyond] = {}
    if any(call.from_start for call in calls):
        front = _outside(summing, blocks, *blocks.before(part, low), len(part))
        both |= {call.name: front[call.name] for call in calls if call.from_start}
    if any(call.to_end for call in calls):
        rest = _outside(summing, blocks, *blocks.behind(part, high), len(part))
        both |= {call.name: rest[call.name] for call in calls if call.to_end}
    names = [call.name for call in calls if call.total]
    old, new = (summing.beyond(sums, found.of[part]) for sums in (found.old, found.new))
    return both | {name: old[name] for name in names}, both | {name: new[name] for name in names}


def _outside(summing: Summing, blocks: Blocks, stretch: I64, entry: I64, count: int) -> Seen:
    """Return the summary of some entries for each stretch."""
    some, group = np.unique(stretch, return_inverse=True)
    which = np.full(count, -1, np.int64)
    which[some] = np.arange(len(some))
    return summing.beyond(summing.merged(blocks.summaries.take(entry), group.astype(np.int64), len(some)), which)
