"""Signatures: the meaning of a plan's traces, nodes and views, as texts that do not depend on the rest of the circuit.

Numbers of traces and nodes depend on the whole circuit; a signature depends only on what is computed. It covers the operator
with its parameters, the arrangement of rows, the dropped rows, and the signatures of all inputs, down to the tables.
So two plans can be compared without the code of the circuit from which the first was made (`dbsp.plan.changes`).

**Law** traces of one signature hold the same rows after the same input.

If a trace is the sum of a stream, it does not matter which node asked for it first (`dbsp.plan.shared_arrangements`): its
signature names the stream. A node of a loop is identified by the whole loop and its place there.

All readers of a stream decide which of its columns are needed. So the signature of a table's rows leaves the columns out, also
after picks of columns and filters. The signature of a node that stores or computes something names the columns that it reads.

Source: design record 0024.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from types import MappingProxyType
from typing import Any

from dbsp.algebra.table import Table
from dbsp.circuit.circuit import Circuit
from dbsp.circuit.fingerprint import node_tokens, parameters, token_of
from dbsp.errors import InternalError
from dbsp.expr.type_names import schema_name
from dbsp.operators.monotone_bounds import BoundTerm
from dbsp.operators.operator import OUTPUT, Operator
from dbsp.plan.nodes import ExchangeSpec, PlanNode
from dbsp.plan.plan import LoopSpec, Plan
from dbsp.plan.shared_arrangements import Closing
from dbsp.store import TraceSpec
from dbsp.stored import stored_fields, stored_name
from dbsp.zset.schema import Arrangement

FORMAT = "dbsp signatures 1"
NOT_WIDENED: Mapping[str, Table] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Signatures:
    """The signatures of a plan, stored so that the plan of a changed circuit can be compared with it.

    `traces` and `watermarks` map each signature to its number in the plan. `views` and `tables` map each name to a
    signature. `rows` maps each table with a primary key to the trace of its rows, and to the columns of that trace.
    """

    traces: Mapping[str, int]
    watermarks: Mapping[str, int]
    nodes: frozenset[str]
    views: Mapping[str, str]
    tables: Mapping[str, str]
    rows: Mapping[str, tuple[int, tuple[str, ...]]]
    error_policy: str

    def to_json(self) -> dict[str, Any]:
        """Return the signatures as JSON values."""
        return {
            "format": FORMAT, "traces": dict(self.traces), "watermarks": dict(self.watermarks), "nodes": sorted(self.nodes),
            "views": dict(self.views), "tables": dict(self.tables), "error_policy": self.error_policy,
            "rows": {table: [number, list(names)] for table, (number, names) in self.rows.items()},
        }  # fmt: skip

    @staticmethod
    def from_json(found: Mapping[str, Any] | None) -> Signatures | None:
        """Return the signatures that `to_json` wrote; None if there are none, or if they have another format."""
        if found is None or found["format"] != FORMAT:
            return None
        return Signatures(
            traces=found["traces"], watermarks=found["watermarks"], nodes=frozenset(found["nodes"]), views=found["views"],
            tables=found["tables"], error_policy=found["error_policy"],
            rows={table: (number, tuple(names)) for table, (number, names) in found["rows"].items()},
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Meanings:
    """The signatures of a plan, indexed by its node numbers and its trace numbers."""

    nodes: tuple[str, ...]
    traces: Mapping[int, str]


def signatures(plan: Plan) -> Signatures:
    """Return the signatures that are stored for a plan, with which the next plan is compared.

    **Example**

    >>> import dbsp
    >>> from dbsp.plan.planner import plan
    >>> t = dbsp.table("t", {"k": dbsp.INT64, "x": dbsp.INT64}, primary_key=["k"])
    >>> one = dbsp.circuit("one", {"all": t})
    >>> two = dbsp.circuit("two", {"sums": t.group_by("x").aggregate(n=dbsp.count()), "all": t})
    >>> len(signatures(plan(one)).traces.keys() & signatures(plan(two)).traces.keys())
    1
    """
    found = meanings(plan)
    watermarks = {found.nodes[number]: number for number in plan.watermarks}
    return Signatures(
        traces={signature: number for number, signature in found.traces.items()}, watermarks=watermarks,
        nodes=frozenset(found.nodes), views=_views(plan.circuit),
        tables={table.name: declaration(table) for table in plan.tables},
        rows={table: (trace.id, trace.arrangement.schema.names) for table, trace in rows_of_tables(plan).items()},
        error_policy=plan.circuit.error_policy,
    )  # fmt: skip


def rows_of_tables(plan: Plan) -> dict[str, TraceSpec]:
    """Return, for each table with a primary key that is kept, the trace of its rows with the needed columns."""
    before = {spec.receiver: spec.sender for spec in plan.exchanges}
    found = {}
    for node in plan.nodes:
        if node.operator.keeps_table():
            number = node.id
            while (table := plan.nodes[number].operator.reads_table()) is None:
                number = before[number] if number in before else plan.nodes[number].inputs[0]
            found[table] = node.traces[0]
    return found


def declaration(table: Table) -> str:
    """Return the signature of a table's declaration."""
    return _hash(f"{table.name} {_Tokens().of(table)} {schema_name(table.schema)}")


def _views(circuit: Circuit, before: Mapping[str, Table] = NOT_WIDENED) -> dict[str, str]:
    """Return the signature of each view's definition, which is the same whether its rows are kept or not."""
    return {
        name: _hash(
            *_tokens(replace(circuit, views=((name, node),)), NOT_WIDENED if isinstance(node, Table) else before)
        )
        for name, node in circuit.views
    }


def _tokens(circuit: Circuit, before: Mapping[str, Table]) -> Iterator[str]:
    """Yield the tokens of a circuit's nodes; a table in `before` has the token of its earlier columns."""
    was = {
        f"{parameters(table)} schema={schema_name(table.schema)} inputs=[]": f"{parameters(before[table.name])} schema="
        f"{schema_name(before[table.name].schema)} inputs=[]"
        for table in circuit.tables
        if table.name in before
    }
    return (was.get(token, token) for _, token in node_tokens(replace(circuit, materialized=frozenset(), sorted_by=())))


def views_as_before(plan: Plan, before: Mapping[str, Table]) -> dict[str, str]:
    """Return the signatures that the views would have with the tables `before`, which lack columns that were added.

    The signature equals the earlier one unless a node of the view has an added column in its rows.
    """
    return _views(plan.circuit, before)


def _hash(*parts: str) -> str:
    return hashlib.sha256("\n".join((FORMAT, *parts)).encode()).hexdigest()[:32]


def meanings(plan: Plan, before: Mapping[str, Table] = NOT_WIDENED) -> Meanings:
    """Return the signatures of a plan's nodes and traces; a table in `before` counts with its earlier columns only."""
    return _Reading(plan, roots(plan), before).meanings()


def roots(plan: Plan) -> tuple[int, ...]:
    """Return for each node the node from which its stream originates.

    It is the node itself, unless a lifted exchange brings the rows unchanged from an earlier segment.
    """
    lifted = {spec.receiver: spec.sender for spec in plan.exchanges if spec.receiver >= 0 and spec.lifted}
    found: list[int] = []
    for node in plan.nodes:
        found.append(found[lifted[node.id]] if node.id in lifted else node.id)
    return tuple(found)


@dataclass(slots=True)
class _Tokens:
    """Texts of parameters, in which the signature of a watermark replaces its number."""

    nodes: Mapping[int, str] = field(default_factory=dict)

    def of(self, value: Any) -> str:
        """Return the canonical text of a value."""
        if isinstance(value, BoundTerm):
            return f"edge {self.nodes[value.node]} {token_of(value.type)} {token_of(value.value)}"
        if isinstance(value, tuple):
            return "[" + " ".join(map(self.of, value)) + "]"
        if is_dataclass(value) and not isinstance(value, type) and not hasattr(value, "token"):
            parts = list(stored_fields(value))
            if isinstance(value, Table):
                parts.insert(1, ("schema", value.schema))  # version 0.1.0 stored it in this place
            return f"{stored_name(type(value))}({' '.join(f'{name}={self.of(part)}' for name, part in parts)})"
        return token_of(value)

    def arrangement(self, arrangement: Arrangement) -> str:
        """Return the text of an arrangement: its columns with their types, key, order and weights."""
        return f"{schema_name(arrangement.schema)} {self.of(arrangement)}"


@dataclass(slots=True)
class _Reading:
    """The computation of a plan's signatures, from the tables upwards."""

    plan: Plan
    roots: tuple[int, ...]
    before: Mapping[str, Table]
    nodes: dict[int, str] = field(default_factory=dict)
    traces: dict[int, str] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    loops: dict[int, str] = field(default_factory=dict)

    def meanings(self) -> Meanings:
        """Return the signatures of all nodes and traces."""
        arrivals = {spec.receiver: spec for spec in self.plan.exchanges if spec.receiver >= 0}
        left = {outer: (loop, index) for loop in self.plan.loops for index, (_, outer) in enumerate(loop.leaves)}
        for node in self.plan.nodes:
            spec = arrivals.get(node.id)
            if spec is not None and spec.id in left:
                loop, index = left[spec.id]
                self.nodes[node.id] = _hash("out of a loop", self._loop(loop), str(index))
            else:
                self.nodes[node.id] = self._node(node, spec)
        for node in self.plan.nodes:
            self._traces(node)
        for view in self.plan.views:
            if view.integrates and view.trace is not None:
                self._note(view.trace, self._sum(view.node, view.trace.arrangement, frozenset(), None))
        for loop in self.plan.loops:
            self._loop_traces(loop)
        return Meanings(nodes=tuple(self.nodes[node.id] for node in self.plan.nodes), traces=self.traces)

    def _node(self, node: PlanNode, spec: ExchangeSpec | None) -> str:
        return node.operator.signature(_Given(self, node, spec))

    def table(self, name: str) -> str:
        """Return the signature of a table's rows as they are pushed."""
        table = self.before.get(name) or next(table for table in self.plan.tables if table.name == name)
        return _hash("source", name, _Tokens(self.nodes).of(table), schema_name(table.schema))

    def _traces(self, node: PlanNode) -> None:
        """Note the signatures of the traces that the node owns; borrowed traces are noted with their owners."""
        integrals = node.operator.integrals() or (None,) * len(node.traces)
        for index, (trace, integral) in enumerate(zip(node.traces, integrals, strict=True)):
            if node.trace_owner(index) is not None:
                continue
            closed = node.closing[index] if node.closing else None
            if integral is None:
                kept = _Tokens(self.nodes).arrangement(trace.arrangement)
                self._note(trace, _hash("own", self.nodes[node.id], str(index), kept))
            else:
                stream = node.id if integral.stream == OUTPUT else node.inputs[integral.stream]
                self._note(
                    trace, self._sum(stream, trace.arrangement, integral.left_out(trace.arrangement.schema), closed)
                )

    def _sum(self, stream: int, arrangement: Arrangement, left_out: frozenset[str], closed: Closing) -> str:
        tokens = _Tokens(self.nodes)
        of = self.nodes[self.roots[stream]]
        return _hash("sum", of, tokens.arrangement(arrangement), " ".join(sorted(left_out)), tokens.of(closed))

    def _note(self, trace: TraceSpec, signature: str) -> None:
        """Store a trace's signature; number equal signatures by their order, since such traces hold the same rows."""
        count = self.used[signature] = self.used.get(signature, 0) + 1
        self.traces[trace.id] = signature if count == 1 else f"{signature}-{count}"

    def _loop(self, loop: LoopSpec) -> str:
        """Return the signature of a whole loop: its nodes by their places in it, and its inputs."""
        if loop.id not in self.loops:
            outer = {spec.id: spec for spec in self.plan.exchanges}
            enters = [f"{inner_of(loop, inner)} {self.nodes[outer[number].sender]}" for number, inner in loop.enters]
            self.loops[loop.id] = _hash("loop", str(loop.max_rounds), *_inside(loop), *enters)
        return self.loops[loop.id]

    def _loop_traces(self, loop: LoopSpec) -> None:
        signature = self._loop(loop)
        for node in loop.body.nodes:
            for index, trace in enumerate(node.traces):
                if node.trace_owner(index) is None:
                    self._note(trace, _hash("in a loop", signature, str(node.id), str(index)))


@dataclass(frozen=True, slots=True)
class _Given:
    """The parts from which the signature of one node is built (`dbsp.operators.operator.SignatureParts`)."""

    reading: _Reading
    node: PlanNode
    spec: ExchangeSpec | None

    @property
    def inputs(self) -> Sequence[str]:
        return [self.reading.nodes[number] for number in self.node.inputs]

    def hashed(self, *parts: str) -> str:
        return _hash(*parts)

    def text(self, value: Any) -> str:
        return _Tokens(self.reading.nodes).of(value)

    def table(self, name: str) -> str:
        return self.reading.table(name)

    def received(self) -> str:
        if self.spec is None:
            raise InternalError(f"a node receives rows that no exchange sends: node={self.node.name}")
        sent = self.reading.nodes[self.spec.sender]
        return (
            sent
            if self.spec.lifted
            else _hash("receive", f"{self.spec.key} {self.spec.weights} {self.spec.local}", sent)
        )

    def whole(self, operator: Operator, text: str | None = None) -> str:
        nodes = self.reading.plan.nodes
        inputs = (f"{self.reading.nodes[n]} {schema_name(nodes[n].schema)}" for n in self.node.inputs)
        said = self.text(operator) if text is None else text
        return _hash(said, schema_name(self.node.schema), self.text(self.node.closing), *inputs)


def inner_of(loop: LoopSpec, number: int) -> int:
    """Return the node of the body to which an exchange brings rows."""
    return next(spec.receiver for spec in loop.body.exchanges if spec.id == number)


def _inside(loop: LoopSpec) -> Iterator[str]:
    """Yield the texts of a loop's nodes and exchanges, without the numbers that belong to the whole plan."""
    tokens = _Tokens()
    for node in loop.body.nodes:
        kept: Sequence[str] = [tokens.arrangement(trace.arrangement) for trace in node.traces]
        yield f"{tokens.of(node.operator)} {schema_name(node.schema)} {node.inputs} {node.segment} {kept} {node.trace_owners}"
    back, left = set(loop.returns), {inner for inner, _ in loop.leaves}
    for spec in loop.body.exchanges:
        way = "back" if spec.id in back else "out" if spec.id in left else ""
        yield f"{spec.depth} {spec.sender} {spec.receiver} {spec.key} {schema_name(spec.schema)} {spec.weights} {way}"
