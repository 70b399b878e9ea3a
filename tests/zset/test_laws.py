"""The laws of Z-sets: a commutative group, one canonical form per arrangement, and no answer that depends on a hash."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp.zset.batch import Batch, arrange, concat, consolidate, keys_of, keys_once
from dbsp.zset.encoding import encode
from dbsp.zset.hashing import narrow_hash
from dbsp.zset.merge import merge
from dbsp.zset.order import sort_columns
from dbsp.zset.schema import Arrangement
from tests.pace import examples
from tests.zset.strategies import arrangements, batches, contents

QUICK = settings(max_examples=examples(100), deadline=None)


@st.composite
def several(draw: st.DrawFn, count: int, weights: int = 1) -> tuple[Arrangement, list[Batch]]:
    """An arrangement and loose batches of its schema."""
    arrangement = draw(arrangements(weights))
    return arrangement, [draw(batches(arrangement.schema, weights)) for _ in range(count)]


def hashes(bits: int | None):
    """Full hashes, or only so many bits."""
    return nullcontext() if bits is None else narrow_hash(bits)


def check_invariants(batch: Batch) -> None:
    """Invariants 1 to 3 of an arranged batch."""
    words = [word for word in batch.words if word is not None]
    order = np.lexsort(words[::-1])
    assert (order == np.arange(len(batch))).all()
    assert batch.weights.any(axis=1).all()
    assert len(contents(batch)) == len(batch)
    run = np.zeros(len(batch), np.int64)
    for word in words:
        run[1:] |= word[1:] != word[:-1]
    assert (sort_columns(batch.columns, np.cumsum(run)) == np.arange(len(batch))).all()
    assert (batch.key_hash == keys_of(batch, batch.arrangement.key)).all()


@pytest.mark.parametrize("bits", [None, 3, 0])
@QUICK
@given(data=st.data())
def test_keys_once_are_the_arranged_keys(bits: int | None, data: st.DataObject) -> None:
    """The keys of an arranged batch, each once, are those of its key columns, whatever collides."""
    with hashes(bits):
        arrangement, (loose,) = data.draw(several(1))
        batch = arrange(loose, arrangement)
        keys = keys_once(batch)
        check_invariants(keys)
        names = arrangement.key
        by_key = Arrangement(schema=batch.schema.select(names), key=names)
        every = arrange(batch.project(names).with_weights(np.ones(len(batch), np.int64)), by_key)
        ones = np.ones((len(every), 1), np.int64)
        assert encode(keys.but(weights=ones)) == encode(every.but(weights=ones))


@pytest.mark.parametrize("bits", [None, 3, 0])
@QUICK
@given(data=st.data())
def test_arranging_keeps_the_z_set(bits: int | None, data: st.DataObject) -> None:
    """Arranging changes neither rows nor weights, whatever collides."""
    with hashes(bits):
        arrangement, (loose,) = data.draw(several(1))
        arranged = arrange(loose, arrangement)
        assert contents(arranged) == contents(loose)
        check_invariants(arranged)
        assert encode(arrange(arranged.loose(), arrangement)) == encode(arranged)


@pytest.mark.parametrize("bits", [None, 3, 0])
@QUICK
@given(data=st.data())
def test_merging_is_arranging_the_sum(bits: int | None, data: st.DataObject) -> None:
    """merge(a, b) = merge(b, a) = arrange(a + b), to the byte."""
    with hashes(bits):
        arrangement, (a, b) = data.draw(several(2))
        left, right = arrange(a, arrangement), arrange(b, arrangement)
        merged = merge(left, right)
        check_invariants(merged)
        assert encode(merged) == encode(merge(right, left)) == encode(arrange(concat([b, a]), arrangement))


@QUICK
@given(data=st.data())
def test_the_group(data: st.DataObject) -> None:
    """Associative, neutral element, inverse."""
    arrangement, loose = data.draw(several(3))
    a, b, c = (arrange(each, arrangement) for each in loose)
    zero = arrange(Batch.empty(arrangement.schema), arrangement)
    assert encode(merge(merge(a, b), c)) == encode(merge(a, merge(b, c)))
    assert encode(merge(a, zero)) == encode(a) == encode(merge(zero, a))
    assert len(merge(a, a.negate())) == 0


@QUICK
@given(data=st.data())
def test_vectors_of_weights(data: st.DataObject) -> None:
    """A row leaves only when all its weights are zero."""
    arrangement, (a, b) = data.draw(several(2, weights=3))
    merged = merge(arrange(a, arrangement), arrange(b, arrangement))
    check_invariants(merged)
    assert contents(merged) == contents(concat([a, b]))


@QUICK
@given(data=st.data())
def test_slices_and_filters_stay_arranged(data: st.DataObject) -> None:
    """A slice and a filter of an arranged batch are arranged; slices add up to the whole."""
    arrangement, (loose,) = data.draw(several(1))
    whole = arrange(loose, arrangement)
    cut = data.draw(st.integers(0, len(whole)))
    left, right = whole.slice(0, cut), whole.slice(cut, len(whole))
    check_invariants(left)
    assert encode(merge(left, right)) == encode(whole)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(whole), max_size=len(whole))), np.bool_)
    kept, dropped = whole.filter(mask), whole.filter(~mask)
    check_invariants(kept)
    assert encode(merge(kept, dropped)) == encode(whole)


@QUICK
@given(data=st.data())
def test_consolidation_of_the_whole_row(data: st.DataObject) -> None:
    """`consolidate` holds the same Z-set, each row once."""
    _, (loose,) = data.draw(several(1))
    consolidated = consolidate(loose)
    check_invariants(consolidated)
    assert consolidated.row_hash is None
    assert contents(consolidated) == contents(loose)
