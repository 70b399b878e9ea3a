"""Keep standbys on other hosts up to date: the routes of their data, the tasks at both ends, and the loop of the driver.

A standby follows when it copies the chunks of each new version. A runtime carries messages between the hosts (`Carrier`), and
`follow` decides which messages. `dbsp.storage.far_standby` handles them at the standby.
Source: docs/design/0056-standbys-on-other-hosts.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from dbsp.errors import InternalError, UnavailableError
from dbsp.runtime.disks import failing_disk
from dbsp.runtime.work import Work
from dbsp.store import Shipment, VersionInfo

Numbers = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class StandbyRoute:
    """A worker on host `home`, and the host of one of its standbys."""

    worker: int
    home: str
    host: str


class StandbyState(Protocol):
    """The state of a standby before it follows: whether it has all of the offered version (`whole`), and its chunks."""

    @property
    def whole(self) -> bool:
        """Return whether the standby has the offered version."""
        ...

    @property
    def held(self) -> Numbers:
        """Return the numbers of the chunks that the standby has."""
        ...


class StandbyStore(Protocol):
    """A standby on this host, of a worker on another one."""

    def settle(self, offered: Any, epoch: int) -> StandbyState:
        """Prepare to follow to an offered version."""
        ...

    def take(self, shipment: Shipment, epoch: int) -> None:
        """Store a piece; a repeat does nothing."""
        ...

    def versions(self) -> tuple[VersionInfo, ...]:
        """Return the versions that are whole here."""
        ...

    def discard(self, epoch: int) -> None:
        """Delete the standby."""
        ...


class Offers(Protocol):
    """A database whose versions standbys on other hosts can follow."""

    def offer(self, version: int) -> Any:
        """Return a picklable description of a version, with which a standby decides which chunks it lacks."""
        ...

    def piece(self, version: int, settled: Any, bytes_max: int) -> Shipment:
        """Return the next piece of a version for a standby."""
        ...


@runtime_checkable
class KeepsStandbys(Protocol):
    """Worker resources on whose disk there may be standbys of workers on other hosts."""

    def standby(self, worker: int) -> StandbyStore:
        """Return the standby of a worker on this host."""
        ...

    def take_over(self, worker: int, epoch: int, since: int, wanted: VersionInfo) -> bool:
        """Make the worker's standby here its database, if the standby has the wanted version; return whether it did.

        Do nothing if the host has a database of the worker that was fenced in epoch `since` or later.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceStored:
    """A stored piece: its chunks, the bytes of the version that the standby still lacks, and whether it holds the version."""

    numbers: Numbers
    left_bytes: int
    whole: bool


class Carrier(Protocol):
    """A carrier of messages between a worker's host and its standbys' hosts; each runtime has one of its own."""

    def offers(self, routes: Sequence[StandbyRoute], version: int) -> Mapping[int, Any]:
        """Return the offer of each worker."""
        ...

    def settle(
        self, routes: Sequence[StandbyRoute], offers: Mapping[int, Any], epoch: int
    ) -> Mapping[StandbyRoute, Any]:
        """Return the `StandbyState` of each standby."""
        ...

    def pieces(
        self, settled: Mapping[StandbyRoute, Any], version: int, epoch: int
    ) -> Mapping[StandbyRoute, PieceStored]:
        """Carry one piece on each route."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """The number of bytes of a version that a standby lacks; None before the number is known."""

    route: StandbyRoute
    version: int
    bytes: int | None


class FollowsStandbys(Protocol):
    """The standbys of a runtime's workers. One thread at a time may let them follow, and discard them, while steps run."""

    def follow_standbys(
        self,
        version: int,
        epoch: int,
        routes: Sequence[StandbyRoute],
        on_lag: Callable[[Lag], None],
        ended: Callable[[], bool],
    ) -> None:
        """Let the standbys follow until all hold the version; call `on_lag` for each standby after each piece.

        **Errors** `UnavailableError` if a host does not answer, or when `ended` returns True.
        """
        ...

    def standby_versions(self, places: Sequence[tuple[int, str]]) -> Mapping[tuple[int, str], tuple[VersionInfo, ...]]:
        """Return the versions that are whole in the standbys at these places, which are pairs of a worker and a host."""
        ...

    def take_over(
        self, epoch: int, places: Sequence[tuple[int, str]], since: Mapping[int, int], wanted: VersionInfo
    ) -> tuple[int, ...]:
        """Let standbys become the databases of workers that moved to their hosts; return the workers that took over."""
        ...

    def discard_standbys(self, epoch: int, places: Sequence[tuple[int, str]]) -> Sequence[tuple[int, str]]:
        """Delete the standbys on hosts that answer; return the places of the deleted standbys."""
        ...


@runtime_checkable
class HasStandbys(Protocol):
    """A runtime whose workers may have standbys on other hosts."""

    @property
    def standbys(self) -> FollowsStandbys:
        """Return the standbys of the runtime's workers."""
        ...


def follow(
    carrier: Carrier,
    version: int,
    epoch: int,
    routes: Sequence[StandbyRoute],
    on_lag: Callable[[Lag], None],
    ended: Callable[[], bool],
) -> None:
    """Let the standbys on these routes follow until all hold the version. See `FollowsStandbys.follow_standbys`."""
    if not routes:
        return
    settled = dict(carrier.settle(routes, carrier.offers(routes, version), epoch))
    lacking = {route: state for route, state in settled.items() if not state.whole}
    for route in routes:
        on_lag(Lag(route=route, version=version, bytes=None if route in lacking else 0))
    while lacking:
        if ended():
            raise UnavailableError("the copying to standbys was stopped")
        for route, arrived in carrier.pieces(lacking, version, epoch).items():
            on_lag(Lag(route=route, version=version, bytes=arrived.left_bytes))
            if arrived.whole:
                del lacking[route]
            else:
                state = lacking[route]
                lacking[route] = replace(state, held=np.union1d(state.held, arrived.numbers))


# --- tasks ----------------------------------------------------------------------------------------------------------


def _store(work: Work, worker: int) -> StandbyStore:
    return _resources(work).standby(worker)


def _resources(work: Work) -> KeepsStandbys:
    if not isinstance(work.resources, KeepsStandbys):
        raise InternalError("worker resources that keep no standbys of other hosts")
    return work.resources


def _database(work: Work, worker: int) -> Offers:
    database: Any = work.resources.database(worker)
    if not hasattr(database, "offer"):
        raise InternalError(f"a database that standbys on other hosts cannot follow: worker={worker}")
    found: Offers = database
    return found


def offer(work: Work, worker: int, version: int) -> Any:
    """Return the offer of a version; runs on the worker's host."""
    return _database(work, worker).offer(version)


def settle(work: Work, worker: int, offers: Mapping[int, Any], epoch: int) -> Any:
    """Prepare a standby to follow; runs on the standby's host."""
    with failing_disk(worker):
        return _store(work, worker).settle(offers[worker], epoch)


def piece(work: Work, worker: int, version: int, settled: Any, bytes_max: int) -> Shipment:
    """Return the next piece for a standby; runs on the worker's host."""
    return _database(work, worker).piece(version, settled, bytes_max)


def take(work: Work, worker: int, epoch: int, shipment: Shipment) -> PieceStored:
    """Store a piece; runs on the standby's host."""
    return stored(_store(work, worker), worker, shipment, epoch)


def stored(store: StandbyStore, worker: int, shipment: Shipment, epoch: int) -> PieceStored:
    """Store a piece in a standby of this host."""
    with failing_disk(worker):
        store.take(shipment, epoch)
    numbers = np.array([number for number, _ in shipment.chunks], np.uint64)
    return PieceStored(numbers=numbers, left_bytes=shipment.left_bytes, whole=shipment.record is not None)


def versions(work: Work, worker: int) -> tuple[VersionInfo, ...]:
    """Return the versions that are whole in a standby; runs on the standby's host."""
    return _store(work, worker).versions()


def take_over(work: Work, worker: int, epoch: int, since: Mapping[int, int], wanted: VersionInfo) -> bool:
    """Let a standby become the worker's database; runs on the standby's host, which is the worker's now."""
    with failing_disk(worker):
        return _resources(work).take_over(worker, epoch, since[worker], wanted)


def discard(work: Work, worker: int, epoch: int) -> None:
    """Delete a standby; runs on its host."""
    with failing_disk(worker):
        _store(work, worker).discard(epoch)
