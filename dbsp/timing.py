"""What the clock and the waterlines of the next step follow from.

While a step runs, workers signal what they saw: the waterline that a watermark would allow, and when a timer of theirs is due
next. Between two steps whoever decides (a coordinator, `dbsp.open`) sums that up in a `Timing` and writes clock and waterlines
into the next record, so that a replay needs neither clock nor signals. A `Timing` is kept with every checkpoint.

**Law** `finished` takes maxima and minima over all workers, so a `Timing` does not depend on how many there are (9).

Source: design section 4; design record 0006.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

WATERLINE: Final = "waterline"
DUE: Final = "due"
LATE: Final = "late: "
"""How the reason of a late row's dead letter begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """What a node of one worker has to say for the steps to come: a waterline seen, or the clock at which it is due."""

    node: int
    kind: str
    at_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Waterline:
    """No row below `now_us` passes the watermark `node` in this step; in the step before it was `before_us` (None: no bound)."""

    node: int
    before_us: int | None
    now_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The time of one step, as its record says: what `now()` shows, what it showed in the step before, the waterlines."""

    clock_us: int
    clock_before_us: int | None = None
    waterlines: tuple[Waterline, ...] = ()

    def waterline(self, node: int) -> Waterline | None:
        """The waterline of a watermark, once there is one."""
        return next((line for line in self.waterlines if line.node == node), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Where time stands after a step: its clock, the waterlines it used, those agreed on for the next, the next timer."""

    clock_us: int | None = None
    used: Mapping[int, int] = field(default_factory=dict)
    agreed: Mapping[int, int] = field(default_factory=dict)
    due_us: int | None = None

    def moment(self, wall_us: int) -> Moment:
        """The time of the next step: the clock never goes back, waterlines are those agreed on.

        **Example**

        >>> Timing(clock_us=50, used={3: 10}, agreed={3: 20}).moment(40)
        Moment(clock_us=50, clock_before_us=50, waterlines=(Waterline(node=3, before_us=10, now_us=20),))
        """
        clock = wall_us if self.clock_us is None else max(self.clock_us, wall_us)
        lines = (
            Waterline(node=node, before_us=self.used.get(node), now_us=at) for node, at in sorted(self.agreed.items())
        )
        return Moment(clock_us=clock, clock_before_us=self.clock_us, waterlines=tuple(lines))

    def still(self) -> Moment:
        """The time of a step in which no time passes: that of the step before."""
        lines = (Waterline(node=node, before_us=at, now_us=at) for node, at in sorted(self.used.items()))
        return Moment(clock_us=self.clock_us or 0, clock_before_us=self.clock_us, waterlines=tuple(lines))

    def recorded(self, moment: Moment) -> Timing:
        """After a step with this time was logged; timers that it reaches are no longer due."""
        used = {line.node: line.now_us for line in moment.waterlines}
        due = None if self.due_us is not None and self.due_us <= moment.clock_us else self.due_us
        return replace(self, clock_us=moment.clock_us, used=used, agreed={**self.agreed, **used}, due_us=due)

    def finished(self, signals: Iterable[Signal]) -> Timing:
        """After a step whose workers signalled this."""
        agreed, due = dict(self.agreed), None
        for signal in signals:
            if signal.kind == WATERLINE:
                agreed[signal.node] = max(signal.at_us, agreed.get(signal.node, signal.at_us))
            else:
                due = signal.at_us if due is None else min(due, signal.at_us)
        return replace(self, agreed=agreed, due_us=due)

    def ahead_s(self, wall_us: int) -> float:
        """Return how far the clock is ahead of the wall clock, which was ahead itself once."""
        return 0.0 if self.clock_us is None else max(0.0, (self.clock_us - wall_us) / 1e6)

    def due(self, wall_us: int, awaited: Iterable[int] = ()) -> bool:
        """Whether a step is due without input: a timer is reached, or an awaited waterline rose after the last step."""
        if self.due_us is not None and self.due_us <= wall_us:
            return True
        return any(self.agreed.get(node) != self.used.get(node) for node in awaited)


def timing_to_json(timing: Timing) -> dict[str, Any]:
    """A timing as a JSON object."""
    return {
        "clock": timing.clock_us,
        "used": sorted(timing.used.items()),
        "agreed": sorted(timing.agreed.items()),
        "due": timing.due_us,
    }


def timing_from_json(value: Mapping[str, Any]) -> Timing:
    """The timing again."""
    return Timing(clock_us=value["clock"], used=dict(value["used"]), agreed=dict(value["agreed"]), due_us=value["due"])
