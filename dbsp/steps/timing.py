"""Timing between steps: the facts from which the next step's clock and waterlines follow.

While a step runs, workers send signals: the waterline that a watermark would allow, and the clock value at which a
timer is next due. Between two steps, the decider (a coordinator, `dbsp.open`) sums the signals up in a `Timing`. The
decider then writes clock and waterlines into the next record, so that a replay needs neither clock nor signals. Every
checkpoint stores a `Timing`.

The watermark of a table has a maximum per input partition (`Timing.reached`). Its waterline is the least of the maxima
over the partitions that are not idle. A watermark on a derived stream has one maximum, over all workers.

**Laws**
1. `finished` takes maxima and minima over all workers, so a `Timing` does not depend on the number of workers (invariant 9).
2. No waterline ever falls.
3. The waterline of a table's watermark is at most every partition's maximum minus the lateness. Partitions that were
   idle or absent in an earlier step are exempt. So a row within the lateness of its own partition's maximum is never
   late.

Source: docs/concepts/circuits.md; design records 0006 and 0041.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

Place = tuple[str, int]
"""(table, partition): a partition of a table's input."""
IDLE_S: Final = 60.0
"""Default seconds after which a partition that was read to its end is idle."""

WATERLINE: Final = "waterline"
DUE: Final = "due"
LATE: Final = "late: "
"""The prefix of the reason in a late row's dead letter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A message from a node of one worker for later steps: a waterline seen, or the clock value at which the node is due.

    A waterline that only the rows of one input partition would allow names the `partition`.
    """

    node: int
    kind: str
    at_us: int
    partition: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitions:
    """The input partitions when a step is decided: those of each table that were ever `present`, and the idle ones."""

    present: Mapping[str, Collection[int]]
    idle: frozenset[Place] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Waterline:
    """The bound of one step: no row below `now_us` passes the watermark `node`.

    In the step before, the bound was `before_us` (None: no bound).
    """

    node: int
    before_us: int | None
    now_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The time of one step, as in its record: the clock that `now()` returns, the previous step's clock, the waterlines.

    `idle` are the partitions that do not hold back the waterlines of their tables.
    """

    clock_us: int
    clock_before_us: int | None = None
    waterlines: tuple[Waterline, ...] = ()
    idle: tuple[Place, ...] = ()

    def waterline(self, node: int) -> Waterline | None:
        """Return the waterline of a watermark, None before its first one."""
        return next((line for line in self.waterlines if line.node == node), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The time after a step: its clock, the waterlines that it used, the agreed waterlines of the next step, the next timer.

    For each watermark of a table, `reached` has the latest time of a row minus the lateness, by partition. `idle` are
    the partitions that were idle in the last step. Data of version 0.1.0 has neither field. Its `agreed` has one waterline
    per watermark, and later waterlines never fall below it.
    """

    clock_us: int | None = None
    used: Mapping[int, int] = field(default_factory=dict)
    agreed: Mapping[int, int] = field(default_factory=dict)
    due_us: int | None = None
    reached: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    idle: tuple[Place, ...] = ()

    def over(self, tables: Mapping[int, str], partitions: Partitions) -> Timing:
        """Return the timing with agreed waterlines of tables' watermarks over these partitions.

        `tables` has the table of each watermark.

        **Law** The waterline is the least over the partitions that are not idle, if each of them has had a row. It is
        the greatest of all if every partition is idle. It never falls.

        **Example** partition 1 has had no row yet, so it holds the waterline back until it is idle

        >>> timing = Timing(reached={3: {0: 40}})
        >>> timing.over({3: "t"}, Partitions(present={"t": [0, 1]})).agreed
        {}
        >>> timing.over({3: "t"}, Partitions(present={"t": [0, 1]}, idle=frozenset([("t", 1)]))).agreed
        {3: 40}
        """
        agreed = dict(self.agreed)
        for node, table in tables.items():
            at = self._least(node, table, partitions)
            if at is not None:
                agreed[node] = max(at, agreed.get(node, at))
        return replace(self, agreed=agreed, idle=tuple(sorted(partitions.idle)))

    def _least(self, node: int, table: str, partitions: Partitions) -> int | None:
        """Return the waterline that the partitions of a table allow now; None if an active one has had no row."""
        reached = self.reached.get(node, {})
        known = reached.keys() | set(partitions.present.get(table, ()))  # includes partitions that are absent now
        active = {partition for partition in known if (table, partition) not in partitions.idle}
        if not active:
            return max(reached.values(), default=None)
        return min(reached[partition] for partition in active) if reached.keys() >= active else None

    def moment(self, wall_us: int) -> Moment:
        """Return the time of the next step: the clock never goes back, and the waterlines are those agreed on.

        **Example**

        >>> Timing(clock_us=50, used={3: 10}, agreed={3: 20}).moment(40)
        Moment(clock_us=50, clock_before_us=50, waterlines=(Waterline(node=3, before_us=10, now_us=20),), idle=())
        """
        clock = wall_us if self.clock_us is None else max(self.clock_us, wall_us)
        lines = (
            Waterline(node=node, before_us=self.used.get(node), now_us=at) for node, at in sorted(self.agreed.items())
        )
        return Moment(clock_us=clock, clock_before_us=self.clock_us, waterlines=tuple(lines), idle=self.idle)

    def still(self) -> Moment:
        """Return the time of a step in which no time passes, such as a backfill step: the time of the step before."""
        lines = (Waterline(node=node, before_us=at, now_us=at) for node, at in sorted(self.used.items()))
        return Moment(
            clock_us=self.clock_us or 0, clock_before_us=self.clock_us, waterlines=tuple(lines), idle=self.idle
        )  # fmt: skip

    def recorded(self, moment: Moment) -> Timing:
        """Return the timing after a step with this time was logged; timers that the step reaches are no longer due."""
        used = {line.node: line.now_us for line in moment.waterlines}
        due = None if self.due_us is not None and self.due_us <= moment.clock_us else self.due_us
        return replace(
            self, clock_us=moment.clock_us, used=used, agreed={**self.agreed, **used}, due_us=due, idle=moment.idle
        )  # fmt: skip

    def finished(self, signals: Iterable[Signal]) -> Timing:
        """Return the timing after a step whose workers sent these signals."""
        agreed, due = dict(self.agreed), None
        reached = {node: dict(partitions) for node, partitions in self.reached.items()}
        for signal in signals:
            if signal.kind != WATERLINE:
                due = signal.at_us if due is None else min(due, signal.at_us)
            elif signal.partition is None:
                agreed[signal.node] = max(signal.at_us, agreed.get(signal.node, signal.at_us))
            else:
                mine = reached.setdefault(signal.node, {})
                mine[signal.partition] = max(signal.at_us, mine.get(signal.partition, signal.at_us))
        return replace(self, agreed=agreed, due_us=due, reached=reached)

    def ahead_s(self, wall_us: int) -> float:
        """Return by how many seconds the clock is ahead of the wall clock, 0 if it is not.

        The step clock never goes back, so it stays ahead after the wall clock was too fast once.
        """
        return 0.0 if self.clock_us is None else max(0.0, (self.clock_us - wall_us) / 1e6)

    def due(self, wall_us: int, awaited: Iterable[int] = ()) -> bool:
        """Return whether a step is due without input.

        A step is due if a timer is reached, or if an awaited waterline rose after the last step.
        """
        if self.due_us is not None and self.due_us <= wall_us:
            return True
        return any(self.agreed.get(node) != self.used.get(node) for node in awaited)


def timing_to_json(timing: Timing) -> dict[str, Any]:
    """Return a timing as a JSON object; fields that version 0.1.0 does not know are extra, and that version skips them."""
    found: dict[str, Any] = {
        "clock": timing.clock_us,
        "used": sorted(timing.used.items()),
        "agreed": sorted(timing.agreed.items()),
        "due": timing.due_us,
    }
    if timing.reached:
        found["reached"] = [[node, sorted(mine.items())] for node, mine in sorted(timing.reached.items())]
    if timing.idle:
        found["idle"] = list(timing.idle)
    return found


def timing_from_json(value: Mapping[str, Any]) -> Timing:
    """Read a timing from its JSON object.

    A timing that version 0.1.0 wrote has no maxima of partitions. Its waterlines apply until such maxima exceed them.
    """
    return Timing(
        clock_us=value["clock"], used=dict(value["used"]), agreed=dict(value["agreed"]), due_us=value["due"],
        reached={node: dict(mine) for node, mine in value.get("reached", ())},
        idle=places_of(value.get("idle", ())),
    )  # fmt: skip


def places_of(value: Iterable[Any]) -> tuple[Place, ...]:
    """Return the (table, partition) pairs in JSON lists."""
    return tuple((table, partition) for table, partition in value)
