"""Layouts: the owner of each shard, the reader of each input partition, and the host of each worker.

A shard is a contiguous range of key hashes: the top log2(S) bits. A layout is a value. Every version of it is logged, and
version numbers mean only their order. There are two ways to choose S, the shard count:

- `fixed`: given once;
- `dynamic`: the next power of two of W / k, doubled and halved as the worker count W changes.

Invariant 2: every key of a sharded stream has exactly one owner, because `owners` has one entry per shard.
Source: docs/concepts/rescale.md. No I/O here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dbsp.errors import ConfigError
from dbsp.hosts import Offered, Zones, check_hosts, zone_of
from dbsp.input_readers import Readers, balanced, reader_of
from dbsp.stored import stored

SHARDS_MAX = 1 << 16
WORKERS_MAX = 4096


@stored("Layout", "version owners workers hosts first_steps dynamic_k? offered? readers? zones?")
@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Shards to workers, workers to hosts, input partitions to workers.

    **Shape** `owners[i]` is the worker that owns shard i of `len(owners)`, a power of two. `workers` are sorted numbers,
    not necessarily 0..W-1. `first_steps[j]` is the first step of the layout version that added `workers[j]`.
    `offered` are (host, weight) pairs. A rescale places new workers on these hosts; the weight is the host's share of the
    state. If `offered` is empty, new workers are placed on the first worker's host. `readers` has the worker that reads each
    input partition, per table. Partitions that are not in it have a reader by a rule (`reader_of`). `zones` are (host, zone)
    pairs of the settings; a rescale spreads workers over zones where weights leave the choice.
    """

    version: int
    owners: tuple[int, ...]
    workers: tuple[int, ...]
    hosts: tuple[str, ...]
    first_steps: tuple[int, ...]
    dynamic_k: float | None = None
    offered: Offered = ()
    readers: Readers = ()
    zones: Zones = ()

    def __post_init__(self) -> None:
        """Raise `ConfigError` if the layout breaks invariant 2 or names an unknown worker."""
        count = len(self.owners)
        if count < 1 or count & (count - 1) or count > SHARDS_MAX:
            raise ConfigError(f"shard count must be a power of two: shards={count} shards_max={SHARDS_MAX}")
        if not set(self.owners) <= set(self.workers):
            raise ConfigError(f"a shard belongs to an unknown worker: workers={list(self.workers)}")
        if not (len(self.workers) == len(self.hosts) == len(self.first_steps)):
            raise ConfigError("workers, hosts and first steps must have one entry each")
        if not {reader for _, found in self.readers for reader in found} <= set(self.workers):
            raise ConfigError(f"an input partition belongs to an unknown worker: workers={list(self.workers)}")
        check_hosts(self.offered)

    @property
    def shards(self) -> int:
        """Return the number of shards, a power of two."""
        return len(self.owners)

    @property
    def shard_bits(self) -> int:
        """Return log2 of the shard count."""
        return self.shards.bit_length() - 1

    def shard_of(self, key_hash: np.ndarray) -> np.ndarray:
        """Return the shard of each key hash: its top bits."""
        if self.shard_bits == 0:
            return np.zeros(len(key_hash), dtype=np.int64)
        return (key_hash >> np.uint64(64 - self.shard_bits)).astype(np.int64)

    def slot_of(self, key_hash: np.ndarray) -> np.ndarray:
        """Return the position in `workers` of the owner of each key hash."""
        slots = np.searchsorted(np.asarray(self.workers), np.asarray(self.owners))
        chosen: np.ndarray = slots.astype(np.uint32)[self.shard_of(key_hash)]
        return chosen

    def shard_counts(self) -> dict[int, int]:
        """Return the number of shards that each worker owns."""
        return {worker: self.owners.count(worker) for worker in self.workers}

    def ranges_of(self, worker: int) -> list[tuple[int, int]]:
        """Return the hash ranges [first, last) that a worker owns, with neighbours joined; last may be 2**64."""
        width = 1 << (64 - self.shard_bits)
        ranges: list[tuple[int, int]] = []
        for shard, owner in enumerate(self.owners):
            if owner != worker:
                continue
            first, last = shard * width, (shard + 1) * width
            if ranges and ranges[-1][1] == first:
                ranges[-1] = (ranges[-1][0], last)
            else:
                ranges.append((first, last))
        return ranges

    def partitions_of(self, worker: int, table: str, partitions: int) -> list[int]:
        """Return the input partitions of a table, in `range(partitions)`, that this worker reads."""
        return [partition for partition in range(partitions) if self.reader_of(table, partition) == worker]

    def reader_of(self, table: str, partition: int) -> int:
        """Return the worker that reads an input partition, whatever the number of partitions."""
        return reader_of(self.readers, self.workers, table, partition)


def initial(
    workers: int,
    *,
    shards: int | None = None,
    dynamic_k: float | None = 0.1,
    host: str = "",
    hosts: Sequence[tuple[str, float]] = (),
    zones: Zones = (),
) -> Layout:
    """Return the first layout: contiguous runs of shards, as even as whole shards and the weights of `hosts` allow.

    **Example**

    >>> initial(3, shards=8).owners
    (0, 0, 0, 1, 1, 1, 2, 2)
    >>> initial(3).shards
    32
    >>> two = initial(2, shards=8, hosts=[("small", 1.0), ("large", 1.5)])
    >>> two.hosts, two.owners
    (('large', 'small'), (0, 0, 0, 0, 0, 1, 1, 1))
    """
    _check_count(workers)
    count = shards if shards is not None else dynamic_shards(workers, dynamic_k or 0.1)
    if workers > count:
        raise ConfigError(f"more workers than shards: workers={workers} shards={count}", "raise `shards` in [layout]")
    numbers = tuple(range(workers))
    places = placed({}, numbers, tuple(hosts), host, zones)
    sizes = quotas(count, [places[worker] for worker in numbers], hosts)
    owners = tuple(worker for worker, size in zip(numbers, sizes, strict=True) for _ in range(size))
    return Layout(
        version=0, owners=owners, workers=numbers, hosts=tuple(places[worker] for worker in numbers),
        first_steps=(0,) * workers, dynamic_k=None if shards is not None else dynamic_k, offered=tuple(hosts), zones=zones,
    )  # fmt: skip


def placed(
    known: Mapping[int, str],
    joining: Sequence[int],
    offered: Sequence[tuple[str, float]],
    host: str = "",
    zones: Zones = (),
) -> dict[int, str]:
    """Return the host of every worker: known workers stay, and each new one gets the host with the most weight per worker.

    The host's workers are counted with the new one. On a tie the zone with fewer workers wins, then the host with fewer.
    Without `offered` hosts, new workers are placed on `host`.

    >>> placed({}, range(4), [("a", 1.0), ("b", 3.0)])
    {0: 'b', 1: 'b', 2: 'a', 3: 'b'}
    """
    places = dict(known)
    if not offered:
        return places | dict.fromkeys(joining, host)
    named, there = dict(zones), Counter(places.values())
    near = Counter(zone_of(place, named) for place in places.values())
    for worker in joining:
        best, _ = max(
            offered,
            key=lambda pair: (pair[1] / (there[pair[0]] + 1), -near[zone_of(pair[0], named)], -there[pair[0]]),
        )
        places[worker] = best
        there[best] += 1
        near[zone_of(best, named)] += 1
    return places


def quotas(shards: int, hosts: Sequence[str], offered: Sequence[tuple[str, float]]) -> list[int]:
    """Return the number of shards that each worker should own: even, or in proportion to the weights of the hosts.

    `hosts[i]` is the host of worker i. The workers of one host share its weight.

    **Law** the sum is `shards`; every quota is within one of its exact share, and at least one.

    >>> quotas(16, ["a", "b", "b"], []), quotas(16, ["a", "b", "b"], [("a", 1.0), ("b", 3.0)])
    ([6, 5, 5], [4, 6, 6])
    """
    each = _shares(hosts, offered)
    total = sum(each)
    exact = [shards * weight / total for weight in each]
    sizes = [int(share) for share in exact]
    ranked = sorted(range(len(hosts)), key=lambda at: (sizes[at] - exact[at], at))
    for at in ranked[: shards - sum(sizes)]:
        sizes[at] += 1
    for at in range(len(sizes)):
        if sizes[at] == 0:
            sizes[at], richest = 1, max(range(len(sizes)), key=sizes.__getitem__)
            sizes[richest] -= 1
    return sizes


def _shares(hosts: Sequence[str], offered: Sequence[tuple[str, float]]) -> list[float]:
    """Return the part that each worker should have, in some unit: its host's weight, divided by the workers there.

    If all hosts weigh the same, all workers have the same part.
    """
    weights = dict(offered)
    if len(set(weights.values())) < 2:  # noqa: PLR2004 - hosts that weigh the same
        return [1.0] * len(hosts)
    least = min(weights.values())
    return [weights.get(host, least) / hosts.count(host) for host in hosts]


def dynamic_shards(workers: int, k: float) -> int:
    """Return the next power of two of W / k, so that no worker's share is off by more than about k.

    **Errors** `ConfigError` if k is not between 0 and 1. The result is at most `SHARDS_MAX`.

    >>> [dynamic_shards(w, 0.1) for w in (1, 2, 3, 6, 7)]
    [16, 32, 32, 64, 128]
    """
    if not 0 < k < 1:
        raise ConfigError(f"dynamic_k must lie between 0 and 1: dynamic_k={k}")
    wanted = max(1, int(np.ceil(workers / k)))
    return min(SHARDS_MAX, 1 << (wanted - 1).bit_length())


def rescaled(
    old: Layout,
    workers: int,
    *,
    step: int,
    host: str = "",
    partitions: Mapping[str, Sequence[int]] | None = None,
) -> Layout:
    """Return the next layout with `workers` workers: the old one with the fewest shards moved.

    **Law** every surviving worker keeps as many of its shards as an even division allows. From W to W+1 workers, about
    1/(W+1) of the shards move. The workers are spread over the offered hosts by weight (`seats`). Workers on hosts that
    are no longer offered, or have too many, leave. Of one host's workers those with the highest numbers leave first. New
    workers take the lowest free numbers. The same input gives the same layout, and a second call changes nothing. With
    hosts of different weights the shares follow `quotas`, and only the necessary shards move. `partitions` has the rows that each
    input partition of each table had lately. With None the partitions are those of the old layout, without known rows.
    `dbsp.input_readers.balanced` chooses their readers.
    **Errors** `ConfigError` when there would be more workers than shards (fixed sharding).

    **Example** a host is replaced: its worker's shards move once, to the new worker on the other host

    >>> two = initial(2, shards=4, hosts=[("a", 1.0), ("b", 1.0)])
    >>> after = rescaled(replace(two, offered=(("a", 1.0), ("c", 1.0))), 2, step=7)
    >>> after.workers, after.hosts, two.owners, after.owners
    ((0, 2), ('a', 'c'), (0, 0, 1, 1), (0, 0, 2, 2))
    """
    _check_count(workers)
    base = _resized(old, workers)
    if workers > base.shards:
        raise ConfigError(
            f"more workers than shards: workers={workers} shards={base.shards}",
            "fixed sharding cannot grow past its count",
        )
    known = dict(zip(base.workers, zip(base.hosts, base.first_steps, strict=True), strict=True))
    kept = _staying(base, workers)
    new = _lowest_free(known, workers - len(kept))
    numbers = tuple(sorted((*kept, *new)))
    places = placed({worker: known[worker][0] for worker in kept}, new, base.offered, host, base.zones)
    hosts = tuple(places[worker] for worker in numbers)
    rows = {table: (0,) * len(found) for table, found in old.readers} if partitions is None else partitions
    return replace(
        base, version=old.version + 1, workers=numbers, hosts=hosts,
        owners=_reassign(base.owners, numbers, quotas(base.shards, hosts, base.offered)),
        first_steps=tuple(known[worker][1] if worker in kept else step for worker in numbers),
        readers=_read_by(old, numbers, rows, _shares(hosts, base.offered)),
    )  # fmt: skip


def with_readers(layout: Layout, partitions: Mapping[str, int]) -> Layout:
    """Return the layout with a reader for each of so many input partitions per table, even, and else as it is now.

    >>> with_readers(initial(2), {"t": 3, "u": 1}).readers
    (('t', (0, 1, 0)), ('u', (1,)))
    """
    rows = {table: (0,) * count for table, count in partitions.items()}
    return replace(layout, readers=_read_by(layout, layout.workers, rows, [1.0] * len(layout.workers)))


def is_balanced(layout: Layout, workers: int, partitions: Mapping[str, Sequence[int]] | None = None) -> bool:
    """Return whether a rescale to this many workers on the offered hosts would change nothing.

    `partitions` are as for `rescaled`.

    >>> two = initial(2, hosts=[("a", 1.0), ("b", 1.0)])
    >>> is_balanced(two, 2), is_balanced(replace(two, offered=(("a", 1.0), ("c", 1.0))), 2)
    (True, False)
    """
    if len(layout.workers) != workers:
        return False
    return not is_change(layout, rescaled(layout, workers, step=0, partitions=partitions), partitions)


def is_change(old: Layout, new: Layout, partitions: Mapping[str, Sequence[int]] | None = None) -> bool:
    """Return whether a rescale with this result would change anything; `partitions` are as for `rescaled`.

    Other readers alone are a change only where rows are known.
    """
    if (new.workers, new.owners) != (old.workers, old.owners):
        return True
    known = any(any(rows) for rows in (partitions or {}).values())
    return known and bool(moved_partitions(old, new))


def moved_partitions(old: Layout, new: Layout) -> list[tuple[str, int, int, int]]:
    """Return the input partitions that the second layout lists and another worker reads: (table, partition, before, then).

    >>> moved_partitions(with_readers(initial(1), {"t": 2}), with_readers(initial(2), {"t": 2}))
    [('t', 1, 0, 1)]
    """
    return [
        (table, partition, before, reader)
        for table, found in new.readers
        for partition, reader in enumerate(found)
        if (before := old.reader_of(table, partition)) != reader
    ]


def seats(
    present: Mapping[str, int], workers: int, offered: Sequence[tuple[str, float]], zones: Zones = ()
) -> dict[str, int]:
    """Return the number of workers that each offered host should have; `present` counts those that it has now.

    Each seat in turn goes to the host with the most weight per worker, and on a tie to the zone with the fewest seats. Then a
    host that has a worker for it gets it, so that no worker moves without need. Then the host with fewer seats gets it.

    >>> seats({"a": 1, "b": 2}, 3, [("a", 1.0), ("b", 1.0)]), seats({"a": 2}, 2, [("a", 1.0), ("b", 1.0)])
    ({'a': 1, 'b': 2}, {'a': 1, 'b': 1})
    >>> seats({"a": 1, "b": 1}, 2, [("a", 1.0), ("b", 1.0), ("c", 1.0)], (("a", "north"), ("b", "north")))
    {'a': 1, 'b': 0, 'c': 1}
    """
    found, named, near = dict.fromkeys((host for host, _ in offered), 0), dict(zones), Counter[str]()
    for _ in range(workers):
        ranks = {
            host: (weight / (found[host] + 1), -near[zone_of(host, named)], found[host] < present.get(host, 0), -found[host])
            for host, weight in offered
        }  # fmt: skip
        best = max(ranks, key=ranks.__getitem__)
        found[best] += 1
        near[zone_of(best, named)] += 1
    return found


def homes(layouts: Iterable[Layout]) -> dict[int, str]:
    """Return the host of every worker; the newest layout with a worker's number decides.

    The number of a worker that left may be given again, on another host.

    >>> homes([initial(2, host="a"), replace(initial(1, host="b"), version=1)])
    {0: 'b', 1: 'a'}
    """
    found: dict[int, str] = {}
    for layout in sorted(layouts, key=lambda layout: layout.version):
        found.update(zip(layout.workers, layout.hosts, strict=True))
    return found


def moved_shards(old: Layout, new: Layout) -> int:
    """Return how many shards of the finer of the two layouts change their owner."""
    return sum(moves(old, new).values())


def moves(old: Layout, new: Layout) -> dict[tuple[int, int], int]:
    """Return how many shards of the finer of the two layouts move, by (old owner, new owner).

    >>> moves(initial(1, shards=4), rescaled(initial(1, shards=4), 2, step=0))
    {(0, 1): 2}
    """
    count = max(old.shards, new.shards)
    before = np.repeat(np.asarray(old.owners), count // old.shards)
    after = np.repeat(np.asarray(new.owners), count // new.shards)
    found = Counter(zip(before.tolist(), after.tolist(), strict=True))
    return {pair: shards for pair, shards in sorted(found.items()) if pair[0] != pair[1]}


def least_moved(old: Layout, new: Layout) -> float:
    """Return the smallest part of all shards that must move: the shards that workers lack for their counts in `new`.

    >>> two = initial(2, shards=64)
    >>> least_moved(two, rescaled(two, 3, step=0))
    0.328125
    """
    count = max(old.shards, new.shards)
    held = {worker: shards * (count // old.shards) for worker, shards in old.shard_counts().items()}
    wanted = {worker: shards * (count // new.shards) for worker, shards in new.shard_counts().items()}
    return sum(max(0, shards - held.get(worker, 0)) for worker, shards in wanted.items()) / count


def _check_count(workers: int) -> None:
    if not 1 <= workers <= WORKERS_MAX:
        raise ConfigError(f"worker count out of range: workers={workers} workers_min=1 workers_max={WORKERS_MAX}")


def _staying(layout: Layout, workers: int) -> list[int]:
    """Return the workers that stay when the layout is resized to `workers` workers.

    Of each offered host, as many stay as `seats` gives it, those with the lowest numbers first.
    """
    if not layout.offered:
        return list(layout.workers[:workers])
    wanted = seats(Counter(layout.hosts), workers, layout.offered, layout.zones)
    staying = []
    for worker, host in zip(layout.workers, layout.hosts, strict=True):
        if wanted.get(host, 0) > 0:
            wanted[host] -= 1
            staying.append(worker)
    return staying


def _read_by(
    old: Layout, workers: Sequence[int], rows: Mapping[str, Sequence[int]], shares: Sequence[float]
) -> Readers:
    """Return who of the workers reads each partition that has a number of rows, where the old layout's workers read until now."""
    before = {table: [old.reader_of(table, each) for each in range(len(found))] for table, found in rows.items()}
    return balanced(before, workers, rows, shares, anew=old.workers != tuple(workers))


def _lowest_free(taken: Collection[int], count: int) -> list[int]:
    free = (number for number in range(WORKERS_MAX * 2) if number not in taken)
    return [next(free) for _ in range(count)]


def _resized(layout: Layout, workers: int) -> Layout:
    """Return the layout with its shard table doubled or halved for `workers`; leave a layout with fixed sharding as it is."""
    if layout.dynamic_k is None:
        return layout
    count = dynamic_shards(workers, layout.dynamic_k)
    owners = layout.owners
    while len(owners) < count:
        owners = tuple(owner for owner in owners for _ in range(2))
    while len(owners) > count:
        owners = owners[::2]
    return replace(layout, owners=owners)


def _reassign(owners: tuple[int, ...], workers: tuple[int, ...], sizes: Sequence[int]) -> tuple[int, ...]:
    """Assign shards without a living owner, and the surplus of workers over their quota, to workers below their quota.

    If quotas differ by one at most, the workers that own most get the larger quotas, so that no shard moves without need.
    """
    held = {worker: [shard for shard, owner in enumerate(owners) if owner == worker] for worker in workers}
    quota = dict(zip(workers, sizes, strict=True))
    if max(sizes) - min(sizes) <= 1:
        ranked = sorted(workers, key=lambda worker: (-len(held[worker]), worker))
        quota = dict(zip(ranked, sorted(sizes, reverse=True), strict=True))
    loose = [shard for shard, owner in enumerate(owners) if owner not in held]
    for worker in workers:
        loose.extend(held[worker][quota[worker] :])
    result = list(owners)
    waiting = iter(sorted(loose))
    for worker in workers:
        for _ in range(quota[worker] - len(held[worker])):
            result[next(waiting)] = worker
    return tuple(result)
