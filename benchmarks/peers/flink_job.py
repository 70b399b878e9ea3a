"""The workloads as Flink SQL in streaming mode, one slot, state in RocksDB: `python flink_job.py <workload> <folder> <answer>`.

Runs in PyFlink's own environment. From CSV files (Parquet needs a jar that the package lacks) to a sink that drops the changes,
with a checkpoint every two seconds and mini batches. A job of one row in the same JVM is timed too and taken off: it is
what submitting a job and starting its slot costs. The answer is that of the same SQL in batch mode: no sink of the package takes
changes.
"""

import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv
from pyflink.table import EnvironmentSettings, TableEnvironment

SETTINGS = {
    "parallelism.default": "1",
    "state.backend.type": "rocksdb",
    "execution.checkpointing.interval": "2s",
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "1s",
    "table.exec.mini-batch.size": "100000",
    "taskmanager.memory.managed.size": "1g",
}
QUERIES = {
    "count_per_key": "select k, count(*) as n from t group by k",
    "join_sum": "select category, sum(quantity * price) as paid, count(*) as orders from orders join items"
    " on orders.item = items.item group by category",
    "q4": "select category, sum(final) / count(*) as average from (select auction.id, auction.category, max(bid.price)"
    " as final from auction join bid on auction.id = bid.auction where bid.ts >= auction.ts and bid.ts <="
    " auction.expires group by auction.id, auction.category) group by category",
}
TABLES = {"count_per_key": ("t",), "join_sum": ("orders", "items"), "q4": ("auction", "bid")}


def write(folder, box, name):
    """Whole and one-row CSV files of a table; its columns, all whole numbers."""
    rows = pq.read_table(f"{folder}/{name}.parquet")
    rows = pa.table({column: rows[column].combine_chunks().cast("int64") for column in rows.column_names})
    for kind, part in (("whole", rows), ("one", rows.slice(0, 1))):
        (box / kind / name).mkdir(parents=True)
        csv.write_csv(part, box / kind / name / "rows.csv", csv.WriteOptions(include_header=False))
    return rows.column_names


def environment(box, kind, tables, streaming):
    """A table environment that knows the tables."""
    mode = EnvironmentSettings.in_streaming_mode if streaming else EnvironmentSettings.in_batch_mode
    made = TableEnvironment.create(mode())
    for key, value in SETTINGS.items() if streaming else [("parallelism.default", "1")]:
        made.get_config().set(key, value)
    made.get_config().set("execution.checkpointing.dir", f"file://{box}/checkpoints")
    for name, columns in tables.items():
        fields = ", ".join(f"{column} bigint" for column in columns)
        made.execute_sql(
            f"create table {name} ({fields}) with ('connector' = 'filesystem', 'format' = 'csv',"
            f" 'path' = 'file://{box}/{kind}/{name}')"
        )
    return made


def jvm():
    """The JVM, the only child: its id, and what `/proc` says of it."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if int(fields[1]) == os.getpid():
            return int(folder.name), fields
    raise RuntimeError("Flink's JVM is gone")


def cpu_s():
    """Processor seconds of the JVM."""
    _, fields = jvm()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def end_jvm():
    """End the JVM and wait for it: so its processor time counts as this process's, not as that of others on the machine."""
    pid, _ = jvm()
    os.kill(pid, signal.SIGKILL)  # all is written; a shutdown may take for ever
    os.waitpid(pid, 0)


def run(box, kind, tables, query):
    """(seconds by the clock, processor seconds) of the job."""
    made = environment(box, kind, tables, streaming=True)
    made.execute_sql(f"create temporary view answer as {query}")
    columns = made.from_path("answer").get_schema().get_field_names()
    fields = ", ".join(f"{column} bigint" for column in columns)
    made.execute_sql(f"create table dropped ({fields}) with ('connector' = 'blackhole')")
    clock, cpu = time.perf_counter(), cpu_s()
    made.execute_sql("insert into dropped select * from answer").wait()
    return time.perf_counter() - clock, cpu_s() - cpu


def answer(box, tables, query):
    """The rows, in batch mode by way of CSV files."""
    made = environment(box, "whole", tables, streaming=False)
    made.execute_sql(f"create temporary view answer as {query}")
    columns = made.from_path("answer").get_schema().get_field_names()
    fields = ", ".join(f"{column} bigint" for column in columns)
    options = f"'connector' = 'filesystem', 'format' = 'csv', 'path' = 'file://{box}/answer'"
    made.execute_sql(f"create table written ({fields}) with ({options})")
    made.execute_sql("insert into written select * from answer").wait()
    read = csv.ReadOptions(column_names=list(columns))
    files = [file for file in sorted((box / "answer").rglob("*")) if file.is_file() and file.stat().st_size]
    rows = pa.concat_tables([csv.read_csv(file, read) for file in files])
    return np.stack([rows[column].to_numpy() for column in columns], axis=1).astype(np.int64)


def main():
    _, workload, folder, out = sys.argv
    with tempfile.TemporaryDirectory() as name:
        box = Path(name)
        tables = {table: write(folder, box, table) for table in TABLES[workload]}
        query = QUERIES[workload]
        run(box, "one", tables, query)  # starts the JVM
        start = run(box, "one", tables, query)
        whole = run(box, "whole", tables, query)
        answer(box, tables, query).tofile(out)
    end_jvm()
    print(json.dumps({"seconds": whole[0] - start[0], "cpu_seconds": whole[1] - start[1]}))


if __name__ == "__main__":
    main()
