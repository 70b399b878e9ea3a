"""Every operator on Spark: one circuit that holds them all gives the bytes of one process, and DuckDB's answers.

Recursion, time with waterlines and user aggregates have files of their own beside this one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import dbsp
from dbsp.circuit.circuit import Circuit
from dbsp.logs import DELETE, INSERT
from tests.laws.circuits import FAMILIES
from tests.laws.families import recursion
from tests.laws.relation import Relation, base, canonical, recomputed, t, u
from tests.laws.test_equalities import FLOATS, INTEGERS, STRINGS
from tests.pace import examples
from tests.spark.pipelines import PARTITIONS, MakeRuntime, Pipeline

pytestmark = pytest.mark.spark

STEPS = 5


def every_operator() -> list[Relation]:
    """Each operator of each family over one of the tables, drawn once and always the same."""
    leaves = st.sampled_from(["t", "u"]).map(base)
    kinds = [kind for family in FAMILIES if family is not recursion for kind in family.extend(leaves)]
    drawn: list[list[Relation]] = []

    @settings(max_examples=examples(16), phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(st.tuples(*kinds))
    def draw(relations: tuple[Relation, ...]) -> None:
        drawn.append(list(relations))

    draw()
    return drawn[-1]


def circuit_of(relations: list[Relation]) -> Circuit:
    views = {f"v{number}": relation.stream for number, relation in enumerate(relations)}
    return dbsp.circuit("everything", {**views, "t": t, "u": u})


@dataclass
class Tables:
    """What the tables hold, and the changes of the next step: the same for every pipeline that is given them."""

    random: Random
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {"t": [], "u": []})

    def change(self, pipelines: list[Pipeline]) -> None:
        """Inserts, replacements and deletes in every partition."""
        for partition in range(PARTITIONS):
            new = [self._row() for _ in range(self.random.randrange(6))]
            gone = [
                self.rows["t"].pop(self.random.randrange(len(self.rows["t"])))
                for _ in range(min(3, len(self.rows["t"])))
            ]
            self.rows["t"] += new
            put = [{"id": 4 * self.random.randrange(4) + partition, **self._row()} for _ in range(3)]
            drop = 4 * self.random.randrange(4) + partition
            for row in put:
                self._forget(row["id"])
                self.rows["u"].append(row)
            self._forget(drop)
            for pipeline in pipelines:
                pipeline.push("t", [tuple(row.values()) for row in new], INSERT, partition)
                pipeline.push("t", [tuple(row.values()) for row in gone], DELETE, partition)
                pipeline.push("u", [tuple(row.values()) for row in put], INSERT, partition)
                pipeline.push("u", [(drop, None, None, None)], DELETE, partition)

    def _row(self) -> dict[str, Any]:
        choice = self.random.choice
        return {"b": choice(STRINGS), "a": choice(INTEGERS), "f": choice(FLOATS)}

    def _forget(self, key: int) -> None:
        self.rows["u"] = [row for row in self.rows["u"] if row["id"] != key]


@pytest.fixture
def pipelines(tmp_path: Path, on_spark: MakeRuntime) -> Iterator[tuple[list[Relation], list[Pipeline]]]:
    relations = every_operator()
    here = Pipeline(tmp_path / "here", circuit=circuit_of(relations))
    there = Pipeline(tmp_path / "there", on_spark, circuit=circuit_of(relations))
    yield relations, [here, there]
    for pipeline in (here, there):
        pipeline.close()


def test_spark_gives_the_same_bytes_and_duckdbs_answers(
    pipelines: tuple[list[Relation], list[Pipeline]],
) -> None:
    relations, (here, there) = pipelines
    tables = Tables(Random(5))
    for step in range(STEPS):
        tables.change([here, there])
        for pipeline in (here, there):
            pipeline.run_step()
            match step:
                case 1:
                    pipeline.checkpoint()
                case 2:
                    pipeline.new_epoch()
                case 3:
                    pipeline.rescale(3)
    assert here.outputs() == there.outputs()
    assert here.views() == there.views()
    for number, relation in enumerate(relations):
        table = there.runtime.read_view(f"v{number}", there.layout)
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        found = Counter({canonical(row[:-1]): row[-1] for row in rows})
        assert found == recomputed(relation.sql, tables.rows), relation.operators
    assert len({name for relation in relations for name in relation.operators}) > len(relations) // 2
