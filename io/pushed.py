"""Rows on their way into a table's input: a decoded push, its producer, and the position it was given.

A push numbers good and bad rows together: row i of the push gets offset `first + i`, whether it could be decoded or
not. So a bad row has a position of its own and is the same at every replay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dbsp.errors import CapacityError, DataError, InternalError
from dbsp.logs import Range
from dbsp.zset.batch import Batch

PAYLOAD_CHARS_MAX = 10_000
"""The most characters of a bad row in its dead letter: the row may be a whole file, and a column of texts holds 2 GiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushBounds:
    """The bounds of a push: its size, and the number of bad rows; the names are those of the settings in [http]."""

    max_push_rows: int = 10_000_000
    max_decoded_bytes: int = 1 << 30
    bad_rows_max: int | None = None

    def refuse_size(self, rows: int, size: int) -> None:
        """Raise `CapacityError` for too many rows or bytes; the caller checks before it makes them."""
        for name, found in (("max_push_rows", rows), ("max_decoded_bytes", size)):
            if found > (most := getattr(self, name)):
                kind = "rows" if name == "max_push_rows" else "bytes, unpacked"
                raise CapacityError(
                    f"too many {kind} in one push: found={found} {name}={most}",
                    f"send several smaller pushes, or raise `{name}` in [http]",
                )

    def refuse_bad(self, bad: Sequence[BadRow], rows: int | None = None) -> None:
        """Raise `DataError` for more bad rows than allowed; with `rows`, the rows of a whole push, also if most are bad."""
        if self.bad_rows_max is None or not bad:
            return
        shown = f"the first: row={bad[0].index} {bad[0].reason}"
        hint = "nothing of the push was taken: correct the rows and send all again"
        if len(bad) > self.bad_rows_max:
            raise DataError(
                f"too many bad rows in one push: bad_rows_max={self.bad_rows_max}; {shown}",
                f"{hint}; or raise `bad_rows_max` in [http]",
            )
        if rows is not None and 2 * len(bad) > rows:
            raise DataError(f"most rows of the push are bad: bad={len(bad)} rows={rows}; {shown}", hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """A row that could not be decoded: its number within the push, the reason, and the row as received.

    `header` is the first line of a text of records, without which the row cannot be read; empty for other forms.
    """

    index: int
    reason: str
    payload: str
    header: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Push:
    """Decoded rows of one table in order: a loose `batch` with weights +1, an operation per row, and the bad rows.

    **Shape** `operations` is int8, INSERT or DELETE, one per row of `batch`; `bad` is ascending by `index`. The
    numbers that bad rows leave free belong to the rows of `batch`, in order.
    """

    batch: Batch
    operations: NDArray[np.int8]
    bad: tuple[BadRow, ...] = ()

    def __post_init__(self) -> None:
        """Refuse parts that do not fit together."""
        if len(self.operations) != len(self.batch):
            raise InternalError(f"a push with unequal parts: rows={len(self.batch)} operations={len(self.operations)}")
        numbers = [row.index for row in self.bad]
        if numbers != sorted(set(numbers)) or (numbers and not 0 <= numbers[0] <= numbers[-1] < self.rows):
            raise InternalError(f"a push with wrong bad row numbers: rows={self.rows} bad={numbers[:8]}")

    @property
    def rows(self) -> int:
        """Return the number of offsets that the push takes: good and bad rows."""
        return len(self.batch) + len(self.bad)

    def good_indices(self) -> NDArray[np.int64]:
        """Return the number within the push of every row of `batch`."""
        free = np.ones(self.rows, dtype=np.bool_)
        free[[row.index for row in self.bad]] = False
        return np.flatnonzero(free).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """The sender of a push, and the number of this push among its pushes to the table; numbers grow, gaps are allowed.

    With `after`, the push is appended only if that is the newest number so far (-1: there is none). So of several
    processes that send under one name, only one can continue.
    """

    id: str
    sequence: int
    after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A push on its way to one partition of a table.

    With `letter`, the push replays the table's dead letter of that partition and offset. `arrived_s` says when its oldest
    row arrived at a source before this push, in seconds since 1970; None: the push is its arrival.
    """

    table: str
    push: Push
    producer: Producer | None = None
    partition: int = 0
    letter: tuple[int, int] | None = None
    arrived_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The place of a push in the log: offsets `first <= offset < last`; `repeated` if an earlier push appended it."""

    table: str
    partition: int
    first: int
    last: int
    repeated: bool = field(default=False, compare=False)

    def range(self) -> Range:
        """Return the range of the push's rows."""
        return Range(table=self.table, partition=self.partition, first=self.first, last=self.last)


@runtime_checkable
class NotesReplays(Protocol):
    """An input log that notes which dead letters were replayed by a push."""

    def forget_replayed(self, below: Mapping[tuple[str, int], int]) -> None:
        """Drop the notes of trimmed letters below these offsets, by table and partition."""
        ...


class InputWriter(Protocol):
    """The writing side of an embedded input log."""

    def append_many(self, incoming: Sequence[Incoming], *, together: bool = False) -> list[Position]:
        """Append pushes durably; `together` makes one step take all of them."""
        ...

    def last_sequence(self, table: str, producer: str) -> int | None:
        """Return the newest sequence number of a producer, None if there is none."""
        ...

    def replayed(self, table: str, places: Sequence[tuple[int, int]]) -> list[Position | None]:
        """Return, for each dead letter of a table by its partition and offset, the position to which it was replayed."""
        ...
