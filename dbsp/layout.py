"""Layouts: which worker owns which shard and which input partition, on which host.

A shard is a contiguous range of key hashes: the top log2(S) bits. A layout is a value; every version of it is logged, and
the number of a version says nothing but order. Two ways to choose S: `fixed` (given once) and `dynamic` (the next power of
two of W / k, doubled and halved as the count changes).

Invariant 2: every key of a sharded stream has exactly one owner, because `owners` has one entry per shard.
Source: "Scale in and out" of the distributed DBSP design; design section 9. No I/O here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dbsp.errors import ConfigError

SHARDS_MAX = 1 << 16
WORKERS_MAX = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Shards to workers, workers to hosts; input partition p of every table belongs to `workers[p mod W]`.

    **Shape** `owners[i]` is the worker that owns shard i of `len(owners)`, a power of two. `workers` are sorted numbers,
    not necessarily 0..W-1. `first_steps[j]` is the first step of the layout version that brought `workers[j]` in.
    """

    version: int
    owners: tuple[int, ...]
    workers: tuple[int, ...]
    hosts: tuple[str, ...]
    first_steps: tuple[int, ...]
    dynamic_k: float | None = None

    def __post_init__(self) -> None:
        """Refuse a layout that breaks invariant 2 or names a worker nobody knows."""
        count = len(self.owners)
        if count < 1 or count & (count - 1) or count > SHARDS_MAX:
            raise ConfigError(f"shard count must be a power of two: shards={count} shards_max={SHARDS_MAX}")
        if not set(self.owners) <= set(self.workers):
            raise ConfigError(f"a shard belongs to an unknown worker: workers={list(self.workers)}")
        if not (len(self.workers) == len(self.hosts) == len(self.first_steps)):
            raise ConfigError("workers, hosts and first steps must have one entry each")

    @property
    def shards(self) -> int:
        """How many shards there are."""
        return len(self.owners)

    @property
    def shard_bits(self) -> int:
        """log2 of the shard count."""
        return self.shards.bit_length() - 1

    def shard_of(self, key_hash: np.ndarray) -> np.ndarray:
        """The shard of each key hash: its top bits."""
        if self.shard_bits == 0:
            return np.zeros(len(key_hash), dtype=np.int64)
        return (key_hash >> np.uint64(64 - self.shard_bits)).astype(np.int64)

    def slot_of(self, key_hash: np.ndarray) -> np.ndarray:
        """The position in `workers` of the owner of each key hash."""
        slots = np.searchsorted(np.asarray(self.workers), np.asarray(self.owners))
        chosen: np.ndarray = slots.astype(np.uint32)[self.shard_of(key_hash)]
        return chosen

    def shard_counts(self) -> dict[int, int]:
        """How many shards each worker owns."""
        return {worker: self.owners.count(worker) for worker in self.workers}

    def ranges_of(self, worker: int) -> list[tuple[int, int]]:
        """The hash ranges [first, last) a worker owns, neighbours joined; last may be 2**64."""
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

    def partitions_of(self, worker: int, partitions: int) -> list[int]:
        """The input partitions, out of `partitions`, that this worker reads."""
        slot, count = self.workers.index(worker), len(self.workers)
        return [partition for partition in range(partitions) if partition % count == slot]


def initial(workers: int, *, shards: int | None = None, dynamic_k: float | None = 0.1, host: str = "") -> Layout:
    """The first layout: contiguous runs of shards, as even as whole shards allow.

    **Example**

    >>> initial(3, shards=8).owners
    (0, 0, 0, 1, 1, 1, 2, 2)
    >>> initial(3).shards
    32
    """
    _check_count(workers)
    count = shards if shards is not None else dynamic_shards(workers, dynamic_k or 0.1)
    if workers > count:
        raise ConfigError(f"more workers than shards: workers={workers} shards={count}", "raise `shards` in [layout]")
    sizes = _even_sizes(count, workers)
    owners = tuple(worker for worker, size in enumerate(sizes) for _ in range(size))
    numbers = tuple(range(workers))
    return Layout(
        version=0, owners=owners, workers=numbers, hosts=(host,) * workers, first_steps=(0,) * workers,
        dynamic_k=None if shards is not None else dynamic_k,
    )  # fmt: skip


def dynamic_shards(workers: int, k: float) -> int:
    """The next power of two of W / k, so that no worker's share is off by more than about k.

    >>> [dynamic_shards(w, 0.1) for w in (1, 2, 3, 6, 7)]
    [16, 32, 32, 64, 128]
    """
    if not 0 < k < 1:
        raise ConfigError(f"dynamic_k must lie between 0 and 1: dynamic_k={k}")
    wanted = max(1, int(np.ceil(workers / k)))
    return min(SHARDS_MAX, 1 << (wanted - 1).bit_length())


def rescaled(old: Layout, workers: int, *, step: int, host: str = "") -> Layout:
    """The next layout with `workers` workers: the old one with the fewest shards moved.

    **Law** every surviving worker keeps as many of its shards as an even division allows; going from W to W+1 moves
    about 1/(W+1) of them. New workers take the lowest free numbers; leaving ones are the highest. Same input, same layout.
    **Errors** `ConfigError` when there would be more workers than shards (fixed sharding).
    """
    _check_count(workers)
    base = _resized(old, workers)
    if workers > base.shards:
        raise ConfigError(
            f"more workers than shards: workers={workers} shards={base.shards}",
            "fixed sharding cannot grow past its count",
        )
    kept = base.workers[:workers]
    new = _lowest_free(kept, workers - len(kept))
    numbers = tuple(sorted((*kept, *new)))
    owners = _reassign(base.owners, numbers)
    known = dict(zip(base.workers, zip(base.hosts, base.first_steps, strict=True), strict=True))
    places = [known.get(worker, (host, step)) if worker in kept else (host, step) for worker in numbers]
    return replace(
        base, version=old.version + 1, owners=owners, workers=numbers,
        hosts=tuple(place[0] for place in places), first_steps=tuple(place[1] for place in places),
    )  # fmt: skip


def moved_shards(old: Layout, new: Layout) -> int:
    """How many shards of the finer of the two layouts change their owner."""
    count = max(old.shards, new.shards)
    before = np.repeat(np.asarray(old.owners), count // old.shards)
    after = np.repeat(np.asarray(new.owners), count // new.shards)
    return int(np.count_nonzero(before != after))


def _check_count(workers: int) -> None:
    if not 1 <= workers <= WORKERS_MAX:
        raise ConfigError(f"worker count out of range: workers={workers} workers_min=1 workers_max={WORKERS_MAX}")


def _even_sizes(total: int, parts: int) -> list[int]:
    """Sizes that differ by at most one, the larger ones first."""
    return [total // parts + (1 if part < total % parts else 0) for part in range(parts)]


def _lowest_free(taken: Sequence[int], count: int) -> list[int]:
    free = (number for number in range(WORKERS_MAX * 2) if number not in set(taken))
    return [next(free) for _ in range(count)]


def _resized(layout: Layout, workers: int) -> Layout:
    """Dynamic sharding doubles or halves the shard table first; fixed sharding leaves it."""
    if layout.dynamic_k is None:
        return layout
    count = dynamic_shards(workers, layout.dynamic_k)
    owners = layout.owners
    while len(owners) < count:
        owners = tuple(owner for owner in owners for _ in range(2))
    while len(owners) > count:
        owners = owners[::2]
    return replace(layout, owners=owners)


def _reassign(owners: tuple[int, ...], workers: tuple[int, ...]) -> tuple[int, ...]:
    """Give shards without a living owner, and the surplus of those with too many, to those with too few.

    The larger quotas go to the workers that own most, so that nothing moves that need not.
    """
    held = {worker: [shard for shard, owner in enumerate(owners) if owner == worker] for worker in workers}
    sizes = _even_sizes(len(owners), len(workers))
    ranked = sorted(workers, key=lambda worker: (-len(held[worker]), worker))
    quota = dict(zip(ranked, sizes, strict=True))
    loose = [shard for shard, owner in enumerate(owners) if owner not in held]
    for worker in workers:
        loose.extend(held[worker][quota[worker] :])
    result = list(owners)
    waiting = iter(sorted(loose))
    for worker in workers:
        for _ in range(quota[worker] - len(held[worker])):
            result[next(waiting)] = worker
    return tuple(result)
