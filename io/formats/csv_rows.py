"""Text files of records, a header first (RFC 4180): where the records are, and their values as text.

A value may stand in quotes, in which a delimiter, a line's end and a doubled quote count as text. An empty value is null, an
empty one in quotes the empty text. A quote anywhere else makes its record a bad one, and so does another number of values
than the header has; so every record can be judged by itself, and is the same however a file is cut.

**Cost** some passes over the bytes, whole arrays at a time; Arrow's reader makes the values.

Source: RFC 4180.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from dbsp.io.pushed import PAYLOAD_CHARS_MAX, BadRow

Bytes = NDArray[np.uint8]
Positions = NDArray[np.int64]

_QUOTE, _LF, _CR = ord('"'), ord("\n"), ord("\r")
_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """The records that have as many values as the header, their numbers among all, and the others."""

    values: pa.Table
    numbers: Positions
    bad: tuple[BadRow, ...]


def record_starts(data: Bytes) -> Positions:
    r"""Where the records begin that are not empty lines, the header among them, and the end.

    >>> record_starts(np.frombuffer(b'a,b\n1,"x\ny"\n\n2,z', np.uint8)).tolist()
    [0, 4, 13, 16]
    """
    line_ends = data == _LF
    line_ends[:-1] |= (data[:-1] == _CR) & (data[1:] != _LF)
    quotes = data == _QUOTE
    if quotes.any():
        line_ends &= ~np.logical_xor.accumulate(quotes)
    begins = starts_behind(line_ends)
    empty = (data[begins] == _LF) | (data[begins] == _CR)
    return np.append(begins[~empty], len(data))


def starts_behind(line_ends: NDArray[np.bool_]) -> Positions:
    """Where lines begin, given which bytes end one; nothing begins behind the last byte.

    >>> starts_behind(np.array([False, True, False, True])).tolist()
    [0, 2]
    """
    begins = np.concatenate([[0], np.flatnonzero(line_ends) + 1]).astype(np.int64)
    return begins[begins < len(line_ends)]


def header_of(record: bytes, delimiter: str) -> list[str]:
    """The names of the columns, as the first record has them; none of a record that is broken."""
    text = record.removeprefix(_MARK).decode("utf-8", "replace")
    try:
        return [name.strip() for name in next(csv.reader([text], delimiter=delimiter, strict=True), [])]
    except csv.Error:
        return []


def text_of(record: bytes) -> str:
    """A record as it came, for a dead letter."""
    return record.decode("utf-8", "replace").rstrip("\r\n")[:PAYLOAD_CHARS_MAX]


def decode_records(
    data: bytes, starts: Positions, header: Sequence[str], wanted: Sequence[str], delimiter: str
) -> Records:
    """The wanted columns of some whole records, as bytes or null; `starts` are the records' and the end."""
    bytes_ = np.frombuffer(data, np.uint8)
    bad = dict.fromkeys(_misquoted(bytes_, starts, delimiter), "a quote inside a value, or one that does not end")
    try:
        found = _parsed(_without(bad, data, starts), header, wanted, delimiter)
    except (
        pa.ArrowInvalid
    ):  # told of the first one alone; pyarrow would hand over all of them, but as UTF-8, or not at all
        bad = _misshapen(bytes_, starts, len(header), delimiter) | bad
        found = _parsed(_without(bad, data, starts), header, wanted, delimiter)
    numbers = np.array([number for number in range(len(starts) - 1) if number not in bad], np.int64)
    letters = (
        BadRow(index=number, reason=reason, payload=text_of(data[starts[number] : starts[number + 1]]))
        for number, reason in sorted(bad.items())
    )
    return Records(values=found, numbers=numbers, bad=tuple(letters))


def _without(bad: Collection[int], data: bytes, starts: Positions) -> bytes:
    """The records but these."""
    pieces = (data[begin:end] for number, (begin, end) in enumerate(pairwise(starts.tolist())) if number not in bad)
    return b"".join(pieces) if bad else data


def _misquoted(data: Bytes, starts: Positions, delimiter: str) -> list[int]:
    """The records with a quote that neither begins nor ends a value, nor stands for one."""
    quotes = np.flatnonzero(data == _QUOTE)
    if not len(quotes):
        return []
    around = np.concatenate([[_LF], data, [_LF]])
    outside = (around == _LF) | (around == _CR) | (around == ord(delimiter)) | (around == _QUOTE)
    opening, closing = quotes[0::2], quotes[1::2]
    wrong = [opening[~outside[opening]], closing[~outside[closing + 2]], opening[len(closing) :]]
    numbers: list[int] = np.unique(starts.searchsorted(np.concatenate(wrong), "right") - 1).tolist()
    return numbers


def _misshapen(data: Bytes, starts: Positions, columns: int, delimiter: str) -> dict[int, str]:
    """Why those records are bad that have another number of values; of such as are misquoted the number may be any."""
    between = data == ord(delimiter)
    quotes = data == _QUOTE
    if quotes.any():
        between &= ~np.logical_xor.accumulate(quotes)
    counts = np.diff(np.flatnonzero(between).searchsorted(starts)) + 1
    return {
        int(number): f"values: {counts[number]}, columns: {columns}" for number in np.flatnonzero(counts != columns)
    }


def _parsed(data: bytes, header: Sequence[str], wanted: Sequence[str], delimiter: str) -> pa.Table:
    """The wanted columns of records that fit; `ArrowInvalid` if one does not."""
    names = [str(number) for number in range(len(header))]
    chosen = [names[header.index(name)] for name in wanted]
    if not data:
        return pa.table([pa.array([], pa.binary()) for _ in wanted], names=list(wanted))
    lines = b"\n" + data  # pyarrow drops a byte order mark that it begins with, and empty lines
    found = pyarrow.csv.read_csv(
        pa.BufferReader(lines),
        pyarrow.csv.ReadOptions(use_threads=False, column_names=names, block_size=max(1 << 20, len(lines))),
        pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.binary()), include_columns=chosen, null_values=[""],
            strings_can_be_null=True, quoted_strings_can_be_null=False,
        ),
    )  # fmt: skip
    return found.rename_columns(list(wanted))
