"""The common base of aggregates over floats that are exact: integer sums per group and bin, rounded in the output."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dbsp.errors import InternalError
from dbsp.operators.groups.part import Positions, Values, group_of, of_same_keys
from dbsp.operators.operator import State
from dbsp.stored import stored
from dbsp.zset.arrays import value_view
from dbsp.zset.batch import Batch
from dbsp.zset.schema import INT16, Arrangement, Column, Schema

BIN = "__bin__"
Sums = npt.NDArray[np.int64]


class BinnedForm(Protocol):
    """The form in which rows are summed before the exchange: one row per group and bin, with integer sums as weights."""

    def arrangement(self) -> Arrangement:
        """Return the arrangement by group."""
        ...

    def of(self, batch: Batch) -> Batch:
        """Split the values of each group over bins; return one row per group and bin, with its sums as weights."""
        ...


class BinnedCall(Protocol):
    """An aggregate that is computed from the bins."""

    @property
    def name(self) -> str:
        """Return the name of the output column."""
        ...


def by_bin(keys: Schema, weights: int) -> Arrangement:
    """Return the arrangement of groups and bins, by group."""
    schema = Schema((*keys.columns, Column(BIN, INT16, nullable=False)))
    return Arrangement(schema=schema, key=keys.names, weights=weights)


@stored("BinnedPart", "bins calls")
@dataclass(frozen=True, slots=True, kw_only=True)
class BinnedPart(ABC):
    """Aggregates that are computed from the bins of one form."""

    bins: BinnedForm
    calls: tuple[BinnedCall, ...]

    def form(self) -> BinnedForm:
        """Return the form of keys and bins."""
        return self.bins

    def names(self) -> tuple[str, ...]:
        """Return the aggregates' names."""
        return tuple(call.name for call in self.calls)

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangement of the part's one trace: the bins of each group."""
        return (self.bins.arrangement(),)

    def step(self, state: State, groups: Batch, delta: Batch) -> tuple[Values, Values]:
        """Return the aggregates before and after the change."""
        if groups.key_hash is None:
            raise InternalError("groups are arranged")
        group, found = of_same_keys(groups, *state.spine(0).matches(groups.key_hash, words=False))
        bins, sums = value_view(found.column(BIN)), found.weights
        old = self._values(len(groups), group, bins, sums)
        if len(delta) == 0:
            return old, old
        state.append(0, delta)
        group = np.concatenate([group, group_of(groups, delta)])
        bins = np.concatenate([bins, value_view(delta.column(BIN))])
        return old, self._values(len(groups), group, bins, np.concatenate([sums, delta.weights]))

    @abstractmethod
    def _values(self, groups: int, group: Positions, bins: npt.NDArray[Any], sums: Sums) -> Values:
        """Return the output columns, computed from (group, bin) rows in any order."""
        ...
