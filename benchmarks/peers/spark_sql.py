"""Spark SQL in batch: a query asked again over Parquet files, warm, by the clock; starting Spark is not counted.

The SQL is DuckDB's, with some words changed; what Spark SQL does not take is left out, with its reason. Seconds are by the
clock because the work is done in the JVM.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from benchmarks import report

RUNS = 3
WORDS = {
    " // ": " div ",
    "strftime(": "date_format(",
    "'%Y-%m-%d'": "'yyyy-MM-dd'",
    "'%H:%M'": "'HH:mm'",
    "filter (": "filter (where ",
    "::bigint": "",
    "::double": "",
}
STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def session(cores: int) -> SparkSession:
    """A local session; streams keep their state in RocksDB."""
    made: SparkSession = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("peer")
        .config("spark.sql.streaming.stateStore.providerClass", STORE)
        .config("spark.sql.shuffle.partitions", cores)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", False)
        .config("spark.ui.showConsoleProgress", False)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("OFF")
    return made


class Tables:
    """Arrow tables as Parquet files that Spark sees by name."""

    def __init__(self, tables: Mapping[str, pa.Table], cores: int) -> None:
        """What to write, and the cores that Spark may use."""
        self._tables, self._cores = tables, cores
        self._undo = ExitStack()
        self.spark: SparkSession

    def __enter__(self) -> Self:
        """Write them and start Spark."""
        folder = Path(self._undo.enter_context(tempfile.TemporaryDirectory(prefix="spark-sql-")))
        self.spark = session(self._cores)
        self._undo.callback(self.spark.stop)
        for name, rows in self._tables.items():
            pq.write_table(rows, folder / f"{name}.parquet", coerce_timestamps="us")
            self.spark.read.parquet(str(folder / f"{name}.parquet")).createOrReplaceTempView(name)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it and remove the files."""
        self._undo.close()


def translated(sql: str) -> str:
    """DuckDB's words that Spark SQL has others for."""
    for duckdb_word, spark_word in WORDS.items():
        sql = sql.replace(duckdb_word, spark_word)
    return sql


def milliseconds(tables: Tables, suite: str, name: str, sql: str) -> float | None:
    """The median of some runs after one that warms up, the result fetched as Arrow; none if Spark does not take it."""
    seconds = []
    try:
        for _ in range(RUNS + 1):
            started = time.perf_counter()
            tables.spark.sql(translated(sql)).toArrow()
            seconds.append(time.perf_counter() - started)
    except PySparkException as error:
        report.skipped(suite, f"{name} in Spark SQL", " ".join(str(error).split())[:100])
        return None
    return 1000 * statistics.median(seconds[1:])
