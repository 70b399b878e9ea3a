"""CSV files with a header (RFC 4180): where the records begin, and their values as text.

A value may be in quotes, where a delimiter, a line end and a doubled quote are text. An empty value is null; an empty
value in quotes is the empty text. A quote at any other place makes its record bad; the record ends with the line of
this quote (`csv_scan`). A record with another number of values than the header is bad too. So each record is decoded
by itself, however the file is cut.

**Cost** two compiled passes over the bytes, and Arrow's reader for the values.

Source: RFC 4180.
"""

from __future__ import annotations

import csv
import io
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
class CsvRecords:
    """The good records with their numbers among all records, and the bad ones."""

    values: pa.Table
    numbers: Positions
    bad: tuple[BadRow, ...]


def record_starts(data: Bytes, delimiter: str) -> Positions:
    r"""Return where the nonempty records begin, the header included, and the end.

    >>> record_starts(np.frombuffer(b'a,b\n1,"x\ny"\n\n2,z', np.uint8), ",").tolist()
    [0, 4, 13, 16]
    """
    begins = starts_behind(0, line_ends(data, behind_mark(data), ord(delimiter)), len(data))
    empty = (data[begins] == _LF) | (data[begins] == _CR)
    return np.append(begins[~empty], len(data))


def header_of(record: bytes, delimiter: str) -> list[str]:
    """Return the column names of the first record; an empty list if it is broken."""
    text = record.removeprefix(MARK).decode("utf-8", "replace")
    try:
        return [name.strip() for name in next(csv.reader([text], delimiter=delimiter, strict=True), [])]
    except csv.Error:
        return []


def header_line(names: Sequence[str], delimiter: str) -> str:
    r"""Return column names as the first record of a text.

    >>> header_line(["id", "a,b"], ","), header_line(["id", "a,b"], "\t")
    ('id,"a,b"', 'id\ta,b')
    """
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="").writerow(names)
    return out.getvalue()


def text_of(record: bytes) -> str:
    """Return a record as text, for a dead letter."""
    return record.decode("utf-8", "replace").rstrip("\r\n")[:PAYLOAD_CHARS_MAX]


def decode_records(
    data: bytes, starts: Positions, header: Sequence[str], wanted: Sequence[str], delimiter: str
) -> CsvRecords:
    """Decode the wanted columns of whole records, as bytes or null.

    `starts` are the starts of the records, and the end.
    """
    bad = _bad(np.frombuffer(data, np.uint8), starts, len(header), delimiter)
    found = _parsed(_without(bad, data, starts), header, wanted, delimiter)
    numbers = np.delete(np.arange(len(starts) - 1), list(bad))
    letters = (
        BadRow(index=number, reason=reason, payload=text_of(data[starts[number] : starts[number + 1]]))
        for number, reason in sorted(bad.items())
    )
    return CsvRecords(values=found, numbers=numbers, bad=tuple(letters))


def _without(bad: Collection[int], data: bytes, starts: Positions) -> bytes:
    """Return the bytes without the records of these numbers."""
    pieces = (data[begin:end] for number, (begin, end) in enumerate(pairwise(starts.tolist())) if number not in bad)
    return b"".join(pieces) if bad else data


def _bad(data: Bytes, starts: Positions, columns: int, delimiter: str) -> dict[int, str]:
    """Return the reason of each record that is broken or has another number of values, by its number."""
    counts = judged(data, starts, ord(delimiter))
    reasons = ((number, int(counts[number])) for number in np.flatnonzero(counts != columns).tolist())
    return {number: _MISQUOTED if count < 0 else f"values: {count}, columns: {columns}" for number, count in reasons}


def _parsed(data: bytes, header: Sequence[str], wanted: Sequence[str], delimiter: str) -> pa.Table:
    """Parse the wanted columns of good records; raise `ArrowInvalid` if a record does not fit."""
    names = [str(number) for number in range(len(header))]
    chosen = [names[header.index(name)] for name in wanted]
    if not data:
        return pa.table([pa.array([], pa.binary()) for _ in wanted], names=list(wanted))
    lines = b"\n" + data  # pyarrow drops an initial byte order mark, which is data here, and the empty line
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
