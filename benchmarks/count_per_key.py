"""Count per key, in process, one worker: rows a second in steps of 100 k and 10 k rows, and with 10 M and 100 M rows of state.

`python -m benchmarks.count_per_key [--large]`. The changes of the view are produced in each step. `--large` adds the two
runs over big states (10 M and 100 M keys, inserted in steps of 1 M), which need about 8 GB of memory and some minutes.
The Rust crate's figures are those of the issue, on such a core: 0.42 M rows/s in steps of 10 k and 0.90 M in steps of 100 k.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pyarrow as pa

import dbsp
from benchmarks import report
from dbsp.runtime.session import Run

ROWS, KEYS = 5_000_000, 1_000_000
RUST = {10_000: 0.42e6, 100_000: 0.90e6}
WANTED = {10_000: 1.0e6, 100_000: 3.0e6}


def circuit() -> dbsp.Circuit:
    """`select k, count(*) from t group by k`."""
    table = dbsp.table("t", {"k": dbsp.INT64})
    return dbsp.circuit("count_per_key", {"counts": table.group_by("k").aggregate(n=dbsp.count())})


def feed(run: Run, keys: np.ndarray, step_rows: int) -> float:
    """Seconds to push the keys in steps of `step_rows`."""
    started = time.perf_counter()
    for first in range(0, len(keys), step_rows):
        run.push("t", pa.table({"k": keys[first : first + step_rows]}))
        run.step()
        run.forget_outputs()
    return time.perf_counter() - started


def small(step_rows: int, rows: int = ROWS) -> float:
    """Rows a second over 5 M rows of 1 M keys."""
    keys = np.random.default_rng(1).integers(0, KEYS, rows)
    with dbsp.open(circuit(), workers=1) as run:
        return rows / feed(run, keys, step_rows)


def large(state_rows: int, rows: int = 2_000_000, step_rows: int = 100_000) -> tuple[float, float]:
    """Rows a second while inserting `state_rows` distinct keys, and then in steps on top of them."""
    generator = np.random.default_rng(2)
    with dbsp.open(circuit(), workers=1) as run:
        seconds = 0.0
        for first in range(0, state_rows, 10_000_000):
            # An odd multiplier permutes the 64-bit numbers: distinct keys in no order.
            keys = np.arange(first, min(first + 10_000_000, state_rows), dtype=np.uint64) * np.uint64(
                0x9E3779B97F4A7C15
            )
            seconds += feed(run, keys.view(np.int64), 1_000_000)
        again = generator.integers(0, state_rows, rows).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        return state_rows / seconds, rows / feed(run, again.view(np.int64), step_rows)


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="also with 10 M and 100 M rows of state")
    arguments = parser.parse_args()
    small(100_000, 500_000)  # compiles and warms up
    figures: dict[str, object] = {}
    for step_rows in (100_000, 10_000):
        speed = small(step_rows)
        figures[f"rows_per_s_in_steps_of_{step_rows}"] = round(speed)
        figures[f"ratio_to_target_in_steps_of_{step_rows}"] = speed / WANTED[step_rows]
        figures[f"ratio_to_rust_crate_in_steps_of_{step_rows}"] = speed / RUST[step_rows]
    if arguments.large:
        (built_10m, at_10m), (built_100m, at_100m) = large(10_000_000), large(100_000_000)
        figures |= {"built_10m_rows_per_s": round(built_10m), "at_10m_rows_per_s": round(at_10m)}
        figures |= {"built_100m_rows_per_s": round(built_100m), "at_100m_rows_per_s": round(at_100m)}
        figures["ratio_of_cost_at_100m_to_10m"] = at_10m / at_100m
    report.keep("count_per_key", figures)


if __name__ == "__main__":
    main()
