"""Sizes of the input rows that wait: stretches of offsets, each with its number of bytes.

A log knows the size of its units (a record, a row group), not of each row. So all rows of a stretch count alike.
Numbers are whole, rounded so that the sum of parts never exceeds the whole. Invariant: offsets ascend, and sizes are
not negative.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sizes:
    """Stretches of rows: the rows `offsets[i] <= o < offsets[i + 1]` take `before[i + 1] - before[i]` bytes.

    **Shape** two columns of 64-bit numbers of equal length, at least one; `before` begins with 0.

    **Example** two stretches, of 10 rows with 100 bytes and of 2 rows with 400

    >>> sizes = Sizes.of(0, [(10, 100), (2, 400)])
    >>> sizes.between(5, 11), sizes.last_within(5, 260), sizes.last_within(10, 260)
    (250, 10, 11)
    """

    offsets: array[int]
    before: array[int]

    @classmethod
    def of(cls, first: int, stretches: Iterable[tuple[int, int]]) -> Sizes:
        """Create sizes that begin at offset `first`, from stretches of (rows, bytes) with at least one row each."""
        return cls(offsets=array("q", [first]), before=array("q", [0])).then(stretches)

    @property
    def first(self) -> int:
        """Return the offset at which the first stretch begins."""
        return self.offsets[0]

    @property
    def last(self) -> int:
        """Return the offset at which the last stretch ends."""
        return self.offsets[-1]

    def stretches(self) -> list[tuple[int, int]]:
        """Return the rows and the bytes of each stretch."""
        rows, size = ([high - low for low, high in pairwise(column)] for column in (self.offsets, self.before))
        return list(zip(rows, size, strict=True))

    def between(self, first: int, last: int) -> int:
        """Return the bytes of the rows `first <= offset < last`; rows outside all stretches count 0."""
        return self._below(last) - self._below(first)

    def last_within(self, first: int, size: int) -> int:
        """Return the end of the rows from `first` on that together have at most `size` bytes.

        The result is the end of a stretch if at least one fits; otherwise it is inside the first stretch.

        **Law** `between(first, last_within(first, size)) <= size`; the result is not below `first`.
        """
        bound = self._below(first) + size
        at = bisect_right(self.before, bound) - 1
        whole = self.offsets[at]
        if whole > first or at == len(self.offsets) - 1:
            return max(whole, first)
        rows, taken = self.offsets[at + 1] - whole, self.before[at + 1] - self.before[at]
        return max(first, whole + ((bound - self.before[at] + 1) * rows - 1) // taken)

    def cut(self, first: int, last: int) -> Sizes:
        """Return the stretches from one offset to another; both must be within the stretches."""
        inner = self.offsets[bisect_right(self.offsets, first) : bisect_left(self.offsets, last)]
        ends = pairwise([first, *inner, last])
        return Sizes.of(first, [(high - low, self.between(low, high)) for low, high in ends if high > low])

    def then(self, stretches: Iterable[tuple[int, int]], together: int = 0) -> Sizes:
        """Return these sizes with (rows, bytes) stretches appended.

        A stretch joins the one before it if both together have less than `together` bytes.
        """
        offsets, before = self.offsets[:], self.before[:]
        for rows, size in stretches:
            if len(before) > 1 and before[-1] - before[-2] + size < together:
                offsets[-1] += rows
                before[-1] += size
            else:
                offsets.append(offsets[-1] + rows)
                before.append(before[-1] + size)
        return Sizes(offsets=offsets, before=before)

    def _below(self, offset: int) -> int:
        """Return the bytes of all rows below an offset."""
        at = bisect_right(self.offsets, offset) - 1
        if at < 0 or at == len(self.offsets) - 1:
            return self.before[max(0, at)]
        first, last = self.offsets[at], self.offsets[at + 1]
        begin, end = self.before[at], self.before[at + 1]
        return begin + (offset - first) * (end - begin) // (last - first)


def even(first: int, last: int, bytes_per_row: float) -> Sizes:
    """Return the sizes of rows that all count alike, for a log that knows only an average."""
    return Sizes.of(first, [(last - first, int((last - first) * bytes_per_row))] if last > first else [])
