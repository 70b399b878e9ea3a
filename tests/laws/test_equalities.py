"""The five equalities (house style, section 6.2): recomputation, any split, any worker count, restart, rescale."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbsp
from tests.laws.circuits import relations
from tests.laws.relation import Relation, canonical, recomputed, t, u

strings = st.sampled_from(["x", "y", "a longer string than eight", "", None])
integers = st.sampled_from([None, -3, 0, 1, 2, 5, 2**40])
floats = st.sampled_from([None, 0.0, -0.0, 0.25, -1.5, 8.0, float("nan")])
rows = st.fixed_dictionaries({"b": strings, "a": integers, "f": floats})


@dataclass
class World:
    """The tables as a user sees them, beside the run that is fed the same changes."""

    run: Any
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {"t": [], "u": []})
    seen: Counter[tuple[Any, ...]] = field(default_factory=Counter)

    def insert(self, row: dict[str, Any]) -> None:
        self.tables["t"].append(row)
        self.run.push("t", [row])

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


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(relations(), st.lists(actions, max_size=25), st.integers(1, 5))
def test_incremental_equals_recomputed(relation: Relation, history: list[tuple[Any, ...]], workers: int) -> None:
    circuit = dbsp.circuit("generated", {"v": relation.stream, "t": t, "u": u})
    with dbsp.open(circuit, workers=workers, partitions=2) as run:
        world = World(run)
        for action in [*history, ("step",)]:
            act(world, action)
        expected = recomputed(relation.sql, world.tables)
        assert world.seen == expected, relation.operators
        view = Counter({canonical(row): weight for row, weight in run.view("v").batch.to_rows()})
        assert view == expected
        assert not run.dead_letters()
