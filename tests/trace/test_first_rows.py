"""The first rows of long groups, before and with a change that takes the front away, against sorted rows of the model."""

from __future__ import annotations

from collections import Counter
from random import Random

import hypothesis.strategies as st
import numpy as np
from hypothesis import HealthCheck, given, settings
from traces import SCHEMA, Row, ZSet, added, arranged, hash_bits

from dbsp.trace.chunks import MemoryChunks
from dbsp.trace.first_rows import FirstRows
from dbsp.trace.manifest import SpineState
from dbsp.trace.spine import Spine, append
from dbsp.zset.batch import Batch, arrange, keys_once
from dbsp.zset.schema import Arrangement, OrderBy
from tests.pace import examples

PACE = settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.too_slow])
LONG = Arrangement(schema=SCHEMA, key=("k", "s"), order=(OrderBy("t"),))
TIED = Arrangement(schema=SCHEMA, key=("k",), order=(OrderBy("t"),))


def grown(random: Random, arrangement: Arrangement, chunks: MemoryChunks) -> tuple[SpineState, ZSet]:
    """A few long groups in several runs, the newer ones with retractions of what the older ones hold first."""
    state, model = SpineState(), Counter[Row]()
    for _ in range(random.randint(1, 5)):
        rows = [
            ((random.randrange(3), random.randrange(40), random.choice("ab")), 1) for _ in range(random.randint(1, 80))
        ]
        rows += front(random, model)
        state = append(state, arranged(arrangement, rows), arrangement, chunks, random.choice([0, 3, None]))
        model = added(model, rows)
    return state, model


def front(random: Random, model: ZSet) -> list[tuple[Row, int]]:
    """Retractions of most of the first rows that are there."""
    there = sorted(row for row, weight in model.items() if weight > 0)
    first = sorted(there, key=lambda row: row[1] or 0)[: random.randrange(30)]
    return [(row, -model[row]) for row in first if random.random() < 0.9]


def first_of(rows: ZSet, key: tuple[object, ...], names: tuple[str, ...], k: int, backwards: bool) -> dict[Row, int]:
    """The rows of a key up to those that tie with the k-th of positive weight."""
    sign, places = -1 if backwards else 1, [SCHEMA.index(name) for name in names]
    mine = {row: weight for row, weight in rows.items() if tuple(row[at] for at in places) == key}
    positive = sorted(sign * (row[1] or 0) for row, weight in mine.items() if weight > 0)
    return {row: w for row, w in mine.items() if len(positive) < k or sign * (row[1] or 0) <= positive[k - 1]}


@PACE
@given(
    st.integers(0, 1 << 30),
    st.sampled_from([LONG, TIED]),
    st.sampled_from([None, None, 1, 3]),
    st.sampled_from([400, 1 << 20]),
    st.integers(1, 4),
    st.booleans(),
)
def test_first_rows_before_and_with_a_change(
    seed: int, arrangement: Arrangement, bits: int | None, chunk_bytes: int, k: int, backwards: bool
) -> None:
    """The last ones, too, from the last one on."""
    random, chunks = Random(seed), MemoryChunks(chunk_bytes)
    with hash_bits(bits):
        state, model = grown(random, arrangement, chunks)
        change = [*front(random, model), *(((key, random.randrange(40), "a"), 1) for key in range(random.randrange(5)))]
        delta = arranged(arrangement, change)
        if not len(delta):
            return
        keys = keys_once(delta)
        first_rows = Spine(arrangement, state, chunks).first_rows_twice(
            keys.words[0], k, keys, delta, backwards=backwards
        )
        places = list(zip(first_rows.query.tolist(), first_rows.code.tolist(), strict=True))
        assert places == sorted(places, key=lambda place: (place[0], -place[1] if backwards else place[1]))
        sides = (first_rows.before, model), (first_rows.after, added(model, change))
        for weights, rows in sides:
            query, found = first_rows.side(weights)
            assert found.words[0].tolist() == first_rows.key_hash[query].tolist()
            for at, (key, _) in enumerate(keys.to_rows()):
                got = dict(found.take(np.flatnonzero(query == at)).to_rows())
                wanted = first_of(rows, key, arrangement.key, k, backwards)
                assert wanted.items() <= got.items()
                assert got.items() <= {row: w for row, w in rows.items() if w}.items()
        if not backwards:
            check_change(first_rows, arrangement)


def check_change(first_rows: FirstRows, arrangement: Arrangement) -> None:
    """What changed comes as if it were arranged anew."""
    moved = first_rows.changed(first_rows.after - first_rows.before)
    again = arrange(Batch.from_rows(SCHEMA, moved.to_rows()), arrangement)
    assert moved.arrangement == arrangement
    assert moved.to_rows() == again.to_rows()
    for ours, theirs in zip(moved.words, again.words, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None and theirs is not None:
            assert ours.tolist() == theirs.tolist()
