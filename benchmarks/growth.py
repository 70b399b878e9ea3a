"""Work per step on growing state, operator by operator: `python -m benchmarks.growth [--rows 1000000 10000000 30000000]`.

Each operator runs alone in a minimal circuit (`benchmarks.growth_cases`), in process, on one worker. Its tables grow in steps of
`--load-rows` rows to each of the sizes; there the processor time of small steps is measured: 1,000 rows inserted and 1,000
deleted all over the keys, and one changed row. A step deletes rows at random and brings back those that the one before
deleted, so the size stays. In a "queue" the oldest leave and new ones come; a sixteenth of all rows went that way before.
Medians are printed with their ratio to the smallest size, beside them the rows that came out in the last of the steps, the
state as of then, and what the operator's **Cost** block says where the ratio is more than that of a logarithm: 3 for 30
times the rows.

An operator that does read whole groups would take for ever on ten groups of 3 M rows: it stops at the size before the one
where a step would take `--step-s` seconds or its state more than `--memory-mb`, and the line says so.

`--state` measures what is dropped instead: rows and bytes of state with `--rows` rows (the first size), and after all of
them are deleted; and, under a watermark, at their most and after time has passed.

`--operators` takes the beginnings of names (`--list` prints them); `--keep` adds the figures to `benchmarks/history/`.
"""

from __future__ import annotations

import argparse
import gc
import inspect
import math
import statistics
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

import dbsp
from benchmarks import report
from benchmarks.growth_cases import FEW, I64, RECENT_ROWS, Case, Feed, all_cases, last_time

SIZES, LOAD_ROWS = (1_000_000, 10_000_000, 30_000_000), 1_000_000
STEPS, SINGLE_STEPS, WARM_UP = 11, 11, 4
STEP_S, MEMORY_MB = 20.0, 3_000
LIMIT, LIMIT_SIZES = 3.0, 30.0
NEW_SALT = 1
SETTLING_STEPS_MAX = 400
MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What was measured at one size."""

    rows: int
    load_s: float
    batch_ms: float
    single_ms: float
    rows_out: int
    state_rows: int
    state_bytes: int


@dataclass(slots=True)
class Table:
    """A feed with the rows that are in it: all below `size`, but those that are `out`."""

    feed: Feed
    size: int = 0
    fresh: int = 0
    oldest: int = 0
    out: I64 = field(default_factory=lambda: np.empty(0, np.int64))

    def grown(self, rows: int) -> I64:
        """The numbers of the rows that make it belong to a first table of so many rows."""
        size = max(int(rows * self.feed.share), FEW)
        added = np.arange(self.size, size)
        self.size = max(self.size, size)
        return added

    def arrow(self, number: I64, salt: int = 0) -> pa.Table:
        """The rows of these numbers."""
        return pa.table(self.feed.rows(number, salt))

    def chosen(self, rng: np.random.Generator, count: int, recent: bool) -> I64:
        """Different rows at random of those that are there."""
        low = max(0, self.size - RECENT_ROWS) if recent else 0
        drawn = np.unique(rng.integers(low, self.size, 2 * count + 16))
        there = np.setdiff1d(drawn, self.out)
        return rng.permutation(there)[:count]


class Bench:
    """A run of a case, and its tables."""

    def __init__(self, case: Case, load_rows: int) -> None:
        """Begin with nothing."""
        self.case, self.load_rows = case, load_rows
        self.tables = [Table(feed) for feed in case.feeds]
        self.run = dbsp.open(dbsp.circuit("growth", {"view": case.view}, materialize=False))
        self.rng = np.random.default_rng(7)
        self.rows = 0

    def step(self) -> tuple[float, int]:
        """Seconds of processor time, and rows that came out."""
        clock = last_time(self.rows + self.run.step_number)
        started = time.process_time()
        made = self.run.step(clock=clock)
        seconds = time.process_time() - started
        self.run.forget_outputs()
        return seconds, len(made["view"])

    def load(self, rows: int, limit_s: float) -> float | None:
        """Grow to this size; seconds of processor time, None if a step took longer than the limit."""
        whole = 0.0
        while self.rows < rows:
            self.rows = min(rows, self.rows + self.load_rows)
            for table in self.tables:
                self.run.push(table.feed.table, table.arrow(table.grown(self.rows)))
            seconds, _ = self.step()
            whole += seconds
            if seconds > limit_s:
                return None
        return whole

    def change(self, single: bool) -> None:
        """Rows that leave, and those that left before come back; or new rows."""
        for index, table in enumerate(self.tables):
            count = int(index == 0) if single else table.feed.changed
            if not count:
                continue
            if self.case.changes == "oldest":
                self.replace_oldest(table, count)
                continue
            if self.case.changes == "newest":
                self.run.push(table.feed.table, table.arrow(table.size + np.arange(count)))
                table.size += count
                continue
            number = table.chosen(self.rng, count, self.case.changes == "recent")
            if self.case.changes == "new":
                table.fresh += 1
                self.run.push(table.feed.table, table.arrow(number, NEW_SALT + table.fresh))
                continue
            back, rest = (table.out[:1], table.out[1:]) if single else (table.out, table.out[:0])
            if single and self.run.step_number % 2 and len(back):
                number = number[:0]
            elif single:
                back, rest = back[:0], table.out
            if len(number):
                self.run.delete(table.feed.table, table.arrow(number))
            if len(back):
                self.run.push(table.feed.table, table.arrow(back))
            table.out = np.concatenate([number, rest])

    def replace_oldest(self, table: Table, count: int) -> None:
        """As in a queue: the oldest rows leave, as many new ones come."""
        self.run.delete(table.feed.table, table.arrow(np.arange(table.oldest, table.oldest + count)))
        self.run.push(table.feed.table, table.arrow(np.arange(table.size, table.size + count)))
        table.oldest, table.size = table.oldest + count, table.size + count

    def median_ms(self, steps: int, single: bool) -> tuple[float, int]:
        """Milliseconds of a small step, and rows that came out of the last."""
        found, out = [], 0
        for _ in range(steps):
            self.change(single)
            seconds, out = self.step()
            found.append(seconds)
        return 1000 * statistics.median(found), out

    def state(self) -> tuple[int, int]:
        """Rows and bytes of all state; a row comes and goes, so that every node runs and shows what it keeps."""
        for change in (self.run.push, self.run.delete):
            for table in self.tables if not self.case.changes.startswith("new") else ():
                newest = max(table.size, int(self.rows * table.feed.share)) + 1
                change(table.feed.table, table.arrow(np.array([newest])))
            self.step()
        totals = self.run.totals.by_node.values()
        return sum(total.state_rows for total in totals), sum(total.state_bytes for total in totals)

    def point(self, load_s: float) -> Point:
        """Measure at the present size."""
        gc.collect()
        for _ in range(8 if self.case.changes == "oldest" else 0):
            for table in self.tables:
                self.replace_oldest(table, table.size // 128)
            self.step()
        self.median_ms(WARM_UP, single=False)
        batch_ms, out = self.median_ms(STEPS, single=False)
        single_ms, _ = self.median_ms(SINGLE_STEPS, single=True)
        rows, size = self.state()
        return Point(
            rows=self.rows, load_s=load_s, batch_ms=batch_ms, single_ms=single_ms, rows_out=out, state_rows=rows,
            state_bytes=size,
        )  # fmt: skip


def measure(case: Case, settings: argparse.Namespace) -> Iterator[Point | str]:
    """A point per size; a text if it stops before the last."""
    bench = Bench(case, settings.load_rows)
    first: Point | None = None
    last: Point | None = None
    with bench.run:
        for rows in settings.rows:
            reason = _too_much(first, last, rows, settings)
            if reason is not None:
                yield f"not at {rows:,} rows: {reason}"
                return
            load_s = bench.load(rows, 3 * settings.step_s)
            if load_s is None:
                pace = f"{settings.load_rows:,} rows take more than {3 * settings.step_s:.0f} s"
                yield f"not at {rows:,} rows: loading {pace}"
                return
            last = bench.point(load_s)
            first = first or last
            yield last


def _too_much(first: Point | None, last: Point | None, rows: int, settings: argparse.Namespace) -> str | None:
    """Why a size cannot be measured, judged by the ones before."""
    if first is None or last is None:
        return None
    times = rows / last.rows
    step_s, state = last.batch_ms * times / 1000, last.state_bytes * times / MEGABYTE
    if step_s > settings.step_s and last.batch_ms > LIMIT * first.batch_ms:
        return f"a step would take about {step_s:.0f} s"
    return f"state would be {state:,.0f} MB" if state > settings.memory_mb else None


def allowed(times: float) -> float:
    """The ratio that a logarithm may have for so many times the rows."""
    return 1 + (LIMIT - 1) * math.log(max(times, 1)) / math.log(LIMIT_SIZES)


def cost_of(says: Any) -> str:
    """What a Cost block says."""
    text = " ".join((inspect.getdoc(says) or "").split())
    _, found, after = text.partition("**Cost**")
    if not found:
        return "(no Cost block)"
    ends = [at for at in (after.find(f" **{word}**") for word in ("Limit", "Errors", "Example", "State")) if at >= 0]
    return after[: min(ends, default=len(after))].strip()


def growth(cases: Sequence[Case], settings: argparse.Namespace) -> dict[str, object]:
    """Print the table; the figures by name."""
    figures: dict[str, object] = {}
    above = []
    head = f"{'operator':<28}{'rows':>12}{'2,000 rows':>12}{'ratio':>7}{'1 row':>9}{'ratio':>7}{'rows out':>10}"
    print(f"{head}{'state rows':>12}{'B/row':>7}{'load s':>8}", flush=True)
    for case in cases:
        first: Point | None = None
        grew = False
        for found in _points(case, settings):
            if isinstance(found, str):
                print(f"{case.name:<28}  {found}", flush=True)
                grew = grew or "state" not in found
                continue
            first = first or found
            grew |= _shown(case.name, first, found)
            figures[f"{case.name} at {found.rows}"] = [round(found.batch_ms, 2), round(found.single_ms, 2)]
        if grew:
            above.append(case)
        gc.collect()
    print(f"\n{len(cases) - len(above)} of {len(cases)} grow like a logarithm or less; the others, and their Cost:")
    for case in above:
        print(textwrap.fill(f"{case.name}: {cost_of(case.says)}", 130, initial_indent="  ", subsequent_indent="      "))
    return figures


def _points(case: Case, settings: argparse.Namespace) -> Iterator[Point | str]:
    """The points; what an operator that fails says, so that the others are measured all the same."""
    try:
        yield from measure(case, settings)
    except dbsp.DbspError as error:
        yield f"failed: {error}"


def _shown(name: str, first: Point, found: Point) -> bool:
    """Print a line; whether it grew more than it may."""
    ratios = found.batch_ms / first.batch_ms, found.single_ms / first.single_ms
    grew = max(ratios) > allowed(found.rows / first.rows)
    print(
        f"{name:<28}{found.rows:>12,}{found.batch_ms:>9.1f} ms{ratios[0]:>7.1f}{found.single_ms:>6.1f} ms"
        f"{ratios[1]:>7.1f}{found.rows_out:>10,}{found.state_rows:>12,}"
        f"{found.state_bytes / max(found.state_rows, 1):>7.0f}{found.load_s:>8.1f}{'  <' if grew else ''}",
        flush=True,
    )
    return grew


def dropped(cases: Sequence[Case], settings: argparse.Namespace) -> dict[str, object]:
    """Print what state is left when all rows are deleted, and when time has passed; the figures by name."""
    figures: dict[str, object] = {}
    print(f"{'operator':<28}{'state rows':>12}{'bytes':>14}   {'':<22}{'state rows':>12}{'bytes':>14}{'left':>8}")
    for case in cases:
        if case.changes in ("new", "newest", "oldest"):
            continue
        bench = Bench(case, settings.load_rows)
        with bench.run:
            late = case.changes == "recent"
            before, after = _closed(bench, settings.rows[0]) if late else _deleted(bench, settings.rows[0])
        if not before[0]:
            continue
        how = "time passed" if late else "all rows deleted"
        left = after[1] / before[1]
        print(
            f"{case.name:<28}{before[0]:>12,}{before[1]:>14,}   {how:<22}{after[0]:>12,}{after[1]:>14,}{left:>8.2%}",
            flush=True,
        )
        figures[f"{case.name}, {how}"] = [before[1], after[1]]
        gc.collect()
    return figures


def _deleted(bench: Bench, rows: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """State with all rows, and after they went, in four steps; then a row comes and goes until merges have seen it all."""
    bench.load(rows, math.inf)
    before = bench.state()
    for part in range(4):
        for table in bench.tables:
            bounds = table.size * part // 4, table.size * (part + 1) // 4
            bench.run.delete(table.feed.table, table.arrow(np.arange(*bounds)))
        bench.step()
    after = bench.state()
    for _ in range(SETTLING_STEPS_MAX // 2):
        if after[0] <= 4 * len(bench.run.plan.all_traces()):
            break
        after = bench.state()
    return before, after


def _closed(bench: Bench, rows: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """State with all rows in one step, before any is old; and when ten rows have come that are far later."""
    bench.load_rows = rows
    bench.load(rows, math.inf)
    before = bench.state()
    for step in range(1, 11):
        bench.rows = (100 + step) * rows
        for table in bench.tables:
            bench.run.push(table.feed.table, table.arrow(np.array([int(bench.rows * table.feed.share)])))
        bench.step()
    return before, bench.state()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for."""
    parser = report.parser(__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=SIZES)
    parser.add_argument("--load-rows", type=int, default=LOAD_ROWS)
    parser.add_argument("--operators", nargs="+", default=[""])
    parser.add_argument("--step-s", type=float, default=STEP_S)
    parser.add_argument("--memory-mb", type=int, default=MEMORY_MB)
    for flag in ("--state", "--list", "--keep"):
        parser.add_argument(flag, action="store_true")
    settings = parser.parse_args(arguments)
    cases = [case for case in all_cases() if case.name.startswith(tuple(settings.operators))]
    if settings.list:
        print("\n".join(case.name for case in cases))
        return 0
    figures = (dropped if settings.state else growth)(cases, settings)
    if settings.keep:
        report.keep("growth_state" if settings.state else "growth", figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
