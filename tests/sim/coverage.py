"""Which (state, event) pairs and which transitions of the machine the seeds have met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from dbsp.coordinator.decisions import events, states


def place(state: states.State) -> str:
    """A state by name and by what it waits for."""
    awaits = getattr(state, "awaits", None)
    return type(state).__name__ + (f".{awaits}" if awaits else "")


def kind(event: events.Event) -> str:
    """An event by name, and by what it says where that decides."""
    detail: Any = None
    match event:
        case events.Recorded(record=record):
            detail = "nothing" if record is None else "record"
        case events.StepsRead(records=records):
            detail = "some" if records else "none"
        case events.Failed(code=code, halt=halt):
            detail = "halt" if halt else "fenced" if code == "fenced" else None
        case events.CopyEnded(code=code):
            detail = "failed" if code else None
        case events.StopAsked(now=now):
            detail = "now" if now else None
    return type(event).__name__ + (f"({detail})" if detail else "")


Pair = tuple[str, str]


@dataclass(slots=True)
class Coverage:
    """Counts of pairs and of transitions."""

    pairs: Counter[Pair] = field(default_factory=Counter)
    transitions: Counter[Pair] = field(default_factory=Counter)

    def note(self, before: states.State, event: events.Event, after: states.State) -> None:
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


ANSWERS_NOTHING = {
    "Starting": "the event loop begins before it hands anything in",
    "Stopped": "the end",
    "Broken": "the end",
}
NO_COPY = "a copy is in flight only while steps are taken or it is waited for"
NOTHING_UNDER_WAY = "no command is under way that could fail"
NO_EPOCH = "what is done here does not ask for the epoch"


def unreachable(state: str, event: str) -> str | None:
    """Why a pair that the machine answers cannot happen with this command runner; None if it can."""
    if state in ANSWERS_NOTHING and not (state == "Starting" and event == "LoopReady"):
        return ANSWERS_NOTHING[state]
    if event == "Failed(halt)" and state not in ("Running.step", "Replaying"):
        return "rows fail in steps"
    copies = ("Running.", "Paused", "Checkpointing.copied", "Stopping.copied")
    if event.startswith("CopyEnded") and not state.startswith(copies):
        return NO_COPY
    if event in ("Failed", "Failed(fenced)") and state in ("Paused", "Halted.decision", "Recovering.backoff"):
        return NOTHING_UNDER_WAY
    asks_not = ("Running.input", "Recovering.created", "Recovering.held", "Recovering.steps", "Rescaling.created")
    if event == "Failed(fenced)" and state in asks_not:
        return NO_EPOCH
    return None


def reachable(answered: Iterable[Pair]) -> set[Pair]:
    """The pairs that can happen, of those the machine answers."""
    return {(state, event) for state, event in answered if unreachable(state, event) is None}
