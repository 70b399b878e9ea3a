"""Runs the flights demo as a process of its own, kills it, and holds what it left against a replay without faults."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from pathlib import Path

import pyarrow as pa

from dbsp.io.embedded_input import EmbeddedInputLog
from dbsp.io.embedded_output import read_outputs
from dbsp.io.embedded_steps import EmbeddedStepLog
from dbsp.layout import initial
from dbsp.plan.planner import plan as make_plan
from dbsp.runtime.inprocess import InProcessRuntime
from dbsp.runtime.session import MemoryResources
from dbsp.runtime.work import Work
from dbsp.store import CheckpointId
from dbsp.zset.batch import Batch, concat, consolidate
from dbsp.zset.encoding import encode
from dbsp.zset.schema import Schema
from examples.flights.circuit import circuit

ROOT = Path(__file__).parents[2]
EQUAL = "equal DuckDB's recomputation over the same rows"
KEEP_LOGS = "checkpoint.retention_s=86400"


class Demo:
    """The demo on a data folder; every process it starts carries a mark in its environment."""

    def __init__(self, data_dir: Path, runtime: str, changes: int | None, rows_per_batch: int) -> None:
        self.data_dir = data_dir
        self._mark = f"DBSP_DEMO_TEST={uuid.uuid4()}"
        self._command = [sys.executable, "-m", "examples.flights.run", "--rows-per-batch", str(rows_per_batch)]
        self._command += ["--changes", str(changes)] if changes else []
        for setting in (
            f"pipeline.data_dir={data_dir}",
            f"pipeline.runtime={runtime}",
            KEEP_LOGS,
            "checkpoint.interval_s=2",
        ):
            self._command += ["--set", setting]

    def start(self, **environment: str) -> subprocess.Popen[str]:
        """Start it in a session of its own."""
        name, _, value = self._mark.partition("=")
        env = {**os.environ, **environment, name: value, "COLUMNS": "160"}
        return subprocess.Popen(
            self._command, cwd=ROOT, env=env, start_new_session=True, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, timeout_s: float, **environment: str) -> tuple[int, str]:
        """Run it to its end: exit code and output."""
        running = self.start(**environment)
        try:
            said, _ = running.communicate(timeout=timeout_s)
        finally:
            self.kill(running)
        return running.returncode, said

    @staticmethod
    def wait_until_playing(running: subprocess.Popen[str]) -> None:
        """Return when it has begun to send."""
        assert running.stdout is not None
        said = []
        for line in running.stdout:
            if line.startswith("playing"):
                return
            said.append(line)
        raise AssertionError(f"it ended before it played: {said}")

    def kill(self, running: subprocess.Popen[str]) -> None:
        """SIGKILL to the whole process group, and wait until nothing of it is left."""
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        if running.stdout is not None:
            running.stdout.close()
        limit = time.monotonic() + 20
        while self.left():
            assert time.monotonic() < limit, f"still there: {self.left()}"
            time.sleep(0.05)

    def left(self) -> list[int]:
        """Processes that carry the mark and are alive."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                marked = self._mark.encode() in (folder / "environ").read_bytes().split(b"\0")
                alive = (folder / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
            except OSError:
                continue
            if marked and alive:
                found.append(int(folder.name))
        return found

    def steps(self) -> int:
        """How many steps are logged."""
        if not (self.data_dir / "steps" / "data.mdb").exists():
            return 0
        log = EmbeddedStepLog(self.data_dir)
        try:
            last = log.last()
            return 0 if last is None else last.step + 1
        finally:
            log.close()


def same_as_golden(data_dir: Path) -> int:
    """Replay the step log from step 0 on one worker in memory: every step's outputs must be equal to the byte.

    Returns the number of steps compared.
    """
    plan = make_plan(circuit)
    steps, inputs = EmbeddedStepLog(data_dir), EmbeddedInputLog(data_dir, plan.tables)
    try:
        records = steps.read(0)
        resources = MemoryResources(inputs)  # type: ignore[arg-type]
        runtime = InProcessRuntime(Work(resources=resources, plan=plan, run="golden"), encode_parcels=False)
        layout = initial(1)
        start = CheckpointId(run="golden", epoch=1, step=0, layout_version=0, fingerprint=plan.fingerprint)
        runtime.create(layout.workers, start)
        runtime.fence(1, layout.workers)
        runtime.open(0, 1, layout)
        for record in records:
            runtime.run_step(record, layout)
        golden = next(iter(resources.outputs.values())).parts
    finally:
        inputs.close()
        steps.close()
    assert [record.step for record in records] == list(range(len(records)))
    for view in plan.views:
        found: dict[int, list[pa.Table]] = defaultdict(list)
        for step, _, table in read_outputs(data_dir, view.name):
            found[step].append(table)
        for record in records:
            expected = golden.get(record.step, {}).get(view.name)
            batches = [_batch(table, view.schema) for table in found.pop(record.step, [])]
            ours = encode(consolidate(concat(batches, view.schema)))
            theirs = encode(consolidate(concat([expected] if expected is not None else [], view.schema)))
            assert ours == theirs, f"step {record.step} of {view.name}"
        assert not found
    return len(records)


def _batch(table: pa.Table, schema: Schema) -> Batch:
    return Batch.from_arrow(table.drop_columns(["weight"]), schema, table["weight"].to_numpy())
