"""The planner: from the logical circuit to the plan that workers run.

From the tables up, each logical node plans itself as physical ones (`Node.plan`). Filters and projections wait in the flow
(`Flow.stages`) and become one `Apply` where rows must be stored, sent or shared. So they run before the next exchange and the
next trace. Only needed columns (`dbsp.plan.pruning`) are made. A stateful operator's inputs are distributed by its key;
aggregates send sums instead of rows (`Combine`). Everything is derived from the circuit alone, in one order, so equal circuits
have equal plans.

Source: docs/concepts/circuits.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from dbsp.algebra.key_by import KeyBy
from dbsp.algebra.recursive import inside
from dbsp.circuit.circuit import Circuit
from dbsp.circuit.fingerprint import fingerprint
from dbsp.circuit.graph import in_order, shared
from dbsp.circuit.nodes import Node, Planning
from dbsp.errors import CircuitError
from dbsp.operators.operator import AsKept
from dbsp.plan.appending import appending
from dbsp.plan.builder import Builder
from dbsp.plan.nodes import BuiltLoop
from dbsp.plan.plan import LoopSpec, Plan, ViewSpec
from dbsp.plan.pruning import needed_columns
from dbsp.plan.pushdown import pushed_down
from dbsp.plan.widening import widened
from dbsp.zset.schema import Arrangement, OrderBy


def plan(circuit: Circuit) -> Plan:
    """Plan a circuit.

    **Law** the sum of the views' changes is the content that the circuit defines, on any number of workers.

    **Example**

    >>> import dbsp
    >>> from dbsp.plan.explain import explain
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
    >>> counts = t.filter(dbsp.col("x") > 0).group_by("k").aggregate(n=dbsp.count())
    >>> made = plan(dbsp.circuit("demo", {"counts": counts}))
    >>> made.segments, [exchange.key for exchange in made.exchanges]
    (2, [('k',)])
    """
    roots = shared(pushed_down(shared(node for _, node in circuit.views)))
    readers = Counter(id(child) for node in in_order(roots) for child in node.children())
    readers.update(id(node) for node in roots)
    planning = Planning(Builder(), needed_columns(roots), readers, inside(roots), appending(roots))
    planning = _planned(roots, planning)
    flows = {number: flow.node for number, flow in planning.flows.items()}
    wider = widened(in_order(roots), flows, planning.builder.nodes)
    if wider:
        planning = _planned(roots, replace(planning, builder=Builder(), flows={}, loops={}, wider=wider))
    builder = planning.builder
    views = tuple(
        replace(
            _view(planning, name, node, name in circuit.materialized, dict(circuit.sorted_by).get(name)),
            keyed_by=_keys(given, name, dict(circuit.sorted_by).get(name)),
        )
        for (name, given), node in zip(circuit.views, roots, strict=True)
    )
    return Plan(
        circuit=circuit,
        nodes=builder.known(),
        exchanges=tuple(builder.exchanges),
        views=views,
        tables=circuit.tables,
        segments=_segments(builder, circuit.error_policy),
        fingerprint=fingerprint(circuit),
        loops=tuple(_loop(circuit, number, loop) for number, loop in enumerate(builder.loops)),
    )


def _loop(circuit: Circuit, number: int, loop: BuiltLoop) -> LoopSpec:
    """Return a loop with its body as a plan."""
    body = Plan(
        circuit=circuit, nodes=loop.nodes, exchanges=loop.exchanges, views=(), tables=(), segments=loop.segments, fingerprint=""
    )  # fmt: skip
    return LoopSpec(
        id=number, depth=loop.depth, views=loop.views, place=loop.place, max_rounds=loop.max_rounds, enters=loop.enters,
        leaves=loop.leaves, returns=loop.returns, body=body,
    )  # fmt: skip


def _segments(builder: Builder, error_policy: str) -> int:
    """Return the number of segments: as many as the deepest exchange needs.

    Under `stop` one more follows the last segment in which rows may fail. It begins when all workers know which rows failed.
    """
    count = max((exchange.depth + 2 for exchange in builder.exchanges), default=1)
    arrivals = {exchange.receiver for exchange in builder.exchanges}
    last = [node for node in builder.nodes if node.segment == count - 1]
    fails = error_policy == "stop" and not all(
        node.id in arrivals or node.operator.reads_table() is not None for node in last
    )
    return count + fails


def _planned(roots: Sequence[Node], planning: Planning) -> Planning:
    """Plan all nodes and return the planning with their flows."""
    for node in in_order(roots):
        planning.plan(node)
    return planning


def _keys(node: Node, name: str, sorted_by: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the keys of a view's messages, all of whose rows are on one worker; none if messages are changes.

    **Errors** `CircuitError` if the order of the view takes rows of one key to several workers.
    """
    if not isinstance(node, KeyBy):
        return ()
    if sorted_by is not None and len(sorted_by) > 1 and sorted_by[0] not in node.keys:
        raise CircuitError(
            f"a view is distributed by the first column of its order, which is not in the key of its messages: view={name}"
            f" sorted_by={','.join(sorted_by)} key={','.join(node.keys)}",
            "sort it by a column of the key first, or by one column alone",
        )
    return node.keys


def _view(
    planning: Planning, name: str, node: Node, materialized: bool, sorted_by: tuple[str, ...] | None = None
) -> ViewSpec:
    """Return a view; a materialized one is distributed by columns of its own, so that a rescale can move its rows.

    With `sorted_by` it is distributed by the first of these columns and ordered by the others; by none and by the only one.
    """
    builder = planning.builder
    flow = builder.settle(planning.input(node).pick(node.schema.names), node.source)
    if not materialized:
        return ViewSpec(name=name, node=flow.node, schema=flow.schema, trace=None)
    if sorted_by is not None:
        key, order = (sorted_by[:1], sorted_by[1:]) if len(sorted_by) > 1 else ((), sorted_by)
        flow = builder.distribute(flow, key, node.source)
        arrangement = Arrangement(schema=flow.schema, key=key, order=tuple(map(OrderBy, order)))
        return ViewSpec(name=name, node=flow.node, schema=flow.schema, trace=builder.trace(arrangement))
    made = builder.nodes[flow.node]
    shows = None if any(made.closing) else made.operator.shows()
    if shows is not None:
        return ViewSpec(name=name, node=flow.node, schema=flow.schema, trace=made.traces[0], shows=shows)
    if flow.distribution is None:
        flow = builder.distribute(flow, flow.schema.names, node.source)
    key = flow.distribution if flow.distribution is not None else flow.schema.names
    arrangement = Arrangement(schema=flow.schema, key=key)
    known = builder.shared.of_stream(flow.node, arrangement)
    if known is not None:
        return ViewSpec(name=name, node=flow.node, schema=flow.schema, trace=known, shows=AsKept())
    trace = builder.trace(arrangement)
    return ViewSpec(name=name, node=flow.node, schema=flow.schema, trace=trace)
