"""The equalities for each aggregate alone, so that every one is met often."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbsp
from dbsp.zset.hashing import narrow_hash
from tests.laws.families import groups
from tests.laws.relation import Relation, base, canonical, recomputed, t, u
from tests.laws.tally import tallied
from tests.laws.test_equalities import World, act, actions, compare, storm
from tests.pace import examples, few, some

ALONE = [
    *(groups.varied(base("t"), of, less) for of in ("integers", "floats") for less in ("n", "(n - 1)")),
    *(groups.paired(base("t"), function) for function in groups.PAIRS),
    *(groups.bitwise(base("t"), function) for function in ("and", "or", "xor")),
    *(groups.quantiles(base("t"), fraction) for fraction in (0, 0.25, 0.5, 1)),
    *(groups.grouping_sets(base("t"), kind) for kind in ("rollup", "cube", "sets")),
    *(groups.by_user(base("t"), fold) for fold in (False, True)),
    *(
        make(base(table))
        for table in ("t", "u")
        for make in (groups.whole, groups.logical, groups.arg_extremes, groups.first_last, groups.middles, groups.modes,
                     groups.joined_texts, groups.different_texts, groups.pivoted, groups.grouped, groups.extremes, groups.ends,
                     groups.distinct_filtered, groups.sums_of_different)
    ),
]  # fmt: skip


@pytest.mark.parametrize("relation", some(ALONE, 3), ids=lambda r: "-".join(r.operators))
@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(history=st.lists(actions, max_size=25), workers=st.integers(1, 3))
def test_incremental_equals_recomputed(relation: Relation, history: list[tuple[Any, ...]], workers: int) -> None:
    circuit = dbsp.circuit("alone", {"v": relation.stream, "t": t, "u": u})
    with dbsp.open(circuit, workers=workers, partitions=2) as run:
        world = World(run)
        for action in [*history, ("step",)]:
            act(world, action)
        expected = recomputed(relation.sql, world.tables)
        assert world.seen == expected
        assert Counter({canonical(row): weight for row, weight in run.view("v").batch.to_rows()}) == expected


@pytest.mark.parametrize("relation", some(ALONE, 3), ids=lambda r: "-".join(r.operators))
@settings(max_examples=examples(8), deadline=None, suppress_health_check=list(HealthCheck))
@given(history=st.lists(actions, max_size=15), bits=st.integers(0, 3))
def test_with_colliding_hashes(relation: Relation, history: list[tuple[Any, ...]], bits: int) -> None:
    circuit = dbsp.circuit("alone", {"v": relation.stream, "t": t, "u": u})
    with narrow_hash(bits=bits), dbsp.open(circuit, workers=2, partitions=2) as run:
        world = World(run)
        for action in [*history, ("step",)]:
            if action[0] != "rescale":
                act(world, action)
        assert world.seen == recomputed(relation.sql, world.tables)


def test_every_part_in_storms(capsys: pytest.CaptureFixture[str]) -> None:
    """All aggregates through long histories; and each part met changes, retractions, and groups that vanish."""
    with tallied(of_parts=True) as tally:
        for seed, relation in enumerate(some(ALONE)):
            compare(relation, storm(seed, 8), 1 + seed % 3)
    with capsys.disabled():
        print(f"\n{tally.report()}")
    assert tally.of
    if few():
        return
    for name, counts in tally.of.items():
        for what, met in vars(counts).items():
            assert met > 0, f"no history put {name} through {what}"
