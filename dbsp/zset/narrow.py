"""Weights in their stored form: for each weight of a row, a column of the narrowest integers that hold it.

Most weights are 1 or -1, and most counts are small: eight bytes for each would be most of a row of sums. Weights are
widened when they are read, and only for the rows that are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbsp.zset.buffers import repeated, width_of

Weights = NDArray[np.int64]
Positions = NDArray[np.int64]

_WIDTHS = [(width, np.iinfo(width).min, np.iinfo(width).max) for width in (np.int8, np.int16, np.int32, np.int64)]


@dataclass(frozen=True, slots=True, eq=False)
class NarrowWeights:
    """The weights of n rows: for each weight of a row, a column of n integers."""

    columns: tuple[NDArray[Any], ...]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.columns[0])

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of rows, and of weights per row."""
        return len(self.columns[0]), len(self.columns)

    def take(self, rows: Positions, axis: int = 0) -> Weights:  # noqa: ARG002 (numpy's, of which there is one)
        """Return the weights of the rows at these positions."""
        return _stacked([column.take(rows) for column in self.columns], len(rows))

    def __getitem__(self, rows: slice) -> NarrowWeights:
        """Return the weights of a range of rows, without copying."""
        return NarrowWeights(tuple(column[rows] for column in self.columns))

    def wide(self) -> Weights:
        """Return the weights of all rows as int64."""
        return _stacked(self.columns, len(self))


def _stacked(columns: Sequence[NDArray[Any]], rows: int) -> Weights:
    """Return the columns side by side, as int64."""
    out = np.empty((rows, len(columns)), np.int64)
    for number, column in enumerate(columns):
        out[:, number] = column
    return out


def narrowed(weights: Weights) -> list[NDArray[Any]]:
    """Return a column for each weight of a row, empty where that weight is 1 in all rows."""
    return [_narrowest(column) for column in np.ascontiguousarray(weights.T)]


def _narrowest(column: NDArray[np.int64]) -> NDArray[Any]:
    """Return the column in the narrowest integers that hold it, or empty if all weights are 1."""
    if not len(column):
        return column
    least, most = int(column.min()), int(column.max())
    if least == most == 1:
        return column[:0]
    return column.astype(next(width for width, first, last in _WIDTHS if first <= least and most <= last))


def widened(buffers: Sequence[memoryview], rows: int) -> Weights | NarrowWeights:
    """Return the weights that `narrowed` wrote, without copying."""
    columns = [_column(buffer, rows) for buffer in buffers]
    if len(columns) == 1 and columns[0].dtype == np.int64:
        return columns[0].reshape(rows, 1)
    return NarrowWeights(tuple(columns)) if columns else np.empty((rows, 0), np.int64)


def _column(buffer: memoryview, rows: int) -> NDArray[Any]:
    """Return one weight of each row; an empty buffer means 1 in all rows."""
    width = width_of(len(buffer), rows)
    return np.frombuffer(buffer, f"<i{width}") if width else repeated(1, np.dtype(np.int64), rows)
