"""What a logical node of a circuit is: what the user asked for, before any plan; and the state of planning, which nodes fill.

Nodes are frozen values that refer to their inputs directly, so a circuit is the set of nodes reachable from its views; two
nodes built alike from the same inputs are equal. Every node knows its output schema. Types were checked when the node was
made; `source` remembers the user's line and takes no part in equality. Each kind of node is one module of `dbsp.algebra`,
which says all that the rest must know of it: what it reads, which columns it needs, where a filter may go, how it is planned.
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
    """Why a node cannot be inside a recursion; without a message because no node of its kind can."""

    message: str = ""
    hint: str = ""


class Node(ABC):
    """One kind of node; a frozen dataclass with the fields `schema` and `source`.

    `INPUTS` names the fields that hold other nodes; every other field but `source` is a parameter, and part of the
    circuit's fingerprint. `str(node)` is the node in one line, without its inputs.
    """

    __slots__ = ()
    INPUTS: ClassVar[tuple[str, ...]] = ("input",)
    schema: Schema
    source: SourceLine | None

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Refuse a class that leaves one of the facts unsaid."""
        super().__init_subclass__(**keywords)
        unsaid = [name for name in STATED if getattr(getattr(cls, name), "__isabstractmethod__", False)]
        if unsaid:
            raise InternalError(f"a node does not say everything about itself: class={cls.__name__} missing={unsaid}")

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

    def keyed(self, names: tuple[str, ...]) -> Node | None:  # noqa: ARG002 (for others to use)
        """The append-only table of which it has some rows, each at most once, with these columns as its primary key."""
        return None

    def unique(self, names: Need) -> bool:  # noqa: ARG002 (for others to use)
        """Whether it is known that no two of its rows are alike in these columns, and none is there twice."""
        return False

    @abstractmethod
    def carried(self, side: int, name: str) -> frozenset[str]:
        """Return the output columns that hold the column `name` of input number `side` as it is."""

    def ambiguous(self, side: int, name: str) -> bool:  # noqa: ARG002 (for others to use)
        """Return whether the column `name` of an input is a key that the other side of an outer join may stand in for."""
        return False

    def refusal_in_recursion(self, varies: Sequence[bool]) -> LoopRefusal | None:  # noqa: ARG002 (for others to use)
        """Return why the node cannot be inside a recursion, where `varies` says which inputs depend on the loop."""
        return LoopRefusal()

    def in_iterations(self, inputs: Sequence[Node], varies: Sequence[bool]) -> Node:  # noqa: ARG002 (for others to use)
        """Return the node on rows that carry their iteration, for a node that recursion does not refuse."""
        raise InternalError(f"a node inside a recursion has no form on iterations: node={self}")

    @abstractmethod
    def plan(self, planning: Planning) -> Flow:
        """The physical nodes that compute it; its inputs are planned."""


def carried_by_pairs(
    pairs: Sequence[tuple[int, str, str]], keys: Mapping[str, str], side: int, name: str
) -> frozenset[str]:
    """Return the names in pairs of rows of a column of one side; `keys` says which left key a right key goes under.

    `pairs` are (side, input name, output name).
    """
    found = {out for of, own, out in pairs if (of, own) == (side, name)}
    return frozenset(found | {keys[name]} if side and name in keys else found)


@dataclass(slots=True)
class Planning:
    """The flows of the logical nodes done so far, by identity; `readers` counts who reads a node.

    No step takes a row away from the nodes `appending`.

    Nodes `inside` a recursion are planned by it; `loops` are the flows of its views. `wider` has, by node and input, the columns
    that are read so that a trace can be shared (`dbsp.plan.widening`).
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
        """Make the flow of a node whose inputs are done; one that is read twice is settled, so that it runs once."""
        if id(node) in self.inside:
            return
        flow = node.plan(self)
        if self.readers[id(node)] > 1:
            flow = self.builder.settle(flow, node.source)
        self.flows[id(node)] = flow
        if self.appends(node):
            self.builder.appending.add(flow.node)

    def appends(self, node: Node) -> bool:
        """Whether no step ever takes a row away from a node."""
        return id(node) in self.appending

    def input(self, node: Node) -> Flow:
        """The flow of a node that is done."""
        return self.flows[id(node)]

    def sides(self, node: Node) -> list[Flow]:
        """The flows of a node's inputs, with the columns that it reads."""
        picked = []
        for number, (child, wanted) in enumerate(
            zip(node.children(), node.wanted(frozenset(self.needed(node))), strict=True)
        ):
            names = self.wider.get((id(node), number), wanted)
            picked.append(self.input(child).pick(tuple(name for name in child.schema.names if name in names)))
        return picked

    def needed(self, node: Node) -> Key:
        """The columns that are needed of a node, in its order."""
        return tuple(name for name in node.schema.names if name in self.need[id(node)])
