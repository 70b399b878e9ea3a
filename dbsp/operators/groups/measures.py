"""The measures that rows add to the sums of their group.

They are counts of values, of true values and of set bits, and limbs of numbers and of squares.

**Law** linear: a row's measure times its weight is summed in 64-bit integers, with a check; limbs make the sums exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp.operators.groups.limbs import split, squares
from dbsp.operators.joins.products import product
from dbsp.stored import stored
from dbsp.zset.arrays import bool_values, valid_rows, value_view
from dbsp.zset.batch import Batch
from dbsp.zset.kernels import add_by_group, add_halves
from dbsp.zset.schema import INT64
from dbsp.zset.sorted_keys import KeyGroups

Sums = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@stored("Valid", "column")
@dataclass(frozen=True, slots=True)
class Valid:
    """Measure 1 for a row whose column is not null."""

    column: str

    def __str__(self) -> str:
        """Return the measure as a count."""
        return f"count({self.column})"

    @property
    def slots(self) -> int:
        """Return 1: a count needs one accumulator slot."""
        return 1

    def of(self, batch: Batch) -> list[Sums]:
        """Return the weight of rows with a value, 0 for others."""
        valid = self.marked(batch)
        return [batch.weight if valid is None else np.where(valid, batch.weight, 0)]

    def marked(self, batch: Batch) -> Mask | None:
        """Return the mask of the rows with a value; None if all have one."""
        return valid_rows(batch.column(self.column))


@stored("Limbs", "column slots")
@dataclass(frozen=True, slots=True)
class Limbs:
    """Measure that consists of the limbs of a whole number."""

    column: str
    slots: int

    def __str__(self) -> str:
        """Return the measure as a sum."""
        return f"sum({self.column})"

    def of(self, batch: Batch) -> list[Sums]:
        """Return the limbs times the weights."""
        weight = batch.weight
        return [product(limb, weight) for limb in split(batch.column(self.column))]

    def by_group(self, batch: Batch, groups: KeyGroups) -> list[Sums]:
        """Return the limbs times the weights, added up by group."""
        array = batch.column(self.column)
        if array.type == INT64 and not array.null_count:
            return list(add_halves(value_view(array), batch.weight, groups.of, len(groups)))
        return added_up(self.of(batch), groups)


@stored("Squares", "column slots")
@dataclass(frozen=True, slots=True)
class Squares:
    """Measure that consists of the limbs of a whole number's square."""

    column: str
    slots: int

    def __str__(self) -> str:
        """Return the measure as a sum of squares."""
        return f"sum({self.column}^2)"

    def of(self, batch: Batch) -> list[Sums]:
        """Return the limbs of the squares times the weights."""
        weight = batch.weight
        return [product(limb, weight) for limb in squares(batch.column(self.column))]

    def by_group(self, batch: Batch, groups: KeyGroups) -> list[Sums]:
        """Return the limbs of the squares times the weights, added up by group."""
        return added_up(self.of(batch), groups)


@stored("Trues", "column")
@dataclass(frozen=True, slots=True)
class Trues:
    """Measure 1 for a row whose boolean column is true."""

    column: str

    def __str__(self) -> str:
        """Return the measure as a count of true values."""
        return f"count_true({self.column})"

    @property
    def slots(self) -> int:
        """Return 1: a count needs one accumulator slot."""
        return 1

    def of(self, batch: Batch) -> list[Sums]:
        """Return the weight of rows that are true, 0 for others."""
        return [np.where(self.marked(batch), batch.weight, 0)]

    def marked(self, batch: Batch) -> Mask:
        """Return the mask of the rows that are true."""
        array = batch.column(self.column)
        true, valid = bool_values(array), valid_rows(array)
        return true if valid is None else true & valid


@stored("Bits", "column slots")
@dataclass(frozen=True, slots=True)
class Bits:
    """Measure with one slot per bit of an integer, 1 where the bit is set; the lowest bit first."""

    column: str
    slots: int

    def __str__(self) -> str:
        """Return the measure as counts of bits."""
        return f"bits({self.column})"

    def of(self, batch: Batch) -> list[Sums]:
        """Return per bit the weight of the rows in which the bit is set, 0 for others."""
        return list(self.each(batch))

    def by_group(self, batch: Batch, groups: KeyGroups) -> list[Sums]:
        """Return the weights of set bits, added up by group."""
        return added_up(self.each(batch), groups)

    def each(self, batch: Batch) -> Iterator[Sums]:
        """Yield the arrays of `of`, one bit at a time."""
        array = batch.column(self.column)
        values, valid = value_view(array), valid_rows(array)
        words = values.astype(np.int64) if values.dtype != np.uint64 else values.view(np.int64)
        weight = batch.weight if valid is None else np.where(valid, batch.weight, 0)
        return (((words >> bit) & 1) * weight for bit in range(self.slots))


Counting = Valid | Trues
"""Measures of one slot that add up the weights of rows: all of them are added up by group in one pass."""


def added_up(values: Iterable[Sums], groups: KeyGroups) -> list[Sums]:
    """Return arrays with a value for each row, added up by group."""
    return [add_by_group(np.ascontiguousarray(each), groups.of, len(groups)) for each in values]


def bits_of(type_: pa.DataType) -> int:
    """Return the number of bits of an integer type."""
    return int(type_.bit_width)
