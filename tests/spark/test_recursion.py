"""Recursion on Spark: a job per round, or tasks that meet; the bytes of one process, also when a Python worker dies."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import dbsp
from dbsp.circuit.circuit import Circuit
from dbsp.errors import CapacityError, RowsError
from tests.pace import rotating
from tests.spark.pipelines import PARTITIONS, MakeRuntime, Open, Pipeline
from tests.spark.wrapped_resources import LateKillingResources

pytestmark = pytest.mark.spark


@pytest.fixture(params=rotating(["meetings", "shuffles"], 2), autouse=True)
def rounds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How the workers exchange."""
    if request.param == "shuffles":
        monkeypatch.setattr("dbsp.runtime.spark.runtime.meet", lambda *_: False)


def paths_circuit(max_rounds: int = 50) -> Circuit:
    """Paths, and the least node that reaches each one: a join and a min inside, and a group over the answer."""
    edges = dbsp.table("edges", {"a": dbsp.INT64, "b": dbsp.INT64})

    def longer(paths: dbsp.Stream) -> dbsp.Stream:
        return paths.join(edges.rename({"a": "b", "b": "c"}), on="b").select("a", b="c")

    def said(least: dbsp.Stream) -> dbsp.Stream:
        told = least.join(edges, on="a").select(a="b", n="n")
        return edges.select("a", n="a").union(told).group_by("a").aggregate(n=dbsp.min("n"))

    paths = dbsp.recursive(edges, longer, max_rounds=max_rounds)
    least = dbsp.recursive({"least": {"a": dbsp.INT64, "n": dbsp.INT64}}, said, max_rounds=max_rounds)["least"]
    return dbsp.circuit(
        "paths", {"paths": paths, "reach": paths.group_by("a").aggregate(n=dbsp.count()), "least": least}
    )


def change(pipeline: Pipeline, steps: int) -> None:
    """The same edges come and go in the same steps."""
    for _ in range(steps):
        chance = random.Random(f"edges {pipeline.step}")
        new = [(chance.randrange(14), chance.randrange(14)) for _ in range(12)]
        pipeline.push("edges", new, partition=pipeline.step % PARTITIONS)
        pipeline.push("edges", new[:8], operation=1, partition=(pipeline.step + 1) % PARTITIONS)
        pipeline.run_step()


def life(pipeline: Pipeline) -> None:
    """Steps, a checkpoint, a rollback with replay, rescales up and down."""
    change(pipeline, 2)
    pipeline.checkpoint()
    change(pipeline, 1)
    pipeline.new_epoch()
    for workers in (pipeline.workers + 1, pipeline.workers):
        pipeline.rescale(workers)
        change(pipeline, 1)


def test_the_bytes_are_those_of_one_process(on_spark: MakeRuntime, opened: Open, tmp_path: Path) -> None:
    one = opened(tmp_path / "a", circuit=paths_circuit())
    other = opened(tmp_path / "b", on_spark, circuit=paths_circuit())
    life(one)
    life(other)
    assert other.outputs() == one.outputs()
    assert other.views() == one.views()
    assert sum(map(len, other.outputs()["paths"].values()))


def test_too_many_rounds_are_an_error_on_spark_too(on_spark: MakeRuntime, opened: Open, tmp_path: Path) -> None:
    pipeline = opened(tmp_path / "c", on_spark, circuit=paths_circuit(max_rounds=4))
    pipeline.push("edges", [(n, n + 1) for n in range(9)])
    with pytest.raises(CapacityError, match="views=recursive max_rounds=4"):
        pipeline.run_step()


def test_a_python_worker_killed_between_rounds_changes_nothing(
    on_spark: MakeRuntime, opened: Open, tmp_path: Path
) -> None:
    one = opened(tmp_path / "d", circuit=paths_circuit())
    change(one, 3)
    mark = tmp_path / "killed"
    other = opened(
        tmp_path / "e",
        on_spark,
        circuit=paths_circuit(),
        wrap_resources=lambda resources: LateKillingResources(resources, mark, "segment 1 begins", 1, 1, times=6),
    )
    change(other, 3)
    assert mark.exists()
    assert other.outputs() == one.outputs()
    assert other.views() == one.views()


def inverses_circuit() -> Circuit:
    """Rows may fail as they are read, in a recursion, and in the last segment that has operators."""
    table = dbsp.table("t", {"k": dbsp.INT64, "x": dbsp.INT64})
    down = dbsp.recursive(table.select("x"), lambda r: r.filter(12 // dbsp.col("x") > 0).select(x=dbsp.col("x") - 1))
    halves = table.select("k", half=12 // dbsp.col("x"))
    sums = table.group_by("k").aggregate(x=dbsp.sum("x"))
    views = {"halves": halves, "down": down, "sums": sums}
    return dbsp.circuit("inverses", views, materialize=False, error_policy="stop")


def test_stop_judges_rows_over_all_workers_on_spark_too(on_spark: MakeRuntime, opened: Open, tmp_path: Path) -> None:
    """A row that comes through one worker and goes through the other passes; one too many is refused with the same words."""
    one = opened(tmp_path / "d", circuit=inverses_circuit())
    other = opened(tmp_path / "e", on_spark, circuit=inverses_circuit())
    said = []
    for pipeline in (one, other):
        pipeline.push("t", [(1, 0), (2, -3)], partition=0)
        pipeline.push("t", [(1, 0)], operation=1, partition=1)
        pipeline.run_step()
        pipeline.push("t", [(1, 0), (2, 0)], partition=0)
        pipeline.push("t", [(1, 0)], operation=1, partition=1)
        with pytest.raises(RowsError) as caught:
            pipeline.run_step()
        said.append((caught.value.message, caught.value.rows, caught.value.node))
    assert said[0] == said[1]
    assert [sum(map(len, each.outputs()["halves"].values())) for each in (one, other)] == [1, 1]
