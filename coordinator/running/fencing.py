"""Fence the workers of a start or a rollback; move the workers of lost hosts, and delete what they left there."""

from __future__ import annotations

from collections.abc import Callable

from dbsp.coordinator.decisions import commands, events
from dbsp.coordinator.decisions.moved_workers import MovedWorker
from dbsp.coordinator.running import control as ledgers
from dbsp.coordinator.running import relocations
from dbsp.coordinator.running.clock import Clock
from dbsp.coordinator.running.control import Control, Ledger
from dbsp.coordinator.running.far_standbys import FarStandbys
from dbsp.coordinator.running.lost_hosts import SilentHosts
from dbsp.coordinator.running.notices import (
    Notify,
    StraysDiscarded,
    WorkerMoved,
    WorkersNotReached,
    WorkersRestored,
)
from dbsp.errors import DbspError
from dbsp.runtime.runtime import KnowsHosts, Runtime

Change = Callable[[Callable[[Ledger], Ledger]], Ledger]


class Fencing:
    """The part of the command runner that fences workers; `change` changes the ledger under the newest epoch."""

    def __init__(
        self, control: Control, clock: Clock, hosts: SilentHosts, standbys: FarStandbys, change: Change, note: Notify
    ) -> None:
        """Touch nothing yet."""
        self._control, self._clock, self._hosts, self._change, self._note = control, clock, hosts, change, note
        self._standbys = standbys

    def fence(self, runtime: Runtime, command: commands.FenceWorkers) -> events.Fenced | events.HostsLost:
        """Fence the workers that the start needs, then the reachable ones of the others, unless a needed host is lost."""
        if (lost := self._hosts.await_all(runtime, command.hosts, command.offered)) is not None:
            rule, ready = self._hosts.loss, self._standbys.ready(runtime, lost.hosts, lost.silent)
            movable = rule.movable and not rule.only_standbys
            return events.HostsLost(hosts=lost.hosts, silent=lost.silent, movable=movable, standbys=ready)
        ledger = self._control.load()
        since = {} if ledger is None else relocations.moved_since(ledger)
        moved = {worker: epoch for worker, epoch in since.items() if worker in command.workers}
        self._standbys.take_over(runtime, ledger, command.epoch, moved)
        if restored := runtime.fence(command.epoch, command.workers, command.hosts, since):
            self._note(WorkersRestored(workers=list(restored)))
        if not command.others:
            return events.Fenced()
        reached = runtime.fence_others(command.epoch, command.others, command.other_hosts)
        if missed := sorted(set(command.others) - set(reached)):
            self._note(WorkersNotReached(workers=missed))
        return events.Fenced(others=tuple(reached))

    def move(self, command: commands.MoveWorkers) -> events.WorkersMoved:
        """Note in the ledger that workers of lost hosts are on other hosts from this epoch on."""
        wall_us, common_disk = self._clock.wall_us(), self._hosts.loss.common_disk
        places = dict(command.places)
        ledger = self._change(
            lambda found: relocations.move_workers(found, places, command.epoch, wall_us, common_disk=common_disk)
        )
        for moved in ledger.moved:
            if moved.epoch == command.epoch:
                self._note(WorkerMoved(worker=moved.worker, host=moved.host, lost=moved.lost, epoch=moved.epoch))
        return events.WorkersMoved(standing=ledgers.standing(ledger))

    def discard_strays(self, runtime: Runtime, epoch: int, ledger: Ledger) -> tuple[MovedWorker, ...]:
        """Delete the databases that workers left on lost hosts, where these answer again; return the moved workers.

        The next start tries the rest. A failure is noted and nothing else, because nothing reads these databases.
        """
        strays = relocations.strays(ledger)
        if not strays or not isinstance(runtime, KnowsHosts):
            return ledger.moved
        try:
            gone = runtime.discard_strays(epoch, strays)
        except DbspError as error:
            self._note(StraysDiscarded(workers=[], hosts=[], error=str(error)))
            return ledger.moved
        if not gone:
            return ledger.moved
        pairs = {(stray.worker, stray.host) for stray in gone}
        hosts = sorted({stray.host for stray in gone})
        self._note(StraysDiscarded(workers=[stray.worker for stray in gone], hosts=hosts, error=""))
        return self._change(lambda found: relocations.forget_strays(found, pairs)).moved
