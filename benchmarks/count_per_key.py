"""Count per key, in process, one worker: rows a second in steps of 100 k and 10 k rows, and with 10 M and 100 M rows of state.

`python -m benchmarks.count_per_key [--large] [--runs 3]`. The changes of the view are produced in each step. In steps of 100 k
the same rows go to DuckDB, on one thread: an upsert into a table with a primary key (which keeps the counts, and tells no
changes), and a `group by` over all rows after each step. Processor seconds, medians of runs that take turns; the answers
are compared. `--large` adds the two runs over big states (10 M and 100 M keys, inserted in steps of 1 M), which need about
8 GB of memory and some minutes. The Rust crate's figures are those of the issue, on such a core: 0.42 M rows/s in steps of
10 k and 0.90 M in steps of 100 k.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa

import dbsp
from benchmarks import report
from benchmarks.peers import duck
from dbsp.runtime.session import Run

ROWS, KEYS = 5_000_000, 1_000_000
RUST = {10_000: 0.42e6, 100_000: 0.90e6}
WANTED = {10_000: 1.0e6, 100_000: 3.0e6}


def circuit() -> dbsp.Circuit:
    """`select k, count(*) from t group by k`."""
    table = dbsp.table("t", {"k": dbsp.INT64})
    return dbsp.circuit("count_per_key", {"counts": table.group_by("k").aggregate(n=dbsp.count())})


def feed(run: Run, keys: np.ndarray, step_rows: int) -> float:
    """Processor seconds to push the keys in steps of `step_rows`."""
    started = time.process_time()
    for first in range(0, len(keys), step_rows):
        run.push("t", pa.table({"k": keys[first : first + step_rows]}))
        run.step()
        run.forget_outputs()
    return time.process_time() - started


def keys_of(rows: int) -> np.ndarray:
    """Keys of 1 M, in no order."""
    return np.random.default_rng(1).integers(0, KEYS, rows)


def small(step_rows: int, rows: int = ROWS) -> float:
    """Rows a second over 5 M rows of 1 M keys."""
    with dbsp.open(circuit(), workers=1) as run:
        return rows / feed(run, keys_of(rows), step_rows)


def batches(rows: int, step_rows: int) -> list[pa.Table]:
    """The same rows for DuckDB."""
    keys = keys_of(rows)
    return [pa.table({"k": keys[first : first + step_rows]}) for first in range(0, rows, step_rows)]


def upsert(step_rows: int, rows: int = ROWS) -> float:
    """Rows a second of DuckDB's upsert."""
    return rows / sum(duck.upserted(batches(rows, step_rows), 1)[0])


def recompute(step_rows: int, rows: int = ROWS) -> float:
    """Rows a second of DuckDB asked again after every step."""
    steps = [{"t": batch} for batch in batches(rows, step_rows)]
    return rows / sum(duck.recomputed(steps, "select k, count(*) as n from t group by k", 1)[0])


def same_answers(rows: int = 500_000, step_rows: int = 100_000) -> None:
    """Ours and DuckDB's; also compiles and warms up."""
    with dbsp.open(circuit(), workers=1) as run:
        feed(run, keys_of(rows), step_rows)
        found = run.view("counts").to_arrow()
    duck.check("count_per_key", found, duck.upserted(batches(rows, step_rows), 1)[1])


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
    parser = report.parser(__doc__)
    parser.add_argument("--large", action="store_true", help="also with 10 M and 100 M rows of state")
    parser.add_argument("--runs", type=int, default=report.RUNS)
    arguments = parser.parse_args()
    same_answers()
    figures: dict[str, object] = {}
    targets = {f"rows_per_s_in_steps_of_{step}": report.at_least(wanted) for step, wanted in WANTED.items()}
    measures: dict[str, Callable[[], float]] = {
        f"rows_per_s_in_steps_of_{step}": partial(small, step) for step in WANTED
    }
    measures |= {
        "duckdb_upsert_rows_per_s_in_steps_of_100000": partial(upsert, 100_000),
        "duckdb_recomputed_rows_per_s_in_steps_of_100000": partial(recompute, 100_000),
    }
    found = report.medians(measures, arguments.runs)
    figures |= {name: round(speed) for name, speed in found.items()}
    for step in WANTED:
        figures[f"ratio_to_rust_crate_in_steps_of_{step}"] = found[f"rows_per_s_in_steps_of_{step}"] / RUST[step]
    for way in ("upsert", "recomputed"):
        theirs = found[f"duckdb_{way}_rows_per_s_in_steps_of_100000"]
        figures[f"ratio_to_duckdb_{way}_in_steps_of_100000"] = found["rows_per_s_in_steps_of_100000"] / theirs
        targets[f"ratio_to_duckdb_{way}_in_steps_of_100000"] = report.at_least(1.0)
    if arguments.large:
        (built_10m, at_10m), (built_100m, at_100m) = large(10_000_000), large(100_000_000)
        figures |= {"built_10m_rows_per_s": round(built_10m), "at_10m_rows_per_s": round(at_10m)}
        figures |= {"built_100m_rows_per_s": round(built_100m), "at_100m_rows_per_s": round(at_100m)}
        figures["ratio_of_cost_at_100m_to_10m"] = at_10m / at_100m
        targets |= {"at_100m_rows_per_s": report.at_least(1e6), "ratio_of_cost_at_100m_to_10m": report.at_most(3.5)}
    report.keep("count_per_key", figures, targets)


if __name__ == "__main__":
    main()
