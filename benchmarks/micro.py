"""Single operators in process, one worker: distinct, top-k, a tumbling window, a semi join, beside DuckDB asked again.

`python -m benchmarks.micro [--rows 2000000] [--step 100000] [--cases distinct top_k]`. Every step inserts `--step` rows and
deletes a tenth as many of those that came before. DuckDB, on one thread, answers the same question over all rows that are there
after every step. Processor seconds; the last answers are compared. What changes with the size of the state is in
`benchmarks.growth`, recursion in `benchmarks.recursion`, one row alone in `benchmarks.latency`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import dbsp
from benchmarks import report
from benchmarks.peers import duck

KEYS_PER_ROW = 0.05
SPACING_US = 1_000
t = dbsp.table("t", {"id": dbsp.INT64, "k": dbsp.INT64, "at": dbsp.TIMESTAMP, "x": dbsp.INT64})
WINDOW_SQL = 'time_bucket(interval 10 second, "at")'


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An operator and the SQL that says the same."""

    view: Callable[[], dbsp.Stream]
    sql: str


CASES = {
    "distinct": Case(view=lambda: t.select("k").distinct(), sql="select distinct k from t"),
    "top_k": Case(
        view=lambda: t.top_k(3, by=[dbsp.desc("x"), "id"], partition_by="k"),
        sql="select * from t qualify row_number() over (partition by k order by x desc, id) <= 3",
    ),
    "tumble": Case(
        view=lambda: (
            t.tumble("at", dbsp.seconds(10)).group_by("window_start").aggregate(n=dbsp.count(), most=dbsp.max("x"))
        ),
        sql=f"select {WINDOW_SQL}, count(*), max(x) from t group by all",
    ),
    "semi_join": Case(
        view=lambda: t.select("id", "k").join(t.filter(dbsp.col("x") < 50_000).select("k").distinct(), on="k"),
        sql="select id, k from t where k in (select k from t where x < 50000)",
    ),
}


@dataclass(frozen=True, slots=True)
class Step:
    """Rows that come, rows that go."""

    came: pa.Table
    gone: pa.Table


def steps_of(rows: int, step_rows: int) -> list[Step]:
    """The same for everyone."""
    rng = np.random.default_rng(5)
    start = np.datetime64("2024-01-01", "us").astype(np.int64)
    ids = np.arange(rows)
    whole = pa.table(
        {
            "id": ids,
            "k": rng.integers(0, int(rows * KEYS_PER_ROW), rows),
            "at": pa.array(start + ids * SPACING_US).cast(pa.timestamp("us")),
            "x": rng.integers(0, 1_000_000, rows),
        }
    )
    order = rng.permutation(rows)  # a row goes after it came: each step takes from the first half of what is there
    made, gone = [], np.zeros(rows, np.bool_)
    for first in range(0, rows, step_rows):
        old = order[(order < first // 2) & ~gone[order]][: step_rows // 10]
        gone[old] = True
        made.append(Step(whole.slice(first, step_rows), whole.take(pa.array(old))))
    return made


def states(steps: list[Step]) -> Iterator[dict[str, pa.Table]]:
    """What is there after each step."""
    whole = pa.concat_tables([step.came for step in steps]).combine_chunks()
    there = np.zeros(whole.num_rows, np.bool_)
    last = 0
    for step in steps:
        there[last : last + step.came.num_rows] = True
        last += step.came.num_rows
        there[step.gone["id"].to_numpy()] = False
        yield {"t": whole.filter(pa.array(there))}


def ours(case: Case, steps: list[Step]) -> tuple[list[float], pa.Table]:
    """Processor seconds of each step; the answer."""
    seconds = []
    with dbsp.open(dbsp.circuit("micro", {"v": case.view()}), workers=1) as run:
        for step in steps:
            started = time.process_time()
            run.push("t", step.came)
            if step.gone.num_rows:
                run.delete("t", step.gone)
            run.step()
            run.forget_outputs()
            seconds.append(time.process_time() - started)
        return seconds, run.view("v").to_arrow()


def main() -> None:
    """Measure, print, keep."""
    parser = report.parser(__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--step", type=int, default=100_000)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    arguments = parser.parse_args()
    figures: dict[str, object] = {"rows": arguments.rows, "step": arguments.step}
    targets = {}
    steps = steps_of(arguments.rows, arguments.step)
    changes = sum(step.came.num_rows + step.gone.num_rows for step in steps)
    for name in arguments.cases:
        ours(CASES[name], steps[:2])  # compiles and warms up
        mine, found = ours(CASES[name], steps)
        theirs, expected = duck.asked(states(steps), CASES[name].sql, 1)
        duck.check(name, found, expected)
        last = max(len(steps) * 3 // 10, 1)
        figures[f"{name}_changes_per_cpu_s"] = round(changes / sum(mine))
        figures[f"{name}_duckdb_by_ours"] = sum(theirs) / sum(mine)
        figures[f"{name}_duckdb_by_ours_in_last_steps"] = sum(theirs[-last:]) / sum(mine[-last:])
        targets[f"{name}_duckdb_by_ours_in_last_steps"] = report.at_least(1.0)
        print(f"{name}: {changes / sum(mine):,.0f} changes a CPU second", flush=True)
    report.keep("micro", figures, targets)


if __name__ == "__main__":
    main()
