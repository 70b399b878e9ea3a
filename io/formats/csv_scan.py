"""The scan for record starts and broken records of a CSV file: compiled, one pass over the bytes.

A quote opens a value only at the value's beginning. It closes the value only before a delimiter, a line end or the
end of the data. A record with any other quote, or with an open one, is broken and ends with the line of its first
wrong quote. So a missing quote never makes later lines part of a value.

**Cost** linear. The bytes after a wrong opening quote are read twice, up to the place that proves it wrong. No quote
between can begin another such read: they are all doubled, and a doubled quote opens and closes at once.
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
    """Return the end of the value whose opening quote is before `at`; -1 if the quote is wrong."""
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
    """Return the positions of the last bytes of records and empty lines; `first` is the start of the first value."""
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
    """Return each record's number of values, or -1 if it is broken.

    `starts` are the starts of the records, and the end.
    """
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
