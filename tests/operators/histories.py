"""Random histories: what is inserted and retracted, step by step; retractions may come before what they retract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from dbsp.zset.hashing import narrow_hash
from tests.pace import examples

Row = tuple[Any, ...]
History = list[list[tuple[Row, int]]]

keys = st.sampled_from(["a", "b", "a key of many letters", "", None])
numbers = st.sampled_from([None, 0, 1, -7, 3, 2**31 - 1, -(2**31)])
floats = st.sampled_from([None, 0.0, -0.0, 0.1, 0.2, -0.3, 1e16, 1.0, -1e16, 5e-324, 1e300, float("nan"), float("inf")])

quick = settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
hashes = st.sampled_from([None, 0, 1, 3])


@contextmanager
def hashed(bits: int | None) -> Iterator[None]:
    """All hashes as they are, or with so few bits that keys collide."""
    with nullcontext() if bits is None else narrow_hash(bits=bits):
        yield


def histories(rows: st.SearchStrategy[Row], steps: int = 5) -> st.SearchStrategy[History]:
    """Steps of (row, weight) pairs; rows are drawn from a small pool, so that they meet again."""

    def of(pool: list[Row]) -> st.SearchStrategy[History]:
        pair = st.tuples(st.sampled_from(pool), st.sampled_from([1, 1, 1, -1, 2, -2]))
        return st.lists(st.lists(pair, max_size=8), min_size=1, max_size=steps)

    return st.lists(rows, min_size=1, max_size=8).flatmap(of)


def proper(history: History) -> History:
    """The history with weights cut so that no row is ever retracted more often than it is there at the end of a step."""
    held: dict[str, int] = {}
    cut = []
    for step in history:
        kept = []
        for row, weight in sorted(step, key=lambda pair: -pair[1]):
            allowed = max(weight, -held.get(repr(row), 0))
            if allowed:
                held[repr(row)] = held.get(repr(row), 0) + allowed
                kept.append((row, allowed))
        cut.append(sorted(kept, key=lambda pair: pair[1]))
    return cut
