"""Variances of floats: exact sums of values and of squares in bins, divided and rounded once when shown.

**Law** after any insertions and retractions a variance is, to the bit, the nearest float to the true variance of the values
that remain. A standard deviation is its square root. Infinities and NaN make it NaN until they are retracted.

**State** per group and bin (`dbsp.zset.kernels.variances`) one row with two integers; typical data touches three to eight
bins a group.

**Limit** 2**28 rows of one bin and group, and weights below 2**29: a `CapacityError` beyond.
"""

from __future__ import annotations

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
from dbsp.zset.schema import INT16, Arrangement, Schema


@stored("VarianceForm", "keys column")
@dataclass(frozen=True, slots=True, kw_only=True)
class VarianceForm:
    """The form in which variances are summed: one row per group and bin, with parts of the sums of values and of squares.

    Each bin has a fixed binary exponent and a whole-number sum, so insertions and retractions cancel exactly.
    """

    keys: Schema
    column: str

    def __str__(self) -> str:
        """Return the column and the keys as text."""
        return f"bins of {self.column} and its square by ({', '.join(self.keys.names)})"

    def arrangement(self) -> Arrangement:
        """Return the arrangement by group."""
        return by_bin(self.keys, 2)

    def of(self, batch: Batch) -> Batch:
        """Split the values of each group over bins; return one row per group and bin, with its sums as weights."""
        keys = key_columns(batch, self.keys.names)
        runs = keyed_runs(keys, np.zeros(len(batch), np.uint64))
        room = 1 + int(np.minimum(runs.lengths * 16, variances.SLOTS).sum())
        group, bins, sums = np.empty(room, np.int64), np.empty(room, np.int16), np.empty((room, 2), np.int64)
        array = batch.column(self.column)
        valid = valid_rows(array)
        valid = np.ones(len(array), np.bool_) if valid is None else valid
        weight = np.ascontiguousarray(batch.weight)
        count = variances.square_bins(float_bits(array), valid, weight, runs.order, runs.starts, group, bins, sums)
        if count < 0:
            raise CapacityError("a variance of floats overflows its bins: weight_max=536870912", OVERFLOW_HINT)
        rows = runs.order[runs.starts[group[:count]]]
        columns = (*(gather(key, rows) for key in keys), from_values(bins[:count], INT16))
        return Batch(schema=self.arrangement().schema, columns=columns, weights=sums[:count])


@stored("VarianceCall", "name text less root")
@dataclass(frozen=True, slots=True, kw_only=True)
class VarianceCall:
    """An aggregate: a variance, or with `root` a standard deviation.

    `less` is the number by which the divisor is below the count: 0 for a population, 1 for a sample.
    """

    name: str
    text: str
    less: int
    root: bool

    def column(self, variance: npt.NDArray[np.float64], count: Sums) -> pa.Array:
        """Return the output column of all groups; null if a group has at most `less` values."""
        values = np.sqrt(variance) if self.root else variance
        return canonical_floats(column_of(values, count > self.less, pa.float64()))


@stored("VariancePart", "bins calls")
@dataclass(frozen=True, slots=True, kw_only=True)
class VariancePart(BinnedPart):
    """All variances of one float column."""

    bins: VarianceForm
    calls: tuple[VarianceCall, ...]

    def __str__(self) -> str:
        """Return the aggregates as text."""
        return ", ".join(f"{call.name} = {call.text}" for call in self.calls)

    def _values(self, groups: int, group: Positions, bins: npt.NDArray[Any], sums: Sums) -> Values:
        """Return the output columns, computed from (group, bin) rows in any order."""
        order, offsets = partition_by(group, groups)
        made: dict[int, tuple[npt.NDArray[np.float64], Sums]] = {}
        for call in self.calls:
            if call.less in made:
                continue
            result, count = np.empty(groups, np.float64), np.empty(groups, np.int64)
            if not variances.bin_variances(order, offsets, np.ascontiguousarray(bins), sums, call.less, result, count):
                raise CapacityError("a variance of floats overflows its bins: rows_max=268435456", OVERFLOW_HINT)
            made[call.less] = result, count
        return Values(columns=tuple(call.column(*made[call.less]) for call in self.calls))
