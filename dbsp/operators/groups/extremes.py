"""The least and the greatest numbers of groups whose rows are never removed, stored among the sums of the group.

Such an extreme is a function of the previous extreme and the new rows. So it needs no stored rows and no trace of its own. The
trace of sums has two more weights for each extreme. Their sum over all runs is the extreme, because each step appends the
difference from the previous extreme. Code that adds up rows (a merge, a look-up, a move to another worker) needs no special
case. One look-up and one append serve counts, sums and extremes.
In the exchange to the owner of the group, extremes are columns, because the extremes of two workers do not add up.

**Law** for rows of positive weight the weights of a group after some steps are those after one step with all of these rows.

**State** two weights for each extreme. They are the low 32 bits and the high 32 bits of its signed number (`to_numbers`). So no
difference of two extremes overflows 64 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import is_

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp.errors import InternalError
from dbsp.operators.columns import column_of
from dbsp.operators.groups.limbs import BITS
from dbsp.operators.groups.linear_form import Added, LinearForm, Sums
from dbsp.operators.groups.part import group_of, key_columns
from dbsp.stored import stored
from dbsp.zset.arrays import from_values, gather, storage_type, valid_rows, value_view
from dbsp.zset.batch import Batch, arrange, keys_once, no_rows_of, rearrange
from dbsp.zset.hashing import hash_columns
from dbsp.zset.kernels import least_of_groups, most_of_groups, moves_of_ends, scatter_add, with_halves
from dbsp.zset.order import number_words, numbers_of
from dbsp.zset.schema import INT64, Arrangement, Column, Schema
from dbsp.zset.sorted_keys import KeyGroups, few_groups

Words = npt.NDArray[np.uint64]

_SIGN, _NONE = np.uint64(1 << 63), np.uint64((1 << 64) - 1)


@stored("Extreme", "column greatest")
@dataclass(frozen=True, slots=True)
class ExtremeMeasure:
    """The least or the greatest value of a column of numbers or times; a measure, although extremes do not add up.

    The words of a greatest value are inverted, so that the least word always wins; `_NONE` denotes no value.
    """

    column: str
    greatest: bool

    def __str__(self) -> str:
        """Return the aggregate as SQL text."""
        return f"{'max' if self.greatest else 'min'}({self.column})"

    @property
    def slots(self) -> int:
        """Return 2: one weight for each half of a word."""
        return 2

    def words(self, batch: Batch, numbers: Words) -> Words:
        """Return the word of each row, given the words of the column's numbers."""
        words = ~numbers if self.greatest else numbers
        valid = valid_rows(batch.column(self.column))
        return words if valid is None else np.where(valid, words, _NONE)

    def by_group(self, batch: Batch, numbers: Words, groups: KeyGroups) -> Words:
        """Return the least word of each group."""
        if self.greatest and not batch.column(self.column).null_count:
            return ~most_of_groups(numbers, groups.of, len(groups))
        return least_of_groups(self.words(batch, numbers), groups.of, len(groups))

    def to_numbers(self, words: Words) -> Sums:
        """Return words as signed whole numbers; a value near zero gives a number near zero."""
        turned: Sums = numbers_of(~words if self.greatest else words, INT64)
        return turned

    def to_words(self, numbers: Sums) -> Words:
        """Return the words that `to_numbers` turned into these numbers."""
        words = _plain_words(numbers)
        return ~words if self.greatest else words


def keeps_extremes(type_: pa.DataType) -> bool:
    """Return whether extremes of a type can be stored this way: a word distinguishes all its values."""
    return storage_type(type_) is not None


@stored("ExtremesForm", "linear extremes")
@dataclass(frozen=True, slots=True, kw_only=True)
class ExtremesForm:
    """Rows as (keys, one column per extreme) with sums as weights: one row per group and worker."""

    linear: LinearForm
    extremes: tuple[ExtremeMeasure, ...]

    def __str__(self) -> str:
        """Return the counts, the sums and the extremes as text."""
        return f"{self.linear} with {', '.join(map(str, self.extremes))}"

    @property
    def keys(self) -> Schema:
        """Return the schema of the groups' keys."""
        return self.linear.keys

    def arrangement(self) -> Arrangement:
        """Return the arrangement in the exchange: by group, with extremes as columns."""
        columns = (Column(f"__extreme__{number}", INT64, nullable=False) for number in range(len(self.extremes)))
        linear = self.linear.arrangement()
        return replace(linear, schema=Schema((*self.keys.columns, *columns)))

    def kept(self) -> Arrangement:
        """Return the arrangement of the trace: extremes as weights after the sums."""
        linear = self.linear.arrangement()
        return replace(linear, weights=linear.weights + sum(extreme.slots for extreme in self.extremes))

    def slots(self, measure: Added | ExtremeMeasure | None) -> tuple[int, int]:
        """Return the range of a measure's weights in the trace; for None, that of the number of rows."""
        if not isinstance(measure, ExtremeMeasure):
            return self.linear.slots(measure)
        first = self.linear.arrangement().weights + measure.slots * self.extremes.index(measure)
        return first, first + measure.slots

    def of(self, batch: Batch) -> Batch:
        """Return one row for each group, arranged; raise `InternalError` if a weight is not positive."""
        keys = key_columns(batch, self.keys.names)
        columns = {extreme.column: number_words(batch.column(extreme.column)) for extreme in self.extremes}
        if len(batch) and batch.weight.min() <= 0:
            raise InternalError(f"a row has a weight below 1, but the input never retracts rows: of={self}")
        groups = few_groups(keys, len(batch))
        if groups is not None and (added := self.linear.added_up(batch, groups)) is not None:
            least = [extreme.by_group(batch, columns[extreme.column], groups) for extreme in self.extremes]
            firsts = [gather(column, groups.firsts) for column in keys]
            return self._laid(firsts, least, added, groups.key_hash)
        rows = self.linear.of(batch)
        numbers = self._numbers([extreme.words(batch, columns[extreme.column]) for extreme in self.extremes])
        loose = Batch(schema=self.arrangement().schema, columns=(*rows.held, *numbers), weights=rows.weights)
        arranged = arrange(loose, self.arrangement())
        once = keys_once(arranged)
        return arranged if len(once) == len(arranged) else self._reduced(arranged, once)

    def arrived(self, batch: Batch) -> Batch:
        """Return each group once, in the trace's form, from the rows of all workers: its sums, and the extremes of this step."""
        arrangement = self.arrangement()
        rows = arrange(batch, arrangement) if len(batch) else no_rows_of(arrangement)
        groups = keys_once(rows)
        sums, words = self._by_group(rows, groups)
        numbers = [extreme.to_numbers(each) for extreme, each in zip(self.extremes, words, strict=True)]
        return groups.but(weights=with_halves(sums, numbers), arrangement=self.kept())

    def moved(self, old: Sums, change: Sums) -> Sums:
        """Return the weights to add to the old sums of each group, given the sums and the extremes of a step."""
        firsts = [self.slots(extreme)[0] for extreme in self.extremes]
        return moves_of_ends(old, change, firsts, [extreme.greatest for extreme in self.extremes])

    def _reduced(self, rows: Batch, groups: Batch) -> Batch:
        """Return the rows of each group, combined into one."""
        sums, words = self._by_group(rows, groups)
        if groups.key_hash is None:
            raise InternalError("groups are arranged")
        return self._laid(groups.held, words, sums, groups.key_hash)

    def _by_group(self, rows: Batch, groups: Batch) -> tuple[Sums, list[Words]]:
        """Return the sums and the least words of each group, given rows in the form of the exchange."""
        numbers = [value_view(column) for column in rows.held[len(self.keys) :]]
        words = [extreme.to_words(each) for extreme, each in zip(self.extremes, numbers, strict=True)]
        # Equal lengths do not prove that row i belongs to group i: keys that share a hash may be in another order.
        if len(groups) == len(rows) and all(map(is_, groups.held, rows.held)):
            return rows.weights, words
        group = group_of(groups, rows)
        sums = np.zeros((len(groups), rows.weights.shape[1]), np.int64)
        scatter_add(sums, group, rows.weights)
        return sums, [least_of_groups(each, group, len(groups)) for each in words]

    def _laid(self, keys: Sequence[pa.Array], words: Sequence[Words], sums: Sums, key_hash: Words) -> Batch:
        """Return the groups in the form of the exchange, each once, arranged."""
        arrangement = self.arrangement()
        numbers = self._numbers(words)
        row_hash = hash_columns(numbers, len(sums))
        columns = (*keys, *numbers)
        batch = Batch(schema=arrangement.schema, columns=columns, weights=sums, key_hash=key_hash, row_hash=row_hash)
        return rearrange(batch, arrangement)

    def _numbers(self, words: Sequence[Words]) -> list[pa.Array]:
        """Return words as columns of numbers."""
        return [
            from_values(extreme.to_numbers(each), INT64) for extreme, each in zip(self.extremes, words, strict=True)
        ]


def _plain_words(numbers: Sums) -> Words:
    """Return the words of whole numbers, in the form of `number_words`."""
    return numbers.view(np.uint64) ^ _SIGN


def _joined(halves: Sums) -> Sums:
    """Return the number of each pair of weights: the low half and the high half."""
    return np.asarray((halves[:, 1] << BITS) | halves[:, 0])


@stored("Ended", "extreme")
@dataclass(frozen=True, slots=True)
class Ended:
    """An extreme computed from its two weights; the first measure counts the values."""

    extreme: ExtremeMeasure

    def __str__(self) -> str:
        """Return the aggregate's name."""
        return "max" if self.extreme.greatest else "min"

    def column(self, sums: Sequence[Sums], type_: pa.DataType) -> tuple[pa.Array, None]:
        """Return the extremes; null for groups without values."""
        valid = sums[0][:, 0] != 0
        return column_of(numbers_of(_plain_words(_joined(sums[1])), type_), valid, type_), None
