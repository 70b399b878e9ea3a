"""Nexmark from memory, in process, one worker: events a second of CPU for each query, its changes produced in every step.

`python -m benchmarks.nexmark [--events 1000000] [--steps 100000 10000] [--queries q4 q9] [--append-only] [--keys [auction
person]] [--profile [FILE]] [--peers duckdb crate] [--duckdb-steps 5] [--spacing-us 10000] [--events-from FOLDER] [--runs 1]`.
Beside each figure an older one of the Rust crate's on such a core (10 ms of event time between events; it produces no output
and parses nothing) and the ratio; twice the crate is the target in steps of 100 k, as much as the crate in steps of 10 k and
for queries without state. The circuits materialize nothing beyond what their operators keep. Every answer is compared with
DuckDB's, on the events that warm up.

`--events-from FOLDER` plays events that others made (Parquet, a file or folder per table: `benchmarks.nexmark.events`), the first
`--events` of them; all of them are compared. `--peers crate` plays the queries that have a program for the Rust crate there
too: the same steps, on the columns that each needs, in a process that stays, both sides in turn (`benchmarks.peers.crate`).
Ratios are per processor second and by the clock, of the medians of `--runs`.

`--peers duckdb` runs the query in DuckDB again after every step over all events so far, on one thread, as we have one worker,
and compares the processor seconds of all steps, and those of the last three tenths of the steps, where the history is long.
With `--duckdb-steps N` it is asked after the last N steps alone, and only these are compared: over 10 M events that is most of
what there is to know, and after all of 100 steps it would be asked for minutes.
`--peers spark` asks Spark SQL once over all events, warm, by the clock, beside our last steps (of the last `--steps`); it does
not take the text of all queries, which are DuckDB's.

`--profile` prints the plan of each query with its figures and what the time of each node went into; with a file name it also
writes that as a flame graph for speedscope.app (`benchmarks.profiling`). With `--peers crate`, what its operators took, too.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import dbsp
from benchmarks import profiling, report
from benchmarks.nexmark import crate as programs
from benchmarks.nexmark import events as given
from benchmarks.nexmark.generator import Generator, Tables
from benchmarks.nexmark.queries import QUERIES, SIDE_KEYS
from benchmarks.nexmark.tables import APPEND_ONLY, COLUMNS, KEYS, add_keys, declared
from benchmarks.peers import duck, install
from benchmarks.peers.crate import Taken

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
        """DuckDB's time for the same by ours: of all steps, if it was asked after all, and of the last ones."""
        everywhere = len(seconds) == len(ours.seconds)
        last = max(len(seconds) * 3 // 10, 1) if everywhere else len(seconds)
        ratios = {"last_": sum(seconds[-last:]) / sum(ours.seconds[-last:])}
        if everywhere:
            ratios[""] = sum(seconds) / ours.whole_s
        self.kept |= {f"{name}_duckdb_by_ours_in_{of}steps_of_{step}": round(it, 3) for of, it in ratios.items()}
        if QUERIES[name].stateful:
            self.targets[f"{name}_duckdb_by_ours_in_last_steps_of_{step}"] = report.at_least(1.0)
        all_steps = f", all steps {ratios['']:.2f}" if everywhere else ""
        return f"DuckDB's time by ours: last {last} steps {ratios['last_']:.2f}{all_steps}"

    def add_crate(self, name: str, step: int, ours: list[Played], theirs: list[Taken], events: int) -> str:
        """The crate's time by ours, in the same run."""
        cpu_s = statistics.median(each.cpu_s for each in theirs)
        per_cpu_s = cpu_s / statistics.median(each.whole_s for each in ours)
        per_s = statistics.median(each.seconds for each in theirs) / statistics.median(
            sum(each.clock_s) for each in ours
        )
        key = f"{name}_by_the_crate_per_cpu_s_in_steps_of_{step}"
        self.kept |= {
            f"{name}_crate_events_per_cpu_s_in_steps_of_{step}": round(events / cpu_s),
            key: round(per_cpu_s, 3),
            f"{name}_by_the_crate_per_s_in_steps_of_{step}": round(per_s, 3),
        }
        if step in WANTED:
            self.targets[key] = report.at_least(WANTED[step] if QUERIES[name].stateful else 1.0)
        return (
            f"{events / cpu_s:>12,.0f} of the crate: {per_cpu_s:.2f} times it per CPU second, {per_s:.2f} by the clock"
        )


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


@dataclass(frozen=True, slots=True)
class Source:
    """The events to play: the generator's, or those of a folder."""

    events: int
    spacing_us: int
    folder: Path | None

    def steps(self, step: int) -> list[Tables]:
        """All of them, so many at a time."""
        if self.folder is not None:
            return list(given.split(given.read(self.folder, self.events), step))
        return list(Generator(spacing_us=self.spacing_us).batches(self.events, step))

    def warm(self) -> list[Tables]:
        """What warms up and is compared: other events of the generator, but all of a folder's."""
        if self.folder is not None:
            return self.steps(100_000)
        return list(Generator(seed=1, spacing_us=self.spacing_us).batches(WARM_EVENTS, 100_000))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What the queries of a run share."""

    figures: Figures
    peers: list[str]
    runs: int
    warm: list[Tables]
    crate: list[str] | None
    profile: profiling.Profile | None
    box: Path
    duckdb_steps: int | None = None

    def query(self, name: str, step: int, steps: list[Tables]) -> Played:
        """One query in steps of one size: our run in the middle of all."""
        run_query(name, self.warm, compare=True)
        runs = list(self.in_turn(name, steps))
        ours, theirs = [run for run, _ in runs], [taken for _, taken in runs if taken is not None]
        middle = sorted(ours, key=lambda each: each.whole_s)[len(ours) // 2]
        events, said = sum(table.num_rows for table in whole(steps).values()), f"{name:>5}  steps of {step:>7,}  "
        print(said + self.figures.add(name, step, middle, events), flush=True)
        if theirs:
            print(said + self.figures.add_crate(name, step, ours, theirs, events), flush=True)
        if "duckdb" in self.peers:
            seconds, _ = duck.recomputed(steps, QUERIES[name].sql, 1, {"side": SIDE}, self.duckdb_steps)
            print(said + self.figures.add_duckdb(name, step, middle, seconds), flush=True)
        if self.profile is not None:
            print(middle.plan)
            with self.profile.recording(f"{name}, steps of {step:,}"):
                run_query(name, steps, compare=False)
            print(self.profile.table(), flush=True)
        return middle

    def in_turn(self, name: str, steps: list[Tables]) -> Iterator[tuple[Played, Taken | None]]:
        """All steps so many times, on both sides if the crate has a program for the query."""
        if self.crate is None or name not in programs.NEEDED:
            yield from ((run_query(name, steps, compare=False), None) for _ in range(self.runs))
            return
        programs.compare(name, self.warm, whole(self.warm), self.crate, self.box)
        with (
            tempfile.TemporaryDirectory(dir=self.box) as place,
            programs.begun(name, steps, self.crate, Path(place)) as there,
        ):
            there.play()  # its memory is fresh the first time
            for _ in range(self.runs):
                yield run_query(name, steps, compare=False), there.play()
            if self.profile is not None:
                print("\n".join([f"the crate's {name}, its worker's operators", *there.profile()]), flush=True)


def crate_command(peers: list[str]) -> list[str] | None:
    """How the crate's programs are run, if they are wanted and there."""
    found = install.command("crate") if "crate" in peers else None
    if isinstance(found, str):
        report.skipped("nexmark", "the crate", found)
        return None
    return found


def main() -> None:
    """Measure, print, keep."""
    parser = report.parser(__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, nargs="+", default=[100_000, 10_000])
    parser.add_argument("--queries", nargs="+", default=list(QUERIES))
    parser.add_argument("--runs", type=int, default=1, help="the median of so many runs")
    parser.add_argument("--spacing-us", type=int, default=10_000, help="event time between two events")
    parser.add_argument("--events-from", type=Path, metavar="FOLDER", help="events of others, a Parquet file per table")
    parser.add_argument("--peers", nargs="*", choices=["duckdb", "spark", "crate"], default=[])
    parser.add_argument("--duckdb-steps", type=int, help="ask DuckDB after so many last steps only")
    parser.add_argument("--profile", nargs="?", const="", metavar="FILE", help="where the time of each query goes")
    parser.add_argument("--append-only", action="store_true", help="declare the tables append-only")
    add_keys(parser)
    arguments = parser.parse_args()
    declared(arguments.append_only, "benchmarks.nexmark", arguments.keys)
    source = Source(arguments.events, arguments.spacing_us, arguments.events_from)
    try:
        warm = source.warm()
    except given.EventsError as error:
        parser.error(str(error))
    spacing = arguments.spacing_us if source.folder is None else None
    kept: dict[str, object] = {
        "events": arguments.events,
        "spacing_us": spacing,
        "append_only": APPEND_ONLY,
        "keys": KEYS,
    }
    figures = Figures(kept | ({"events_from": source.folder.name} if source.folder else {}), {})
    profile = profiling.Profile() if arguments.profile is not None else None
    with tempfile.TemporaryDirectory(prefix="nexmark-") as box:
        bench = Bench(
            figures=figures, peers=arguments.peers, runs=arguments.runs, warm=warm,
            crate=crate_command(arguments.peers), profile=profile, box=Path(box), duckdb_steps=arguments.duckdb_steps,
        )  # fmt: skip
        for step in arguments.steps:
            steps = source.steps(step)
            played = {name: bench.query(name, step, steps) for name in arguments.queries}
    if "spark" in arguments.peers:
        add_spark(figures, steps, step, played)
    if profile is not None and arguments.profile:
        profile.write(Path(arguments.profile))
    report.keep("nexmark", figures.kept, figures.targets)


if __name__ == "__main__":
    main()
