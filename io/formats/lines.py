"""What files of lines have in common: the mark that may begin them, and where what follows an end begins."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Positions = NDArray[np.int64]

MARK = b"\xef\xbb\xbf"
"""Some programs begin a text with it, to say that it is UTF-8; it is part of no row."""


def behind_mark(data: Bytes) -> int:
    """Where the text begins, behind a byte order mark if there is one."""
    return len(MARK) if data[: len(MARK)].tobytes() == MARK else 0


def starts_behind(first: int, ends: Positions, size: int) -> Positions:
    """Where lines begin: at `first`, and behind each of these ends; nothing begins behind the last of `size` bytes.

    >>> starts_behind(0, np.array([1, 3]), 4).tolist()
    [0, 2]
    """
    begins = np.concatenate([[first], ends + 1])
    return begins[begins < size]
