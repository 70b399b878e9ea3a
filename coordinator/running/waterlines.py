"""Where the waterlines of a pipeline stand, which partition holds each one back, and which are idle.

The event loop asks before each step; any thread may ask what was found last. Which partitions are idle is a decision: it is in
the record of the step that uses it.

Left out: the arithmetic (`dbsp.timing`), and since when partitions rest (`dbsp.runtime.idleness`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dbsp.coordinator.decisions.cutting import Positions
from dbsp.coordinator.running.clock import Clock
from dbsp.logs import InputLog, KnowsItsSources
from dbsp.operators.time.watermark import Watermark
from dbsp.plan.plan import Plan
from dbsp.runtime.idleness import Idleness
from dbsp.timing import IDLE_S, Partitions, Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A watermark as users know it: its column, and its table unless it is on a derived stream."""

    node: int
    name: str
    column: str
    table: str | None

    @property
    def label(self) -> str:
        """Return the name that status and metrics show: the table's, or that of the derived stream's node, and the column."""
        return f"{self.table or self.name}.{self.column}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """What one partition of a table says: the latest time of its rows minus the lateness; None before its first row."""

    partition: int
    reached_us: int | None
    idle: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WaterlineStatus:
    """Where the waterline of a watermark stands, and what each partition of its table says. Derived streams have none."""

    watermark: Watched
    waterline_us: int | None
    partitions: tuple[PartitionStatus, ...] = ()

    @property
    def slowest(self) -> PartitionStatus | None:
        """Return the partition that holds the waterline back; None if all are idle."""
        active = [each for each in self.partitions if not each.idle]
        return min(active, key=lambda each: -np.inf if each.reached_us is None else each.reached_us, default=None)

    def as_json(self) -> dict[str, Any]:
        """Return the standing as JSON values."""
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
        if isinstance(operator := node.operator, Watermark):
            table = None if operator.event_time is None else operator.event_time.table
            found.append(Watched(node=node.id, name=node.name, column=operator.column, table=table))
    return tuple(found)


class Waterlines:
    """Agrees on the waterlines of the next step, and remembers them for whoever asks."""

    def __init__(
        self, watermarks: Sequence[Watched] = (), idle_s: Callable[[str], float] = lambda _table: IDLE_S
    ) -> None:
        """Nothing was looked at yet; `idle_s` says of a table how long its partitions rest before they are idle."""
        self._watermarks = tuple(watermarks)
        self._tables = {each.node: each.table for each in watermarks if each.table is not None}
        self._idleness = Idleness(idle_s)
        self._sources: tuple[KnowsItsSources, ...] = ()
        self._last = Timing(), Partitions(present={})

    def ask(self, sources: KnowsItsSources) -> None:
        """Ask one more, before each step, whether there may be rows that the input does not count yet."""
        self._sources = (*self._sources, sources)

    def forget(self) -> None:
        """Begin to count the rest of every partition anew: the input may have been away."""
        self._idleness.forget()

    def agreed(self, timing: Timing, inputs: InputLog, ends: Positions, read: Positions, clock: Clock) -> Timing:
        """Return the timing with the waterlines and the idle partitions of a step that is decided now."""
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
        """Where each watermark stood when the last step was decided."""
        timing, partitions = self._last
        return tuple(_standing(each, timing, partitions) for each in self._watermarks)

    @property
    def status(self) -> list[dict[str, Any]]:
        """Every watermark as JSON values: its waterline, what holds it back, and each partition of its table."""
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
