"""Find how far the k rows before or after a position reach, in ordered groups.

Each run yields its m rows next to the position. A run with more rows is *truncated* at the last row that it yields.
Over all runs, only rows nearer than the nearest such end are known completely.
If fewer than k of the known rows have a positive sum, m grows for these positions alone.

**Law**: between a position and the returned code are at least k rows of the consolidated trace, or all there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dbsp.errors import InternalError
from dbsp.trace.source import SortedRun
from dbsp.zset.arrays import from_values, value_view
from dbsp.zset.batch import Batch, arrange, take_all
from dbsp.zset.kernels import expand_ranges
from dbsp.zset.kernels.ranges import cut_ranges
from dbsp.zset.schema import INT64, Arrangement, Column, Schema

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
SameKey = Callable[[I64, Batch], tuple[I64, Batch]]
"""A function that returns the (query, row) pairs in which the row has the query's key, in the given order."""

FIRST, LAST = np.uint64(0), np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_ROWS_MIN = 4
_QUERY = "__query"


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """Sorted key hashes, an inclusive range of order codes for each, and the end of the range to start from."""

    key_hash: U64
    first: U64
    last: U64
    backward: bool

    def take(self, rows: I64) -> Positions:
        """Return the positions at these indices."""
        return replace(self, key_hash=self.key_hash[rows], first=self.first[rows], last=self.last[rows])


def reach(sources: Sequence[SortedRun], arrangement: Arrangement, asked: Positions, k: int, same: SameKey) -> U64:
    """Return the codes of `Spine.reach`; `same` keeps the (query, row) pairs whose keys are equal."""
    answer = asked.first.copy() if asked.backward else asked.last.copy()
    active = np.arange(len(answer))
    rows_max = max(_ROWS_MIN, 2 * k)
    while len(active) and k:
        nearest = _Nearest(asked.take(active), rows_max)
        query, codes = nearest.present(sources, arrangement, _of_active(active, same))
        order = np.lexsort((~codes if asked.backward else codes, query))
        query, codes = query[order], codes[order]
        start = query.searchsorted(np.arange(len(active)))
        enough = np.bincount(query, minlength=len(active)) >= k
        answer[active[enough]] = codes[start[enough] + k - 1]
        active = active[nearest.truncated & ~enough]
        rows_max *= 4
    return answer


def _of_active(active: I64, same: SameKey) -> SameKey:
    """Return `same` for queries numbered by their index in `active` instead of among all queries."""

    def kept(query: I64, rows: Batch) -> tuple[I64, Batch]:
        query, rows = same(active[query], rows)
        return active.searchsorted(query), rows

    return kept


class _Nearest:
    """The rows next to each position, at most `rows_max` per run, and the limit up to which they are known completely."""

    def __init__(self, asked: Positions, rows_max: int) -> None:
        """Start with no rows read."""
        self.asked = asked
        self.rows_max = rows_max
        self.truncated = np.zeros(len(asked.key_hash), np.bool_)
        self.limit = np.full(len(asked.key_hash), FIRST if asked.backward else LAST)

    def present(self, sources: Sequence[SortedRun], arrangement: Arrangement, same: SameKey) -> tuple[I64, U64]:
        """Return (query, order code) of every row within the limit whose weights in all runs add up to more than 0."""
        found = [part for source in sources for part in self._of(source)]
        if not found:
            return np.empty(0, np.int64), np.empty(0, np.uint64)
        rows = take_all([(chunk, position) for _, chunk, position in found], words=True)
        query, codes = _present(*same(np.concatenate([query for query, *_ in found]), rows), arrangement)
        nearer = codes > self.limit[query] if self.asked.backward else codes < self.limit[query]
        known = ~self.truncated[query] | nearer
        return query[known], codes[known]

    def _of(self, source: SortedRun) -> Iterator[tuple[I64, Batch, I64]]:
        """Yield (query of each row, chunk, position) of the nearest rows of one run; record where the run has more."""
        asked = self.asked
        taken = np.zeros(len(asked.key_hash), np.int64)
        end_code = np.zeros(len(taken), np.uint64)
        cut = np.zeros(len(taken), np.bool_)
        begin = source.begin(asked.key_hash, asked.first)
        for mine, index in self._nearest_first(source, begin, taken, cut):
            chunk = source.load(index)
            if chunk.order_code is None:
                raise InternalError("a trace with an order stores order codes")
            low, high = source.find(index, chunk, asked.key_hash[mine])
            cut_ranges(low, high, begin[mine], asked.last[mine], chunk.order_code)
            use = np.minimum(high - low, self.rows_max - taken[mine])
            cut[mine] |= high - low > use
            some = np.flatnonzero(use > 0)
            if len(some) == 0:
                continue
            taken[mine] += use
            from_, to = (high - use, high) if asked.backward else (low, low + use)
            end_code[mine[some]] = chunk.order_code[from_[some] if asked.backward else to[some] - 1]
            query, position = expand_ranges(from_[some], to[some])
            yield mine[some[query]], chunk, position
        self.truncated |= cut
        nearest = np.maximum if asked.backward else np.minimum
        self.limit[cut] = nearest(self.limit[cut], end_code[cut])

    def _nearest_first(self, source: SortedRun, begin: U64, taken: I64, cut: Mask) -> Iterator[tuple[I64, int]]:
        """Yield (queries, chunk): the chunk next to each position, then further chunks while `taken` is below `rows_max`.

        If a position has enough rows and the run has a further chunk, set `cut` for the position.
        """
        asked = self.asked
        low, high = source.span(asked.key_hash, begin, asked.last)
        at, left = high - 1 if asked.backward else low, np.maximum(high - low, 0)
        active = np.flatnonzero(left)
        while len(active):
            yield from source.by_chunk(asked.key_hash, active, at[active])
            left[active] -= 1
            at[active] += -1 if asked.backward else 1
            active = active[left[active] > 0]
            full = taken[active] >= self.rows_max
            cut[active[full]] = True
            active = active[~full]


def _present(query: I64, rows: Batch, arrangement: Arrangement) -> tuple[I64, U64]:
    """Return (query, order code) of the rows whose sum over all runs is positive."""
    schema = Schema((Column(_QUERY, INT64, nullable=False), *arrangement.schema.columns))
    numbered = Batch(schema=schema, columns=(from_values(query, INT64), *rows.columns), weights=rows.weights)
    summed = arrange(numbered, Arrangement(schema=schema, key=(_QUERY,), order=arrangement.order))
    if summed.order_code is None:
        raise InternalError("arranged rows carry their words")
    positive = summed.weights[:, 0] > 0
    return value_view(summed.column(_QUERY))[positive], summed.order_code[positive]
