"""Choose the worker that reads each input partition: by the rows that it had lately, else even, with few moves.

**Without rows** (`assigned`) every partition counts the same. Every worker reads the same number of a table's partitions,
or one more. So the open question is who has one more of which table. That is an assignment of least cost, and costs are
compared in this order:

1. the balance over all tables: the sum over workers of n * n, for n partitions of a worker;
2. partitions that change their worker.

`assigned` begins with a good choice, and moves extra partitions along rings of workers until no ring lowers the cost.

**With rows** (`balanced`) the load of a worker is the sum of its partitions' rows, divided by its share. Partitions move
from loaded workers to others while a move lowers the load of the two by more than a tolerance.

Who reads a partition decides no result (invariant 9), so a changed reader moves no state.

Source: docs/design/0063-readers-of-partitions.md. No I/O here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dbsp.standby_places import Cost, cheaper_ring

Readers = tuple[tuple[str, tuple[int, ...]], ...]
"""Per table, sorted by name, the worker that reads each partition from 0 on."""
BEGINS_ABOVE, ENDS_BELOW = 0.1, 0.05
"""What moves of partitions must gain, as parts of the average load: to begin at all, and to go on."""
_ANY = -1
"""The node of the ring at which the load of a worker changes."""


def reader_of(readers: Readers, workers: Sequence[int], table: str, partition: int) -> int:
    """Return the worker that reads a partition, whether it is in the table of readers or is newer than that.

    Newer partitions go in turn to the workers with the fewest of the table, then of all. Without any table of
    readers, as in data of version 0.1.0, partition p belongs to `workers[p mod W]`.

    **Law** if the listed partitions of a table are even over the workers, they stay so with any number of newer ones.
    **Cost** one look for a listed partition; for a newer one as many as there are listed partitions.

    >>> [reader_of((("t", (4, 4)),), (4, 7), "t", partition) for partition in range(5)]
    [4, 4, 7, 4, 7]
    """
    if not readers:
        return workers[partition % len(workers)]
    mine = next((found for name, found in readers if name == table), ())
    if partition < len(mine):
        return mine[partition]
    here, everywhere = Counter(mine), Counter(worker for _, found in readers for worker in found)
    ranked = sorted(workers, key=lambda worker: (here[worker], everywhere[worker], worker))
    return ranked[(partition - len(mine)) % len(workers)]


def assigned(before: Mapping[str, Sequence[int]], workers: Sequence[int]) -> Readers:
    """Return who reads each partition; `before` has the present reader of each, who may be none of the workers.

    **Law** the numbers of partitions of two workers differ by at most one, for each table and for all together. Of all such
    choices the result moves the fewest partitions. It depends on the arguments alone, and a second call changes nothing.

    >>> assigned({"t": (0, 1, 0, 1), "u": (0,)}, (0, 1, 2))
    (('t', (0, 1, 2, 1)), ('u', (0,)))
    """
    tables = sorted(before)
    held = [
        [[p for p, reader in enumerate(before[table]) if reader == worker] for worker in workers] for table in tables
    ]
    each = [divmod(len(before[table]), len(workers)) for table in tables]
    kept = [
        sum(1 << row for row in range(len(tables)) if len(held[row][place]) > each[row][0])
        for place in range(len(workers))
    ]
    extra = _extra([rest for _, rest in each], kept)
    found = []
    for row, table in enumerate(tables):
        sizes = [each[row][0] + (mask >> row & 1) for mask in extra]
        found.append((table, _read(len(before[table]), held[row], sizes, workers)))
    return tuple(found)


def balanced(
    before: Mapping[str, Sequence[int]],
    workers: Sequence[int],
    rows: Mapping[str, Sequence[int]],
    shares: Sequence[float],
    *,
    anew: bool,
) -> Readers:
    """Return who reads each partition, by the rows that each partition had lately.

    `rows` has a number for each partition of `before`. `shares[i]` is the part of the rows that `workers[i]` should have,
    in any unit. With `anew` the workers have changed: the choice begins with `assigned`, and else with the present readers.

    **Law** A is the average load, and L the rows of the largest partition, divided by the average share.

    - A move takes a partition with rows. The load of its new worker stays below that of the old one by more than
      `ENDS_BELOW` * A.
    - None moves unless moves that gain more than `BEGINS_ABOVE` * A lower a load by more than that.
    - So no load (rows / share) is above (1 + 2 * `BEGINS_ABOVE`) * A + L. With equal shares, no worker has more than 1.2
      times its part of the rows, plus the rows of one partition.
    - Without rows, and with equal rows and equal shares, the result is that of `assigned`.
    - A second call changes nothing.
    - Nor does a call after moves, with equal shares and slightly other rows. No load, and no partition with rows, may have
      changed by more than a quarter of (`BEGINS_ABOVE` - `ENDS_BELOW`) * A.

    **Cost** each move looks at all workers, and at the partitions of the worker that gives.

    >>> balanced({"t": (0, 1, 0, 1)}, (0, 1), {"t": (90, 1, 90, 1)}, (1.0, 1.0), anew=False)
    (('t', (1, 1, 0, 1)),)
    """
    known = {count for table in before for count in rows[table]}
    even = len({*shares}) == 1
    if not any(known) or (even and len(known) == 1):
        return assigned(before, workers)
    start = assigned(before, workers) if anew else tuple((table, tuple(before[table])) for table in sorted(before))
    loads = _Loads.of(start, workers, rows, shares)
    at_first = loads.all()
    moves = dict(loads.moves(BEGINS_ABOVE))
    gained = max(then - now for then, now in zip(at_first, loads.all(), strict=True))
    if gained <= loads.slack(BEGINS_ABOVE):
        return start
    moves.update(loads.moves(ENDS_BELOW))
    found = {table: [*readers] for table, readers in start}
    for (table, partition), aim in moves.items():
        found[table][partition] = workers[aim]
    return tuple((table, tuple(readers)) for table, readers in found.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loads:
    """The rows of each worker, and its partitions with rows; a worker is named by its place.

    Rows are whole numbers, so that loads after moves are those of a new count, and a second call decides the same.
    """

    shares: Sequence[float]
    rows: list[int]
    """The rows of each worker."""
    each: list[dict[tuple[str, int], int]]
    """Per worker, its partitions as (table, partition), and their rows."""
    counts: Counter[tuple[int, str]]
    """The partitions of each worker and table, with and without rows."""

    @classmethod
    def of(
        cls, readers: Readers, workers: Sequence[int], rows: Mapping[str, Sequence[int]], shares: Sequence[float]
    ) -> _Loads:
        places = {worker: place for place, worker in enumerate(workers)}
        found = cls(shares=shares, rows=[0] * len(workers), each=[{} for _ in workers], counts=Counter())
        for table, mine in readers:
            for partition, reader in enumerate(mine):
                place, count = places[reader], rows[table][partition]
                found.counts[place, table] += 1
                if count:
                    found.rows[place] += count
                    found.each[place][table, partition] = count
        return found

    def all(self) -> list[float]:
        """Return the load of each worker."""
        return [self._load(place) for place in range(len(self.rows))]

    def slack(self, tolerance: float) -> float:
        """Return a part of the average load as a load."""
        return tolerance * sum(self.rows) / sum(self.shares)

    def moves(self, tolerance: float) -> Iterator[tuple[tuple[str, int], int]]:
        """Move partitions until no move gains so much; yield each and the worker that has it then."""
        while (move := self._best(self.slack(tolerance))) is not None:
            place, here, aim = move
            self._move(place, here, aim)
            yield place, aim

    def _best(self, slack: float) -> tuple[tuple[str, int], int, int] | None:
        """Return a partition, the worker that gives it and that which gets it; None if no move gains so much.

        The most loaded worker gives, if it can. Of its partitions that one is given which leaves the two lowest.
        """
        loads = self.all()
        ranked = sorted(range(len(loads)), key=lambda place: (-loads[place], place))
        least = list({self.shares[place]: place for place in ranked}.values())  # of equal shares, one gets
        for here in ranked:
            if not self.each[here]:
                continue
            fewest, most = min(self.each[here].values()), loads[here] - slack
            aims = [aim for aim in least if aim != here and self._load(aim, fewest) < most]
            able = [
                (max(self._load(here, -count), after), self._uneven(aim, here, place[0]), place, aim)
                for place, count in self.each[here].items()
                for aim in aims
                if (after := self._load(aim, count)) < most
            ]
            if able:
                *_, place, aim = min(able)
                return place, here, aim
        return None

    def _move(self, place: tuple[str, int], here: int, aim: int) -> None:
        """Give a partition from one worker to another."""
        count = self.each[here].pop(place)
        self.each[aim][place] = count
        self.rows[here] -= count
        self.rows[aim] += count
        self.counts[here, place[0]] -= 1
        self.counts[aim, place[0]] += 1

    def _load(self, place: int, more: int = 0) -> float:
        return (self.rows[place] + more) / self.shares[place]

    def _uneven(self, aim: int, here: int, table: str) -> int:
        """Return how many partitions of a table one worker has more than another."""
        return self.counts[aim, table] - self.counts[here, table]


def _read(count: int, held: Sequence[Sequence[int]], sizes: Sequence[int], workers: Sequence[int]) -> tuple[int, ...]:
    """Return the readers of a table's partitions: each worker keeps what it has, up to its number, and gets what it lacks."""
    found = dict[int, int]()
    for worker, mine, size in zip(workers, held, sizes, strict=True):
        found.update(dict.fromkeys(mine[:size], worker))
    loose = iter([partition for partition in range(count) if partition not in found])
    for worker, mine, size in zip(workers, held, sizes, strict=True):
        for _ in range(size - len(mine)):
            found[next(loose)] = worker
    return tuple(found[partition] for partition in range(count))


def _extra(rests: Sequence[int], kept: Sequence[int]) -> list[int]:
    """Return for each worker the tables of which it has one more, as bits.

    `rests` has the number of workers that have one more, per table. `kept` has for each worker the tables of which it reads
    one more already.
    """
    found = min((_begun(rests, kept, mildly) for mildly in (True, False)), key=lambda begun: _cost(begun, kept))
    while True:
        # workers with the same tables are alike, so one of each kind will do
        places = list({pair: place for place, pair in reversed([*enumerate(zip(found, kept, strict=True))])}.values())
        edges = _edges(places, found, kept)
        ring = cheaper_ring([*places, _ANY], edges)
        if ring is None:
            return found
        rows = [(edges[pair][1], *pair) for pair in pairwise([*ring, ring[0]])]
        for moved, here, aim in rows:
            if moved is not None:
                found[here] ^= 1 << moved
                found[aim] ^= 1 << moved


def _begun(rests: Sequence[int], kept: Sequence[int], mildly: bool) -> list[int]:
    """Return a choice for `_extra` to begin with, table by table: with `mildly` the loads need only be below the average."""
    count = len(kept)
    most, found, loads = -(-sum(rests) // count), [0] * count, [0] * count
    for row, rest in enumerate(rests):
        order = sorted(
            range(count),
            key=lambda at: (loads[at] >= most if mildly else loads[at], not kept[at] >> row & 1, loads[at], at),
        )
        for place in order[:rest]:
            found[place] |= 1 << row
            loads[place] += 1
    return found


def _cost(found: Sequence[int], kept: Sequence[int]) -> tuple[int, int]:
    """Return the load and the moves of a choice."""
    return sum(mine.bit_count() ** 2 for mine in found), sum(
        (mine & ~had).bit_count() for mine, had in zip(found, kept, strict=True)
    )


def _edges(
    places: Sequence[int], found: Sequence[int], kept: Sequence[int]
) -> dict[tuple[int, int], tuple[Cost, int | None]]:
    """Return for each pair of nodes the cost of giving one extra partition from the first to the second, and its table."""
    edges = dict[tuple[int, int], tuple[Cost, int | None]]()
    for here in places:
        mine = found[here]
        load = mine.bit_count()
        edges[here, _ANY] = (0, 2 * load + 1, 0), None
        if load:
            edges[_ANY, here] = (0, 1 - 2 * load, 0), None
        for other in places:
            free = mine & ~found[other]
            better, equal = free & ~kept[here] & kept[other], free & ~(kept[here] ^ kept[other])
            for moved, rows in ((-1, better), (0, equal), (1, free)):
                if rows:
                    edges[here, other] = (0, 0, moved), (rows & -rows).bit_length() - 1
                    break
    return edges
