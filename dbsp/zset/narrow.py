"""Weights as they are written: of each weight of a row a column of the narrowest integers that hold it.

Most weights are 1 or -1, and most counts small: eight bytes for each would be most of a row of sums. They are widened when they
are read, those of the rows alone that are read.
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
    """The weights of n rows, each row's in several columns of n integers."""

    columns: tuple[NDArray[Any], ...]

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.columns[0])

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and weights of each."""
        return len(self.columns[0]), len(self.columns)

    def take(self, rows: Positions, axis: int = 0) -> Weights:  # noqa: ARG002 (numpy's, of which there is one)
        """The weights of the rows at these positions."""
        return _stacked([column.take(rows) for column in self.columns], len(rows))

    def __getitem__(self, rows: slice) -> NarrowWeights:
        """The weights of a stretch of rows, without copying."""
        return NarrowWeights(tuple(column[rows] for column in self.columns))

    def wide(self) -> Weights:
        """The weights of all rows."""
        return _stacked(self.columns, len(self))


def _stacked(columns: Sequence[NDArray[Any]], rows: int) -> Weights:
    """Columns side by side."""
    out = np.empty((rows, len(columns)), np.int64)
    for number, column in enumerate(columns):
        out[:, number] = column
    return out


def narrowed(weights: Weights) -> list[NDArray[Any]]:
    """A column for each weight of a row, empty where that weight is 1 in all rows."""
    return [_narrowest(column) for column in np.ascontiguousarray(weights.T)]


def _narrowest(column: NDArray[np.int64]) -> NDArray[Any]:
    """The column in the narrowest integers that hold it."""
    if not len(column):
        return column
    least, most = int(column.min()), int(column.max())
    if least == most == 1:
        return column[:0]
    return column.astype(next(width for width, first, last in _WIDTHS if first <= least and most <= last))


def widened(buffers: Sequence[memoryview], rows: int) -> Weights | NarrowWeights:
    """What `narrowed` wrote, without copying."""
    columns = [_column(buffer, rows) for buffer in buffers]
    if len(columns) == 1 and columns[0].dtype == np.int64:
        return columns[0].reshape(rows, 1)
    return NarrowWeights(tuple(columns)) if columns else np.empty((rows, 0), np.int64)


def _column(buffer: memoryview, rows: int) -> NDArray[Any]:
    """One weight of each row."""
    width = width_of(len(buffer), rows)
    return np.frombuffer(buffer, f"<i{width}") if width else repeated(1, np.dtype(np.int64), rows)
