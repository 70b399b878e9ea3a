"""Sums of batches with the same arrangement: two, or many at once.

Words are merged two runs at a time, the shortest first. Columns are gathered once, after all words are merged. So the
cost of a row's columns does not depend on the number of runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dbsp.errors import InternalError
from dbsp.zset import kernels
from dbsp.zset.arrays import Positions, pick
from dbsp.zset.batch import Batch, concat, rearrange, words_decide
from dbsp.zset.equality import equal_columns
from dbsp.zset.kernels import RUN_SHIFT, WordColumns
from dbsp.zset.schema import Schema


def merge(left: Batch, right: Batch) -> Batch:
    """Return the sum of two batches with the same arrangement, arranged alike; see `merge_all`."""
    return merge_all((left, right))


def merge_all(batches: Sequence[Batch]) -> Batch:
    """Return the sum of batches with the same arrangement, arranged alike; at least one batch.

    **Law** `merge_all(batches)` is `arrange(concat(batches))`.

    **Cost** A pass over all words for every doubling of the number of batches, and one pass over the columns.

    **Errors** `CapacityError` where the weights of a row overflow.
    """
    arrangement = batches[0].arrangement
    if arrangement is None or any(batch.arrangement != arrangement for batch in batches[1:]):
        raise InternalError(f"only batches arranged alike are merged: {[batch.arrangement for batch in batches]}")
    filled = [batch for batch in batches if len(batch)]
    if len(filled) < 2:  # noqa: PLR2004  nothing to merge with
        return filled[0] if filled else batches[0]
    merged = _added_up(filled)
    return rearrange(concat(filled, words=True), arrangement) if merged is None else merged


def sum_of(batches: Sequence[Batch], schema: Schema, weights: int = 1) -> Batch:
    """Return the sum of batches: arranged if all have the same arrangement, else loose.

    **Cost** That of `merge_all`, without a sort; for loose batches one copy of the columns.
    """
    if not batches:
        return Batch.empty(schema, weights)
    arrangement = batches[0].arrangement
    if arrangement is not None and all(batch.arrangement == arrangement for batch in batches):
        return merge_all(batches)
    return concat(batches, schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """The words and weights of merged rows, and the numbers of the rows.

    A run of one whole batch has the batch's number instead of row numbers.
    """

    words: WordColumns
    weights: NDArray[np.int64]
    batch: int = -1
    rows: Positions = field(default_factory=lambda: np.empty(0, np.int64))

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.weights)

    def numbers(self) -> Positions:
        """Return the row numbers in the form that `arrays.pick` takes."""
        return self.rows if self.batch < 0 else np.arange(len(self)) + (self.batch << RUN_SHIFT)


def _added_up(batches: Sequence[Batch]) -> Batch | None:
    """Return the sum, or None if rows with equal words differ or a weight overflows."""
    runs = [_Run(words=batch.words, weights=batch.weights, batch=n) for n, batch in enumerate(batches)]
    while len(runs) > 1:
        # Merge the two shortest runs first, so that the rows of long runs are copied as rarely as possible.
        runs.sort(key=len, reverse=True)
        merged = _two(batches, runs.pop(), runs.pop())
        if merged is None:
            return None
        runs.append(merged)
    (whole,), first = runs, batches[0]
    columns = zip(*(batch.held for batch in batches), strict=True)
    return Batch(
        schema=first.schema,
        columns=tuple(pick(column, whole.rows) for column in columns),
        weights=whole.weights,
        key_hash=whole.words[0],
        order_code=whole.words[1],
        row_hash=whole.words[2],
        arrangement=first.arrangement,
    )


def _two(batches: Sequence[Batch], left: _Run, right: _Run) -> _Run | None:
    """Return two runs merged into one, or None if rows with equal words differ or a weight overflows."""
    if right.batch >= 0 and (left.batch < 0 or right.batch < left.batch):
        left, right = right, left
    found = kernels.merge_sums(left.words, left.weights, right.words, right.weights)
    if found is None:
        return None
    words, rows, weights, same = found
    numbers = None if (left.batch, right.batch) == (0, 1) else (left.numbers(), right.numbers())
    if len(same[0]) and not _same_rows(batches, same, numbers):
        return None
    if numbers is not None:
        rows = kernels.pick_words([side.view(np.uint64) for side in numbers], rows).view(np.int64)
    return _Run(words=words, weights=weights, rows=rows)


def _same_rows(
    batches: Sequence[Batch], places: tuple[Positions, Positions], numbers: tuple[Positions, Positions] | None
) -> bool:
    """Return whether the rows of both sides at these places, which agree in their words, are equal.

    Without `numbers` the sides are the first two batches.
    """
    arrangement = batches[0].arrangement
    if arrangement is None or all(words_decide(batch.held, arrangement) for batch in batches):
        return True
    if numbers is None:
        left, right = batches[:2]
        return bool(equal_columns(left.held, places[0], right.held, places[1]).all())
    sides = [_columns_at(batches, rows.take(at)) for rows, at in zip(numbers, places, strict=True)]
    each = np.arange(len(places[0]))
    return bool(equal_columns(sides[0], each, sides[1], each).all())


def _columns_at(batches: Sequence[Batch], rows: NDArray[np.int64]) -> list[pa.Array]:
    """Return the columns of these rows."""
    return [pick(column, rows) for column in zip(*(batch.held for batch in batches), strict=True)]
