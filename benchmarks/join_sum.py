"""Join, then sum, in process, one worker: orders with a price table of 100 k rows, summed per category.

`python -m benchmarks.join_sum`. Orders arrive in steps of 100 k and 10 k rows; each changes the sums of
up to a thousand categories, so the old sums are retracted. The target is 1 M rows/s a core.
"""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

import dbsp
from benchmarks import report

ROWS, ITEMS, CATEGORIES = 3_000_000, 100_000, 1_000
WANTED = 1.0e6


def circuit() -> dbsp.Circuit:
    """`select category, sum(quantity * price) from orders join items using (item) group by category`."""
    orders = dbsp.table("orders", {"item": dbsp.INT64, "quantity": dbsp.INT64})
    items = dbsp.table("items", {"item": dbsp.INT64, "category": dbsp.INT64, "price": dbsp.INT64}, primary_key="item")
    joined = orders.join(items, on="item").select("category", paid=dbsp.col("quantity") * dbsp.col("price"))
    totals = joined.group_by("category").aggregate(paid=dbsp.sum("paid"), orders=dbsp.count())
    return dbsp.circuit("join_sum", {"totals": totals})


def measure(step_rows: int, rows: int = ROWS) -> float:
    """Rows a second, orders only being counted."""
    generator = np.random.default_rng(3)
    item = generator.integers(0, ITEMS, rows)
    quantity = generator.integers(1, 10, rows)
    numbers = np.arange(ITEMS)
    with dbsp.open(circuit(), workers=1) as run:
        run.push("items", pa.table({"item": numbers, "category": numbers % CATEGORIES, "price": numbers % 97 + 1}))
        run.step()
        started = time.perf_counter()
        for first in range(0, rows, step_rows):
            last = first + step_rows
            run.push("orders", pa.table({"item": item[first:last], "quantity": quantity[first:last]}))
            run.step()
        return rows / (time.perf_counter() - started)


def main() -> None:
    """Measure, print, keep."""
    measure(100_000, 300_000)  # compiles and warms up
    figures: dict[str, object] = {}
    for step_rows in (100_000, 10_000):
        speed = measure(step_rows)
        figures[f"rows_per_s_in_steps_of_{step_rows}"] = round(speed)
        figures[f"ratio_to_target_in_steps_of_{step_rows}"] = speed / WANTED
    report.keep("join_sum", figures)


if __name__ == "__main__":
    main()
