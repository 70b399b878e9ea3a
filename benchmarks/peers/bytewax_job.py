"""The workloads on Bytewax, hand-written, insert-only, without recovery: `python bytewax_job.py <workload> <folder> <answer>`.

Runs in Bytewax's own environment. Rows are made into Python objects before the time that is measured. Each row of output is
the newest answer of its key, so the last one stands.
"""

import json
import sys
import time

import bytewax.operators as op
import numpy as np
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import TestingSource, run_main

BATCH = 10_000
latest = {}


class Partition(StatelessSinkPartition):
    def write_batch(self, items):
        latest.update(items)


class Latest(DynamicSink):
    def build(self, _step_id, _worker_index, _worker_count):
        return Partition()


def columns(folder, table):
    return pq.read_table(f"{folder}/{table}.parquet")


def numbers(table, name):
    return table[name].combine_chunks().cast("int64").to_pylist()


def count_per_key(folder):
    rows = [(str(k), 1) for k in numbers(columns(folder, "t"), "k")]

    def count(state, one):
        state = (state or 0) + one
        return state, state

    flow = Dataflow("count")
    stream = op.input("in", flow, TestingSource(rows, BATCH))
    op.output("out", op.stateful_map("count", stream, count), Latest())
    return flow, lambda: [(int(key), count) for key, count in latest.items()]


def join_sum(folder):
    items, orders = columns(folder, "items"), columns(folder, "orders")
    names = ("item", "category", "price")
    of = {item: (str(c), p) for item, c, p in zip(*(numbers(items, name) for name in names), strict=True)}
    rows = list(zip(numbers(orders, "item"), numbers(orders, "quantity"), strict=True))

    def priced(row):
        category, price = of[row[0]]
        return category, row[1] * price

    def add(state, paid):
        total, n = state or (0, 0)
        state = (total + paid, n + 1)
        return state, state

    flow = Dataflow("join")
    stream = op.map("price", op.input("in", flow, TestingSource(rows, BATCH)), priced)
    op.output("out", op.stateful_map("sum", stream, add), Latest())
    return flow, lambda: [(int(key), *sums) for key, sums in latest.items()]


def q4(folder):
    auction, bid = columns(folder, "auction"), columns(folder, "bid")
    names = ("id", "category", "ts", "expires")
    rows = [
        (ts, (str(i), ("a", c, ts, e))) for i, c, ts, e in zip(*(numbers(auction, name) for name in names), strict=True)
    ]
    rows += [
        (ts, (str(a), ("b", p, ts, 0)))
        for a, p, ts in zip(*(numbers(bid, name) for name in ("auction", "price", "ts")), strict=True)
    ]
    rows = [row for _, row in sorted(rows, key=lambda row: row[0])]

    def best(state, row):
        auction, waiting, most = state or (None, [], None)
        if row[0] == "a":
            auction = row
        else:
            waiting.append(row)
        before = most
        if auction is not None:
            for _, price, ts, _ in waiting:
                if auction[2] <= ts <= auction[3] and (most is None or price > most):
                    most = price
            waiting = []
        out = [] if most == before else [(str(auction[1]), (before, most))]
        return (auction, waiting, most), out

    def add(state, change):
        total, n = state or (0, 0)
        before, most = change
        state = (total + most - (before or 0), n + (before is None))
        return state, state

    flow = Dataflow("q4")
    stream = op.stateful_map("best", op.input("in", flow, TestingSource(rows, BATCH)), best)
    changes = op.flat_map("changes", stream, lambda pair: pair[1])
    op.output("out", op.stateful_map("sum", changes, add), Latest())
    return flow, lambda: [(int(key), total // n) for key, (total, n) in latest.items()]


def main():
    _, workload, folder, out = sys.argv
    flow, answer = {"count_per_key": count_per_key, "join_sum": join_sum, "q4": q4}[workload](folder)
    clock, cpu = time.perf_counter(), time.process_time()
    run_main(flow)
    found = {"seconds": time.perf_counter() - clock, "cpu_seconds": time.process_time() - cpu}
    np.array(answer(), np.int64).tofile(out)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
