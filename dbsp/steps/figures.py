"""The figures of one worker in one step that are not about operators: the input that it read, and the times of its phases.

These figures describe one run of the step and decide nothing, since a replay has other times. So they are only in reports,
never in a log.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dbsp.logs import Changes

READ: Final = "read"
SEGMENT: Final = "segment"
EXCHANGE: Final = "exchange"
LOOP: Final = "loop"
OUTPUT: Final = "output"
STATE: Final = "state"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRead:
    """The input of one table that a worker read in a step: its bytes, and when its oldest row arrived at the source.

    `stored_bytes` are bytes as the source stores them. `arrived_s` counts seconds since 1970; it is None where the log
    does not know the time.
    """

    table: str
    stored_bytes: int
    arrived_s: float | None = None


def reads_of(changes: Iterable[Changes]) -> tuple[TableRead, ...]:
    """Return the total bytes and the earliest arrival of the changes, by table.

    **Example**

    >>> import numpy as np
    >>> from dbsp.zset.batch import Batch
    >>> from dbsp.zset.schema import Schema
    >>> def change(table: str, stored_bytes: int, arrived_s: float | None) -> Changes:
    ...     none = np.empty(0, np.int64)
    ...     return Changes(table=table, partition=0, batch=Batch.empty(Schema(())), operations=none, offsets=none,
    ...                    stored_bytes=stored_bytes, arrived_s=arrived_s)
    >>> for read in reads_of([change("t", 5, 8.0), change("u", 1, None), change("t", 4, 7.0), change("t", 0, None)]):
    ...     print(read.table, read.stored_bytes, read.arrived_s)
    t 9 7.0
    u 1 None
    """
    found: dict[str, TableRead] = {}
    for change in changes:
        before = found.get(change.table, TableRead(table=change.table, stored_bytes=0))
        times = [at for at in (before.arrived_s, change.arrived_s) if at is not None]
        found[change.table] = TableRead(
            table=change.table, stored_bytes=before.stored_bytes + change.stored_bytes,
            arrived_s=min(times, default=None),
        )  # fmt: skip
    return tuple(found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPhase:
    """A stretch of time of a worker in a step; `began_s` counts seconds since 1970, by the clock of the worker's host.

    | name | time |
    | --- | --- |
    | `read` | the input is read and decoded; short if the input was read ahead |
    | `segment` | operators run |
    | `exchange` | rows are sent, and the worker waits for the rows of the other workers |
    | `loop` | as `exchange`, including the loops between two segments |
    | `output` | the changes of the views are made durable |
    | `state` | the additions to the traces are written |
    """

    name: str
    began_s: float
    seconds: float
    segment: int = 0

    @property
    def ended_s(self) -> float:
        """Return the end of the phase in seconds since 1970."""
        return self.began_s + self.seconds


class Stopwatch:
    """Measure phases one after the other; each begins where the one before ended.

    **Example**

    >>> watch = Stopwatch()
    >>> [watch.phase(name).name for name in (READ, SEGMENT)]
    ['read', 'segment']
    """

    def __init__(self) -> None:
        """Begin the first phase now."""
        self._began_s, self._at = time.time(), time.perf_counter()

    def phase(self, name: str, segment: int = 0) -> StepPhase:
        """End a phase now, and begin the next one."""
        now = time.perf_counter()
        made = StepPhase(name=name, began_s=self._began_s, seconds=now - self._at, segment=segment)
        self._began_s, self._at = made.ended_s, now
        return made

    def since(self, before: StepPhase, name: str) -> StepPhase:
        """Return the phase from the end of an earlier one, perhaps of another process, until this stopwatch began."""
        ended_s = before.ended_s
        return StepPhase(name=name, began_s=ended_s, seconds=max(0.0, self._began_s - ended_s), segment=before.segment)
