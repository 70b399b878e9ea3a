"""TPC-H from memory, in process, one worker: the first load, then refresh pairs; each beside the query asked again.

`python -m benchmarks.tpch [--scale 0.1] [--pairs 5] [--queries q1 q18] [--load-rows 100000] [--spark]`. A refresh inserts a
thousandth of the orders with their line items and deletes as many old ones. DuckDB, on one thread, answers the query over the
whole tables after each refresh; with `--spark` Spark SQL does too, `local[1]`, from Parquet files, warm, by the clock, start-up
excluded. Processor seconds for ours and DuckDB, the clock for both where Spark is compared; the answers are compared.

Beside the time of a refresh stands that of the first load, which goes through steps of `--load-rows` rows.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

import dbsp
from benchmarks import report
from benchmarks.peers import duck
from benchmarks.tpch.generator import Generator, Tables
from benchmarks.tpch.queries import QUERIES
from benchmarks.tpch.tables import COLUMNS


@dataclass(frozen=True, slots=True)
class Data:
    """What everyone is given: the first tables, the refreshes, and the whole tables after each refresh."""

    first: Tables
    refreshes: list[tuple[Tables, Tables]]
    states: list[Tables]

    @classmethod
    def of(cls, scale: float, pairs: int) -> Data:
        """Made once for all queries."""
        generator = Generator(scale=scale)
        first = generator.fixed() | generator.orders(0)
        refreshes = list(generator.refreshes(pairs))
        return cls(first, refreshes, list(states(first, refreshes)))


def states(first: Tables, refreshes: list[tuple[Tables, Tables]]) -> Iterator[Tables]:
    """The tables after each refresh."""
    now = dict(first)
    for came, gone in refreshes:
        old = gone["orders"]["o_orderkey"].combine_chunks()
        for name, key in (("orders", "o_orderkey"), ("lineitem", "l_orderkey")):
            kept = now[name].filter(pc.invert(pc.is_in(now[name][key], value_set=old)))
            now[name] = pa.concat_tables([kept, came[name]]).combine_chunks()
        yield dict(now)


@dataclass(frozen=True, slots=True)
class Played:
    """Processor seconds of the first load and of each refresh, these by the clock too; the last answer."""

    load_s: float
    refresh_s: list[float]
    refresh_clock_s: list[float]
    answer: pa.Table


def ours(name: str, data: Data, load_rows: int) -> Played:
    """Play it all."""
    circuit = dbsp.circuit(name, {"v": QUERIES[name].build()})
    used = {table.name for table in circuit.tables}
    with dbsp.open(circuit, workers=1) as run:
        started = time.process_time()
        for table in (name for name in COLUMNS if name in used):
            rows = data.first[table]
            for at in range(0, rows.num_rows, load_rows):
                run.push(table, rows.slice(at, load_rows))
                run.step()
                run.forget_outputs()
        load_s = time.process_time() - started
        seconds, by_clock = [], []
        for came, gone in data.refreshes:
            started, clock = time.process_time(), time.perf_counter()
            for table in came.keys() & used:
                run.push(table, came[table])
                run.delete(table, gone[table])
            run.step()
            run.forget_outputs()
            seconds.append(time.process_time() - started)
            by_clock.append(time.perf_counter() - clock)
        return Played(load_s, seconds, by_clock, run.view("v").to_arrow())


def main() -> None:
    """Measure, print, keep."""
    parser = report.parser(__doc__)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--queries", nargs="+", choices=list(QUERIES), default=list(QUERIES))
    parser.add_argument("--load-rows", type=int, default=100_000)
    parser.add_argument("--spark", action="store_true", help="Spark SQL too")
    arguments = parser.parse_args()
    data, tiny = Data.of(arguments.scale, arguments.pairs), Data.of(0.002, 1)
    figures: dict[str, object] = {"scale": arguments.scale, "pairs": arguments.pairs}
    targets = {}
    spark_ms = spark_times(data, arguments.queries) if arguments.spark else {}
    for name in arguments.queries:
        ours(name, tiny, arguments.load_rows)  # compiles and warms up
        mine = ours(name, data, arguments.load_rows)
        theirs, expected = duck.asked(data.states, QUERIES[name].sql, 1)
        duck.check(name, mine.answer, expected)
        refresh, again = statistics.median(mine.refresh_s), statistics.median(theirs)
        figures[f"{name}_load_s"] = round(mine.load_s, 3)
        figures[f"{name}_refresh_ms"] = round(1000 * refresh, 2)
        figures[f"{name}_duckdb_ms"] = round(1000 * again, 2)
        figures[f"{name}_duckdb_by_our_refresh"] = round(again / refresh, 3)
        targets[f"{name}_duckdb_by_our_refresh"] = report.at_least(1.0)
        text = f"{name:>4}  load {mine.load_s:7.2f} s  refresh {1000 * refresh:8.1f} ms  DuckDB {1000 * again:8.1f} ms"
        if name in spark_ms:
            figures[f"{name}_spark_sql_ms"] = round(spark_ms[name], 1)
            ratio = spark_ms[name] / (1000 * statistics.median(mine.refresh_clock_s))
            figures[f"{name}_spark_sql_by_our_refresh"] = round(ratio, 2)
            targets[f"{name}_spark_sql_by_our_refresh"] = report.at_least(1.0)
            text += f"  Spark SQL {spark_ms[name]:8.1f} ms"
        print(text, flush=True)
    report.keep("tpch", figures, targets)


def spark_times(data: Data, queries: list[str]) -> dict[str, float]:
    """Milliseconds of Spark SQL over the last tables, by the clock."""
    from benchmarks.peers import spark_sql  # noqa: PLC0415 (it needs PySpark)

    with spark_sql.Tables(data.states[-1], cores=1) as there:
        return {
            name: found
            for name in queries
            if (found := spark_sql.milliseconds(there, "tpch", name, QUERIES[name].sql)) is not None
        }


if __name__ == "__main__":
    main()
