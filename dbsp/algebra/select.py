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
        """Return the node's text in `explain`: the columns, as `name = expression` unless the column keeps its name."""
        return "select " + ", ".join(_named(name, value) for name, value in self.columns)

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (there is one input)
        """Return the set of the column's own name, if the column is selected under that name."""
        return frozenset([name]) if (name, ColumnRef(name)) in self.columns else frozenset()

    def kept(self, need: Need) -> Need:
        """Return the needed columns alone."""
        return need

    def wanted(self, kept: Need) -> tuple[Need, ...]:
        """Return the columns that the kept expressions read."""
        return (frozenset[str]().union(*(value.columns() for name, value in self.columns if name in kept)),)

    def filtered(self, condition: Expression, over: Callable[[Node, Expression], Node]) -> Node | None:
        """Push the condition below the node if it reads only columns that are copied from the input."""
        plain = {name: value for name, value in self.columns if isinstance(value, ColumnRef)}
        if not condition.columns() <= plain.keys():
            return None
        return replace(self, input=over(self.input, condition.substitute(plain)))

    def appends(self, inputs: Sequence[bool]) -> bool:
        """Return whether the input is append-only: the node looks at one row alone."""
        return all(inputs)

    def keyed(self, names: tuple[str, ...]) -> Node | None:
        """Return the keyed table of the input if the key is copied, perhaps under other names; else None."""
        plain = {name: value.name for name, value in self.columns if isinstance(value, ColumnRef)}
        return self.input.keyed(tuple(plain[name] for name in names)) if plain.keys() >= set(names) else None

    def unique(self, names: Need) -> bool:
        """Return whether those of the columns that are copied from the input are unique there."""
        carried = [value.name for name, value in self.columns if name in names and isinstance(value, ColumnRef)]
        return self.input.unique(frozenset(carried))

    def refusal_in_recursion(self, varies: Sequence[bool]) -> None:
        """Return None: the node is linear."""

    def in_iterations(self, inputs: Sequence[Node], varies: Sequence[bool]) -> Node:  # noqa: ARG002 (there is one)
        """Return the node with the iteration as one more column."""
        columns = (*self.columns, (ITERATION, ColumnRef(ITERATION)))
        return replace(self, input=inputs[0], columns=columns, schema=with_iteration(self.schema))

    def plan(self, planning: Planning) -> Flow:
        """Add a stage to the flow; the planner fuses it with its neighbours."""
        flow, needed = planning.input(self.input), planning.needed(self)
        columns = tuple((name, value) for name, value in self.columns if name in needed)
        renamed = {value.name: name for name, value in reversed(columns) if isinstance(value, ColumnRef)}
        stage = Project(columns=columns, schema=self.schema.select(needed))
        return flow.then(stage, _renamed(flow.distribution, renamed))


def _named(name: str, value: Expression) -> str:
    return name if isinstance(value, ColumnRef) and value.name == name else f"{name} = {value}"


def _renamed(distribution: Key | None, names: Mapping[str, str]) -> Key | None:
    """Return the distribution under the new names; None if one of its columns has no new name."""
    if distribution is None or not set(distribution) <= names.keys():
        return None
    return tuple(names[name] for name in distribution)
