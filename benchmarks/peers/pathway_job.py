"""The workloads on Pathway, one bulk batch, nothing persisted: `python pathway_job.py <workload> <folder> <answer>`.

Runs in Pathway's own environment. The time is that of its run: reading CSV files, computing, writing the answer as CSV.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pathway as pw
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv


def table(folder, box, name):
    """The table as a CSV file, and as Pathway reads it, where `id` is a name of its own; all columns are whole numbers."""
    rows = pq.read_table(f"{folder}/{name}.parquet")
    rows = pa.table({column: rows[column].combine_chunks().cast("int64") for column in rows.column_names})
    rows = rows.rename_columns(["number" if column == "id" else column for column in rows.column_names])
    (box / name).mkdir()
    csv.write_csv(rows, box / name / "rows.csv")
    schema = pw.schema_from_dict({column: {"dtype": int} for column in rows.column_names})
    return pw.io.csv.read(str(box / name), schema=schema, mode="static")


def count_per_key(read):
    t = read("t")
    return t.groupby(t.k).reduce(t.k, n=pw.reducers.count())


def join_sum(read):
    orders, items = read("orders"), read("items")
    joined = orders.join(items, orders.item == items.item).select(items.category, paid=orders.quantity * items.price)
    return joined.groupby(joined.category).reduce(
        joined.category, paid=pw.reducers.sum(joined.paid), orders=pw.reducers.count()
    )


def q4(read):
    auction, bid = read("auction"), read("bid")
    joined = auction.join(bid, auction.number == bid.auction).select(
        auction.number, auction.category, begins=auction.ts, expires=auction.expires, price=bid.price, ts=bid.ts
    )
    in_time = joined.filter((joined.ts >= joined.begins) & (joined.ts <= joined.expires))
    best = in_time.groupby(in_time.number, in_time.category).reduce(
        in_time.category, final=pw.reducers.max(in_time.price)
    )
    sums = best.groupby(best.category).reduce(best.category, total=pw.reducers.sum(best.final), n=pw.reducers.count())
    return sums.select(sums.category, average=sums.total // sums.n)


def main():
    _, workload, folder, out = sys.argv
    with tempfile.TemporaryDirectory() as name:
        box = Path(name)
        made = {"count_per_key": count_per_key, "join_sum": join_sum, "q4": q4}[workload](
            lambda of: table(folder, box, of)
        )
        pw.io.csv.write(made, str(box / "answer.csv"))
        clock, cpu = time.perf_counter(), time.process_time()
        pw.run(monitoring_level=pw.MonitoringLevel.NONE)
        found = {"seconds": time.perf_counter() - clock, "cpu_seconds": time.process_time() - cpu}
        rows = csv.read_csv(box / "answer.csv")
    columns = [rows[column].to_numpy() for column in rows.column_names if column not in ("time", "diff")]
    weights = rows["diff"].to_numpy()
    assert (weights == 1).all(), "one bulk batch says nothing twice"
    np.stack(columns, axis=1).astype(np.int64).tofile(out)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
