"""The base class of logical nodes, which state what the user asked for, and the state of planning, which nodes fill.

Nodes are frozen values that refer to their inputs directly, so a circuit is the set of nodes reachable from its views. Two
nodes built alike from the same inputs are equal. Each node knows its output schema. Types were checked when the node was made;
`source` remembers the user's line and takes no part in equality. Each kind of node is one module of `dbsp.algebra`. The module
states all that others must know of it: the columns that it reads, the filters that may pass below it, its plan.
A node plans itself with `Planning`, and `Planning` holds nodes, so both are here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from dbsp.diagnostics.source_lines import SourceLine
from dbsp.errors import InternalError
from dbsp.expr.expression import Expression
from dbsp.plan.builder import Builder, Flow, Key
from dbsp.zset.schema import Schema

Need = frozenset[str]


STATED = ("carried", "plan", "__str__")
"""The facts that every node states."""


@dataclass(frozen=True, slots=True)
class LoopRefusal:
    """The reason why a node cannot be inside a recursion; without a message if no node of its kind can."""

    message: str = ""
    hint: str = ""


class Node(ABC):
    """A node of the logical circuit: a frozen dataclass with the fields `schema` and `source`.

    `INPUTS` names the fields that hold other nodes. Each other field but `source` is a parameter, and part of the circuit's
    fingerprint. `str(node)` is the node in one line, without its inputs.
    """

    __slots__ = ()
    INPUTS: ClassVar[tuple[str, ...]] = ("input",)
    schema: Schema
    source: SourceLine | None

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Raise `InternalError` for a class that does not define one of the methods in `STATED`."""
        super().__init_subclass__(**keywords)
        unsaid = [name for name in STATED if getattr(getattr(cls, name), "__isabstractmethod__", False)]
        if unsaid:
            raise InternalError(f"a node does not say everything about itself: class={cls.__name__} missing={unsaid}")

    def children(self) -> tuple[Node, ...]:
        """Return the nodes that this node reads."""
        return tuple(getattr(self, name) for name in self.INPUTS)

    def with_children(self, children: tuple[Node, ...]) -> Self:
        """Return the same node with other inputs."""
        changes: dict[str, Any] = dict(zip(self.INPUTS, children, strict=True))
        return replace(self, **changes)  # type: ignore[type-var]  # every node is a dataclass

    @abstractmethod
    def __str__(self) -> str:
        """Return the node in one line, without its inputs."""

    def kept(self, need: Need) -> Need:  # noqa: ARG002 (for others to use)
        """Return the columns that the node emits if `need` are needed: these, and those that decide the identity of its rows."""
        return frozenset(self.schema.names)

    def wanted(self, kept: Need) -> tuple[Need, ...]:  # noqa: ARG002 (for others to use)
        """Return the columns of each input that the node needs to emit `kept`."""
        return tuple(frozenset(node.schema.names) for node in self.children())

    def filtered(self, condition: Expression, over: Callable[[Node, Expression], Node]) -> Node | None:  # noqa: ARG002
        """Return the node with a condition pushed below it, where `over` filters an input; None if the condition must stay above.

        **Law** the same Z-set as a filter above; the condition has a value on every row.
        """
        return None

    def appends(self, inputs: Sequence[bool]) -> bool:  # noqa: ARG002 (for others to use)
        """Return whether no step ever takes a row away from the node, where `inputs` says the same of each input."""
        return False

    def keyed(self, names: tuple[str, ...]) -> Node | None:  # noqa: ARG002 (for others to use)
        """Return the append-only table whose rows the node has, each at most once, with these columns as its primary key.

        Return None if there is no such table.
        """
        return None

    def unique(self, names: Need) -> bool:  # noqa: ARG002 (for others to use)
        """Return whether it is known that no two rows are equal in these columns, and no row has a weight above 1."""
        return False

    @abstractmethod
    def carried(self, side: int, name: str) -> frozenset[str]:
        """Return the output columns that hold the column `name` of input number `side` unchanged."""

    def ambiguous(self, side: int, name: str) -> bool:  # noqa: ARG002 (for others to use)
        """Return whether column `name` of an input is a key whose output may hold the other side's key, as in an outer join."""
        return False

    def refusal_in_recursion(self, varies: Sequence[bool]) -> LoopRefusal | None:  # noqa: ARG002 (for others to use)
        """Return why the node cannot be inside a recursion, or None; `varies` tells which inputs depend on the loop."""
        return LoopRefusal()

    def in_iterations(self, inputs: Sequence[Node], varies: Sequence[bool]) -> Node:  # noqa: ARG002 (for others to use)
        """Return the node on rows that carry their iteration, for a node that a recursion accepts."""
        raise InternalError(f"a node inside a recursion has no form on iterations: node={self}")

    @abstractmethod
    def plan(self, planning: Planning) -> Flow:
        """Add the physical nodes that compute this node, whose inputs are planned, and return their flow."""


def carried_by_pairs(
    pairs: Sequence[tuple[int, str, str]], keys: Mapping[str, str], side: int, name: str
) -> frozenset[str]:
    """Return the output names of a column of one side of a join; `keys` maps each right key to its left key.

    `pairs` are (side, input name, output name).
    """
    found = {out for of, own, out in pairs if (of, own) == (side, name)}
    return frozenset(found | {keys[name]} if side and name in keys else found)


@dataclass(slots=True)
class Planning:
    """The flows of the logical nodes planned so far, by identity of the node.

    - `need`: the needed columns of each node; `readers`: the number of its readers.
    - `inside`: the nodes that a recursion plans; `loops`: the flows of the views of each recursion.
    - `appending`: the nodes from which no step takes a row away.
    - `wider`: by node and input, the columns that are read so that a trace can be shared (`dbsp.plan.widening`).
    """

    builder: Builder
    need: dict[int, Need]
    readers: Counter[int]
    inside: frozenset[int] = frozenset()
    appending: frozenset[int] = frozenset()
    flows: dict[int, Flow] = field(default_factory=dict)
    loops: dict[int, tuple[Flow, ...]] = field(default_factory=dict)
    wider: Mapping[tuple[int, int], Need] = field(default_factory=dict)

    def plan(self, node: Node) -> None:
        """Make and store the flow of a node whose inputs are planned; settle a node that is read twice, so that it runs once."""
        if id(node) in self.inside:
            return
        flow = node.plan(self)
        if self.readers[id(node)] > 1:
            flow = self.builder.settle(flow, node.source)
        self.flows[id(node)] = flow
        if self.appends(node):
            self.builder.appending.add(flow.node)

    def appends(self, node: Node) -> bool:
        """Return whether no step ever takes a row away from the node."""
        return id(node) in self.appending

    def input(self, node: Node) -> Flow:
        """Return the flow of a node that is planned."""
        return self.flows[id(node)]

    def sides(self, node: Node) -> list[Flow]:
        """Return the flows of a node's inputs, with the columns that the node reads."""
        picked = []
        for number, (child, wanted) in enumerate(
            zip(node.children(), node.wanted(frozenset(self.needed(node))), strict=True)
        ):
            names = self.wider.get((id(node), number), wanted)
            picked.append(self.input(child).pick(tuple(name for name in child.schema.names if name in names)))
        return picked

    def needed(self, node: Node) -> Key:
        """Return the columns that are needed of a node, in the order of its schema."""
        return tuple(name for name in node.schema.names if name in self.need[id(node)])
