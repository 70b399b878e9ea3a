"""Conditional join: an equi-join whose pairs also satisfy a condition, or a bound on the difference of their times.

**Law** The pairs are those of the equi-join for which the condition is true. A preserved row is unmatched while it has no pair.
Let p(r) be the summed weights of the pairs of row r. A change of either side changes p only by the weights of the changed pairs.

**State** Both sides by key, with the needed columns. Each row of a preserved side carries p(r) as a second weight.
If the join compares times, the rows of a key are sorted by time.

**Cost** Per changed row one look-up in the other side: all rows of its key, or those within the interval.
The condition is evaluated on each of these pairs. Every row whose p changes costs one more look-up.

**Errors** A pair on which the condition fails is reported by the error policy and is no pair. It is reported again, with the
opposite weight, when the pair is deleted.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp.expr.build import col
from dbsp.expr.expression import Expression
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.outcomes import outcomes
from dbsp.expr.resolving import resolve
from dbsp.expr.rows import ROW_ERRORS
from dbsp.operators.failures import report
from dbsp.operators.groups.linear_part import checked_sum
from dbsp.operators.joins.join_shape import I64, JoinShape
from dbsp.operators.joins.products import product
from dbsp.operators.monotone_bounds import Bound, MonotoneBounds, bound_of, merged
from dbsp.operators.operator import Integral, Operator, State, StepContext, Time
from dbsp.stored import stored
from dbsp.trace.spine import Spine
from dbsp.zset.arrays import gather
from dbsp.zset.batch import Batch, arrange, concat, consolidate
from dbsp.zset.schema import Arrangement, OrderBy, Schema

U64 = npt.NDArray[np.uint64]
FIRST, LAST = np.uint64(0), np.uint64(0xFFFF_FFFF_FFFF_FFFF)
PRESERVED = {"inner": (), "left": (0,), "right": (1,), "full": (0, 1), "semi": (0,), "anti": (0,)}
Mask = npt.NDArray[np.bool_]


@stored("Interval", "left right lower upper")
@dataclass(frozen=True, slots=True, kw_only=True)
class TimeInterval:
    """Bound on the time difference of a pair: lower <= right time - left time <= upper; None is unbounded."""

    left: str
    right: str
    lower: int | None
    upper: int | None

    def __str__(self) -> str:
        """Return the interval as a mathematical expression."""
        return f"{self.right} - {self.left} in [{self.lower}, {self.upper}]"

    def on(self, side: int) -> str:
        """Return the name of the time column of a side."""
        return self.right if side else self.left

    def window(self, codes: U64, side: int) -> tuple[U64, U64]:
        """Return the first and last time code on the other side that each code of `side` can be paired with.

        A code that can be paired with none gets the empty range from `LAST` to `FIRST`.
        """
        least, most = self.lower, self.upper
        if side == 1:
            least, most = (None if most is None else -most), (None if least is None else -least)
        first, last = np.full(len(codes), FIRST), np.full(len(codes), LAST)
        never = np.zeros(len(codes), np.bool_)
        if least is not None:
            first, beyond = shifted(codes, least)
            never |= beyond if least > 0 else False
        if most is not None:
            last, beyond = shifted(codes, most)
            never |= beyond if most < 0 else False
        first[never], last[never] = LAST, FIRST
        return first, last


def shifted(codes: U64, by: int) -> tuple[U64, Mask]:
    """Return the codes shifted by `by` and clamped to the range of 64 bits, and the mask of the clamped ones."""
    step = np.uint64(min(abs(by), int(LAST)))
    if by >= 0:
        beyond = codes > LAST - step
        return np.where(beyond, LAST, codes + step), beyond
    beyond = codes < step
    return np.where(beyond, FIRST, codes - step), beyond


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pairs:
    """Pairs of rows, given as indices into the rows of both sides, with the weight of each pair.

    Columns are gathered only when they are read.
    """

    left: Batch
    left_at: I64
    right: Batch
    right_at: I64
    weights: I64
    reads: tuple[tuple[int, str, str], ...]

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.weights)

    def column(self, name: str) -> pa.Array:
        """Return a column that the condition reads, with one value per pair."""
        side, own = next((side, own) for side, own, out in self.reads if out == name)
        return gather(self.right.column(own), self.right_at) if side else gather(self.left.column(own), self.left_at)

    def take(self, rows: I64) -> _Pairs:
        """Return the pairs at the given indices."""
        return replace(self, left_at=self.left_at[rows], right_at=self.right_at[rows], weights=self.weights[rows])

    def of(self, side: int) -> Batch:
        """Return the rows of a side, each with the weight of its pair."""
        rows, at = (self.right, self.right_at) if side else (self.left, self.left_at)
        return rows.take(at).with_weights(self.weights)


@stored("ConditionalJoin", "shape how where reads interval")
@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionalJoin(Operator):
    """Join two inputs by key and by a further condition.

    `how` is a kind of SQL join, or semi or anti. `reads` lists the condition's columns and the keys: (side, column, name).
    """

    depends_on_time: ClassVar[Time] = Time.NOTHING
    shape: JoinShape
    how: str
    where: Expression | None = None
    reads: tuple[tuple[int, str, str], ...] = ()
    interval: TimeInterval | None = None

    def __str__(self) -> str:
        """Return the kind of join with its keys and its condition."""
        also = [str(part) for part in (self.interval, self.where) if part is not None]
        return f"{self.how} join {self.shape} where {' and '.join(also)}"

    @property
    def preserved(self) -> tuple[int, ...]:
        """Return the sides whose rows carry p, the summed weights of their pairs."""
        return PRESERVED[self.how]

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangements of the left and the right side; a preserved side has a second weight for p."""
        shape = self.shape
        return tuple(
            Arrangement(
                schema=shape.side(side),
                key=shape.on(side),
                order=() if self.interval is None else (OrderBy(self.interval.on(side)),),
                weights=2 if side in self.preserved else 1,
            )
            for side in (0, 1)
        )

    def integrals(self) -> tuple[Integral | None, ...]:
        """Return the integrals of the sides whose rows do not carry p; None for a preserved side."""
        times = [() if self.interval is None else (self.interval.on(side),) for side in (0, 1)]
        sides = [self.shape.integral(side, *times[side]) for side in (0, 1)]
        return tuple(None if side in self.preserved else sides[side] for side in (0, 1))

    def monotone_bounds(self, inputs: Sequence[MonotoneBounds]) -> MonotoneBounds:
        """Return the bounds of the output's keys and, with an interval, of its times.

        An output row changes only if its key has a changed row, and only within the interval around a changed row.
        """
        found = dict(self.shape.monotone_bounds(inputs))
        times = self._times(inputs)
        if self.interval is not None and times is not None:
            at = {(side, self.interval.on(side)): times[side] for side in (0, 1)}
            found |= {out: at[side, name] for side, name, out in self.shape.columns if (side, name) in at}
        return found

    def closing(self, inputs: Sequence[MonotoneBounds]) -> tuple[tuple[str, Bound] | None, ...]:
        """Return the columns and bounds below which stored rows are never read again.

        They are closed keys, or times too old for any later row of either side.
        """
        times = self._times(inputs)
        if self.interval is None or times is None:
            return self.shape.closing(inputs)
        return (self.interval.left, times[0]), (self.interval.right, times[1])

    def _times(self, inputs: Sequence[MonotoneBounds]) -> tuple[Bound, Bound] | None:
        """Return for each side the time below which no pair and no row changes again; None if there is no such bound."""
        span = self.interval
        if span is None or span.lower is None or span.upper is None:
            return None
        if any(span.on(side) not in inputs[side] for side in (0, 1)):
            return None
        bounds = []
        for side, before in ((0, span.upper), (1, -span.lower)):
            name, type_ = span.on(1 - side), self.shape.side(1 - side)[span.on(1 - side)].type
            if not pa.types.is_timestamp(type_):
                return None
            moved = resolve(unwrap(col(name) - datetime.timedelta(microseconds=before)), self.shape.side(1 - side))
            bound = bound_of(moved, inputs[1 - side])
            if bound is None:
                return None
            bounds.append(merged([inputs[side][span.on(side)], bound]))
        return bounds[0], bounds[1]

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:
        """Return the changes of the pairs and of the unmatched rows."""
        shape, arrangements = self.shape, self.arrangements()
        deltas, made = [], []
        for side, batch in enumerate(inputs):
            times = () if self.interval is None else (self.interval.on(side),)
            able, lonely = shape.meeting(batch, side, *times)
            if side in self.preserved and self.how != "semi" and len(lonely):
                made.append(shape.alone(lonely, side, lonely.weight))
            deltas.append(arrange(_wide(able, arrangements[side].weights), arrangements[side]))
        left, right = deltas
        pairs = [
            *self._pairs(left, state.spine(1).with_batch(right), 0),
            *self._pairs(right, state.spine(0), 1),
        ]
        pairs = self._true(context, pairs)
        if self.how not in ("semi", "anti"):
            made += [shape.paired(p.left, p.left_at, p.right, p.right_at, p.weights) for p in pairs]
        for side in (0, 1):
            if side in self.preserved:
                made.append(self._alone(state, side, deltas[side], pairs, arrangements[side]))
            elif len(deltas[side]):
                state.append(side, deltas[side])
        return concat(made, shape.schema)

    def _pairs(self, delta: Batch, spine: Spine, side: int) -> list[_Pairs]:
        """Return the pairs of the changed rows of a side with the other side: an empty list or one element."""
        if len(delta) == 0:
            return []
        if self.interval is None or delta.order_code is None:
            query, found = spine.matches(delta.words[0])
        else:
            query, found = spine.ranges(delta.words[0], *self.interval.window(delta.order_code, side))
        query, found = self.shape.same_key(delta, query, found, side)
        weights = product(delta.weights[query, 0], np.ascontiguousarray(found.weights[:, 0]))
        there = np.flatnonzero(weights)
        at, query, weights = there, query[there], weights[there]
        left, left_at, right, right_at = (delta, query, found, at) if side == 0 else (found, at, delta, query)
        return [_Pairs(left=left, left_at=left_at, right=right, right_at=right_at, weights=weights, reads=self.reads)]

    def _true(self, context: StepContext, pairs: list[_Pairs]) -> list[_Pairs]:
        """Return the pairs that satisfy the condition, and report those on which the condition fails.

        Equal failures are consolidated, so that the report does not depend on how the rows are stored.
        """
        where = self.where
        if where is None:
            return pairs
        kept: list[_Pairs] = []
        failed: dict[str, list[Batch]] = {}
        for some in pairs:
            held, reasons = evaluated(where, some)
            kept.append(some.take(np.flatnonzero(held)))
            if reasons and context.error_policy != "null":
                for row, reason in reasons.items():
                    failed.setdefault(reason, []).append(self._content(some.take(np.array([row]))))
        for reason, rows in sorted(failed.items()):
            note(context, concat(rows), reason)
        return kept

    def _content(self, pairs: _Pairs) -> Batch:
        """Return the pairs as the dead-letter log shows them."""
        schema = Schema(tuple(replace(self.shape.side(side)[own], name=out) for side, own, out in self.reads))
        columns = tuple(pairs.column(out) for _, _, out in self.reads)
        return Batch(schema=schema, columns=columns, weights=pairs.weights.reshape(-1, 1))

    def _alone(self, state: State, side: int, delta: Batch, pairs: list[_Pairs], arrangement: Arrangement) -> Batch:
        """Return the change of a side's unmatched rows, or of its matched rows for a semi join."""
        came = [_wide(some.of(side), 2, place=1, of=some.weights) for some in pairs]
        touched = arrange(concat([delta.loose(), *came], arrangement.schema), arrangement)
        if len(touched) == 0:
            return Batch.empty(self.shape.schema)
        old = state.spine(side).sums(touched)
        state.append(side, touched)
        change = self._member(checked_sum(old, touched.weights)) - self._member(old)
        return self.shape.alone(touched, side, change)

    def _member(self, weights: I64) -> I64:
        """Return how often each row is in the output apart from its pairs, given its weight and p."""
        paired = weights[:, 1] > 0
        return np.where(paired if self.how == "semi" else ~paired, weights[:, 0], 0)


def _wide(rows: Batch, count: int, place: int = 0, of: I64 | None = None) -> Batch:
    """Return the rows with `count` weights each: the given weight at index `place`, zero elsewhere."""
    weights = np.zeros((len(rows), count), np.int64)
    weights[:, place] = rows.weight if of is None else of
    return Batch(schema=rows.schema, columns=rows.columns, weights=weights)


def evaluated(where: Expression, rows: _Pairs) -> tuple[Mask, dict[int, str]]:
    """Return the mask of the pairs for which the condition is true, and the error text of each pair on which it fails."""
    reasons: dict[int, str] = {}
    try:
        values = where.evaluate(rows)
    except ROW_ERRORS:
        values, reasons = outcomes(where, rows)
    return values.fill_null(False).to_numpy(zero_copy_only=False), reasons


def note(context: StepContext, rows: Batch, reason: str) -> None:
    """Report failed pairs after consolidation, so that the report does not depend on how the rows are stored."""
    rows = consolidate(rows)
    report(context, rows, rows.schema.names, rows.weight, dict.fromkeys(range(len(rows)), reason))
