"""Shared arrangements: nodes that need the sum of the same rows, arranged alike, store it once.

The node that asks first owns the trace and adds to it; the others borrow it. The order of nodes within a step does not matter:
each node reads a trace as of the step before. Where a node needs the step's change, it adds the change itself
(`Spine.with_batch`).

Two traces are the same under four conditions. They sum the same stream, leave out the same rows, are arranged alike, and drop
the same rows when a waterline passes. A stream that is sent to a later segment by its own distribution key is the same stream.
Each row stays on its worker, and one segment reads the other's trace. In a loop a segment would see the rows that the segment
before it added in the same iteration. Therefore only nodes of one segment share there.

Source: design record 0013.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dbsp.operators.monotone_bounds import Bound
from dbsp.operators.operator import OUTPUT, Integral, Operator
from dbsp.store import TraceSpec
from dbsp.zset.schema import Arrangement

Closing = tuple[str, Bound] | None
Same = tuple[int, Arrangement, frozenset[str], Closing]


@dataclass(slots=True)
class SharedArrangements:
    """The traces that are sums of streams, with their owners."""

    _owned: dict[Same, tuple[TraceSpec, int]] = field(default_factory=dict)
    _streams: dict[int, int] = field(default_factory=dict)

    def lifted(self, sender: int, receiver: int) -> None:
        """Note that node `receiver` has the rows of node `sender` in the segment before, each on the same worker."""
        self._streams[receiver] = self._streams.get(sender, sender)

    def owns(self, node: int, trace: TraceSpec, owner: int) -> None:
        """Note that a node's rows add up to a trace that another node stores anyway."""
        self._owned.setdefault((node, trace.arrangement, frozenset(), None), (trace, owner))

    def traces(
        self,
        number: int,
        operator: Operator,
        inputs: Sequence[int],
        closing: Sequence[Closing],
        make: Callable[[Arrangement], TraceSpec],
    ) -> tuple[tuple[TraceSpec, ...], tuple[int | None, ...]]:
        """Return the traces of node `number`, and for each the node that owns it (None: node `number`).

        `make` makes a trace that no node has yet. The second tuple is empty if the node borrows no trace.
        """
        arrangements = operator.arrangements()
        integrals = operator.integrals() or (None,) * len(arrangements)
        closings = closing or (None,) * len(arrangements)
        traces, trace_owners = list[TraceSpec](), list[int | None]()
        for arrangement, integral, closed in zip(arrangements, integrals, closings, strict=True):
            same = None if integral is None else self._same(number, inputs, arrangement, integral, closed)
            known = None if same is None else self._known(same)
            trace = make(arrangement) if known is None else known[0]
            traces.append(trace)
            trace_owners.append(None if known is None else known[1])
            if same is not None:
                self._owned.setdefault(same, (trace, number))
        return tuple(traces), tuple(trace_owners) if any(
            trace_owner is not None for trace_owner in trace_owners
        ) else ()

    def _known(self, same: Same) -> tuple[TraceSpec, int] | None:
        """Return the trace that some node already has, with its owner; None if there is none."""
        return self._owned.get(same)

    def of_stream(self, node: int, arrangement: Arrangement) -> TraceSpec | None:
        """Return the trace of all rows of a node; None if there is none."""
        known = self._known((self._streams.get(node, node), arrangement, frozenset(), None))
        return None if known is None else known[0]

    def _same(
        self, number: int, inputs: Sequence[int], arrangement: Arrangement, integral: Integral, closing: Closing
    ) -> Same:
        """Return the properties in which two traces must agree to be one."""
        stream = number if integral.stream == OUTPUT else inputs[integral.stream]
        stream = self._streams.get(stream, stream)
        return stream, arrangement, integral.left_out(arrangement.schema), closing
