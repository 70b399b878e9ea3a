"""The contracts of the logs: input, step, output; the values that pass through them.

Sources, step log and outputs live in `dbsp.io` and are handed in; runtimes know only these protocols. Positions are
per input partition: `offset` is the next row to read, ranges are half open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from dbsp.logs.sizes import Sizes
from dbsp.steps.timing import Moment, Place, Waterline
from dbsp.zset.batch import Batch

INSERT, DELETE = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Rows `first <= offset < last` of one partition of one table's input."""

    table: str
    partition: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """Everything that decides the result of one step; durable before any output of it (invariant 4).

    `ranges` covers every (table, partition) that has rows in this step; `clock_us` is what `now()` shows, and
    `clock_before_us` what it showed in the step before; `waterlines` are those agreed on at the end of that one, without the
    partitions that are `idle`; `commands` are logged decisions such as a skip (`dbsp.logs.step_commands`). Equal records give
    equal outputs, whatever the layout.
    """

    epoch: int
    step: int
    layout_version: int
    ranges: tuple[Range, ...]
    clock_us: int
    engine: str
    commands: tuple[str, ...] = ()
    clock_before_us: int | None = None
    waterlines: tuple[Waterline, ...] = ()
    idle: tuple[Place, ...] = ()

    @property
    def moment(self) -> Moment:
        """The time of the step."""
        return Moment(
            clock_us=self.clock_us, clock_before_us=self.clock_before_us, waterlines=self.waterlines, idle=self.idle
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A row that could not be used: from the input (`origin` = table, `partition`, `offset`) or a node (`origin` = node name).

    `payload` is the row as received or as JSON. A node's letters are a Z-set: `weight` says how many more such rows it cannot
    use since this step, or fewer (negative), never 0.

    **Law** added up over the workers of a step, a node's letters are the same for any number of workers; added up over all
    steps they are the rows, pairs or groups on which it fails now, as it would over the tables as they are. Letters of the
    input, of rows that came too late and of lookup joins tell what happened: they are not taken back.
    """

    step: int
    origin: str
    partition: int
    offset: int
    reason: str
    payload: str
    weight: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Decoded changes of one table out of one range, in log order.

    `batch` is loose with the table's schema and weights +1; `operations[i]` is INSERT or DELETE; `offsets[i]` is the row's
    offset in its partition. A delete on a table with a primary key may hold nulls outside the key. Where only some columns were
    asked for, `batch` has these, and `whole` reads the same rows once more with all of them.
    """

    table: str
    partition: int
    batch: Batch
    operations: np.ndarray
    offsets: np.ndarray
    dead: tuple[DeadLetter, ...] = field(default=())
    whole: Callable[[], Batch] | None = field(default=None)


class InputLog(Protocol):
    """A durable, partitioned log of one pipeline's table changes."""

    def partitions(self, table: str) -> int:
        """How many partitions the table's input has."""
        ...

    def ends(self) -> Mapping[tuple[str, int], int]:
        """The offset after the last readable row, per (table, partition)."""
        ...

    def floors(self) -> Mapping[tuple[str, int], int]:
        """The offset of the first row that is still kept, per (table, partition): where a reader that is new begins."""
        ...

    def read(self, range_: Range, step: int) -> Sequence[Changes]:
        """The changes of one range, and its bad rows; `DataError` names the offsets if part of it is gone."""
        ...

    def sizes(self, waiting: Sequence[Range]) -> Mapping[tuple[str, int], Sizes]:
        """How large these rows are, or are thought to be, per (table, partition); for bounding a step in bytes."""
        ...

    def trim(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Drop rows below these offsets: no openable version needs them."""
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


def read_so_far(
    done: Mapping[tuple[str, int], int], floors: Mapping[tuple[str, int], int]
) -> dict[str, tuple[Range, ...]]:
    """All rows below the positions, of each table of which the log still has every one.

    **Example**

    >>> found = read_so_far({("t", 0): 7, ("t", 1): 4, ("u", 0): 9}, {("t", 0): 0, ("t", 1): 0, ("u", 0): 3})
    >>> {table: [(each.partition, each.first, each.last) for each in ranges] for table, ranges in found.items()}
    {'t': [(0, 0, 7), (1, 0, 4)]}
    """
    read: dict[str, tuple[Range, ...]] = {}
    for (table, partition), end in sorted(done.items()):
        read[table] = (*read.get(table, ()), Range(table=table, partition=partition, first=0, last=end))
    lost = {place[0] for place, end in done.items() if end and floors.get(place) != 0}
    return {table: ranges for table, ranges in read.items() if table not in lost}


@runtime_checkable
class ReadsColumns(Protocol):
    """An input log that can leave columns unread: Parquet files."""

    def read_columns(self, range_: Range, step: int, columns: frozenset[str]) -> Sequence[Changes]:
        """What `read` gives, the same rows and the same bad ones, of these columns alone if that is less work."""
        ...


@runtime_checkable
class AcceptsOutput(Protocol):
    """An output log whose rows can be corrected by later steps."""

    def accept(self, epoch: int, step: int, parts: Mapping[str, Batch], dead: Sequence[DeadLetter]) -> None:
        """Write one step's part as `OutputLog.write` does; one that differs from what is there counts from now on instead.

        The difference is put out with the next step that is written. Repeating it does nothing.
        """
        ...

    def differing(self, step: int, parts: Mapping[str, Batch], dead: Sequence[DeadLetter]) -> list[str]:
        """The views of which the step's part is another than the one that counts."""
        ...


@runtime_checkable
class KeepsTransactions(Protocol):
    """An input log in which rows of several places may belong together."""

    def transactions(self, done: Mapping[tuple[str, int], int]) -> Sequence[Sequence[Range]]:
        """The ranges that one step has to take together, where some row is not done; the oldest first."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An input that waits for a system of others: the table, where its rows come from, what is away, since when.

    `since_s` counts seconds since 1970; `table` is empty where all of a pipeline waits.
    """

    table: str
    place: str
    reason: str
    since_s: float


@runtime_checkable
class TellsWaits(Protocol):
    """An input log whose tables wait for systems of others, one without the other."""

    def waits(self) -> Sequence[Waiting]:
        """Return the tables that wait; `ends` leaves them out."""
        ...

    def hold(self, table: str, reason: str) -> None:
        """Let a table wait for this reason, until its system is asked again."""
        ...


@runtime_checkable
class RefusesRows(Protocol):
    """An input log in which a row may not be explained by the settings: its table waits until somebody decides."""

    def refuse(self, table: str, reason: str) -> None:
        """Let a table wait for this reason until `release`, whatever its system answers."""
        ...

    def release(self, table: str) -> None:
        """Let a table wait no longer for a decision."""
        ...


@runtime_checkable
class KnowsItsSources(Protocol):
    """An input log whose rows come from elsewhere: there may be more of them than `ends` says."""

    def settled_s(self) -> Mapping[tuple[str, int], float | None]:
        """Return per place when its source last said that it has no rows beyond `ends`, in seconds of the monotonic clock.

        None where the source does not answer, or has more rows. A place that is not named has no source but the log.
        """
        ...


class StepLog(Protocol):
    """The durable log of step records, owned by the newest epoch."""

    def claim(self) -> int:
        """Become the owner: a new epoch above every other, durable; older owners are refused from now on."""
        ...

    def append(self, record: StepRecord) -> None:
        """Durable on return; `FencedError` if the record's epoch is not the newest, `DataError` if the step is not next."""
        ...

    def decide(self, epoch: int, step: int, command: str) -> StepRecord:
        """Add a command to a logged record, durable on return; repeating it does nothing. The record as it is then.

        Only for a step that has never finished. `FencedError` if the epoch is not the newest, `DataError` if the record is not
        kept.
        """
        ...

    def read(self, first: int) -> Sequence[StepRecord]:
        """Records from step `first` on, contiguous; `DataError` if the first wanted is trimmed."""
        ...

    def last(self) -> StepRecord | None:
        """The newest record."""
        ...

    def trim(self, step: int) -> None:
        """Drop records below `step`."""
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


class OutputLog(Protocol):
    """One worker's part of all outputs: views and dead letters, per step, each visible at most once (invariant 5)."""

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        ...

    def bounds(self) -> tuple[int, int]:
        """(first, last): steps first <= s < last have been written by this worker."""
        ...

    def write(self, epoch: int, step: int, parts: Mapping[str, Batch], dead: Sequence[DeadLetter]) -> None:
        """Write one step's part: below `last` compare the checksum and discard, at `last` append, above: error.

        Durable on return. `parts` holds one consolidated batch per view (empty ones may be left out). A differing
        checksum is a `DataError` that names the step; an epoch older than the newest seen is a `FencedError`.
        """
        ...

    def trim_progress(self, step: int) -> None:
        """Forget the checksums of steps below `step`, which no replay can reach; bounds stay."""
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...
