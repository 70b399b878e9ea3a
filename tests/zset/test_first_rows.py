"""The kernels that find first rows, against their twins in plain Python: by words alone, over runs that are cut off."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp.zset.kernels import first_rows
from dbsp.zset.kernels.first_rows import AFTER, WEIGHT
from tests.pace import examples
from tests.zset import numpy_twins as reference

QUICK = settings(max_examples=examples(200), deadline=None)
QUERIES = 4
NO_LIMIT = (1 << 64) - 1

run = st.lists(
    st.tuples(
        st.integers(0, QUERIES - 1),
        st.sampled_from([0, 1, 2, 3, 4, NO_LIMIT]),
        st.integers(0, 1),
        st.sampled_from([1, 1, -1, 2]),
    ),
    max_size=12,
    unique_by=lambda row: row[:3],
).map(sorted)


class Found:
    """Candidates, and how far they are known, as `collect_first_rows` of a module notes them."""

    def __init__(self, module: Any, room: int, backwards: bool = False) -> None:
        self.module, self.backwards = module, backwards
        self.cut, self.limit = np.zeros(QUERIES, np.bool_), np.full(QUERIES, NO_LIMIT, np.uint64)
        self.found, self.words, self.count = np.zeros((room, 4), np.int64), np.zeros((room, 2), np.uint64), 0

    def read(self, rows: list[Any], chunks: list[int], rows_max: int) -> int:
        """Candidates of a run that is cut into chunks of two; how many rows had no room."""
        taken, last = np.zeros(QUERIES, np.int64), np.zeros(QUERIES, np.uint64)
        halves = list(zip(chunks, (rows[: len(rows) // 2], rows[len(rows) // 2 :]), strict=True))
        for chunk, part in halves[::-1] if self.backwards else halves:
            keys = np.array([row[0] for row in part], np.int64)
            low, high = (keys.searchsorted(np.arange(QUERIES), side) for side in ("left", "right"))
            codes, hashes = (np.array([row[at] for row in part], np.uint64) for at in (1, 2))
            weights = np.array([row[3] for row in part], np.int64)
            count = self.module.collect_first_rows(
                np.arange(QUERIES), low, high, codes, hashes, weights, chunk, rows_max,
                taken, last, self.cut, self.limit, self.found, self.words, self.count, self.backwards,
            )  # fmt: skip
            if count < 0:
                return -int(count)
            self.count = count
        return 0

    def settled(self, delta: int, k: int, cut: Any, limit: Any) -> list[Any]:
        """All that `settle_first_rows` answers."""
        n = self.count
        scratch = np.empty(n, np.int64), np.empty(n, np.int64), np.zeros(QUERIES + 1, np.int64)
        ready, kept = np.zeros(QUERIES, np.bool_), np.zeros((AFTER + 1, n), np.int64)
        words, same = np.zeros((2, n), np.uint64), np.zeros((2, n), np.int64)
        sides = cut, limit, self.cut, self.limit
        count, pairs = self.module.settle_first_rows(
            self.found[:n], self.words[:n], delta, k, *sides, *scratch, ready, kept, words, same
        )
        listed = kept[:, :count].tolist(), words[:, :count].tolist()
        return [ready.tolist(), *listed, sorted(zip(*same[:, :pairs].tolist(), strict=True))]


@QUICK
@given(st.lists(run, min_size=1, max_size=5), st.integers(1, 5), st.integers(1, 4), st.booleans(), st.booleans())
def test_first_rows_by_words_are_those_of_the_twin(
    runs: list[Any], rows_max: int, k: int, changed: bool, backwards: bool
) -> None:
    answers = []
    for module in (first_rows, reference):
        found = Found(module, 200, backwards)
        cut, limit, delta = found.cut, found.limit, -1
        for number, rows in enumerate(runs):
            if changed and number == len(runs) - 1:
                cut, limit, delta = cut.copy(), limit.copy(), 2 * number
                chunks = [delta, delta]
            else:
                chunks = [2 * number, 2 * number + 1]
            assert found.read(rows, chunks, rows_max) == 0
        state = [found.cut.tolist(), found.limit.tolist(), found.found[: found.count].tolist()]
        answers.append([*state, *found.settled(delta, k, cut, limit)])
    assert answers[0] == answers[1]


@pytest.mark.parametrize("module", [first_rows, reference])
def test_nothing_is_noted_where_there_is_no_room(module: Any) -> None:
    found = Found(module, 3)
    assert found.read([], [0, 1], 4) == 0
    assert found.read([(0, code, 0, 1) for code in range(10)], [2, 3], 4) == 1
    assert (found.count, found.cut.any(), found.found.any()) == (0, False, False)


def test_a_sum_that_leaves_64_bits_is_seen() -> None:
    """Of the runs, and with the change."""
    most = (1 << 63) - 1
    for delta in (-1, 2):
        found = Found(first_rows, 9)
        found.read([(0, 1, 1, most)], [0, 1], 4)
        found.read([(0, 1, 1, 1)], [2, 2], 4)
        n = found.count
        arrays = (
            np.empty(n, np.int64),
            np.empty(n, np.int64),
            np.zeros(QUERIES + 1, np.int64),
            np.zeros(QUERIES, np.bool_),
        )
        kept, words, same = np.empty((AFTER + 1, n), np.int64), np.empty((2, n), np.uint64), np.empty((2, n), np.int64)
        count, _ = first_rows.settle_first_rows(
            found.found[:n],
            found.words[:n],
            delta,
            1,
            found.cut,
            found.limit,
            found.cut,
            found.limit,
            *arrays,
            kept,
            words,
            same,
        )
        assert count == -1
    assert found.found[:n, WEIGHT].tolist() == [most, 1]
