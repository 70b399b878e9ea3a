"""The faults that only workers with a circuit can meet: what happens to tasks, to what they send, and to their databases.

- A **straggler**: whoever failed in a step goes on with its tasks later, behind everybody's back, also beside a successor. (Where
  workers hold sets of rows there are stragglers too; here they run segments.)
- A task runs **twice**, as at-least-once task runners do: either answer counts.
- A parcel of an exchange is **lost**, **repeated**, or comes **late** (in the place of another one); the order of arrival is any.
- A host loses its **power**: a worker's database comes back with what was synced (versions, the epoch), and nothing else, in the
  midst of the work or together with the coordinator. What a commit had in hand is there whole or not at all: the databases are in
  memory. On files (`tests.sim.disks`) it is torn.
- **Rows fail**: under the policy of the seed they are dead letters, are null, or halt the pipeline until somebody decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from dbsp.steps.exchange import Parcel
from dbsp.store import CheckpointId
from dbsp.trace.memory import MemoryDatabase
from tests.sim.faults import Faults, Fired

KINDS = ("straggler", "task-twice", "parcel-lost", "parcel-repeated", "parcel-late", "power", "row", "halt")
NOBODY = CheckpointId(run="", epoch=0, step=0, layout_version=0, fingerprint="")


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitFaults(Faults):
    """Chances per task (`twice`), per parcel (`parcel`), per look at a database (`power`).

    `outage` is the chance that the power goes with a crash of the coordinator, for every host; `tasks_max` is how many looks at
    databases and logs a straggler gets before it ends. `torn` is the chance that what was not synced is torn, not lost whole,
    where there are files (`tests.sim.disks`). In states that are rare and short, errors, pauses, successors and requests are
    `rare` times as frequent, so that every event meets every state in fewer seeds.
    """

    twice: float = 0.0
    parcel: float = 0.0
    power: float = 0.0
    outage: float = 0.0
    tasks_max: int = 40
    torn: float = 0.8
    rare: float = 1.0

    def in_rare_states(self) -> CircuitFaults:
        """What strikes there."""
        often = self.rare
        return replace(
            self, error=self.error * often, pause=self.pause * often, zombie=self.zombie * often, ask=self.ask * often
        )


@dataclass
class Strikes:
    """Draws the faults of a seed, from random numbers of its own, and notes them."""

    rates: CircuitFaults
    random: Random
    fired: Fired
    is_quiet: Callable[[], bool]
    before: dict[tuple[int, int], Parcel] = field(default_factory=dict)

    def strikes(self, rate: float, kind: str) -> bool:
        """Whether one does now."""
        struck = not self.is_quiet() and self.random.random() < rate
        if struck:
            self.fired.note(kind)
        return struck

    def shuffled(self, workers: Sequence[int]) -> list[int]:
        """In some order; as it is when nothing goes wrong any more."""
        found = list(workers)
        if not self.is_quiet():
            self.random.shuffle(found)
        return found

    def run(self, task: Callable[[int], Sequence[Parcel]], worker: int) -> Sequence[Parcel]:
        """What a task gives; sometimes it has run before, and that answer was lost."""
        if self.strikes(self.rates.twice, "task-twice"):
            first = task(worker)
            second = task(worker)
            return second if self.random.random() < 0.5 else first
        return task(worker)

    def arrive(self, worker: int, parcels: list[Parcel]) -> list[Parcel]:
        """What arrives of what was sent to a worker."""
        arrived = list(parcels)
        for parcel in parcels:
            source = parcel.address.source
            stale = self.before.get((source, worker))
            self.before[source, worker] = parcel
            kind = self.random.choice(("parcel-lost", "parcel-repeated", "parcel-late"))
            if not self.strikes(self.rates.parcel, kind):
                continue
            at = arrived.index(parcel)
            match kind:
                case "parcel-lost":
                    del arrived[at]
                case "parcel-repeated":
                    arrived.append(parcel)
                case _:
                    arrived[at : at + 1] = [stale] if stale is not None else []
        if not self.is_quiet():
            self.random.shuffle(arrived)
        return arrived


def rebooted(found: MemoryDatabase) -> MemoryDatabase:
    """The database as its host finds it when the power is back: what was synced, and nothing of the steps since."""
    made = MemoryDatabase(NOBODY, version=None)
    made.chunks, made._epoch, made._versions = found.chunks, found._epoch, synced(found)
    return made


def synced(found: MemoryDatabase) -> Mapping[int, object]:
    """The versions on disk: a commit syncs before it answers."""
    return dict(found._versions)
