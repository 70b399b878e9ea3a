"""Rows that may be the first of their key: the first in each order stays, however rows are cut between workers."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp.operators.groups.leading import leading
from dbsp.zset.batch import Batch, concat
from dbsp.zset.batch_rows import sort_rows
from dbsp.zset.hashing import narrow_hash
from dbsp.zset.schema import FLOAT64, INT64, STRING, OrderBy, Schema

FULL_HASH = 64
SCHEMA = Schema.of({"k": STRING, "n": INT64, "x": INT64, "s": STRING, "f": FLOAT64})
texts = st.none() | st.sampled_from(["", "a", "aaaaaaaab", "aaaaaaaac", "b"])
rows = st.tuples(
    texts,
    st.none() | st.integers(0, 2),
    st.none() | st.integers(-3, 3) | st.sampled_from([-(2**63), 2**63 - 1]),
    texts,
    st.none() | st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("-inf")]),
)
orders = st.lists(
    st.builds(OrderBy, st.sampled_from(["x", "s", "f"]), st.booleans(), st.booleans()), min_size=1, max_size=3
)


def firsts(batch: Batch, key: list[str], by: OrderBy) -> dict[str, str]:
    """Of each key the first row, as text (NaN is not equal to itself)."""
    found: dict[str, str] = {}
    values = batch.to_rows()
    for at in sort_rows(batch, (by,)):
        row = dict(zip(SCHEMA.names, values[at][0], strict=True))
        found.setdefault(str([row[name] for name in key]), str(row))
    return found


@given(
    st.lists(st.tuples(rows, st.integers(1, 3)), max_size=40),
    orders,
    st.sampled_from([[], ["k"], ["n"], ["k", "n"]]),
    st.sampled_from([FULL_HASH, 1]),
    st.integers(0, 40),
)
def test_the_first_row_of_every_key_stays(made: list, by: list[OrderBy], key: list[str], bits: int, cut: int) -> None:
    with narrow_hash(bits) if bits < FULL_HASH else nullcontext():
        whole = Batch.from_rows(SCHEMA, made)
        parts = [leading(Batch.from_rows(SCHEMA, part), key, by) for part in (made[:cut], made[cut:])]
        kept = concat(parts, SCHEMA)
        for each in by:
            assert firsts(kept, key, each) == firsts(whole, key, each)
        assert len(kept) <= len(whole)


def test_one_row_of_each_key_is_left_where_values_differ() -> None:
    batch = Batch.from_rows(SCHEMA, [((k, n, x, "", 0.0), 1) for x in range(50) for k in "ab" for n in range(3)])
    assert len(leading(batch, ["k", "n"], [OrderBy("x")])) == 6
    assert len(leading(batch, ["k", "n"], [OrderBy("x"), OrderBy("x", descending=True)])) == 12


@pytest.mark.parametrize("weight", [-1, 0])
def test_where_a_row_goes_all_stay(weight: int) -> None:
    batch = Batch.from_rows(SCHEMA, [(("a", 1, 1, "", 0.0), 1), (("a", 1, 2, "", 0.0), weight)])
    assert leading(batch, ["k"], [OrderBy("x")]).to_rows() == batch.to_rows()


@pytest.mark.parametrize("nulls_first", [False, True])
def test_both_ends_of_many_rows_of_few_keys(nulls_first: bool) -> None:
    """Groups that are numbered; of nulls the other end is where the reverse order has them."""
    made = [((f"{n % 5}", n % 3, None if n % 7 == 0 else n * n % 101, "", 0.0), 1) for n in range(3000)]
    batch, by = Batch.from_rows(SCHEMA, made), [OrderBy("x"), OrderBy("x", True, nulls_first)]
    kept = leading(batch, ["k", "n"], by)
    assert len(kept) < len(batch) // 5
    for each in by:
        assert firsts(kept, ["k", "n"], each) == firsts(batch, ["k", "n"], each)
