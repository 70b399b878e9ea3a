"""The waterlines of a pipeline: the time each has reached, the partition that holds it back, and the idle partitions.

The event loop computes them before each step; any thread may read the last result. The set of idle partitions is a
decision, and therefore part of the record of the step that uses it.

Elsewhere: the arithmetic (`dbsp.steps.timing`), and how long partitions have been quiet (`dbsp.runtime.idleness`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dbsp.coordinator.decisions.cutting import Positions
from dbsp.coordinator.running.clock import Clock
from dbsp.logs import InputLog, KnowsItsSources
from dbsp.plan.plan import Plan
from dbsp.runtime.idleness import Idleness
from dbsp.steps.timing import IDLE_S, Partitions, Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A watermark as users know it: its column, and its table unless it is on a derived stream."""

    node: int
    name: str
    column: str
    table: str | None

    @property
    def label(self) -> str:
        """Return the name in status and metrics: the table, or the derived stream's node, and the column."""
        return f"{self.table or self.name}.{self.column}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """The status of one partition of a table.

    `reached_us` is the latest time of its rows minus the lateness; None before its first row.
    """

    partition: int
    reached_us: int | None
    idle: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WaterlineStatus:
    """The waterline of a watermark, and the status of each partition of its table; derived streams have no partitions."""

    watermark: Watched
    waterline_us: int | None
    partitions: tuple[PartitionStatus, ...] = ()

    @property
    def slowest(self) -> PartitionStatus | None:
        """Return the partition that holds the waterline back; None if all are idle."""
        active = [each for each in self.partitions if not each.idle]
        return min(active, key=lambda each: -np.inf if each.reached_us is None else each.reached_us, default=None)

    def as_json(self) -> dict[str, Any]:
        """Return the status as JSON values."""
        slowest = self.slowest
        return {
            "table": self.watermark.table, "column": self.watermark.column, "node": self.watermark.name,
            "waterline": _iso(self.waterline_us), "partitions": len(self.partitions),
            "idle": [each.partition for each in self.partitions if each.idle],
            "held_back_by": None if slowest is None else {"partition": slowest.partition, "reached": _iso(slowest.reached_us)},
            "by_partition": [
                {"partition": each.partition, "reached": _iso(each.reached_us), "idle": each.idle} for each in self.partitions
            ],
        }  # fmt: skip


def watched(plan: Plan) -> tuple[Watched, ...]:
    """Return the watermarks of a plan."""
    found = []
    for node in plan.nodes:
        if (watermark := node.operator.watermark()) is not None:
            table = None if watermark.time is None else watermark.time.table
            found.append(Watched(node=node.id, name=node.name, column=watermark.column, table=table))
    return tuple(found)


class Waterlines:
    """The waterlines of the next step, and the memory of the last ones for readers on any thread."""

    def __init__(
        self, watermarks: Sequence[Watched] = (), idle_s: Callable[[str], float] = lambda _table: IDLE_S
    ) -> None:
        """Begin with no waterline; `idle_s` returns after how many quiet seconds a table's partitions are idle."""
        self._watermarks = tuple(watermarks)
        self._tables = {each.node: each.table for each in watermarks if each.table is not None}
        self._idleness = Idleness(idle_s)
        self._sources: tuple[KnowsItsSources, ...] = ()
        self._last = Timing(), Partitions(present={})

    def ask(self, sources: KnowsItsSources) -> None:
        """Add a source to ask before each step whether it has rows that the input does not count yet."""
        self._sources = (*self._sources, sources)

    def forget(self) -> None:
        """Measure the quiet time of every partition anew, because the input may have been away."""
        self._idleness.forget()

    def agreed(self, timing: Timing, inputs: InputLog, ends: Positions, read: Positions, clock: Clock) -> Timing:
        """Return the timing with the waterlines and idle partitions of a step that is decided now."""
        if not self._tables:
            self._last = timing, Partitions(present={})
            return timing
        sources = (*self._sources, inputs) if isinstance(inputs, KnowsItsSources) else self._sources
        settled_s = {place: said_s for source in sources for place, said_s in source.settled_s().items()}
        partitions = self._idleness.look(
            set(self._tables.values()), ends, read, clock.monotonic_s(), before=timing.idle, settled_s=settled_s
        )
        found = timing.over(self._tables, partitions)
        self._last = found, partitions
        return found

    @property
    def standings(self) -> tuple[WaterlineStatus, ...]:
        """Return the status of each watermark when the last step was decided."""
        timing, partitions = self._last
        return tuple(_standing(each, timing, partitions) for each in self._watermarks)

    @property
    def status(self) -> list[dict[str, Any]]:
        """Return the status of each watermark as JSON values."""
        return [standing.as_json() for standing in self.standings]


def _standing(watermark: Watched, timing: Timing, partitions: Partitions) -> WaterlineStatus:
    table, reached = watermark.table, timing.reached.get(watermark.node, {})
    present = [] if table is None else sorted(reached.keys() | set(partitions.present.get(table, ())))
    return WaterlineStatus(
        watermark=watermark, waterline_us=timing.agreed.get(watermark.node),
        partitions=tuple(
            PartitionStatus(partition=each, reached_us=reached.get(each), idle=(table, each) in partitions.idle)
            for each in present
        ),
    )  # fmt: skip


def _iso(at_us: int | None) -> str | None:
    return None if at_us is None else str(np.datetime64(at_us, "us"))
