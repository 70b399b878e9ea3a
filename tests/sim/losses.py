"""Hosts that fall silent in the simulator, and come back with their disks or without; disks lost while hosts answer.

The runner is the product's own: after some seconds of silence it moves the workers, and their databases are made again from the
copies that `fakes.World.off` has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from dbsp.coordinator.decisions import states
from dbsp.coordinator.running.far_standbys import StandbyRule
from dbsp.coordinator.running.lost_hosts import HostLoss
from tests.coordinator.fakes import World
from tests.sim.faults import Fired

LOSS = HostLoss(after_s=8.0, movable=True)
SEEDS, EMPTY, FAR = 0.7, 0.3, 0.5
"""In how many seeds with hosts one is lost, how often its disk is lost, too, and how often standbys take the place of copies."""
ANSWERS, BROKEN = 0.4, 0.5
"""How often a disk is lost while its host answers, and how often nothing can be written in its place then."""
EARLY, EARLY_TURNS = 0.3, 30
"""In how many of these seeds one is lost before the first version is published, and in how many turns at most."""
AWAY_TURNS_MAX = 200
OFTEN, UNREADY = 8, 0.3
"""How much more often a host is lost with standbys on others, and how often so while they lack something.

Then the service may end, until the host is back with its disk. It may not go on from a standby that lags.
"""


@dataclass
class Losses:
    """At most one host is silent, or has a broken disk, at a time."""

    seed: int
    world: World
    fired: Fired
    rate: float
    random: Random = field(init=False)
    claims: Callable[[], bool] = lambda: False
    early: int = -1
    """The turn in which one is lost if no version is published by then: the logs have everything."""
    until: int = -1
    emptied_at: int = -1
    """The version that was published when a disk was lost last."""

    def __post_init__(self) -> None:
        self.random = Random(f"losses of {self.seed}")
        if self.world.offered and self.rate and self.random.random() < SEEDS:
            if Random(f"standbys on other hosts of {self.seed}").random() < FAR:
                self.world.far = {}
            else:
                self.world.off = {}
            early = Random(f"early losses of {self.seed}")
            if early.random() < EARLY:
                self.early = early.randrange(EARLY_TURNS)

    @property
    def rule(self) -> HostLoss:
        """What the runner counts as lost."""
        if self.world.off is None and self.world.far is None:
            return HostLoss()
        return replace(LOSS, only_standbys=self.world.far is not None)

    @property
    def standbys(self) -> StandbyRule:
        """How many standbys a worker has on other hosts."""
        return StandbyRule(per_worker=0 if self.world.far is None else 1)

    def strike(self, turn: int) -> None:
        """Perhaps one falls silent now, or the silent one answers again."""
        if self.world.off is None and self.world.far is None:
            return
        if self.world.silent or self.world.broken:
            if turn >= self.until:
                self.world.silent.clear()
                self.world.broken.clear()
        elif turn == self.early and not self._published():
            self._lose(turn, whole=True)
        elif self.random.random() < self.rate * (1 if self.world.far is None else OFTEN):
            whole = self._all_are_copied()
            if whole or (self.world.far is not None and self._no_worker_joins() and self.random.random() < UNREADY):
                self._lose(turn, whole)

    def _lose(self, turn: int, whole: bool) -> None:
        """Let a host fall silent, or lose its disk, or both; a disk only if all that it has is elsewhere (`whole`)."""
        host = self.random.choice(sorted({*self.world.offered, *self._homes()}))
        self.until = turn + self.random.randint(1, AWAY_TURNS_MAX)
        answers = whole and self.random.random() < ANSWERS
        if not answers:
            self.fired.note("lost")
            self.world.silent.add(host)
        if answers or (whole and self.random.random() < EMPTY):
            self.emptied_at = self._published()
            if answers:
                self.fired.note("disk-lost")
            if answers and self.random.random() < BROKEN:
                self.world.break_disk(host)
            else:
                self.world.wipe(host)

    def _homes(self) -> set[str]:
        return {database.host for database in self.world.databases.values()}

    def _no_worker_joins(self) -> bool:
        """Whether no rescale is under way: what a joining worker leaves on a host that is lost then may stay there."""
        ledger = self.world.control.load()
        if ledger is None or ledger.published not in ledger.saved:
            return False
        layout = ledger.layouts[ledger.saved[ledger.published].checkpoint.layout_version]
        return ledger.members == set(layout.workers) and ledger.rescale is None

    def _published(self) -> int:
        ledger = self.world.control.load()
        return 0 if ledger is None else ledger.published

    def _all_are_copied(self) -> bool:
        """Whether a version was published since the last layout: before it a lost host ends the service.

        With standbys on other hosts the service itself says in its status that each of them is whole.
        """
        if self.world.far is not None:
            return self._published() > self.emptied_at and self.claims()
        return self.world.databases.keys() <= (self.world.off or {}).keys()


def opens_yet(state: states.State) -> bool:
    """Whether this recovery still opens a version, and then deletes what workers left on hosts that answer again."""
    if isinstance(state, states.Recovering):
        return state.awaits not in ("discarded", "steps", "accepted")
    return isinstance(state, states.Starting)
