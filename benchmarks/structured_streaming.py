"""The same workloads on Spark Structured Streaming with the RocksDB state store, `local[2]`, two shuffle partitions.

`python -m benchmarks.structured_streaming [--rows N] [--both]`. Input are Parquet files, one per batch; rows a second from the
second batch on, so that the start of the JVM and of the query is left out.

- Count per key: N (5 M) rows, 1 M keys, in batches of 100 k and 1 M rows, output in update mode (the changed rows).
- Join, then sum, with a static table of items: Spark keeps no state for a static side, so its task is the lighter one.
- Join, then sum, with state on both sides: both tables are streams, the items come whole in the first batch. Spark 4.3 takes this
  as one query in update mode (append mode wants a watermark on the sums, complete mode refuses the join). Beside it, in the same
  run, ours on one core with everything durable: input log, outputs, and a version committed after every batch, as
  Spark commits its state store after every batch; Spark has two cores. What stays different: Spark's join only ever
  adds, without a watermark its state keeps every order for ever; ours would take back what a changed item or a deleted order
  had given. The sums of both are compared with numpy's.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from benchmarks import join_sum as ours
from benchmarks import report
from benchmarks.count_per_key import KEYS, ROWS
from benchmarks.durable import DurablePipeline
from benchmarks.join_sum import CATEGORIES, ITEMS
from benchmarks.peers import spark_sql
from dbsp.runtime.inprocess import InProcessRuntime


def write_batches(folder: Path, columns: dict[str, np.ndarray], rows: int, step_rows: int) -> None:
    """One Parquet file per batch, in order of name and time."""
    folder.mkdir()
    for number, first in enumerate(range(0, rows, step_rows)):
        part = pa.table({name: values[first : first + step_rows] for name, values in columns.items()})
        pq.write_table(part, folder / f"{number:05d}.parquet")


Sums = dict[int, tuple[int, int]]


def measure(query: DataFrame, box: Path, name: str, seen: Sums | None = None) -> float:
    """Rows a second of a query that reads one file per batch, from its second batch on; `seen` gathers what it says."""
    writer = query.writeStream.outputMode("update")
    if seen is None:
        writer = writer.format("noop")
    else:

        def gather(batch: DataFrame, _number: int) -> None:
            seen.update({row[0]: (row[1], row[2]) for row in batch.collect()})

        writer = writer.foreachBatch(gather)
    running = writer.option("checkpointLocation", str(box / f"{name}.checkpoint")).trigger(availableNow=True).start()
    running.awaitTermination()
    batches: list[Any] = [progress for progress in running.recentProgress if progress["numInputRows"]]
    rows = sum(progress["numInputRows"] for progress in batches[1:])
    return float(rows / (sum(progress["durationMs"]["triggerExecution"] for progress in batches[1:]) / 1000))


def count_per_key(spark: SparkSession, box: Path, step_rows: int, rows: int = ROWS) -> float:
    """Rows a second of `select k, count(*) group by k`."""
    name = f"counts-{step_rows}"
    write_batches(box / name, {"k": np.random.default_rng(1).integers(0, KEYS, rows)}, rows, step_rows)
    source = spark.readStream.schema("k long").option("maxFilesPerTrigger", 1).parquet(str(box / name))
    return measure(source.groupBy("k").count(), box, name)


def join_sum_static(spark: SparkSession, box: Path, step_rows: int, rows: int = ROWS) -> float:
    """Rows a second of the sum per category of orders joined with items."""
    name = f"orders-{step_rows}"
    write_batches(box / name, orders_of(rows), rows, step_rows)
    items = spark.range(ITEMS).select(
        sql.col("id").alias("item"),
        (sql.col("id") % CATEGORIES).alias("category"),
        (sql.col("id") % 97 + 1).alias("price"),
    )
    source = (
        spark.readStream.schema("item long, quantity long").option("maxFilesPerTrigger", 1).parquet(str(box / name))
    )
    totals = (
        source.join(items, "item")
        .groupBy("category")
        .agg(sql.sum(sql.col("quantity") * sql.col("price")), sql.count("*"))
    )
    return measure(totals, box, name)


def orders_of(rows: int) -> dict[str, np.ndarray]:
    """The orders of `benchmarks.join_sum`."""
    generator = np.random.default_rng(3)
    return {"item": generator.integers(0, ITEMS, rows), "quantity": generator.integers(1, 10, rows)}


def items_now() -> dict[str, np.ndarray]:
    """All items."""
    numbers = np.arange(ITEMS)
    return {"item": numbers, "category": numbers % CATEGORIES, "price": numbers % 97 + 1}


def sums_of(orders: dict[str, np.ndarray]) -> Sums:
    """The sums and counts per category, by numpy."""
    items = items_now()
    category = items["category"][orders["item"]]
    paid = np.zeros(CATEGORIES, np.int64)
    np.add.at(paid, category, orders["quantity"] * items["price"][orders["item"]])
    counts = np.bincount(category, minlength=CATEGORIES)
    return {int(number): (int(paid[number]), int(counts[number])) for number in np.flatnonzero(counts)}


def join_sum_both(spark: SparkSession, box: Path, step_rows: int, rows: int, seen: Sums | None = None) -> float:
    """Rows a second of the sum per category of orders joined with items, both of them streams."""
    name = f"both-{step_rows}-{rows}"
    write_batches(box / f"{name}-orders", orders_of(rows), rows, step_rows)
    write_batches(box / f"{name}-items", items_now(), ITEMS, ITEMS)
    reader = spark.readStream.option("maxFilesPerTrigger", 1)
    orders = reader.schema("item long, quantity long").parquet(str(box / f"{name}-orders"))
    reader = spark.readStream.option("maxFilesPerTrigger", 1)
    items = reader.schema("item long, category long, price long").parquet(str(box / f"{name}-items"))
    totals = (
        orders.join(items, "item")
        .groupBy("category")
        .agg(sql.sum(sql.col("quantity") * sql.col("price")), sql.count("*"))
    )
    return measure(totals, box, name, seen)


def our_join_sum(box: Path, step_rows: int, rows: int, seen: Sums | None = None) -> float:
    """Rows a second of the same, durable, a version after every batch, one worker in this process."""
    orders = pa.table(orders_of(rows))
    pipeline = DurablePipeline(box / f"ours-{step_rows}-{rows}", ours.circuit(), 1, InProcessRuntime)
    try:
        pipeline.push(pa.table(items_now()), "items")
        seconds = 0.0
        for first in range(0, rows, step_rows):
            started = time.perf_counter()
            pipeline.push(orders.slice(first, step_rows), "orders")
            pipeline.step()
            pipeline.commit()
            seconds += time.perf_counter() - started if first else 0.0
        if seen is not None:
            view = pipeline.runtime.read_view("totals", pipeline.layout).to_pylist()
            seen.update({row["category"]: (row["paid"], row["orders"]) for row in view})
        return (rows - step_rows) / seconds if seconds else 0.0
    finally:
        pipeline.close()


def same_answers(spark: SparkSession, box: Path, rows: int = 60_000) -> None:
    """Both engines say what numpy says; also compiles and warms up."""
    theirs: Sums = {}
    mine: Sums = {}
    join_sum_both(spark, box, rows // 3, rows, theirs)
    our_join_sum(box, rows // 3, rows, mine)
    expected = sums_of(orders_of(rows))
    if not theirs == mine == expected:
        raise SystemExit("the engines disagree about the sums")


def with_state_on_both_sides(spark: SparkSession, box: Path, rows: int, steps: list[int]) -> dict[str, object]:
    """Theirs and ours, one after the other."""
    same_answers(spark, box)
    figures: dict[str, object] = {}
    for step_rows in steps:
        theirs, mine = join_sum_both(spark, box, step_rows, rows), our_join_sum(box, step_rows, rows)
        figures[f"join_sum_both_sides_rows_per_s_in_batches_of_{step_rows}"] = round(theirs)
        figures[f"ours_durable_rows_per_s_in_batches_of_{step_rows}"] = round(mine)
        figures[f"ratio_ours_to_theirs_in_batches_of_{step_rows}"] = mine / theirs
    return figures


def stateless_side(spark: SparkSession, box: Path, rows: int, steps: list[int]) -> dict[str, object]:
    """Count per key, and the join with a static table."""
    figures: dict[str, object] = {}
    for step_rows in steps:
        counted, joined = count_per_key(spark, box, step_rows, rows), join_sum_static(spark, box, step_rows, rows)
        figures[f"count_per_key_rows_per_s_in_batches_of_{step_rows}"] = round(counted)
        figures[f"join_sum_rows_per_s_in_batches_of_{step_rows}"] = round(joined)
    return figures


def main() -> None:
    """Measure, print, keep."""
    parser = report.parser(__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of every workload")
    parser.add_argument("--both", action="store_true", help="only the join with state on both sides")
    arguments = parser.parse_args()
    steps = [size for size in (100_000, 1_000_000) if 2 * size <= arguments.rows]
    box = Path(tempfile.mkdtemp(prefix="structured-streaming-"))
    spark = spark_sql.session(2)
    try:
        figures: dict[str, object] = {"rows": arguments.rows}
        if not arguments.both:
            figures |= stateless_side(spark, box, arguments.rows, steps)
        figures |= with_state_on_both_sides(spark, box, arguments.rows, steps)
        wanted = {name: report.at_least(10.0) for name in figures if name.startswith("ratio_ours")}
        report.keep("structured_streaming", figures, wanted)
    finally:
        spark.stop()
        shutil.rmtree(box, ignore_errors=True)


if __name__ == "__main__":
    main()
