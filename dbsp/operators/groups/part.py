"""Aggregate parts: a group-by is built from parts, each of which computes some of the output columns.

A part states in which form it needs the rows (`Form`, pre-summed before the exchange) and which traces it keeps. It computes
its columns before and after a step, for the groups that changed. A new aggregate is a new part.
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
    """A part's columns for the groups, in the groups' order; `failed` marks groups without a value, `reasons` may say why.

    A group that failed without a reason has a result that does not fit its type.
    """

    columns: tuple[pa.Array, ...]
    failed: Mask | None = None
    reasons: Mapping[int, str] = field(default_factory=dict)

    def at(self, groups: Positions) -> Values:
        """Return the values of the given groups, whose indices are ascending."""
        failed = None if self.failed is None else self.failed[groups]
        places = {int(group): place for place, group in enumerate(groups)} if self.reasons else {}
        reasons = {places[group]: reason for group, reason in self.reasons.items() if group in places}
        return Values(columns=tuple(gather(column, groups) for column in self.columns), failed=failed, reasons=reasons)


class AggregatePart(Protocol):
    """A frozen value that computes one aggregate, or several that share their state."""

    def form(self) -> Form:
        """Return the form in which the part needs the rows."""
        ...

    def names(self) -> tuple[str, ...]:
        """Return the names of the part's output columns."""
        ...

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangements of the part's traces."""
        ...

    def step(self, state: State, groups: Batch, delta: Batch) -> tuple[Values, Values]:
        """Return the part's columns before and after the step for `groups`, given the changed rows in the part's form.

        `groups` contains one row per group, arranged by the keys.
        """
        ...


@dataclass(frozen=True, slots=True)
class PartState:
    """View of a part's own traces within the node's state."""

    state: State
    first: int

    def spine(self, index: int) -> Spine:
        """Return the part's index-th trace."""
        return self.state.spine(self.first + index)

    def retention_bound(self, index: int) -> RetentionBound | None:
        """Return the retention bound of the part's index-th trace."""
        return self.state.retention_bound(self.first + index)

    def append(self, index: int, batch: Batch, retention: RetentionBound | None = None) -> None:
        """Append to the part's index-th trace."""
        self.state.append(self.first + index, batch, retention)


def same_keys(groups: Batch, group: Positions, rows: Batch) -> Mask | None:
    """Return the mask of the rows whose key equals the group's, given matches by hash; None if equal hashes imply equal keys."""
    keys = list(groups.held)
    theirs = [rows.held_column(name) for name in groups.schema.names]
    if hash_decides(keys) and hash_decides(theirs):
        return None
    return equal_columns(keys, group, theirs, np.arange(len(rows)))


def of_same_keys(groups: Batch, group: Positions, rows: Batch, *, words: bool = False) -> tuple[Positions, Batch]:
    """Return the (group, row) pairs with equal keys, given pairs with equal hashes; `words` keeps hashes and order codes."""
    same = same_keys(groups, group, rows)
    if same is None or same.all():
        return group, rows
    return group[same], rows.take(np.flatnonzero(same), words=words)


def group_of(groups: Batch, rows: Batch) -> Positions:
    """Return the index of each row's group; raise `InternalError` if a row has none. Both are arranged by the same key."""
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
    """Return whether the first columns of the rows equal the groups' columns, in the same stored form."""
    return all(a is b or (a.type == b.type and a.equals(b)) for a, b in zip(groups, rows, strict=False))


def key_columns(batch: Batch, keys: Sequence[str]) -> tuple[pa.Array, ...]:
    """Return the key columns in order, in their stored form."""
    return tuple(batch.held_column(name) for name in keys)
