"""Rows as sums of measures per group, from which linear aggregates are computed.

**Law** the form of a + b is the sum of the forms of a and of b.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dbsp.errors import CapacityError
from dbsp.operators.groups.measures import Counting
from dbsp.operators.groups.part import key_columns
from dbsp.stored import stored
from dbsp.zset.batch import Batch, arrange, no_rows_of, of_groups
from dbsp.zset.kernels import add_marked
from dbsp.zset.schema import Arrangement, Schema
from dbsp.zset.sorted_keys import KeyGroups, few_groups

Sums = npt.NDArray[np.int64]


class Measure(Protocol):
    """The numbers that each row adds to a group's sums; a frozen value, whose text is that of a sum."""

    @property
    def slots(self) -> int:
        """Return the number of weights that the measure needs."""
        ...

    def of(self, batch: Batch) -> list[Sums]:
        """Return the numbers that each row adds, one array per slot."""
        ...


class SummedMeasure(Measure, Protocol):
    """A measure that can be added up by group without an array for each row."""

    def by_group(self, batch: Batch, groups: KeyGroups) -> list[Sums]:
        """Return the sums of each group's rows, one array per slot; raise `CapacityError` if a sum exceeds 64 bits on the way."""
        ...


Added = Counting | SummedMeasure
"""The kinds of measures in a linear form."""


@stored("LinearForm", "keys measures")
@dataclass(frozen=True, slots=True, kw_only=True)
class LinearForm:
    """Rows as (keys, vector of sums)."""

    keys: Schema
    measures: tuple[Added, ...]

    def __str__(self) -> str:
        """Return the counts, the sums and the keys as text."""
        sums = ", ".join(map(str, self.measures))
        return f"count(*){', ' if sums else ''}{sums} by ({', '.join(self.keys.names)})"

    def arrangement(self) -> Arrangement:
        """Return the arrangement, keyed by the whole row, which is the group's key."""
        weights = 1 + sum(measure.slots for measure in self.measures)
        return Arrangement(schema=self.keys, key=self.keys.names, weights=weights)

    def of(self, batch: Batch) -> Batch:
        """Return the rows with their weights and measures; if there are few keys, return one row per group, arranged.

        Few groups are added up directly, which saves the arrays for each row. Both results are the same once arranged.
        """
        keys = key_columns(batch, self.keys.names)
        if (groups := few_groups(keys, len(batch))) and (added := self.added_up(batch, groups)) is not None:
            return of_groups(keys, groups, added, self.arrangement())
        slots = [batch.weight]
        for measure in self.measures:
            slots += measure.of(batch)
        weights = batch.weights if len(slots) == 1 else np.column_stack(slots)
        return Batch(schema=self.keys, columns=keys, weights=weights)

    def added_up(self, batch: Batch, groups: KeyGroups) -> Sums | None:
        """Return the sums of each group; None if an intermediate sum exceeds 64 bits."""
        counting = [measure for measure in self.measures if isinstance(measure, Counting)]
        marks = [None, *(measure.marked(batch) for measure in counting)]
        try:
            rows, *counts = add_marked(marks, batch.weight, groups.of, len(groups)).T
            counted = dict(zip(counting, counts, strict=True))
            slots = [rows]
            for measure in self.measures:
                slots += [counted[measure]] if isinstance(measure, Counting) else measure.by_group(batch, groups)
        except CapacityError:
            return None
        return np.column_stack(slots)

    def kept(self) -> Arrangement:
        """Return the arrangement of the trace, which is that of the exchange."""
        return self.arrangement()

    def arrived(self, batch: Batch) -> Batch:
        """Return the rows of all workers, each group once."""
        arrangement = self.arrangement()
        return arrange(batch, arrangement) if len(batch) else no_rows_of(arrangement)

    def moved(self, old: Sums, change: Sums) -> Sums:  # noqa: ARG002 (protocol)
        """Return the weights to add to the old sums: the change itself."""
        return change

    def slots(self, measure: Added | None) -> tuple[int, int]:
        """Return the range of a measure's weights; for None, that of the number of rows."""
        if measure is None:
            return 0, 1
        first = 1 + sum(m.slots for m in self.measures[: self.measures.index(measure)])
        return first, first + measure.slots
