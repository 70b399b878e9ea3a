"""Logs in memory: the input and outputs of the in-process run, and fakes for tests.

They keep the contracts of `dbsp.logs`, except durability. The durable logs are in `dbsp.io`.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dbsp.errors import DataError, FencedError
from dbsp.logs import Changes, DeadLetter, Range
from dbsp.logs.sizes import Sizes
from dbsp.zset.batch import Batch
from dbsp.zset.encoding import encode, head_checksum


@dataclass(slots=True)
class MemoryInputLog:
    """Changes per (table, partition), in the order in which they were appended; each table has `spread` partitions."""

    tables: tuple[str, ...]
    spread: int = 1
    _kept: dict[tuple[str, int], list[Changes]] = field(default_factory=dict)
    _ends: dict[tuple[str, int], int] = field(default_factory=dict)

    def append(self, table: str, batch: Batch, operations: np.ndarray, partition: int = 0) -> Range:
        """Append changes; return the range of their offsets."""
        key = (table, partition)
        if not len(batch):
            at = self._ends.get(key, 0)
            return Range(table=table, partition=partition, first=at, last=at)
        first = self._ends.get(key, 0)
        offsets = np.arange(first, first + len(batch), dtype=np.int64)
        change = Changes(table=table, partition=partition, batch=batch, operations=operations, offsets=offsets)
        self._kept.setdefault(key, []).append(change)
        self._ends[key] = first + len(batch)
        return Range(table=table, partition=partition, first=first, last=first + len(batch))

    def untouched(self, tables: Iterable[str]) -> frozenset[str]:
        """Return the tables to which no row was ever appended."""
        return frozenset(tables) - {table for (table, _), end in self._ends.items() if end}

    def partitions(self, table: str) -> int:
        """Return the number of partitions, the same for every table; raise `DataError` for an unknown table."""
        if table not in self.tables:
            raise DataError(f"no such table: table={table} tables={list(self.tables)}")
        return self.spread

    def ends(self) -> Mapping[tuple[str, int], int]:
        """Return the offset after the last row of each partition."""
        return {(table, p): self._ends.get((table, p), 0) for table in self.tables for p in range(self.spread)}

    def floors(self) -> Mapping[tuple[str, int], int]:
        """Return the offset of the first kept change of each partition; the end where none is kept."""
        return {
            place: int(kept[0].offsets[0]) if (kept := self._kept.get(place)) else end
            for place, end in self.ends().items()
        }

    def read(self, range_: Range, step: int) -> Sequence[Changes]:
        """Return the kept changes, cut to the range; raise `DataError` if rows of the range were trimmed."""
        kept = self._kept.get((range_.table, range_.partition), [])
        begin = bisect_left(kept, range_.first, key=lambda change: int(change.offsets[-1]))
        end = bisect_left(kept, range_.last, key=lambda change: int(change.offsets[0]))
        found = [cut for change in kept[begin:end] if (cut := _cut(change, range_)) is not None]
        if sum(len(change.batch) for change in found) != range_.last - range_.first:
            raise DataError(f"input rows are gone: {range_} step={step}")
        return found

    def sizes(self, waiting: Sequence[Range]) -> Mapping[tuple[str, int], Sizes]:
        """Return the sizes of the kept changes in these partitions."""
        places = {
            (range_.table, range_.partition): self._kept.get((range_.table, range_.partition)) for range_ in waiting
        }
        return {
            place: Sizes.of(int(kept[0].offsets[0]), [(len(change.batch), change.batch.nbytes) for change in kept])
            for place, kept in places.items()
            if kept
        }

    def trim(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Drop changes whose rows are all below the positions."""
        for key, position in positions.items():
            self._kept[key] = [c for c in self._kept.get(key, []) if int(c.offsets[-1]) >= position]

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def _cut(change: Changes, range_: Range) -> Changes | None:
    """Return the part of a change inside the range, without copying; None if it is empty."""
    low, high = (int(at) for at in np.searchsorted(change.offsets, [range_.first, range_.last]))
    if low >= high:
        return None
    return replace(
        change, batch=change.batch.slice(low, high), operations=change.operations[low:high],
        offsets=change.offsets[low:high],
    )  # fmt: skip


@dataclass(slots=True)
class MemoryOutputLog:
    """The outputs of one worker: parts and dead letters per step, written at most once."""

    first: int = 0
    parts: dict[int, dict[str, Batch]] = field(default_factory=dict)
    dead: dict[int, tuple[DeadLetter, ...]] = field(default_factory=dict)
    _checksums: dict[int, int] = field(default_factory=dict)
    _last: int = -1
    _epoch: int = 0

    def __post_init__(self) -> None:
        """Begin where the worker joins."""
        self._last = self.first

    @property
    def place(self) -> str:
        """Return the words that name this log in errors."""
        return "memory"

    def bounds(self) -> tuple[int, int]:
        """Return (first, last): the first step, and the step after the last written one."""
        return self.first, self._last

    def join_at(self, first_step: int) -> None:
        """Let a worker that left and joins again write from the first step of its new layout."""
        self._last = max(self._last, first_step)

    def write(self, epoch: int, step: int, parts: Mapping[str, Batch], dead: Sequence[DeadLetter]) -> None:
        """Append the part at step `last`; compare below it, refuse above it."""
        if epoch < self._epoch:
            raise FencedError(f"output of an older epoch: epoch={epoch} newest={self._epoch}")
        self._epoch = epoch
        if step > self._last:
            raise DataError(f"output steps must be contiguous: step={step} last={self._last}")
        kept = {name: batch for name, batch in parts.items() if len(batch)}
        checksum = _checksum(kept, dead)
        if step < self._last:
            if self._checksums.get(step, checksum) != checksum:
                raise DataError(f"a replayed step gave another output: step={step}")
            return
        self.parts[step], self.dead[step], self._checksums[step] = kept, tuple(dead), checksum
        self._last = step + 1

    def take_back(self, step: int) -> None:
        """Forget a part of the newest step, which did not finish."""
        if self._last == step + 1:
            self.parts.pop(step, None)
            self.dead.pop(step, None)
            self._checksums.pop(step, None)
            self._last = step

    def forget_views(self, names: Collection[str]) -> None:
        """Forget the rows of these views, which begin anew."""
        for parts in self.parts.values():
            for name in names:
                parts.pop(name, None)

    def trim_progress(self, step: int) -> None:
        """Forget the checksums below `step`."""
        for number in [number for number in self._checksums if number < step]:
            del self._checksums[number]

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def _checksum(parts: Mapping[str, Batch], dead: Sequence[DeadLetter]) -> int:
    value = 0
    for name in sorted(parts):
        rows = head_checksum(encode(parts[name].loose(), codes=False)).to_bytes(4)
        value = zlib.crc32(rows, zlib.crc32(name.encode(), value))
    return zlib.crc32(repr(list(dead)).encode(), value)
