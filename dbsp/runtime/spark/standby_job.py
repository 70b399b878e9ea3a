"""Let standbys on other hosts follow through Spark: small jobs that offer and settle, then one shuffle for each piece.

    ground RDD of the workers ── next chunks for each standby ── partitionBy ── stored on the standby's host ── `PieceStored`

Each worker sends every standby one block, which is empty if the standby belongs to another worker. Spark may run a task twice:
chunks never change, and storing a chunk again does nothing. A piece is bounded in bytes, so that steps get their cores back soon.

Source: design record 0056. `dbsp.runtime.standbys` decides what is sent.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from dbsp.errors import DbspError, InternalError, UnavailableError
from dbsp.runtime import standbys
from dbsp.runtime.spark.failures import TaskFailure, failure_from, failure_of, is_failure, successes, worst
from dbsp.runtime.spark.placement import drain, refuse_elsewhere, seated
from dbsp.runtime.spark.shared import PackedWork, unpack
from dbsp.runtime.spark.step_job import slot
from dbsp.runtime.standbys import Lag, PieceStored, StandbyRoute, follow
from dbsp.runtime.tasks import PIECE_BYTES
from dbsp.store import VersionInfo

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.core.rdd import RDD

    from dbsp.runtime.spark.jobs import JobThread

Record = tuple[int, bytes]
_NOTHING = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceTask:
    """A piece on each route: what the standbys have, and the version that the workers read."""

    work: Broadcast[PackedWork]
    version: int
    epoch: int
    routes: tuple[StandbyRoute, ...]
    settled: Mapping[StandbyRoute, Any]
    bytes_max: int

    @property
    def sources(self) -> tuple[tuple[int, str], ...]:
        """Return the workers that send, with their hosts."""
        return tuple(sorted({(route.worker, route.home) for route in self.routes}))


def piece_rdd(ground: RDD[int], task: PieceTask) -> RDD[tuple[StandbyRoute, PieceStored] | TaskFailure]:
    """Return the job of a piece, not yet run; `ground` has one partition for each of the task's sources, on its host."""
    sent: RDD[Record] = ground.mapPartitionsWithIndex(partial(send, task))
    arrived = sent.partitionBy(len(task.routes), slot)
    hosts = [route.host for route in task.routes]
    return seated(arrived, hosts, len(task.sources)).mapPartitionsWithIndex(partial(receive, task))


def send(task: PieceTask, index: int, nothing: Iterable[int]) -> Iterator[Record]:
    """Yield one block for each route; runs on a worker's host. A failure is sent on every route."""
    drain(nothing)
    (worker, home), work = task.sources[index], unpack(task.work.value)
    refuse_elsewhere(home, worker)
    mine = [route for route in task.routes if route.worker == worker]
    share = max(1, task.bytes_max // len(mine))
    try:
        for place, route in enumerate(task.routes):
            if route.worker == worker:
                found = standbys.piece(work, worker, task.version, task.settled[route], share)
                yield place, pickle.dumps(found)
            else:
                yield place, _NOTHING
    except DbspError as error:
        yield from enumerate([failure_of(error, worker).to_bytes()] * len(task.routes))


def receive(
    task: PieceTask, index: int, records: Iterable[Record]
) -> Iterator[tuple[StandbyRoute, PieceStored] | TaskFailure]:
    """Store the chunks that arrived on a route; runs on the standby's host."""
    blocks = [block for _, block in records if block]
    route, work = task.routes[index], unpack(task.work.value)
    refuse_elsewhere(route.host, route.worker)
    failed = [failure_from(block) for block in blocks if is_failure(block)]
    if failed:
        yield worst(failed)
        return
    try:
        for block in blocks:
            shipment = pickle.loads(block)  # noqa: S301  (made by a task of this project's driver)
            yield route, standbys.take(work, route.worker, task.epoch, shipment)
    except DbspError as error:
        yield failure_of(error, route.worker)


class RunsAt(Protocol):
    """A callable that runs one function for each worker on a host, in a thread for jobs, and returns the results by worker."""

    def __call__(
        self,
        what: str,
        workers: tuple[int, ...],
        hosts: tuple[str, ...],
        function: Callable[..., Any],
        arguments: Any,
        jobs: JobThread | None = None,
    ) -> dict[int, Any]:
        """Run the job."""
        ...


@dataclass(slots=True)
class SparkStandbys:
    """The standbys of a runtime's workers; implements `dbsp.runtime.standbys.FollowsStandbys` and its `Carrier`.

    `follow_standbys` uses a separate thread for jobs, made with `make_jobs` at its first use. All other calls are made between
    steps. `silent` returns the hosts among the given ones that do not answer.
    """

    work: Broadcast[PackedWork]
    control: RunsAt
    ground: Callable[[tuple[str, ...]], RDD[int]]
    make_jobs: Callable[[str], JobThread]
    silent: Callable[[Sequence[str]], Sequence[str]]
    await_hosts: Callable[[Sequence[int], Sequence[str]], None]
    _jobs: JobThread | None = None

    def follow_standbys(
        self,
        version: int,
        epoch: int,
        routes: Sequence[StandbyRoute],
        on_lag: Callable[[Lag], None],
        ended: Callable[[], bool],
    ) -> None:
        """Let the standbys follow until all hold the version, in small jobs, while steps run."""
        away = self.silent(sorted({host for route in routes for host in (route.home, route.host)}))
        if away:  # otherwise Spark would wait for their executors for a long time
            raise UnavailableError(f"hosts of standbys do not answer: hosts={', '.join(away)}")
        if self._jobs is None:
            self._jobs = self.make_jobs("standbys")
        follow(self, version, epoch, routes, on_lag, ended)

    def offers(self, routes: Sequence[StandbyRoute], version: int) -> Mapping[int, Any]:
        """Return the offer of each worker, in one job."""
        homes = dict(sorted((route.worker, route.home) for route in routes))
        hosts = tuple(homes.values())
        return self.control("offer to standbys", tuple(homes), hosts, standbys.offer, (version,), self._jobs)

    def settle(
        self, routes: Sequence[StandbyRoute], offers: Mapping[int, Any], epoch: int
    ) -> Mapping[StandbyRoute, Any]:
        """Return the state of each standby, in one job for the first standby of each worker, one for the second, and so on."""
        found = dict[StandbyRoute, Any]()
        for group in in_turns([(route.worker, route.host) for route in routes]):
            answers = self._at("settle standbys", group, standbys.settle, (dict(offers), epoch), self._jobs)
            found |= {route: answers[place] for route in routes if (place := (route.worker, route.host)) in answers}
        return found

    def pieces(
        self, settled: Mapping[StandbyRoute, Any], version: int, epoch: int
    ) -> Mapping[StandbyRoute, PieceStored]:
        """Carry one piece on each route, in one job."""
        task = PieceTask(
            work=self.work, version=version, epoch=epoch, routes=tuple(sorted(settled)), settled=settled,
            bytes_max=PIECE_BYTES,
        )  # fmt: skip
        if self._jobs is None:
            raise InternalError("a piece for a standby is sent before it was offered")
        ground = self.ground(tuple(home for _, home in task.sources))
        found = self._jobs.run("carry state to standbys", lambda: piece_rdd(ground, task).collect())
        return dict(successes(found, tuple))

    def standby_versions(self, places: Sequence[tuple[int, str]]) -> Mapping[tuple[int, str], tuple[VersionInfo, ...]]:
        """Return the versions that are whole in the standbys at these places."""
        self._await(places)
        found = dict[tuple[int, str], tuple[VersionInfo, ...]]()
        for group in in_turns(places):
            found |= self._at("ask standbys", group, standbys.versions, ())
        return found

    def take_over(
        self, epoch: int, places: Sequence[tuple[int, str]], since: Mapping[int, int], wanted: VersionInfo
    ) -> tuple[int, ...]:
        """Let standbys become the databases of workers that moved to their hosts; return the workers that took over."""
        self._await(places)
        found = self._at("let standbys take over", places, standbys.take_over, (epoch, dict(since), wanted))
        return tuple(worker for (worker, _), taken in found.items() if taken)

    def discard_standbys(self, epoch: int, places: Sequence[tuple[int, str]]) -> Sequence[tuple[int, str]]:
        """Delete the standbys on hosts that answer; return the places of the deleted standbys."""
        away = set(self.silent(sorted({host for _, host in places})))
        near = [place for place in places if place[1] not in away]
        for group in in_turns(near):
            self._at("discard standbys", group, standbys.discard, (epoch,), self._jobs)
        return near

    def cancel(self) -> None:
        """Cancel a running job of `follow_standbys`, which then raises an `UnavailableError`."""
        if self._jobs is not None:
            self._jobs.cancel()

    def close(self) -> None:
        """End the thread of the jobs."""
        if self._jobs is not None:
            self._jobs.close()

    def _await(self, places: Sequence[tuple[int, str]]) -> None:
        self.await_hosts([worker for worker, _ in places], [host for _, host in places])

    def _at(
        self,
        what: str,
        places: Sequence[tuple[int, str]],
        function: Callable[..., Any],
        arguments: Any,
        jobs: JobThread | None = None,
    ) -> dict[tuple[int, str], Any]:
        """Run a function at each place, a pair of worker and host; no worker may repeat. Return the results by place."""
        hosts = dict(places)
        found = self.control(what, tuple(hosts), tuple(hosts.values()), function, arguments, jobs)
        return {(worker, hosts[worker]): answer for worker, answer in found.items()}


def in_turns(places: Sequence[tuple[int, str]]) -> list[list[tuple[int, str]]]:
    """Return the places, pairs of a worker and a host, in groups that have each worker at most once.

    >>> in_turns([(0, "b"), (0, "c"), (1, "c")])
    [[(0, 'b'), (1, 'c')], [(0, 'c')]]
    """
    groups = list[list[tuple[int, str]]]()
    for place in sorted(places):
        turn = sum(place[0] == worker for group in groups for worker, _ in group)
        if turn == len(groups):
            groups.append([])
        groups[turn].append(place)
    return groups
