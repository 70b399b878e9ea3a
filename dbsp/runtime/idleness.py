"""Find idle input partitions: partitions that were read to the end reported by their source, for some time.

A partition without new rows would hold back the waterline of its table for ever. But a partition must hold it back
while its broker is away, or its rows are still being copied. The input is examined before each step is decided. The
step's record contains the idle partitions, so a replay needs neither these observations nor their times.

Source: design record 0041.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from dbsp.steps.timing import Partitions, Place

NOTHING_SAID: Mapping[Place, float | None] = MappingProxyType({})


class Idleness:
    """A record of the time since which each partition has been read to its end."""

    def __init__(self, idle_s: Callable[[str], float]) -> None:
        """Start without observations; `idle_s` returns how many seconds a table's partitions rest before they are idle."""
        self._idle_s = idle_s
        self._since_s: dict[Place, float] = {}
        self._met: set[Place] = set()

    def forget(self) -> None:
        """Forget all times, because the input may have been unavailable in between."""
        self._since_s = {}

    def look(
        self,
        tables: Collection[str],
        ends: Mapping[Place, int],
        read: Mapping[Place, int],
        now_s: float,
        *,
        before: Collection[Place] = (),
        settled_s: Mapping[Place, float | None] = NOTHING_SAID,
    ) -> Partitions:
        """Return the partitions of these tables, and which of them are idle now.

        A partition that `ends` named before and does not name now is away, and so not idle.

        **Shape** `settled_s` is as in `dbsp.logs.KnowsItsSources`; `before` are the partitions that were idle.

        **Law** a partition becomes idle `idle_s` after it was first found read to the end that its source reports.
        Every look in between must find it so. It stays idle until a look finds new rows, or its source away. The only
        partition of a table is never idle, because nothing waits for it.
        """
        self._met.update(place for place in ends if place[0] in tables)
        present: dict[str, list[int]] = {table: [] for table in tables}
        for table, partition in sorted(self._met):
            present.setdefault(table, []).append(partition)
        resting = {
            place: said_s
            for place, end in ends.items()
            if place in self._met and read.get(place, 0) >= end
            if (said_s := settled_s.get(place, now_s)) is not None
        }
        self._since_s = {place: self._since_s.get(place, now_s) for place in resting}
        idle = (
            place
            for place, said_s in resting.items()
            if len(present[place[0]]) > 1
            and (place in before or said_s - self._since_s[place] >= self._idle_s(place[0]))
        )
        return Partitions(present=present, idle=frozenset(idle))
