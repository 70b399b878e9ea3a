"""A pipeline's outside world in memory: what survives a crash, a runtime on it, and points where faults strike.

The state of a worker is the set of rows it owns; the output of a step is the rows it took. So every promise of the
coordinator can be checked by comparing sets: each row once, in the step that its record says, at its owner.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from dbsp.coordinator.build import facts_of
from dbsp.coordinator.decisions.states import Facts
from dbsp.coordinator.running.control import Ledger, MemoryControl, new_ledger
from dbsp.coordinator.running.notices import Notice
from dbsp.coordinator.settings.config import Config, make_config
from dbsp.distribute.migration_plan import MigrationPlan
from dbsp.errors import DataError, DbspError, FencedError, InternalError, UnavailableError
from dbsp.io.step_codec import decided
from dbsp.layout import Layout, initial
from dbsp.logs import Changes, Range, StepRecord
from dbsp.logs.sizes import Sizes, even
from dbsp.runtime.runtime import StepReport
from dbsp.store import CheckpointId

if TYPE_CHECKING:
    from tests.coordinator.fake_runtime import Beside

BAD_NODE = 3
Row = tuple[str, int, int]
FINGERPRINT = "f" * 64


class Crash(BaseException):
    """The process is killed here."""


class ViolationError(BaseException):
    """What must always hold does not: no `except Exception` may turn it into a failure like any other."""


def must(holds: bool, story: str) -> None:
    """Tell a broken invariant."""
    if not holds:
        raise ViolationError(story)


@cache
def row_hash(row: Row) -> int:
    """A stable 64-bit hash."""
    text = repr(row).encode()
    return (zlib.crc32(text) << 32) | zlib.crc32(text[::-1])


def owner(layout: Layout, row: Row) -> int:
    """Return the worker that owns a row."""
    return layout.owners[row_hash(row) >> (64 - layout.shard_bits)]


def rows_at(layout: Layout, worker: int, rows: frozenset[Row]) -> frozenset[Row]:
    """Return those of the rows that a worker owns; the simulator asks it of every worker in every step."""
    owners, shift = layout.owners, 64 - layout.shard_bits
    return frozenset(row for row in rows if owners[row_hash(row) >> shift] == worker)


@lru_cache(maxsize=1 << 14)
def _rows_of(ranges: tuple[Range, ...]) -> frozenset[Row]:
    return frozenset((r.table, r.partition, offset) for r in ranges for offset in range(r.first, r.last))


def rows_of(record: StepRecord) -> frozenset[Row]:
    """The rows a record covers."""
    return _rows_of(tuple(record.ranges))


@dataclass(slots=True)
class FakeDatabase:
    """Two versions and what is not committed yet; the latter does not survive a crash."""

    versions: dict[int, tuple[CheckpointId, frozenset[Row]]]
    epoch: int = 0
    opened: int | None = None
    state: frozenset[Row] = frozenset()
    next_step: int = 0
    pins: dict[int, tuple[CheckpointId, frozenset[Row]]] = field(default_factory=dict)
    warm: frozenset[Row] = frozenset()
    host: str = ""

    def check(self, epoch: int) -> None:
        """Refuse an older epoch."""
        if epoch < self.epoch:
            raise FencedError(f"fenced: epoch={epoch} newest={self.epoch}")

    def forget(self) -> None:
        """What a crash does."""
        self.opened = None
        self.pins = {}


@dataclass(slots=True)
class World:
    """Everything outside the coordinator's process. `point` is called where a fault may strike."""

    databases: dict[int, FakeDatabase] = field(default_factory=dict)
    outputs: dict[tuple[int, int], frozenset[Row]] = field(default_factory=dict)
    bad: Callable[[Row], bool] = lambda _row: False
    dead: dict[tuple[int, int], frozenset[Row]] = field(default_factory=dict)
    ends: dict[tuple[str, int], int] = field(default_factory=lambda: {("a", 0): 0, ("a", 1): 0, ("b", 0): 0})
    floors: dict[tuple[str, int], int] = field(default_factory=dict)
    steps: list[StepRecord] = field(default_factory=list)
    steps_floor: int = 0
    epoch: int = 0
    control: MemoryControl = field(default_factory=MemoryControl)
    migration_plans: dict[int, MigrationPlan] = field(default_factory=dict)
    """Every migration plan that the ledger ever had; it forgets those that no version needs."""
    copies: list[Beside] = field(default_factory=list)
    point: Callable[[str], None] = lambda _name: None
    straggle: Callable[[], bool] = lambda: False
    stragglers: list[Callable[[], object]] = field(default_factory=list)
    offered: tuple[str, ...] = ()
    elsewhere: dict[tuple[int, str], FakeDatabase] = field(default_factory=dict)
    """Databases of the same workers on other hosts than those in `databases`: who was asked for last at which host is there."""
    silent: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)
    """Hosts that answer, on whose disks nothing can be read or written."""
    off: dict[int, tuple[int, dict[int, tuple[CheckpointId, frozenset[Row]]]]] | None = None
    """Of each worker the epoch and the versions of its newest copy off the host; None where there are no copies."""

    far: dict[tuple[int, str], tuple[int, dict[int, tuple[CheckpointId, frozenset[Row]]]]] | None = None
    """Of each worker and host of a standby its epoch and versions; None where there are no standbys on other hosts."""

    def copy_off(self, worker: int, epoch: int) -> None:
        """Copy a worker's versions off its host; an older epoch's copy does not count."""
        if self.off is not None and epoch >= self.off.get(worker, (0, {}))[0]:
            self.off[worker] = epoch, dict(self.databases[worker].versions)

    def wipe(self, host: str) -> None:
        """Lose a host's disk."""
        self.elsewhere = {place: database for place, database in self.elsewhere.items() if place[1] != host}
        self.databases = {worker: database for worker, database in self.databases.items() if database.host != host}
        if self.far is not None:
            self.far = {place: kept for place, kept in self.far.items() if place[1] != host}

    def break_disk(self, host: str) -> None:
        """Lose a host's disk, so that nothing can be written in its place, either."""
        self.wipe(host)
        self.broken.add(host)

    def has_database(self, worker: int, host: str) -> bool:
        """Return whether a worker's database is at this host."""
        found = self.databases.get(worker)
        return (found is not None and found.host == host) or (worker, host) in self.elsewhere

    def remake(self, worker: int, host: str, since: int) -> bool:
        """Make a worker's database anew from the copies, if there is none at the host or one that is older than the move."""
        if self.bring(worker, host) and self.databases[worker].epoch >= since:
            return False
        if self.off is None or worker not in self.off:
            return False
        if worker in self.databases and self.databases[worker].host == host:
            del self.databases[worker]
        self.put(worker, FakeDatabase(versions=dict(self.off[worker][1]), host=host))
        return True

    def discard_stray(self, worker: int, host: str, since: int) -> bool:
        """Delete what a worker left on a host before it moved; False while the host is silent."""
        if host in self.silent:
            return False
        found = self.databases.get(worker)
        if found is not None and found.host == host and found.epoch < since:
            del self.databases[worker]
        there = self.elsewhere.get((worker, host))
        if there is not None and there.epoch < since:
            del self.elsewhere[worker, host]
        return True

    def written(self) -> dict[int, list[frozenset[Row]]]:
        """Return what the workers have put out in each step, dead letters included."""
        found: dict[int, list[frozenset[Row]]] = {}
        for (_, step), rows in (*self.outputs.items(), *self.dead.items()):
            found.setdefault(step, []).append(rows)
        return found

    def bring(self, worker: int, host: str) -> bool:
        """Let the worker's database be the one at this host; whether there is one."""
        if host in self.silent:
            raise UnavailableError(f"the host does not answer: host={host}")
        if host in self.broken:
            raise UnavailableError(f"the disk cannot be used: host={host}")
        found = self.databases.get(worker)
        if found is not None and found.host == host:
            return True
        there = self.elsewhere.pop((worker, host), None)
        if there is not None:
            self.put(worker, there)
        return there is not None

    def put(self, worker: int, database: FakeDatabase) -> None:
        """The worker's database is this one; another one stays on its host."""
        found = self.databases.get(worker)
        if found is not None:
            self.elsewhere[worker, found.host] = found
        self.databases[worker] = database

    def crash(self) -> None:
        """Lose what was not committed; the tasks of the process go with it."""
        for database in (*self.databases.values(), *self.elsewhere.values()):
            database.forget()
        self.copies = []
        self.stragglers = []

    def late(self) -> None:
        """A task of a step that was given up goes on, behind everybody's back."""
        point, self.point = self.point, lambda _name: None
        try:
            self.stragglers.pop()()
        except DbspError:
            pass  # refused: nobody hears of it
        finally:
            self.point = point

    def grow(self, place: tuple[str, int], rows: int) -> None:
        """Rows arrive."""
        self.ends[place] += rows


class Closed:
    """Has nothing to close."""

    __slots__ = ()

    def close(self) -> None: ...


@dataclass(slots=True)
class FakeInputs(Closed):
    """The input log."""

    world: World

    def partitions(self, table: str) -> int:
        return sum(name == table for name, _ in self.world.ends)

    def ends(self) -> Mapping[tuple[str, int], int]:
        self.world.point("input ends")
        return dict(self.world.ends)

    def floors(self) -> Mapping[tuple[str, int], int]:
        return {place: self.world.floors.get(place, 0) for place in self.world.ends}

    def read(self, range_: Range, step: int) -> Sequence[Changes]:
        raise InternalError("the fake runtime does not read")

    def sizes(self, waiting: Sequence[Range]) -> Mapping[tuple[str, int], Sizes]:
        return {(each.table, each.partition): even(each.first, each.last, 10.0) for each in waiting}

    def trim(self, positions: Mapping[tuple[str, int], int]) -> None:
        self.world.point("input trim")
        self.world.floors.update(positions)


@dataclass(slots=True)
class FakeSteps(Closed):
    """The step log, and the newest epoch that was got by a claim through this handle."""

    world: World
    checks_epoch: bool = True
    claimed: int = 0

    def claim(self) -> int:
        self.world.point("before claim")
        self.world.epoch += 1
        epoch = self.world.epoch
        self.world.point("after claim")
        self.claimed = epoch
        return epoch

    def append(self, record: StepRecord) -> None:
        self.world.point("before append")
        if self.checks_epoch and record.epoch != self.world.epoch:
            raise FencedError(f"fenced: epoch={record.epoch} newest={self.world.epoch}")
        if record.step != len(self.world.steps):
            raise DataError(f"not next: step={record.step} next={len(self.world.steps)}")
        self.world.steps.append(record)
        self.world.point("after append")

    def decide(self, epoch: int, step: int, command: str) -> StepRecord:
        self.world.point("before decide")
        if self.checks_epoch and epoch != self.world.epoch:
            raise FencedError(f"fenced: epoch={epoch} newest={self.world.epoch}")
        found = self.world.steps[step] = decided(self.world.steps[step], command)
        self.world.point("after decide")
        return found

    def read(self, first: int) -> Sequence[StepRecord]:
        self.world.point("read steps")
        if first < self.world.steps_floor or first > len(self.world.steps):
            raise DataError(f"trimmed: first={first} floor={self.world.steps_floor}")
        return self.world.steps[first:]

    def last(self) -> StepRecord | None:
        return self.world.steps[-1] if self.world.steps else None

    def trim(self, step: int) -> None:
        self.world.point("step trim")
        self.world.steps_floor = max(self.world.steps_floor, step)


@dataclass(slots=True)
class FakeControl(Closed):
    """The ledger, with a point before and after each of its transactions."""

    world: World
    kept: MemoryControl

    def load(self) -> Ledger | None:
        return self.kept.load()

    def begin(self, ledger: Ledger) -> Ledger:
        return self.kept.begin(ledger)

    def change(self, epoch: int | None, action: Callable[[Ledger], Ledger]) -> Ledger:
        self.world.point("before ledger")
        changed = self.kept.change(epoch, action)
        self.world.migration_plans.update(changed.migration_plans)
        self.world.point("after ledger")
        return changed


class Inline(Executor):
    """Does at once what is submitted, so that a seed repeats."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - as an executor does
            future.set_exception(error)
        return future


@dataclass(slots=True)
class FakeClock:
    """Time that moves when somebody waits, or is told to; the wall clock may jump."""

    now_s: float = 0.0
    wall_offset_us: int = 1_700_000_000_000_000

    def wall_us(self) -> int:
        return int(self.now_s * 1e6) + self.wall_offset_us

    def monotonic_s(self) -> float:
        return self.now_s

    def wait(self, wake: threading.Event, timeout_s: float) -> None:
        self.now_s += timeout_s


class Silent:
    """An observer that keeps the names of what it heard."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, object]]] = []

    def stepped(self, record: StepRecord, report: StepReport, *, replay: bool, lag_rows: int) -> None:
        self.heard.append(("step", {"step": record.step, "replay": replay}))

    def noted(self, notice: Notice) -> None:
        self.heard.append((notice.EVENT, notice.fields()))


def config(**sections: dict[str, object]) -> Config:
    """Settings of a pipeline that is never built from files."""
    return make_config({"pipeline": {"circuit": "none.py:none", "runtime": "local"}, **sections}, environment={})


def begin(world: World, workers: int, **layout: object) -> None:
    """Write the first ledger, unless there is one."""
    first = initial(workers, hosts=[(host, 1.0) for host in world.offered], **layout)  # type: ignore[arg-type]
    world.control.begin(new_ledger(fingerprint=FINGERPRINT, nodes=[("n", "t")], layout=first, run="run"))


def facts(world: World, **changes: object) -> Facts:
    """What a coordinator that starts now knows."""
    ledger = world.control.load()
    assert ledger is not None
    return facts_of(ledger, _config(world.offered, tuple(sorted(changes.items()))))


@cache
def _config(offered: tuple[str, ...], changes: tuple[tuple[str, object], ...]) -> Config:
    """Return the settings of a pipeline with these hosts; a seed starts dozens of coordinators with the same ones."""
    return config(step={"failures_max": 6, **dict(changes)}, layout={"hosts": list(offered)})
