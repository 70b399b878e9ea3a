"""Widens the columns that joins read, so that traces of the same rows by the same key become one trace.

Two joins may read the same stream by the same key and need different columns of it. They would have two traces and send the
rows twice. If both read the columns of both, they share one trace (`dbsp.plan.shared_arrangements`). The key, the hashes and
the weights are then stored once, and no column is stored twice.

A first plan, made as if no join were widened, shows which uses match: they leave out the same rows and drop the same rows.

A use that needs only the key stays as it is. Its rows add up to one row per key, fewer than in any other trace. The exception
is a key that is a table's primary key. The rows are then stored by that key in any case, and each use reads them there.

Source: design record 0013.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dbsp.circuit.nodes import Need, Node
from dbsp.operators.operator import OUTPUT
from dbsp.plan.nodes import PlanNode
from dbsp.plan.shared_arrangements import Closing
from dbsp.zset.schema import OrderBy

Place = tuple[int, int]
"""A logical node by identity, and the number of an input."""


@dataclass(frozen=True, slots=True)
class _Alike:
    """The properties in which traces must agree, apart from the columns."""

    stream: int
    key: tuple[str, ...]
    order: tuple[OrderBy, ...]
    left_out: frozenset[str]
    closing: Closing


@dataclass(frozen=True, slots=True)
class _Use:
    """A trace of a logical node and its columns; `place` is where the columns are chosen, None if they are fixed."""

    alike: _Alike
    place: Place | None
    columns: Need


def widened(nodes: Sequence[Node], flows: Mapping[int, int], made: Sequence[PlanNode]) -> dict[Place, Need]:
    """Return the columns of each input that is to be wider; `flows` gives the physical node of a logical one."""
    groups: defaultdict[_Alike, list[_Use]] = defaultdict(list)
    for node in nodes:
        for use in _uses(node, flows, made):
            groups[use.alike].append(use)
    return {place: columns for uses in groups.values() for place, columns in _together(uses)}


def _uses(node: Node, flows: Mapping[int, int], made: Sequence[PlanNode]) -> Iterator[_Use]:
    """Yield the traces that a logical node keeps of its inputs' rows, or of its own."""
    children = node.children()
    if id(node) not in flows or any(flows.get(id(child)) == flows[id(node)] for child in children):
        return  # planned elsewhere, or a stage over its input
    kept = made[flows[id(node)]]
    if len(kept.inputs) != max(1, len(children)):
        return
    for index, integral in enumerate(kept.operator.integrals()):
        if integral is None:
            continue
        arrangement = kept.traces[index].arrangement
        place = None if integral.stream == OUTPUT else (id(node), integral.stream)
        stream = node if place is None else children[integral.stream]
        alike = _Alike(
            stream=id(stream),
            key=arrangement.key,
            order=arrangement.order,
            left_out=integral.left_out(arrangement.schema),
            closing=kept.closing[index] if kept.closing else None,
        )
        if arrangement.key:
            yield _Use(alike=alike, place=place, columns=frozenset(arrangement.schema.names))


def _together(uses: Sequence[_Use]) -> Iterator[tuple[Place, Need]]:
    """Yield all columns of the shared trace for each place that reads fewer of them."""
    unique = any(use.place is None for use in uses)
    able = [use for use in uses if unique or use.columns != frozenset(use.alike.key)]
    columns = frozenset().union(*(use.columns for use in able))
    for use in able:
        if use.place is not None and use.columns != columns:
            yield use.place, columns
