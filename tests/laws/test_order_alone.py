"""The equalities for each operator on ordered rows alone, over tables that hold many rows before small changes come."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbsp
from dbsp.zset.hashing import narrow_hash
from tests.laws.families import order
from tests.laws.relation import Relation, base, canonical, recomputed, t, u
from tests.laws.test_equalities import World, act, actions, rows
from tests.pace import examples

KINDS = dict(enumerate(order.extend(st.sampled_from(["t", "t", "u"]).map(base))))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), workers=st.integers(1, 5), bits=st.sampled_from([None, None, None, 0, 2]))
def test_incremental_equals_recomputed(kind: int, data: st.DataObject, workers: int, bits: int | None) -> None:
    relation: Relation = data.draw(KINDS[kind])
    loaded: list[dict[str, Any]] = data.draw(st.lists(rows, min_size=8, max_size=30))
    history: list[tuple[Any, ...]] = data.draw(st.lists(actions, max_size=15))
    circuit = dbsp.circuit("alone", {"v": relation.stream, "t": t, "u": u})
    with (
        nullcontext() if bits is None else narrow_hash(bits=bits),
        dbsp.open(circuit, workers=workers, partitions=2) as run,
    ):
        world = World(run)
        for row in loaded:
            world.insert(row)
        for action in [("step",), *history, ("step",)]:
            if bits is None or action[0] != "rescale":
                act(world, action)
        expected = recomputed(relation.sql, world.tables)
        assert world.seen == expected, relation.operators
        assert Counter({canonical(row): weight for row, weight in run.view("v").batch.to_rows()}) == expected
        assert not run.dead_letters()
