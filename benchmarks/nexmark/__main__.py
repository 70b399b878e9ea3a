"""Nexmark from memory, in process, one worker: events a second of CPU for each query, its changes produced in every step.

`python -m benchmarks.nexmark [--events 1000000] [--steps 100000 10000] [--queries q4 q9] [--append-only]
[--profile]`. Beside each figure the
Rust crate's on such a core (10 ms of event time between events; it produces no output and parses nothing) and the ratio. The
circuits materialize nothing beyond what their operators keep. Every answer is compared with DuckDB's.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from typing import Any

import duckdb
import pyarrow as pa

import dbsp
from benchmarks import report
from benchmarks.nexmark.generator import Generator, Tables
from benchmarks.nexmark.queries import QUERIES, SIDE_KEYS
from benchmarks.nexmark.tables import APPEND_ONLY, COLUMNS, SWITCH

SIDE = pa.table({"key": range(SIDE_KEYS), "value": [f"value {number}" for number in range(SIDE_KEYS)]})
WARM_EVENTS = 200_000
RUST = {
    100_000: {
        "q0": 2020e3, "q1": 905e3, "q2": 1835e3, "q3": 1538e3, "q4": 1053e3, "q6": 840e3, "q9": 242e3, "q13": 885e3,
        "q14": 1449e3, "q15": 840e3, "q16": 342e3, "q17": 554e3, "q18": 573e3, "q19": 565e3, "q20": 639e3, "q21": 1449e3,
        "q22": 1235e3,
    },
    10_000: {
        "q0": 1770e3, "q1": 1075e3, "q2": 1818e3, "q3": 1626e3, "q4": 971e3, "q6": 758e3, "q9": 298e3, "q13": 760e3,
        "q14": 1493e3, "q15": 554e3, "q16": 192e3, "q17": 335e3, "q18": 529e3, "q19": 517e3, "q20": 683e3, "q21": 1299e3,
        "q22": 1290e3,
    },
}  # fmt: skip


def run_query(name: str, steps: list[Tables], compare: bool) -> tuple[float, int, str]:
    """CPU seconds to play all steps, the rows of state before the last one, and the plan with its figures."""
    circuit = dbsp.circuit(name, {"v": QUERIES[name].build()}, materialize=compare)
    tables = {table.name for table in circuit.tables}
    with dbsp.open(circuit, workers=1) as run:
        if "side" in tables:
            run.push("side", SIDE)
        started = time.process_time()
        for step in steps:
            for table in tables & COLUMNS.keys():
                run.push(table, step[table])
            run.step()
            run.forget_outputs()
        seconds = time.process_time() - started
        if compare:
            check(name, steps, run.view("v").to_arrow())
        state = sum(total.state_rows for total in run.totals.by_node.values())
        return seconds, state, run.explain()


def check(name: str, steps: list[Tables], found: pa.Table) -> None:
    """Stop if the answer is not DuckDB's."""
    with duckdb.connect() as connection:
        for table in COLUMNS:
            connection.register(table, pa.concat_tables([step[table] for step in steps]))
        connection.register("side", SIDE)
        expected = connection.sql(QUERIES[name].sql).to_arrow_table()
    if rows(found) != rows(expected):
        raise SystemExit(f"{name}: the answer is not DuckDB's: rows={found.num_rows} expected={expected.num_rows}")


def rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """The rows, each as often as it is there."""
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, nargs="+", default=[100_000, 10_000])
    parser.add_argument("--queries", nargs="+", default=list(QUERIES))
    parser.add_argument("--profile", action="store_true", help="print the plan of each query with its figures")
    parser.add_argument("--append-only", action="store_true", help="declare the tables append-only")
    arguments = parser.parse_args()
    if arguments.append_only != APPEND_ONLY:
        again = os.environ | {SWITCH: "1" if arguments.append_only else "0"}
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks.nexmark", *sys.argv[1:]], again)
    figures: dict[str, object] = {"events": arguments.events, "spacing_us": Generator().spacing_us}
    figures["append_only"] = APPEND_ONLY
    warm = list(Generator(seed=1).batches(WARM_EVENTS, 100_000))
    for step in arguments.steps:
        steps = list(Generator().batches(arguments.events, step))
        for name in arguments.queries:
            run_query(name, warm, compare=True)
            seconds, state, plan = run_query(name, steps, compare=False)
            speed = arguments.events / seconds
            figures[f"{name}_events_per_cpu_s_in_steps_of_{step}"] = round(speed)
            figures[f"{name}_state_rows_in_steps_of_{step}"] = state
            rust = RUST.get(step, {}).get(name)
            ratio = f"{speed / rust:6.2f} times the crate" if rust else ""
            print(
                f"{name:>5}  steps of {step:>7,}  {speed:>12,.0f} events a CPU second  {state:>12,} rows of state  {ratio}",
                flush=True,
            )
            if arguments.profile:
                print(plan)
    report.keep("nexmark", figures)


if __name__ == "__main__":
    main()
