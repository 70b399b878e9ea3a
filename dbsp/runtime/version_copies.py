"""Copy versions of workers' databases from their hosts into folders of this process's host, while steps run.

A copy is a standby (`dbsp.storage.far_standby`) whose host is the driver's. The workers' hosts offer a version and read its
pieces in short jobs. The driver stores the pieces, so only as much as the copies need passes through it.

    worker's host:  offer ─────────► next chunks ─► next chunks, record and values
    driver:                 settle ──► take ───────► take: the version is whole

Workers' databases are only read. A version that a worker drops meanwhile ends its copy with an `UnavailableError`.
Source: design record 0054.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from dbsp.runtime import standbys
from dbsp.runtime.standbys import PieceStored, StandbyRoute, StandbyStore
from dbsp.runtime.work import Work
from dbsp.store import Shipment, VersionInfo
from dbsp.trace.manifest import state_bytes


class RunsBesideSteps(Protocol):
    """A runner of short functions on the workers' hosts while steps run; a step may wait for a core for one function."""

    def run(
        self,
        what: str,
        workers: tuple[int, ...],
        hosts: tuple[str, ...],
        function: Callable[..., Any],
        *arguments: Any,
    ) -> Mapping[int, Any]:
        """Call `function(work, worker, *arguments)` on the host of each worker; return the results by worker.

        The function is of a module, so that it can be sent, and may run twice.
        **Errors** those of the function; `UnavailableError` for a host that does not answer.
        """
        ...


@runtime_checkable
class HasFarReads(Protocol):
    """A runtime that reads on the workers' hosts while steps run."""

    @property
    def far_reads(self) -> RunsBesideSteps:
        """Return the runner of functions on the workers' hosts."""
        ...


class CopiesHere:
    """The carrier between workers' hosts and copies on this host; implements `dbsp.runtime.standbys.Carrier`.

    `store` returns the copy of a worker. `sent_bytes` is the sum of the bytes of all received chunks.
    """

    def __init__(self, far: RunsBesideSteps, store: Callable[[int], StandbyStore], bytes_max: int) -> None:
        """Make a carrier of about `bytes_max` bytes in each job, for all workers together."""
        self._far, self._store, self._bytes_max = far, store, bytes_max
        self.sent_bytes = 0

    def offers(self, routes: Sequence[StandbyRoute], version: int) -> Mapping[int, Any]:
        """Return the offer of each worker, in one job."""
        return self._far.run("offer a version", *_places(routes), standbys.offer, version)

    def settle(
        self, routes: Sequence[StandbyRoute], offers: Mapping[int, Any], epoch: int
    ) -> Mapping[StandbyRoute, Any]:
        """Return the `StandbyState` of each copy."""
        return {route: self._store(route.worker).settle(offers[route.worker], epoch) for route in routes}

    def pieces(
        self, settled: Mapping[StandbyRoute, Any], version: int, epoch: int
    ) -> Mapping[StandbyRoute, PieceStored]:
        """Fetch the next piece of each worker in one job, and store it."""
        states = {route.worker: state for route, state in settled.items()}
        share = max(1, self._bytes_max // len(states))
        sent = self._far.run("copy a version", *_places(tuple(settled)), piece, version, states, share)
        return {route: self._stored(route.worker, sent[route.worker], epoch) for route in settled}

    def _stored(self, worker: int, shipment: Shipment, epoch: int) -> PieceStored:
        """Store a piece."""
        self.sent_bytes += sum(len(value) for _, value in shipment.chunks)
        return standbys.stored(self._store(worker), worker, shipment, epoch)


def _places(routes: Sequence[StandbyRoute]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the workers and their hosts."""
    return tuple(route.worker for route in routes), tuple(route.home for route in routes)


# ---- on a worker's host


def version_sizes(work: Work, worker: int) -> dict[VersionInfo, int]:
    """Return the versions that the worker's database holds, oldest first, each with the bytes of its chunks."""
    database: Any = work.resources.database(worker)
    found = {}
    for info in database.versions():
        with database.read_version(info.version) as view:
            found[info] = sum(state_bytes(state) for state in view.traces.values())
    return found


def piece(work: Work, worker: int, version: int, states: Mapping[int, Any], bytes_max: int) -> Shipment:
    """Return the next piece of a version for the worker's copy."""
    return standbys.piece(work, worker, version, states[worker], bytes_max)
