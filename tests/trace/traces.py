"""Traces for the tests: arrangements of one schema, random rows, and a dictionary as the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext

import hypothesis.strategies as st

from dbsp.trace.spine import Spine
from dbsp.zset.batch import Batch, arrange
from dbsp.zset.hashing import narrow_hash
from dbsp.zset.schema import INT64, STRING, Arrangement, OrderBy, Schema

SCHEMA = Schema.of({"k": INT64, "t": INT64, "s": STRING})
BY_KEY = Arrangement(schema=SCHEMA, key=("k",))
BY_TWO = Arrangement(schema=SCHEMA, key=("k", "s"))
BY_ROW = Arrangement(schema=SCHEMA, key=("k", "t", "s"))
ORDERED = Arrangement(schema=SCHEMA, key=("k",), order=(OrderBy("t"),))
ARRANGEMENTS = (BY_KEY, BY_TWO, BY_ROW, ORDERED)

Row = tuple[int | None, int | None, str]
ZSet = Counter[Row]

ROWS = st.lists(
    st.tuples(
        st.tuples(
            st.one_of(st.none(), st.integers(0, 7)),
            st.one_of(st.none(), st.integers(0, 9)),
            st.sampled_from(["a", "bb"]),
        ),
        st.sampled_from([1, 1, -1, 2]),
    ),
    max_size=70,
)
STEPS = st.lists(ROWS, min_size=1, max_size=12)


def arranged(arrangement: Arrangement, rows: Iterable[tuple[Row, int]]) -> Batch:
    return arrange(Batch.from_rows(SCHEMA, list(rows)), arrangement)


def added(model: ZSet, rows: Iterable[tuple[Row, int]]) -> ZSet:
    out = Counter(model)
    for row, weight in rows:
        out[row] += weight
    return Counter({row: weight for row, weight in out.items() if weight})


def content(spine: Spine) -> ZSet:
    return added(Counter(), (pair for part in spine.parts() for pair in part.to_rows()))


@contextmanager
def hash_bits(bits: int | None) -> Iterator[None]:
    """With few bits, other keys share every hash."""
    with narrow_hash(bits) if bits else nullcontext():
        yield
