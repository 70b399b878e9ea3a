"""Group-by: one row per group, the keys and then the aggregates, computed by parts (`dbsp.operators.groups.part`).

**Law** a group's row changes only if a row of the group does. The output's change is -old +new over the changed groups, and
empty where old and new are the same row. A group exists exactly while its row count is not zero.
**State** the parts' traces, all keyed by the group's key, so a group moves as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp.operators.failures import report
from dbsp.operators.groups.linear_part import LinearPart
from dbsp.operators.groups.part import AggregatePart, PartState, Values
from dbsp.operators.monotone_bounds import Bound, MonotoneBounds, common
from dbsp.operators.operator import Operator, Shows, State, StepContext, Time
from dbsp.stored import stored
from dbsp.zset.arrays import gather, join
from dbsp.zset.batch import Batch, arrange, keys_once, no_rows_of
from dbsp.zset.equality import equal_columns, equal_keys
from dbsp.zset.hashing import hash_columns, hash_decides
from dbsp.zset.kernels import interleave
from dbsp.zset.merge import merge
from dbsp.zset.schema import Arrangement, Schema

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Columns = Sequence[pa.Array]


@dataclass(frozen=True, slots=True)
class _Side:
    """The state of groups before or after a step: which of them show a row, and the parts' values.

    The values are those of the groups `of`, in this order.
    """

    shows: Mask
    of: Positions
    values: Sequence[Values]

    def failed(self) -> Mask:
        """Return the mask of the groups in which a part failed."""
        failed = np.zeros(len(self.shows), np.bool_)
        for value in self.values:
            if value.failed is not None:
                failed[self.of] |= value.failed
        return failed

    def reasons(self, failed: Mask) -> dict[int, str]:
        """Return the reasons of the failed groups, each from the first part that states one."""
        reasons = dict.fromkeys(np.flatnonzero(failed).tolist(), "a result does not fit its type")
        for value in reversed(self.values):
            named = {int(self.of[place]): reason for place, reason in value.reasons.items()}
            reasons |= {group: reason for group, reason in named.items() if group in reasons}
        return reasons


@stored("GroupBy", "keys linear others streams schema")
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupByOperator(Operator):
    """Emit one row per group. `streams[i]` is the input that has part i's form; part 0 counts the rows.

    Without keys there is one group, which exists even if it has no rows. In this case the last input, an additional one, has
    a row in the first step on the worker that owns the group (`dbsp.operators.groups.once`).
    """

    depends_on_time: ClassVar[Time] = Time.NOTHING
    keys: Schema
    linear: LinearPart
    others: tuple[AggregatePart, ...]
    streams: tuple[int, ...]
    schema: Schema

    def __str__(self) -> str:
        """Return the keys and the aggregates as text."""
        parts = "; ".join(text for part in self.parts if (text := str(part)))
        return f"group by ({', '.join(self.keys.names)}) {parts}".rstrip()

    @property
    def parts(self) -> tuple[AggregatePart, ...]:
        """Return all parts, the linear one first."""
        return (self.linear, *self.others)

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangements of all traces of all parts."""
        return tuple(arrangement for part in self.parts for arrangement in part.arrangements())

    def monotone_bounds(self, inputs: Sequence[MonotoneBounds]) -> MonotoneBounds:
        """Return the bounds of the keys: only groups whose rows change have another output row."""
        return {name: bound for name, bound in common(inputs).items() if name in self.keys}

    def closing(self, inputs: Sequence[MonotoneBounds]) -> tuple[tuple[str, Bound] | None, ...]:
        """Return the bound of a key: groups below it are closed, so their rows are never read again."""
        kept = next(iter(self.monotone_bounds(inputs).items()), None)
        return tuple(kept for _ in self.arrangements())

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:
        """Return the -old +new rows of the groups that changed."""
        first, *rest = (inputs[at] for at in self.streams)
        deltas = [
            self.linear.arrived(first),
            *(_delta(batch, part) for batch, part in zip(rest, self.others, strict=True)),
        ]
        groups = self._groups(deltas) if len(self.keys) else self._whole(deltas, inputs[-1])
        if len(groups) == 0:
            return Batch.empty(self.schema)
        old, new = self.linear.sums(PartState(state, 0), groups, deltas[0])
        lived, lives = old[:, 0] != 0, new[:, 0] != 0
        if not len(self.keys):
            lived, lives = np.full(1, len(inputs[-1]) == 0), np.ones(1, np.bool_)
        there = np.flatnonzero(lived)
        before, after = [self.linear.values_of(old[there])], [self.linear.values_of(new)]
        trace = len(self.linear.arrangements())
        for part, delta in zip(self.others, deltas[1:], strict=True):
            was, is_ = part.step(PartState(state, trace), groups, delta)
            trace += len(part.arrangements())
            before.append(was.at(there))
            after.append(is_)
        return self._change(context, groups, _Side(lived, there, before), _Side(lives, np.arange(len(groups)), after))

    def shows(self) -> Shows | None:
        """Return the operator itself if all aggregates are linear and there are keys; else None."""
        return None if self.others or not len(self.keys) else self

    def shown(self, kept: Batch, error_policy: str) -> Batch:
        """Return one row per group, from the one trace that determines all of them if all aggregates are linear."""
        values = self.linear.values_of(kept.weights)
        rows = kept.weights[:, 0] != 0
        if values.failed is not None and error_policy != "null":
            rows &= ~values.failed
        columns = (*kept.columns, *self._aggregates([values]))
        return Batch(schema=self.schema, columns=columns, weights=np.ones((len(kept), 1), np.int64)).filter(rows)

    def _groups(self, deltas: Sequence[Batch]) -> Batch:
        """Return the groups of which a row changed, once each, arranged by key."""
        if len(deltas) == 1:
            return deltas[0]
        key = Arrangement(schema=self.keys, key=self.keys.names)
        shown = [keys_once(delta).but(schema=self.keys, arrangement=key) for delta in deltas]
        return reduce(_united, shown)

    def _whole(self, deltas: Sequence[Batch], once: Batch) -> Batch:
        """Return the one group without keys, if it is new or one of its rows changed; else no group."""
        rows = min(1, len(once) + sum(map(len, deltas)))
        whole = Batch(schema=self.keys, columns=(), weights=np.ones((rows, 1), np.int64))
        return arrange(whole, Arrangement(schema=self.keys, key=()))

    def _change(self, context: StepContext, groups: Batch, old: _Side, new: _Side) -> Batch:
        """Return the removed and the added rows, and report the failures that change.

        Old values are those of the groups that showed a row; new values are those of all groups.
        """
        was, is_ = self._aggregates(old.values), self._aggregates(new.values)
        changed = old.shows != new.shows
        changed[old.of] |= ~_same(was, is_, old.of)
        failed_before, failed_after = old.failed(), new.failed()
        if context.error_policy != "null":  # a failed group shows no row, which is not the same as a row of nulls
            changed |= failed_before != failed_after
        went, came = old.shows & changed, new.shows & changed
        if context.error_policy != "null":
            gone, come = old.reasons(failed_before), new.reasons(new.shows & failed_after)
            self._report(context, groups, gone, come, -1)
            self._report(context, groups, come, gone, 1)
            went, came = went & ~failed_before, came & ~failed_after
        return self._batch(groups, (was, is_), old.of, went, came)

    def _aggregates(self, values: Sequence[Values]) -> tuple[pa.Array, ...]:
        """Return the output columns that follow the keys."""
        named: dict[str, pa.Array] = {}
        for part, value in zip(self.parts, values, strict=False):
            named.update(zip(part.names(), value.columns, strict=True))
        return tuple(named[name] for name in self.schema.names[len(self.keys) :])

    def _batch(self, groups: Batch, rows: tuple[Columns, Columns], there: Positions, went: Mask, came: Mask) -> Batch:
        """Return the removed rows with weight -1 and the added rows with weight 1, arranged by the keys.

        **Cost** no sort: groups are in order of their hash, and a group has two rows at most. Only where two keys or two rows
        of a group share a hash are the rows arranged as any others.
        """
        arrangement = Arrangement(schema=self.schema, key=self.keys.names)
        (key_hash, *_), number = groups.words, len(went)
        old = np.zeros(number, np.uint64)
        old[there] = hash_columns(rows[0], len(there))
        order, group, weights, row_hash, clear = interleave(old, hash_columns(rows[1], number), went, came)
        place = np.zeros(2 * number, np.int64)
        place[there], place[number:] = np.arange(len(there)), np.arange(len(there), len(there) + number)
        order = place[order]
        columns = (
            *(gather(key, group) for key in groups.held),
            *(gather(join([a, b]), order) for a, b in zip(*rows, strict=True)),
        )
        batch = Batch(schema=self.schema, columns=columns, weights=weights.reshape(-1, 1))
        if not clear or (key_hash[1:] == key_hash[:-1]).any():
            return arrange(batch, arrangement)
        kept_hash = row_hash if arrangement.hashes_rows else None
        return batch.but(key_hash=key_hash.take(group), row_hash=kept_hash, arrangement=arrangement)

    def _report(
        self, context: StepContext, groups: Batch, some: Mapping[int, str], others: Mapping[int, str], weight: int
    ) -> None:
        """Report the groups that fail on one side of the change, and not for the same reason on the other side."""
        reasons = {row: reason for row, reason in some.items() if others.get(row) != reason}
        report(context, groups, self.keys.names, np.full(len(groups), weight), reasons)


def _delta(batch: Batch, part: AggregatePart) -> Batch:
    """Return the change in the part's form, arranged like its first trace."""
    arrangement = part.arrangements()[0]
    return arrange(batch, arrangement) if len(batch) else no_rows_of(arrangement)


def _united(left: Batch, right: Batch) -> Batch:
    """Return the keys that are in either batch; mostly both have the same keys."""
    if len(left) == len(right) and (left.words[0] == right.words[0]).all():
        every = np.arange(len(left))
        if hash_decides(left.columns) or equal_columns(left.columns, every, right.columns, every).all():
            return left
    return merge(left, right)


def _same(before: Columns, after: Columns, there: Positions) -> Mask:
    """Return the mask of the groups that existed whose aggregates are unchanged; `before` has their values alone."""
    same, every = np.ones(len(there), np.bool_), np.arange(len(there))
    for a, b in zip(before, after, strict=True):
        same &= equal_keys(a, every, b, there)
    return same
