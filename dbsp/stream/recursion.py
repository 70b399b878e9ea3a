"""Recursive queries: streams that are defined by themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

from dbsp.algebra.distinct import Distinct
from dbsp.algebra.in_rounds import check
from dbsp.algebra.nested import flattened
from dbsp.algebra.recursive import LoopId, Recursion, RecursiveView, Variable, inside
from dbsp.circuit.graph import in_order
from dbsp.circuit.names import check_name
from dbsp.circuit.nodes import Node
from dbsp.errors import CircuitError
from dbsp.source_lines import SourceLine, located, user_line
from dbsp.stream.alignment import aligned
from dbsp.stream.handle import Handle
from dbsp.stream.schemas import Columns, as_schema
from dbsp.stream.stream import Stream
from dbsp.zset.schema import Column, Schema

MAX_ROUNDS = 1000
SINGLE = "recursive"
Start = Handle | Columns


@overload
def recursive(start: Stream, body: Callable[[Stream], Stream], *, max_rounds: int = MAX_ROUNDS) -> Stream: ...


@overload
def recursive(
    start: Mapping[str, Stream | Columns],
    body: Callable[..., Mapping[str, Stream] | Stream],
    *,
    max_rounds: int = MAX_ROUNDS,
) -> dict[str, Stream]: ...


def recursive(start: Any, body: Callable[..., Any], *, max_rounds: int = MAX_ROUNDS) -> Any:
    """Views that are defined by themselves, as SQL's WITH RECURSIVE … UNION: rows are added until nothing more follows.

    With one stream as `start`, `body` is given the view as it is so far and says what follows from it; the answer is the
    start and all that follows. With a dict of names, `body` is given one stream per name, in order, and returns a dict of
    their definitions; a name's value is its start, or only its columns where the definition says all.

    **Law** x(0) is empty, x(r + 1) = distinct(start + body(x(r))) for all views at once; the answer is the first x(r) that
    equals x(r + 1). It is that of the tables as they are now: a deletion leaves no row behind that only supports itself.

    **Shape** Inside: select, with_columns, filter, explode, inner joins (not null-safe), union, distinct, min and max;
    difference, semi and anti joins against a stream that does not depend on the views; another recursion, if neither takes
    a min or max (`max_rounds` is then the outer one's). Columns are matched by name. Rows are a set: each is there once.

    **State** Per view its rows with the rounds in which they first followed; what its joins and distincts keep, likewise.

    **Cost** In proportion to the rows that change, at every round at which they change; an exchange or two per round that
    has something to do (on Spark a job each). A changed row reads the rounds of its own history, a min the rows of its group.

    **Limit** `max_rounds` rounds: a step that needs more fails with `CapacityError`, so that rows which grow for ever
    (a counter along a cycle) do not.

    **Errors** `CircuitError` for an operator that cannot stand inside, and for views whose columns do not fit.

    **Example**

    >>> import dbsp
    >>> edges = dbsp.table("edges", {"a": dbsp.INT64, "b": dbsp.INT64})
    >>> def longer(paths):
    ...     return paths.join(edges.rename({"a": "b", "b": "c"}), on="b").select("a", b="c")
    >>> paths = dbsp.recursive(edges, longer)
    >>> with dbsp.open(dbsp.circuit("demo", {"paths": paths})) as run:
    ...     run.push("edges", [{"a": 1, "b": 2}, {"a": 2, "b": 3}, {"a": 3, "b": 2}])
    ...     print([row for row, _ in run.step()["paths"].to_rows()])
    ...     run.delete("edges", [{"a": 1, "b": 2}])
    ...     print(run.step()["paths"].to_rows())
    [(1, 2), (1, 3), (2, 2), (2, 3), (3, 2), (3, 3)]
    [((1, 2), -1), ((1, 3), -1)]
    """
    source = user_line()
    with located(source):
        if isinstance(max_rounds, bool) or not isinstance(max_rounds, int) or max_rounds < 1:
            raise CircuitError(f"max_rounds is a number of rounds, 1 or more: max_rounds={max_rounds!r}")
        single = isinstance(start, Handle)
        starts = {SINGLE: start} if single else _starts(start)
        views = _build(starts, body, max_rounds, source)
        return views[SINGLE] if single else views


def _starts(start: Any) -> dict[str, Any]:
    if not isinstance(start, Mapping) or not start:
        raise CircuitError(
            f"recursive starts from a stream or a dict of views: got={type(start).__name__}",
            'give a stream, or such as {"paths": edges} or {"paths": {"a": dbsp.INT64, "b": dbsp.INT64}}',
        )
    for name in start:
        check_name("view", name)
    return dict(start)


def _build(starts: Mapping[str, Any], body: Callable[..., Any], max_rounds: int, source: SourceLine | None) -> Any:
    """The views. The body is asked again where its columns may be null and the views' were not."""
    schemas = {name: one.schema if isinstance(one, Handle) else as_schema(one) for name, one in starts.items()}
    while True:
        loop = LoopId()
        variables = [Variable(name=n, loop=loop, schema=s, source=source) for n, s in schemas.items()]
        bodies = _bodies(starts, schemas, body(*map(Stream, variables)), source)
        made = {name: node.schema for name, node in bodies.items()}
        if made == schemas:
            break
        schemas = made
    names, definitions = flattened(tuple(bodies), tuple(bodies.values()), loop)
    _check(definitions)
    node = Recursion(
        bodies=definitions,
        names=names,
        loop=loop,
        max_rounds=max_rounds,
        schema=schemas[names[0]],
        source=source,
    )
    views = (RecursiveView(input=node, name=n, index=i, schema=schemas[n], source=source) for i, n in enumerate(bodies))
    return {view.name: Stream(view) for view in views}


def _bodies(starts: Mapping[str, Any], schemas: Mapping[str, Schema], given: Any, source: SourceLine | None) -> Any:
    """Each view's whole definition, its columns as those of the view, null where they may be."""
    if isinstance(given, Handle) and len(starts) == 1:
        given = dict.fromkeys(starts, given)
    if not isinstance(given, Mapping) or set(given) != set(starts):
        got = sorted(given) if isinstance(given, Mapping) else type(given).__name__
        raise CircuitError(f"a recursion defines its views: views={list(starts)} got={got}", "return a dict of them")
    bodies = {}
    for name, start in starts.items():
        if not isinstance(given[name], Handle):
            raise CircuitError(f"a view is a stream: view={name} got={type(given[name]).__name__}", "return a stream")
        follows = given[name].node
        with_start = Stream(start.node).union(Stream(follows)).node if isinstance(start, Handle) else follows
        bodies[name] = _fitted(with_start, schemas[name], source)
    return bodies


def _fitted(node: Node, schema: Schema, source: SourceLine | None) -> Node:
    """The node with the columns of the view in its order."""
    like = Distinct(input=node, schema=Schema(tuple(Column(c.name, c.type, c.nullable) for c in schema)), source=source)
    found: Sequence[Node] = aligned([like, node], source)
    return found[1]


def _check(bodies: tuple[Node, ...]) -> None:
    """Refuse what cannot stand inside."""
    within = inside(bodies)
    for node in in_order(bodies):
        if id(node) in within and not isinstance(node, Variable):
            check(node, [id(child) in within for child in node.children()])
