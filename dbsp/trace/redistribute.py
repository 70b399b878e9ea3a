"""Make a version of one worker's database from slices of other databases: the state part of a rescale.

Sources are only read. The target has the new version once its last transaction is committed, and not before.
A target that is also a source keeps its own old version, and shares the chunks that stay by reference.

A warm-up (`warm_up`) copies the parts of an earlier version's slices in advance, while steps run. No version refers
to them. The same `redistribute` then makes the version and refers to every part that exists. So a warm-up changes
only how much is copied at the end.

Source: docs/concepts/rescale.md; invariants 2 and 12.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Protocol

from dbsp.store import CheckpointId, CommitReport, TraceSpec, VersionView
from dbsp.trace.chunks import ChunkStore
from dbsp.trace.manifest import SpineState
from dbsp.trace.slicing import HashRange, SlicePart, Slices, Warm, gather_slices, plan_slices
from dbsp.zset.batch import Batch
from dbsp.zset.schema import Arrangement


class Readable(Protocol):
    """A database whose versions can be read."""

    def read_version(self, version: int) -> AbstractContextManager[VersionView]:
        """Open the traces of a version."""
        ...

    def read_cut(self, version: int, cut: CheckpointId) -> AbstractContextManager[VersionView]:
        """Open the traces of a cut that was pinned for `version`."""
        ...


class Redistributable(Readable, Protocol):
    """A database whose versions can be read, and that can adopt a new one."""

    @property
    def chunk_bytes_max(self) -> int:
        """Return the approximate largest size of a chunk in bytes."""
        ...

    def adopt(
        self,
        version: int,
        checkpoint: CheckpointId,
        make: Callable[[ChunkStore], Mapping[int, SpineState]],
        cut: CheckpointId | None = None,
    ) -> CommitReport:
        """Make `version` from the states that `make` builds in the given chunk store; a repeat does nothing.

        With `cut`, the states may refer to the chunks of the cut that was pinned here for `version`.
        Warm chunks to which the version does not refer are dropped afterwards.
        """
        ...

    def warm_chunks(self) -> Warm:
        """Return the chunks of the parts that a warm-up copied, by the keys of the parts."""
        ...

    def take_warm(self, epoch: int, layout_version: int, opened: bool, parts: Sequence[tuple[bytes, Batch]]) -> int:
        """Keep the rows of these parts as chunks to which no version refers; return the bytes written.

        One transaction of `epoch` writes them. Parts for an earlier layout are dropped.
        The call fails if a warm-up for this layout or a later one has ended.
        `opened` is True if steps run on this database in this epoch. The database then gives the chunks of steps and
        the warm chunks different numbers.
        """
        ...

    def touch_warm(self) -> None:
        """Load the warm chunks into memory, after all missing parts were copied."""
        ...


Givers = Mapping[int, tuple[Readable, Sequence[HashRange]]]
"""The sources of a rescale: for each worker number, its database and the hash ranges to take from that database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """An opened version of a source database."""

    source_worker: int
    database: Readable
    version: VersionView
    ranges: Sequence[HashRange]


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmReport:
    """Result of one piece of a warm-up: bytes copied, bytes of slices still missing, bytes of slices in all."""

    copied_bytes: int
    missing_bytes: int
    slices_bytes: int


def redistribute(
    source_workers: Givers,
    target: Redistributable,
    version: int,
    checkpoint: CheckpointId,
    traces: Sequence[TraceSpec],
    *,
    cut: CheckpointId | None = None,
    opened: bool = False,
) -> CommitReport:
    """Make `version` in `target` from these hash ranges of each source's version - 1, or of the `cut` pinned for `version`.

    `opened` is True if steps have run on the target too, so that with a `cut` the target has a cut as well.
    **Cost**: rows that move are copied chunk by chunk; chunks that stay in the target are referred to.
    """
    with ExitStack() as stack:
        views = _opened(
            stack,
            source_workers,
            lambda source_worker: (
                source_worker.read_version(version - 1) if cut is None else source_worker.read_cut(version, cut)
            ),
        )
        warm, layout = target.warm_chunks(), checkpoint.layout_version

        def make(chunks: ChunkStore) -> Mapping[int, SpineState]:
            return {
                trace.id: gather_slices(_slices(trace, views, target), trace.arrangement, chunks, warm, layout)
                for trace in traces
            }

        return target.adopt(version, checkpoint, make, cut if opened else None)


def warm_up(
    source_workers: Givers,
    target: Redistributable,
    version: int,
    epoch: int,
    layout_version: int,
    traces: Sequence[TraceSpec],
    *,
    bytes_max: int,
    opened: bool,
) -> WarmReport:
    """Copy about `bytes_max` bytes of those parts of the slices of `version` that the target does not have.

    `layout_version` is the layout of the checkpoint that will use the parts. `opened` is True if steps run on the
    target too. **Cost** planning the slices (per chunk reference), and copying.
    """
    with ExitStack() as stack:
        views = _opened(stack, source_workers, lambda source_worker: source_worker.read_version(version))
        warm, chosen = target.warm_chunks(), list[tuple[bytes, Batch]]()
        seen = set[bytes]()
        copied = missing = total = 0
        for trace in traces:
            slices = _slices(trace, views, target)
            for part in _parts(slices, trace.arrangement, target.chunk_bytes_max):
                key, size = part.key(slices, layout_version), part.nbytes
                total += size
                if key in warm or key in seen:
                    continue
                if chosen and copied + size > bytes_max:
                    missing += size
                    continue
                chosen.append((key, part.rows(slices, trace.arrangement)))
                seen.add(key)
                copied += size
        if chosen:
            copied = target.take_warm(epoch, layout_version, opened, chosen)
        if not missing:
            target.touch_warm()
    return WarmReport(copied_bytes=copied, missing_bytes=missing, slices_bytes=total)


def _parts(slices: Sequence[Slices], arrangement: Arrangement, chunk_bytes_max: int) -> Iterator[SlicePart]:
    """Yield the parts of one trace that a target must copy."""
    for run in plan_slices(slices, arrangement, chunk_bytes_max):
        yield from (item for item in run if isinstance(item, SlicePart))


def _opened(
    stack: ExitStack, source_workers: Givers, read: Callable[[Readable], AbstractContextManager[VersionView]]
) -> list[_View]:
    """Open the wanted version of each source until the stack is closed."""
    return [
        _View(
            source_worker=source_worker, database=database, ranges=ranges, version=stack.enter_context(read(database))
        )
        for source_worker, (database, ranges) in source_workers.items()
    ]


def _slices(trace: TraceSpec, views: Sequence[_View], target: Redistributable) -> list[Slices]:
    """Return the slices of one trace of all sources."""
    return [
        Slices(
            state=view.version.traces.get(trace.id, SpineState()),
            ranges=view.ranges,
            chunks=view.version.chunks,
            shared=view.database is target,
            source_worker=view.source_worker,
        )
        for view in views
    ]
