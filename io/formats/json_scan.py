"""A one-pass check that bytes are JSON lines of the plain shape that the fast parser may be given.

The fast parser (pyarrow) counts two objects on a line as two rows, joins an object that spans lines, and crashes the process
on a bare `null` between rows (seen with pyarrow 26). So what reaches it must be proven to be one object per line.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

_NEWLINE, _QUOTE, _BACKSLASH, _OPEN, _CLOSE = 10, 34, 92, 123, 125
_BLANK, _TAB, _RETURN, _CAPITAL_I, _SMALL_N = 32, 9, 13, 73, 110
_DEPTH_MAX = 16


@njit(cache=True)
def count_plain_rows(data: NDArray[np.uint8]) -> int:  # noqa: C901, PLR0912 - one state machine over bytes, compiled
    """How many rows the JSON lines hold, or -1 unless every line is blank or one object, at most sixteen deep.

    Outside strings `In` also counts as irregular: the fast parser takes `Inf` for a number, which JSON's readers do not.
    """
    rows, depth = 0, 0
    in_string, escaped, closed = False, False, False
    previous = 0
    for byte in data:
        if in_string:
            if byte == _NEWLINE:
                return -1
            if escaped:
                escaped = False
            elif byte == _BACKSLASH:
                escaped = True
            elif byte == _QUOTE:
                in_string = False
        elif byte == _NEWLINE:
            if depth != 0:
                return -1
            closed = False
        elif byte in (_BLANK, _TAB, _RETURN):
            pass
        elif byte == _OPEN:
            if closed or depth == _DEPTH_MAX:
                return -1
            if depth == 0:
                rows += 1
            depth += 1
        elif depth == 0:
            return -1
        elif byte == _CLOSE:
            depth -= 1
            closed = depth == 0
        elif byte == _QUOTE:
            in_string = True
        elif byte == _SMALL_N and previous == _CAPITAL_I:
            return -1
        previous = byte
    return rows if depth == 0 and not in_string else -1
