"""Ranges narrowed by the second word, against looking at every position."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp.zset.kernels.ranges import narrow_ranges

words = st.integers(0, 6)


@settings(deadline=None)
@given(st.lists(st.lists(words, max_size=6).map(sorted), min_size=1, max_size=4), st.data())
def test_narrowed_ranges_hold_exactly_the_query(runs: list[list[int]], data: st.DataObject) -> None:
    hay = np.array([word for run in runs for word in run], np.uint64)
    ends = np.cumsum([len(run) for run in runs])
    picked = data.draw(st.lists(st.tuples(st.integers(0, len(runs) - 1), words), max_size=8))
    lows = np.array([ends[run] - len(runs[run]) for run, _ in picked], np.int64)
    highs = np.array([ends[run] for run, _ in picked], np.int64)
    before = list(zip(lows.tolist(), highs.tolist(), strict=True))
    narrow_ranges(lows, highs, np.array([word for _, word in picked], np.uint64), hay)
    for (low, high), (_, word), first, last in zip(before, picked, lows, highs, strict=True):
        assert list(range(first, last)) == [at for at in range(low, high) if hay[at] == word]
