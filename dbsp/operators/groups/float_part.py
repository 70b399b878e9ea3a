"""Sums and means of floats that never drift: bins of integers per group, rounded once when shown.

**Law** after any insertions and retractions the sum is, to the bit, `math.fsum` of the values that remain. Infinities and NaN
are counted, so a sum is finite again when all of them are retracted.

**State** per group and bin (`dbsp.zset.kernels.floats`) one row with an integer per column; typical data touches two to four
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
from dbsp.operators.groups.part import Positions, Values, key_columns
from dbsp.operators.keyed_runs import keyed_runs
from dbsp.stored import stored
from dbsp.zset.arrays import canonical_floats, from_values, gather, valid_rows, value_view
from dbsp.zset.batch import Batch
from dbsp.zset.kernels import OVERFLOW_HINT, floats, partition_by
from dbsp.zset.schema import INT16, Arrangement, Schema


@stored("FloatForm", "keys columns")
@dataclass(frozen=True, slots=True, kw_only=True)
class FloatForm:
    """The form in which floats are summed: one row per group and bin, with a part of the sum of each float column.

    Each bin has a fixed binary exponent and a whole-number sum, so insertions and retractions cancel exactly.
    """

    keys: Schema
    columns: tuple[str, ...]

    def __str__(self) -> str:
        """Return the columns and the keys as text."""
        return f"bins of {', '.join(self.columns)} by ({', '.join(self.keys.names)})"

    def arrangement(self) -> Arrangement:
        """Return the arrangement by group."""
        return by_bin(self.keys, len(self.columns))

    def of(self, batch: Batch) -> Batch:
        """Split the values of each group over bins; return one row per group and bin, with its sums as weights."""
        keys = key_columns(batch, self.keys.names)
        runs = keyed_runs(keys, np.zeros(len(batch), np.uint64))
        room = 1 + int(np.minimum(runs.lengths * 4 * len(self.columns), floats.SLOTS).sum())
        group, bins, sums = (
            np.empty(room, np.int64),
            np.empty(room, np.int16),
            np.empty((room, len(self.columns)), np.int64),
        )
        values = np.stack([float_bits(batch.column(name)) for name in self.columns])
        valid = np.stack([_valid(batch.column(name)) for name in self.columns])
        weight = np.ascontiguousarray(batch.weight)
        count = floats.sum_bins(values, valid, weight, runs.order, runs.starts, group, bins, sums)
        if count < 0:
            raise CapacityError("a sum of floats overflows its bins: weight_max=536870912", OVERFLOW_HINT)
        rows = runs.order[runs.starts[group[:count]]]
        columns = (*(gather(key, rows) for key in keys), from_values(bins[:count], INT16))
        return Batch(schema=self.arrangement().schema, columns=columns, weights=sums[:count])


def float_bits(array: pa.Array) -> Sums:
    """Return the values of a float column as the bits of 64-bit floats."""
    return np.ascontiguousarray(value_view(array).astype(np.float64)).view(np.int64)


def _valid(array: pa.Array) -> npt.NDArray[np.bool_]:
    valid = valid_rows(array)
    return np.ones(len(array), np.bool_) if valid is None else valid


@stored("FloatCall", "name function column")
@dataclass(frozen=True, slots=True)
class FloatCall:
    """An aggregate: the sum or the mean of a column of the form."""

    name: str
    function: str
    column: int


@stored("FloatPart", "bins calls")
@dataclass(frozen=True, slots=True, kw_only=True)
class FloatPart(BinnedPart):
    """All sums and means of floats of one group-by."""

    bins: FloatForm
    calls: tuple[FloatCall, ...]

    def __str__(self) -> str:
        """Return the aggregates as text."""
        return ", ".join(f"{call.name} = {call.function}({self.bins.columns[call.column]})" for call in self.calls)

    def _values(self, groups: int, group: Positions, bins: npt.NDArray[Any], sums: Sums) -> Values:
        """Return the output columns, computed from (group, bin) rows in any order."""
        order, offsets = partition_by(group, groups)
        bins, columns = np.ascontiguousarray(bins), []
        for call in self.calls:
            total, count = np.empty(groups, np.float64), np.empty(groups, np.int64)
            own, mean = np.ascontiguousarray(sums[:, call.column]), call.function == "avg"
            if not floats.round_bins(order, offsets, bins, own, mean, total, count):
                raise CapacityError("a sum of floats overflows its bins: rows_max=268435456", OVERFLOW_HINT)
            columns.append(canonical_floats(column_of(total, count != 0, pa.float64())))
        return Values(columns=tuple(columns))
