"""Text files of records, a header first (RFC 4180): where the records are, and their values as text.

A value may stand in quotes, in which a delimiter, a line's end and a doubled quote count as text. An empty value is null, an
empty one in quotes the empty text. A quote anywhere else makes its record a bad one, which ends with the line of that quote
(`csv_scan`), and so does another number of values than the header has; so every record can be judged by itself, and is the same
however a file is cut.

**Cost** two passes over the bytes, compiled; Arrow's reader makes the values.

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

from dbsp.io.formats.csv_scan import judged, line_ends
from dbsp.io.formats.lines import MARK, Bytes, Positions, behind_mark, starts_behind
from dbsp.io.pushed import PAYLOAD_CHARS_MAX, BadRow

_LF, _CR = ord("\n"), ord("\r")
_MISQUOTED = "a quote inside a value, or one that does not end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """The records that have as many values as the header, their numbers among all, and the others."""

    values: pa.Table
    numbers: Positions
    bad: tuple[BadRow, ...]


def record_starts(data: Bytes, delimiter: str) -> Positions:
    r"""Where the records begin that are not empty lines, the header among them, and the end.

    >>> record_starts(np.frombuffer(b'a,b\n1,"x\ny"\n\n2,z', np.uint8), ",").tolist()
    [0, 4, 13, 16]
    """
    begins = starts_behind(0, line_ends(data, behind_mark(data), ord(delimiter)), len(data))
    empty = (data[begins] == _LF) | (data[begins] == _CR)
    return np.append(begins[~empty], len(data))


def header_of(record: bytes, delimiter: str) -> list[str]:
    """The names of the columns, as the first record has them; none of a record that is broken."""
    text = record.removeprefix(MARK).decode("utf-8", "replace")
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
    bad = _bad(np.frombuffer(data, np.uint8), starts, len(header), delimiter)
    found = _parsed(_without(bad, data, starts), header, wanted, delimiter)
    numbers = np.delete(np.arange(len(starts) - 1), list(bad))
    letters = (
        BadRow(index=number, reason=reason, payload=text_of(data[starts[number] : starts[number + 1]]))
        for number, reason in sorted(bad.items())
    )
    return Records(values=found, numbers=numbers, bad=tuple(letters))


def _without(bad: Collection[int], data: bytes, starts: Positions) -> bytes:
    """The records but these."""
    pieces = (data[begin:end] for number, (begin, end) in enumerate(pairwise(starts.tolist())) if number not in bad)
    return b"".join(pieces) if bad else data


def _bad(data: Bytes, starts: Positions, columns: int, delimiter: str) -> dict[int, str]:
    """The records that are broken or have another number of values, each with its reason."""
    counts = judged(data, starts, ord(delimiter))
    reasons = ((number, int(counts[number])) for number in np.flatnonzero(counts != columns).tolist())
    return {number: _MISQUOTED if count < 0 else f"values: {count}, columns: {columns}" for number, count in reasons}


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
