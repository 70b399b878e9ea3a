"""Making a version of one worker's database out of slices of others': the state part of a rescale.

Sources are only read. The target holds the new version when its last transaction has landed, and not before; a target that
is a source too keeps its own old version beside it, and chunks that stay are shared by reference.

A warm-up copies the parts of an earlier version's slices ahead of time, beside the steps, into a place that no version refers to
(`warm_up`); the version itself is then made by the same `redistribute`, which refers to every part that is there. So a
warm-up changes what has to be copied at the end, and nothing else.

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
    """What can be read as of a version."""

    def read_version(self, version: int) -> AbstractContextManager[VersionView]:
        """The traces of a version."""
        ...

    def read_cut(self, version: int, cut: CheckpointId) -> AbstractContextManager[VersionView]:
        """The traces of a cut that was pinned for `version`."""
        ...


class Redistributable(Readable, Protocol):
    """A database that can be read as of a version, and given one."""

    @property
    def chunk_bytes_max(self) -> int:
        """How large its chunks may be, about."""
        ...

    def adopt(
        self,
        version: int,
        checkpoint: CheckpointId,
        make: Callable[[ChunkStore], Mapping[int, SpineState]],
        cut: CheckpointId | None = None,
    ) -> CommitReport:
        """Make `version` out of states that `make` builds in the given chunk store; repeating it does nothing.

        With `cut` they may refer to the chunks of the cut that was pinned here for `version`.
        Warm chunks that the version does not refer to are gone afterwards.
        """
        ...

    def warm_chunks(self) -> Warm:
        """The parts that were taken in ahead of a version, by their keys."""
        ...

    def take_warm(self, epoch: int, layout_version: int, opened: bool, parts: Sequence[tuple[bytes, Batch]]) -> int:
        """Keep the rows of these parts as chunks that no version refers to, in one transaction of `epoch`; the bytes written.

        Refused where a warm-up for this layout or a later one was ended; parts for an earlier layout are let go of.
        `opened` says that steps run on this database in this epoch: their chunks and these never get the same number.
        """
        ...

    def touch_warm(self) -> None:
        """All that is missing was taken in: have it in memory when it is used."""
        ...


Givers = Mapping[int, tuple[Readable, Sequence[HashRange]]]
"""Databases and what is taken of them, by the number of the worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """A giver's version, opened."""

    giver: int
    database: Readable
    version: VersionView
    ranges: Sequence[HashRange]


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmReport:
    """One piece of a warm-up: bytes it copied, bytes of slices that are still not there, bytes of slices in all."""

    copied_bytes: int
    missing_bytes: int
    slices_bytes: int


def redistribute(
    givers: Givers,
    target: Redistributable,
    version: int,
    checkpoint: CheckpointId,
    traces: Sequence[TraceSpec],
    *,
    cut: CheckpointId | None = None,
    opened: bool = False,
) -> CommitReport:
    """Make `version` in `target` from these hash ranges of each giver's version - 1, or of the `cut` pinned for `version`.

    `opened`: steps have run on the target too, so with a `cut` it has one as well.
    **Cost**: what moves is copied chunk by chunk; what stays in the target is referred to.
    """
    with ExitStack() as stack:
        views = _opened(
            stack,
            givers,
            lambda giver: giver.read_version(version - 1) if cut is None else giver.read_cut(version, cut),
        )
        warm, layout = target.warm_chunks(), checkpoint.layout_version

        def make(chunks: ChunkStore) -> Mapping[int, SpineState]:
            return {
                trace.id: gather_slices(_slices(trace, views, target), trace.arrangement, chunks, warm, layout)
                for trace in traces
            }

        return target.adopt(version, checkpoint, make, cut if opened else None)


def warm_up(
    givers: Givers,
    target: Redistributable,
    version: int,
    epoch: int,
    layout_version: int,
    traces: Sequence[TraceSpec],
    *,
    bytes_max: int,
    opened: bool,
) -> WarmReport:
    """Copy about `bytes_max` bytes of the parts of these slices of `version` that the target has not yet.

    `layout_version` is that of the checkpoint which the parts are to become part of. `opened`: steps run on the target too.
    **Cost** that of planning the slices (per chunk reference), and of what is copied.
    """
    with ExitStack() as stack:
        views = _opened(stack, givers, lambda giver: giver.read_version(version))
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
    """What a target must copy of one trace."""
    for run in plan_slices(slices, arrangement, chunk_bytes_max):
        yield from (item for item in run if isinstance(item, SlicePart))


def _opened(
    stack: ExitStack, givers: Givers, read: Callable[[Readable], AbstractContextManager[VersionView]]
) -> list[_View]:
    """What is read of each giver, open as long as the stack."""
    return [
        _View(giver=giver, database=database, ranges=ranges, version=stack.enter_context(read(database)))
        for giver, (database, ranges) in givers.items()
    ]


def _slices(trace: TraceSpec, views: Sequence[_View], target: Redistributable) -> list[Slices]:
    """One trace's slices of all givers, side by side."""
    return [
        Slices(
            state=view.version.traces.get(trace.id, SpineState()),
            ranges=view.ranges,
            chunks=view.version.chunks,
            shared=view.database is target,
            giver=view.giver,
        )
        for view in views
    ]
