"""The contracts of the logs (input, step log, output), and the values that pass through them.

`dbsp.io` implements the sources, the step log and the outputs; runtimes receive them and know only these protocols. A
position belongs to one input partition: `offset` is the next row to read. Ranges are half open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from dbsp.logs.sizes import Sizes
from dbsp.steps.timing import Moment, Place, Waterline
from dbsp.zset.batch import Batch

INSERT, DELETE = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The rows `first <= offset < last` of one partition of one table's input."""

    table: str
    partition: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """All facts that decide the result of one step, durable before any output of the step (invariant 4).

    - `ranges` covers every (table, partition) that has rows in this step.
    - `clock_us` is the time that `now()` shows, `clock_before_us` the time that it showed in the step before.
    - `waterlines` are those agreed on at the end of the step before. They leave out the partitions that are `idle`.
    - `commands` are logged decisions, such as a skip (`dbsp.logs.step_commands`).

    Equal records give equal outputs, whatever the layout.
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
        """Return the time of the step: its clock, its waterlines and its idle partitions."""
        return Moment(
            clock_us=self.clock_us, clock_before_us=self.clock_before_us, waterlines=self.waterlines, idle=self.idle
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A row that the pipeline could not use, because the input could not decode it or a node failed on it.

    Input letters name the table in `origin`, and `partition` and `offset`. A node's letters name the node in `origin`.
    `payload` is the row as received or as JSON; `header` is the first line of the CSV that had the row. A node's letters are
    a Z-set. `weight` counts such rows that the node fails on since this step; a negative weight takes rows back, and 0
    does not occur.

    **Law** Summed over the workers of a step, a node's letters are the same for any number of workers. Summed over all
    steps, they are the rows, pairs or groups on which the node fails now. A new circuit over the present tables would
    fail on the same ones. Letters of the input, of late rows and of lookup joins are a history: no later step takes
    them back.
    """

    step: int
    origin: str
    partition: int
    offset: int
    reason: str
    payload: str
    weight: int = 1
    header: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The decoded changes of one table from one range, in log order.

    `batch` is loose with the table's schema and weights +1. `operations[i]` is INSERT or DELETE, and `offsets[i]` is
    the row's offset in its partition. A delete on a table with a primary key may hold nulls outside the key. If the
    caller asked for some columns only, `batch` has these, and `whole` reads the same rows again with all columns.

    `stored_bytes` are the bytes of the rows at their source. `arrived_s` says when the first row arrived there, in
    seconds since 1970; it is None if the log does not know. Both are for metrics alone.
    """

    table: str
    partition: int
    batch: Batch
    operations: np.ndarray
    offsets: np.ndarray
    dead: tuple[DeadLetter, ...] = field(default=())
    whole: Callable[[], Batch] | None = field(default=None)
    stored_bytes: int = 0
    arrived_s: float | None = None


class InputLog(Protocol):
    """A durable, partitioned log of one pipeline's table changes."""

    def partitions(self, table: str) -> int:
        """Return the number of partitions of the table's input."""
        ...

    def ends(self) -> Mapping[tuple[str, int], int]:
        """Return the offset after the last readable row, per (table, partition)."""
        ...

    def floors(self) -> Mapping[tuple[str, int], int]:
        """Return the offset of the first row that the log still keeps, per (table, partition).

        A new reader begins there.
        """
        ...

    def read(self, range_: Range, step: int) -> Sequence[Changes]:
        """Return the changes of one range, with its bad rows as dead letters.

        **Errors** `DataError`, which names the offsets, if part of the range is gone.
        """
        ...

    def sizes(self, waiting: Sequence[Range]) -> Mapping[tuple[str, int], Sizes]:
        """Return the sizes of these rows, exact or estimated, per (table, partition); they bound a step in bytes."""
        ...

    def trim(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Drop the rows below these offsets, which no openable version needs."""
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


def read_so_far(
    done: Mapping[tuple[str, int], int], floors: Mapping[tuple[str, int], int]
) -> dict[str, tuple[Range, ...]]:
    """Return all rows below the positions, for each table whose log still has every row.

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
    """An input log that can leave columns unread, as one over Parquet files."""

    def read_columns(self, range_: Range, step: int, columns: frozenset[str]) -> Sequence[Changes]:
        """Return the same rows and bad rows as `read`, reduced to these columns if reading them alone is less work."""
        ...


@runtime_checkable
class AcceptsOutput(Protocol):
    """An output log whose rows a later step can correct."""

    def accept(self, epoch: int, step: int, parts: Mapping[str, Batch], dead: Sequence[DeadLetter]) -> None:
        """Write one step's part as `OutputLog.write` does; a part that differs from the stored one counts from now on.

        The next step that is written includes the difference. Repeating the call does nothing.
        """
        ...

    def differing(self, step: int, parts: Mapping[str, Batch], dead: Sequence[DeadLetter]) -> list[str]:
        """Return the views whose part of this step differs from the one that counts."""
        ...


@runtime_checkable
class TellsChecksums(Protocol):
    """An output log that tells what it has written, also to a process that does not write it."""

    def checksum(self, step: int) -> int | None:
        """Return the checksum of a step's part; None if the step was not written, or its checksum was trimmed."""
        ...


@runtime_checkable
class KeepsTransactions(Protocol):
    """An input log in which rows of several partitions may belong to one transaction."""

    def transactions(self, done: Mapping[tuple[str, int], int]) -> Sequence[Sequence[Range]]:
        """Return the transactions with rows that are not done, oldest first; one step has to take all ranges of one."""
        ...


@runtime_checkable
class ResumableInput(Protocol):
    """An input log on the coordinator's disk that can be made again at the positions of a checkpoint, without its rows."""

    def remembered(self, positions: Mapping[tuple[str, int], int]) -> dict[str, Any]:
        """Return what the log made again needs besides the positions, as JSON values: the numbers of producers' pushes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An input that waits for an external system: its table, the source, the reason, and since when.

    `since_s` counts seconds since 1970. `table` is empty if the whole pipeline waits.
    """

    table: str
    place: str
    reason: str
    since_s: float


@runtime_checkable
class TellsWaits(Protocol):
    """An input log whose tables can each wait for an external system while the others go on."""

    def waits(self) -> Sequence[Waiting]:
        """Return the tables that wait; `ends` leaves them out."""
        ...

    def hold(self, table: str, reason: str) -> None:
        """Let a table wait for this reason, until the log asks the table's system again."""
        ...


@runtime_checkable
class RefusesRows(Protocol):
    """An input log that may read a row which no setting explains; its table then waits for a decision."""

    def refuse(self, table: str, reason: str) -> None:
        """Let a table wait for this reason until `release`, whatever its system replies."""
        ...

    def release(self, table: str) -> None:
        """End a table's wait for a decision."""
        ...


@runtime_checkable
class KnowsItsSources(Protocol):
    """An input log that reads external sources, which may have more rows than `ends` says."""

    def settled_s(self) -> Mapping[tuple[str, int], float | None]:
        """Return, per partition, when its source last said that it has no rows beyond `ends`.

        Times are seconds of the monotonic clock. The value is None if the source does not reply, or has more rows. A
        partition that the result leaves out has no source but the log.
        """
        ...


class StepLog(Protocol):
    """The durable log of step records, owned by the newest epoch."""

    def claim(self) -> int:
        """Take ownership and return a new epoch above every other, durably; the log refuses older owners from now on."""
        ...

    def append(self, record: StepRecord) -> None:
        """Append a record, durable on return.

        **Errors** `FencedError` if the record's epoch is not the newest, `DataError` if its step is not the next one.
        """
        ...

    def decide(self, epoch: int, step: int, command: str) -> StepRecord:
        """Add a command to a logged record, durable on return, and return the record with it.

        Only for a step that has never finished. Repeating the call does nothing.

        **Errors** `FencedError` if the epoch is not the newest, `DataError` if the log does not keep the record.
        """
        ...

    def read(self, first: int) -> Sequence[StepRecord]:
        """Return the records from step `first` on, without gaps; `DataError` if the log trimmed record `first`."""
        ...

    def last(self) -> StepRecord | None:
        """Return the newest record, None if the log is empty."""
        ...

    def trim(self, step: int) -> None:
        """Drop the records below `step`."""
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


@runtime_checkable
class CarriesLedger(Protocol):
    """A step log that outlives the coordinator's disk, and therefore carries the coordinator's ledger, too."""

    def note_ledger(self, ledger: Mapping[str, Any]) -> None:
        """Carry this ledger (JSON values) from now on, durable on return; do nothing before the log is claimed."""
        ...

    def ledger(self) -> dict[str, Any] | None:
        """Return the newest ledger that was noted; None if there was none."""
        ...

    def epoch(self) -> int:
        """Return the newest epoch; 0 before the first claim."""
        ...

    def refuse_replaced(self) -> None:
        """Raise `FencedError` if another object has claimed the log since this one did."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A sign of life of a coordinator.

    `of` is its host, its data folder and a number of its own. `stopped`: a user has stopped the pipeline. `pause_s`: no other
    heartbeat comes for this long, as the process becomes another version of dbsp. `application` is the name that a cluster has
    given to the coordinator's runtime; empty if there is none.
    """

    of: str
    stopped: bool = False
    pause_s: float = 0.0
    application: str = ""


class Heartbeats(Protocol):
    """The heartbeats of all coordinators of one pipeline, in one order for all hosts. Places are numbers that grow.

    Every method raises `AwayError` if the system that carries the heartbeats does not answer.
    """

    def beat(self, beat: Heartbeat, timeout_s: float) -> int:
        """Write a heartbeat; return its place when others can read it. After an error it is not written later."""
        ...

    def end(self) -> int:
        """Return the place of the next heartbeat."""
        ...

    def read(self, first: int) -> Mapping[int, Heartbeat]:
        """Return the heartbeats from a place on by their places, in order, as far as they are kept."""
        ...

    def close(self) -> None:
        """Drop the connections."""
        ...


class OutputLog(Protocol):
    """The log of one worker's part of all outputs: views and dead letters per step.

    Each step is visible at most once (invariant 5).
    """

    @property
    def place(self) -> str:
        """Return where the log is stored, for messages."""
        ...

    def bounds(self) -> tuple[int, int]:
        """Return (first, last): this worker has written the steps first <= s < last."""
        ...

    def write(self, epoch: int, step: int, parts: Mapping[str, Batch], dead: Sequence[DeadLetter]) -> None:
        """Write one step's part, durable on return; the step decides how.

        | step | action |
        | --- | --- |
        | below `last` | compare the checksum and discard the part |
        | `last` | append |
        | above `last` | error |

        `parts` holds one consolidated batch per view; the caller may leave out empty ones.

        **Errors** `DataError`, which names the step, if a checksum differs; `FencedError` if the epoch is older than
        the newest seen.
        """
        ...

    def trim_progress(self, step: int) -> None:
        """Forget the checksums of steps below `step`, which no replay can reach; `bounds` stay the same."""
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...
