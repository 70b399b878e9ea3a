"""Join, then sum, in process, one worker: orders with a price table of 100 k rows, summed per category.

`python -m benchmarks.join_sum [--runs 3]`. Orders arrive in steps of 100 k and 10 k rows; each changes the sums of
up to a thousand categories, so the old sums are retracted. The target is 1 M rows/s a core; the Rust crate makes 0.42 M in
steps of 100 k and 0.33 M in steps of 10 k. DuckDB, on one thread, is asked again after every step of 100 k over all orders.
Processor seconds, medians of runs that take turns; the answers are compared.
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

ROWS, ITEMS, CATEGORIES = 3_000_000, 100_000, 1_000
WANTED = 1.0e6
RUST = {10_000: 0.332e6, 100_000: 0.423e6}
SQL = (
    "select category, sum(quantity * price)::bigint as paid, count(*) as orders from orders join items using (item)"
    " group by category"
)


def circuit() -> dbsp.Circuit:
    """`select category, sum(quantity * price) from orders join items using (item) group by category`."""
    orders = dbsp.table("orders", {"item": dbsp.INT64, "quantity": dbsp.INT64})
    items = dbsp.table("items", {"item": dbsp.INT64, "category": dbsp.INT64, "price": dbsp.INT64}, primary_key="item")
    joined = orders.join(items, on="item").select("category", paid=dbsp.col("quantity") * dbsp.col("price"))
    totals = joined.group_by("category").aggregate(paid=dbsp.sum("paid"), orders=dbsp.count())
    return dbsp.circuit("join_sum", {"totals": totals})


def items() -> pa.Table:
    """The price table."""
    numbers = np.arange(ITEMS)
    return pa.table({"item": numbers, "category": numbers % CATEGORIES, "price": numbers % 97 + 1})


def orders(rows: int, step_rows: int) -> list[pa.Table]:
    """The orders of every step."""
    generator = np.random.default_rng(3)
    whole = pa.table({"item": generator.integers(0, ITEMS, rows), "quantity": generator.integers(1, 10, rows)})
    return [whole.slice(first, step_rows) for first in range(0, rows, step_rows)]


def measure(step_rows: int, rows: int = ROWS, compare: bool = False) -> float:
    """Rows a second, orders only being counted."""
    steps = orders(rows, step_rows)
    with dbsp.open(circuit(), workers=1) as run:
        run.push("items", items())
        run.step()
        started = time.process_time()
        for step in steps:
            run.push("orders", step)
            run.step()
            run.forget_outputs()
        seconds = time.process_time() - started
        if compare:
            _, expected = duck.recomputed([{"orders": pa.concat_tables(steps)}], SQL, 1, {"items": items()})
            duck.check("join_sum", run.view("totals").to_arrow(), expected)
        return rows / seconds


def recompute(step_rows: int, rows: int = ROWS) -> float:
    """Rows a second of DuckDB asked again after every step."""
    steps = [{"orders": step} for step in orders(rows, step_rows)]
    return rows / sum(duck.recomputed(steps, SQL, 1, {"items": items()})[0])


def main() -> None:
    """Measure, print, keep."""
    parser = report.parser(__doc__)
    parser.add_argument("--runs", type=int, default=report.RUNS)
    arguments = parser.parse_args()
    measure(100_000, 300_000, compare=True)  # compiles and warms up
    measures: dict[str, Callable[[], float]] = {
        f"rows_per_s_in_steps_of_{step}": partial(measure, step) for step in RUST
    }
    measures["duckdb_recomputed_rows_per_s_in_steps_of_100000"] = partial(recompute, 100_000)
    found = report.medians(measures, arguments.runs)
    figures: dict[str, object] = {name: round(speed) for name, speed in found.items()}
    targets = {f"rows_per_s_in_steps_of_{step}": report.at_least(WANTED) for step in RUST}
    for step, rust in RUST.items():
        figures[f"ratio_to_rust_crate_in_steps_of_{step}"] = found[f"rows_per_s_in_steps_of_{step}"] / rust
        targets[f"ratio_to_rust_crate_in_steps_of_{step}"] = report.at_least(2.0 if step == 100_000 else 1.0)
    theirs = found["duckdb_recomputed_rows_per_s_in_steps_of_100000"]
    figures["ratio_to_duckdb_recomputed_in_steps_of_100000"] = found["rows_per_s_in_steps_of_100000"] / theirs
    targets["ratio_to_duckdb_recomputed_in_steps_of_100000"] = report.at_least(1.0)
    report.keep("join_sum", figures, targets)


if __name__ == "__main__":
    main()
