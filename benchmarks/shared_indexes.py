"""What it saves to keep the same rows by the same key once: with every trace apart, with equal ones shared, with wider ones too.

Run it with `python -m benchmarks.shared_indexes`. Each circuit is played three times over the same changes; a circuit of several
queries has a view for each. Ratios are to traces apart.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

import dbsp
from benchmarks.nexmark.generator import Generator
from benchmarks.nexmark.queries import QUERIES as NEXMARK
from benchmarks.nexmark.tables import COLUMNS as NEXMARK_TABLES
from benchmarks.nexmark.tables import bid, person
from benchmarks.tpch.__main__ import Data
from benchmarks.tpch.queries import QUERIES as TPCH
from benchmarks.tpch.tables import COLUMNS as TPCH_TABLES
from dbsp.plan import planner
from dbsp.plan.planner import plan
from dbsp.plan.shared_arrangements import SharedArrangements

APART, EQUAL, WIDER = "apart", "equal", "wider"


def bids_of_bidders() -> dict[str, dbsp.Stream]:
    """Views of bids with their bidders, each with columns of its own."""
    named = bid.join(person, on={"bidder": "id"}, suffix="_p")
    return {
        "by_city": named.group_by("city").aggregate(n=dbsp.count(), most=dbsp.max("price")),
        "by_state": bid.join(person.select("id", "state"), on={"bidder": "id"}).select("auction", "state", "price"),
        "names": bid.join(person, on={"bidder": "id"}, how="left", suffix="_p").select("auction", "name", "channel"),
        "known": bid.join(person, on={"bidder": "id"}, how="semi").select("auction", "price"),
    }


def rival_bids() -> dict[str, dbsp.Stream]:
    """Bids on one auction, each beside the higher ones."""
    rivals = bid.join(bid, on="auction", where=dbsp.col("price") < dbsp.col("price_right"))
    return {"rivals": rivals.group_by("auction", "bidder").aggregate(n=dbsp.count())}


def fronts() -> dict[str, dbsp.Stream]:
    """The last bid of a bidder, and the last three."""
    by = dbsp.OrderBy("ts", descending=True)
    return {"last": bid.top_k(1, by=by, partition_by="bidder"), "three": bid.top_k(3, by=by, partition_by="bidder")}


SEVERAL = {"bids of bidders": bids_of_bidders, "rival bids": rival_bids, "fronts": fronts}


@contextmanager
def sharing(how: str) -> Iterator[None]:
    """Plans made meanwhile share as much."""
    with ExitStack() as stack:
        if how != WIDER:
            stack.enter_context(mock.patch.object(planner, "widened", return_value={}))
        if how == APART:
            stack.enter_context(mock.patch.object(SharedArrangements, "_known", return_value=None))
        yield


def nexmark(views: dict[str, dbsp.Stream], events: int, step: int) -> tuple[float, int, int]:
    """CPU seconds, rows and bytes of state."""
    circuit = dbsp.circuit("n", views, materialize=False)
    tables = {table.name for table in circuit.tables} & NEXMARK_TABLES.keys()
    seconds = 0.0
    with dbsp.open(circuit) as run:
        for batch in Generator().batches(events, step):
            started = time.process_time()
            for table in sorted(tables):
                run.push(table, batch[table])
            run.step()
            run.forget_outputs()
            seconds += time.process_time() - started
        return seconds, *_state(run)


def tpch(names: tuple[str, ...], data: Data) -> tuple[float, int, int]:
    """The same."""
    circuit = dbsp.circuit("t", {name: TPCH[name].build() for name in names}, materialize=False)
    used = {table.name for table in circuit.tables}
    started = time.process_time()
    with dbsp.open(circuit) as run:
        for table in (name for name in TPCH_TABLES if name in used):
            run.push(table, data.first[table])
            run.step()
            run.forget_outputs()
        for came, gone in data.refreshes:
            for table in sorted(came.keys() & used):
                run.push(table, came[table])
                run.delete(table, gone[table])
            run.step()
            run.forget_outputs()
        return time.process_time() - started, *_state(run)


def _state(run: dbsp.Run) -> tuple[int, int]:
    totals = run.totals.by_node.values()
    return sum(total.state_rows for total in totals), sum(total.state_bytes for total in totals)


def borrowed(views: dict[str, dbsp.Stream]) -> int:
    """How many traces of the plan belong to another node."""
    return sum(
        trace_owner is not None for node in plan(dbsp.circuit("c", views)).nodes for trace_owner in node.trace_owners
    )


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--step", type=int, default=20_000)
    parser.add_argument("--scale", type=float, default=0.02)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--plans", action="store_true", help="count what plans share, run nothing")
    arguments = parser.parse_args()
    print("borrowed traces per query, alone:")
    for label, queries in (("nexmark", NEXMARK), ("tpch", TPCH)):
        found = {name: borrowed({name: query.build()}) for name, query in queries.items()}
        print(f"  {label}: { ({name: count for name, count in found.items() if count}) }, all others none", flush=True)
        every = {name: query.build() for name, query in queries.items()}
        print(f"  {label}, all in one circuit: {borrowed(every)} of {len(plan(dbsp.circuit('c', every)).all_traces())}")
    if arguments.plans:
        return
    data = Data.of(arguments.scale, arguments.pairs)
    tiny = Data.of(0.002, 1)
    several = tuple(name for name, query in TPCH.items() if borrowed({name: query.build()}))
    for name, make in SEVERAL.items():
        nexmark(make(), 2 * arguments.step, arguments.step)
        compare(name, lambda make=make: nexmark(make(), arguments.events, arguments.step))
    every = {name: query.build() for name, query in NEXMARK.items() if name not in ("q13",)}
    compare("nexmark, all", lambda: nexmark(every, arguments.events, arguments.step))
    for names in (*((name,) for name in several), tuple(TPCH)):
        tpch(names, tiny)
        label = " ".join(names) if len(names) < len(TPCH) else "all"
        compare(f"tpch {label}", lambda names=names: tpch(names, data))


def compare(label: str, play) -> None:  # type: ignore[no-untyped-def]
    """Three runs, and the ratios."""
    found = {}
    for how in (APART, EQUAL, WIDER):
        with sharing(how):
            found[how] = play()
    first = found[APART]
    for how, figures in found.items():
        ratios = " ".join(f"{new / max(old, 1e-9):.2f}" for new, old in zip(figures, first, strict=True))
        print(
            f"{label:>24} {how:>6}  {figures[0]:7.2f} s {figures[1]:>11,} rows {figures[2]:>13,} bytes   {ratios}",
            flush=True,
        )


if __name__ == "__main__":
    main()
