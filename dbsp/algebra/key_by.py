"""Key-by: the same rows, with all rows of a key on one worker.

It serves outputs that report the current row of each key: one worker then writes the removed and the added row of a step
together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dbsp.circuit.circuit import Circuit
from dbsp.circuit.nodes import Need, Node, Planning
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.errors import CircuitError
from dbsp.expr.expression import Expression
from dbsp.plan.builder import Flow
from dbsp.stored import stored
from dbsp.zset.schema import Schema


@stored("KeyBy", "keys")
@dataclass(frozen=True, slots=True, kw_only=True)
class KeyBy(Node):
    """The rows of the input, distributed by some of the `keys`."""

    input: Node
    keys: tuple[str, ...]
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the node's text in `explain`: the keys."""
        return f"keyed by ({', '.join(self.keys)})"

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (there is one input)
        """Return the set of the column's own name, if the node still has the column."""
        return frozenset([name]).intersection(self.schema.names)

    def kept(self, need: Need) -> Need:
        """Return the needed columns and the keys."""
        return need | frozenset(self.keys)

    def wanted(self, kept: Need) -> tuple[Need, ...]:
        """Return the kept columns."""
        return (kept,)

    def filtered(self, condition: Expression, over: Callable[[Node, Expression], Node]) -> Node | None:
        """Push the condition below the node, so that fewer rows are exchanged."""
        return self.with_children((over(self.input, condition),))

    def appends(self, inputs: Sequence[bool]) -> bool:
        """Return whether the input is append-only: the node changes no row."""
        return all(inputs)

    def keyed(self, names: tuple[str, ...]) -> Node | None:
        """Return the keyed table of the input: the node changes no row."""
        return self.input.keyed(names)

    def unique(self, names: Need) -> bool:
        """Return whether the columns are unique in the input: the node changes no row."""
        return self.input.unique(names)

    def plan(self, planning: Planning) -> Flow:
        """Add an exchange, unless the rows of a key are already on one worker."""
        flow = planning.input(self.input).pick(planning.needed(self))
        if flow.distribution and set(flow.distribution) <= set(self.keys):
            return flow
        return planning.builder.distribute(flow, self.keys, self.source)


def keyed_views(circuit: Circuit, keys: Mapping[str, tuple[str, ...]]) -> Circuit:
    """Return the circuit with the views of `keys` distributed by their key columns, which are unique in each view.

    **Errors** `CircuitError` if two rows of a view may have the same key.
    """
    views = tuple((name, _keyed(name, node, keys[name]) if name in keys else node) for name, node in circuit.views)
    return replace(circuit, views=views)


def _keyed(name: str, node: Node, keys: tuple[str, ...]) -> Node:
    refuse_shared(name, node, keys)
    return KeyBy(input=node, keys=keys, schema=node.schema, source=node.source)


def refuse_shared(name: str, node: Node, keys: tuple[str, ...]) -> None:
    """Raise `CircuitError` if the view lacks one of these columns, or two of its rows may be equal in all of them."""
    unknown = [key for key in keys if key not in node.schema]
    if unknown:
        raise CircuitError(
            f"no such column: view={name} column={unknown[0]}", f"there is {', '.join(node.schema.names)}"
        )
    if not node.unique(frozenset(keys)):
        raise CircuitError(
            f"two rows of the view may have one key: view={name} key=({', '.join(keys)})",
            "name columns that tell all rows apart; or keep one row of each key: "
            f"row_number() over (partition by {', '.join(keys)} order by …) = 1, in Python .top_k(1, …)",
        )
