"""Hosts that fall silent in the simulator, and come back after a while, with their disks or without.

The runner is the product's own: after some seconds of silence it moves the workers, and their databases are made again from the
copies that `fakes.World.off` has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from dbsp.coordinator.running.far_standbys import StandbyRule
from dbsp.coordinator.running.lost_hosts import HostLoss
from dbsp.layout import homes
from tests.coordinator.fakes import World
from tests.sim.faults import Fired

LOSS = HostLoss(after_s=8.0, movable=True)
SEEDS, EMPTY, FAR = 0.7, 0.3, 0.5
"""In how many seeds with hosts one is lost, how often its disk is lost, too, and how often standbys take the place of copies."""
AWAY_TURNS_MAX = 200
OFTEN, UNREADY = 8, 0.3
"""How much more often a host is lost with standbys on others, and how often so while they lack something.

Then the service may end, until the host is back with its disk. It may not go on from a standby that lags.
"""


@dataclass
class Losses:
    """At most one host is silent at a time."""

    seed: int
    world: World
    fired: Fired
    rate: float
    random: Random = field(init=False)
    claims: Callable[[], bool] = lambda: False
    until: int = -1
    is_empty: bool = False
    """Whether the silent host has lost its disk, with standbys in the place of copies."""
    emptied_at: int = -1
    """The version that was published when a disk was lost last."""

    def __post_init__(self) -> None:
        self.random = Random(f"losses of {self.seed}")
        if self.world.offered and self.rate and self.random.random() < SEEDS:
            if Random(f"standbys on other hosts of {self.seed}").random() < FAR:
                self.world.far = {}
            else:
                self.world.off = {}

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
        if self.world.silent:
            if turn >= self.until and not (self.is_empty and self.world.silent & self._in_ledger()):
                self.world.silent.clear()
        elif self.random.random() < self.rate * (1 if self.world.far is None else OFTEN):
            whole = self._all_are_copied()
            if whole or (self.world.far is not None and self._no_worker_joins() and self.random.random() < UNREADY):
                self._lose(turn, whole)

    def _lose(self, turn: int, whole: bool) -> None:
        """Let a host fall silent; with its disk only if all that it has is elsewhere (`whole`)."""
        host = self.random.choice(sorted({*self.world.offered, *self._homes()}))
        self.fired.note("lost")
        self.world.silent.add(host)
        self.until = turn + self.random.randint(1, AWAY_TURNS_MAX)
        self.is_empty = False
        if whole and self.random.random() < EMPTY:
            self.world.wipe(host)
            self.emptied_at = self._published()
            self.is_empty = self.world.far is not None

    def _homes(self) -> set[str]:
        return {database.host for database in self.world.databases.values()}

    def _in_ledger(self) -> set[str]:
        """The hosts of the workers: without copies a database is made again where its standby is, and not on an empty host."""
        ledger = self.world.control.load()
        return set() if ledger is None else set(homes(ledger.layouts.values()).values())

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
