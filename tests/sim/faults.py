"""Which faults a seed meets, and how often. Each seed draws its own mix, so that rare ones also meet without the frequent ones.

A fault strikes at a *point*: a named place in the world where real code waits for a disk, a log or another process.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields, replace
from random import Random

KINDS = (
    "crash", "crash-in-recovery", "error", "pause", "disk-full", "slow", "straggler", "clock", "zombie", "engine", "standby",
    "away", "lost", "disk-lost",
)  # fmt: skip
OUTSIDE = ("before append", "before claim", "before decide", "read steps", "step trim", "input ends", "output")
"""Points at which a broker is asked."""
WRITES = ("before append", "before copy", "output", "before redistribute", "before decide", "create", "pin", "adopt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Chances per point (`crash`, `error`, `pause`, `disk_full`, `straggler`), per command (`slow`, `zombie`) or per turn.

    `crash_again` is added to `crash` while a coordinator recovers. `rescale` and `ask` are what users do; `engine` is how often
    another version of the engine is installed between two starts. Upgrades are asked for in proportion to it. `standby` is how
    often, per piece, a disk that copies of checkpoints alone go to cannot be written for a while; `away` how often, per question
    to a broker, that one does not answer for a while. `lost` is how often, per point, a host falls silent (`losses`).
    """

    crash: float = 0.0
    crash_again: float = 0.0
    error: float = 0.0
    pause: float = 0.0
    disk_full: float = 0.0
    straggler: float = 0.0
    slow: float = 0.0
    zombie: float = 0.0
    clock: float = 0.0
    ask: float = 0.1
    rescale: float = 0.02
    workers_max: int = 5
    copy_speed: float = 0.3
    arrive: float = 0.4
    engine: float = 0.0
    standby: float = 0.0
    away: float = 0.0
    lost: float = 0.0


NONE = Faults(ask=0.1)
USUAL = Faults(
    crash=0.01, crash_again=0.03, error=0.01, pause=0.001, disk_full=0.0005, straggler=0.3, slow=0.01, zombie=0.01, clock=0.05,
    engine=0.1, standby=0.3, away=0.05, lost=0.005,
)  # fmt: skip


def drawn(random: Random) -> Faults:
    """The mix of a seed: some kinds off, the others up to three times as frequent as usual; a copy may be slow or fast."""
    changes: dict[str, float] = {}
    for each in fields(USUAL):
        if each.name in ("workers_max", "copy_speed", "ask", "arrive", "engine", "standby", "away", "lost"):
            continue
        rate = getattr(USUAL, each.name)
        changes[each.name] = 0.0 if random.random() < 0.25 else min(1.0, rate * random.choice([0.3, 1.0, 1.0, 3.0]))
    found = replace(USUAL, **changes)  # type: ignore[arg-type]
    workers = 64 if random.random() < 0.03 else 5
    return replace(
        found,
        workers_max=workers,
        copy_speed=random.choice([0.03, 0.3, 0.3, 0.9]),
        arrive=random.choice([0.05, 0.4, 0.4]),
    )


@dataclass(slots=True)
class Fired:
    """How often each kind of fault really struck (oracle d)."""

    counts: Counter[str] = field(default_factory=Counter)

    def note(self, kind: str) -> None:
        """One more."""
        self.counts[kind] += 1
