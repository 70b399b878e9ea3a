"""The simulation on files, where every host has a disk of its own and every worker has a standby.

A worker reads no database of another host. What a rescale needs of one is carried to the worker's host in pieces, and kept there
as a visit until the worker has taken its slices. Each worker's versions are kept a second time, in its standby; now and then a
worker's folder is lost, and is made again from there. So the late tasks are here of every kind: also those that send state to
other hosts or take it in, and those that write standbys or make a database again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from dbsp.layout import Layout
from dbsp.runtime import tasks, transfers
from dbsp.runtime.copying import WarmRound
from dbsp.runtime.runtime import MoveReport
from dbsp.runtime.transfers import Route
from dbsp.storage import WorkerDatabase
from dbsp.storage.discarding import Condemned, condemn, discard_folder, discard_leftovers, discard_older, is_older
from dbsp.storage.standby import Standby, is_sound, restore_from
from dbsp.storage.transfers import ShardTransfer, end_transfers
from dbsp.store import CheckpointId
from dbsp.trace.redistribute import WarmReport
from tests.coordinator import fakes
from tests.sim import disks, late_tasks
from tests.sim.circuits import PointedResources, SimulatedRuntime
from tests.sim.disks import MAP_BYTES, DiskResources, DiskSimulation
from tests.sim.faults import Faults
from tests.sim.simulation import HOSTS

FAULTS = replace(disks.FAULTS, rescale=0.2, ask=0.3, power=0.002, crash=0.001)
"""Fewer crashes, so that more rescales come to their end."""
LOST = 0.01
"""The chance, at each look at a database, that its folder is lost."""


BETWEEN_LOSSES = 2
"""So many steps come between two losses: a service whose disk is lost at every attempt ends, as it should."""


class ApartResources(DiskResources):
    """What one process has open, where workers have standbys and take in state of other hosts."""

    loses_disk: Callable[[], bool] = staticmethod(lambda: False)

    def database(self, number: int, create: CheckpointId | None = None) -> WorkerDatabase:
        """Return the worker's database; its folder may be lost at this moment, where its standby is whole."""
        home = self.disks.home(number)
        if home.exists() and is_sound(self._standby(number)) and self.loses_disk():
            home.rename(self.disks.folder / f"rubbish-{uuid.uuid4().hex}")
        return super().database(number, create)

    def condemn_database(self, number: int, epoch: int) -> tuple[Condemned, ...]:  # type: ignore[override]
        """Say which folders of the worker are to be deleted: its standby, then its database."""
        return tuple(condemn(home, epoch) for home in self._homes(number))

    def discard_database(self, number: int, epoch: int, condemned: tuple[Condemned, ...]) -> None:  # type: ignore[override]
        """Delete them, the standby first."""
        self.point(f"discard {number}")
        self._leave(number)
        for home, each in zip(self._homes(number), condemned, strict=True):
            discard_folder(home, epoch, each)
        self.end_transfers(number, epoch)

    def restore_database(self, number: int, epoch: int, since: int = 0) -> bool:
        """As `ConfiguredResources.restore_database` without copies: a late task may have put an empty database in the place."""
        standby, home = Standby(self._standby(number), MAP_BYTES), self.disks.home(number)
        if not standby.exists or is_older(standby.home, since) or (is_sound(home) and not is_older(home, since)):
            return False
        self._leave(number)
        discard_older(home, epoch, since)
        discard_leftovers(home, epoch)
        restore_from([standby], home, epoch)
        return True

    def transfer(self, worker: int, source_worker: int, epoch: int) -> ShardTransfer:
        """Return what is on the worker's host of a worker on another host."""
        return ShardTransfer(self._transfers(worker), source_worker, epoch, MAP_BYTES)

    def end_transfers(self, worker: int, epoch: int) -> None:
        """Delete the visits to a worker, but for those of newer epochs."""
        end_transfers(self._transfers(worker), epoch)

    def _transfers(self, worker: int) -> Path:
        return self.disks.folder / "visits" / f"{worker:04d}"

    def _standbys(self, number: int) -> tuple[Path, ...]:
        return (self._standby(number),)

    def _standby(self, number: int) -> Path:
        return self.disks.folder / "standbys" / f"{number:04d}"

    def _homes(self, number: int) -> tuple[Path, Path]:
        return self._standby(number), self.disks.home(number)


@dataclass
class Carrying:
    """The state that goes to other hosts for one rescale: which ways are still open."""

    runtime: ApartRuntime
    version: int
    epoch: int
    old: Layout
    new: Layout
    whole: set[Route] = field(default_factory=set)

    def piece(self, target_workers: Sequence[int], bytes_max: int) -> dict[int, WarmReport]:
        """Carry a piece on every way to these workers; return those that still lack something, and how much."""
        work, lacking = self.runtime.work, dict[int, WarmReport]()
        for route in transfers.routes(self.old, self.new, target_workers):
            if route in self.whole:
                continue
            held = transfers.held(work, route.target_worker, [route.source_worker], self.epoch)[route]
            way = route, self.version, self.old, self.new, held, bytes_max
            shipment = transfers.ship(work, *way)
            self.runtime.tasks.note(late_tasks.ship, [route.source_worker], *way)
            self.runtime.tasks.note(late_tasks.take, [route.target_worker], route, self.epoch, shipment)
            arrived = transfers.take(work, route, self.epoch, shipment)
            self.runtime.carried += 1
            if arrived.whole:
                self.whole.add(route)
            else:
                lacking[route.target_worker] = WarmReport(
                    copied_bytes=0, missing_bytes=max(1, arrived.left_bytes), slices_bytes=arrived.total_bytes
                )
        return lacking


class ApartRuntime(SimulatedRuntime):
    """The simulated runtime, where state travels between hosts before slices are taken of it."""

    carried: int = 0
    """Pieces of state that went to another host."""

    def redistribute(
        self, version: int, checkpoint: CheckpointId, old: Layout, new: Layout, cut: CheckpointId | None = None
    ) -> MoveReport:
        if cut is not None:
            self.pin(version, cut, old)
        carrying = Carrying(self, version - 1, checkpoint.epoch, old, new)
        while carrying.piece(new.workers, tasks.PIECE_BYTES):
            pass
        return super().redistribute(version, checkpoint, old, new, cut)

    def warm(self, version: int, old: Layout, new: Layout, told: Any, at_once: int) -> Future[Mapping[int, Any]]:
        self.tasks.note(tasks.warm, new.workers, version, self.epoch, old, new)
        epoch, sums, carrying = self.epoch, WarmRound(told), Carrying(self, version, self.epoch, old, new)

        def piece(workers: tuple[int, ...]) -> Mapping[int, Any]:
            far = carrying.piece(workers, tasks.PIECE_BYTES)
            near = [worker for worker in workers if worker not in far]
            return sums.take(far | {worker: tasks.warm(self.work, worker, version, epoch, old, new) for worker in near})

        return self._warmer.start(new.workers, piece, at_once)


@dataclass
class ApartSimulation(DiskSimulation):
    """One seed of it."""

    faults: Faults | None = field(default_factory=lambda: FAULTS)
    runtime_class = ApartRuntime
    common_disk = False

    def __post_init__(self) -> None:
        """Give the workers two hosts."""
        self.world.offered = HOSTS[:2]
        self.lost_at = 0
        self.losing = Random(f"lost disks of {self.seed}")
        super().__post_init__()
        self.late.preferred = ("ship", "take", "warm", "take_over", "commit")

    def make_resources(self, point: Callable[[str], None], loses_power: Callable[[], bool]) -> PointedResources:
        """Return the same files, opened anew."""
        return ApartResources(self.disks, self.world.resources.inputs, point, loses_power)  # type: ignore[return-value]

    def _runtime(self) -> SimulatedRuntime:
        made = super()._runtime()
        made.work.resources.loses_disk = self._loses_disk  # type: ignore[attr-defined]
        return made

    def _loses_disk(self) -> bool:
        steps = len(self.world.steps)
        struck = not self.quiet and steps > self.lost_at + BETWEEN_LOSSES and self.losing.random() < LOST
        if struck:
            self.lost_at = steps
            self.fired.note("lost-disk")
        return struck

    def _look(self, when: str) -> None:
        """Examine the files as ever, unless a worker's folder is lost at this moment."""
        ledger = self.control.load()
        if ledger is not None and set(ledger.members) <= self.disks.workers():
            super()._look(when)

    def recomputation(self) -> None:
        """(b) Also, every worker has a standby, and no other worker has."""
        super().recomputation()
        there = {int(home.name) for home in (self.disks.folder / "standbys").iterdir() if home.name.isdigit()}
        missing = self.databases_there() - self.late.created - there
        fakes.must(not missing, f"b: workers without a standby: {missing}")
        left = there - self.late.created - self.databases_there()
        fakes.must(self.had_zombies or not left, f"b: standbys of nobody: {left}")
