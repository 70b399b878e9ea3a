"""DuckDB, in this process: the whole query again after every batch, or an upsert per batch.

All that came so far is registered as one Arrow table that DuckDB scans where it lies: no time goes into inserting. (Inserted into
tables of its own the queries of Nexmark took as long.) The result is fetched as Arrow. Seconds are of the processor, as ours,
so that a busy machine and different numbers of threads compare.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import duckdb
import pyarrow as pa

DIGITS = 10
Tables = Mapping[str, pa.Table]


def connect(threads: int) -> duckdb.DuckDBPyConnection:
    """A database in memory that never looks at the network."""
    options: dict[str, Any] = {"threads": threads}
    options |= {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    return duckdb.connect(config=options)


def recomputed(
    steps: Sequence[Tables], sql: str, threads: int, always: Tables | None = None, asked_steps: int | None = None
) -> tuple[list[float], pa.Table]:
    """Processor seconds of the query after each step, over all steps so far; the last answer.

    `always` are tables that are there before the first step. With `asked_steps` it is asked after so many last steps only.
    """
    return asked(so_far(steps, asked_steps), sql, threads, always)


def so_far(steps: Sequence[Tables], asked_steps: int | None = None) -> Iterator[Tables]:
    """What the tables hold after each step of insertions, or after each of so many last ones; nothing is copied."""
    first = 1 if asked_steps is None else max(len(steps) - asked_steps, 0) + 1
    for last in range(first, len(steps) + 1):
        yield {name: pa.concat_tables([step[name] for step in steps[:last]]) for name in steps[0]}


def asked(
    states: Iterable[Tables], sql: str, threads: int, always: Tables | None = None
) -> tuple[list[float], pa.Table]:
    """Processor seconds of the query over each of these contents of the tables; the last answer."""
    seconds, answer = [], pa.table({})
    with closing(connect(threads)) as connection:
        for name, rows in (always or {}).items():
            connection.register(name, rows)
        for state in states:
            started = time.process_time()
            for name, rows in state.items():
                connection.register(name, rows)
            answer = connection.sql(sql).to_arrow_table()
            seconds.append(time.process_time() - started)
    return seconds, answer


def upserted(batches: Iterable[pa.Table], threads: int) -> tuple[list[float], pa.Table]:
    """Count per key `k`, kept in a table with a primary key: processor seconds of each batch; the counts."""
    seconds = []
    with closing(connect(threads)) as connection:
        connection.execute("create table counts (k bigint primary key, n bigint)")
        for batch in batches:
            started = time.process_time()
            connection.register("batch", batch)
            connection.execute(
                "insert into counts select k, count(*) from batch group by k on conflict do update set n = n + excluded.n"
            )
            seconds.append(time.process_time() - started)
        return seconds, connection.sql("select * from counts").to_arrow_table()


def upsert_latencies(keys: int, changes: Sequence[int]) -> list[float]:
    """Seconds of the clock for each changed key in a table of counts of so many keys, on one thread."""
    seconds = []
    with closing(connect(1)) as connection:
        connection.execute(f"create table counts as select range as k, 1::bigint as n from range({keys})")
        connection.execute("create unique index of_k on counts (k)")
        for key in changes:
            started = time.perf_counter()
            connection.execute("insert into counts values (?, 1) on conflict (k) do update set n = n + 1", [key])
            seconds.append(time.perf_counter() - started)
    return seconds


def rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """The rows, each as often as it is there; floats to ten digits, as sums of them depend on the order."""
    return Counter(zip(*([plain(value) for value in column.to_pylist()] for column in table.columns), strict=True))


def plain(value: Any) -> Any:
    """A value that can be compared with another engine's."""
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) and math.isfinite(value) else value


def check(name: str, found: pa.Table, expected: pa.Table) -> None:
    """Stop the benchmark if two answers differ: figures of a wrong one mean nothing."""
    if rows(found) != rows(expected):
        raise SystemExit(f"{name}: the answers differ: rows={found.num_rows} expected={expected.num_rows}")
