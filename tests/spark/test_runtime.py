"""Steps on Spark: the bytes of the in-process runtime, whatever happens to the workers."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from dbsp.circuit.load import load_circuit
from dbsp.errors import ConfigError, DataError, FencedError, UnavailableError
from dbsp.runtime.spark.jobs import JobThread
from tests.pace import rotating
from tests.spark.pipelines import MakeRuntime, Open, Pipeline, play, push_some
from tests.spark.wrapped_resources import BrokenInput, DearOutput, KillingResources

pytestmark = pytest.mark.spark


def life(pipeline: Pipeline) -> None:
    """Steps, a checkpoint, a rollback with replay, rescales up, down and up again."""
    play(pipeline, 2)
    pipeline.checkpoint()
    play(pipeline, 2)
    pipeline.new_epoch()
    play(pipeline, 1)
    for workers in (pipeline.workers + 1, pipeline.workers, pipeline.workers + 1):
        pipeline.rescale(workers)
        play(pipeline, 1)


@pytest.mark.parametrize("workers", rotating([2, 3], 2))
def test_the_bytes_are_those_of_one_process(workers: int, on_spark: MakeRuntime, opened: Open, tmp_path: Path) -> None:
    one, other = opened(tmp_path / "a", workers=workers), opened(tmp_path / "b", on_spark, workers=workers)
    life(one)
    life(other)
    assert other.outputs() == one.outputs()
    assert other.views() == one.views()
    assert any(other.outputs()["by_city"].values())


POINTS = ("segment 0 begins", "segment 1 begins", "segment 2 begins", "before writing", "after writing", "all done")
KILLS = [*((point, signal.SIGKILL) for point in POINTS), (POINTS[1], signal.SIGSEGV), (POINTS[3], signal.SIGBUS)]


@pytest.mark.parametrize(("point", "number"), rotating(KILLS, 3))
def test_a_python_worker_killed_in_a_step_changes_nothing(
    point: str, number: signal.Signals, on_spark: MakeRuntime, opened: Open, tmp_path: Path
) -> None:
    one = opened(tmp_path / "a")
    play(one, 3)
    mark = tmp_path / "killed"
    other = opened(
        tmp_path / "b",
        on_spark,
        wrap_resources=lambda resources: KillingResources(resources, mark, point, 1, 1, number=number),
    )
    play(other, 3)
    assert mark.exists()
    assert other.outputs() == one.outputs()
    assert other.views() == one.views()


def test_a_step_that_is_run_again_writes_once(on_spark: MakeRuntime, opened: Open, tmp_path: Path) -> None:
    pipeline = opened(tmp_path, on_spark)
    play(pipeline, 2)
    before, views = pipeline.outputs(), pipeline.views()
    pipeline.run_step(pipeline.records[-1])
    assert pipeline.outputs() == before
    assert pipeline.views() == views


def test_an_error_of_a_task_is_told_as_it_is_and_not_tried_again(
    on_spark: MakeRuntime, opened: Open, tmp_path: Path
) -> None:
    tries = tmp_path / "tries"
    pipeline = opened(tmp_path / "p", on_spark, wrap_resources=lambda resources: BrokenInput(resources, tries))
    push_some(pipeline, 1)
    with pytest.raises(DataError) as caught:
        pipeline.run_step()
    assert caught.value.message.startswith("rows are gone: table=customers step=0")
    assert caught.value.hint == "restore them"
    assert len(tries.read_text()) == 2, "each of the two workers has tried once"


def test_an_older_epoch_is_refused(on_spark: MakeRuntime, opened: Open, tmp_path: Path) -> None:
    pipeline = opened(tmp_path, on_spark)
    play(pipeline, 1)
    pipeline.runtime.fence(9, pipeline.layout.workers)
    pipeline.runtime.epoch = 1  # type: ignore[attr-defined]
    with pytest.raises(FencedError):
        play(pipeline, 1)
    with pytest.raises(FencedError):
        pipeline.checkpoint()
    with pytest.raises(FencedError):
        pipeline.runtime.fence(3, pipeline.layout.workers)


def test_a_checkpoint_takes_no_job_where_workers_are_on_this_host(
    on_spark: MakeRuntime, opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = opened(tmp_path, on_spark)
    play(pipeline, 2)
    jobs: list[str] = []
    monkeypatch.setattr(JobThread, "run", lambda _, what, __: jobs.append(what))
    pipeline.checkpoint()
    version, runtime = pipeline.version + 1, pipeline.runtime
    runtime.pin(version, pipeline.checkpoint_id(), pipeline.layout)
    assert set(runtime.copy(version, pipeline.checkpoint_id(), pipeline.layout).result()) == {0, 1}
    assert runtime.fence(pipeline.epoch, pipeline.layout.workers) == ()
    assert jobs == []
    monkeypatch.undo()
    assert {info.version for info in runtime.versions((0,))[0]} == {1, 2}
    before = pipeline.views()
    pipeline.version += 1
    pipeline.new_epoch()
    assert pipeline.views() == before


def test_a_dear_output_is_left_to_the_workers(on_spark: MakeRuntime, opened: Open, tmp_path: Path) -> None:
    """A log on Kafka that another process opens takes the producer of the one that writes."""
    pipeline = opened(tmp_path, on_spark, wrap_resources=DearOutput)
    assert pipeline.runtime._here is None  # type: ignore[attr-defined]
    play(pipeline, 1)
    pipeline.checkpoint()
    assert [info.version for info in pipeline.runtime.versions((1,))[1]] == [0, 1]


def test_a_step_out_of_order_is_an_outage(on_spark: MakeRuntime, opened: Open, tmp_path: Path) -> None:
    pipeline = opened(tmp_path, on_spark)
    play(pipeline, 1)
    pipeline.step = 5
    with pytest.raises(UnavailableError, match="not held"):
        pipeline.run_step()


def test_versions_and_discard(on_spark: MakeRuntime, opened: Open, tmp_path: Path) -> None:
    pipeline = opened(tmp_path, on_spark)
    play(pipeline, 1)
    pipeline.checkpoint()
    seen = pipeline.runtime.versions([0, 1])
    assert {worker: [info.version for info in found] for worker, found in seen.items()} == {0: [0, 1], 1: [0, 1]}
    pipeline.runtime.discard([1])
    assert not (tmp_path / "workers" / "0001").exists()


def test_a_view_that_is_not_there(on_spark: MakeRuntime, opened: Open, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such view: view=nothing"):
        opened(tmp_path, on_spark).runtime.read_view("nothing", opened(tmp_path / "x").layout)


def test_reports_are_per_worker(on_spark: MakeRuntime, opened: Open, tmp_path: Path) -> None:
    pipeline = opened(tmp_path, on_spark)
    push_some(pipeline, 1)
    report = pipeline.run_step()
    assert [worker.worker for worker in report.workers] == [0, 1]
    assert report.rows_in == sum(range_.last - range_.first for range_ in pipeline.records[0].ranges)
    assert all(worker.nodes for worker in report.workers)


CIRCUIT = """
import dbsp

orders = dbsp.table("orders", {"id": dbsp.INT64, "customer": dbsp.STRING, "amount": dbsp.FLOAT64})
RATE = 3


def tripled(row):
    return {"id": row["id"] * RATE}


sample = dbsp.circuit("sample", {"tripled": orders.map(tripled, schema={"id": dbsp.INT64})})
"""


def test_a_circuit_out_of_a_file_reaches_the_workers(on_spark: MakeRuntime, opened: Open, tmp_path: Path) -> None:
    (tmp_path / "somewhere").mkdir()
    (tmp_path / "somewhere" / "own_circuit.py").write_text(CIRCUIT)
    circuit = load_circuit(f"{tmp_path}/somewhere/own_circuit.py:sample")
    pipeline = opened(tmp_path / "p", on_spark, circuit=circuit)
    pipeline.push("orders", [(7, "ann", 1.0)])
    pipeline.run_step()
    assert pipeline.runtime.read_view("tripled", pipeline.layout).column("id").to_pylist() == [21]
