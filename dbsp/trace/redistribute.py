"""Making a version of one worker's database out of slices of others': the state part of a cold rescale.

Sources are only read. The target holds the new version when its last transaction has landed, and not before; a target that
is a source too keeps its own old version beside it, and chunks that stay are shared by reference.

Source: design, section 9; invariants 2 and 12.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Protocol

from dbsp.store import CheckpointId, CommitReport, TraceSpec
from dbsp.trace.chunks import ChunkStore
from dbsp.trace.manifest import SpineState
from dbsp.trace.slicing import HashRange, Slices, gather_slices


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionView:
    """A version's traces, by number, and where their chunks are; to be used inside its context only."""

    checkpoint: CheckpointId
    traces: Mapping[int, SpineState]
    chunks: ChunkStore


class Redistributable(Protocol):
    """A database that can be read as of a version, and given one."""

    def read_version(self, version: int) -> AbstractContextManager[VersionView]:
        """The traces of a version."""
        ...

    def adopt(
        self, version: int, checkpoint: CheckpointId, make: Callable[[ChunkStore], Mapping[int, SpineState]]
    ) -> CommitReport:
        """Make `version` out of states that `make` builds in the given chunk store; repeating it does nothing."""
        ...


def redistribute(
    sources: Sequence[tuple[Redistributable, Sequence[HashRange]]],
    target: Redistributable,
    version: int,
    checkpoint: CheckpointId,
    traces: Sequence[TraceSpec],
) -> CommitReport:
    """Make `version` in `target` from these hash ranges of each source's version - 1.

    **Cost**: what moves is copied chunk by chunk; what stays in the target is referred to.
    """
    with ExitStack() as stack:
        views = [
            (database, stack.enter_context(database.read_version(version - 1)), ranges) for database, ranges in sources
        ]

        def make(chunks: ChunkStore) -> Mapping[int, SpineState]:
            return {trace.id: _one(trace, views, chunks, target) for trace in traces}

        return target.adopt(version, checkpoint, make)


def _one(
    trace: TraceSpec,
    views: Sequence[tuple[Redistributable, VersionView, Sequence[HashRange]]],
    chunks: ChunkStore,
    target: Redistributable,
) -> SpineState:
    """One trace's slices of all sources, side by side."""
    slices = [
        Slices(
            state=view.traces.get(trace.id, SpineState()),
            ranges=ranges,
            chunks=view.chunks,
            shared=database is target,
        )
        for database, view, ranges in views
    ]
    return gather_slices(slices, trace.arrangement, chunks)
