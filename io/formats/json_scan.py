"""A one-pass check that bytes are JSON lines of the plain shape that the fast parser can take.

The fast parser (pyarrow) counts two objects on a line as two rows, and joins an object that spans lines. It crashes
the process on a bare `null` between rows and on a decimal such as `1e-99999999` (seen with pyarrow 26). So its input
must be proven to have one object per line, and, if decimals are wanted, no long exponent.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

_NEWLINE, _QUOTE, _BACKSLASH, _OPEN, _CLOSE = 10, 34, 92, 123, 125
_BLANK, _TAB, _RETURN, _CAPITAL_I, _SMALL_N = 32, 9, 13, 73, 110
_DEPTH_MAX = 16
_ZERO, _NINE, _POINT, _PLUS, _MINUS, _CAPITAL_E, _SMALL_E, _SMALL_U = 48, 57, 46, 43, 45, 69, 101, 117
_EXPONENT_DIGITS_MAX = 3


@njit(cache=True)
def count_plain_rows(data: NDArray[np.uint8]) -> int:  # noqa: C901, PLR0912 - one state machine over bytes, compiled
    """Return the number of rows, or -1 unless every line is blank or one object, at most sixteen deep.

    Outside strings `In` also counts as irregular: the fast parser takes `Inf` for a number, which JSON's readers do
    not.
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


@njit(cache=True)
def _is_digit(byte: int) -> bool:
    return _ZERO <= byte <= _NINE


@njit(cache=True)
def _is_of_a_word(byte: int) -> bool:
    """Return whether a byte is a letter, a digit or part of a longer character: no number can border on it."""
    return _is_digit(byte) or 65 <= byte <= 90 or 97 <= byte <= 122 or byte >= 128 or byte in (_MINUS, 95)  # noqa: PLR2004


@njit(cache=True)
def holds_long_exponent(data: NDArray[np.uint8]) -> bool:  # noqa: C901 - one scan over bytes, compiled
    """Return whether some number, in a string or not, has an exponent of four digits or more.

    A string may write a number with escapes (`\\u0031`). So an escaped digit, point, sign or `e` counts as a long
    exponent too. An `e` within a word, as in `7e1000a` or `1b2e1000`, makes no number.
    """
    size = len(data)
    for at in range(size):
        byte = data[at]
        if byte == _BACKSLASH and at + 5 < size and data[at + 1] == _SMALL_U:
            if data[at + 2] != _ZERO or data[at + 3] != _ZERO:
                continue
            high, low = data[at + 4], data[at + 5]
            if high == 51 and _is_digit(low):  # noqa: PLR2004 - digits are \u0030 to \u0039
                return True
            if high in (52, 54) and low == 53:  # noqa: PLR2004 - \u0045 and \u0065 are E and e
                return True
            if high == 50 and low in (66, 98, 68, 100, 69, 101):  # noqa: PLR2004 - \u002b, \u002d, \u002e
                return True
        elif byte in (_SMALL_E, _CAPITAL_E) and at > 0 and (_is_digit(data[at - 1]) or data[at - 1] == _POINT):
            end = at + 1
            if end < size and data[end] in (_PLUS, _MINUS):
                end += 1
            digits = end
            while end < size and _is_digit(data[end]):
                end += 1
            if end - digits <= _EXPONENT_DIGITS_MAX or (end < size and _is_of_a_word(data[end])):
                continue
            begin = at
            while begin > 0 and (_is_digit(data[begin - 1]) or data[begin - 1] == _POINT):
                begin -= 1
            if begin > 0 and data[begin - 1] == _MINUS:
                begin -= 1
            if begin == 0 or not _is_of_a_word(data[begin - 1]):
                return True
    return False
