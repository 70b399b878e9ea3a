"""Hosts that fall silent in the simulator, and come back after a while, with their disks or without.

The runner is the product's own: after some seconds of silence it moves the workers, and their databases are made again from the
copies that `fakes.World.off` has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from dbsp.coordinator.running.lost_hosts import HostLoss
from tests.coordinator.fakes import World
from tests.sim.faults import Fired

LOSS = HostLoss(after_s=8.0, movable=True)
SEEDS, EMPTY = 0.7, 0.3
"""In how many seeds with hosts one is lost, and how often its disk is lost, too."""
AWAY_TURNS_MAX = 200


@dataclass
class Losses:
    """At most one host is silent at a time."""

    seed: int
    world: World
    fired: Fired
    rate: float
    random: Random = field(init=False)
    until: int = -1

    def __post_init__(self) -> None:
        self.random = Random(f"losses of {self.seed}")
        if self.world.offered and self.rate and self.random.random() < SEEDS:
            self.world.off = {}

    @property
    def rule(self) -> HostLoss:
        """What the runner counts as lost."""
        return HostLoss() if self.world.off is None else LOSS

    def strike(self, turn: int) -> None:
        """Perhaps one falls silent now, or the silent one answers again."""
        if self.world.off is None:
            return
        if self.world.silent:
            if turn >= self.until:
                self.world.silent.clear()
        elif self.random.random() < self.rate and self._all_are_copied():
            host = self.random.choice(sorted({*self.world.offered, *self._homes()}))
            self.fired.note("lost")
            self.world.silent.add(host)
            self.until = turn + self.random.randint(1, AWAY_TURNS_MAX)
            if self.random.random() < EMPTY:
                self.world.wipe(host)

    def _homes(self) -> set[str]:
        return {database.host for database in self.world.databases.values()}

    def _all_are_copied(self) -> bool:
        """Whether a version was published since the last layout: before it a lost host ends the service."""
        return self.world.databases.keys() <= (self.world.off or {}).keys()
