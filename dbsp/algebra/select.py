"""Select: each row becomes the values of expressions.

**Law** linear: select(a + b) = select(a) + select(b).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dbsp.circuit.nodes import Need, Node, Planning
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.expr.expression import ColumnRef, Expression
from dbsp.operators.apply import Project
from dbsp.operators.iterations.histories import ITERATION, with_iteration
from dbsp.plan.builder import Flow, Key
from dbsp.stored import stored
from dbsp.zset.schema import Schema


@stored("Select", "columns")
@dataclass(frozen=True, slots=True, kw_only=True)
class Select(Node):
    """Each row becomes the values of the (name, expression) pairs."""

    input: Node
    columns: tuple[tuple[str, Expression], ...]
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """The columns as a reader would write them."""
        return "select " + ", ".join(_named(name, value) for name, value in self.columns)

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (there is one input)
        """Return the column, if it is picked under its own name."""
        return frozenset([name]) if (name, ColumnRef(name)) in self.columns else frozenset()

    def kept(self, need: Need) -> Need:
        """What is needed, no more."""
        return need

    def wanted(self, kept: Need) -> tuple[Need, ...]:
        """The columns that the expressions read."""
        return (frozenset[str]().union(*(value.columns() for name, value in self.columns if name in kept)),)

    def filtered(self, condition: Expression, over: Callable[[Node, Expression], Node]) -> Node | None:
        """Below, if the condition reads plain columns alone."""
        plain = {name: value for name, value in self.columns if isinstance(value, ColumnRef)}
        if not condition.columns() <= plain.keys():
            return None
        return replace(self, input=over(self.input, condition.substitute(plain)))

    def appends(self, inputs: Sequence[bool]) -> bool:
        """It looks at one row alone."""
        return all(inputs)

    def keyed(self, names: tuple[str, ...]) -> Node | None:
        """If the key is carried on, perhaps under other names."""
        plain = {name: value.name for name, value in self.columns if isinstance(value, ColumnRef)}
        return self.input.keyed(tuple(plain[name] for name in names)) if plain.keys() >= set(names) else None

    def unique(self, names: Need) -> bool:
        """By columns that are carried on as they are."""
        carried = [value.name for name, value in self.columns if name in names and isinstance(value, ColumnRef)]
        return self.input.unique(frozenset(carried))

    def refusal_in_recursion(self, varies: Sequence[bool]) -> None:
        """Return None: the node is linear."""

    def in_iterations(self, inputs: Sequence[Node], varies: Sequence[bool]) -> Node:  # noqa: ARG002 (there is one)
        """Return the node with the iteration picked, too."""
        columns = (*self.columns, (ITERATION, ColumnRef(ITERATION)))
        return replace(self, input=inputs[0], columns=columns, schema=with_iteration(self.schema))

    def plan(self, planning: Planning) -> Flow:
        """A stage that waits to be fused with its neighbours."""
        flow, needed = planning.input(self.input), planning.needed(self)
        columns = tuple((name, value) for name, value in self.columns if name in needed)
        renamed = {value.name: name for name, value in reversed(columns) if isinstance(value, ColumnRef)}
        stage = Project(columns=columns, schema=self.schema.select(needed))
        return flow.then(stage, _renamed(flow.distribution, renamed))


def _named(name: str, value: Expression) -> str:
    return name if isinstance(value, ColumnRef) and value.name == name else f"{name} = {value}"


def _renamed(distribution: Key | None, names: Mapping[str, str]) -> Key | None:
    """The distribution under new names, if all its columns are still there."""
    if distribution is None or not set(distribution) <= names.keys():
        return None
    return tuple(names[name] for name in distribution)
