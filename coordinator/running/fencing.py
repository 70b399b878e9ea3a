"""Fence the workers of a start or a rollback; move workers of lost hosts and disks, and delete their old databases."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dbsp.coordinator.decisions import commands, events
from dbsp.coordinator.decisions.moved_workers import MovedWorker
from dbsp.coordinator.running import control as ledgers
from dbsp.coordinator.running import relocations
from dbsp.coordinator.running.clock import Clock
from dbsp.coordinator.running.control import Control, Ledger
from dbsp.coordinator.running.far_standbys import FarStandbys
from dbsp.coordinator.running.lost_hosts import SilentHosts
from dbsp.coordinator.running.notices import (
    DiskLost,
    Notify,
    StraysDiscarded,
    WorkerMoved,
    WorkersNotReached,
    WorkersRestored,
)
from dbsp.errors import DbspError, FencedError, UnavailableError
from dbsp.runtime import disks
from dbsp.runtime.runtime import KnowsHosts, RunsOnHosts, Runtime

Change = Callable[[Callable[[Ledger], Ledger]], Ledger]


class Fencing:
    """The part of the command runner that fences workers; `change` changes the ledger under the newest epoch."""

    def __init__(
        self, control: Control, clock: Clock, hosts: SilentHosts, standbys: FarStandbys, change: Change, note: Notify
    ) -> None:
        """Store the parts; contact no worker yet."""
        self._control, self._clock, self._hosts, self._change, self._note = control, clock, hosts, change, note
        self._standbys = standbys

    def create(
        self, runtime: Runtime, command: commands.CreateWorkers
    ) -> events.Created | events.HostsLost | events.DisksLost:
        """Create the databases of workers that may have none; in a recovery look for lost hosts and disks."""
        if command.offered and (lost := self._lost_hosts(runtime, command.hosts, command.offered)) is not None:
            return lost
        try:
            runtime.create(command.workers, command.checkpoint, command.hosts)
        except DbspError as error:
            found = self._lost_disks(runtime, command, error)
            if found is None:
                raise
            return found
        return events.Created()

    def fence(
        self, runtime: Runtime, command: commands.FenceWorkers
    ) -> events.Fenced | events.HostsLost | events.DisksLost:
        """Fence the workers that the start needs, then the reachable ones of the others, unless a host or disk is lost."""
        if (lost := self._lost_hosts(runtime, command.hosts, command.offered)) is not None:
            return lost
        ledger = self._control.load()
        since = {} if ledger is None else relocations.counts_since(ledger)
        moves = {} if ledger is None else relocations.moved_since(ledger)
        moved = {worker: epoch for worker, epoch in moves.items() if worker in command.workers}
        try:
            self._standbys.take_over(runtime, ledger, command.epoch, moved)
            restored = runtime.fence(command.epoch, command.workers, command.hosts, since)
        except DbspError as error:
            found = self._lost_disks(runtime, command, error)
            if found is None:
                raise
            return found
        if restored:
            self._note(WorkersRestored(workers=list(restored)))
        if not command.others:
            return events.Fenced()
        reached = runtime.fence_others(command.epoch, command.others, command.other_hosts)
        if missed := sorted(set(command.others) - set(reached)):
            self._note(WorkersNotReached(workers=missed))
        return events.Fenced(others=tuple(reached))

    def _lost_hosts(self, runtime: Runtime, hosts: Sequence[str], offered: Sequence[str]) -> events.HostsLost | None:
        """Wait until all these hosts answer; return the lost ones, with the standbys of their workers."""
        lost = self._hosts.await_all(runtime, hosts, offered)
        if lost is None:
            return None
        if not offered:  # in a rescale: the command fails, and the recovery that follows moves the workers
            raise UnavailableError(f"hosts of joining workers are lost: hosts={', '.join(lost.hosts)}")
        ready = self._standbys.ready(runtime, lost.hosts, lost.silent)
        return events.HostsLost(hosts=lost.hosts, silent=lost.silent, movable=self._movable, standbys=ready)

    @property
    def _movable(self) -> bool:
        """Return whether a worker's state can be made again on any host."""
        return self._hosts.loss.movable and not self._hosts.loss.only_standbys

    def _lost_disks(
        self, runtime: Runtime, command: commands.FenceWorkers | commands.CreateWorkers, error: DbspError
    ) -> events.DisksLost | None:
        """Return the workers whose disks are lost though their hosts answer; None if `error` has another cause.

        Only after an error this asks the hosts, so that a usual start asks nothing more.
        """
        if isinstance(error, FencedError) or self._hosts.loss.common_disk or not isinstance(runtime, RunsOnHosts):
            return None
        homes = dict(zip(command.workers, command.hosts, strict=False))
        if not homes or not command.offered:  # hosts have no names, or this is no recovery
            return None
        everywhere = sorted({*homes.values(), *command.offered})
        silent = tuple(self._hosts.silent(everywhere))
        unwritable = disks.unwritable(runtime, [host for host in everywhere if host not in silent])
        gone = {worker for worker, host in homes.items() if host in unwritable}
        if isinstance(command, commands.FenceWorkers):  # before the first checkpoint a worker may have no database yet
            near = [worker for worker, host in homes.items() if host not in (*silent, *unwritable)]
            gone |= {*disks.without_database(runtime, near, [homes[worker] for worker in near])}
        ready = self._standbys.ready_for(runtime, gone, {*silent, *unwritable}) if gone else ()
        if not gone or (self._movable and not ready and not {*homes.values()}.intersection(unwritable)):
            return None  # with copies, each try of the fence makes databases from them: that was the failure
        self._standbys.note_unwritable(unwritable)
        workers = tuple(sorted(gone))
        self._note(
            DiskLost(workers=list(workers), hosts=sorted({homes[worker] for worker in workers}), error=str(error))
        )
        return events.DisksLost(
            workers=workers, unwritable=unwritable, silent=silent, movable=self._movable, standbys=ready,
            message=error.message,
        )  # fmt: skip

    def move(self, command: commands.MoveWorkers) -> events.WorkersMoved:
        """Note in the ledger that workers of lost hosts and disks are on other hosts from this epoch on."""
        wall_us, common_disk = self._clock.wall_us(), self._hosts.loss.common_disk
        places = dict(command.places)

        def moved_in(ledger: Ledger) -> Ledger:
            ledger = ledgers.doubt_members(ledger, command.anew)
            ledger = ledgers.exclude(ledger, command.excluded)
            return relocations.move_workers(ledger, places, command.epoch, wall_us, common_disk=common_disk)

        ledger = self._change(moved_in)
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
