"""What a rescale costs, by strategy: pause, bytes moved against the least possible, time, throughput meanwhile.

`python -m benchmarks.rescale [--mb 100 500] [--strategy icadd] [--keys 1000000]`. A service with the in-process runtime: sums per
key over keys that all have state, rows of random keys pushed as fast as they are taken, one worker to two. *Pause*: the longest
time between the ends of two steps from the request to five steps after it was answered, less the median before it. The first step
after the switch takes all that waited, so some of that is work; *stopped* is the time in which no step ran. *Throughput*: rows a
second from the request to the switch, or to the last key, against before. Where keys move in the steps, the *switch* is the start
of the layout in which they do. *Moved*: bytes written to new owners, against the share of the state that changes its owner (keys
move without the slack that a state has on disk, so theirs may be less); *net*: without what the rows that came from the request
to the switch have added to that share, for that has to move too. Last, cold from one worker to two with 1 M keys, as users of
other engines measure it.
"""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import report
from dbsp.coordinator.decisions.strategies import COLD, STRATEGIES, WARMUP
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import load_config
from dbsp.distribute.names import STRATEGIES as BY_KEY
from dbsp.zset.kernels.compile import compile_all

SUMS = 8
LOAD_ROWS, STEP_ROWS = 500_000, 20_000
CALM_S, STEPS_AFTER = 6.0, 5
LEAST_AND_A_SHARD = 17 / 16
"""The bound of moved state: from one worker to two, 16 of 32 shards must move; one shard more is allowed."""
KEY_BYTES = 130
"""Approximate bytes of state per key: a row of sums, stored twice while a merge is under way."""

CIRCUIT = f"""
import dbsp
from dbsp import col, count
from dbsp import sum as total

names = ["v%d" % n for n in range({SUMS})]
rows = dbsp.table("rows", {{"k": dbsp.INT64, **{{name: dbsp.INT64 for name in names}}}})
sums = rows.group_by("k").aggregate(n=count(), **{{name: total(name) for name in names}})
pipeline = dbsp.circuit("sums", {{"often": sums.filter(col("n") > 1_000_000)}})
"""
SETTINGS = f"""
[pipeline]
circuit = "circuit.py:pipeline"
runtime = "local"
workers = 1
[http]
enabled = false
[step]
max_rows_per_step = {LOAD_ROWS}
max_step_delay_ms = 0
[checkpoint]
interval_s = 10
[log]
steps = true
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """A step: when it ended, how many rows it took, and how long it took."""

    at_s: float
    rows: int
    seconds: float


def table(keys: Any) -> pa.Table:
    """Rows with these keys."""
    values = {f"v{n}": pa.array(keys % (n + 7)) for n in range(SUMS)}
    return pa.table({"k": keys, **values})


@contextmanager
def loaded(keys: int) -> Iterator[tuple[Service, Path]]:
    """A service of one worker with state for every key, all of it in a checkpoint."""
    with tempfile.TemporaryDirectory(prefix="rescale-") as name:
        folder = Path(name)
        (folder / "circuit.py").write_text(CIRCUIT)
        (folder / "pipeline.toml").write_text(SETTINGS)
        with Service(load_config(folder / "pipeline.toml", environment={})) as service:
            order = np.random.default_rng(1).permutation(keys)
            for first in range(0, keys, LOAD_ROWS):
                service.wait_until_processed(service.push("rows", table(order[first : first + LOAD_ROWS])), 600)
            service.checkpoint(600)
            yield service, folder


@contextmanager
def traffic(service: Service, keys: int) -> Iterator[None]:
    """Rows of random keys, two steps ahead of what is processed, until the block ends."""
    over, random = threading.Event(), np.random.default_rng(2)
    batches = [table(random.integers(0, keys, STEP_ROWS)) for _ in range(20)]

    def pushing() -> None:
        waiting = [service.push("rows", batches[0])]
        for batch in itertools.cycle(batches):
            if over.is_set():
                break
            waiting.append(service.push("rows", batch))
            if len(waiting) > 2:
                service.wait_until_processed(waiting.pop(0), 600)
        service.wait_until_processed(waiting[-1], 600)

    thread = threading.Thread(target=pushing)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def told(folder: Path, kind: str) -> list[dict[str, Any]]:
    """The events of a kind, as the service logged them."""
    events = map(json.loads, (folder / "data" / "coordinator.log").read_text().splitlines())
    return [
        event | {"at": datetime.fromisoformat(event["at"]).timestamp()} for event in events if event["event"] == kind
    ]


def size_of_state(service: Service) -> int:
    """Return the size of the state after the last step."""
    found = service.snapshot.state_bytes
    if found is None:
        raise RuntimeError("no step has measured the state")
    return found


def measured(service: Service, folder: Path, keys: int, strategy: str) -> dict[str, float]:
    """Rescale 1 -> 2 under traffic."""
    row_bytes = size_of_state(service) / keys
    with traffic(service, keys):
        time.sleep(CALM_S)
        state_bytes, asked = size_of_state(service), time.time()
        moved = service.rescale(2, 3600, strategy=strategy)
        answered, step = time.time(), service.snapshot.step
        service.live_status.wait_for(lambda now: now.step > step + STEPS_AFTER, 600)
        over = time.time()
    if moved is None:
        raise RuntimeError("nothing was rescaled")
    steps = [Ended(event["at"], event["rows_in"], event["seconds"]) for event in told(folder, "step")]
    switched = next(event["at"] for event in told(folder, "state") if event["state"] == "Rescaling")
    calm = [step for step in steps if asked - CALM_S / 2 <= step.at_s < asked]
    ended = answered if strategy in BY_KEY else switched
    during = [step for step in steps if asked <= step.at_s < ended]
    around = [step.at_s for step in steps if asked - 1.0 <= step.at_s <= over]
    usual = statistics.median(after.at_s - before.at_s for before, after in itertools.pairwise(calm))
    longest = max(after - before for before, after in itertools.pairwise(around))
    at_switch = min(at for at in around if at > switched) - max(at for at in around if at <= switched)
    after = min((step for step in steps if step.at_s > switched), key=lambda step: step.at_s)
    stopped = after.at_s - after.seconds - max(at for at in around if at <= switched)
    calm_rate = sum(step.rows for step in calm) / (CALM_S / 2)
    rounds = told(folder, "warmup")
    share, moved_mb = moved.shards_moved / moved.shards, moved.bytes_moved / 1e6
    came = sum(distinct(step.rows, keys) for step in steps if asked < step.at_s <= switched)
    least_mb, came_mb = share * state_bytes / 1e6, share * came * row_bytes / 1e6
    found = {
        "switch_pause_seconds": at_switch - usual, "switch_stopped_seconds": stopped,
        "rows_in_first_step": after.rows, "longest_pause_seconds": longest - usual,
        "usual_step_seconds": usual, "total_seconds": answered - asked,
        "state_mb": state_bytes / 1e6, "moved_mb": moved_mb, "came_meanwhile_mb": came_mb,
        "moved_ratio_to_least": moved_mb / least_mb, "moved_net_ratio_to_least": (moved_mb - came_mb) / least_mb,
        "rows_per_second_before": calm_rate,
    }  # fmt: skip
    if strategy != "cold":
        found["throughput_ratio_during"] = sum(step.rows for step in during) / (ended - asked) / calm_rate
    if strategy == WARMUP:
        found |= {"rounds": len(rounds), "last_round_lag_mb": rounds[-1]["lag_bytes"] / 1e6}
    if strategy in BY_KEY:
        found["median_step_seconds_during"] = statistics.median(step.seconds for step in during)
    return found


def distinct(rows: int, keys: int) -> float:
    """How many different keys so many random rows have: a step stores a row for each."""
    return float(-keys * np.expm1(rows * np.log1p(-1 / keys)))


def strategies(mb: int, chosen: Sequence[str]) -> dict[str, float]:
    """Each on a service of its own."""
    keys = mb * 1_000_000 // KEY_BYTES
    figures: dict[str, float] = {}
    for strategy in chosen:
        with loaded(keys) as (service, folder):
            for name, value in measured(service, folder, keys, strategy).items():
                figures[f"{mb}mb_{strategy}_{name}"] = value
    return figures


def cold_at_rest(keys: int) -> float:
    """Seconds from the request for two workers to its answer, with no traffic."""
    with loaded(keys) as (service, _):
        began = time.perf_counter()
        service.rescale(2, 600, strategy="cold")
        return time.perf_counter() - began


def main() -> None:
    """Measure, print, keep."""
    parser = report.parser(__doc__)
    parser.add_argument("--mb", type=int, nargs="*", default=[100, 500], help="sizes of the state, about")
    parser.add_argument("--keys", type=int, default=1_000_000, help="of the cold rescale at rest")
    parser.add_argument("--strategy", nargs="*", choices=STRATEGIES, default=STRATEGIES)
    chosen = parser.parse_args()
    compile_all()  # as `serve` does
    figures: dict[str, object] = {}
    targets: dict[str, report.Target] = {}
    for mb in chosen.mb:
        figures |= strategies(mb, chosen.strategy)
        for strategy in set(chosen.strategy) - {COLD}:
            targets[f"{mb}mb_{strategy}_switch_pause_seconds"] = report.at_most(0.25)
            targets[f"{mb}mb_{strategy}_throughput_ratio_during"] = report.at_least(0.7)
        if WARMUP in chosen.strategy:
            targets[f"{mb}mb_{WARMUP}_moved_net_ratio_to_least"] = report.at_most(LEAST_AND_A_SHARD)
    figures["cold_1_to_2_seconds"] = cold_at_rest(chosen.keys)
    targets["cold_1_to_2_seconds"] = report.at_most(2.0)
    report.keep("rescale", figures, targets)


if __name__ == "__main__":
    main()
