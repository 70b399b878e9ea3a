"""Hosts that a rescale leaves out in the simulator, and hosts that it awaits."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from dbsp.coordinator.decisions import events, states
from dbsp.coordinator.decisions.rescaling import awaited_hosts
from dbsp.hosts import Offered
from dbsp.layout import Layout
from tests.coordinator.fakes import World, must

LEFT_OUT, ANSWER, IN_VAIN = 0.4, 0.5, 0.1
"""How often a rescale leaves out a host that works; how soon hosts answer that it awaits, and how often one never does."""


def named_hosts(world: World, draw: Random, share: float, hosts: tuple[str, ...]) -> Offered | None:
    """The hosts that a rescale names, where hosts have names; mostly it names none."""
    if not world.offered or draw.random() >= share:
        return None
    return tuple((host, 1.0) for host in draw.sample(hosts, draw.randint(1, len(hosts))))


@dataclass
class UnusableHosts:
    """What a service finds out about hosts; the seed decides."""

    seed: int
    world: World
    random: Random = field(init=False)
    is_heard: bool = True
    """Whether the request to rescale in the ledger reached the machine."""

    def __post_init__(self) -> None:
        self.random = Random(f"unusable hosts of {self.seed}")

    def left_out(self, hosts: tuple[str, ...]) -> tuple[str, ...]:
        """The hosts that a rescale leaves out: those that are lost or whose disk is broken, and now and then another one."""
        found = {*self.world.silent, *self.world.broken}
        if self.world.offered and self.random.random() < LEFT_OUT:
            found.add(self.random.choice(hosts))
        return tuple(sorted(found))

    def news(self, facts: states.Facts, *, quiet: bool) -> events.HostsAwaited | None:
        """The hosts that a rescale awaits answer, or one of them never does."""
        hosts = awaited_hosts(facts)
        if not hosts or not (quiet or self.random.random() < ANSWER):
            return None
        in_vain = not quiet and self.random.random() < IN_VAIN
        return events.HostsAwaited(hosts=hosts, silent=(self.random.choice(hosts),) if in_vain else ())

    def judge(self, new: Layout, old: Layout) -> None:
        """No worker joins on a host that the requested rescale leaves out, as long as another one is on offer."""
        ledger = self.world.control.load()
        if ledger is None or ledger.rescale is None or ledger.rescale_excluded is None or not self.is_heard:
            return
        offered, left_out = {host for host, _ in new.offered}, {*ledger.rescale_excluded}
        joined = {host for worker, host in zip(new.workers, new.hosts, strict=True) if worker not in old.workers}
        must(offered <= left_out or not joined & left_out, f"a worker joins on a host that is left out: {joined}")
