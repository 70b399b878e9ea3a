"""The logical nodes of a circuit: what the user asked for, before any plan.

Nodes are frozen values that refer to their inputs directly, so a circuit is the set of nodes reachable from its
views; two
nodes built alike from the same inputs are equal. Every node knows its output schema. Types were checked when the node
was made; `source` remembers the user's line and takes no part in equality.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dbsp.zset.schema import OrderBy, Schema

if TYPE_CHECKING:
    from dbsp.expr.expression import Expression
    from dbsp.expr.functions import UserFunction


@dataclass(frozen=True, slots=True)
class SourceLine:
    """Where the user wrote it."""

    file: str
    line: int

    def __str__(self) -> str:
        """`file:line`."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table that changes. With a primary key an insert replaces the row of that key and a delete needs only the key."""

    name: str
    schema: Schema
    primary_key: tuple[str, ...] = ()
    source: SourceLine | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Select:
    """Each row becomes the values of the (name, expression) pairs; linear."""

    input: Node
    columns: tuple[tuple[str, Expression], ...]
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Rows for which the predicate is true (not null, not false); linear."""

    input: Node
    predicate: Expression
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MapRows:
    """A user function from a row (a dict) to a row, or to any number of rows if `flat`; linear."""

    input: Node
    function: UserFunction
    flat: bool
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Inner equi-join; `columns` lists (side 0 or 1, input column, output name); nulls are never equal; bilinear."""

    left: Node
    right: Node
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    columns: tuple[tuple[int, str, str], ...]
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateCall:
    """One aggregate: function in {count, sum, avg, min, max, count_distinct}; column None means count(*)."""

    name: str
    function: str
    column: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBy:
    """One row per group of `keys` (null is a group): the keys, then the aggregates. No keys: one group, absent when empty."""

    input: Node
    keys: tuple[str, ...]
    aggregates: tuple[AggregateCall, ...]
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Union:
    """The sum of Z-sets (UNION ALL); schemas are equal; linear."""

    inputs: tuple[Node, ...]
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Distinct:
    """Every row of positive weight, once."""

    input: Node
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """SQL's EXCEPT: rows of positive weight on the left and none on the right, once."""

    left: Node
    right: Node
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopK:
    """The first k rows per partition by `order`, ties broken by all columns; `rank` names an added int64 column 1..k."""

    input: Node
    partition: tuple[str, ...]
    order: tuple[OrderBy, ...]
    k: int
    rank: str | None
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)


Node = Table | Select | Filter | MapRows | Join | GroupBy | Union | Distinct | Difference | TopK


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

    def _repr_markdown_(self) -> str:
        """Drawn by a notebook."""
        return f"```mermaid\n{self.drawing()}\n```"
