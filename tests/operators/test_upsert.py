from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import dbsp
from dbsp.operators.source import operations_schema
from dbsp.operators.upsert import Upsert
from tests.operators.driver import Driver, batch, plain
from tests.operators.histories import floats, hashed, hashes, quick

SCHEMA = dbsp.Schema(
    (dbsp.Column("a", dbsp.STRING, False), dbsp.Column("b", dbsp.INT32, False), dbsp.Column("f", dbsp.FLOAT64))
)
UPSERT = Upsert(schema=SCHEMA, key=("a", "b"))
OPERATIONS = operations_schema(SCHEMA, UPSERT.key)
keys = st.tuples(st.sampled_from(["", "k", "a longer key"]), st.integers(0, 1))
operation = st.one_of(
    st.tuples(st.just(0), keys, floats),
    st.tuples(st.just(1), keys, st.none()),
)


@quick
@given(st.lists(st.lists(operation, max_size=8), min_size=1, max_size=5), hashes, st.randoms(use_true_random=False))
def test_the_last_operation_of_a_key_wins(history: list[Any], bits: int | None, random: Any) -> None:
    with hashed(bits):
        driver = Driver(UPSERT)
        table: dict[tuple[str, int], Any] = {}
        for step in history:
            rows = [((*key, value, kind, place), 1) for place, (kind, key, value) in enumerate(step)]
            random.shuffle(rows)
            driver.step(batch(OPERATIONS, rows))
            for kind, key, value in step:
                table.pop(key, None)
                if kind == 0:
                    table[key] = value
            assert driver.answer == {plain((*key, value)): 1 for key, value in table.items()}
            assert driver.stored(0) == driver.answer


def test_the_same_row_again_changes_nothing_and_an_absent_key_is_no_error() -> None:
    driver = Driver(UPSERT)
    insert = batch(OPERATIONS, [(("k", 1, 0.5, 0, 0), 1)])
    assert driver.step(insert) == {("k", 1, 0.5): 1}
    assert driver.step(insert) == {}
    assert driver.step(batch(OPERATIONS, [(("k", 2, None, 1, 0), 1)])) == {}
    assert driver.step(batch(OPERATIONS, [(("k", 1, None, 1, 0), 1), (("k", 1, None, 0, 1), 1)])) == {
        ("k", 1, 0.5): -1,
        ("k", 1, None): 1,
    }
