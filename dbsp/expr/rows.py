"""The columns that an expression reads, and the values remembered while it is computed.

An expression that is deep, or uses one object several times, is computed with `Known` rows. Each shared object is
computed once. Every `STRIDE` levels a value is computed ahead, so that no call nests deeper than that many levels.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from dbsp.expr.walking import arguments_of, in_order

ROW_ERRORS = (pa.ArrowInvalid, ArithmeticError, UnicodeError)
STRIDE = 24
"""Levels between two values that are computed ahead; each level takes some five nested calls of Python's thousand."""


class ColumnReader(Protocol):
    """The input of an expression: columns by name, all of one length. A `Batch` is one."""

    def column(self, name: str) -> pa.Array:
        """Return the values of one column."""

    def __len__(self) -> int:
        """Return the number of rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Subset:
    """Some rows of other rows; each column is taken when it is first read."""

    rows: ColumnReader
    positions: pa.Array
    taken: dict[str, pa.Array] = field(default_factory=dict)

    def column(self, name: str) -> pa.Array:
        """Return the values of one column at the chosen positions."""
        if name not in self.taken:
            self.taken[name] = self.rows.column(name).take(self.positions)
        return self.taken[name]

    def __len__(self) -> int:
        """Return the number of chosen rows."""
        return len(self.positions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A plan for computing an expression: the values to compute ahead, and those to keep because they are shared.

    `ahead` has, per value, the identities of the values that no later computation reads, and which can be freed.
    """

    ahead: tuple[tuple[Any, tuple[int, ...]], ...]
    kept: frozenset[int]


def schedule_of(root: Any) -> Schedule:
    """Plan the computation of an expression."""
    nodes = [node for node in in_order(root) if arguments_of(node)]
    uses = Counter(id(arg) for node in nodes for arg in arguments_of(node))
    shared = frozenset(id(node) for node in nodes if uses[id(node)] > 1)
    ahead = [node for node in nodes if node.depth % STRIDE == 0 and node is not root]
    early = {id(node) for node in ahead}
    last: dict[int, int] = {}
    for at, node in enumerate([*ahead, root]):
        for read in _read(node, early):
            last[read] = at
    gone: list[list[int]] = [[] for _ in ahead]
    for read, at in last.items():
        if at < len(ahead) and read not in shared:
            gone[at].append(read)
    steps = tuple((node, tuple(ids)) for node, ids in zip(ahead, gone, strict=True))
    return Schedule(ahead=steps, kept=shared | early)


def _read(node: Any, early: set[int]) -> set[int]:
    """Return the identities of the values computed ahead that the computation of a node reads."""
    found: set[int] = set()
    seen: set[int] = set()
    waiting = list(arguments_of(node))
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if id(part) in early:
            found.add(id(part))
        else:
            waiting.extend(arguments_of(part))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """The rows of a computation and its results so far: values of shared objects, and all errors."""

    rows: ColumnReader
    schedule: Schedule
    values: dict[int, Any] = field(default_factory=dict)
    errors: dict[int, BaseException] = field(default_factory=dict)

    def column(self, name: str) -> pa.Array:
        """Return the values of one column."""
        return self.rows.column(name)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def value(self, node: Any) -> Any:
        """Return the value of an object of the expression, computed at most once if shared; raise its error again."""
        key = id(node)
        if key in self.errors:
            raise self.errors[key]
        if key in self.values:
            return self.values[key]
        try:
            found = node.computed(self)
        except ROW_ERRORS as error:
            self.errors[key] = error.with_traceback(None)
            raise
        if key in self.schedule.kept:
            self.values[key] = found
        return found

    def root(self, root: Any) -> Any:
        """Return the value of the expression for which the schedule was made."""
        for node, gone in self.schedule.ahead:
            with suppress(*ROW_ERRORS):  # `errors` keeps the error for the readers of the value
                self.value(node)
            for key in gone:
                self.values.pop(key, None)
        return self.value(root)
