"""The simulation with the real files: databases, output logs, step log and ledger on LMDB, which processes and hosts lose.

`CircuitSimulation` has databases and logs in memory: an operation is done or not. On disk a commit, a slicing, a deletion, a
piece of a warm-up are several transactions and several names, and a fault may strike before and after each of them. So what a
crash leaves is a **prefix** of what was to be written, over several workers any part of it:

| what is written | synced | what is left when it ends in its midst |
| --- | --- | --- |
| a step's record, a step's outputs at a worker, a change of the ledger | on return | all or nothing: one transaction |
| a version | on return | the version before, and any first pieces of the new one; or both versions |
| a database that is made or deleted | on return | it is there or not; rubbish under other names |
| the steps since the version (the scratch) | never | all; after a power loss any first ones, **torn** |

Of a torn chunk blocks of 512 bytes are zeros. A simulated process has handles of its own. A host's boots are counted, and the
name of a scratch has the count in it, where otherwise it has the kernel's name of the boot. That LMDB keeps its promise for each
transaction is shown, byte by byte, by `tests/crash/test_power_loss.py`.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

import pytest

import dbsp.io.environment as log_files
from dbsp.circuit.names import DEAD_LETTERS
from dbsp.coordinator.running.ledger_file import LmdbControl
from dbsp.coordinator.worker_resources import database_home
from dbsp.errors import ConfigError, DbspError, UnavailableError
from dbsp.io.embedded_output import EmbeddedOutputLog, read_outputs
from dbsp.io.embedded_steps import EmbeddedStepLog
from dbsp.logs import DeadLetter, StepRecord
from dbsp.plan.plan import ViewSpec
from dbsp.runtime import tasks
from dbsp.runtime.memory_logs import MemoryInputLog
from dbsp.storage import WorkerDatabase, adopting, durable, scratch, worker
from dbsp.storage import environment as database_files
from dbsp.storage.copies import WorkerCopies
from dbsp.storage.discarding import Condemned, condemn, discard_folder, discard_leftovers
from dbsp.storage.records import held_of
from dbsp.storage.tables import Txn
from dbsp.store import CheckpointId
from dbsp.zset.batch import Batch, concat, consolidate
from tests.coordinator import fakes
from tests.sim import operators_look
from tests.sim.circuit_faults import CircuitFaults
from tests.sim.circuits import CircuitSimulation, PointedResources
from tests.sim.faults import Faults

MAP_BYTES = 1 << 26
CHUNK_BYTES = 1 << 11
PIECE_BYTES = 1 << 12
"""So small that a commit of a simulated worker is several chunks, transactions and pieces."""
BLOCK_BYTES = 512
MEMORY_DISK = Path("/dev/shm")

FAULTS = CircuitFaults(
    crash=0.003, crash_again=0.003, error=0.001, pause=0.0002, disk_full=0.0001, zombie=0.01, slow=0.01, clock=0.02,
    ask=0.1, rescale=0.08, workers_max=4, straggler=0.6, twice=0.02, parcel=0.001, power=0.008, outage=0.4, rare=5.0,
)  # fmt: skip


def boot_of(boots: Mapping[str, int], home: Path) -> str:
    """What a host's kernel calls the time since it started."""
    return f"boot{boots.get(home.name, 0)}"


_Opened = tuple[
    dict[int, tuple[int, WorkerDatabase]],
    dict[int, tuple[int, EmbeddedOutputLog]],
    list[WorkerDatabase | EmbeddedOutputLog],
]
"""A process's databases and output logs of workers, and those that others have replaced."""


@dataclass
class Disks:
    """The folders of a pipeline; what strikes while they are written, and what a host that loses its power finds."""

    folder: Path
    random: Random
    world: fakes.World
    tears: float
    """The chance that what was not synced is torn; else it is lost whole."""
    boots: Counter[str] = field(default_factory=Counter)
    torn: Counter[str] = field(default_factory=Counter)
    ended: list[_Opened] = field(default_factory=list)
    """What processes that are gone had open. It is closed by whoever comes next: the collector may find that a process is gone
    in the middle of any call, also of one that holds the lock which closing takes."""

    def close_ended(self) -> None:
        """Close what processes that are gone had open."""
        while self.ended:
            databases, logs, left = self.ended.pop()
            for found in (*(pair[1] for pair in databases.values()), *(pair[1] for pair in logs.values()), *left):
                with suppress(DbspError):
                    found.close()

    def home(self, number: int) -> Path:
        """A worker's folder."""
        return database_home(self.folder, number)

    def workers(self) -> set[int]:
        """Who has a database."""
        folder = self.folder / "workers"
        return {int(home.name) for home in folder.iterdir() if home.name.isdigit()} if folder.is_dir() else set()

    def reboot(self, number: int) -> None:
        """The worker's host is on again; of what was never synced there is what there is."""
        home = self.home(number)
        for found in sorted(home.glob("scratch-*")):
            if self.random.random() < self.tears:
                self._tear(found)
            else:
                found.rename(found.with_name(f"rubbish-{uuid.uuid4().hex}"))
        self.boots[home.name] += 1

    def _tear(self, folder: Path) -> None:
        """In a copy: whoever has the file open had it before."""
        made = folder.with_name(f"rubbish-{uuid.uuid4().hex}")
        shutil.copytree(folder, made)
        environment = database_files.DatabaseEnvironment(made, MAP_BYTES, sync=False)
        try:
            environment._write_once(self._torn)
        finally:
            environment.close()
        folder.rename(folder.with_name(f"rubbish-{uuid.uuid4().hex}"))
        made.rename(folder)

    def _torn(self, txn: Txn) -> None:
        """The newest steps may be lost, and blocks of any chunks."""
        steps = sorted({held_of(key)[1] for key in txn.keys("held")})
        lost = set(steps[len(steps) - self.random.choice((0, 0, 0, 1, 2)) :])
        for key in txn.keys("held"):
            if held_of(key)[1] in lost:
                txn.delete("held", key)
                self.torn["steps"] += 1
        for key in txn.keys("chunks"):
            value = bytearray(txn.get("chunks", key) or b"")
            blocks = range(0, len(value), BLOCK_BYTES)
            gone = [at for at in blocks if self.random.random() < 0.3] if self.random.random() < 0.7 else []
            for at in gone:
                value[at : at + BLOCK_BYTES] = bytes(len(value[at : at + BLOCK_BYTES]))
            if gone:
                txn.put("chunks", key, bytes(value))
                self.torn["chunks"] += 1

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """A fault may strike at every transaction and at every name that is made, as long as the block lasts."""
        with pytest.MonkeyPatch.context() as patch:
            for files in (database_files.DatabaseEnvironment, log_files.LogEnvironment):
                patch.setattr(files, "write", self._pointed(files.write))
            patch.setattr(
                scratch, "folder_of", lambda home, epoch: home / f"scratch-{epoch}-{boot_of(self.boots, home)}"
            )
            for module in (worker, scratch):
                patch.setattr(module, "MAP_SIZE_BYTES", MAP_BYTES, raising=False)
            for module in (durable, adopting):
                patch.setattr(module, "COPY_BYTES", CHUNK_BYTES)
            patch.setattr(tasks, "PIECE_BYTES", PIECE_BYTES)
            sync = worker.sync_path

            def synced(folder: Path) -> None:
                self._strike(f"sync {self._called(folder)}")
                sync(folder)

            patch.setattr(worker, "sync_path", synced)
            yield

    def _pointed(self, write: Callable[..., Any]) -> Callable[..., Any]:
        """A transaction, with a point before it and one after: its answer may be lost."""

        def written(environment: Any, *arguments: Any, **options: Any) -> Any:
            folder = getattr(environment, "folder", None) or environment.path
            if not folder.is_relative_to(self.folder):  # the operator's own
                return write(environment, *arguments, **options)
            name = self._called(folder)
            self._strike(f"write {name}")
            found = write(environment, *arguments, **options)
            self._strike(f"written {name}")
            return found

        return written

    def _strike(self, name: str) -> None:
        self.world.point(name)

    def _called(self, path: Path) -> str:
        """A name that a seed repeats: without drawn parts."""
        parts = path.relative_to(self.folder).parts
        return "/".join(part.split(".new-")[0].split("-")[0] for part in parts)


class DiskResources:
    """What one process has open of the workers' files."""

    def __init__(
        self, disks: Disks, inputs: MemoryInputLog, point: Callable[[str], None], loses_power: Callable[[], bool]
    ) -> None:
        """Nothing yet."""
        self.disks, self.inputs, self.point, self.loses_power = disks, inputs, point, loses_power
        self._databases: dict[int, tuple[int, WorkerDatabase]] = {}
        self._logs: dict[int, tuple[int, EmbeddedOutputLog]] = {}
        self._left: list[WorkerDatabase | EmbeddedOutputLog] = []
        disks.close_ended()
        weakref.finalize(self, disks.ended.append, (self._databases, self._logs, self._left))

    def database(self, number: int, create: CheckpointId | None = None) -> WorkerDatabase:
        """As `dbsp.coordinator.worker_resources.ConfiguredResources.database`."""
        self.point(f"database {number}")
        home = self.disks.home(number)
        if home.exists() and self.loses_power():
            self.disks.reboot(number)
            if self.disks.random.random() < 0.5:  # else nobody was there at that moment
                raise UnavailableError(f"the host has lost its power: worker={number}")
        boot = self.disks.boots[home.name]
        there = self._databases.get(number)
        if there is not None and (there[0] != boot or there[1].holds_deleted() or not home.exists()):
            self._leave(number)
            there = None
        if there is None:
            there = self._databases[number] = (boot, self._opened(home, create))
        return there[1]

    def _opened(self, home: Path, create: CheckpointId | None) -> WorkerDatabase:
        options: dict[str, Any] = {
            "map_size_bytes": MAP_BYTES, "chunk_bytes_max": CHUNK_BYTES, "standbys": self._standbys(int(home.name)),
            "copies": self._copies(int(home.name)),
        }  # fmt: skip
        if create is not None and not home.exists():
            discard_leftovers(home, create.epoch)
            with suppress(ConfigError):  # another coordinator has made it meanwhile
                return WorkerDatabase.create(home, create, **options)
        return WorkerDatabase(home, **options)

    def _standbys(self, number: int) -> tuple[Path, ...]:
        """Return the folders of a worker's standbys: none."""
        return ()

    def _copies(self, number: int) -> WorkerCopies | None:
        """Return the copies that a commit waits for: none."""
        return None

    def _leave(self, number: int) -> None:
        """Closed at the end of the process: somebody may be reading."""
        found = self._databases.pop(number, None)
        if found is not None:
            self._left.append(found[1])

    def condemn_database(self, number: int, epoch: int) -> Condemned:
        """As there."""
        return condemn(self.disks.home(number), epoch)

    def discard_database(self, number: int, epoch: int, condemned: Condemned) -> None:
        """As there."""
        self.point(f"discard {number}")
        self._leave(number)
        discard_folder(self.disks.home(number), epoch, condemned)

    def restore_database(self, number: int, epoch: int, since: int = 0) -> bool:
        """There are no standbys."""
        return False

    def discard_stray(self, number: int, epoch: int, since: int) -> bool:
        """No worker moves."""
        return False

    def input_log(self) -> MemoryInputLog:
        """The pipeline's input."""
        return self.inputs

    def output_log(self, number: int, first_step: int = 0, *, create: bool = False) -> EmbeddedOutputLog:
        """As there."""
        self.point(f"output log {number}")
        found = self._logs.get(number)
        if found is None or found[0] != first_step:
            if found is not None:
                self._left.append(found[1])
            made = EmbeddedOutputLog(
                self.disks.folder, number, first_step=first_step, create=create, map_bytes=MAP_BYTES
            )
            found = self._logs[number] = (first_step, made)
        return found[1]


@dataclass(slots=True)
class DiskSteps(fakes.Closed):
    """The step log on disk; `world.steps` is what it has ever held, as it is there now."""

    world: fakes.World
    log: EmbeddedStepLog
    claimed: int = 0

    def claim(self) -> int:
        self.world.point("before claim")
        try:
            epoch = self.log.claim()
        finally:
            self.world.epoch = self.log.epoch()
        self.world.point("after claim")
        self.claimed = epoch
        return epoch

    def append(self, record: StepRecord) -> None:
        try:
            self.log.append(record)
        finally:
            self._note()

    def decide(self, epoch: int, step: int, command: str) -> StepRecord:
        try:
            return self.log.decide(epoch, step, command)
        finally:
            self._note()

    def _note(self) -> None:
        """Whatever the answer was, what is on disk counts."""
        last = self.log.last()
        if last is None:
            return
        kept = self.log.read(max(self.world.steps_floor, 0))
        self.world.steps[kept[0].step :] = kept

    def read(self, first: int) -> Sequence[StepRecord]:
        self.world.point("read steps")
        return self.log.read(first)

    def last(self) -> StepRecord | None:
        return self.log.last()

    def trim(self, step: int) -> None:
        last = self.log.last()
        limit = step if last is None else min(step, last.step)
        self.world.steps_floor = max(self.world.steps_floor, limit)  # what is trimmed was noted before
        self.log.trim(step)


@dataclass
class DiskSimulation(CircuitSimulation):
    """One seed of it."""

    faults: Faults | None = field(default_factory=lambda: FAULTS)

    def __post_init__(self) -> None:
        """In a folder of its own, which goes when it does."""
        where = MEMORY_DISK if MEMORY_DISK.is_dir() else None
        folder = Path(tempfile.mkdtemp(prefix="dbsp-sim-", dir=where))
        self.gone = weakref.finalize(self, shutil.rmtree, folder, True)
        tears = self.faults.torn if isinstance(self.faults, CircuitFaults) else 1.0
        self.disks = Disks(folder, Random(f"disks {self.seed}"), self.world, tears)
        self.control = LmdbControl(folder)
        self.world.control = self.control  # type: ignore[assignment]
        self.steps = EmbeddedStepLog(folder, create=True)
        super().__post_init__()

    @property
    def encodes(self) -> bool:
        """What a database gives dies with its transaction."""
        return True

    def live(self, turns: int) -> None:
        """As ever; then the files are closed."""
        try:
            with self.disks.in_use():
                super().live(turns)
        finally:
            self.disks.close_ended()
            self.steps.close()
            self.control.close()
            self.gone()

    def settle(self) -> None:
        """First the operator looks: the doctor, and in every other seed a backup from which the rest goes on."""
        self._look("when it was killed")
        super().settle()
        self._look("when it has stopped")

    def _look(self, when: str) -> None:
        """Examine a copy of the files; a pipeline that never started has none."""
        ledger = self.control.load()
        if ledger is None or not ledger.epoch:
            return
        with tempfile.TemporaryDirectory(dir=self.disks.folder.parent, prefix="dbsp-sim-look-") as folder:
            config = operators_look.copied(
                self.disks.folder, self.world.resources.inputs, self.plan, Path(folder) / "copy"
            )
            operators_look.check_sound(config, when)
            if not self.quiet and self.seed % 2:
                self._go_on_from(operators_look.through_a_backup(config, Path(folder) / "there", ledger.fingerprint))

    def _go_on_from(self, data: Path) -> None:
        """Everybody is killed, and the files are those of a backup."""
        self.trace.append("RESTORED")
        self.world.crash()
        self.main = self.zombie = None
        self.steps.close()
        self.control.close()
        self.disks.folder = self.disks.folder / "restored"
        shutil.move(data, self.disks.folder)
        self.control = LmdbControl(self.disks.folder)
        self.world.control = self.control  # type: ignore[assignment]
        self.steps = EmbeddedStepLog(self.disks.folder)

    def make_steps(self) -> Any:
        """A handle on the step log."""
        return DiskSteps(self.world, self.steps)

    def make_resources(self, point: Callable[[str], None], loses_power: Callable[[], bool]) -> PointedResources:
        """The same files, opened anew."""
        return DiskResources(self.disks, self.world.resources.inputs, point, loses_power)  # type: ignore[return-value]

    def power_goes(self) -> None:
        """All hosts at once."""
        for number in sorted(self.disks.workers()):
            self.disks.reboot(number)

    def databases_there(self) -> set[int]:
        """The workers that have one."""
        return self.disks.workers()

    @cached_property
    def _written(self) -> dict[tuple[str, int], list[Any]]:
        """All that is in the output logs, as it is at the end."""
        found: dict[tuple[str, int], list[Any]] = {}
        for view in (*(view.name for view in self.plan.views), DEAD_LETTERS):
            for step, _, table in read_outputs(self.disks.folder, view):
                found.setdefault((view, step), []).append(table)
        return found

    def written(self, step: int, view: ViewSpec) -> list[Any]:
        """What a step changed in a view, summed over the workers."""
        tables = self._written.get((view.name, step), [])
        parts = [
            Batch.from_arrow(table, view.schema, table.column("weight").to_numpy().reshape(-1, 1)) for table in tables
        ]
        return sorted(consolidate(concat(parts, view.schema)).to_rows(), key=repr)

    def dead(self, step: int) -> Counter[DeadLetter]:
        """What a step could not use, added up."""
        sums: Counter[DeadLetter] = Counter()
        for table in self._written.get((DEAD_LETTERS, step), []):
            for row in table.to_pylist():
                weight = row.pop("weight")
                sums[DeadLetter(**row, weight=0)] += weight
        return Counter({letter: weight for letter, weight in sums.items() if weight})
