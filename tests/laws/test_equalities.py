"""The five equalities (docs/concepts/circuits.md): recomputation, any split, any worker count, restart, rescale."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbsp
from dbsp.zset.hashing import narrow_hash
from tests.laws.circuits import each_on_top, relations
from tests.laws.relation import Relation, canonical, p, recomputed, t, u
from tests.laws.tally import tallied
from tests.pace import examples, few, some

pytestmark = pytest.mark.timeout(900)

STORMS = examples(5)
APPENDED = examples(4)
FULL_HASH = 64
STRINGS = ["x", "y", "a longer string than eight", "", None]
INTEGERS = [None, -3, 0, 1, 2, 5, 2**40]
FLOATS = [None, 0.0, -0.0, 0.25, -1.5, 8.0, float("nan")]
rows = st.fixed_dictionaries(
    {"b": st.sampled_from(STRINGS), "a": st.sampled_from(INTEGERS), "f": st.sampled_from(FLOATS)}
)


@dataclass
class World:
    """The tables as a user sees them, beside the run that is fed the same changes."""

    run: Any
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {"t": [], "u": [], "p": []})
    seen: Counter[tuple[Any, ...]] = field(default_factory=Counter)

    @property
    def appends(self) -> bool:
        """What the plan says of the view."""
        view = next(view for view in self.run.plan.views if view.name == "v")
        return bool(self.run.plan.nodes[view.node].appends)

    def insert(self, row: dict[str, Any]) -> None:
        self.tables["t"].append(row)
        self.run.push("t", [row])
        self.tables["p"].append(row)
        if any(table.name == "p" for table in self.run.plan.tables):
            self.run.push("p", [row])

    def remove(self, at: int) -> None:
        if self.tables["t"]:
            self.run.delete("t", [self.tables["t"].pop(at % len(self.tables["t"]))])

    def upsert(self, key: int, row: dict[str, Any]) -> None:
        self.forget(key)
        self.tables["u"].append({"id": key, **row})
        self.run.push("u", [{"id": key, **row}], partition=key % 2)

    def drop(self, key: int) -> None:
        self.forget(key)
        self.run.delete("u", [{"id": key}], partition=key % 2)

    def forget(self, key: int) -> None:
        self.tables["u"] = [row for row in self.tables["u"] if row["id"] != key]

    def step(self) -> None:
        for row, weight in self.run.step()["v"].batch.to_rows():
            self.seen[canonical(row)] += weight
            assert weight > 0 or not self.appends, "the plan says that no row goes"
        self.seen = Counter({row: weight for row, weight in self.seen.items() if weight})


actions = st.one_of(
    st.tuples(st.just("insert"), rows),
    st.tuples(st.just("insert"), rows),
    st.tuples(st.just("remove"), st.integers(0, 50)),
    st.tuples(st.just("upsert"), st.integers(0, 4), rows),
    st.tuples(st.just("drop"), st.integers(0, 4)),
    st.tuples(st.just("step")),
    st.tuples(st.just("step")),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("restart")),
    st.tuples(st.just("rescale"), st.integers(1, 5)),
)


def act(world: World, action: tuple[Any, ...]) -> None:
    match action:
        case ("insert", row):
            world.insert(row)
        case ("remove", at):
            world.remove(at)
        case ("upsert", key, row):
            world.upsert(key, row)
        case ("drop", key):
            world.drop(key)
        case ("step",):
            world.step()
        case ("checkpoint",):
            world.run.checkpoint()
        case ("restart",):
            world.run.restart()
        case ("rescale", workers):
            world.run.rescale(workers)


def compare(relation: Relation, history: list[tuple[Any, ...]], workers: int) -> None:
    """Play the history; outputs summed up, and the view, are what DuckDB computes of the tables at the end."""
    circuit = dbsp.circuit("generated", {"v": relation.stream, "t": t, "u": u, "p": p})
    with dbsp.open(circuit, workers=workers, partitions=2) as run:
        world = World(run)
        for action in [*history, ("step",)]:
            act(world, action)
        expected = recomputed(relation.sql, world.tables)
        assert world.seen == expected, relation.operators
        view = Counter({canonical(row): weight for row, weight in run.view("v").batch.to_rows()})
        assert view == expected
        assert not run.dead_letters()


@settings(max_examples=examples(600), deadline=None, suppress_health_check=list(HealthCheck))
@given(relations(), st.lists(actions, max_size=25), st.integers(1, 5))
def test_incremental_equals_recomputed(relation: Relation, history: list[tuple[Any, ...]], workers: int) -> None:
    """Short histories of any actions, which shrink well."""
    compare(relation, history, workers)


@pytest.mark.parametrize("number", some(range(len(each_on_top(("p",)))), 5))
def test_every_operator_over_an_append_only_table(number: int) -> None:
    """Its input never loses a row, and it may keep less; the answers are the same."""

    @settings(max_examples=APPENDED, deadline=None, suppress_health_check=list(HealthCheck))
    @given(each_on_top(("p",))[number], st.integers(0, 2**32), st.integers(2, 8), st.integers(1, 5),
           st.sampled_from([FULL_HASH, 2]))  # fmt: skip
    def appended(relation: Relation, seed: int, steps: int, workers: int, bits: int) -> None:
        with narrow_hash(bits) if bits < FULL_HASH else nullcontext():
            compare(relation, storm(seed, steps), workers)

    appended()


def storm(seed: int, steps: int) -> list[tuple[Any, ...]]:
    """Many rows in and out in every step, over few values, with a restart or a rescale here and there; last, all rows go."""
    random = Random(seed)
    history: list[tuple[Any, ...]] = []

    def row() -> dict[str, Any]:
        return {"b": random.choice(STRINGS), "a": random.choice(INTEGERS), "f": random.choice(FLOATS)}

    for _ in range(steps):
        for _ in range(random.randrange(8)):
            history.append(("insert", row()))
            history.append(("upsert", random.randrange(6), row()))
        for _ in range(random.randrange(7)):
            history.append(("remove", random.randrange(50)))
            history.append(("drop", random.randrange(6)))
        history.append(("step",))
        history += random.choices(
            [[], [("checkpoint",)], [("restart",)], [("rescale", random.randint(1, 5))]], [6, 1, 1, 1]
        )[0]
    if random.random() < 0.5:
        history += [("remove", 0)] * 99 + [("drop", key) for key in range(6)] + [("step",)]
    return history


ELSEWHERE = {
    "Upsert": ("retractions",),  # deletes come to it as operations
    "Once": ("changes", "retractions", "vanishing"),  # it has no input, and gives one row in the first step
}
EVERYTHING = ("changes", "retractions", "vanishing")
ELSEWHERE["NothingOperator"] = EVERYTHING  # gives no row
ELSEWHERE |= dict.fromkeys(
    ["LookupJoinOperator", "WatermarkOperator", "FinalOperator", "WindowOperator"], EVERYTHING
)  # have tests of their own
ELSEWHERE |= dict.fromkeys(["KeepFirst", "UniqueJoin"], EVERYTHING)  # `test_unique_joins`, which counts what they met
"""What an operator cannot meet in generated circuits, by its nature."""


def test_every_operator_in_storms(capsys: pytest.CaptureFixture[str]) -> None:
    """Each operator on top of a few others, through long histories; and each met changes, retractions, vanishing answers."""
    with tallied() as tally:
        for strategy in each_on_top():

            @settings(max_examples=STORMS, deadline=None, suppress_health_check=list(HealthCheck))
            @given(
                strategy,
                st.integers(0, 2**32),
                st.integers(2, 8),
                st.integers(1, 5),
                st.sampled_from([FULL_HASH, FULL_HASH, 2]),
            )
            def in_storm(relation: Relation, seed: int, steps: int, workers: int, bits: int) -> None:
                with narrow_hash(bits) if bits < FULL_HASH else nullcontext():
                    compare(relation, storm(seed, steps), workers)

            in_storm()
    with capsys.disabled():
        print(f"\n{tally.report()}")
    if few():
        return
    for name, counts in tally.of.items():
        for what, met in vars(counts).items():
            assert met > 0 or what in ELSEWHERE.get(name, ()), f"no generated circuit put {name} through {what}"
