"""The rows that each input partition had in the last minutes, as steps read them: the figures of a balanced layout.

A decaying sum per partition: what was read `HALF_LIFE_S` ago counts half. Only what steps of this process read counts,
so nothing is known after a restart. Source: docs/design/0063-readers-of-partitions.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from dbsp.coordinator.running.intake import counted
from dbsp.logs import Range

HALF_LIFE_S = 180.0


class RecentRows:
    """Counts rows on one thread; any thread may read."""

    def __init__(self) -> None:
        """Begin without rows."""
        self._sums: dict[tuple[str, int], tuple[float, float]] = {}

    def read(self, ranges: Iterable[Range], now_s: float) -> None:
        """Add the rows of a step's ranges; partitions that it did not read cost nothing."""
        for each in ranges:
            place = each.table, each.partition
            self._sums[place] = self._sum(place, now_s) + each.last - each.first, now_s

    def of(self, places: Collection[tuple[str, int]], now_s: float) -> Mapping[str, tuple[int, ...]]:
        """Return per table the rows of each partition, given all pairs (table, partition).

        >>> recent = RecentRows()
        >>> recent.read([Range(table="t", partition=1, first=5, last=105)], 0.0)
        >>> recent.of({("t", 0), ("t", 1), ("u", 0)}, 0.0), recent.of({("t", 1)}, HALF_LIFE_S)
        ({'t': (0, 100), 'u': (0,)}, {'t': (0, 50)})
        """
        return {
            table: tuple(round(self._sum((table, partition), now_s)) for partition in range(count))
            for table, count in counted(places).items()
        }

    def _sum(self, place: tuple[str, int], now_s: float) -> float:
        rows, at_s = self._sums.get(place, (0.0, now_s))
        return float(rows * 0.5 ** ((now_s - at_s) / HALF_LIFE_S))
