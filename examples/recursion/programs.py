"""Four recursive queries: reachability, components, shortest paths, and where a program's pointers point.

Each is a circuit over tables that change; edges and statements may be added and deleted, and each step changes only the rows
that follow from what changed. `dbsp.recursive` has the law; SQL's WITH RECURSIVE says the first of them.
"""

from __future__ import annotations

import dbsp
from dbsp import col

EDGES = {"a": dbsp.INT64, "b": dbsp.INT64, "length": dbsp.INT64}
STATEMENTS = {"x": dbsp.STRING, "y": dbsp.STRING}


def reachability() -> dbsp.Circuit:
    """Every pair of nodes (a, b) with a way from a to b.

    **Example**

    >>> with dbsp.open(reachability()) as run:
    ...     run.push("edges", [{"a": 1, "b": 2}, {"a": 2, "b": 3}, {"a": 3, "b": 1}, {"a": 3, "b": 4}])
    ...     print(len(run.step()["paths"]))
    ...     run.delete("edges", [{"a": 3, "b": 1}])
    ...     _ = run.step()
    ...     print([row for row, _ in run.view("paths").to_rows()])
    12
    [(1, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4)]
    """
    edges = dbsp.table("edges", EDGES).select("a", "b")
    after = edges.rename({"a": "b", "b": "c"})
    return dbsp.circuit(
        "reachability",
        {"paths": dbsp.recursive(edges, lambda paths: paths.join(after, on="b").select("a", b="c"))},
    )


def components() -> dbsp.Circuit:
    """The component of each node, named by its least node; edges hold both ways.

    **Example**

    >>> with dbsp.open(components()) as run:
    ...     run.push("edges", [{"a": 1, "b": 2}, {"a": 2, "b": 3}, {"a": 3, "b": 4}])
    ...     print([row for row, _ in run.step()["components"].to_rows()])
    ...     run.delete("edges", [{"a": 2, "b": 3}])
    ...     print(run.step()["components"].to_rows())
    [(1, 1), (2, 1), (3, 1), (4, 1)]
    [((3, 1), -1), ((3, 3), 1), ((4, 1), -1), ((4, 3), 1)]
    """
    edges = dbsp.table("edges", EDGES).select("a", "b")
    both = edges.union(edges.select(a="b", b="a"))
    themselves = both.select("a").distinct().select("a", component="a")

    def body(known: dbsp.Stream) -> dbsp.Stream:
        told = known.join(both, on="a").select(a="b", component="component")
        return themselves.union(told).group_by("a").aggregate(component=dbsp.min("component"))

    views = dbsp.recursive({"components": {"a": dbsp.INT64, "component": dbsp.INT64}}, body)
    return dbsp.circuit("components", views)


def shortest_paths(farthest: int = 1_000) -> dbsp.Circuit:
    """How far each node is from the nearest of the `starts`, up to `farthest`.

    The bound keeps a cycle of edges that are shorter than nothing from being walked for ever.

    **Example**

    >>> with dbsp.open(shortest_paths()) as run:
    ...     run.push("starts", [{"a": 1}])
    ...     run.push("edges", [{"a": 1, "b": 2, "length": 1}, {"a": 2, "b": 3, "length": 1}, {"a": 1, "b": 3, "length": 9}])
    ...     print([row for row, _ in run.step()["distances"].to_rows()])
    ...     run.delete("edges", [{"a": 2, "b": 3, "length": 1}])
    ...     print(run.step()["distances"].to_rows())
    [(1, 0), (2, 1), (3, 2)]
    [((3, 2), -1), ((3, 9), 1)]
    """
    edges = dbsp.table("edges", EDGES)
    starts = dbsp.table("starts", {"a": dbsp.INT64}).select("a", far=dbsp.lit(0, dbsp.INT64))

    def body(known: dbsp.Stream) -> dbsp.Stream:
        farther = known.join(edges, on="a").select(a="b", far=col("far") + col("length"))
        bounded = farther.filter((col("far") >= 0) & (col("far") <= farthest))
        return starts.union(bounded).group_by("a").aggregate(far=dbsp.min("far"))

    views = dbsp.recursive({"distances": {"a": dbsp.INT64, "far": dbsp.INT64}}, body)
    return dbsp.circuit("shortest_paths", views)


def points_to() -> dbsp.Circuit:
    """What each variable of a program, and each cell of its heap, may point to: Andersen's analysis.

    The statements of the program are four tables: `new` (x = new y), `move` (x = y), `load` (x = *y), `store` (*x = y). Two
    views are defined by each other: a load reads what a store has put behind a pointer, and both go where pointers point.

    **Example**

    >>> with dbsp.open(points_to()) as run:
    ...     run.push("new", [{"x": "p", "y": "one"}, {"x": "q", "y": "two"}])
    ...     run.push("store", [{"x": "p", "y": "q"}])
    ...     run.push("move", [{"x": "r", "y": "p"}])
    ...     run.push("load", [{"x": "s", "y": "r"}])
    ...     print([row for row, _ in run.step()["points"].to_rows()])
    ...     run.delete("move", [{"x": "r", "y": "p"}])
    ...     print(run.step()["points"].to_rows())
    [('p', 'one'), ('q', 'two'), ('r', 'one'), ('s', 'two')]
    [(('r', 'one'), -1), (('s', 'two'), -1)]
    """
    new, move, load, store = (dbsp.table(name, STATEMENTS) for name in ("new", "move", "load", "store"))

    def body(points: dbsp.Stream, heap: dbsp.Stream) -> dict[str, dbsp.Stream]:
        at = points.rename({"x": "y", "y": "cell"})
        moved = move.join(at, on="y").select("x", y="cell")
        loaded = load.join(at, on="y").select("x", "cell").join(heap, on="cell").select("x", y="held")
        stored = (
            store.join(points.rename({"y": "cell"}), on="x")
            .select("cell", "y")
            .join(at.rename({"cell": "held"}), on="y")
        )
        return {"points": moved.union(loaded), "heap": stored.select("cell", "held")}

    views = dbsp.recursive({"points": new, "heap": {"cell": dbsp.STRING, "held": dbsp.STRING}}, body)
    return dbsp.circuit("points_to", views)
