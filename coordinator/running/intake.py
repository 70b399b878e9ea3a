"""Choose the input rows that may be read now: no rows of an input that waits for an external system.

Invariant 7 depends on this module. A place begins where its log begins, and no step continues in a log that was
replaced.
"""

from __future__ import annotations

from collections.abc import Iterable

from dbsp.coordinator.decisions.cutting import Backlog, Positions, cut, cut_whole
from dbsp.coordinator.decisions.limits import StepLimits
from dbsp.logs import InputLog, KeepsTransactions, Range, TellsWaits


def counted(places: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the number of partitions of each table, given all pairs (table, partition).

    >>> counted([("t", 0), ("u", 0), ("t", 1)])
    {'t': 2, 'u': 1}
    """
    found = dict[str, int]()
    for table, partition in sorted(places):
        found[table] = partition + 1
    return found


def readable(inputs: InputLog, taken: Positions) -> tuple[Positions, Positions]:
    """Return the ends of the inputs that do not wait, and the first offsets of places that no step has read.

    A place is left out if its input does not say where it begins, so that a failed look never makes it begin at 0.
    """
    ends = dict(inputs.ends())
    fresh = {place for place, end in ends.items() if end and place not in taken}
    begins: Positions = inputs.floors() if fresh else {}
    ends = {place: end for place, end in ends.items() if place not in fresh or place in begins}
    if isinstance(inputs, TellsWaits):
        _hold_shorter(inputs, ends, taken)
        waits = {each.table for each in inputs.waits()}
        ends = {place: end for place, end in ends.items() if place[0] not in waits}
    return ends, {place: begins[place] for place in fresh & set(ends) if begins[place]}


def all_wait(inputs: InputLog) -> bool:
    """Return True if every input waits for an external system; then nothing else in that system can be reached either."""
    return isinstance(inputs, TellsWaits) and bool(inputs.waits()) and not inputs.ends()


def _hold_shorter(inputs: TellsWaits, ends: Positions, taken: Positions) -> None:
    """Let a table wait if it ends below the position that steps have read: its log was replaced, or rows were lost."""
    for (table, partition), end in ends.items():
        if end < (known := taken.get((table, partition), 0)):
            story = f"partition={partition} end={end} processed={known}"
            inputs.hold(table, f"it ends below what was processed: was it deleted and made again? {story}")


def taken(inputs: InputLog, found: Backlog, done: Positions, limits: StepLimits, step: int) -> tuple[Range, ...]:
    """Return the ranges that a step reads; unless it reads everything, it has all rows of a transaction or none."""
    ranges = cut(found, done, limits)
    if sum(each.last - each.first for each in ranges) == found.rows or not isinstance(inputs, KeepsTransactions):
        return ranges
    return cut_whole(found, done, limits, inputs.transactions(done), step)
