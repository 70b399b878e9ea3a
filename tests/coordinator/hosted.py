"""Hosts in one process: each is a folder with the databases of its workers, and may fall silent, be lost, and come back."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dbsp.coordinator.build import build
from dbsp.coordinator.service import Service
from dbsp.coordinator.worker_resources import ConfiguredResources, home_in
from dbsp.errors import UnavailableError
from dbsp.layout import Layout
from dbsp.logs import StepRecord
from dbsp.runtime import standbys, tasks
from dbsp.runtime.inprocess import InProcessRuntime
from dbsp.runtime.runtime import NOTHING, StepReport, Stray
from dbsp.runtime.standbys import Lag, PieceStored, StandbyRoute
from dbsp.runtime.work import Work
from dbsp.storage import WorkerDatabase
from dbsp.store import CheckpointId, VersionInfo
from tests.coordinator.under_traffic import settings


@dataclass(slots=True, eq=False)
class Machines:
    """The hosts of a pipeline below `folder`; `silent` ones answer nothing, and what asks them hangs until it is cancelled."""

    folder: Path
    places: dict[int, str] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    cancelled: threading.Event = field(default_factory=threading.Event)
    hangs_s: float = 60.0
    first_answer_s: float = 0.0
    sent: int = 0
    """Bytes that went to standbys."""

    def standby(self, host: str, worker: int) -> Path:
        """Return the folder of a worker's standby on a host."""
        return home_in(self.folder / host / "standbys", worker)

    def home(self, host: str, worker: int) -> Path:
        """Return the folder of a worker's database on a host."""
        return home_in(self.folder / host / "workers", worker)

    def visits(self, host: str, worker: int) -> Path:
        """Return the folder of what a worker on this host received from workers of other hosts."""
        return home_in(self.folder / host / "visits", worker)

    def wipe(self, host: str) -> None:
        """Lose a host's disk; what has files open there goes on with them."""
        (self.folder / host).rename(self.folder / f"lost-{uuid.uuid4().hex}")

    def break_disk(self, host: str) -> None:
        """Lose a host's disk, so that nothing can be written in its place, either."""
        self.wipe(host)
        (self.folder / host).touch()

    def replace_disk(self, host: str) -> None:
        """Give a host an empty disk in the place of a broken one."""
        (self.folder / host).unlink()

    def ask(self, host: str) -> None:
        """Hang at a silent host until somebody cancels, then fail."""
        if host in self.silent:
            self.cancelled.wait(self.hangs_s)
            raise UnavailableError(f"the host does not answer: host={host}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedResources(ConfiguredResources):
    """The resources of all workers, each on the disk of the host where it was last asked for."""

    machines: Machines
    here: str = ""
    """The host that is asked, where that is not the worker's."""

    @classmethod
    def of(cls, there: ConfiguredResources, machines: Machines) -> HostedResources:
        names = ("data_dir", "pipeline", "tables", "input", "output", "standbys", "copies", "copies_lag", "folder")
        return cls(**{name: getattr(there, name) for name in names}, machines=machines)

    def database(self, worker: int, create: CheckpointId | None = None) -> WorkerDatabase:
        if (host := self.machines.places[worker]) in self.machines.silent:
            raise UnavailableError(f"the host does not answer: host={host}")
        return ConfiguredResources.database(self, worker, create)

    def _home(self, worker: int) -> Path:
        return self.machines.home(self.here or self.machines.places[worker], worker)

    def _transfers(self, worker: int) -> Path:
        return self.machines.visits(self.here or self.machines.places[worker], worker)

    def _far(self, worker: int) -> Path:
        return self.machines.standby(self.here, worker)


@dataclass(slots=True)
class HostedStandbys:
    """The standbys on simulated hosts: messages are calls, in small pieces."""

    work: Work
    machines: Machines
    piece_bytes: int = 4096

    def _at(self, host: str) -> Work:
        if host in self.machines.silent:
            raise UnavailableError(f"the host does not answer: host={host}")
        return replace(self.work, resources=replace(self.work.resources, here=host))  # type: ignore[type-var]

    def follow_standbys(
        self,
        version: int,
        epoch: int,
        routes: Sequence[StandbyRoute],
        on_lag: Callable[[Lag], None],
        ended: Callable[[], bool],
    ) -> None:
        standbys.follow(self, version, epoch, routes, on_lag, ended)

    def offers(self, routes: Sequence[StandbyRoute], version: int) -> Mapping[int, Any]:
        return {route.worker: standbys.offer(self._at(route.home), route.worker, version) for route in routes}

    def settle(
        self, routes: Sequence[StandbyRoute], offers: Mapping[int, Any], epoch: int
    ) -> Mapping[StandbyRoute, Any]:
        return {route: standbys.settle(self._at(route.host), route.worker, offers, epoch) for route in routes}

    def pieces(
        self, settled: Mapping[StandbyRoute, Any], version: int, epoch: int
    ) -> Mapping[StandbyRoute, PieceStored]:
        found = {}
        for route, state in settled.items():
            sent = standbys.piece(self._at(route.home), route.worker, version, state, self.piece_bytes)
            self.machines.sent += sum(len(value) for _, value in sent.chunks)
            found[route] = standbys.take(self._at(route.host), route.worker, epoch, sent)
        return found

    def standby_versions(self, places: Sequence[tuple[int, str]]) -> Mapping[tuple[int, str], tuple[VersionInfo, ...]]:
        return {(worker, host): standbys.versions(self._at(host), worker) for worker, host in places}

    def take_over(
        self, epoch: int, places: Sequence[tuple[int, str]], since: Mapping[int, int], wanted: VersionInfo
    ) -> tuple[int, ...]:
        return tuple(
            worker for worker, host in places if standbys.take_over(self._at(host), worker, epoch, since, wanted)
        )

    def discard_standbys(self, epoch: int, places: Sequence[tuple[int, str]]) -> Sequence[tuple[int, str]]:
        near = [(worker, host) for worker, host in places if host not in self.machines.silent]
        for worker, host in near:
            standbys.discard(self._at(host), worker, epoch)
        return near


@dataclass(frozen=True, slots=True)
class HostedFarReads:
    """Reads beside steps on simulated hosts: a silent one is known to be, as one without executor is."""

    work: Work
    machines: Machines

    def run(
        self,
        what: str,
        workers: tuple[int, ...],
        hosts: tuple[str, ...],
        function: Callable[..., Any],
        *arguments: Any,
    ) -> Mapping[int, Any]:
        for host in hosts:
            if host in self.machines.silent:
                raise UnavailableError(f"the host does not answer: host={host}")
        return {worker: function(self.work, worker, *arguments) for worker in workers}


class HostedRuntime(InProcessRuntime):
    """Runs workers on simulated hosts, and knows which of these are silent."""

    @property
    def standbys(self) -> HostedStandbys:
        return HostedStandbys(self.work, self.machines)

    @property
    def far_reads(self) -> HostedFarReads:
        return HostedFarReads(self.work, self.machines)

    def on_hosts(
        self, what: str, workers: Sequence[int], hosts: Sequence[str], function: Callable[..., Any], *arguments: Any
    ) -> Mapping[int, Any]:
        return {
            worker: function(self.standbys._at(host), worker, *arguments)
            for worker, host in zip(workers, hosts, strict=True)
        }

    @property
    def machines(self) -> Machines:
        return self.work.resources.machines  # type: ignore[attr-defined, no-any-return]

    def _at(self, workers: Iterable[int], hosts: Sequence[str]) -> None:
        self.machines.places.update(zip(workers, hosts, strict=True))
        for host in hosts:
            self.machines.ask(host)

    def create(self, workers: Sequence[int], checkpoint: CheckpointId, hosts: Sequence[str] = ()) -> None:
        self._at(workers, hosts)
        super().create(workers, checkpoint, hosts)

    def fence(
        self, epoch: int, workers: Sequence[int], hosts: Sequence[str] = (), since: Mapping[int, int] = NOTHING
    ) -> tuple[int, ...]:
        self.machines.cancelled.clear()
        self._at(workers, hosts)
        return super().fence(epoch, workers, hosts, since)

    def fence_others(self, epoch: int, workers: Sequence[int], hosts: Sequence[str] = ()) -> tuple[int, ...]:
        self.machines.places.update(zip(workers, hosts, strict=True))
        return super().fence_others(epoch, workers, hosts)

    def discard(self, workers: Sequence[int], hosts: Sequence[str] = (), *, must: bool = True) -> tuple[int, ...]:
        self.machines.places.update(zip(workers, hosts, strict=True))
        return super().discard(workers, hosts, must=must)

    def open(self, version: int, epoch: int, layout: Layout) -> CheckpointId:
        self._at(layout.workers, layout.hosts)
        return super().open(version, epoch, layout)

    def run_step(self, record: StepRecord, layout: Layout, coming: Layout | None = None) -> StepReport:
        self._at(layout.workers, layout.hosts)
        return super().run_step(record, layout, coming)

    def pin(self, version: int, checkpoint: CheckpointId, layout: Layout) -> None:
        self._at(layout.workers, layout.hosts)
        super().pin(version, checkpoint, layout)

    @property
    def first_answer_s(self) -> float:
        return self.machines.first_answer_s

    def silent(self, hosts: Sequence[str]) -> Sequence[str]:
        return [host for host in hosts if host in self.machines.silent]

    def cancel(self) -> None:
        self.machines.cancelled.set()

    def discard_strays(self, epoch: int, strays: Sequence[Stray]) -> Sequence[Stray]:
        near = [stray for stray in strays if stray.host not in self.machines.silent]
        for stray in near:
            home = self.machines.places[stray.worker]
            self.machines.places[stray.worker] = stray.host
            tasks.discard_stray(self.work, stray.worker, stray, epoch)
            self.machines.places[stray.worker] = home
        return near


@contextmanager
def running(folder: Path, machines: Machines, *overrides: str, common_disk: bool = False) -> Iterator[Service]:
    """A service whose workers are on these machines."""
    config = settings(folder, *overrides)
    with Service(config, build(config, wrap=on_machines(machines, common_disk=common_disk))) as service:
        yield service


def homes(service: Service) -> dict[int, str]:
    """The host of each worker."""
    layout = service.layout()
    return dict(zip(layout.workers, layout.hosts, strict=True))


def on_machines(machines: Machines, *, common_disk: bool = False) -> Callable[[str, Any], Any]:
    """Return what `build` wraps the parts of a service with, so that its workers are on these machines.

    With a common disk workers read the state of workers on other machines where it is; nothing ships it here.
    """

    def wrap(name: str, part: Any) -> Any:
        if name != "runtime":
            return part
        work = Work(
            resources=HostedResources.of(part.work.resources, machines), plan=part.work.plan, run=part.work.run,
            common_disk=common_disk,
        )  # fmt: skip
        return HostedRuntime(work)

    return wrap


def events(folder: Path, name: str) -> list[dict[str, object]]:
    """Return the events of one name in the service's log."""
    lines = (folder / "data" / "coordinator.log").read_text().splitlines()
    return [found for found in map(json.loads, lines) if found["event"] == name]


def goes_on(service: Service) -> None:
    """Wait for a checkpoint that was begun from now on."""
    version = service.snapshot.version
    assert service.live_status.wait_for(lambda now: now.version > version + 1, 60), service.snapshot
