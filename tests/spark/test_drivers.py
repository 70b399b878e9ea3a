"""Faults 5 to 8 on whole programs: driver, JVM and executors killed in a step; masters of every kind."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.pace import in_turn, rotating
from tests.spark.pipelines import Pipeline
from tests.spark.standalone import standalone
from tests.spark.waiting import until

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parent.parent.parent
STEPS = 4


def drive(folder: Path, master: str = "local[2]", **settings: Any) -> subprocess.CompletedProcess[str]:
    """Run the program to its end, and see that it leaves no process behind."""
    folder.mkdir(exist_ok=True)
    file = folder / "settings.json"
    file.write_text(json.dumps({"folder": str(folder), "master": master, "steps": STEPS, **settings}))
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.driver", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    until(lambda: not processes_of(folder), "its processes are gone", 10)
    return done


def processes_of(folder: Path) -> list[int]:
    """Everything that carries the folder in its command line or its environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in text:
                found.append(int(entry.name))
    return found


def assert_golden(folder: Path, golden: Path) -> None:
    """A replay of the run's own step log, in one process and without faults, gives the same parts, each once."""
    for name in ("input", "steps"):
        shutil.copytree(folder / name, golden / name)
    replay, faulted = Pipeline(golden), Pipeline(folder)
    try:
        assert replay.step == STEPS
        assert faulted.outputs() == replay.outputs()
        assert faulted.views() == replay.views()
    finally:
        replay.close()
        faulted.close()


DRIVER = pytest.param(("segment 1 begins", 0, 2, 3), -signal.SIGKILL, "from 0\n", id="driver")
# Tasks that stay need no JVM to end their step, unless its end takes them along.
JVM = pytest.param(
    ("before writing", 0, 1, 2), 4, "UnavailableError: the Spark JVM died: while=step [123]; start the same", id="jvm"
)


@pytest.mark.parametrize(("fault", "code", "says"), rotating([DRIVER, JVM], 2))
def test_a_killed_program_continues(fault: tuple[Any, ...], code: int, says: str, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    first = drive(folder, fault=fault)
    assert first.returncode == code, first.stdout + first.stderr
    assert re.search(says, first.stdout)
    assert (folder / "killed").exists()
    second = drive(folder, fault=fault)
    assert second.returncode == 0, second.stdout + second.stderr
    assert "views True" in second.stdout
    assert_golden(folder, tmp_path / "golden")


@pytest.mark.soak
def test_a_local_cluster(tmp_path: Path) -> None:
    """Of every run `test_cuts` has a service on such a cluster."""
    done = drive(tmp_path / "p", "local-cluster[2,1,1024]")
    assert done.returncode == 0, done.stdout + done.stderr
    assert_golden(tmp_path / "p", tmp_path / "golden")


@pytest.mark.skipif(
    not in_turn(1, 3),
    reason="`kafka/test_hosts_apart` or `kafka/test_spark_killed` kills at this commit; `make soak` runs all three",
)
def test_an_executor_killed_in_a_step_on_a_standalone_cluster(tmp_path: Path) -> None:
    with standalone(tmp_path / "cluster", ["127.0.0.2", "127.0.0.3"]) as cluster:
        done = drive(
            tmp_path / "p",
            cluster.master,
            fault=("segment 2 begins", 1, 2, 2),
            conf={
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.executor.memory": "512m",
                "spark.shuffle.io.maxRetries": "1",
                "spark.shuffle.io.retryWait": "1s",
            },
            environment={"PYTHONPATH": str(ROOT)},
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "p" / "killed").exists()
    assert_golden(tmp_path / "p", tmp_path / "golden")
