"""Where the records of a CSV file begin, and which of them are broken: one pass over the bytes, compiled.

A quote opens a value only where a value begins, and closes it only where one ends: before a delimiter, a line's end or the end of
all. A record with any other quote, or with one that is never closed, is broken, and ends with the line of its first wrong quote:
however many quotes a file lacks, no line behind that one is taken for a part of a value.

**Cost** linear. What follows a wrong quote is read twice, up to where it was found to be one; no quote in it can open a value
that runs on, as all of them stand in pairs, which open and close at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from dbsp.io.formats.lines import Bytes, Positions

_QUOTE, _LF, _CR = 34, 10, 13
_WRONG = -1


@njit(cache=True)
def _behind_quotes(data: Bytes, at: int, end: int, delimiter: int) -> int:
    """Where the value ends whose quote stands before `at`; -1 if the quote is a wrong one."""
    while at < end:
        if data[at] != _QUOTE:
            at += 1
        elif at + 1 < end and data[at + 1] == _QUOTE:
            at += 2
        elif at + 1 == end or data[at + 1] == delimiter or data[at + 1] == _LF or data[at + 1] == _CR:
            return at + 1
        else:
            return _WRONG
    return _WRONG


@njit(cache=True)
def line_ends(data: Bytes, first: int, delimiter: int) -> Any:
    """Behind which positions a record or an empty line ends; `first` is where the first value begins."""
    ends = np.empty(np.count_nonzero(data == _LF) + np.count_nonzero(data == _CR), np.int64)
    count, at, fresh, broken = 0, first, True, False
    while at < len(data):
        byte = data[at]
        if byte == _QUOTE and fresh and not broken:
            behind = _behind_quotes(data, at + 1, len(data), delimiter)
            broken = behind == _WRONG
            at = at + 1 if broken else behind
            fresh = False
        elif byte == _LF or (byte == _CR and (at + 1 == len(data) or data[at + 1] != _LF)):
            ends[count] = at
            count += 1
            at += 1
            fresh, broken = True, False
        else:
            fresh = byte == delimiter
            at += 1
    return ends[:count]


@njit(cache=True)
def judged(data: Bytes, starts: Positions, delimiter: int) -> Any:
    """Of each record how many values it has, or -1 where it is broken; `starts` are the records' and the end."""
    values = np.empty(len(starts) - 1, np.int64)
    for number in range(len(values)):
        at, end, count, fresh = starts[number], starts[number + 1], 1, True
        while at < end:
            byte = data[at]
            if byte == _QUOTE:
                at = _behind_quotes(data, at + 1, end, delimiter) if fresh else _WRONG
                if at == _WRONG:
                    count = _WRONG
                    break
                fresh = False
            else:
                fresh = byte == delimiter
                count += fresh
                at += 1
        values[number] = count
    return values
