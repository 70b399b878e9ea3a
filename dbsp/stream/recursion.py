"""Recursive queries: streams that are defined in terms of themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

from dbsp.algebra.distinct import Distinct
from dbsp.algebra.iterations import check
from dbsp.algebra.nested import flattened
from dbsp.algebra.recursive import Recursion, RecursiveView, inside
from dbsp.algebra.variable import LoopId, Variable
from dbsp.circuit.graph import in_order
from dbsp.circuit.names import check_name
from dbsp.circuit.nodes import Node
from dbsp.diagnostics.source_lines import SourceLine, located, user_line
from dbsp.errors import CircuitError
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
    """Define views by themselves, as SQL's WITH RECURSIVE … UNION does: rows are added until nothing new follows.

    With one stream as `start`, `body` gets the view computed so far and returns the rows that follow from it. The
    result is the start and all that follows. With a dict of names, `body` gets one stream per name, in order, and
    returns a dict of their definitions. A name's value is its start, or only its columns if the definition is complete
    without one.

    **Law** x(0) is empty, and x(r + 1) = distinct(start + body(x(r))) for all views at once. The result is the first x(r)
    that equals x(r + 1). It is computed from the current tables: after a deletion, no row remains that only supports
    itself.

    **Shape** Allowed inside: select, with_columns, filter, explode, inner joins (not null-safe), union, distinct, min
    and max. A difference, semi or anti join is allowed against a stream that does not depend on the views. Another
    recursion is allowed if neither takes a min or max (`max_rounds` is then the outer one's). Columns are matched by
    name. Each row occurs once.

    **State** Per view its rows with the iterations in which they first followed; the state of its joins and distincts
    likewise.

    **Cost** In proportion to the rows that change, at every iteration at which they change. An iteration with changes
    takes an exchange or two (on Spark a job each). A changed row reads the iterations of its own history, a min those
    of its group.

    **Limit** `max_rounds` iterations: a step that needs more fails with `CapacityError`. So rows that grow for ever (a
    counter along a cycle) end in an error.

    **Errors** `CircuitError` for an operator that is not allowed inside, and for views whose columns do not fit.

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
    """Return the views by name.

    The body is called again with nullable columns where its result has nulls that the views' columns did not allow.
    """
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
    """Return each view's whole definition: its start and what follows, with the view's columns, nullable where either is."""
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
    """Return the node with the view's columns in the view's order, nullable where the node's or the view's are."""
    like = Distinct(input=node, schema=Schema(tuple(Column(c.name, c.type, c.nullable) for c in schema)), source=source)
    found: Sequence[Node] = aligned([like, node], source)
    return found[1]


def _check(bodies: tuple[Node, ...]) -> None:
    """Refuse operators that are not allowed inside a recursion."""
    within = inside(bodies)
    for node in in_order(bodies):
        if id(node) in within and not isinstance(node, Variable):
            check(node, [id(child) in within for child in node.children()])
