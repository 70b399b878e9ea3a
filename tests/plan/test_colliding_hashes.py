"""Whole circuits with hashes of a few bits: collisions may cost time, never a wrong answer."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import dbsp
from dbsp.zset.hashing import narrow_hash
from tests.laws.circuits import relations
from tests.laws.relation import Relation, recomputed, t, u
from tests.laws.test_equalities import World, act, actions
from tests.operators.histories import quick

VIEWS = {"t": t, "u": u}


@quick
@given(relations(), st.lists(actions, max_size=15), st.integers(1, 3), st.integers(0, 3))
def test_incremental_equals_recomputed(relation: Relation, history: list[Any], workers: int, bits: int) -> None:
    with (
        narrow_hash(bits=bits),
        dbsp.open(dbsp.circuit("narrow", VIEWS | {"v": relation.stream}), workers=workers, partitions=2) as run,
    ):
        world = World(run)
        for action in history:
            if action[0] != "rescale":
                act(world, action)
        act(world, ("step",))
        assert world.seen == recomputed(relation.sql, world.tables), relation.operators
