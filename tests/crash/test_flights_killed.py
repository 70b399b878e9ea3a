"""The flights demo on Spark, its whole process group killed at random moments, and run again until it is done.

What must hold: the last run ends by itself with views that equal DuckDB's (its exit code says so), and each step's outputs are,
per worker and to the byte, those of a fault-free replay of the step log from step 0 (golden run, end of the design).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from dbsp.coordinator.build import load_plan
from dbsp.coordinator.config import Config, load_config
from dbsp.io import EmbeddedInputLog, EmbeddedStepLog, read_outputs
from dbsp.layout import initial
from dbsp.logs import StepRecord
from dbsp.plan.plan import Plan
from dbsp.runtime.inprocess import InProcessRuntime
from dbsp.runtime.memory_logs import MemoryOutputLog
from dbsp.runtime.session import MemorySite
from dbsp.runtime.tasks import Work
from dbsp.store import CheckpointId

pytestmark = [pytest.mark.crash, pytest.mark.spark]

ROOT = Path(__file__).parents[2]
WORKERS = 2
END_S = 600


def settings(folder: Path) -> list[str]:
    """Frequent checkpoints, and a step log that keeps everything for the golden run."""
    return [
        f"pipeline.data_dir={folder / 'data'}",
        f"pipeline.workers={WORKERS}",
        "checkpoint.interval_s=1.5",
        "checkpoint.retention_s=1000000",
    ]


def start(folder: Path, changes: int) -> subprocess.Popen[bytes]:
    options = [option for setting in settings(folder) for option in ("--set", setting)]
    command = [sys.executable, "-m", "examples.flights.run", "--changes", str(changes), "--rows-per-batch", "2000"]
    with (folder / "out").open("ab") as out:
        return subprocess.Popen([*command, *options], cwd=ROOT, stdout=out, stderr=out, start_new_session=True)


def killed_after(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether it was still running then, and so was killed, with everything in its process group."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True
    return False


def golden(plan: Plan, config: Config, records: Sequence[StepRecord]) -> dict[int, MemoryOutputLog]:
    """Every step again, from step 0, in memory, in the same layout: the workers' outputs."""
    inputs = EmbeddedInputLog(config.data_dir, plan.tables)
    site = MemorySite(inputs)  # type: ignore[arg-type]
    try:
        runtime = InProcessRuntime(Work(site=site, plan=plan, run="golden"), encode_parcels=False)
        layout = initial(WORKERS)
        empty = CheckpointId(run="golden", epoch=1, step=0, layout_version=0, fingerprint=plan.fingerprint)
        runtime.create(layout.workers, empty)
        runtime.fence(1, layout.workers)
        runtime.open(0, 1, layout)
        for record in records:
            runtime.run_step(record, layout)
    finally:
        inputs.close()
    return site.outputs


def check_outputs(folder: Path) -> int:
    """Compare every (view, step, worker) part; how many steps there were."""
    config = load_config(ROOT / "examples/flights/pipeline.toml", overrides=settings(folder), environment={})
    plan = load_plan(config)
    steps = EmbeddedStepLog(config.data_dir)
    try:
        records = steps.read(0)
    finally:
        steps.close()
    wanted = golden(plan, config, records)
    for view in plan.views:
        found = {(step, worker): table for step, worker, table in read_outputs(config.data_dir, view.name)}
        expected = {
            (step, worker): parts[view.name].to_arrow("weight")
            for worker, log in wanted.items()
            for step, parts in log.parts.items()
            if view.name in parts
        }
        filled = {place for place, table in found.items() if table.num_rows}
        assert filled == set(expected), view.name
        for place, table in expected.items():
            assert same_bytes(found[place], table), (view.name, place)
    return len(records)


def same_bytes(left: pa.Table, right: pa.Table) -> bool:
    """Equal rows in equal order; NaN equals itself, because equality is that of the stored form."""
    return left.to_pydict().__repr__() == right.to_pydict().__repr__()


@pytest.mark.parametrize(
    ("kills", "changes"), [(3, 120_000), pytest.param(20, 600_000, marks=pytest.mark.soak)], ids=["3", "20"]
)
@pytest.mark.timeout(3000)
def test_flights_survive_kills_at_random_moments(tmp_path: Path, kills: int, changes: int) -> None:
    moments = random.Random(13)
    happened = 0
    for _ in range(kills):
        happened += killed_after(start(tmp_path, changes), moments.uniform(6, 22))
    said = (tmp_path / "out").read_text
    last = start(tmp_path, changes)
    assert last.wait(END_S) == 0, said()[-3000:]
    assert "equal DuckDB's recomputation" in " ".join(said().split()), said()[-3000:]
    assert happened >= kills / 2, "the run was over before the kills"
    assert check_outputs(tmp_path) > kills
