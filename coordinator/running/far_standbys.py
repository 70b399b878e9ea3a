"""Place the standbys on other hosts, copy published versions to them, and make them databases of workers of lost hosts.

Every published version is whole in each standby that is *kept*. A checkpoint, and the version of a rescale, is
published after the standbys have it. An opened version is copied to them at once, too, which matters after a change of
places. So whatever host is lost, a kept standby of each of its workers has the published version, if it could be placed
before.

Places are decided and noted in the ledger on the thread of the event loop, before a standby is made. A standby that is kept no
more is deleted later, when the kept ones of that worker have the published version. So the ledger knows all places, also after
a crash, and a host that answers late loses what it should not have.

Source: docs/design/0056-standbys-on-other-hosts.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from dbsp.coordinator.decisions.moved_workers import StandbyPlace
from dbsp.coordinator.running.clock import Clock
from dbsp.coordinator.running.control import Control, Ledger
from dbsp.coordinator.running.lost_hosts import SilentHosts
from dbsp.coordinator.running.notices import Notify, StandbysBehind, TookOver
from dbsp.errors import AwayError, DbspError, InternalError, UnavailableError
from dbsp.layout import Layout
from dbsp.layout import homes as homes_of
from dbsp.runtime import disks
from dbsp.runtime.runtime import RunsOnHosts, Runtime
from dbsp.runtime.standbys import FollowsStandbys, HasStandbys, Lag, StandbyRoute
from dbsp.standby_places import place_standbys
from dbsp.store import CheckpointId, VersionInfo

T = TypeVar("T")
Place = tuple[int, str]
"""A worker, and the host of one of its standbys."""

RETRY_S = 1.0
FAILURES_MAX = 3
"""A standby is given up after this many failures while all its hosts respond."""


class Beside(Protocol):
    """A function that starts another one while steps run, and returns the future of its result."""

    def __call__(self, run: Callable[[], T], /) -> Future[T]:
        """Start the function."""
        ...


def in_thread(run: Callable[[], T], /) -> Future[T]:
    """Run a function in a thread of its own, and return the future of its result."""
    future = Future[T]()

    def ran() -> None:
        try:
            result = run()
        except BaseException as error:  # noqa: BLE001 - the event loop judges it
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=ran, name="dbsp-standbys", daemon=True).start()
    return future


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyRule:
    """The number of standbys of each worker, and the zones of hosts; a host without a zone is a zone of its own."""

    per_worker: int = 0
    zones: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Following:
    """A copy of a version to standbys: the routes, the places to delete first, and the future of its end."""

    runtime: Runtime
    version: int
    epoch: int
    routes: tuple[StandbyRoute, ...]
    offered: tuple[str, ...]
    gone: tuple[Place, ...]
    ended: threading.Event


class FarStandbys:
    """The standbys of this pipeline's workers on other hosts; if the rule is none per worker, all methods do nothing."""

    def __init__(
        self, rule: StandbyRule, control: Control, hosts: SilentHosts, note: Notify, clock: Clock, beside: Beside
    ) -> None:
        """Store the parts; `beside` starts the copying."""
        self.rule = rule
        self._control, self._hosts, self._note, self._clock, self._beside = control, hosts, note, clock, beside
        self._ended = threading.Event()
        self._turn = threading.Lock()
        self._lags: dict[Place, Lag] = {}
        self._missing: dict[int, int] = {}
        self._whole: dict[Place, int] = {}
        self._deleted: set[Place] = set()
        self._unwritable: frozenset[str] = frozenset()
        self.trouble: str | None = None
        """Why the standbys cannot be updated now; None if they can. Any thread may read it."""

    @property
    def status(self) -> dict[str, Any]:
        """Return the wanted number of standbys per worker, the existing ones with their lag in bytes, and the number missing.

        A lag of None is not known yet. Any thread may ask.
        """
        lags = sorted(self._lags.copy().items())
        return {
            "per_worker": self.rule.per_worker,
            "standbys": [
                {"worker": worker, "host": host, "version": lag.version, "lag_bytes": lag.bytes}
                for (worker, host), lag in lags
            ],
            "missing": sum(self._missing.copy().values()),
            "trouble": self.trouble,
        }

    # ---- following

    def after(self, runtime: Runtime, copied: Future[T], version: int, epoch: int, layout: Layout) -> Future[T]:
        """Return a future with the result of `future`, set when the standbys have the version, too."""
        if not self.rule.per_worker:
            return copied
        following = self._begun(runtime, version, epoch, layout)

        def run() -> T:
            result = copied.result()
            self._reach(following)
            return result

        return self._beside(run)

    def reach(self, runtime: Runtime, version: int, epoch: int, layout: Layout) -> None:
        """Copy a version to the standbys now, while no step runs; stop at the first error."""
        if self.rule.per_worker:
            self.end()
            self._reach(self._begun(runtime, version, epoch, layout), patient=False)

    def opened(self, runtime: Runtime, version: int, epoch: int, layout: Layout) -> None:
        """Copy the opened version to the standbys, in a thread; the next checkpoint waits for its end."""
        if not self.rule.per_worker:
            return
        following = self._begun(runtime, version, epoch, layout)

        def run() -> None:
            try:
                self._reach(following)
            except DbspError as error:
                if not following.ended.is_set():
                    self._note(StandbysBehind(version=version, error=str(error)))

        self._beside(run)

    def end(self) -> None:
        """Stop the copying, because a new epoch begins, or the service ends."""
        self._ended.set()
        self._ended, self.trouble = threading.Event(), None

    def _begun(self, runtime: Runtime, version: int, epoch: int, layout: Layout) -> _Following:
        """Decide the places for a layout, and note them in the ledger."""
        ledger = self._control.load()
        if ledger is None:
            raise InternalError("standbys follow before there is a ledger")
        self._look_at_disks(runtime)
        routes = self._routes(ledger, layout)
        ledger = self._control.change(epoch, lambda found: with_places(found, routes, self._deleted))
        self._deleted = set()
        places = {(route.worker, route.host) for route in routes}
        self._lags = {place: lag for place, lag in self._lags.items() if place in places}
        self._missing = {
            worker: missing
            for worker in layout.workers
            if (missing := self.rule.per_worker - sum(worker == of for of, _ in places)) > 0
        }
        return _Following(
            runtime=runtime, version=version, epoch=epoch, routes=routes, offered=_offered(ledger, layout),
            gone=self._unneeded(ledger, layout), ended=self._ended,
        )  # fmt: skip

    def _routes(self, ledger: Ledger, layout: Layout) -> tuple[StandbyRoute, ...]:
        """Return the routes to the standbys of a layout's workers, on hosts that are not lost and whose disks can be written."""
        offered = ledger.offered or layout.offered
        lost = {*self._hosts.long_silent(host for host, _ in offered), *self._unwritable}
        homes = dict(zip(layout.workers, layout.hosts, strict=True))
        places = place_standbys(
            homes, [(host, weight) for host, weight in offered if host not in lost], self.rule.per_worker,
            self.rule.zones, kept(ledger),
        )  # fmt: skip
        return tuple(
            StandbyRoute(worker=worker, home=homes[worker], host=host) for worker in homes for host in places[worker]
        )

    def _unneeded(self, ledger: Ledger, layout: Layout) -> tuple[Place, ...]:
        """Return the places that are kept no more, of workers whose kept standbys have the published version.

        A worker that a rescale lets go is one of the published version's until the version of the rescale is published.
        """
        published, found = ledger.published, list[Place]()
        saved = ledger.saved.get(published)
        of_version = None if saved is None else ledger.layouts.get(saved.checkpoint.layout_version)
        needed = {*layout.workers, *(() if of_version is None else of_version.workers)}
        now = kept(ledger)
        for place in ledger.standbys:
            hosts = now.get(place.worker, ())
            safe = place.worker not in needed or (
                hosts and all(self._whole.get((place.worker, host)) == published for host in hosts)
            )
            if not place.kept and safe:
                found.append((place.worker, place.host))
        return tuple(found)

    def _reach(self, following: _Following, *, patient: bool = True) -> None:
        """Delete what is not needed any more, then follow until all standbys hold the version.

        While a host is silent, try again until it answers or counts as lost, if `patient`.
        """
        standbys = _standbys_of(following.runtime)
        hosts, failures = {host for route in following.routes for host in (route.home, route.host)}, 0
        with self._turn:
            if self._hosts.silent(following.offered):  # ask whether a silent host answers again
                self._hosts.look(following.runtime, following.offered)
            self._delete(standbys, following)
            while True:
                try:
                    standbys.follow_standbys(
                        following.version, following.epoch, following.routes, self._told, following.ended.is_set
                    )
                except UnavailableError as error:
                    self._hosts.look(following.runtime, hosts)
                    if not patient or following.ended.is_set() or self._hosts.long_silent(hosts):
                        raise
                    failures = 0 if self._hosts.silent(hosts) else failures + 1
                    if failures > FAILURES_MAX or self._finds_unwritable(following, hosts):
                        raise
                    self.trouble = str(error)
                    self._clock.wait(following.ended, RETRY_S)
                    if following.ended.is_set():
                        raise
                else:
                    break
            self.trouble = None
            self._whole |= dict.fromkeys(((route.worker, route.host) for route in following.routes), following.version)

    def note_unwritable(self, hosts: Iterable[str]) -> None:
        """Place no standby on these hosts, as their disks cannot be written, until they can."""
        self._unwritable |= frozenset(hosts)

    def _look_at_disks(self, runtime: Runtime) -> None:
        """Ask the hosts whose disks could not be written again; those that are silent stay as they are."""
        if not self._unwritable or not isinstance(runtime, RunsOnHosts):
            return
        away = frozenset(self._hosts.silent(self._unwritable))
        self._unwritable = away | frozenset(disks.unwritable(runtime, sorted(self._unwritable - away)))

    def _finds_unwritable(self, following: _Following, hosts: Collection[str]) -> bool:
        """Return whether the copying failed because a disk cannot be written; the next one then uses other places."""
        if not isinstance(following.runtime, RunsOnHosts) or self._hosts.silent(hosts):
            return False
        found = disks.unwritable(following.runtime, sorted(hosts))
        self.note_unwritable(found)
        return bool(found)

    def _delete(self, standbys: FollowsStandbys, following: _Following) -> None:
        """Delete standbys that are kept no more, on hosts that answer; the ledger forgets them at the next following."""
        if not following.gone:
            return
        try:
            self._deleted |= set(standbys.discard_standbys(following.epoch, following.gone))
        except UnavailableError as error:
            self._note(StandbysBehind(version=following.version, error=str(error)))

    def _told(self, lag: Lag) -> None:
        self._lags = {**self._lags, (lag.route.worker, lag.route.host): lag}

    # ---- taking over

    def ready(self, runtime: Runtime, lost: Collection[str], silent: Collection[str]) -> tuple[Place, ...]:
        """Return the places, on hosts that answer, whose standby has the published version of a worker of a lost host."""
        ledger = self._control.load()
        if ledger is None or not self.rule.per_worker:
            return ()
        workers = {worker for worker, host in homes_of(ledger.layouts.values()).items() if host in lost}
        return self._holding(runtime, ledger, workers, {*lost, *silent})

    def ready_for(self, runtime: Runtime, workers: Collection[int], away: Collection[str]) -> tuple[Place, ...]:
        """Return the places whose standby has the published version of one of these workers, on hosts that are not `away`.

        **Errors** `AwayError` if a worker has no such place, and a standby of it is on a silent host that is not yet
        lost.
        """
        ledger = self._control.load()
        if ledger is None or not self.rule.per_worker:
            return ()
        found = self._holding(runtime, ledger, workers, away)
        left = set(workers) - {worker for worker, _ in found}
        hosts = {host for worker, kept_on in kept(ledger).items() if worker in left for host in kept_on}
        self._hosts.look(runtime, hosts)
        if awaited := set(self._hosts.silent(hosts)).difference(self._hosts.long_silent(hosts)):
            raise AwayError(f"hosts with standbys of lost disks do not answer: hosts={', '.join(sorted(awaited))}")
        return found

    def _holding(
        self, runtime: Runtime, ledger: Ledger, workers: Collection[int], away: Collection[str]
    ) -> tuple[Place, ...]:
        places = [
            (place.worker, place.host)
            for place in ledger.standbys
            if place.worker in workers and place.host not in away
        ]
        if not places:
            return ()
        held, wanted = _standbys_of(runtime).standby_versions(places), published(ledger)
        return tuple(place for place in places if wanted in held.get(place, ()))

    def take_over(self, runtime: Runtime, ledger: Ledger | None, epoch: int, since: Mapping[int, int]) -> None:
        """Let standbys become the databases of workers that moved to their hosts; the others are made again from copies."""
        if ledger is None or not self.rule.per_worker:
            return
        homes = homes_of(ledger.layouts.values())
        known = {(place.worker, place.host) for place in ledger.standbys}
        places = [(worker, homes[worker]) for worker in sorted(since) if (worker, homes[worker]) in known]
        if not places:
            return
        taken = _standbys_of(runtime).take_over(epoch, places, since, published(ledger))
        if taken:
            self._note(TookOver(workers=list(taken), hosts=[homes[worker] for worker in taken]))


def _offered(ledger: Ledger, layout: Layout) -> tuple[str, ...]:
    return tuple(host for host, _ in ledger.offered or layout.offered)


def _standbys_of(runtime: Runtime) -> FollowsStandbys:
    if not isinstance(runtime, HasStandbys):
        raise InternalError(f"a runtime without standbys on other hosts: runtime={type(runtime).__name__}")
    return runtime.standbys


def kept(ledger: Ledger) -> dict[int, list[str]]:
    """Return the hosts of the standbys that follow, by worker."""
    found = dict[int, list[str]]()
    for place in ledger.standbys:
        if place.kept:
            found.setdefault(place.worker, []).append(place.host)
    return found


def with_places(ledger: Ledger, routes: Sequence[StandbyRoute], gone: Iterable[Place] = ()) -> Ledger:
    """Note the places of the standbys that follow from now on; others stay as places to delete, without those that are `gone`."""
    now = {(route.worker, route.host) for route in routes}
    known = {(place.worker, place.host) for place in ledger.standbys} - set(gone)
    places = (
        StandbyPlace(worker=worker, host=host, kept=(worker, host) in now) for worker, host in sorted(known | now)
    )
    return replace(ledger, standbys=tuple(places))


def published(ledger: Ledger) -> VersionInfo:
    """Return the published version of the workers; the empty version 0 before the first."""
    saved = ledger.saved.get(ledger.published)
    nothing = CheckpointId(run=ledger.run, epoch=0, step=0, layout_version=0, fingerprint=ledger.fingerprint)
    return VersionInfo(version=ledger.published, checkpoint=nothing if saved is None else saved.checkpoint)
