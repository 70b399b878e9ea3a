"""How large the rows of an input are that wait: stretches of offsets, each with its bytes.

A log knows the size of what it keeps rows in (a record, a row group), not of each row, so within a stretch rows count alike.
Numbers are whole, so that parts added up are never more than the whole. Invariant: offsets ascend, sizes are not negative.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sizes:
    """Rows `offsets[i] <= o < offsets[i + 1]` take `before[i + 1] - before[i]` bytes.

    **Shape** two columns of 64-bit numbers of one length, at least one; `before` begins with 0.

    **Example** two stretches, of 10 rows with 100 bytes and of 2 rows with 400

    >>> sizes = Sizes.of(0, [(10, 100), (2, 400)])
    >>> sizes.between(5, 11), sizes.last_within(5, 260), sizes.last_within(10, 260)
    (250, 10, 11)
    """

    offsets: array[int]
    before: array[int]

    @classmethod
    def of(cls, first: int, stretches: Iterable[tuple[int, int]]) -> Sizes:
        """From an offset on, stretches of so many rows (at least one) and bytes."""
        return cls(offsets=array("q", [first]), before=array("q", [0])).then(stretches)

    @property
    def first(self) -> int:
        """Where the first stretch begins."""
        return self.offsets[0]

    @property
    def last(self) -> int:
        """Where the last stretch ends."""
        return self.offsets[-1]

    def stretches(self) -> list[tuple[int, int]]:
        """Rows and bytes of each."""
        rows, size = ([high - low for low, high in pairwise(column)] for column in (self.offsets, self.before))
        return list(zip(rows, size, strict=True))

    def between(self, first: int, last: int) -> int:
        """The bytes of the rows `first <= offset < last`; of those outside of all stretches none."""
        return self._below(last) - self._below(first)

    def last_within(self, first: int, size: int) -> int:
        """The end of rows from `first` on that have no more than `size` bytes together: of whole stretches, if one fits.

        **Law** `between(first, last_within(first, size)) <= size`; not below `first`.
        """
        bound = self._below(first) + size
        at = bisect_right(self.before, bound) - 1
        whole = self.offsets[at]
        if whole > first or at == len(self.offsets) - 1:
            return max(whole, first)
        rows, taken = self.offsets[at + 1] - whole, self.before[at + 1] - self.before[at]
        return max(first, whole + ((bound - self.before[at] + 1) * rows - 1) // taken)

    def cut(self, first: int, last: int) -> Sizes:
        """The stretches from one offset to another, both within them."""
        inner = self.offsets[bisect_right(self.offsets, first) : bisect_left(self.offsets, last)]
        ends = pairwise([first, *inner, last])
        return Sizes.of(first, [(high - low, self.between(low, high)) for low, high in ends if high > low])

    def then(self, stretches: Iterable[tuple[int, int]], together: int = 0) -> Sizes:
        """With these behind; neighbours of less than `together` bytes become one."""
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
        """The bytes of all rows below an offset."""
        at = bisect_right(self.offsets, offset) - 1
        if at < 0 or at == len(self.offsets) - 1:
            return self.before[max(0, at)]
        first, last = self.offsets[at], self.offsets[at + 1]
        begin, end = self.before[at], self.before[at + 1]
        return begin + (offset - first) * (end - begin) // (last - first)


def even(first: int, last: int, bytes_per_row: float) -> Sizes:
    """Rows of one size, as far as is known."""
    return Sizes.of(first, [(last - first, int((last - first) * bytes_per_row))] if last > first else [])
