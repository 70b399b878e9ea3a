"""Recursive programs beside what plain Python says of the same tables: the rounds of the definition, from nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import dbsp
from dbsp import col

Row = tuple[Any, ...]
Rows = set[Row]

EDGES = {"a": dbsp.INT64, "b": dbsp.INT64, "w": dbsp.INT64}
edges = dbsp.table("edges", EDGES)
marks = dbsp.table("marks", {"a": dbsp.INT64})
arcs = edges.select("a", "b")


@dataclass(frozen=True)
class Program:
    """Views, and a function from (edges, marks) to their rows."""

    name: str
    views: dict[str, Any]
    expected: Callable[[list[Row], list[Row]], dict[str, Rows]]


def fixpoint(start: dict[str, Rows], step: Callable[[dict[str, Rows]], dict[str, Rows]]) -> dict[str, Rows]:
    """The first x with step(x) == x, from `start`."""
    found = start
    while (following := step(found)) != found:
        found = following
    return found


def pairs(rows: Iterable[Row]) -> Rows:
    return {row[:2] for row in rows}


def closure(rows: Iterable[Row]) -> Rows:
    start = pairs(rows)
    x = fixpoint({"p": set()}, lambda x: {"p": start | {(a, d) for a, b in x["p"] for c, d in start if b == c}})
    return x["p"]


def linear() -> Program:
    """Transitive closure, one edge longer per round."""
    paths = dbsp.recursive(
        arcs, lambda p: p.join(arcs.rename({"a": "b", "b": "c"}), on="b").select("a", b="c"), max_rounds=60
    )
    return Program("linear", {"v": paths}, lambda e, _: {"v": closure(e)})


def doubling() -> Program:
    """Transitive closure, twice as long per round: both sides of the join vary."""
    paths = dbsp.recursive(
        arcs, lambda p: p.join(p.rename({"a": "b", "b": "c"}), on="b").select("a", b="c"), max_rounds=60
    )
    return Program("doubling", {"v": paths}, lambda e, _: {"v": closure(e)})


def reached() -> Program:
    """What is reached from marks without entering a marked node again: a difference from a fixed stream."""
    fresh = marks.rename({"a": "b"})

    def body(r: Any) -> Any:
        return r.join(arcs, on="a").select("b").difference(fresh).select(a="b")

    def expected(e: list[Row], m: list[Row]) -> dict[str, Rows]:
        start, arc = set(m), pairs(e)
        return fixpoint(
            {"v": set()},
            lambda x: {"v": start | ({(b,) for a, b in arc if (a,) in x["v"]} - start)},
        )

    return Program("reached", {"v": dbsp.recursive(marks, body, max_rounds=60)}, expected)


def components() -> Program:
    """The least node that reaches each one, edges taken both ways: min in the loop."""
    both = arcs.union(arcs.select(a="b", b="a"))
    nodes = both.select("a").distinct()

    def body(c: Any) -> Any:
        said = c.join(both, on="a").select(a="b", least="least")
        return {"v": nodes.select("a", least="a").union(said).group_by("a").aggregate(least=dbsp.min("least"))}

    def expected(e: list[Row], _: list[Row]) -> dict[str, Rows]:
        arc = pairs(e) | {(b, a) for a, b in pairs(e)}
        least = {a: a for a, _ in arc}
        while True:
            following = {a: min([least[a], *(least[b] for c, b in arc if c == a)]) for a in least}
            if following == least:
                return {"v": set(least.items())}
            least = following

    views = dbsp.recursive({"v": {"a": dbsp.INT64, "least": dbsp.INT64}}, body, max_rounds=60)
    return Program("components", views, expected)


def shortest() -> Program:
    """The length of the shortest way from a mark, and of the longest edge of it that comes last: two extremes."""

    def body(d: Any) -> Any:
        further = d.join(edges, on="a").select(a="b", n=col("n") + col("w"), w="w")
        whole = marks.select("a", n=dbsp.lit(0, dbsp.INT64), w=dbsp.lit(0, dbsp.INT64)).union(further)
        return whole.group_by("a").aggregate(n=dbsp.min("n"))

    def expected(e: list[Row], m: list[Row]) -> dict[str, Rows]:
        start = dict.fromkeys((a for (a,) in m), 0)
        best = dict(start)
        while True:
            following = dict(start)
            for a, b, w in e:
                if a in best:
                    following[b] = min(following.get(b, best[a] + w), best[a] + w)
            if following == best:
                return {"v": set(best.items())}
            best = following

    views = dbsp.recursive({"v": {"a": dbsp.INT64, "n": dbsp.INT64}}, body, max_rounds=60)
    return Program("shortest", views, expected)


def parity() -> Program:
    """Nodes reached from marks in an even and in an odd number of edges: two views, each defined by the other."""

    def body(even: Any, odd: Any) -> Any:
        return {"even": odd.join(arcs, on="a").select(a="b"), "odd": even.join(arcs, on="a").select(a="b")}

    def expected(e: list[Row], m: list[Row]) -> dict[str, Rows]:
        arc = pairs(e)
        return fixpoint(
            {"even": set(), "odd": set()},
            lambda x: {
                "even": set(m) | {(b,) for a, b in arc if (a,) in x["odd"]},
                "odd": {(b,) for a, b in arc if (a,) in x["even"]},
            },
        )

    views = dbsp.recursive({"even": marks, "odd": {"a": dbsp.INT64}}, body, max_rounds=60)
    return Program("parity", views, expected)


def chained() -> Program:
    """A recursion that reads another one's answer, and a distinct inside."""
    first = linear().views["v"]

    def body(r: Any) -> Any:
        return r.join(first, on="a").select(a="b").distinct().filter(col("a") < 5)

    def expected(e: list[Row], m: list[Row]) -> dict[str, Rows]:
        paths = closure(e)
        return fixpoint(
            {"v": set()},
            lambda x: {"v": set(m) | {(b,) for a, b in paths if (a,) in x["v"] and b < 5}},
        )

    return Program("chained", {"v": dbsp.recursive(marks, body, max_rounds=60)}, expected)


def nested() -> Program:
    """Paths whose ends are linked again by what is reached from a mark through them: a recursion inside a recursion."""

    def body(paths: Any) -> Any:
        inner = dbsp.recursive(marks, lambda r: r.join(paths, on="a").select(a="b"), max_rounds=60)
        back = inner.join(arcs.rename({"a": "c", "b": "a"}), on="a").select("a", b="c")
        return paths.join(back.rename({"a": "b", "b": "c"}), on="b").select("a", b="c")

    def expected(e: list[Row], m: list[Row]) -> dict[str, Rows]:
        arc = pairs(e)

        def outer(x: dict[str, Rows]) -> dict[str, Rows]:
            paths = x["v"]
            reach = fixpoint({"r": set()}, lambda y: {"r": set(m) | {(b,) for a, b in paths if (a,) in y["r"]}})["r"]
            back = {(b, a) for a, b in arc if (b,) in reach}
            return {"v": arc | {(a, d) for a, b in paths for c, d in back if b == c}}

        return fixpoint({"v": set()}, outer)

    return Program("nested", {"v": dbsp.recursive(arcs, body, max_rounds=60)}, expected)


def guarded() -> Program:
    """Walks that begin at marks, enter no node with an edge to itself, and end where there is no edge out."""
    loops = arcs.filter(col("a") == col("b")).select("a")
    on = arcs.select("a")

    def body(r: Any) -> Any:
        going = r.join(on.distinct(), on="a").join(on, on="a", how="semi")
        return going.join(arcs, on="a").select(a="b").join(loops, on="a", how="anti")

    def expected(e: list[Row], m: list[Row]) -> dict[str, Rows]:
        arc = pairs(e)
        own = {a for a, b in arc if a == b}
        return fixpoint(
            {"v": set()},
            lambda x: {"v": set(m) | {(b,) for a, b in arc if (a,) in x["v"] and b not in own}},
        )

    return Program("guarded", {"v": dbsp.recursive(marks, body, max_rounds=60)}, expected)


def repeated() -> Program:
    """Paths whose body adds the edges once more, and drops repeats: equal nodes inside become one."""

    def body(paths: Any) -> Any:
        longer = paths.join(arcs.rename({"a": "b", "b": "c"}), on="b").select("a", b="c")
        return longer.union(arcs, distinct=True)

    return Program("repeated", {"v": dbsp.recursive(arcs, body, max_rounds=60)}, lambda e, _: {"v": closure(e)})


PROGRAMS = [
    linear(),
    doubling(),
    reached(),
    components(),
    shortest(),
    parity(),
    chained(),
    nested(),
    guarded(),
    repeated(),
]
