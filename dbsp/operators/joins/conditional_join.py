"""Conditional join: an equi-join whose pairs must meet a further condition, or lie within a span of time of each other.

**Law** the pairs are those of the join for which the condition is true. A preserved row is alone where no pair of it is: with
p(r) the summed weights of the pairs of row r, a change of either side changes p by the weights of the changed pairs alone.

**State** both sides by key, with the columns that are needed; beside the weight of a row of a side that may be alone, p(r). Where
times are compared, a key's rows are sorted by them.

**Cost** per changed row one look-up in the other side: all rows of its key, or those within the span; the condition on each of
these pairs; and a look-up for every row whose p changes.

**Errors** a pair on which the condition fails is noted by the error policy and is no pair; it is noted again, with the opposite
weight, when it goes.
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
    """lower <= right time - left time <= upper; None is no bound."""

    left: str
    right: str
    lower: int | None
    upper: int | None

    def __str__(self) -> str:
        """As a reader would write it."""
        return f"{self.right} - {self.left} in [{self.lower}, {self.upper}]"

    def on(self, side: int) -> str:
        """The time of a side."""
        return self.right if side else self.left

    def window(self, codes: U64, side: int) -> tuple[U64, U64]:
        """Which codes on the other side each time of a side meets, first and last."""
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
    """The codes so much further, stopped at the ends; which of them were."""
    step = np.uint64(min(abs(by), int(LAST)))
    if by >= 0:
        beyond = codes > LAST - step
        return np.where(beyond, LAST, codes + step), beyond
    beyond = codes < step
    return np.where(beyond, FIRST, codes - step), beyond


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pairs:
    """Rows of both sides, place by place, and the weight of each pair; columns are gathered when they are read."""

    left: Batch
    left_at: I64
    right: Batch
    right_at: I64
    weights: I64
    reads: tuple[tuple[int, str, str], ...]

    def __len__(self) -> int:
        """How many pairs there are."""
        return len(self.weights)

    def column(self, name: str) -> pa.Array:
        """A column of the condition."""
        side, own = next((side, own) for side, own, out in self.reads if out == name)
        return gather(self.right.column(own), self.right_at) if side else gather(self.left.column(own), self.left_at)

    def take(self, rows: I64) -> _Pairs:
        """Some of them."""
        return replace(self, left_at=self.left_at[rows], right_at=self.right_at[rows], weights=self.weights[rows])

    def of(self, side: int) -> Batch:
        """The rows of a side, each with the weight of its pair."""
        rows, at = (self.right, self.right_at) if side else (self.left, self.left_at)
        return rows.take(at).with_weights(self.weights)


@stored("ConditionalJoin", "shape how where reads interval")
@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionalJoin(Operator):
    """`how` as in SQL, or semi or anti; `reads` are the condition's columns and the keys: (side, column, name)."""

    depends_on_time: ClassVar[Time] = Time.NOTHING
    shape: JoinShape
    how: str
    where: Expression | None = None
    reads: tuple[tuple[int, str, str], ...] = ()
    interval: TimeInterval | None = None

    def __str__(self) -> str:
        """What stays, the keys, the condition."""
        also = [str(part) for part in (self.interval, self.where) if part is not None]
        return f"{self.how} join {self.shape} where {' and '.join(also)}"

    @property
    def preserved(self) -> tuple[int, ...]:
        """The sides whose rows carry p."""
        return PRESERVED[self.how]

    def arrangements(self) -> tuple[Arrangement, ...]:
        """The left side, the right side."""
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
        """The sides whose rows do not carry p."""
        times = [() if self.interval is None else (self.interval.on(side),) for side in (0, 1)]
        sides = [self.shape.integral(side, *times[side]) for side in (0, 1)]
        return tuple(None if side in self.preserved else sides[side] for side in (0, 1))

    def monotone_bounds(self, inputs: Sequence[MonotoneBounds]) -> MonotoneBounds:
        """Only keys change of which a row changes, and times within the span of a changed row."""
        found = dict(self.shape.monotone_bounds(inputs))
        times = self._times(inputs)
        if self.interval is not None and times is not None:
            at = {(side, self.interval.on(side)): times[side] for side in (0, 1)}
            found |= {out: at[side, name] for side, name, out in self.shape.columns if (side, name) in at}
        return found

    def closing(self, inputs: Sequence[MonotoneBounds]) -> tuple[tuple[str, Bound] | None, ...]:
        """Closed keys, or times too old for what may still come on either side."""
        times = self._times(inputs)
        if self.interval is None or times is None:
            return self.shape.closing(inputs)
        return (self.interval.left, times[0]), (self.interval.right, times[1])

    def _times(self, inputs: Sequence[MonotoneBounds]) -> tuple[Bound, Bound] | None:
        """For each side the time below which no pair and no row changes any more."""
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
        """The pairs and the rows alone that came and went."""
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
        """The pairs of changed rows with the other side; none or one."""
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
        """The pairs that meet the condition; those on which it fails are noted, added up over how they are stored."""
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
        """The pairs as dead letters show them."""
        schema = Schema(tuple(replace(self.shape.side(side)[own], name=out) for side, own, out in self.reads))
        columns = tuple(pairs.column(out) for _, _, out in self.reads)
        return Batch(schema=schema, columns=columns, weights=pairs.weights.reshape(-1, 1))

    def _alone(self, state: State, side: int, delta: Batch, pairs: list[_Pairs], arrangement: Arrangement) -> Batch:
        """The rows of a side that are now alone, or no longer; for a semi join those with a pair."""
        came = [_wide(some.of(side), 2, place=1, of=some.weights) for some in pairs]
        touched = arrange(concat([delta.loose(), *came], arrangement.schema), arrangement)
        if len(touched) == 0:
            return Batch.empty(self.shape.schema)
        old = state.spine(side).sums(touched)
        state.append(side, touched)
        change = self._member(checked_sum(old, touched.weights)) - self._member(old)
        return self.shape.alone(touched, side, change)

    def _member(self, weights: I64) -> I64:
        """How often a row is in the answer beside its pairs."""
        paired = weights[:, 1] > 0
        return np.where(paired if self.how == "semi" else ~paired, weights[:, 0], 0)


def _wide(rows: Batch, count: int, place: int = 0, of: I64 | None = None) -> Batch:
    """The rows with so many weights, theirs in one place."""
    weights = np.zeros((len(rows), count), np.int64)
    weights[:, place] = rows.weight if of is None else of
    return Batch(schema=rows.schema, columns=rows.columns, weights=weights)


def evaluated(where: Expression, rows: _Pairs) -> tuple[Mask, dict[int, str]]:
    """On which rows a condition is true, and why it failed on others."""
    reasons: dict[int, str] = {}
    try:
        values = where.evaluate(rows)
    except ROW_ERRORS:
        values, reasons = outcomes(where, rows)
    return values.fill_null(False).to_numpy(zero_copy_only=False), reasons


def note(context: StepContext, rows: Batch, reason: str) -> None:
    """Note failed rows, equal ones added up: how they are stored is nobody's business."""
    rows = consolidate(rows)
    report(context, rows, rows.schema.names, rows.weight, dict.fromkeys(range(len(rows)), reason))
