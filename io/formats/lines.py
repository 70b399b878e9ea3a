"""Helpers for files of lines: the byte order mark at the beginning, and the starts of lines."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Positions = NDArray[np.int64]

MARK = b"\xef\xbb\xbf"
"""The byte order mark. Some programs begin a UTF-8 text with it; it is part of no row."""


def behind_mark(data: Bytes) -> int:
    """Return where the text begins: after a byte order mark, if there is one."""
    return len(MARK) if data[: len(MARK)].tobytes() == MARK else 0


def starts_behind(first: int, ends: Positions, size: int) -> Positions:
    """Return the starts of lines: `first`, and the position after each end, if it is within `size` bytes.

    >>> starts_behind(0, np.array([1, 3]), 4).tolist()
    [0, 2]
    """
    begins = np.concatenate([[first], ends + 1])
    return begins[begins < size]
