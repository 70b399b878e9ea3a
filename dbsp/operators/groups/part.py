"""What an aggregate is to a group-by: a part of the output row, kept from what the rows leave behind.

A part says in which form it wants the rows (`Form`, pre-summed before the exchange), which traces it keeps, and what its
columns were and are for the groups that changed. Adding an aggregate is adding a part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp.errors import InternalError
from dbsp.operators.groups.combine import Form
from dbsp.operators.operator import State
from dbsp.trace.retention import RetentionBound
from dbsp.trace.spine import Spine
from dbsp.zset.arrays import gather
from dbsp.zset.batch import Batch
from dbsp.zset.equality import equal_columns
from dbsp.zset.hashing import hash_decides
from dbsp.zset.kernels import equal_ranges, expand_ranges
from dbsp.zset.schema import Arrangement

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """A part's columns for the groups, in their order; `failed` marks groups without a value, `reasons` may say why.

    A group that failed for no reason given has a result that does not fit its type.
    """

    columns: tuple[pa.Array, ...]
    failed: Mask | None = None
    reasons: Mapping[int, str] = field(default_factory=dict)

    def at(self, groups: Positions) -> Values:
        """Those of some of the groups, which are in order."""
        failed = None if self.failed is None else self.failed[groups]
        places = {int(group): place for place, group in enumerate(groups)} if self.reasons else {}
        reasons = {places[group]: reason for group, reason in self.reasons.items() if group in places}
        return Values(columns=tuple(gather(column, groups) for column in self.columns), failed=failed, reasons=reasons)


class AggregatePart(Protocol):
    """One or more aggregates that are kept together; a frozen value."""

    def form(self) -> Form:
        """What it needs of the rows."""
        ...

    def names(self) -> tuple[str, ...]:
        """The output columns it gives."""
        ...

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Its traces."""
        ...

    def step(self, state: State, groups: Batch, delta: Batch) -> tuple[Values, Values]:
        """What its columns were and are for `groups` (one row each, arranged by the keys), given the changed rows in its form."""
        ...


@dataclass(frozen=True, slots=True)
class PartState:
    """A part's own traces among those of the node."""

    state: State
    first: int

    def spine(self, index: int) -> Spine:
        """The part's index-th trace."""
        return self.state.spine(self.first + index)

    def retention_bound(self, index: int) -> RetentionBound | None:
        """That of the part's index-th trace."""
        return self.state.retention_bound(self.first + index)

    def append(self, index: int, batch: Batch, retention: RetentionBound | None = None) -> None:
        """Append to the part's index-th trace."""
        self.state.append(self.first + index, batch, retention)


def same_keys(groups: Batch, group: Positions, rows: Batch) -> Mask | None:
    """Whether each row is of the group it was found for by its hash; None where the hash decides that."""
    keys = list(groups.held)
    theirs = [rows.held_column(name) for name in groups.schema.names]
    if hash_decides(keys) and hash_decides(theirs):
        return None
    return equal_columns(keys, group, theirs, np.arange(len(rows)))


def of_same_keys(groups: Batch, group: Positions, rows: Batch, *, words: bool = False) -> tuple[Positions, Batch]:
    """The (group, row) pairs that have one key, out of those with one hash; `words` keeps hashes and order codes."""
    same = same_keys(groups, group, rows)
    if same is None or same.all():
        return group, rows
    return group[same], rows.take(np.flatnonzero(same), words=words)


def group_of(groups: Batch, rows: Batch) -> Positions:
    """For each row, arranged by the same key, the number of its group; every row has one."""
    if groups.key_hash is None or rows.key_hash is None:
        raise InternalError("groups and rows are arranged by the group's key")
    if len(groups) == len(rows) and _same_arrays(groups.held, rows.held):
        return np.arange(len(rows))
    low, high = equal_ranges(rows.key_hash, groups.key_hash)
    row, group = expand_ranges(low, high)
    theirs = [rows.held_column(name) for name in groups.schema.names]
    if len(row) > len(rows):
        same = equal_columns(theirs, row, list(groups.held), group)
        row, group = row[same], group[same]
    if len(row) != len(rows):
        raise InternalError(f"rows without a group: rows={len(rows)} found={len(row)}")
    return group


def _same_arrays(groups: Sequence[pa.Array], rows: Sequence[pa.Array]) -> bool:
    """Whether the first columns of rows are those of the groups, held alike."""
    return all(a is b or (a.type == b.type and a.equals(b)) for a, b in zip(groups, rows, strict=False))


def key_columns(batch: Batch, keys: Sequence[str]) -> tuple[pa.Array, ...]:
    """The key columns, in order."""
    return tuple(batch.held_column(name) for name in keys)
