"""Which input partitions are idle: read to the end that their source reported, for some time.

A partition without new rows would hold back the waterline of its table for ever; one whose broker is away, or whose rows are
still being copied, must hold it back. The input is looked at before each step is decided. The idle partitions are in the step's
record, so a replay needs neither the looks nor their times.

Source: design record 0041.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from dbsp.timing import Partitions, Place

NOTHING_SAID: Mapping[Place, float | None] = MappingProxyType({})


class Idleness:
    """Remembers since when each partition has been read to its end."""

    def __init__(self, idle_s: Callable[[str], float]) -> None:
        """Nothing was looked at; `idle_s` says of a table how long its partitions rest before they are idle."""
        self._idle_s = idle_s
        self._since_s: dict[Place, float] = {}
        self._met: set[Place] = set()

    def forget(self) -> None:
        """Begin anew: the input may have been away."""
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

        A place that `ends` named once and does not name now is away, and so not idle.

        **Shape** `settled_s` is as in `dbsp.logs.KnowsItsSources`; `before` are the partitions that were idle.
        **Law** a partition becomes idle when its source says that it ends where it was read to, `idle_s` after it was first found
        read so far; no look between may have found it otherwise. It stays idle until a look finds rows, or its source away. The
        only partition of a table is never idle, as nothing waits for it.
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
