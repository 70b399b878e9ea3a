"""The files of a worker of a configured pipeline: a picklable value that opens databases and logs in any process.

Layout of the data folder:

    workers/NNNN    a worker's database (a standby of it is `<folder>/<pipeline>/NNNN`)
    standbys/NNNN   the standby of a worker on another host
    visits/NNNN     shards received from workers of other hosts during a rescale
    proof/NNNN      a copy of a worker's database on another host, while an upgrade is proved
    input, steps, outputs/    the embedded logs
    control         the ledger
    coordinator.json, coordinator.log    the address and the event log

Each process keeps the handles that it opened. LMDB wants one opening per process, and a Kafka producer costs a second to
start.

Any process may have any worker's database open, and may never be asked for that worker again. So at most once per
`LOOK_EVERY_S`, whenever it is asked for anything, it closes the databases that others have deleted. Otherwise their files
would stay on the disk.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from dbsp.algebra.table import Table
from dbsp.coordinator.settings.config import Config
from dbsp.disk import is_writable, numbered
from dbsp.errors import ConfigError, DataError, InternalError
from dbsp.io.connectors import InputKind, OutputKind, Residence
from dbsp.io.connectors.embedded import EmbeddedInput, EmbeddedOutput
from dbsp.logs import InputLog, OutputLog, StepLog
from dbsp.object_places import ObjectPlace
from dbsp.runtime.runtime import BehindOrder
from dbsp.storage import WorkerDatabase
from dbsp.storage.copied_checkpoints import CopiedCheckpoints
from dbsp.storage.copies import WorkerCopies
from dbsp.storage.discarding import (
    Condemned,
    condemn,
    discard_folder,
    discard_leftovers,
    discard_older,
    is_older,
)
from dbsp.storage.environment import MAP_SIZE_BYTES
from dbsp.storage.far_standby import FarStandby
from dbsp.storage.standby import Standby, is_sound, restore_from
from dbsp.storage.transfers import ShardTransfer, end_transfers
from dbsp.store import CheckpointId, VersionInfo
from dbsp.stored.levels import NEWEST

LOOK_EVERY_S = 1.0
"""Seconds between two checks for replaced files: a check makes some system calls per file, too many for every segment."""

_OPENED: dict[tuple[Any, ...], Any] = {}
_LOCK = threading.RLock()
_LOOKED_S: dict[int, float] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class CondemnedWorker:
    """The data of a worker that is to be deleted: the databases in its folders, and the manifests of its copies."""

    folders: tuple[Condemned, ...]
    manifests: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredResources:
    """Implements `dbsp.runtime.runtime.WorkerResources` from the settings of a pipeline."""

    data_dir: Path
    pipeline: str
    tables: tuple[Table, ...]
    input: InputKind = field(default_factory=EmbeddedInput)
    output: OutputKind = field(default_factory=EmbeddedOutput)
    standbys: tuple[Path, ...] = ()
    copies: ObjectPlace | None = None
    copies_lag: bool = False
    folder: Path = Path()
    level: int = NEWEST

    def database(self, worker: int, create: CheckpointId | None = None) -> WorkerDatabase:
        """Return the worker's database; `create` makes an absent one at version 0."""
        home = self._home(worker)
        if create is not None and not home.exists():
            self._let_go(worker)  # another process has deleted the one that was open here: the worker joins again

        def make() -> WorkerDatabase:
            standbys, copies = self._standbys(worker), None if self.copies_lag else self._copies(worker)
            if create is not None and not home.exists():
                discard_leftovers(home, create.epoch)
                try:
                    return WorkerDatabase.create(home, create, standbys=standbys, copies=copies)
                except ConfigError:
                    # Another coordinator has made it meanwhile: the epoch decides which of the two continues.
                    if not home.exists():
                        raise
            return WorkerDatabase(home, standbys=standbys, copies=copies)

        return cast(WorkerDatabase, _kept(("database", str(home)), make))

    def condemn_database(self, worker: int, epoch: int) -> CondemnedWorker:
        """Return which database, and which standbys and copies of it, are to be deleted.

        **Errors** `FencedError` if one has seen a newer epoch.
        """
        copies = self._copies(worker)
        with _LOCK:
            folders = tuple(condemn(home, epoch) for home in self._homes(worker))
        return CondemnedWorker(folders=folders, manifests=() if copies is None else copies.condemn())

    def discard_database(self, worker: int, epoch: int, condemned: CondemnedWorker) -> None:
        """Delete the condemned data and the remains of earlier deletions; `FencedError` if it has seen a newer epoch.

        Copies and standbys are deleted first: the next try deletes a database that has lost them. Without a database they would
        stay.
        """
        copies = self._copies(worker)
        if copies is not None:
            copies.discard(condemned.manifests)
        with _LOCK:
            self._let_go(worker)
            for home, each in zip(self._homes(worker), condemned.folders, strict=True):
                discard_folder(home, epoch, each)
        self.end_transfers(worker, epoch)

    def discard_stray(self, worker: int, epoch: int, since: int) -> bool:
        """Delete what a worker left here when it moved away in epoch `since`; return whether there was a database.

        With the database go the shards that it received here from other hosts for a rescale.
        """
        with _LOCK:
            self._let_go(worker)
            found = discard_older(self._home(worker), epoch, since)
        self.end_transfers(worker, since)
        return found

    def _homes(self, worker: int) -> tuple[Path, ...]:
        """Return the folders of the worker's standbys, then that of its database."""
        return (*self._standbys(worker), self._home(worker))

    def restore_database(self, worker: int, epoch: int, since: int = 0) -> bool:
        """Make a database that is absent, broken or stale again; return whether it was.

        The source is the first standby that can be read, else the copies. The worker moved here in epoch `since`. A database or
        a standby that was last fenced in an older epoch is stale.
        """
        home, copies = self._home(worker), self._copies(worker)
        standbys = [
            Standby(at, MAP_SIZE_BYTES)
            for at in self._standbys(worker)
            if Standby(at, MAP_SIZE_BYTES).exists and not is_older(at, since)
        ]
        if not standbys and copies is None:
            return False
        with _LOCK:
            if is_sound(home) and not is_older(home, since):
                return False
            self._let_go(worker)
            discard_older(home, epoch, since)
            discard_leftovers(home, epoch)
            if standbys:
                try:
                    restore_from(standbys, home, epoch)
                except DataError:
                    if copies is None or not self._made_again(copies, home, epoch):
                        raise
                return True
        return copies is not None and self._made_again(copies, home, epoch)

    def has_database(self, worker: int) -> bool:
        """Return whether the worker has a database here whose file can be opened."""
        return is_sound(self._home(worker))

    def is_writable(self) -> bool:
        """Return whether databases can be written on this disk; a full disk counts as one that can."""
        return is_writable(self._home(0).parent)

    def _made_again(self, copies: WorkerCopies, home: Path, epoch: int) -> bool:
        """Make a database again from its copies; return False if they do not have it."""
        restore = copies.restore_named if self.copies_lag else copies.restore
        return restore(home, epoch, MAP_SIZE_BYTES)

    def is_lost(self, worker: int) -> bool:
        """Return whether the copies lag, and the worker's database is lost and could not be made again."""
        return self.copies_lag and not is_sound(self._home(worker))

    def copy_behind(self, worker: int, order: BehindOrder, bytes_max: int) -> int:
        """Copy a piece of a published version; see `dbsp.runtime.runtime.LagsCopies`."""
        copies = self._copies(worker)
        if copies is None:
            raise InternalError("a version is to be copied, and there is no place for copies")
        return self.database(worker).copy_behind(
            copies, order.epoch, order.version, order.checkpoint, order.needed_from, bytes_max
        )

    def outputs_needed_from(self, worker: int, epoch: int) -> int | None:
        """Return the step from which output progress stays for a rollback to the copies; None if these do not lag."""
        return self.database(worker).outputs_needed_from(epoch) if self.copies_lag else None

    def transfer(self, worker: int, source_worker: int, epoch: int) -> ShardTransfer:
        """Return the shard transfer from a worker on another host to one on this host."""
        return ShardTransfer(self._transfers(worker), source_worker, epoch)

    def end_transfers(self, worker: int, epoch: int) -> None:
        """Delete the shards received for this worker from other hosts, except those of newer epochs."""
        end_transfers(self._transfers(worker), epoch)

    def standby(self, worker: int) -> FarStandby:
        """Return the standby, on this host, of a worker on another one."""
        return FarStandby(self._far(worker))

    def take_over(self, worker: int, epoch: int, since: int, wanted: VersionInfo) -> bool:
        """Make the worker's standby here its database, if the standby has the wanted version; return whether it did."""
        with _LOCK:
            self._let_go(worker)
            return self.standby(worker).take_over(self._home(worker), epoch, since, wanted)

    def _far(self, worker: int) -> Path:
        return home_in(self.data_dir / "standbys", worker)

    def _transfers(self, worker: int) -> Path:
        return home_in(self.data_dir / "visits", worker)

    def _standbys(self, worker: int) -> tuple[Path, ...]:
        return tuple(home_in(folder, worker) for folder in self.standbys)

    def _copies(self, worker: int) -> WorkerCopies | None:
        place = self.copies
        if place is None:
            return None
        key = ("copies", str(self.data_dir), place.address, self.pipeline, worker)
        return cast(WorkerCopies, _kept(key, lambda: worker_copies(place, self.pipeline, worker)))

    def _let_go(self, worker: int) -> None:
        """Close the worker's database in this process, if it is open here."""
        with _LOCK:
            found = _OPENED.pop((os.getpid(), "database", str(self._home(worker))), None)
            if found is not None:
                found.close()

    def input_log(self) -> InputLog:
        """Return the input log, for reading."""
        return cast(InputLog, _kept(("input", str(self.data_dir), self.pipeline), self.open_input))

    @property
    def residence(self) -> Residence:
        """Return the facts about the pipeline that inputs and outputs use."""
        return Residence(data_dir=self.data_dir, pipeline=self.pipeline, folder=self.folder, level=self.level)

    def open_input(self, *, create: bool = False, check: bool = False) -> InputLog:
        """Open a new handle on the input log; `create` makes an absent one, `check` looks first at the sources."""
        return self.input.open(self.residence, self.tables, create=create, check=check)

    def make_folders(self, names: Collection[str]) -> None:
        """Make the folders on this host that the sources of new tables need."""
        self.input.make_folders(self.residence, [table for table in self.tables if table.name in names])

    def open_steps(self, *, create: bool = False) -> StepLog:
        """Open a new handle on the step log; `create` makes an absent one."""
        return self.input.open_steps(self.residence, create=create)

    def output_log(self, worker: int, first_step: int = 0, *, create: bool = False) -> OutputLog:
        """Return the worker's part of the outputs; `create` lets it begin at `first_step`, else absence is a `DataError`."""
        of_worker = ("output", str(self.data_dir), self.pipeline, worker)

        def make() -> OutputLog:
            _close(lambda key: key[1:-1] == of_worker)  # it was here before, and has left and joined again
            return self.open_output(worker, first_step, create)

        return cast(OutputLog, _kept((*of_worker, first_step), make))

    @property
    def input_is_expensive(self) -> bool:
        """Return whether input takes longer to read than to pass on between processes."""
        return self.input.is_expensive_to_read

    @property
    def output_is_expensive(self) -> bool:
        """Return whether a writer takes long to start."""
        return self.output.is_expensive_to_open

    def open_output(self, worker: int, first_step: int, create: bool = False) -> OutputLog:
        """Open a new handle on the worker's outputs."""
        return self.output.open(self.residence, worker, first_step, create=create)

    def _home(self, worker: int) -> Path:
        return database_home(self.data_dir, worker)


def writers(config: Config) -> tuple[int, ...]:
    """Return the workers that wrote outputs on this host, including those that left: their rows are part of all changes."""
    folder = config.output.progress(config.residence)
    return () if folder is None else numbered(folder)


def database_home(data_dir: Path, worker: int) -> Path:
    """Return the folder of a worker's database."""
    return home_in(data_dir / "workers", worker)


def copies_prefix(pipeline: str, worker: int) -> str:
    """Return the beginning of the names of a worker's objects in the place for copies."""
    return f"{pipeline}/{worker:04d}"


def worker_copies(place: ObjectPlace, pipeline: str, worker: int) -> WorkerCopies:
    """Return the copies of a worker's versions."""
    return WorkerCopies(place, copies_prefix(pipeline, worker), CopiedCheckpoints(place, pipeline))


def home_in(folder: Path, worker: int) -> Path:
    """Return the folder of a worker's database, or of a standby of it, within the folder of all workers."""
    return folder / f"{worker:04d}"


def _kept(key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """Return the handle that this process has opened under the key, else open it with `make`.

    The key contains the pid, so that a fork does not use its parent's handles.
    """
    full = (os.getpid(), *key)
    with _LOCK:
        _close_deleted(full)
        found = _OPENED.get(full)
        if found is None:
            found = _OPENED[full] = make()
        return found


def _close_deleted(asked: tuple[Any, ...]) -> None:
    """Close the databases of this process that another one has deleted: all if no look was recent, else the asked one.

    The asked one is checked each time. So a caller that has just received a database does not lose it while its files are
    those of its epoch.
    """
    now = time.monotonic()
    looks = now - _LOOKED_S.get(os.getpid(), -LOOK_EVERY_S) >= LOOK_EVERY_S
    if looks:
        _LOOKED_S[os.getpid()] = now
    _close(lambda key: (looks or key == asked) and key[1] == "database" and _OPENED[key].holds_deleted())


def _close(chosen: Callable[[tuple[Any, ...]], bool]) -> None:
    """Close the handles that this process holds open under the chosen keys."""
    with _LOCK:
        for key in [key for key in _OPENED if key[0] == os.getpid() and chosen(key)]:
            found = _OPENED.pop(key)
            with suppress(DataError):
                found.close()


def close_resources(data_dir: Path) -> None:
    """Close everything this process holds open below a data folder."""
    _close(lambda key: _belongs(key, str(data_dir)))


def _belongs(key: tuple[Any, ...], data_dir: str) -> bool:
    return str(key[2]) == data_dir or str(key[2]).startswith(data_dir + os.sep)
