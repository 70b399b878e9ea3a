"""Aggregates computed from sums of measures: counts, sums and means.

The first measure counts the values. The second measure has the limbs of their sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp.operators.columns import column_of
from dbsp.operators.groups.limbs import fits_decimal, fits_int64, joined, nearest_quotients, quotients
from dbsp.stored import stored
from dbsp.zset.arrays import from_values

Sums = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@stored("Counted")
@dataclass(frozen=True, slots=True)
class Counted:
    """Count aggregate: the summed measure is the count."""

    def __str__(self) -> str:
        """Return the aggregate's name."""
        return "count"

    def column(self, sums: Sequence[Sums], type_: pa.DataType) -> tuple[pa.Array, Mask | None]:
        """Return the counts as a column; no count fails."""
        return from_values(np.ascontiguousarray(sums[0][:, 0]), type_), None


@stored("Summed")
@dataclass(frozen=True, slots=True)
class SumOfLimbs:
    """Sum aggregate, joined from limbs; a sum that does not fit its type fails."""

    def __str__(self) -> str:
        """Return the aggregate's name."""
        return "sum"

    def column(self, sums: Sequence[Sums], type_: pa.DataType) -> tuple[pa.Array, Mask | None]:
        """Return the sums, null for groups without values, and the mask of the groups whose sum does not fit."""
        valid = sums[0][:, 0] != 0
        low, high, fits = joined(sums[1])
        if pa.types.is_decimal(type_):
            fits &= fits_decimal(low, high)
            words: npt.NDArray[np.uint64] = np.column_stack([low, high.view(np.uint64)])
            return column_of(words, valid & fits, type_), valid & ~fits
        fits &= fits_int64(low, high)
        return column_of(low.view(np.int64), valid & fits, type_), valid & ~fits


def held_by(function: str, set_: Sums, count: Sums) -> Mask:
    """Return whether a bit of the result is set, given how many of `count` values have the bit.

    All values must have it for `and`, any value for `or`, an odd number of values for `xor`.
    """
    match function:
        case "and":
            return np.asarray(set_ == count)
        case "or":
            return np.asarray(set_ != 0)
        case _:
            return np.asarray((set_ & 1) != 0)


@stored("Averaged", "scale")
@dataclass(frozen=True, slots=True)
class Averaged:
    """Mean aggregate: a float64 for numbers with `scale` decimal places, the nearest duration for durations."""

    scale: int

    def __str__(self) -> str:
        """Return the aggregate's name."""
        return "avg"

    def column(self, sums: Sequence[Sums], type_: pa.DataType) -> tuple[pa.Array, Mask | None]:
        """Return the means, null for groups without values, and the mask of the groups whose sum does not fit."""
        count = np.ascontiguousarray(sums[0][:, 0])
        valid = count != 0
        low, high, fits = joined(sums[1])
        divisors = np.where(valid, count, 1)
        if pa.types.is_duration(type_):
            return column_of(nearest_quotients(low, high, divisors), valid & fits, type_), valid & ~fits
        means = quotients(low, high, divisors, self.scale)
        return column_of(means, valid & fits, type_), valid & ~fits
