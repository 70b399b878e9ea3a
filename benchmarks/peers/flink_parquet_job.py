"""A query of Flink SQL from Parquet files to Parquet files: `python flink_parquet_job.py <request.json>`.

Runs in PyFlink's own environment, in streaming mode, exactly once: files are read as they are found (all are there, so the job
ends by itself), state lies in RocksDB, a checkpoint is taken every so many seconds and makes output files visible. What is
asked for, a JSON object: `query` and, if its answer changes, `changes`; `tables`; `parallelism` and `checkpoint_s`; folders
`first` (a file of each table), `whole` (all files), `box` (scratch) and `out`.

Parquet takes rows that are only added, so an answer that changes is written as its changes: `to_changelog` puts what happens to
a row, old and new, in a column `op` (Flink 2.3).

Jobs over the first files come before: one starts the JVM and compiles, two say what starting and the first files cost; their mean
is taken off. A job ends without one more checkpoint, for which it would wait up to a whole interval: when the input ends, the
sink makes its last files visible all the same. Mini batches and the splitting of distinct counts are as in Flink's Nexmark.
"""

import json
import statistics
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from flink_job import cpu_s, end_jvm  # beside this file, whose folder Python searches first
from pyflink.table import EnvironmentSettings, TableEnvironment

SETTINGS = {
    "state.backend.type": "rocksdb",
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    "execution.checkpointing.incremental": "true",
    "execution.checkpointing.checkpoints-after-tasks-finish": "false",  # the sink commits its files when input ends
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.distinct-agg.split.enabled": "true",
    "pipeline.object-reuse": "true",
    "taskmanager.memory.managed.size": "2g",
    "table.local-time-zone": "UTC",
}
FILES = "'connector' = 'filesystem', 'format' = 'parquet', 'parquet.utc-timezone' = 'true'"


def sql_type(found):
    """A column's type in Flink SQL."""
    if pa.types.is_timestamp(found):
        return "timestamp(6)"
    return {"int64": "bigint", "string": "string", "large_string": "string"}[str(found)]


def environment(request, folder):
    """A table environment that knows the tables in that folder."""
    made = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for key, value in SETTINGS.items():
        made.get_config().set(key, value)
    made.get_config().set("parallelism.default", str(request["parallelism"]))
    made.get_config().set("execution.checkpointing.interval", f"{request['checkpoint_s']}s")
    made.get_config().set("execution.checkpointing.dir", f"file://{request['box']}/checkpoints")
    for name in request["tables"]:
        schema = pq.read_schema(next(Path(folder, name).glob("*.parquet")))
        fields = ", ".join(f"`{column.name}` {sql_type(column.type)}" for column in schema)
        made.execute_sql(f"create table {name} ({fields}) with ({FILES}, 'path' = 'file://{folder}/{name}')")
    return made


def run(request, folder, out):
    """(seconds by the clock, processor seconds) of the job."""
    made = environment(request, folder)
    made.execute_sql(f"create temporary view answer as {request['query']}")
    written = "to_changelog(input => table answer)" if request["changes"] else "answer"
    made.execute_sql(f"create temporary view written as select * from {written}")
    fields = ", ".join(
        f"`{row[0]}` {row[1].removesuffix(' NOT NULL')}" for row in made.execute_sql("describe written").collect()
    )
    made.execute_sql(f"create table sink ({fields}) with ({FILES}, 'path' = 'file://{out}')")
    clock, cpu = time.perf_counter(), cpu_s()
    made.execute_sql("insert into sink select * from written").wait()
    return time.perf_counter() - clock, cpu_s() - cpu


def main():
    request = json.loads(Path(sys.argv[1]).read_text())
    starts = [run(request, request["first"], f"{request['box']}/first-{turn}") for turn in range(3)][1:]
    whole = run(request, request["whole"], request["out"])
    end_jvm()
    seconds, cpu_seconds = (
        all_ - statistics.mean(start) for all_, start in zip(whole, zip(*starts, strict=True), strict=True)
    )
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds}))


if __name__ == "__main__":
    main()
