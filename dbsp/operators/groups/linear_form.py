"""Rows as sums of measures per group, which is what linear aggregates are made of.

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
    """What each row adds to a group's sums; a frozen value. Its text is that of a sum."""

    @property
    def slots(self) -> int:
        """How many weights it takes."""
        ...

    def of(self, batch: Batch) -> list[Sums]:
        """What each row adds, one array per slot."""
        ...


class SummedMeasure(Measure, Protocol):
    """A measure that can be added up by group without an array for each row."""

    def by_group(self, batch: Batch, groups: KeyGroups) -> list[Sums]:
        """What the rows of each group add, one array per slot; `CapacityError` where a sum leaves 64 bits on the way."""
        ...


Added = Counting | SummedMeasure
"""What a form may have as a measure."""


@stored("LinearForm", "keys measures")
@dataclass(frozen=True, slots=True, kw_only=True)
class LinearForm:
    """Rows as (keys, vector of sums)."""

    keys: Schema
    measures: tuple[Added, ...]

    def __str__(self) -> str:
        """The counts and sums."""
        sums = ", ".join(map(str, self.measures))
        return f"count(*){', ' if sums else ''}{sums} by ({', '.join(self.keys.names)})"

    def arrangement(self) -> Arrangement:
        """Keyed by the whole row, which is the group's key."""
        weights = 1 + sum(measure.slots for measure in self.measures)
        return Arrangement(schema=self.keys, key=self.keys.names, weights=weights)

    def of(self, batch: Batch) -> Batch:
        """One row per row, with its weight and its measures; of rows of few keys these added up, arranged.

        So nothing is laid out for each row that groups have few of; the result is the same when it has been arranged.
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
        """The sums of each group; None where one leaves 64 bits on the way."""
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
        """In the trace as on the way."""
        return self.arrangement()

    def arrived(self, batch: Batch) -> Batch:
        """What came from all workers, each group once."""
        arrangement = self.arrangement()
        return arrange(batch, arrangement) if len(batch) else no_rows_of(arrangement)

    def moved(self, old: Sums, change: Sums) -> Sums:  # noqa: ARG002 (protocol)
        """What is to be added to old sums: what came."""
        return change

    def slots(self, measure: Added | None) -> tuple[int, int]:
        """The weights of a measure, from the first to before the last; of None the number of rows."""
        if measure is None:
            return 0, 1
        first = 1 + sum(m.slots for m in self.measures[: self.measures.index(measure)])
        return first, first + measure.slots
