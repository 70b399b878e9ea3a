"""Nexmark from memory, in process, one worker: events a second of CPU for each query, its changes produced in every step.

`python -m benchmarks.nexmark [--events 1000000] [--steps 100000 10000] [--queries q4 q9] [--append-only]
[--profile [FILE]] [--peers duckdb] [--spacing-us 10000] [--runs 1]`. Beside each figure the Rust crate's on such a core (10 ms of
event time between events; it produces no output and parses nothing) and the ratio; twice the crate is the target in steps
of 100 k, as much as the crate in steps of 10 k and for queries without state. The circuits materialize nothing beyond what
their operators keep. Every answer is compared with DuckDB's, on the events that warm up.

`--peers duckdb` runs the query in DuckDB again after every step over all events so far, on one thread, as we have one worker,
and compares the processor seconds of all steps, and those of the last three tenths of the steps, where the history is long.
`--peers spark` asks Spark SQL once over all events, warm, by the clock, beside our last steps (of the last `--steps`); it does
not take the text of all queries, which are DuckDB's.

`--profile` prints the plan of each query with its figures and what the time of each node went into; with a file name it also
writes that as a flame graph for speedscope.app (`benchmarks.profiling`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import dbsp
from benchmarks import profiling, report
from benchmarks.nexmark.generator import Generator, Tables
from benchmarks.nexmark.queries import QUERIES, SIDE_KEYS
from benchmarks.nexmark.tables import APPEND_ONLY, COLUMNS, declared
from benchmarks.peers import duck

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


WANTED = {100_000: 2.0, 10_000: 1.0}


@dataclass(frozen=True, slots=True)
class Played:
    """What playing all steps took: processor seconds of each, by the clock too, rows of state at the end, the plan's figures."""

    seconds: list[float]
    clock_s: list[float]
    state_rows: int
    plan: str

    @property
    def whole_s(self) -> float:
        """All steps."""
        return sum(self.seconds)


def run_query(name: str, steps: list[Tables], compare: bool, workers: int = 1) -> Played:
    """Play all steps, and compare the answer if it is wanted."""
    circuit = dbsp.circuit(name, {"v": QUERIES[name].build()}, materialize=compare)
    tables = {table.name for table in circuit.tables}
    seconds, by_clock = [], []
    with dbsp.open(circuit, workers=workers) as run:
        if "side" in tables:
            run.push("side", SIDE)
        for step in steps:
            started, clock = time.process_time(), time.perf_counter()
            for table in tables & COLUMNS.keys():
                run.push(table, step[table])
            run.step()
            run.forget_outputs()
            seconds.append(time.process_time() - started)
            by_clock.append(time.perf_counter() - clock)
        if compare:
            _, expected = duck.recomputed([whole(steps)], QUERIES[name].sql, 1, {"side": SIDE})
            duck.check(name, run.view("v").to_arrow(), expected)
        state = sum(total.state_rows for total in run.totals.by_node.values())
        return Played(seconds, by_clock, state, run.explain())


def whole(steps: list[Tables]) -> Tables:
    """All steps as one."""
    return {table: pa.concat_tables([step[table] for step in steps]) for table in COLUMNS}


@dataclass(slots=True)
class Figures:
    """What is kept of a run, and what it should be."""

    kept: dict[str, object]
    targets: dict[str, report.Target]

    def add(self, name: str, step: int, ours: Played, events: int) -> str:
        """One query: its speed, its state, and the crate's."""
        speed, key = events / ours.whole_s, f"{name}_events_per_cpu_s_in_steps_of_{step}"
        self.kept[key] = round(speed)
        self.kept[f"{name}_state_rows_in_steps_of_{step}"] = ours.state_rows
        rust = RUST.get(step, {}).get(name)
        if rust is not None:
            self.targets[key] = report.at_least(rust * (WANTED[step] if QUERIES[name].stateful else 1.0))
        ratio = f"{speed / rust:6.2f} times the crate" if rust else ""
        return f"{speed:>12,.0f} events a CPU second  {ours.state_rows:>12,} rows of state  {ratio}"

    def add_duckdb(self, name: str, step: int, ours: Played, seconds: list[float]) -> str:
        """DuckDB's time for the same by ours: of all steps, and of the last ones."""
        last = max(len(seconds) * 3 // 10, 1)
        ratios = {
            f"{name}_duckdb_by_ours_in_steps_of_{step}": sum(seconds) / ours.whole_s,
            f"{name}_duckdb_by_ours_in_last_steps_of_{step}": sum(seconds[-last:]) / sum(ours.seconds[-last:]),
        }
        self.kept |= {key: round(ratio, 3) for key, ratio in ratios.items()}
        if QUERIES[name].stateful:
            self.targets[f"{name}_duckdb_by_ours_in_last_steps_of_{step}"] = report.at_least(1.0)
        return "DuckDB's time by ours: all steps {:.2f}, last steps {:.2f}".format(*ratios.values())


def add_spark(figures: Figures, steps: list[Tables], step: int, found: dict[str, Played]) -> None:
    """Spark SQL's time for each query over all events, by our last steps', by the clock."""
    from benchmarks.peers import spark_sql  # noqa: PLC0415 (it needs PySpark)

    with spark_sql.Tables(whole(steps) | {"side": SIDE}, cores=1) as there:
        for name, ours in found.items():
            again_ms = spark_sql.milliseconds(there, "nexmark", name, QUERIES[name].sql)
            if again_ms is None:
                continue
            last = max(len(ours.clock_s) * 3 // 10, 1)
            ratio = again_ms / (1000 * sum(ours.clock_s[-last:]) / last)
            figures.kept[f"{name}_spark_sql_ms"] = round(again_ms, 1)
            figures.kept[f"{name}_spark_sql_by_ours_in_last_steps_of_{step}"] = round(ratio, 2)
            if QUERIES[name].stateful:
                figures.targets[f"{name}_spark_sql_by_ours_in_last_steps_of_{step}"] = report.at_least(1.0)


def main() -> None:
    """Measure, print, keep."""
    parser = report.parser(__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, nargs="+", default=[100_000, 10_000])
    parser.add_argument("--queries", nargs="+", default=list(QUERIES))
    parser.add_argument("--runs", type=int, default=1, help="the median of so many runs")
    parser.add_argument("--spacing-us", type=int, default=10_000, help="event time between two events")
    parser.add_argument("--peers", nargs="*", choices=["duckdb", "spark"], default=[])
    parser.add_argument("--profile", nargs="?", const="", metavar="FILE", help="where the time of each query goes")
    parser.add_argument("--append-only", action="store_true", help="declare the tables append-only")
    arguments = parser.parse_args()
    declared(arguments.append_only, "benchmarks.nexmark")
    kept: dict[str, object] = {"events": arguments.events, "spacing_us": arguments.spacing_us}
    figures = Figures(kept | {"append_only": APPEND_ONLY}, {})
    profile = profiling.Profile() if arguments.profile is not None else None
    warm = list(Generator(seed=1, spacing_us=arguments.spacing_us).batches(WARM_EVENTS, 100_000))
    for step in arguments.steps:
        steps = list(Generator(spacing_us=arguments.spacing_us).batches(arguments.events, step))
        played: dict[str, Played] = {}
        for name in arguments.queries:
            run_query(name, warm, compare=True)
            found = sorted(
                (run_query(name, steps, compare=False) for _ in range(arguments.runs)), key=lambda each: each.whole_s
            )
            ours = played[name] = found[len(found) // 2]
            print(f"{name:>5}  steps of {step:>7,}  {figures.add(name, step, ours, arguments.events)}", flush=True)
            if "duckdb" in arguments.peers:
                seconds, _ = duck.recomputed(steps, QUERIES[name].sql, 1, {"side": SIDE})
                print(f"{name:>5}  {figures.add_duckdb(name, step, ours, seconds)}", flush=True)
            if profile is not None:
                print(ours.plan)
                with profile.recording(f"{name}, steps of {step:,}"):
                    run_query(name, steps, compare=False)
                print(profile.table(), flush=True)
    if "spark" in arguments.peers:
        add_spark(figures, steps, step, played)
    if profile is not None and arguments.profile:
        profile.write(Path(arguments.profile))
    report.keep("nexmark", figures.kept, figures.targets)


if __name__ == "__main__":
    main()
