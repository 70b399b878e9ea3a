"""The next version of a database with the same rows under other numbers of traces: the state part of a changed circuit.

No chunk is copied: the new version refers to those of the one before it, which stays beside it until the new one is opened. Only
where fewer columns are needed than there are rows are written again, one trace at a time in memory.

Source: design record 0024.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dbsp.store import CheckpointId, CommitReport, TraceSpec, VersionView
from dbsp.trace.chunks import ChunkStore
from dbsp.trace.manifest import SpineState
from dbsp.trace.redistribute import Redistributable
from dbsp.trace.spine import Spine, append
from dbsp.zset.batch import arrange, concat


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowed:
    """The rows of a table, kept by its key as `old`, and with some of the columns as `new`."""

    table: str
    old: TraceSpec
    new: TraceSpec


def relabel(
    database: Redistributable,
    version: int,
    checkpoint: CheckpointId,
    kept: Mapping[int, int],
    narrowed: Sequence[Narrowed] = (),
) -> CommitReport:
    """Make `version` + 1 out of `version`: each trace of `kept` holds what the one of the number beside it held."""
    with database.read_version(version) as view:

        def make(chunks: ChunkStore) -> Mapping[int, SpineState]:
            states = {new: view.traces[old] for new, old in sorted(kept.items()) if old in view.traces}
            return states | {
                each.new.id: _narrow(view, each, chunks) for each in narrowed if each.old.id in view.traces
            }

        return database.adopt(version + 1, checkpoint, make)


def _narrow(view: VersionView, narrowed: Narrowed, chunks: ChunkStore) -> SpineState:
    """The trace with fewer columns, as one run."""
    before, after = narrowed.old.arrangement, narrowed.new.arrangement
    parts = list(Spine(before, view.traces[narrowed.old.id], view.chunks).parts())
    rows = concat(parts, before.schema).project(after.schema.names).loose()
    return append(SpineState(), arrange(rows, after), after, chunks, None)
