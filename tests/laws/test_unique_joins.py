"""A join on the primary key of an append-only table keeps only the rows that wait for a key: the answers stay the join's.

For all histories in which rows of the other side come and go, and rows of the keyed table come, some with a key that was there:
the answer is DuckDB's over the first row of each key, whatever the steps, the workers, the restarts and the rescales. Every row
that is refused is a dead letter, and what is kept of the other side is what waits.
"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbsp
from dbsp.distribute.names import STRATEGIES
from dbsp.errors import ConfigError
from dbsp.operators.joins.unique_join import UniqueJoin
from dbsp.operators.keep_first import REASON
from dbsp.plan.nodes import PlanNode
from dbsp.zset.batch import Batch
from dbsp.zset.hashing import narrow_hash
from tests.laws.relation import oracle
from tests.laws.tally import tallied
from tests.pace import examples

FULL_HASH = 64
MANY = {"k": dbsp.STRING, "n": dbsp.INT64, "x": dbsp.INT64}
ONE = {"k": dbsp.STRING, "n": dbsp.INT64, "c": dbsp.INT64, "y": dbsp.STRING}
OTHER = {"c": dbsp.INT64, "z": dbsp.INT64}
TABLES = {"many": MANY, "one": ONE, "other": OTHER}
many = dbsp.table("many", MANY)
one = dbsp.table("one", ONE, primary_key=["n", "k"], append_only=True)
other = dbsp.table("other", OTHER, primary_key="c", append_only=True)
some = one.filter(dbsp.col("c") > 0)
VIEWS: dict[str, tuple[Any, str]] = {
    "whole": (
        many.join(one, on=["n", "k"]).select("k", "n", "x", "c", "y"),
        "select m.k, m.n, x, c, y from many m join one o on m.k = o.k and m.n = o.n",
    ),
    "filtered": (
        many.join(some, on=["n", "k"]).select("x", "y"),
        "select x, y from many m join one o on m.k = o.k and m.n = o.n where c > 0",
    ),
    "left_and_renamed": (
        some.select("c", a="k", b="n").join(many, left_on=["b", "a"], right_on=["n", "k"]).select("a", "x", "c"),
        "select m.k as a, x, c from many m join one o on m.k = o.k and m.n = o.n where c > 0",
    ),
    "a_segment_later": (
        some.join(other.filter(dbsp.col("z") > 0), on="c").select("k", "n", "c", "z"),
        "select k, n, o.c, z from one o join other using (c) where o.c > 0 and z > 0",
    ),
    "after_each_other": (
        many.join(one, on=["n", "k"]).join(other, on="c").select("x", "z"),
        "select x, z from many m join one o on m.k = o.k and m.n = o.n join other using (c)",
    ),
    "with_itself": (
        one.join(some, on=["n", "k"]).select("k", y="y_right"),
        "select k, y from one where c > 0",
    ),
}  # fmt: skip
CIRCUIT = dbsp.circuit("unique", {name: stream for name, (stream, _) in VIEWS.items()})


@dataclass
class World:
    """The tables as they should be, beside runs that are fed the same."""

    runs: list[Any]
    tables: dict[str, list[tuple[Any, ...]]] = field(default_factory=lambda: {name: [] for name in TABLES})
    refused: int = 0
    seen: dict[str, Counter[Any]] = field(default_factory=lambda: {name: Counter() for name in VIEWS})

    def push(self, table: str, row: tuple[Any, ...]) -> None:
        keys = {"one": row[:2], "other": row[:1]}.get(table)
        if keys is not None and any(row[: len(keys)] == keys for row in self.tables[table]):
            self.refused += 1
        else:
            self.tables[table].append(row)
        for run in self.runs:
            run.push(table, [dict(zip(TABLES[table], row, strict=True))])

    def remove(self, random: Random) -> None:
        if self.tables["many"]:
            row = self.tables["many"].pop(random.randrange(len(self.tables["many"])))
            for run in self.runs:
                run.delete("many", [dict(zip(MANY, row, strict=True))])

    def step(self) -> None:
        made = [
            {name: Counter(dict(run_rows(output, name))) for name in VIEWS} for output in (r.step() for r in self.runs)
        ]
        assert all(each == made[0] for each in made)
        for name, change in made[0].items():
            for row, weight in change.items():
                self.seen[name][row] += weight

    def check(self) -> None:
        connection = oracle()
        for name, columns in TABLES.items():
            schema = pa.schema(list(columns.items()))
            rows = pa.Table.from_pylist(
                [dict(zip(columns, row, strict=True)) for row in self.tables[name]], schema=schema
            )
            connection.register(f"{name}_rows", rows)
            connection.execute(f"create or replace table {name} as select * from {name}_rows")
        for name, (_, sql) in VIEWS.items():
            expected = Counter(connection.sql(sql).fetchall())
            assert {row: weight for row, weight in self.seen[name].items() if weight} == expected, name
            for run in self.runs:
                assert Counter(dict(run.view(name).batch.to_rows())) == expected, name
        for run in self.runs:
            letters = run.dead_letters()
            assert sum(letter.weight for letter in letters) == self.refused
            assert {letter.reason for letter in letters} <= {REASON}


def run_rows(output: Any, name: str) -> list[Any]:
    """A step's change of a view."""
    return list(output[name].batch.to_rows())


def play(seed: int, steps: int, workers: int) -> None:
    """Random rows over few keys; checkpoints, restarts and rescales of every kind between the steps."""
    random = Random(seed)
    with dbsp.open(CIRCUIT, workers=workers) as run, dbsp.open(CIRCUIT) as still:
        world = World([run, still])
        for _ in range(steps):
            for _ in range(random.randrange(12)):
                k, n = random.choice(("a", "", "a longer key")), random.randrange(4)
                if random.random() < 0.5:
                    world.push("many", (random.choice((k, k, None)), random.choice((n, n, None)), random.randrange(2)))
                elif random.random() < 0.4:
                    world.push("one", (k, n, random.choice((None, -1, 1, 2)), random.choice(("p", None))))
                elif random.random() < 0.5:
                    world.push("other", (random.randrange(-1, 4), random.randrange(2)))
                else:
                    world.remove(random)
            interrupt(run, random)
            world.step()
        while run.rescaling:
            world.step()
        world.check()


def interrupt(run: Any, random: Random) -> None:
    """Something that is no step of the circuit."""
    chance = random.random()
    if chance < 0.15:
        run.checkpoint()
    elif chance < 0.3:
        run.restart()
    elif chance < 0.4 and run.rescaling:
        with suppress(ConfigError):  # not begun
            run.cancel_rescale()
    elif chance < 0.6 and not run.rescaling:
        run.rescale(random.randint(1, 4))
    elif chance < 0.8 and not run.rescaling:
        run.begin_rescale(random.randint(1, 4), random.choice(STRATEGIES), keys_per_step=random.choice((1, 2, 1000)))


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32), st.integers(1, 10), st.integers(1, 4), st.sampled_from([FULL_HASH, FULL_HASH, 2, 0]))
def test_the_answer_is_the_joins(seed: int, steps: int, workers: int, bits: int) -> None:
    with narrow_hash(bits) if bits < FULL_HASH else nullcontext():
        play(seed, steps, workers)


def joins() -> list[PlanNode]:
    """The unique joins of the circuit."""
    with dbsp.open(CIRCUIT) as run:
        return [node for node in run.plan.nodes if isinstance(node.operator, UniqueJoin)]


def test_every_view_has_a_unique_join() -> None:
    assert len(joins()) == len(VIEWS)  # one has two, and shares one of them


def replayed() -> None:
    for seed in range(12):
        play(seed, 8, 2)


def test_the_histories_meet_changes_retractions_and_answers_that_vanish() -> None:
    with tallied() as tally:
        replayed()
    assert all(vars(tally.of["UniqueJoin"]).values())
    assert tally.of["KeepFirst"].changes  # of an append-only table nothing is taken back


def forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows whose key is not there yet are not kept."""
    honest = UniqueJoin._met
    monkeypatch.setattr(UniqueJoin, "_met", lambda *given: (honest(*given)[0], Batch.empty(given[1].schema)))


def blind_to_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that come in the step of their partner do not see it."""
    honest = UniqueJoin._met

    def early(self: Any, rows: Batch, unique: Any, keys: Any) -> Any:
        bare = [type(s)(s.arrangement, s.state, s._chunks) for s in (unique, keys)]
        return honest(self, rows, *bare)

    monkeypatch.setattr(UniqueJoin, "_met", early)


@pytest.mark.parametrize("plant", [forgets, blind_to_the_step])
def test_a_planted_bug_is_found(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    replayed()
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        replayed()
