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
    def shown(self) -> list[dict[str, Any]]:
        """Every watermark, for people and monitors: its waterline, what holds it back, the idle partitions of its table."""
        timing, partitions = self._last
        return [_shown(each, timing, partitions) for each in self._watermarks]


def _shown(watermark: Watched, timing: Timing, partitions: Partitions) -> dict[str, Any]:
    table, reached = watermark.table, timing.reached.get(watermark.node, {})
    present = [] if table is None else sorted(reached.keys() | set(partitions.present.get(table, ())))
    idle = [partition for partition in present if (table, partition) in partitions.idle]
    active = [partition for partition in present if partition not in idle]
    slowest = min(active, key=lambda partition: reached.get(partition, -np.inf), default=None)
    return {
        "table": table, "column": watermark.column, "node": watermark.name,
        "waterline": _iso(timing.agreed.get(watermark.node)), "partitions": len(present), "idle": idle,
        "held_back_by": None if slowest is None else {"partition": slowest, "reached": _iso(reached.get(slowest))},
    }  # fmt: skip


def _iso(at_us: int | None) -> str | None:
    return None if at_us is None else str(np.datetime64(at_us, "us"))
