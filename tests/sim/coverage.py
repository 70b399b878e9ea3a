"""Which (state, event) pairs and which transitions of the machine the seeds have met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from dbsp.coordinator import protocol as p


def place(state: p.State) -> str:
    """A state by name and by what it waits for."""
    awaits = getattr(state, "awaits", None)
    return type(state).__name__ + (f".{awaits}" if awaits else "")


def kind(event: p.Event) -> str:
    """An event by name, and by what it says where that decides."""
    detail: Any = None
    match event:
        case p.Recorded(record=record):
            detail = "nothing" if record is None else "record"
        case p.StepsRead(records=records):
            detail = "some" if records else "none"
        case p.Failed(code=code, halt=halt):
            detail = "halt" if halt else "fenced" if code == "fenced" else None
        case p.CopyEnded(code=code):
            detail = "failed" if code else None
        case p.StopAsked(now=now):
            detail = "now" if now else None
    return type(event).__name__ + (f"({detail})" if detail else "")


Pair = tuple[str, str]


@dataclass(slots=True)
class Coverage:
    """Counts of pairs and of transitions."""

    pairs: Counter[Pair] = field(default_factory=Counter)
    transitions: Counter[Pair] = field(default_factory=Counter)

    def note(self, before: p.State, event: p.Event, after: p.State) -> None:
        """One turn of a machine."""
        self.pairs[place(before), kind(event)] += 1
        self.transitions[place(before), place(after)] += 1

    def add(self, other: Coverage) -> None:
        """Both together."""
        self.pairs.update(other.pairs)
        self.transitions.update(other.transitions)

    def report(self, answered: Iterable[Pair]) -> str:
        """How much was met, and what was not."""
        wanted = set(answered)
        missing = sorted(wanted - set(self.pairs))
        lines = [
            f"{len(wanted & set(self.pairs))} of {len(wanted)} (state, event) pairs, {len(self.transitions)} transitions",
            *(f"  never met: {state} <- {event}" for state, event in missing),
        ]
        return "\n".join(lines)
