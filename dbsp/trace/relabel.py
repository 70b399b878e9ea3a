"""Make a database version with the same rows under other trace numbers: the state of a changed circuit.

No chunk is copied. The new version refers to the chunks of the version before it, which is kept until the new version
is opened. Only traces that need other columns are rewritten, one at a time in memory.

Source: design record 0024.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dbsp.algebra.table import Table
from dbsp.store import CheckpointId, CommitReport, TraceSpec, VersionView
from dbsp.trace.chunks import ChunkStore
from dbsp.trace.manifest import SpineState
from dbsp.trace.redistribute import Redistributable
from dbsp.trace.spine import Spine, append
from dbsp.zset.batch import Batch, arrange, concat


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowed:
    """A table whose columns change: trace `old` has its rows, and trace `new` gets them with the new columns.

    Both traces are keyed by the table's key. An added column has its default value, or null if it has no default.
    """

    table: Table
    old: TraceSpec
    new: TraceSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Relabeling:
    """The arguments with which `relabel` makes the next version in every worker's database of a pipeline."""

    version: int
    checkpoint: CheckpointId
    kept: Mapping[int, int]
    narrowed: Sequence[Narrowed]


def relabel(
    database: Redistributable,
    version: int,
    checkpoint: CheckpointId,
    kept: Mapping[int, int],
    narrowed: Sequence[Narrowed] = (),
) -> CommitReport:
    """Make `version` + 1 from `version`: trace `new` has the rows of trace `kept[new]`.

    `narrowed` names the traces that are rewritten with other columns.
    """
    with database.read_version(version) as view:

        def make(chunks: ChunkStore) -> Mapping[int, SpineState]:
            states = {new: view.traces[old] for new, old in sorted(kept.items()) if old in view.traces}
            return states | {
                each.new.id: _narrow(view, each, chunks) for each in narrowed if each.old.id in view.traces
            }

        return database.adopt(version + 1, checkpoint, make)


def _narrow(view: VersionView, narrowed: Narrowed, chunks: ChunkStore) -> SpineState:
    """Return the state of the trace with its new columns, as one run."""
    before, after = narrowed.old.arrangement, narrowed.new.arrangement
    parts = list(Spine(before, view.traces[narrowed.old.id], view.chunks).parts())
    stored = concat(parts, before.schema).loose()
    columns = (
        stored.held_column(column.name) if column.name in before.schema else narrowed.table.absent(column, len(stored))
        for column in after.schema
    )
    rows = Batch(schema=after.schema, columns=tuple(columns), weights=stored.weights)
    return append(SpineState(), arrange(rows, after), after, chunks, None)
