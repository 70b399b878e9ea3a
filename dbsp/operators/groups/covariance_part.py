"""Covariances, correlations and regression lines: exact sums of the products of pairs in bins, rounded when shown.

**Law** after any insertions and retractions each result is a function of the pairs that remain. From the exact sums of n pairs
four differences are computed as whole numbers and rounded once:

    n XY - X Y, n XX - X X, n YY - Y Y, Y XX - X XY

A covariance is the nearest float. The other results are made of at most three such numbers; they are a few units in the last
place from the true value. Infinities and NaN make a result NaN until they are retracted.

**State** per group and bin (`dbsp.zset.kernels.variances`) one row with five integers; typical data touches four to twelve
bins a group.

**Limit** 2**27 pairs of one bin and group, and weights below 2**29: a `CapacityError` beyond.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp.errors import CapacityError
from dbsp.operators.columns import column_of
from dbsp.operators.groups.binned_part import BinnedPart, Sums, by_bin
from dbsp.operators.groups.float_part import float_bits
from dbsp.operators.groups.part import Positions, Values, key_columns
from dbsp.operators.keyed_runs import keyed_runs
from dbsp.stored import stored
from dbsp.zset.arrays import canonical_floats, from_values, gather, valid_rows
from dbsp.zset.batch import Batch
from dbsp.zset.kernels import OVERFLOW_HINT, partition_by, variances
from dbsp.zset.schema import FLOAT64, INT16, Arrangement, Schema

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
_SUMS = 5
_BINS_OF_A_PAIR = 32
_XY, _XX, _YY, _INTERCEPT = range(4)


@stored("PairForm", "keys x y")
@dataclass(frozen=True, slots=True, kw_only=True)
class PairForm:
    """The form in which pairs are summed: one row per group and bin, with parts of five sums.

    The sums are of x, y, x x, y y and x y. Rows with a null in either column are left out.
    """

    keys: Schema
    x: str
    y: str

    def __str__(self) -> str:
        """Return the two columns and the keys as text."""
        return f"bins of {self.x}, {self.y} and their products by ({', '.join(self.keys.names)})"

    def arrangement(self) -> Arrangement:
        """Return the arrangement by group."""
        return by_bin(self.keys, _SUMS)

    def of(self, batch: Batch) -> Batch:
        """Split the pairs of each group over bins; return one row per group and bin, with its sums as weights."""
        keys = key_columns(batch, self.keys.names)
        runs = keyed_runs(keys, np.zeros(len(batch), np.uint64))
        room = 1 + int(np.minimum(runs.lengths * _BINS_OF_A_PAIR, variances.SLOTS).sum())
        group, bins, sums = np.empty(room, np.int64), np.empty(room, np.int16), np.empty((room, _SUMS), np.int64)
        columns = [batch.column(name) for name in (self.x, self.y)]
        valid = np.ones(len(batch), np.bool_)
        for column in columns:
            some = valid_rows(column)
            valid = valid if some is None else valid & some
        x, y = (number_bits(column) for column in columns)
        weight = np.ascontiguousarray(batch.weight)
        count = variances.pair_bins(x, y, valid, weight, runs.order, runs.starts, group, bins, sums)
        if count < 0:
            raise CapacityError("a covariance overflows its bins: weight_max=536870912", OVERFLOW_HINT)
        rows = runs.order[runs.starts[group[:count]]]
        made = (*(gather(key, rows) for key in keys), from_values(bins[:count], INT16))
        return Batch(schema=self.arrangement().schema, columns=made, weights=sums[:count])


def number_bits(column: pa.Array) -> Sums:
    """Return numbers of any type as the bits of the nearest 64-bit floats; nulls give any bits."""
    if not pa.types.is_floating(column.type):
        column = column.cast(FLOAT64, safe=False)
    return float_bits(column)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairMoments:
    """The moments from which all functions of one pair of columns are computed, one entry per group.

    `found[j]` times 2**`exponents[j]` are the four differences; `special` marks where x or y has infinities or NaN.
    """

    count: Sums
    special: Sums
    found: Floats
    exponents: Sums
    covariances: Floats

    @staticmethod
    def room(groups: int) -> PairMoments:
        """Return moments whose arrays are allocated and not yet filled."""
        return PairMoments(
            count=np.empty(groups, np.int64), special=np.empty((groups, 2), np.int64),
            found=np.empty((groups, variances.MOMENTS)), exponents=np.empty((groups, variances.MOMENTS), np.int64),
            covariances=np.empty((groups, 2)),
        )  # fmt: skip

    def parts(self) -> tuple[Sums, Sums, Floats, Sums, Floats]:
        """Return the arrays in the order in which a kernel fills them."""
        return self.count, self.special, self.found, self.exponents, self.covariances

    def above(self, which: int) -> Mask:
        """Return the mask of the groups in which a difference is positive."""
        return np.asarray(self.found[:, which] > 0)

    def ratio(self, numerators: tuple[int, ...], denominators: tuple[int, ...], root: bool = False) -> Floats:
        """Return the product of some differences, divided by the product of others or, with `root`, by its square root.

        The result is 0 where the divisor is not positive.
        """
        above = np.prod(self.found[:, numerators], axis=1)
        below = np.prod(self.found[:, denominators], axis=1)
        exponent = self.exponents[:, numerators].sum(axis=1)
        shift = self.exponents[:, denominators].sum(axis=1)
        valid = below > 0
        below, shift = (np.sqrt(np.maximum(below, 0)), shift // 2) if root else (below, shift)
        quotient = np.divide(above, below, out=np.zeros(len(above)), where=valid)
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(np.ldexp(quotient, exponent - shift))


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFunction:
    """A function of pairs: its formula, the indices of the differences that SQL divides by, and its least number of pairs."""

    values: Callable[[PairMoments], Floats]
    divisors: tuple[int, ...] = ()
    pairs_min: int = 1


FUNCTIONS = {
    "covar_pop": PairFunction(values=lambda of: of.covariances[:, 0]),
    "covar_samp": PairFunction(values=lambda of: of.covariances[:, 1], pairs_min=2),
    "corr": PairFunction(
        values=lambda of: np.clip(of.ratio((_XY,), (_XX, _YY), root=True), -1, 1), divisors=(_XX, _YY)
    ),
    "regr_r2": PairFunction(
        values=lambda of: np.where(of.above(_YY), np.clip(of.ratio((_XY, _XY), (_XX, _YY)), 0, 1), 1.0),
        divisors=(_XX,),
    ),
    "regr_slope": PairFunction(values=lambda of: of.ratio((_XY,), (_XX,)), divisors=(_XX,)),
    "regr_intercept": PairFunction(values=lambda of: of.ratio((_INTERCEPT,), (_XX,)), divisors=(_XX,)),
}
"""Every function of pairs that is computed from the moments, under its SQL name."""


@stored("PairCall", "name text function")
@dataclass(frozen=True, slots=True, kw_only=True)
class PairCall:
    """An aggregate of pairs, with its SQL name."""

    name: str
    text: str
    function: str

    def column(self, of: PairMoments) -> pa.Array:
        """Return the results; null with too few pairs, or where SQL divides by a variance of zero; NaN from special values."""
        function = FUNCTIONS[self.function]
        special = (of.special != 0).any(axis=1)
        defined = np.logical_and.reduce([np.ones(len(special), np.bool_), *map(of.above, function.divisors)])
        values = np.where(special, np.nan, function.values(of))
        valid = (of.count >= function.pairs_min) & (defined | special)
        return canonical_floats(column_of(values, valid, FLOAT64))


@stored("CovariancePart", "bins calls")
@dataclass(frozen=True, slots=True, kw_only=True)
class CovariancePart(BinnedPart):
    """All aggregates of one pair of columns."""

    bins: PairForm
    calls: tuple[PairCall, ...]

    def __str__(self) -> str:
        """Return the aggregates as text."""
        return ", ".join(f"{call.name} = {call.text}" for call in self.calls)

    def _values(self, groups: int, group: Positions, bins: npt.NDArray[Any], sums: Sums) -> Values:
        """Return the output columns, computed from (group, bin) rows in any order."""
        order, offsets = partition_by(group, groups)
        made = PairMoments.room(groups)
        rows = np.ascontiguousarray(bins), np.ascontiguousarray(sums)
        if not variances.bin_moments(order, offsets, *rows, *made.parts()):
            raise CapacityError("a covariance overflows its bins: rows_max=134217728", OVERFLOW_HINT)
        return Values(columns=tuple(call.column(made) for call in self.calls))
