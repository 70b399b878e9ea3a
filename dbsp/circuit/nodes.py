"""What a logical node of a circuit is: what the user asked for, before any plan; and the circuit they make up.

Nodes are frozen values that refer to their inputs directly, so a circuit is the set of nodes reachable from its views; two
nodes built alike from the same inputs are equal. Every node knows its output schema. Types were checked when the node was
made; `source` remembers the user's line and takes no part in equality. Each kind of node is one module of `dbsp.algebra`,
which says all that the rest must know of it: what it reads, which columns it needs, where a filter may go, how it is planned.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from dbsp.source_lines import SourceLine
from dbsp.zset.schema import Schema

if TYPE_CHECKING:
    from dbsp.algebra.table import Table
    from dbsp.expr.expression import Expression
    from dbsp.plan.builder import Flow
    from dbsp.plan.planning import Planning

Need = frozenset[str]


class Node(ABC):
    """One kind of node; a frozen dataclass with the fields `schema` and `source`.

    `INPUTS` names the fields that hold other nodes; every other field but `source` is a parameter, and part of the
    circuit's fingerprint. `str(node)` is the node in one line, without its inputs.
    """

    __slots__ = ()
    INPUTS: ClassVar[tuple[str, ...]] = ("input",)
    schema: Schema
    source: SourceLine | None

    def children(self) -> tuple[Node, ...]:
        """The nodes it reads."""
        return tuple(getattr(self, name) for name in self.INPUTS)

    def with_children(self, children: tuple[Node, ...]) -> Self:
        """The same node reading other inputs."""
        changes: dict[str, Any] = dict(zip(self.INPUTS, children, strict=True))
        return replace(self, **changes)  # type: ignore[type-var]  # every node is a dataclass

    @abstractmethod
    def __str__(self) -> str:
        """The node in one line, without its inputs."""

    def kept(self, need: Need) -> Need:  # noqa: ARG002 (for others to use)
        """The columns it gives where `need` are needed: these, and what decides the identity of its rows."""
        return frozenset(self.schema.names)

    def wanted(self, kept: Need) -> tuple[Need, ...]:  # noqa: ARG002 (for others to use)
        """The columns it needs of each input to give `kept`."""
        return tuple(frozenset(node.schema.names) for node in self.children())

    def filtered(self, condition: Expression, over: Callable[[Node, Expression], Node]) -> Node | None:  # noqa: ARG002
        """The node with a condition on its columns below it, `over` inputs; None if it cannot go there.

        **Law** the same Z-set as a filter above; the condition has a value on every row.
        """
        return None

    def appends(self, inputs: Sequence[bool]) -> bool:  # noqa: ARG002 (for others to use)
        """Whether no step ever takes a row away from it, where `inputs` says this of each of its inputs."""
        return False

    def keyed(self, names: tuple[str, ...]) -> Table | None:  # noqa: ARG002 (for others to use)
        """The append-only table of which it has some rows, each at most once, with these columns as its primary key."""
        return None

    def unique(self, names: Need) -> bool:  # noqa: ARG002 (for others to use)
        """Whether it is known that no two of its rows are alike in these columns, and none is there twice."""
        return False

    @abstractmethod
    def plan(self, planning: Planning) -> Flow:
        """The physical nodes that compute it; its inputs are planned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circuit:
    """A frozen circuit: named views, and the tables reachable from them; `materialized` views can be read as tables."""

    name: str
    views: tuple[tuple[str, Node], ...]
    tables: tuple[Table, ...]
    materialized: frozenset[str]
    error_policy: str = "dead-letter"

    def explain(self) -> str:
        """The logical circuit as text: every view with the nodes below it."""
        from dbsp.circuit.explain import explain_circuit  # noqa: PLC0415 (it imports the nodes)

        return explain_circuit(self)

    def drawing(self) -> str:
        """The logical circuit as a Mermaid flow chart."""
        from dbsp.circuit.drawing import drawing  # noqa: PLC0415 (it imports the nodes)

        return drawing(self)

    @property
    def fingerprint(self) -> str:
        """What the circuit computes, as 64 hexadecimal digits."""
        from dbsp.circuit.fingerprint import fingerprint  # noqa: PLC0415 (it imports the nodes)

        return fingerprint(self)

    def __repr__(self) -> str:
        """Its name and what goes in and comes out; `explain()` has the whole."""
        tables, views = ", ".join(table.name for table in self.tables), ", ".join(name for name, _ in self.views)
        return f"<dbsp.Circuit {self.name!r}: tables {tables}; views {views}>"

    def _repr_markdown_(self) -> str:
        """Drawn by a notebook."""
        return f"```mermaid\n{self.drawing()}\n```"
