"""The same workloads on Bytewax, Pathway, Flink SQL and the Rust `dbsp` crate, beside ours in process.

`python -m benchmarks.outsiders [--rows 2000000] [--events 1000000] [--step 100000] [--peers crate flink] [--runs 1]`.
`python -m benchmarks.peers.install` makes their environments first; a peer without one is left out, with the reason.

Count per key, join + sum, and Nexmark's q4 (more of its queries beside the crate: `python -m benchmarks.nexmark --peers crate`).
Each peer runs in a process of its own from files; its start is not counted, and reading the files only for Flink and Pathway,
which read CSV while they run. Ours and the crate take steps of `--step` rows from memory, on one worker, and the changes of
every step come out; both have played all steps once before. Flink: SQL, one slot, state in RocksDB, a checkpoint every two
seconds, mini batches. Pathway: one bulk batch. Bytewax: written by hand, only inserts, no recovery. Ratios are of processor
seconds (for Flink those of its JVM, compilation of Java code included) and of the clock. All answers are compared with DuckDB's.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dbsp
from benchmarks import count_per_key, join_sum, report
from benchmarks.nexmark.generator import Generator
from benchmarks.nexmark.queries import QUERIES
from benchmarks.peers import crate, duck, install

TIMEOUT_S = 900
WORKLOADS = ("count_per_key", "join_sum", "q4")
Q4_COLUMNS = {"auction": ["id", "category", "ts", "expires"], "bid": ["auction", "price", "ts"]}
WANTED = {"crate": 2.0, "flink": 10.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A circuit, the same in SQL, and its rows: tables that are there before, and the steps."""

    circuit: dbsp.Circuit
    sql: str
    before: Mapping[str, pa.Table]
    steps: list[Mapping[str, pa.Table]]

    @property
    def rows(self) -> int:
        """Rows of all steps."""
        return sum(table.num_rows for step in self.steps for table in step.values())

    def answer(self) -> pa.Table:
        """DuckDB's."""
        whole = {name: pa.concat_tables([step[name] for step in self.steps]) for name in self.steps[0]}
        return duck.asked([whole], self.sql, 1, self.before)[1]


def workload(name: str, rows: int, events: int, step: int) -> Workload:
    """What the name says."""
    if name == "count_per_key":
        steps: list[Any] = [{"t": batch} for batch in count_per_key.batches(rows, step)]
        sql = "select k, count(*) as n from t group by k"
        return Workload(circuit=count_per_key.circuit(), sql=sql, before={}, steps=steps)
    if name == "join_sum":
        steps = [{"orders": batch} for batch in join_sum.orders(rows, step)]
        return Workload(circuit=join_sum.circuit(), sql=join_sum.SQL, before={"items": join_sum.items()}, steps=steps)
    generated = Generator().batches(events, step)
    steps = [{table: made[table].select(columns) for table, columns in Q4_COLUMNS.items()} for made in generated]
    tables = {table: dbsp.table(table, _types(steps[0][table])) for table in Q4_COLUMNS}
    joined = tables["auction"].join(tables["bid"], left_on="id", right_on="auction", suffix="_bid")
    in_time = joined.filter(dbsp.col("ts_bid").between(dbsp.col("ts"), dbsp.col("expires")))
    best = in_time.group_by("id", "category").aggregate(final=dbsp.max("price"))
    sums = best.group_by("category").aggregate(total=dbsp.sum("final"), n=dbsp.count())
    circuit = dbsp.circuit("q4", {"v": sums.select("category", average=dbsp.col("total") // dbsp.col("n"))})
    return Workload(circuit=circuit, sql=QUERIES["q4"].sql, before={}, steps=steps)


def _types(rows: pa.Table) -> dict[str, pa.DataType]:
    return dict(zip(rows.column_names, rows.schema.types, strict=True))


def ours(work: Workload, expected: pa.Table | None) -> tuple[float, float]:
    """(seconds by the clock, processor seconds) of all steps; the answer is compared, if it is given."""
    with dbsp.open(work.circuit, workers=1) as run:
        for name, rows in work.before.items():
            run.push(name, rows)
        run.step()
        clock, cpu = time.perf_counter(), time.process_time()
        for step in work.steps:
            for name, rows in step.items():
                run.push(name, rows)
            run.step()
            run.forget_outputs()
        found = time.perf_counter() - clock, time.process_time() - cpu
        if expected is not None:
            duck.check("ours", run.view(run.plan.views[0].name).to_arrow(), expected)
        return found


def write(work: Workload, folder: Path) -> None:
    """For the peers: whole tables as Parquet, and raw columns for the crate."""
    folder.mkdir()
    tables = {name: [rows] for name, rows in work.before.items()}
    tables |= {name: [step[name] for step in work.steps] for name in work.steps[0]}
    for name, parts in tables.items():
        pq.write_table(pa.concat_tables(parts), folder / f"{name}.parquet")
    crate.write(tables, folder)


def on_crate(start: list[str], name: str, folder: Path, expected: pa.Table) -> tuple[float, float] | str:
    """The crate's seconds of a second run in its process; the first is compared."""
    try:
        with crate.Crate(start, name, folder) as there:
            duck.check(f"crate, {name}", there.answer(expected.column_names), expected)
            taken = there.play()
    except crate.CrateError as error:
        return str(error)
    return taken.seconds, taken.cpu_s


def theirs(peer: str, name: str, folder: Path, expected: pa.Table) -> tuple[float, float] | str:
    """The same of a peer, or why there is none."""
    start = install.command(peer)
    if isinstance(start, str):
        return start
    if peer == "crate":
        return on_crate(start, name, folder, expected)
    out = folder / f"{peer}.i64"
    try:
        done = subprocess.run(
            [*start, name, str(folder), str(out)], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"took more than {TIMEOUT_S} s"
    if done.returncode:
        return f"failed: {' '.join(done.stderr.strip().splitlines()[-2:])[-300:]}"
    found = json.loads(done.stdout.strip().splitlines()[-1])
    if "refused" in found:
        return str(found["refused"])
    words = np.fromfile(out, np.int64).reshape(-1, expected.num_columns)
    duck.check(f"{peer}, {name}", pa.table(list(words.T), names=expected.column_names), expected)
    return found["seconds"], found["cpu_seconds"]


def main() -> None:
    """Measure, print, keep."""
    parser = report.parser(__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--step", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--peers", nargs="+", choices=install.NAMES, default=list(install.NAMES))
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    arguments = parser.parse_args()
    figures: dict[str, object] = {"rows": arguments.rows, "events": arguments.events, "step": arguments.step}
    targets = {}
    with tempfile.TemporaryDirectory(prefix="outsiders-") as box:
        for name in arguments.workloads:
            work = workload(name, arguments.rows, arguments.events, arguments.step)
            expected, folder = work.answer(), Path(box) / name
            write(work, folder)
            ours(work, expected)  # compiles, warms up, compares
            mine = medians([ours(work, None) for _ in range(max(arguments.runs, report.RUNS))])
            figures |= {
                f"{name}_rows_per_s": round(work.rows / mine[0]),
                f"{name}_rows_per_cpu_s": round(work.rows / mine[1]),
            }
            for peer in arguments.peers:
                runs = [theirs(peer, name, folder, expected) for _ in range(arguments.runs)]
                reasons = [run for run in runs if isinstance(run, str)]
                if reasons:
                    report.skipped("outsiders", f"{name} on {peer}", reasons[0])
                    continue
                found = medians([run for run in runs if not isinstance(run, str)])
                for kind, our, their in zip(("s", "cpu_s"), mine, found, strict=True):
                    figures[f"{name}_{peer}_rows_per_{kind}"] = round(work.rows / their)
                    figures[f"{name}_ratio_to_{peer}_per_{kind}"] = their / our
                targets[f"{name}_ratio_to_{peer}_per_cpu_s"] = report.at_least(WANTED.get(peer, 1.0))
                print(f"{name:<16} {peer:<8} {work.rows / found[1]:>12,.0f} rows a processor second", flush=True)
    report.keep("outsiders", figures, targets)


def medians(found: list[tuple[float, float]]) -> tuple[float, float]:
    """Of each."""
    return statistics.median(each[0] for each in found), statistics.median(each[1] for each in found)


if __name__ == "__main__":
    main()
