"""The fifth equality, hot: any generated circuit while the state of its keys moves, N keys per step, strategy by strategy.

Every step gives what the same step gives in a run that never changes its workers (invariant 9), which the other equalities
compare with DuckDB. Migrations are begun, turned round, cut by checkpoints and replayed after restarts, at any step.
"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext, suppress
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import dbsp
from dbsp.distribute.names import STRATEGIES
from dbsp.errors import ConfigError
from dbsp.zset.hashing import narrow_hash
from tests.laws.circuits import each_on_top
from tests.laws.relation import Relation, canonical, p, t, u
from tests.laws.test_equalities import FULL_HASH, World, act, storm
from tests.pace import some

EXAMPLES = len(STRATEGIES)
"""The first example that Hypothesis draws is the simplest one, of every operator."""
CASES = [(kind, number) for kind in (("t", "u"), ("p",)) for number in range(len(each_on_top(kind)))]


def rows_of(output: Any) -> Counter[Any]:
    """What a step changed in the view."""
    return Counter({canonical(row): weight for row, weight in output["v"].batch.to_rows()})


def play(relation: Relation, history: list[tuple[Any, ...]], seed: int, strategy: str) -> None:
    """Play the history on a run that migrates all the time, and on one that never does."""
    random = Random(seed)
    circuit = dbsp.circuit("generated", {"v": relation.stream, "t": t, "u": u, "p": p})
    with (
        dbsp.open(circuit, workers=random.randint(1, 3), partitions=2) as run,
        dbsp.open(circuit, partitions=2) as still,
    ):
        world, beside = World(run), World(still)
        for action in [*history, ("step",)]:
            if action[0] in ("rescale", "restart", "checkpoint"):
                interrupt(run, random, strategy)
                continue
            if action[0] == "step":
                interrupt(run, random, strategy)
                assert rows_of(run.step()) == rows_of(still.step()), relation.operators
                continue
            act(world, action)
            act(beside, action)
        while run.rescaling:
            assert rows_of(run.step()) == rows_of(still.step()), relation.operators
        views = [
            Counter({canonical(row): weight for row, weight in one.view("v").batch.to_rows()}) for one in (run, still)
        ]
        assert views[0] == views[1], relation.operators
        assert not run.dead_letters()


def interrupt(run: Any, random: Random, strategy: str) -> None:
    """Something that is no step of the circuit: begin, turn round, cut, crash."""
    chance = random.random()
    if chance < 0.15:
        run.checkpoint()
    elif chance < 0.3:
        run.restart()
    elif chance < 0.4 and run.rescaling:
        with suppress(ConfigError):  # not begun
            run.cancel_rescale()
    elif not run.rescaling:
        run.begin_rescale(random.randint(1, 5), strategy, keys_per_step=random.choice((1, 1, 2, 1000)))


@pytest.mark.parametrize(("kind", "number"), some(CASES, 5))
def test_any_circuit_while_keys_move(kind: tuple[str, ...], number: int) -> None:
    """Each operator by each strategy: the simplest circuit and history (seed 0) by one of them, drawn ones by the other."""

    @settings(
        max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate],  # a history has no smaller one that fails alike
    )  # fmt: skip
    @given(
        each_on_top(kind)[number], st.integers(0, 2**32), st.integers(2, 5), st.sampled_from([FULL_HASH, FULL_HASH, 2])
    )
    def moving(relation: Relation, seed: int, steps: int, bits: int) -> None:
        with narrow_hash(bits) if bits < FULL_HASH else nullcontext():
            play(relation, storm(seed, steps), seed, STRATEGIES[(number + (seed > 0)) % 2])

    moving()
