"""The planner: from the logical circuit to the plan that workers run.

Going from the tables up, every logical node becomes physical ones. Filters and projections wait in the flow (`Flow.stages`)
and become one `Apply` where something must be kept, sent or shared: so they run below the next exchange and the next trace.
Only needed columns (`dbsp.plan.pruning`) are made. A stateful operator's inputs are distributed by its key; aggregates send
sums instead of rows (`Combine`). Everything follows from the circuit alone, in one order, so equal circuits have equal plans.

Source: design section 4.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import assert_never

from dbsp.circuit import nodes as logical
from dbsp.circuit.fingerprint import fingerprint
from dbsp.circuit.graph import in_order, inputs_of, shared
from dbsp.circuit.nodes import Circuit, Node, Table
from dbsp.expr.expression import ColumnRef
from dbsp.operators.apply import Keep, Project
from dbsp.operators.group_by import GroupBy
from dbsp.operators.join import Join
from dbsp.operators.map_rows import MapRows
from dbsp.operators.operator import Operator, Shows
from dbsp.operators.set_operation import SetOperation
from dbsp.operators.source import OPERATION, POSITION, Source, operations_schema
from dbsp.operators.top_k import TopK
from dbsp.operators.union import Union
from dbsp.operators.upsert import Upsert
from dbsp.plan.builder import Builder, Flow, Key
from dbsp.plan.grouping import group_by
from dbsp.plan.plan import Plan, ViewSpec
from dbsp.plan.pruning import Need, needed_columns
from dbsp.plan.pushdown import pushed_down
from dbsp.zset.schema import Arrangement, Schema


def plan(circuit: Circuit) -> Plan:
    """The plan of a circuit.

    **Law** what the views' changes sum up to is what the circuit says, on any number of workers.

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
    readers = Counter(id(child) for node in in_order(roots) for child in inputs_of(node))
    readers.update(id(node) for node in roots)
    lowering = _Lowering(Builder(), needed_columns(roots), readers)
    for node in in_order(roots):
        lowering.lower(node)
    builder = lowering.builder
    views = tuple(
        lowering.view(name, node, name in circuit.materialized)
        for (name, _), node in zip(circuit.views, roots, strict=True)
    )
    return Plan(
        circuit=circuit,
        nodes=tuple(builder.nodes),
        exchanges=tuple(builder.exchanges),
        views=views,
        tables=circuit.tables,
        segments=max((exchange.depth + 2 for exchange in builder.exchanges), default=1),
        fingerprint=fingerprint(circuit),
    )


@dataclass(slots=True)
class _Lowering:
    """The flows of the logical nodes done so far, by identity."""

    builder: Builder
    need: dict[int, Need]
    readers: Counter[int]
    flows: dict[int, Flow] = field(default_factory=dict)

    def lower(self, node: Node) -> None:
        """Make the flow of a node whose inputs are done; one that is read twice is settled, so that it runs once."""
        flow = self._flow(node)
        if self.readers[id(node)] > 1:
            flow = self.builder.settle(flow, node.source)
        self.flows[id(node)] = flow

    def _flow(self, node: Node) -> Flow:  # noqa: PLR0911 (one case per kind of node)
        match node:
            case Table():
                return self._keyed_table(node) if node.primary_key else self._bare_table(node)
            case logical.Select():
                return self._select(node)
            case logical.Filter():
                flow = self._input(node.input)
                kept = flow.then(Keep(predicate=node.predicate, schema=flow.schema), flow.distribution)
                return kept.pick(self._needed(node))
            case logical.Join():
                return self._join(node)
            case logical.GroupBy():
                return group_by(self.builder, self._input(node.input), node, self._needed(node))
            case logical.Union():
                return self._union(node)
            case logical.MapRows():
                flow = self.builder.settle(self._input(node.input).pick(node.input.schema.names), node.source)
                made = self.builder.add("map", MapRows(function=node.function), (flow.node,), node.schema, node.source)
                return Flow(node=made, schema=node.schema, distribution=None)
            case logical.Distinct():
                return self._set_operation("distinct", node, [node.input])
            case logical.Difference():
                return self._set_operation("difference", node, [node.left, node.right])
            case logical.TopK():
                return self._top_k(node)
            case _:
                assert_never(node)

    def _input(self, node: Node) -> Flow:
        return self.flows[id(node)]

    def _needed(self, node: Node) -> Key:
        """The columns that are needed of a node, in its order."""
        return tuple(name for name in node.schema.names if name in self.need[id(node)])

    def _bare_table(self, node: Table) -> Flow:
        made = self.builder.add("source", Source(table=node.name), (), node.schema, node.source)
        return Flow(node=made, schema=node.schema, distribution=None).pick(self._needed(node))

    def _keyed_table(self, node: Table) -> Flow:
        """The operations, with the needed columns only, go to the owners of the primary key."""
        schema = node.schema.select(self._needed(node))
        operations = operations_schema(node.schema, node.primary_key)
        made = self.builder.add("source", Source(table=node.name), (), operations, node.source)
        flow = Flow(node=made, schema=operations, distribution=None).pick((*schema.names, OPERATION, POSITION))
        flow = self.builder.distribute(flow, node.primary_key, node.source)
        operator = Upsert(schema=schema, key=node.primary_key)
        kept = self.builder.add("upsert", operator, (flow.node,), schema, node.source)
        return Flow(node=kept, schema=schema, distribution=node.primary_key)

    def _select(self, node: logical.Select) -> Flow:
        flow, needed = self._input(node.input), self._needed(node)
        columns = tuple((name, value) for name, value in node.columns if name in needed)
        renamed = {value.name: name for name, value in reversed(columns) if isinstance(value, ColumnRef)}
        distribution = _renamed(flow.distribution, renamed)
        return flow.then(Project(columns=columns, schema=node.schema.select(needed)), distribution)

    def _join(self, node: logical.Join) -> Flow:
        needed = self._needed(node)
        columns = tuple(column for column in node.columns if column[2] in needed)
        keys = [node.left_on, node.right_on]
        sides = [
            self._input(child).pick(
                _in_order(child.schema, {name for of, name, _ in columns if of == side} | set(keys[side]))
            )
            for side, child in enumerate((node.left, node.right))
        ]
        left, right = self.builder.together(sides, keys, node.source)
        schema = node.schema.select(needed)
        operator = Join(
            left=left.schema,
            right=right.schema,
            left_on=node.left_on,
            right_on=node.right_on,
            columns=columns,
            schema=schema,
        )
        made = self.builder.add("join", operator, (left.node, right.node), schema, node.source)
        outputs = {(side, name): out for side, name, out in reversed(columns)}
        distribution = [outputs.get((0, a), outputs.get((1, b))) for a, b in zip(*keys, strict=True)]
        known = tuple(name for name in distribution if name is not None)
        return Flow(node=made, schema=schema, distribution=known if len(known) == len(distribution) else None)

    def _union(self, node: logical.Union) -> Flow:
        needed = self._needed(node)
        flows = self.builder.lifted([self._input(child).pick(needed) for child in node.inputs], node.source)
        schema = node.schema.select(needed)
        made = self.builder.add("union", Union(schema=schema), tuple(flow.node for flow in flows), schema, node.source)
        distributions = {flow.distribution for flow in flows}
        return Flow(node=made, schema=schema, distribution=distributions.pop() if len(distributions) == 1 else None)

    def _set_operation(self, kind: str, node: logical.Distinct | logical.Difference, inputs: list[Node]) -> Flow:
        names = node.schema.names
        flows = [self._input(child).pick(names) for child in inputs]
        flows = self.builder.together(flows, [names] * len(flows), node.source)
        operator = SetOperation(kind=kind, schema=node.schema)
        made = self.builder.add(kind, operator, tuple(flow.node for flow in flows), node.schema, node.source)
        return Flow(node=made, schema=node.schema, distribution=names)

    def _top_k(self, node: logical.TopK) -> Flow:
        schema = node.input.schema
        flow = self.builder.distribute(self._input(node.input).pick(schema.names), node.partition, node.source)
        operator = TopK(
            input=schema, partition=node.partition, order=node.order, k=node.k, rank=node.rank, schema=node.schema
        )
        made = self.builder.add("top_k", operator, (flow.node,), node.schema, node.source)
        return Flow(node=made, schema=node.schema, distribution=node.partition)

    def view(self, name: str, node: Node, materialized: bool) -> ViewSpec:
        """A view; one that is kept is distributed by columns of its own, so that a rescale can move its rows."""
        flow = self.builder.settle(self._input(node).pick(node.schema.names), node.source)
        if not materialized:
            return ViewSpec(name=name, node=flow.node, schema=flow.schema, trace=None)
        node_made = self.builder.nodes[flow.node]
        shows = _shows(node_made.operator)
        if shows is not None:
            return ViewSpec(name=name, node=flow.node, schema=flow.schema, trace=node_made.traces[0], shows=shows)
        if flow.distribution is None:
            flow = self.builder.distribute(flow, flow.schema.names, node.source)
        key = flow.distribution if flow.distribution is not None else flow.schema.names
        trace = self.builder.trace(Arrangement(schema=flow.schema, key=key))
        return ViewSpec(name=name, node=flow.node, schema=flow.schema, trace=trace)


def _shows(operator: Operator) -> Shows | None:
    """The operator, if its first trace says all about its answer."""
    match operator:
        case Upsert():
            return operator
        case SetOperation():
            return operator
        case GroupBy() if not operator.others:
            return operator
        case _:
            return None


def _in_order(schema: Schema, names: set[str]) -> Key:
    return tuple(name for name in schema.names if name in names)


def _renamed(distribution: Key | None, names: dict[str, str]) -> Key | None:
    """The distribution under new names, if all its columns are still there."""
    if distribution is None or not set(distribution) <= names.keys():
        return None
    return tuple(names[name] for name in distribution)
