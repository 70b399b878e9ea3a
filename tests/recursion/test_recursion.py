"""A recursion equals recomputation from nothing, after any insertions and deletions, however they are divided."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbsp
from dbsp.zset.hashing import narrow_hash
from tests.pace import examples
from tests.recursion.programs import PROGRAMS, Program, edges, marks

node = st.integers(0, 4)
edge = st.tuples(st.just("edge"), node, node, st.integers(1, 4))
mark = st.tuples(st.just("mark"), node)
actions = st.one_of(
    edge,
    mark,
    st.tuples(st.just("unlink"), st.integers(0, 50)),
    st.tuples(st.just("unlink"), st.integers(0, 50)),
    st.tuples(st.just("unmark"), st.integers(0, 50)),
    st.tuples(st.just("step")),
    st.tuples(st.just("step")),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("restart")),
    st.tuples(st.just("rescale"), st.integers(1, 5)),
)


class World:
    """The tables as a user sees them, beside the run that is fed the same changes."""

    def __init__(self, run: Any, program: Program) -> None:
        self.run, self.program = run, program
        self.edges: list[tuple[int, int, int]] = []
        self.marks: list[tuple[int]] = []
        self.seen: dict[str, Counter[Any]] = {name: Counter() for name in program.views}

    def act(self, action: tuple[Any, ...]) -> None:
        match action:
            case ("edge", a, b, w):
                self.edges.append((a, b, w))
                self.run.push("edges", [{"a": a, "b": b, "w": w}])
            case ("mark", a):
                self.marks.append((a,))
                self.run.push("marks", [{"a": a}])
            case ("unlink", at) if self.edges:
                a, b, w = self.edges.pop(at % len(self.edges))
                self.run.delete("edges", [{"a": a, "b": b, "w": w}])
            case ("unmark", at) if self.marks:
                self.run.delete("marks", [{"a": self.marks.pop(at % len(self.marks))[0]}])
            case ("step",):
                self.step()
            case ("checkpoint",):
                self.run.checkpoint()
            case ("restart",):
                self.run.restart()
            case ("rescale", workers):
                self.run.rescale(workers)

    def step(self) -> None:
        changes = self.run.step()
        expected = self.program.expected(self.edges, self.marks)
        for name, seen in self.seen.items():
            seen.update(dict.fromkeys(seen, 0))
            for row, weight in changes[name].batch.to_rows():
                seen[row] += weight
            assert {row: weight for row, weight in seen.items() if weight} == dict.fromkeys(expected[name], 1)
            view = Counter(dict(self.run.view(name).batch.to_rows()))
            assert view == Counter(dict.fromkeys(expected[name], 1))


@pytest.mark.parametrize("program", PROGRAMS, ids=[program.name for program in PROGRAMS])
@settings(max_examples=examples(50), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    graph=st.lists(st.one_of(edge, edge, edge, mark), min_size=8, max_size=16),
    history=st.lists(actions, min_size=4, max_size=20),
    workers=st.integers(1, 5),
)
def test_incremental_equals_recomputed(
    program: Program, graph: list[tuple[Any, ...]], history: list[tuple[Any, ...]], workers: int
) -> None:
    circuit = dbsp.circuit("recursion", {**program.views, "edges_": edges, "marks_": marks})
    with dbsp.open(circuit, workers=workers, partitions=2) as run:
        world = World(run, program)
        for action in [*graph, ("step",), *history, ("step",)]:
            world.act(action)
        assert not run.dead_letters()


NO_MOVES = actions.filter(lambda action: action[0] != "rescale")  # other bits would own other rows


@pytest.mark.parametrize("program", PROGRAMS, ids=[program.name for program in PROGRAMS])
@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    graph=st.lists(st.one_of(edge, edge, edge, mark), min_size=8, max_size=16),
    history=st.lists(NO_MOVES, min_size=4, max_size=12),
    workers=st.integers(1, 3),
    bits=st.integers(0, 3),
)
def test_colliding_hashes_change_nothing(
    program: Program, graph: list[tuple[Any, ...]], history: list[tuple[Any, ...]], workers: int, bits: int
) -> None:
    circuit = dbsp.circuit("narrow", {**program.views, "edges_": edges, "marks_": marks})
    with narrow_hash(bits=bits), dbsp.open(circuit, workers=workers, partitions=2) as run:
        world = World(run, program)
        for action in [*graph, ("step",), *history, ("step",)]:
            world.act(action)
