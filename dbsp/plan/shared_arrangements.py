"""Who owns a trace: nodes that need the sum of the same rows, arranged alike, keep it once.

The node that asks first owns the trace and adds to it; the others borrow it. That is right in any order of nodes within a step:
everybody reads a trace as of the step before, and puts the step's change on top of it where it wants to (`Spine.with_batch`).

Two traces are the same if they sum the same stream, leave out the same rows, are arranged alike, and let go of the same rows
when a waterline passes. A stream that was sent on to a later segment by the key it is distributed by is the same stream: every
row stays on its worker, and one segment reads the other's trace. In a loop a segment would see what the one before it added in
the same round; there only nodes of one segment share.

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
        """Note that a node has the rows of one in the segment before, every row on the worker where it was."""
        self._streams[receiver] = self._streams.get(sender, sender)

    def owns(self, node: int, trace: TraceSpec, owner: int) -> None:
        """Note that a node's rows add up to a trace that another node keeps anyway."""
        self._owned.setdefault((node, trace.arrangement, frozenset(), None), (trace, owner))

    def traces(
        self,
        number: int,
        operator: Operator,
        inputs: Sequence[int],
        closing: Sequence[Closing],
        make: Callable[[Arrangement], TraceSpec],
    ) -> tuple[tuple[TraceSpec, ...], tuple[int | None, ...]]:
        """The traces of node `number`, and the node that each is borrowed from; `make` makes one that nobody has yet."""
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
        """A trace that somebody has."""
        return self._owned.get(same)

    def of_stream(self, node: int, arrangement: Arrangement) -> TraceSpec | None:
        """The trace of all rows of a node, if there is one."""
        known = self._known((self._streams.get(node, node), arrangement, frozenset(), None))
        return None if known is None else known[0]

    def _same(
        self, number: int, inputs: Sequence[int], arrangement: Arrangement, integral: Integral, closing: Closing
    ) -> Same:
        """What must agree."""
        stream = number if integral.stream == OUTPUT else inputs[integral.stream]
        stream = self._streams.get(stream, stream)
        return stream, arrangement, integral.left_out(arrangement.schema), closing
