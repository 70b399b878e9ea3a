"""How long one changed row takes with much state: in process, one worker, beside DuckDB's upsert of one row.

`python -m benchmarks.latency [--rows 1000000] [--changes 1000] [--large]`. Count per key with so many keys; then one row of a key
that is there, and another, each a step of its own whose changes are read. Milliseconds by the clock: the median, and the 99th
percentile by it; on a busy machine the same two of the processor's time mean more, so they are there too. `--large` adds
30 M keys (about 3 GB). On Spark: `python -m benchmarks.spark_step --rows 1`.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
import pyarrow as pa

import dbsp
from benchmarks import report
from benchmarks.count_per_key import circuit
from benchmarks.peers import duck

LOAD_ROWS, WARM_UP = 1_000_000, 50
MEDIAN_MS, P99_BY_MEDIAN = 1.5, 3.0
LARGE_ROWS = 30_000_000


def ours(rows: int, changes: np.ndarray) -> tuple[list[float], list[float]]:
    """Seconds of each step: by the clock, and of the processor."""
    seconds, used = [], []
    with dbsp.open(circuit(), workers=1) as run:
        for first in range(0, rows, LOAD_ROWS):
            run.push("t", pa.table({"k": np.arange(first, min(first + LOAD_ROWS, rows))}))
            run.step()
            run.forget_outputs()
        for key in changes.tolist():
            started, before = time.perf_counter(), time.process_time()
            run.push("t", pa.table({"k": [key]}))
            changed = run.step()["counts"]
            used.append(time.process_time() - before)
            seconds.append(time.perf_counter() - started)
            if len(changed) != 2:
                raise SystemExit(f"a changed count is one row less and one more: rows={len(changed)}")
            run.forget_outputs()
        return seconds[WARM_UP:], used[WARM_UP:]


def milliseconds(seconds: list[float]) -> tuple[float, float]:
    """(median, 99th percentile)."""
    return 1000 * statistics.median(seconds), 1000 * float(np.quantile(seconds, 0.99))


def main() -> None:
    """Measure, print, keep."""
    parser = report.parser(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=1_000)
    parser.add_argument("--large", action="store_true", help=f"also with {LARGE_ROWS:,} rows")
    arguments = parser.parse_args()
    figures: dict[str, object] = {}
    targets: dict[str, report.Target] = {}
    for rows in (arguments.rows, *([LARGE_ROWS] if arguments.large else [])):
        changes = np.random.default_rng(6).integers(0, rows, arguments.changes + WARM_UP)
        seconds, used = ours(rows, changes)
        (median, p99), (cpu, cpu_p99) = milliseconds(seconds), milliseconds(used)
        theirs, theirs_p99 = milliseconds(duck.upsert_latencies(rows, changes.tolist())[WARM_UP:])
        figures |= {
            f"median_ms_at_{rows}_rows": median, f"p99_by_median_at_{rows}_rows": p99 / median,
            f"cpu_median_ms_at_{rows}_rows": cpu, f"cpu_p99_by_median_at_{rows}_rows": cpu_p99 / cpu,
            f"duckdb_upsert_median_ms_at_{rows}_rows": theirs,
            f"duckdb_upsert_p99_by_median_at_{rows}_rows": theirs_p99 / theirs,
            f"duckdb_upsert_by_ours_at_{rows}_rows": theirs / median,
        }  # fmt: skip
        targets |= {
            f"median_ms_at_{rows}_rows": report.at_most(MEDIAN_MS),
            f"p99_by_median_at_{rows}_rows": report.at_most(P99_BY_MEDIAN),
        }
    report.keep("latency", figures, targets)


if __name__ == "__main__":
    main()
