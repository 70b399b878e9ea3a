"""Choose the worker that reads each input partition: even per table and over all tables, with the fewest moves.

Every worker reads the same number of a table's partitions, or one more. So the open question is who has one more of which
table. That is an assignment of least cost, and costs are compared in this order:

1. the balance over all tables: the sum over workers of n * n, for n partitions of a worker;
2. partitions that change their worker.

`assigned` begins with a good choice, and moves extra partitions along rings of workers until no ring lowers the cost. Who
reads a partition decides no result (invariant 9), so a changed reader moves no state.

Source: docs/design/0063-readers-of-partitions.md. No I/O here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from dbsp.standby_places import Cost, cheaper_ring

Readers = tuple[tuple[str, tuple[int, ...]], ...]
"""Per table, sorted by name, the worker that reads each partition from 0 on."""
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
