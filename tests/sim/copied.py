"""The simulation on files with copies off the host: a place that is slow, refuses, loses writes in flight, and is read late.

Every seed has copies of one kind. Either a checkpoint waits for its copy (`copies_required = 1`), or the copy lags
(`copies_required = 0`). A worker's disk is lost for ever now and then, also of all workers at once. The database is made
again from the copies. The product's own code copies, names checkpoints, collects garbage and returns. Its threads go on in
pieces, whenever the simulator lets them. Owners that were replaced go on, too: stopped ones wake up, tasks run late, threads
of a host that was cut off copy and collect.

| fault | what happens |
| --- | --- |
| away | the next requests are not answered |
| lost answer | the object is there, and the caller hears an error |
| lost in flight | the caller hears an error; the object arrives some requests later, or never |
| read late | whoever lists is stopped before the list arrives, while a successor goes on (the fault `pause`) |
| lost, torn | where copies lag: the place says yes, and has nothing or a half |

A list is right at the moment at which it is made, as the contract of `dbsp.object_places` says.

Oracles, beside those of `disks`: with copies that are required nothing goes below the published version. With copies that lag the
published version changes back by a return alone, and then to a version that is whole for all workers. When the faults end, all
disks are lost at once.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, TypeVar

import pytest

from dbsp.coordinator.decisions import states
from dbsp.coordinator.running import command_runner, lagging
from dbsp.coordinator.running.command_runner import CommandRunner
from dbsp.coordinator.running.control import Ledger
from dbsp.coordinator.running.copies_behind import CopyingBehind
from dbsp.coordinator.running.published_copies import PublishedCopies, PublishedParts
from dbsp.coordinator.running.status import LiveStatus
from dbsp.coordinator.worker_resources import CondemnedWorker
from dbsp.errors import AwayError, DataError, DbspError, FencedError, UnavailableError
from dbsp.layout import Layout
from dbsp.runtime import tasks
from dbsp.runtime.runtime import BehindOrder, Runtime
from dbsp.storage import WorkerDatabase, copies
from dbsp.storage.copied_checkpoints import CopiedCheckpoints
from dbsp.storage.copies import WorkerCopies
from dbsp.storage.discarding import condemn, discard_folder, discard_leftovers, discard_older, is_older
from dbsp.storage.standby import is_sound
from dbsp.store import CheckpointId
from tests.coordinator import fake_beside, fake_runtime, fakes
from tests.sim import disks
from tests.sim.circuits import PointedResources, SimulatedCopier, SimulatedRuntime
from tests.sim.coordinator import Coordinator
from tests.sim.disks import MAP_BYTES, DiskResources, DiskSimulation
from tests.sim.faults import Faults

T = TypeVar("T")
PIPELINE = "simulated"
FAULTS = replace(disks.FAULTS, ask=0.4, rescale=0.06, power=0.002, crash=0.002, pause=0.0005)
"""More checkpoints are asked for, and pauses are more frequent: the answers of a place are points, too."""
LOST, ALL_LOST, BETWEEN_LOSSES = 0.015, 0.2, 2
"""The chance, at each look at a database, that its disk is lost; how often all are; so many steps come between two losses."""
TROUBLE, LATE_MAX, AWAY_MAX = (0.02, 0.04, 0.2), 40, 25
"""The chance of a fault per write, by the seed; how many requests later one arrives at most; how many get no answer."""


@dataclass
class Place:
    """A place for objects in memory. Whoever uses it may be stopped or killed before and after each request."""

    random: Random
    point: Callable[[str], None]
    is_quiet: Callable[[], bool]
    loses: bool
    """Whether the place may lose or cut what it has acknowledged: only copies that lag are for such a place."""
    trouble: float = 0.0
    objects: dict[str, bytes] = field(default_factory=dict)
    fired: Counter[str] = field(default_factory=Counter)
    in_flight: list[tuple[int, Callable[[], object]]] = field(default_factory=list)
    requests: int = 0
    away_until: int = -1
    address: str = "memory"

    def put(self, name: str, data: bytes | memoryview) -> None:
        self._ask("put", name)
        value = bytes(data)
        kind = self._fault(("away", "answer", "flight", *(("lost", "torn") if self.loses else ())))
        if kind == "torn":
            value = value[: len(value) // 2]
        if kind in ("", "answer", "torn"):
            self.objects.setdefault(name, value)
        self._fail(kind, lambda: self.objects.setdefault(name, value))
        self.point(f"put {_kind(name)} done")

    def get(self, name: str) -> bytes:
        self._ask("get", name)
        if name not in self.objects:
            raise DataError(f"an object is missing: {name}")
        return self.objects[name]

    def names(self, prefix: str) -> list[str]:
        self._ask("list", f"{prefix}/")
        found = sorted(name for name in self.objects if name.startswith(f"{prefix}/"))
        self.point("list done")
        return found

    def sizes(self, prefix: str) -> dict[str, int]:
        self._ask("list", f"{prefix}/")
        found = {name: len(value) for name, value in self.objects.items() if name.startswith(f"{prefix}/")}
        self.point("list done")
        return found

    def has_any(self, prefix: str) -> bool:
        return bool(self.names(prefix))

    def delete(self, names: Iterable[str]) -> None:
        gone = list(names)
        if not gone:
            return
        self._ask("delete", gone[0])
        kind = self._fault(("away", "answer"))
        at = self.random.randrange(len(gone)) if kind == "answer" else len(gone)
        for name in gone[: 0 if kind == "away" else at]:  # an answer that is lost is of some of them, maybe none
            self.objects.pop(name, None)
        self._fail(kind, lambda: None)
        self.point("delete done")

    def _ask(self, what: str, name: str) -> None:
        self.requests += 1
        for due in [each for each in self.in_flight if self.is_quiet() or each[0] <= self.requests]:
            self.in_flight.remove(due)
            due[1]()
        self.point(f"{what} {_kind(name)}")
        if self.requests <= self.away_until and not self.is_quiet():
            raise AwayError("the place does not answer")

    def _fault(self, kinds: Sequence[str]) -> str:
        """Return the fault of a write: "" is none."""
        if self.is_quiet() or self.random.random() >= self.trouble:
            return ""
        kind = self.random.choice(kinds)
        self.fired[kind] += 1
        return kind

    def _fail(self, kind: str, arrive: Callable[[], object]) -> None:
        """Let the caller of a write hear what it hears of this fault."""
        if kind == "away":
            self.away_until = self.requests + self.random.randint(1, AWAY_MAX)
        if kind == "flight" and self.random.random() < 0.7:
            self.in_flight.append((self.requests + self.random.randint(1, LATE_MAX), arrive))
        if kind in ("away", "answer", "flight"):
            raise AwayError(f"the place does not answer: fault={kind}")


def _kind(name: str) -> str:
    """Return the kind of an object, which a seed repeats."""
    return next((kind for kind in ("chunks", "versions", "opened", "checkpoints", "kept") if f"/{kind}/" in name), "?")


class InTurn:
    """In the place of a pool of threads: one request after the other, in the calling thread."""

    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> InTurn:
        return self

    def __exit__(self, *_: object) -> None: ...

    def map(self, function: Callable[[Any], T], values: Iterable[Any]) -> Iterator[T]:
        return map(function, values)


class NamedWhenCopied(fake_beside.Beside):
    """The wait for a copy, and then for the checkpoint's object."""

    def __init__(self, copied: Future[Any], attempt: Callable[[], bool]) -> None:
        super().__init__(["copy", "object"], {})
        self.copied, self.attempt = copied, attempt

    def take(self, each: Any) -> None:
        if each == "copy":
            if isinstance(self.copied, fake_beside.CopyFuture) and not self.copied.done():
                self.copied._copy.advance()
            if not self.copied.done():
                self.waiting.insert(0, each)
                return
            self.reports.update(self.copied.result())
        elif not self.attempt():
            self.waiting.insert(0, each)


class SteppedPublished(PublishedCopies):
    """As it is, without a thread."""

    world: fakes.World
    going: NamedWhenCopied | None = None

    def after(self, copied: Future[Any], version: int, epoch: int) -> Future[Any]:
        parts = self.parts
        if parts is None or parts.lags:
            return copied
        self.going = NamedWhenCopied(copied, lambda: self._tried(parts, version, epoch))
        self.world.copies.append(self.going)  # type: ignore[arg-type]
        return self.going.future

    def end(self) -> None:
        going, self.going = self.going, None
        if going is not None and not going.future.done():
            self.world.copies = [each for each in self.world.copies if each is not going]
            going.future.set_exception(UnavailableError("the copying was stopped"))


class BehindInPieces(fake_beside.Beside):
    """What the thread of `CopyingBehind` does, a piece of one worker at a time; it stays until its epoch ends."""

    def __init__(self, behind: SteppedBehind, runtime: SimulatedRuntime, epoch: int, ended: threading.Event) -> None:
        super().__init__([], {})
        self.behind, self.runtime, self.epoch, self.ended = behind, runtime, epoch, ended
        self.ledger: Ledger | None = None
        self.order: BehindOrder | None = None
        self.left: list[int] = []

    def advance(self) -> None:
        if self.busy or self.ended.is_set():
            return
        self.busy = True
        try:
            self._go_on()
        except AwayError:
            pass  # what is copied is asked for again
        except FencedError as error:
            self.ended.set()
            self.behind._refused = error
        except DbspError:
            self.order = None
        finally:
            self.busy = False

    def _go_on(self) -> None:
        behind = self.behind
        if self.order is None:
            ledger = behind.objects.ledger()
            if behind._whole is None or behind._whole.version < ledger.published:
                self.ledger, self.order = ledger, behind._order(ledger, self.epoch)
                self.left = list(ledger.layouts[self.order.checkpoint.layout_version].workers)
            else:
                behind.objects.collect(self.epoch)
        elif self.left:
            if not tasks.copy_behind(self.runtime.work, self.left[0], self.order):
                self.left.pop(0)
        elif self.ledger is not None:
            behind._whole = behind._named(self.ledger, self.epoch, self.ended)
            self.order = None


class SteppedBehind(CopyingBehind):
    """As it is, without a thread."""

    def __init__(self, world: fakes.World, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.world = world

    def _started(self, runtime: Runtime, epoch: int, ended: threading.Event, before: threading.Thread | None) -> None:
        assert before is None
        assert isinstance(runtime, SimulatedRuntime)
        self.world.copies = [copy for copy in self.world.copies if not self._has_ended(copy)]
        self.world.copies.append(BehindInPieces(self, runtime, epoch, ended))  # type: ignore[arg-type]

    @staticmethod
    def _has_ended(copy: object) -> bool:
        return isinstance(copy, BehindInPieces) and copy.ended.is_set()


class CopiedResources(DiskResources):
    """What one process has open, with copies in a place."""

    place: Place
    lags: bool
    loses_disk: Callable[[int], bool] = staticmethod(lambda _number: False)

    def _kept_copies(self, number: int) -> WorkerCopies:
        known: dict[int, WorkerCopies] = self.__dict__.setdefault("_known_copies", {})
        if number not in known:
            known[number] = copies_of(self.place, number)
        return known[number]

    def _copies(self, number: int) -> WorkerCopies | None:
        return None if self.lags else self._kept_copies(number)

    def database(self, number: int, create: CheckpointId | None = None) -> WorkerDatabase:
        """Return the worker's database; its disk may be lost at this moment."""
        if self.disks.home(number).exists() and self.loses_disk(number):
            raise UnavailableError(f"the disk is lost: worker={number}")
        return super().database(number, create)

    def condemn_database(self, number: int, epoch: int) -> CondemnedWorker:  # type: ignore[override]
        return CondemnedWorker(
            folders=(condemn(self.disks.home(number), epoch),), manifests=self._kept_copies(number).condemn()
        )

    def discard_database(self, number: int, epoch: int, condemned: CondemnedWorker) -> None:  # type: ignore[override]
        self.point(f"discard {number}")
        self._kept_copies(number).discard(condemned.manifests)
        self._leave(number)
        discard_folder(self.disks.home(number), epoch, condemned.folders[0])

    def restore_database(self, number: int, epoch: int, since: int = 0) -> bool:
        """As `ConfiguredResources.restore_database` without standbys."""
        home, found = self.disks.home(number), self._kept_copies(number)
        if is_sound(home) and not is_older(home, since):
            return False
        self._leave(number)
        discard_older(home, epoch, since)
        discard_leftovers(home, epoch)
        restore = found.restore_named if self.lags else found.restore
        return restore(home, epoch, MAP_BYTES)

    def is_lost(self, worker: int) -> bool:
        return self.lags and not is_sound(self.disks.home(worker))

    def copy_behind(self, worker: int, order: BehindOrder, bytes_max: int) -> int:
        return self.database(worker).copy_behind(
            self._kept_copies(worker), order.epoch, order.version, order.checkpoint, order.needed_from, bytes_max
        )

    def outputs_needed_from(self, worker: int, epoch: int) -> int | None:
        return self.database(worker).outputs_needed_from(epoch) if self.lags else None


def copies_of(place: Any, number: int) -> WorkerCopies:
    """Return the copies of a worker's versions, as a process that knows nothing of the place has them."""
    return WorkerCopies(place, f"{PIPELINE}/{number:04}", CopiedCheckpoints(place, PIPELINE))


class CopiedRuntime(SimulatedRuntime):
    """The simulated runtime, whose versions never go below the published one while copies are required."""

    opened: Callable[[int], None]

    def open(self, version: int, epoch: int, layout: Layout) -> CheckpointId:
        found = super().open(version, epoch, layout)
        self.opened(version)
        return found

    def copy_behind(
        self, order: BehindOrder, layout: Layout, report: Callable[[int], None]
    ) -> Future[Mapping[int, int]]:
        """Copy all that is missing at once: who asks here waits for it."""
        found = Future[Mapping[int, int]]()
        try:
            for worker in layout.workers:
                while missing := tasks.copy_behind(self.work, worker, order):
                    report(missing)
        except Exception as error:  # noqa: BLE001 - as the copier's thread does
            found.set_exception(error)
        else:
            found.set_result(dict.fromkeys(layout.workers, 0))
        return found


@dataclass
class CopiedSimulation(DiskSimulation):
    """One seed of it; copies lag in every second one."""

    faults: Faults | None = field(default_factory=lambda: FAULTS)
    runtime_class = CopiedRuntime

    def __post_init__(self) -> None:
        """Nothing is in the place."""
        self.lags = bool(self.seed % 2)
        draw = Random(f"place of {self.seed}")
        self.place = Place(draw, self._at_place, lambda: self.quiet, self.lags, trouble=draw.choice(TROUBLE))
        self.losing, self.lost_at, self.published, self.given_up = Random(f"lost disks of {self.seed}"), 0, 0, 0
        super().__post_init__()

    def _at_place(self, name: str) -> None:
        """A point, unless a late task runs: then none is one."""
        self.world.point(name)

    @contextmanager
    def _patched(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(copies, "ThreadPoolExecutor", InTurn)
            patch.setattr(command_runner, "CopyingBehind", partial(SteppedBehind, self.world))
            yield

    def live(self, turns: int) -> None:
        try:
            with self._patched():
                super().live(turns)
        finally:
            self.world.crash()
            self.main = self.zombie = None
            self.disks.close_ended()  # what the last processes had open
        self.fired.counts.update({f"place-{kind}": count for kind, count in self.place.fired.items()})

    def facts(self) -> states.Facts:
        return replace(super().facts(), copies_lag=self.lags)

    def make_runner(self) -> CommandRunner:
        """A new command runner, with copies of its own view of the place."""
        found = fake_runtime.parts(self.world, self.clock)
        known: dict[int, WorkerCopies] = {}

        def of(worker: int) -> WorkerCopies:
            return known.setdefault(worker, copies_of(self.place, worker))

        published = SteppedPublished(
            PublishedParts(
                checkpoints=CopiedCheckpoints(self.place, PIPELINE), control=found.control, inputs=found.inputs,
                copies=of, lags=self.lags, clock=self.clock,
            )
        )  # fmt: skip
        published.world = self.world
        parts = replace(found, runtime=self._runtime, steps=self.make_steps(), published=published)
        return CommandRunner(parts, self.settings, LiveStatus(), fakes.Silent(), fakes.Inline())

    def make_resources(self, point: Callable[[str], None], loses_power: Callable[[], bool]) -> PointedResources:
        """Return the same files and the same place, opened anew."""
        made = CopiedResources(self.disks, self.world.resources.inputs, point, loses_power)
        made.place, made.lags = self.place, self.lags
        return made  # type: ignore[return-value]

    def _runtime(self) -> SimulatedRuntime:
        made = super()._runtime()
        made._behind = SimulatedCopier(self.world)  # type: ignore[assignment]
        made.work.resources.loses_disk = self._loses_disk  # type: ignore[attr-defined]
        made.opened = self._opened  # type: ignore[attr-defined]
        return made

    # --- faults

    def _loses_disk(self, number: int) -> bool:
        """Whether the disk of this worker is lost now; perhaps those of all others are, too."""
        steps = len(self.world.steps)
        if self.quiet or steps <= self.lost_at + BETWEEN_LOSSES or self.losing.random() >= LOST:
            return False
        safe = self._copied_workers()
        if number not in safe:
            return False
        self.lost_at = steps
        for worker in sorted(safe) if self.losing.random() < ALL_LOST else [number]:
            self._lose(worker)
        return True

    def _copied_workers(self) -> set[int]:
        """Return the workers whose state the service says is in the place: before that a lost disk ends it."""
        ledger = self.control.load()
        if ledger is None or ledger.published not in ledger.saved or (self.lags and ledger.copied is None):
            return set()
        layout = ledger.layouts[ledger.saved[ledger.published].checkpoint.layout_version]
        return set(ledger.members - ledger.forming) & set(layout.workers)

    def _lose(self, worker: int) -> None:
        home = self.disks.home(worker)
        if home.exists():
            home.rename(self.disks.folder / f"rubbish-{uuid.uuid4().hex}")
            self.fired.note("lost-disk")

    # --- oracles

    def turn(self, coordinator: Coordinator) -> None:
        super().turn(coordinator)
        self._check_published()

    def _check_published(self) -> None:
        ledger = self.control.load()
        if ledger is None:
            return
        if ledger.given_up != self.given_up:
            fakes.must(self.lags, "8: all workers returned to the copies, though a checkpoint waits for these")
            self.given_up, self.published = ledger.given_up, ledger.published
            self.fired.note("returned")
            self._must_be_whole(ledger)
        fakes.must(ledger.published >= self.published, f"8: {self.published} was published, now {ledger.published} is")
        self.published = ledger.published

    def _must_be_whole(self, ledger: Ledger) -> None:
        """The version to which all workers return is in the place, for each of them."""
        found = lagging.copied_in(ledger)
        fakes.must(found is not None and found.version == ledger.published, "8: a return to a version of the copies")
        assert found is not None
        if found.saved is not None:
            checkpoint = found.saved.checkpoint
            for worker in ledger.layouts[checkpoint.layout_version].workers:
                self._whole(worker, found.version, checkpoint.epoch)

    def _whole(self, worker: int, version: int, epoch: int) -> None:
        with self._unseen():
            lack = copies_of(self.place, worker).lacks(version, epoch)
        fakes.must(lack is None, f"8: worker={worker}: {lack}")

    @contextmanager
    def _unseen(self) -> Iterator[None]:
        """The judge asks the place: no fault strikes meanwhile."""
        quiet, point, self.quiet, self.world.point = self.quiet, self.world.point, True, lambda _name: None
        flying, self.place.in_flight = self.place.in_flight, []
        try:
            yield
        finally:
            self.quiet, self.world.point, self.place.in_flight = quiet, point, flying

    def _opened(self, version: int) -> None:
        ledger = self.control.load()
        below = not self.lags and ledger is not None and version < ledger.published
        fakes.must(not below, f"8: version {version} is opened below the published one")

    def settle(self) -> None:
        """All disks are lost at once; then as ever, without the doctor and a backup."""
        self.trace.append("ALL DISKS LOST")
        self.world.crash()
        self.main = self.zombie = None
        for worker in sorted(self._copied_workers()):
            self._lose(worker)
        super(DiskSimulation, self).settle()

    def recomputation(self) -> None:
        """(b) Also, with copies that are required, the published version is in the place, for every worker."""
        super().recomputation()
        ledger = self.control.load()
        assert ledger is not None
        checkpoint = ledger.saved[ledger.published].checkpoint
        if not self.lags:
            for worker in ledger.layouts[checkpoint.layout_version].workers:
                self._whole(worker, ledger.published, checkpoint.epoch)
