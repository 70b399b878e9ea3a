"""From kill -9 to the first new step, on Spark: `python -m benchmarks.restart [--keys 1000000]`.

A service with the Spark runtime and two workers: a count per key with state for every key in a checkpoint, then ten steps that
no checkpoint holds, then the service, its JVM and its Python workers are killed. It is started again, and a row is pushed as
soon as it answers. Measured from the start of the process to the end of the first step that is no replay, beside what every
program on Spark waits for: a process that makes a context and runs one job with a shuffle. The two take turns. *Above* is the
difference of the medians less the replay. Steps are measured by the clock, from the begin of the first to the end of the last,
live ones with the pushes between them; *in steps* is what they took themselves. The counts after all of it are compared with
the rows that were pushed. What is killed counts as other processes.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa

from benchmarks import report
from benchmarks.rescale import told
from dbsp.coordinator.address import read_address

STEP_ROWS, STEPS, LOAD_ROWS = 100_000, 10, 500_000
ABOVE_S_MAX = 2.0
STARTS_S = 120.0

CIRCUIT = """
import dbsp
from dbsp import count

rows = dbsp.table("rows", {"k": dbsp.INT64})
pipeline = dbsp.circuit("counts", {"counts": rows.group_by("k").aggregate(n=count())})
"""
SETTINGS = f"""
[pipeline]
circuit = "circuit.py:pipeline"
runtime = "spark"
workers = 2
[http]
port = 0
[spark]
master = "local[2]"
[step]
max_rows_per_step = {LOAD_ROWS}
max_step_delay_ms = 0
[checkpoint]
interval_s = 100000
"""
BARE = """
from pyspark import SparkContext
context = SparkContext("local[2]", "bare")
pairs = context.parallelize(range(2), 2).map(lambda n: (n, n)).partitionBy(2)
print(pairs.glom().collect(), flush=True)
"""


@contextmanager
def group(command: list[str], folder: Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process that leads a group; all of it is killed in the end."""
    with (folder / "out").open("ab") as out:
        process = subprocess.Popen(
            command, cwd=folder, stderr=out, start_new_session=True, **{"stdout": out, **options}
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def service(folder: Path) -> Iterator[httpx.Client]:
    """The service, as soon as it answers."""
    with group([sys.executable, "-m", "dbsp.coordinator.serve", "pipeline.toml", "--no-progress"], folder) as process:
        limit = time.monotonic() + STARTS_S
        while (found := read_address(folder / "data")).get("pid") != process.pid:
            if process.poll() is not None or time.monotonic() > limit:
                raise RuntimeError((folder / "out").read_text()[-2000:])
            time.sleep(0.01)
        with httpx.Client(base_url=found["url"], timeout=STARTS_S, trust_env=False) as client:
            yield client


def asked(client: httpx.Client, method: str, path: str, **options: Any) -> Any:
    """The answer, asked for again until the service has come so far."""
    limit = time.monotonic() + STARTS_S
    while (answer := client.request(method, path, **options)).status_code == httpx.codes.SERVICE_UNAVAILABLE:
        if time.monotonic() > limit:
            raise RuntimeError(answer.text)
        time.sleep(0.01)
    return answer.raise_for_status().json()


def push(client: httpx.Client, keys: Any) -> None:
    """Push these keys and wait for the step that takes them."""
    sink = pa.BufferOutputStream()
    table = pa.table({"k": keys})
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    headers = {"content-type": "application/vnd.apache.arrow.stream"}
    body = sink.getvalue().to_pybytes()
    asked(client, "POST", f"/v1/tables/rows/rows?wait=true&timeout_s={STARTS_S}", content=body, headers=headers)


def bare_s(folder: Path) -> float:
    """From the start of a process to the end of its first job."""
    began = time.perf_counter()
    with group([sys.executable, "-c", BARE], folder, stdout=subprocess.PIPE) as process:
        if process.stdout is None or not process.stdout.readline():
            raise RuntimeError((folder / "out").read_text()[-2000:])
        return time.perf_counter() - began


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Seconds from the start to the end of the first new step; of the replay and of the same steps live, by both measures."""

    first_s: float
    replay_s: float
    live_s: float
    replay_in_steps_s: float
    live_in_steps_s: float


def clock_s(steps: Sequence[dict[str, Any]]) -> float:
    """From the begin of the first to the end of the last."""
    return float(steps[-1]["at"] - steps[0]["at"] + steps[0]["seconds"])


def in_steps_s(steps: Sequence[dict[str, Any]]) -> float:
    """What they took themselves."""
    return float(sum(step["seconds"] for step in steps))


def logged(folder: Path, known: int, count: int) -> list[dict[str, Any]]:
    """The next steps behind those that are known, once so many are logged, which is just after they are answered."""
    limit = time.monotonic() + STARTS_S
    while len(steps := told(folder, "step")[known:]) < count:
        if time.monotonic() > limit:
            raise RuntimeError(f"steps are missing: logged={len(steps)} expected={count}")
        time.sleep(0.01)
    return steps


def restart(folder: Path, keys: Any) -> Restart:
    """Ten steps, kill -9, start, one step more."""
    known = len(told(folder, "step"))
    with service(folder) as client:
        for _ in range(STEPS):
            push(client, next(keys))
        live = logged(folder, known, STEPS)
    began = time.time()
    with service(folder) as client:
        push(client, next(keys)[:1])
        later = logged(folder, known + STEPS, STEPS + 1)
        asked(client, "POST", "/v1/checkpoint")
    first = next(step for step in later if not step["replay"])
    replay = [step for step in later if step["replay"]]
    if len(replay) != STEPS:
        raise RuntimeError(f"other steps were replayed than were to be: steps={len(replay)}")
    return Restart(
        first_s=first["at"] - began, replay_s=clock_s(replay), live_s=clock_s(live),
        replay_in_steps_s=in_steps_s(replay), live_in_steps_s=in_steps_s(live),
    )  # fmt: skip


def measure(folder: Path, keys: int) -> tuple[list[float], list[Restart]]:
    """Bare starts and restarts in turn; the counts must be right in the end."""
    (folder / "circuit.py").write_text(CIRCUIT)
    (folder / "pipeline.toml").write_text(SETTINGS)
    random, counts = np.random.default_rng(4), np.ones(keys, np.int64)
    with service(folder) as client:
        for first in range(0, keys, LOAD_ROWS):
            push(client, np.arange(first, min(first + LOAD_ROWS, keys)))
        asked(client, "POST", "/v1/checkpoint")

    def batches() -> Iterator[Any]:
        for number in range(report.RUNS * (STEPS + 1)):
            batch = random.integers(0, keys, STEP_ROWS if number % (STEPS + 1) < STEPS else 1)
            np.add.at(counts, batch, 1)
            yield batch

    source, bare, found = batches(), list[float](), list[Restart]()
    for _ in range(report.RUNS):
        bare.append(bare_s(folder))
        found.append(restart(folder, source))
    with service(folder) as client:
        rows = asked(client, "GET", "/v1/views/counts")["rows"]
    if {row["k"]: row["n"] for row in rows} != dict(enumerate(counts.tolist())):
        raise RuntimeError("the counts are not those of the rows")
    return bare, found


def main() -> None:
    """Measure, print, keep."""
    parser = report.parser(__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="restart-") as name:
        bare, found = measure(Path(name), arguments.keys)
    first_s = statistics.median(one.first_s for one in found)
    replay_s = statistics.median(one.replay_s for one in found)
    bare_start_s = statistics.median(bare)
    figures: dict[str, object] = {
        "keys": arguments.keys, "rows_replayed": STEPS * STEP_ROWS, "bare_start_to_first_job_s": bare_start_s,
        "kill_to_first_new_step_s": first_s, "replay_s": replay_s,
        "above_bare_start_and_replay_s": first_s - bare_start_s - replay_s,
        "ratio_of_replay_to_live": statistics.median(one.replay_s / one.live_s for one in found),
        "ratio_in_steps": statistics.median(one.replay_in_steps_s / one.live_in_steps_s for one in found),
    }  # fmt: skip
    targets = {
        "above_bare_start_and_replay_s": report.at_most(ABOVE_S_MAX),
        "ratio_of_replay_to_live": report.at_most(1.0),
    }
    report.keep("restart", figures, targets)


if __name__ == "__main__":
    main()
