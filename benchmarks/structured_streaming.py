"""The same two workloads on Spark Structured Streaming with the RocksDB state store, `local[2]`, two shuffle partitions.

`python -m benchmarks.structured_streaming`. Count per key: 5 M rows, 1 M keys, in batches of 100 k and 1 M rows, output in
update mode (the changed rows). Join then sum: orders with a static table of items, summed per category; Spark keeps no state
for a static side, so its task is the lighter one. Input are Parquet files, one per batch; rows a second from the
second batch on, so that the start of the JVM and of the query is left out.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from benchmarks import report
from benchmarks.count_per_key import KEYS, ROWS
from benchmarks.join_sum import CATEGORIES, ITEMS

STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def session() -> SparkSession:
    """A local session with the RocksDB state store."""
    return (
        SparkSession.builder.master("local[2]")
        .appName("structured streaming")
        .config("spark.sql.streaming.stateStore.providerClass", STORE)
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", False)
        .config("spark.ui.showConsoleProgress", False)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )


def write_batches(folder: Path, columns: dict[str, np.ndarray], rows: int, step_rows: int) -> None:
    """One Parquet file per batch, in order of name and time."""
    folder.mkdir()
    for number, first in enumerate(range(0, rows, step_rows)):
        part = pa.table({name: values[first : first + step_rows] for name, values in columns.items()})
        pq.write_table(part, folder / f"{number:05d}.parquet")


def measure(query: DataFrame, box: Path, name: str) -> float:
    """Rows a second of a query that reads one file per batch, from its second batch on."""
    running = (
        query.writeStream.outputMode("update")
        .format("noop")
        .option("checkpointLocation", str(box / f"{name}.checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
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


def join_sum(spark: SparkSession, box: Path, step_rows: int, rows: int = ROWS) -> float:
    """Rows a second of the sum per category of orders joined with items."""
    name = f"orders-{step_rows}"
    generator = np.random.default_rng(3)
    orders = {"item": generator.integers(0, ITEMS, rows), "quantity": generator.integers(1, 10, rows)}
    write_batches(box / name, orders, rows, step_rows)
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


def main() -> None:
    """Measure, print, keep."""
    box = Path(tempfile.mkdtemp(prefix="structured-streaming-"))
    spark = session()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        figures: dict[str, object] = {}
        for step_rows in (100_000, 1_000_000):
            figures[f"count_per_key_rows_per_s_in_batches_of_{step_rows}"] = round(count_per_key(spark, box, step_rows))
            figures[f"join_sum_rows_per_s_in_batches_of_{step_rows}"] = round(join_sum(spark, box, step_rows))
        report.keep("structured_streaming", figures)
    finally:
        spark.stop()
        shutil.rmtree(box, ignore_errors=True)


if __name__ == "__main__":
    main()
