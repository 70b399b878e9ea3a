from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dbsp
from dbsp.operators.order.top_k import TopKOperator
from tests.operators.driver import Driver, Rows, batch, total
from tests.operators.histories import hashed, hashes, histories, keys, quick

SCHEMA = dbsp.Schema.of({"p": dbsp.STRING, "s": dbsp.STRING, "x": dbsp.INT64})
texts = st.sampled_from(["12345678a", "12345678b", "12345678", "z", "", None])
rows = st.tuples(keys, texts, st.sampled_from([None, 1, 2, 3]))


def top(partition: tuple[str, ...], k: int, rank: bool) -> TopKOperator:
    schema = dbsp.Schema((*SCHEMA.columns, dbsp.Column("r", dbsp.INT64, nullable=False))) if rank else SCHEMA
    return TopKOperator(
        input=SCHEMA, partition=partition, order=(dbsp.desc("s"), dbsp.OrderBy("x")), k=k,
        rank="r" if rank else None, schema=schema,
    )  # fmt: skip


def wanted(here: Rows, partition: tuple[str, ...], k: int, rank: bool) -> Rows:
    groups: dict[Any, list[tuple[Any, ...]]] = {}
    for row, weight in here.items():
        groups.setdefault(row[0] if partition else (), []).extend([row] * max(weight, 0))
    found = []
    for group in groups.values():
        group.sort(key=lambda row: (row[2] is None, row[2] or 0))
        group.sort(key=lambda row: (row[0] is None, row[0] or ""))
        group.sort(key=lambda row: (row[2] is None, row[2] or 0))
        group.sort(key=lambda row: row[1] or "", reverse=True)
        group.sort(key=lambda row: row[1] is None)
        found += [((*row, place), 1) if rank else (row, 1) for place, row in enumerate(group[:k], 1)]
    return total(found)


@pytest.mark.parametrize("partition", [("p",), ()])
@pytest.mark.parametrize("rank", [False, True])
@quick
@given(history=histories(rows), k=st.integers(1, 3), bits=hashes)
def test_top_k_is_the_front_of_the_sorted_partition(
    partition: tuple[str, ...], rank: bool, history: list[Any], k: int, bits: int | None
) -> None:
    with hashed(bits):
        driver = Driver(top(partition, k, rank))
        for at, step in enumerate(history):
            driver.step(batch(SCHEMA, step))
            here = total(pair for step in history[: at + 1] for pair in step)
            assert driver.answer == wanted(here, partition, k, rank)


def test_the_next_row_moves_up_when_the_first_is_retracted() -> None:
    driver = Driver(top(("p",), 1, rank=False))
    driver.step(batch(SCHEMA, [(("a", "x", i), 1) for i in range(50)]))
    assert driver.answer == {("a", "x", 0): 1}
    for i in range(49):
        assert driver.step(batch(SCHEMA, [(("a", "x", i), -1)])) == {("a", "x", i): -1, ("a", "x", i + 1): 1}
