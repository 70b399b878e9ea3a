"""As-of join: pair every left row with the right row of its key that is nearest in time, before or after the left row.

**Law** A candidate is a right row of the key that is within the tolerance and not later than the left row.
With `forward`, a candidate is not earlier than the left row.
The match is the nearest candidate; among several at that time, the first by all columns.
For a fixed right side the join is linear in the left side. With m the match: change = m'(Da) + m'(b) - m(b).
Here b contains the stored left rows between a changed right time and the next right time that exists.
The match of no other left row can change.

**State** Both sides by key, sorted by time. The left side keeps the needed columns; the right side keeps all, since they
decide ties.

**Cost** One search in the right side's key per changed left row. Per changed right row: one search for its neighbour in time,
and two searches for each left row in between. Right rows of one key and one time are read together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dbsp.errors import InternalError
from dbsp.operators.groups.part import of_same_keys
from dbsp.operators.joins.conditional_join import FIRST, LAST, U64, Mask, shifted
from dbsp.operators.joins.join_shape import I64, JoinShape
from dbsp.operators.monotone_bounds import Bound, MonotoneBounds, merged
from dbsp.operators.operator import Integral, Operator, State, StepContext, Time
from dbsp.operators.order.window_places import in_order
from dbsp.stored import stored
from dbsp.trace.neighbours import Positions
from dbsp.trace.spine import Spine
from dbsp.zset.batch import Batch, arrange, concat, consolidate
from dbsp.zset.hashing import hash_decides
from dbsp.zset.schema import Arrangement, OrderBy


@stored("AsofJoin", "shape left_time right_time forward exact tolerance outer")
@dataclass(frozen=True, slots=True, kw_only=True)
class AsofJoinOperator(Operator):
    """Join each left row with the nearest right row in time.

    `exact` lets equal times match; `outer` keeps left rows without a match.
    """

    depends_on_time: ClassVar[Time] = Time.NOTHING
    shape: JoinShape
    left_time: str
    right_time: str
    forward: bool
    exact: bool
    tolerance: int | None
    outer: bool

    def __str__(self) -> str:
        """Return the kind of join with its keys, times and tolerance."""
        sign = {(False, True): "<=", (False, False): "<", (True, True): ">=", (True, False): ">"}
        within = "" if self.tolerance is None else f" within {self.tolerance}"
        kind = "left" if self.outer else "inner"
        times = f"{self.right_time} {sign[self.forward, self.exact]} {self.left_time}"
        return f"{kind} as-of join {self.shape} by {times}{within}"

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangements of the left and the right side, each by key and time."""
        shape = self.shape
        return (
            Arrangement(schema=shape.left, key=shape.left_on, order=(OrderBy(self.left_time),)),
            Arrangement(schema=shape.right, key=shape.right_on, order=(OrderBy(self.right_time),)),
        )

    def integrals(self) -> tuple[Integral | None, ...]:
        """Return the integrals of both inputs, without rows that have a null time or key."""
        return self.shape.integral(0, self.left_time, only=not self.outer), self.shape.integral(1, self.right_time)

    def monotone_bounds(self, inputs: Sequence[MonotoneBounds]) -> MonotoneBounds:
        """Return the bounds of the output's keys and, for a backward join, of its left time.

        A right row changes the match of no earlier left row. Only changed keys have changed rows.
        """
        found = dict(self.shape.monotone_bounds(inputs))
        closed = self._closed(inputs)
        if closed is not None:
            times = (out for side, name, out in self.shape.columns if (side, name) == (0, self.left_time))
            found |= dict.fromkeys(times, closed)
        return found

    def closing(self, inputs: Sequence[MonotoneBounds]) -> tuple[tuple[str, Bound] | None, ...]:
        """Return the columns and bounds below which stored rows are never read again.

        They are left rows earlier than every possible change, and closed keys.
        The last right row of an open key may be looked up forever.
        """
        left, right = self.shape.closing(inputs)
        closed = self._closed(inputs)
        return left if closed is None else (self.left_time, closed), right

    def _closed(self, inputs: Sequence[MonotoneBounds]) -> Bound | None:
        """Return the time below which no left row changes again; None for a forward join or without bounds on both times."""
        left, right = inputs
        if self.forward or self.left_time not in left or self.right_time not in right:
            return None
        return merged([left[self.left_time], right[self.right_time]])

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """Return the changed left rows with their matches, and corrections for stored left rows whose match changed."""
        shape = self.shape
        by_left, by_right = self.arrangements()
        able, lonely = shape.meeting(inputs[0], 0, self.left_time)
        left = arrange(able, by_left)
        right = arrange(shape.meeting(inputs[1], 1, self.right_time)[0], by_right)
        made = [shape.alone(lonely, 0, lonely.weight)] if self.outer and len(lonely) else []
        before = state.spine(1)
        after = before.with_batch(right)
        if len(left):
            made.append(self._answer(after, left))
            state.append(0, left)
        if len(right):
            rows = self._between(state.spine(0), after, right)
            if len(rows):
                change = [self._answer(before, rows).negate(), self._answer(after, rows)]
                made.append(consolidate(concat(change, shape.schema)))
            state.append(1, right)
        return concat([batch.loose() for batch in made], shape.schema)

    def _between(self, lefts: Spine, rights: Spine, right: Batch) -> Batch:
        """Return the stored left rows whose match a changed right row may alter.

        They are between each changed right time and the next existing right time, away from the match's direction.
        """
        shape, (by_left, by_right) = self.shape, self.arrangements()
        names = (*shape.right_on, self.right_time)
        schema = shape.right.select(dict.fromkeys(names))
        by_time = Arrangement(schema=schema, key=shape.right_on, order=by_right.order)
        ones = np.ones((len(right), 1), np.int64)
        changed = arrange(right.project(schema.names).with_weights(ones), by_time)
        # A right row may be stored with a negative weight. Its mark outweighs that, so that the time exists in `_ranges`.
        lacking = np.minimum(rights.sums(right), 0)
        marks = arrange(right.loose().with_weights(1 - lacking), by_right)
        first, last = self._ranges(rights.with_batch(marks), changed)
        query, rows = lefts.ranges(changed.words[0], first, last)
        query, rows = shape.same_key(changed, query, rows, 1)
        return arrange(rows.loose(), by_left)

    def _ranges(self, there: Spine, changed: Batch) -> tuple[U64, U64]:
        """Return the first and last left time for which each changed right time may be the match.

        The ranges of one key do not overlap.
        """
        key_hash, codes = changed.words[0], changed.order_code
        if codes is None:
            raise InternalError("arranged rows carry their words")
        step = -1 if self.forward else 1
        end = FIRST if self.forward else LAST
        ends = np.full(len(codes), end)
        beyond, none = shifted(codes, step)
        asked = (ends, beyond) if self.forward else (beyond, ends)
        keys = self.shape.keys(changed, 1, self.shape.right_on)
        neighbour = there.reach(
            Positions(key_hash=key_hash, first=asked[0], last=asked[1], backward=self.forward), 1, keys
        )
        found = ~none & ((neighbour != end) | self._there(there, keys, key_hash, ends))
        near, never = (codes, np.zeros(len(codes), np.bool_)) if self.exact else (beyond, none)
        far = shifted(neighbour, -step)[0] if self.exact else neighbour
        far = np.where(found, far, ends)
        if self.tolerance is not None:
            reach = shifted(codes, step * self.tolerance)[0]
            far = np.maximum(far, reach) if self.forward else np.minimum(far, reach)
        first, last = (far, near) if self.forward else (near, far)
        return np.where(never, LAST, first), np.where(never, FIRST, last)

    def _there(self, there: Spine, keys: Batch, key_hash: U64, codes: U64) -> Mask:
        """Return the mask of the keys that have a right row at the given time code."""
        query, rows = of_same_keys(keys, *there.ranges(key_hash, codes, codes))
        if len(query):
            query, _ = in_order(query, rows.loose(), (OrderBy(self.right_time),))
        return np.asarray(np.bincount(query, minlength=len(keys)) > 0)

    def _answer(self, rights: Spine, rows: Batch) -> Batch:
        """Return the output rows of arranged left rows, given the right side."""
        number, match = self._matches(rights, rows)
        at = np.minimum(number.searchsorted(np.arange(len(rows))), max(len(number) - 1, 0))
        found = number[at] == np.arange(len(rows)) if len(number) else np.zeros(len(rows), np.bool_)
        some = np.flatnonzero(found)
        made = [self.shape.paired(rows, some, match, at[some], rows.weight[some])]
        if self.outer:
            made.append(self.shape.alone(rows, 0, np.where(found, 0, rows.weight)))
        return concat(made, self.shape.schema)

    def _matches(self, rights: Spine, rows: Batch) -> tuple[I64, Batch]:
        """Return the numbers of the left rows that have candidates, ascending, and the best right row for each."""
        first, last, never = self._candidates(rows)
        keys = self.shape.keys(rows, 0, self.shape.right_on)
        asked = Positions(key_hash=rows.words[0], first=first, last=last, backward=not self.forward)
        nearest = rights.reach(asked, 1, keys)
        low, high = np.where(never, LAST, nearest), np.where(never, FIRST, nearest)
        one = np.arange(len(rows))
        back = one
        if hash_decides(keys.columns):
            both = np.stack([rows.words[0], low, high], axis=1)
            one, back = _different(both)
        query, found = rights.ranges(rows.words[0][one], low[one], high[one])
        query, found = self.shape.same_key(rows, one[query], found, 0)
        query, found = in_order(query, found.loose(), (OrderBy(self.right_time),))
        return _spread(query, one, back, found)

    def _candidates(self, rows: Batch) -> tuple[U64, U64, Mask]:
        """Return the first and last right time that each left row may match, and the mask of left rows that can match none."""
        codes = rows.order_code
        if codes is None:
            raise InternalError("arranged rows carry their words")
        step = 1 if self.forward else -1
        near, never = (codes, np.zeros(len(codes), np.bool_)) if self.exact else shifted(codes, step)
        far = np.full(len(codes), LAST if self.forward else FIRST)
        if self.tolerance is not None:
            far = shifted(codes, step * self.tolerance)[0]
            never = never | ((far < near) if self.forward else (far > near))
        first, last = (near, far) if self.forward else (far, near)
        return np.where(never, LAST, first), np.where(never, FIRST, last), never


def _different(rows: U64) -> tuple[I64, I64]:
    """Return the index of the first row of each run of equal rows, and the run number of every row."""
    fresh = np.ones(len(rows), np.bool_)
    fresh[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    return np.flatnonzero(fresh), np.cumsum(fresh) - 1


def _spread(query: I64, one: I64, back: I64, found: Batch) -> tuple[I64, Batch]:
    """Return the best row of each query, repeated for every left row that shares the query."""
    if len(query) == 0:
        return query, found
    best = np.minimum(query.searchsorted(one), len(query) - 1)
    met = query[best] == one
    numbers = np.flatnonzero(met[back])
    return numbers, found.take(best[back[numbers]])
