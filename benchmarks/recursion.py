"""Recursion, in process, one worker: one edge deleted out of growing graphs.

`python -m benchmarks.recursion`. The graph is disjoint chains of 12 edges; a deletion in the middle of one changes the paths
and the components of that chain alone, so neither the rows that pass through the nodes nor the time may grow with the graph.
DuckDB's recursive query for all paths, asked again on one thread, stands beside it. Processor seconds.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
import pyarrow as pa

import dbsp
from benchmarks import report
from benchmarks.peers import duck

CHAIN = 12
CHAINS = (1_000, 10_000)
DELETIONS = 15
SQL = (
    "with recursive found(a, b) as (select a, b from edges union select found.a, edges.b from found join edges on found.b"
    " = edges.a) select * from found"
)
edges = dbsp.table("edges", {"a": dbsp.INT64, "b": dbsp.INT64})


def paths() -> dbsp.Stream:
    """All pairs of nodes with a path between them."""
    after = edges.rename({"a": "b", "b": "c"})
    return dbsp.recursive(edges, lambda found: found.join(after, on="b").select("a", b="c"))


def components() -> dbsp.Stream:
    """The least node of each node's component."""
    both = edges.union(edges.select(a="b", b="a"))
    nodes = both.select("a").distinct()

    def body(least: Any) -> Any:
        told = least.join(both, on="a").select(a="b", least="least")
        return nodes.select("a", least="a").union(told).group_by("a").aggregate(least=dbsp.min("least"))

    return dbsp.recursive({"least": {"a": dbsp.INT64, "least": dbsp.INT64}}, body)["least"]


def graph_of(chains: int) -> pa.Table:
    """Disjoint chains."""
    first = np.arange(chains * (CHAIN + 1)).reshape(chains, CHAIN + 1)
    return pa.table({"a": first[:, :-1].ravel(), "b": first[:, 1:].ravel()})


def again(chains: int) -> float:
    """Processor seconds of DuckDB for all paths; they are compared with ours on a smaller graph."""
    small = graph_of(100)
    with dbsp.open(dbsp.circuit("recursion", {"view": paths()})) as run:
        run.push("edges", small)
        run.delete("edges", small.slice(5, 1))
        run.step()
        left = pa.concat_tables([small.slice(0, 5), small.slice(6)])
        duck.check("recursion", run.view("view").to_arrow(), duck.asked([{"edges": left}], SQL, 1)[1])
    return statistics.median(duck.asked([{"edges": graph_of(chains)}] * 3, SQL, 1)[0])


def measure(stream: dbsp.Stream, chains: int) -> tuple[float, float, int]:
    """Seconds of the first load, median seconds of a deletion, rows that passed through the nodes for it."""
    graph = graph_of(chains)
    seconds = []
    with dbsp.open(dbsp.circuit("recursion", {"view": stream}, materialize=False)) as run:
        run.push("edges", graph)
        started = time.perf_counter()
        run.step()
        load = time.perf_counter() - started
        for chain in range(DELETIONS):
            run.delete("edges", graph.slice(chain * CHAIN + CHAIN // 2, 1))
            started = time.process_time()
            run.step()
            seconds.append(time.process_time() - started)
        rows = sum(node.rows_in for worker in run.reports[-1].workers for node in worker.nodes)
    return load, statistics.median(seconds), rows


def main() -> None:
    """Measure, print, keep."""
    report.parser(__doc__).parse_args()
    figures: dict[str, object] = {}
    targets: dict[str, report.Target] = {}
    for name, stream in (("paths", paths()), ("components", components())):
        small, large = (measure(stream, chains) for chains in CHAINS)
        for chains, (load, deletion, rows) in zip(CHAINS, (small, large), strict=True):
            figures[f"{name}_of_{chains * CHAIN}_edges_load_s"] = round(load, 3)
            figures[f"{name}_of_{chains * CHAIN}_edges_deletion_ms"] = round(1e3 * deletion, 1)
            figures[f"{name}_of_{chains * CHAIN}_edges_rows_through_nodes"] = rows
        figures[f"{name}_ratio_of_deletions_ten_times_the_graph"] = large[1] / small[1]
        targets[f"{name}_ratio_of_deletions_ten_times_the_graph"] = report.at_most(2.0)
        if name == "paths":
            for chains, (_, deletion, _) in zip(CHAINS, (small, large), strict=True):
                key = f"{name}_of_{chains * CHAIN}_edges_duckdb_by_our_deletion"
                figures[key], targets[key] = again(chains) / deletion, report.at_least(1.0)
        figures[f"{name}_ratio_of_rows_ten_times_the_graph"] = large[2] / small[2]
    report.keep("recursion", figures, targets)


if __name__ == "__main__":
    main()
