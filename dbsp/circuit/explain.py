"""A logical circuit as text: one line per node, inputs indented below what reads them; a node read twice is written once."""

from __future__ import annotations

from typing import assert_never

from dbsp.circuit.graph import inputs_of
from dbsp.circuit.nodes import (
    AggregateCall,
    Circuit,
    Difference,
    Distinct,
    Filter,
    GroupBy,
    Join,
    MapRows,
    Node,
    Select,
    Table,
    TopK,
    Union,
)
from dbsp.expr.expression import ColumnRef
from dbsp.zset.schema import OrderBy


def describe(node: Node) -> str:  # noqa: PLR0911 (one line per kind of node)
    """One node in one line, without its inputs."""
    match node:
        case Table():
            key = f" primary key ({', '.join(node.primary_key)})" if node.primary_key else ""
            return f"table {node.name} {node.schema}{key}"
        case Select():
            return "select " + ", ".join(_named(name, value) for name, value in node.columns)
        case Filter():
            return f"filter {node.predicate}"
        case MapRows():
            return f"{'flat_map' if node.flat else 'map'} {node.function.name} -> {node.schema}"
        case Join():
            keys = zip(node.left_on, node.right_on, strict=True)
            return "join on " + ", ".join(a if a == b else f"{a} = {b}" for a, b in keys)
        case GroupBy():
            keys_text = f"by ({', '.join(node.keys)}) " if node.keys else ""
            return f"aggregate {keys_text}{', '.join(map(_aggregate, node.aggregates))}".rstrip()
        case Union():
            return "union all"
        case Distinct():
            return "distinct"
        case Difference():
            return "difference"
        case TopK():
            partition = f" per ({', '.join(node.partition)})" if node.partition else ""
            rank = f" rank {node.rank}" if node.rank else ""
            return f"top {node.k} by {', '.join(map(_order, node.order))}{partition}{rank}"
        case _:
            assert_never(node)


def _named(name: str, value: object) -> str:
    return name if isinstance(value, ColumnRef) and value.name == name else f"{name} = {value}"


def _aggregate(call: AggregateCall) -> str:
    return f"{call.name} = {call.function}({call.column or '*'})"


def _order(order: OrderBy) -> str:
    return order.column + (" desc" if order.descending else "") + (" nulls first" if order.nulls_first else "")


def explain_node(node: Node) -> str:
    """A node and everything below it."""
    return "\n".join(_Writer([node]).lines(node, 0))


def explain_circuit(circuit: Circuit) -> str:
    """All views of a circuit with what they are made of."""
    writer = _Writer([node for _, node in circuit.views])
    lines = [f"circuit {circuit.name}"]
    for name, node in circuit.views:
        kept = " (materialized)" if name in circuit.materialized else ""
        lines.append(f"view {name}{kept} {node.schema}")
        lines.extend(writer.lines(node, 1))
    return "\n".join(lines)


class _Writer:
    """Writes nodes depth first; one that is read twice gets a number, and is only referred to when it is met again."""

    def __init__(self, roots: list[Node]) -> None:
        self.shared = _shared(roots)
        self.numbers: dict[int, int] = {}
        self.tables: set[int] = set()

    def lines(self, root: Node, depth: int) -> list[str]:
        """A node and what is below it, indented."""
        lines = []
        waiting = [(depth, root)]
        while waiting:
            depth, node = waiting.pop()
            again = id(node) in self.numbers or id(node) in self.tables
            lines.append("  " * depth + self._line(node, again))
            if not again:
                waiting.extend((depth + 1, child) for child in reversed(inputs_of(node)))
        return lines

    def _line(self, node: Node, again: bool) -> str:
        if isinstance(node, Table):
            self.tables.add(id(node))
            return f"table {node.name}" if again else describe(node)
        if id(node) not in self.shared:
            return describe(node)
        number = self.numbers.setdefault(id(node), len(self.numbers) + 1)
        return f"#{number} again" if again else f"{describe(node)} #{number}"


def _shared(roots: list[Node]) -> set[int]:
    """Nodes with inputs that are read more than once."""
    met: set[int] = set()
    shared: set[int] = set()
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        if id(node) in met:
            shared.add(id(node))
            continue
        met.add(id(node))
        waiting.extend(inputs_of(node))
    return shared
