"""Builds a frozen circuit from named views."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from dbsp.algebra.recursive import inside
from dbsp.algebra.table import Table
from dbsp.circuit.circuit import Circuit
from dbsp.circuit.graph import in_order, shared
from dbsp.circuit.names import check_name
from dbsp.circuit.nodes import Node
from dbsp.diagnostics.source_lines import located, user_line
from dbsp.errors import CircuitError
from dbsp.expr.names import nearest
from dbsp.stream import Stream

NOT_SORTED: Mapping[str, str | Sequence[str]] = MappingProxyType({})
ERROR_POLICIES = ("dead-letter", "null", "stop")


def circuit(
    name: str,
    views: Mapping[str, Stream],
    materialize: bool | Iterable[str] = True,
    error_policy: str = "dead-letter",
    sorted_by: Mapping[str, str | Sequence[str]] = NOT_SORTED,
) -> Circuit:
    """Build a circuit that keeps these views up to date.

    **Shape** `materialize` names the views whose whole content can be read (all, none, or some); the others only emit changes.
    `error_policy` decides what happens to a row on which an expression fails:

    - `dead-letter`: the row leaves to the dead-letter log.
    - `null`: the failing value becomes null.
    - `stop`: the pipeline stops. Each worker judges the rows that it sees. So a row that is added on one worker and removed on
      another in the same step also stops the pipeline.

    `sorted_by` names columns by which the rows of a materialized view are stored, so that reads by them find their rows
    without reading others. Rows with one value of the first column are on one worker, in the order of the second column.
    So `{"visits": ("customer", "day")}` is for reads of a customer, and of a range of a customer's days. With one column
    alone, as in `{"visits": "day"}`, all rows are on one worker in its order.

    **Errors** `CircuitError` for names, views and settings that are not valid, and if no view reads a table.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"k": dbsp.STRING})
    >>> counts = dbsp.circuit("demo", {"counts": t.group_by("k").aggregate(n=dbsp.count())})
    >>> print(counts.explain())
    circuit demo
    view counts (materialized) (k: string, n: int64 not null)
      aggregate by (k) n = count(*)
        table t (k: string)
    """
    with located(user_line()):
        check_name("circuit", name)
        roots = _roots(views)
        if error_policy not in ERROR_POLICIES:
            raise CircuitError(
                f"no such error policy: error_policy={error_policy!r}", nearest(str(error_policy), ERROR_POLICIES)
            )
        nodes = shared(roots.values())
        _refuse_half_loops(roots, nodes)
        tables = _tables(nodes)
        if not tables:
            raise CircuitError("a circuit that reads no table takes no steps", "let one of its views read a table")
        return Circuit(
            name=name,
            views=tuple(zip(roots, nodes, strict=True)),
            tables=tables,
            materialized=(kept := _materialized(materialize, roots)),
            error_policy=error_policy,
            sorted_by=_sorted_by(sorted_by, roots, kept),
        )


def _roots(views: Mapping[str, Stream]) -> dict[str, Node]:
    if not isinstance(views, Mapping) or not views:
        raise CircuitError("a circuit needs at least one view", 'give a dict, such as {"late": stream}')
    roots = {}
    for name, stream in views.items():
        check_name("view", name)
        node = getattr(stream, "node", None)
        if not isinstance(node, Node):
            hint = (
                "finish it with .aggregate(…)"
                if type(stream).__name__ == "Group"
                else "give what dbsp.table or a method of it returned"
            )
            raise CircuitError(f"a view is a stream: view={name} got={type(stream).__name__}", hint)
        roots[name] = node
    return roots


def _refuse_half_loops(names: Iterable[str], roots: tuple[Node, ...]) -> None:
    """Raise `CircuitError` if a view reads a stream that is only defined inside a recursion's body."""
    within = inside(roots)
    for name, root in zip(names, roots, strict=True):
        if id(root) in within:
            raise CircuitError(
                f"a view of a recursion is read outside its definition: view={name}",
                "use what dbsp.recursive returns; the streams that its body is given mean nothing elsewhere",
            )


def _tables(roots: tuple[Node, ...]) -> tuple[Table, ...]:
    """Return the tables in the order in which they are reached; raise `CircuitError` if two different ones have one name."""
    tables: dict[str, Table] = {}
    for node in in_order(roots):
        if isinstance(node, Table):
            known = tables.setdefault(node.name, node)
            if known != node:
                hint = f"use one dbsp.table value everywhere; the other is at {known.source}"
                raise CircuitError(f"two tables have one name: table={node.name} second={node.source}", hint)
    return tuple(tables.values())


def _materialized(wanted: bool | Iterable[str], roots: Mapping[str, Node]) -> frozenset[str]:
    if isinstance(wanted, bool):
        return frozenset(roots) if wanted else frozenset()
    names = frozenset([wanted] if isinstance(wanted, str) else wanted)
    for name in sorted(names - roots.keys()):
        raise CircuitError(f"no such view to materialize: view={name}", nearest(name, roots))
    return names


def _sorted_by(
    wanted: Mapping[str, str | Sequence[str]], roots: Mapping[str, Node], kept: frozenset[str]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found = {}
    for view, columns in wanted.items():
        if view not in kept:
            raise CircuitError(f"no materialized view to sort: view={view}", nearest(view, kept))
        names = (columns,) if isinstance(columns, str) else tuple(columns)
        if not names or len(set(names)) < len(names):
            raise CircuitError(
                f"a view is sorted by different columns, at least one: view={view} columns={list(names)}"
            )
        for name in names:
            if name not in roots[view].schema.names:
                hint = nearest(name, roots[view].schema.names)
                raise CircuitError(f"no such column to sort a view by: view={view} column={name}", hint)
        found[view] = names
    return tuple(found.items())
