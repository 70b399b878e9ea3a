"""Keep first and the unique join, step by step: what they give, and what they keep."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import dbsp
from dbsp.operators.joins.join_shape import JoinShape
from dbsp.operators.joins.unique_join import KEYS, UNIQUE, WAITING, UniqueJoin
from dbsp.operators.keep_first import REASON, KeepFirst
from dbsp.operators.source import operations_schema
from tests.operators.driver import Driver, batch
from tests.operators.histories import hashed, hashes, quick

ROW = dbsp.Schema(
    (dbsp.Column("a", dbsp.STRING, False), dbsp.Column("b", dbsp.INT32, False), dbsp.Column("v", dbsp.INT64))
)
FIRST = KeepFirst(schema=ROW, key=("a", "b"))
OPERATIONS = operations_schema(ROW, FIRST.key)
key = st.tuples(st.sampled_from(["", "k", "a longer key"]), st.integers(0, 1))
BID = dbsp.Schema.of({"of": dbsp.STRING, "price": dbsp.INT64})
ITEM = dbsp.Schema((dbsp.Column("id", dbsp.STRING, False), dbsp.Column("v", dbsp.INT64)))
ITEM_KEYS = dbsp.Schema((dbsp.Column("id", dbsp.STRING, False),))
PAIR = dbsp.Schema.of({"of": dbsp.STRING, "price": dbsp.INT64, "v": dbsp.INT64})
JOIN = UniqueJoin(
    shape=JoinShape(
        left=BID, right=ITEM, left_on=("of",), right_on=("id",),
        columns=((0, "of", "of"), (0, "price", "price"), (1, "v", "v")), schema=PAIR,
    ),
    unique=1,
    keys=ITEM_KEYS,
)  # fmt: skip
names = st.sampled_from(["", "k", "a longer key"])


@quick
@given(st.lists(st.lists(st.tuples(key, st.integers(0, 2)), max_size=6), max_size=5), hashes,
       st.randoms(use_true_random=False))  # fmt: skip
def test_the_first_row_of_a_key_stays(history: list[Any], bits: int | None, random: Any) -> None:
    with hashed(bits):
        driver, table, refused = Driver(FIRST), dict[tuple[str, int], int](), 0
        for step in history:
            rows = [((*of, value, 0, place), 1) for place, (of, value) in enumerate(step)]
            random.shuffle(rows)
            driver.step(batch(OPERATIONS, rows))
            for of, value in step:
                refused += of in table
                table.setdefault(of, value)
            assert driver.answer == {(*of, value): 1 for of, value in table.items()}
            assert driver.stored(0) == dict.fromkeys(table, 1)
            assert sum(weight for _, _, weight in driver.dead) == refused
            assert {reason for _, reason, _ in driver.dead} <= {REASON}


def test_a_refused_row_is_shown_whole() -> None:
    driver = Driver(FIRST)
    driver.step(batch(OPERATIONS, [(("k", 1, 5, 0, 0), 1), (("k", 1, 6, 0, 1), 1)]))
    assert driver.dead == [('{"a": "k", "b": 1, "v": 6}', REASON, 1)]


@quick
@given(
    st.lists(st.tuples(st.lists(st.tuples(st.none() | names, st.integers(0, 1)), max_size=6),
                       st.lists(st.integers(0, 99), max_size=2), st.sets(names)), max_size=6),
    st.sets(names), hashes,
)  # fmt: skip
def test_it_gives_the_joins_pairs_and_keeps_what_waits(history: list[Any], fall: set[str], bits: int | None) -> None:
    """Bids come and go, items come once; those that `fall` are known by their key alone."""
    with hashed(bits):
        driver, bids, items = Driver(JOIN), list[tuple[Any, int]](), dict[str, int]()
        for number, (come, go, fresh) in enumerate(history):
            gone = [bids.pop(at % len(bids)) for at in go if bids]
            bids += come
            new = {name: number for name in sorted(fresh) if name not in items}
            items |= new
            there = {name: value for name, value in new.items() if name not in fall}
            driver.step(
                batch(BID, [(bid, 1) for bid in come] + [(bid, -1) for bid in gone]),
                batch(ITEM, [((name, value), 1) for name, value in there.items()]),
                batch(ITEM_KEYS, [((name,), 1) for name in new]),
            )
            pairs = [(of, price, items[of]) for of, price in bids if of in items and of not in fall]
            assert driver.answer == Counter(pairs)
            assert driver.stored(WAITING) == Counter((of, p) for of, p in bids if of is not None and of not in items)
            assert driver.stored(UNIQUE) == {(name, value): 1 for name, value in items.items() if name not in fall}
            assert driver.stored(KEYS) == {(name,): 1 for name in items}
