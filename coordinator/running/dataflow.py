"""The plan as a graph of JSON values, with the figures of every node: what the console draws and its pages of tables name."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from dbsp.diagnostics.source_lines import SourceLine
from dbsp.operators.source import SourceOperator
from dbsp.plan.nodes import PlanNode
from dbsp.plan.plan import LoopSpec, Plan
from dbsp.runtime.totals import NodeTotal, NodeTotals
from dbsp.zset.schema import Schema

Source = Callable[[SourceLine], "str | None"]


def source_text(line: SourceLine) -> str | None:
    """Return the text of a line of the user's program, None if its file cannot be read."""
    return linecache.getline(line.file, line.line).strip() or None


def dataflow_as_json(plan: Plan, totals: NodeTotals, source: Source = source_text) -> dict[str, Any]:
    """Return nodes, edges, tables and views of a plan; the nodes of a loop's body are named as `explain` names them.

    An edge with `by` is an exchange: its rows move to the worker that owns the hash of these columns.
    """
    figures: dict[int, dict[int, NodeTotal]] = {}
    for (number, worker), total in sorted(totals.by_node.items()):
        figures.setdefault(number, {})[worker] = total
    nodes = [_node(node, f"#{node.id}", figures.get(node.id, {}), source) for node in plan.nodes]
    edges = [*_edges(plan, "#")]
    for loop in plan.loops:
        mark = f"@{loop.id}."
        nodes += [
            {**_node(node, f"{mark}{node.id}", figures.get(loop.number(node.id), {}), source), "loop": loop.id}
            for node in loop.body.nodes
        ]
        edges += [*_edges(loop.body, mark), *_through(plan, loop, mark)]
    return {
        "name": plan.circuit.name, "steps": totals.steps, "segments": plan.segments, "nodes": nodes, "edges": edges,
        "loops": [{"id": loop.id, "views": list(loop.views), "iterations_max": loop.max_rounds} for loop in plan.loops],
        "tables": [
            {
                "name": table.name, "columns": _columns(table.schema), "primary_key": list(table.primary_key),
                "nodes": [f"#{node.id}" for node in plan.nodes if node.operator == SourceOperator(table=table.name)],
            }
            for table in plan.tables
        ],
        "views": [
            {
                "name": view.name, "node": f"#{view.node}", "columns": _columns(view.schema),
                "materialized": view.trace is not None,
            }
            for view in plan.views
        ],
    }  # fmt: skip


def _node(node: PlanNode, name: str, workers: Mapping[int, NodeTotal], source: Source) -> dict[str, Any]:
    at = node.source
    return {
        "id": name, "operator": str(node.operator), "kind": node.name.partition("#")[0], "segment": node.segment,
        "loop": None, "columns": _columns(node.schema),
        "traces": [
            {"id": trace.id, "key": list(trace.arrangement.key), "owner": node.trace_owner(index)}
            for index, trace in enumerate(node.traces)
        ],
        "append_only": node.appends,
        "source": None
        if at is None
        else {"file": PurePath(at.file).name, "line": at.line, "text": source(at)},
        "workers": [
            {
                "worker": worker, "rows_in": total.rows_in, "rows_out": total.rows_out,
                "seconds": round(total.seconds, 6), "state_rows": total.state_rows, "state_bytes": total.state_bytes,
            }
            for worker, total in workers.items()
        ],
    }  # fmt: skip


def _columns(schema: Schema) -> list[dict[str, Any]]:
    return [{"name": column.name, "type": str(column.type)} for column in schema]


def _edges(plan: Plan, mark: str) -> Iterator[dict[str, Any]]:
    """Yield the edges within a plan; ends in another plan are left to `_through`."""
    for node in plan.nodes:
        for number in node.inputs:
            yield _edge(f"{mark}{number}", f"{mark}{node.id}")
    for spec in plan.exchanges:
        if spec.sender >= 0 and spec.receiver >= 0:
            by = None if spec.local or spec.lifted else list(spec.key)
            yield _edge(f"{mark}{spec.sender}", f"{mark}{spec.receiver}", by)


def _edge(sender: str, receiver: str, by: list[str] | None = None) -> dict[str, Any]:
    return {"from": sender, "to": receiver, "by": by}


def _through(plan: Plan, loop: LoopSpec, mark: str) -> Iterator[dict[str, Any]]:
    """Yield the edges into a loop and out of it."""
    outer = {spec.id: spec for spec in plan.exchanges}
    inner = {spec.id: spec for spec in loop.body.exchanges}
    for out, into in loop.enters:
        yield _edge(f"#{outer[out].sender}", f"{mark}{inner[into].receiver}", list(outer[out].key))
    for inside, out in loop.leaves:
        yield _edge(f"{mark}{inner[inside].sender}", f"#{outer[out].receiver}")
