"""Send state to workers on other hosts by shard transfers: their routes, and the tasks at both ends.

Where every host has its own disk, a worker can read only the databases of its host. For a source on another host the
worker reads a shard transfer (`dbsp.storage.transfers`), which is filled before slices are taken of it. The runtime
decides how pieces are sent. Invariant 2 holds as for slices on one host, because the ranges are the same.
Source: docs/concepts/rescale.md; design record 0031.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from dbsp.errors import InternalError
from dbsp.layout import Layout
from dbsp.runtime.work import Work
from dbsp.store import CheckpointId, Database, Shipment, VersionView
from dbsp.trace.slicing import HashRange, shared_ranges

Numbers = npt.NDArray[np.uint64]
NOTHING_HELD: Numbers = np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True, order=True)
class Route:
    """The source worker and the target worker of a shard transfer; they are on different hosts."""

    source_worker: int
    target_worker: int


class Ships(Protocol):
    """A database whose versions can be sent to other hosts."""

    def ship(self, version: int, ranges: Sequence[HashRange], held: Numbers, bytes_max: int) -> Shipment:
        """Return about `bytes_max` bytes of the chunks that slices of these ranges need and that are not `held`."""
        ...


class TransferStore(Protocol):
    """The chunks of a source's versions that were sent to this host in one epoch; readers use it like the source's database."""

    def held(self) -> Numbers:
        """Return the numbers of all chunks that this host has."""
        ...

    def take(self, shipment: Shipment) -> None:
        """Store a piece; a repeat does nothing."""
        ...

    def read_version(self, version: int) -> AbstractContextManager[VersionView]:
        """Return the traces of a version; raise `UnavailableError` if this host does not have the whole version."""
        ...

    def read_cut(self, version: int, cut: CheckpointId) -> AbstractContextManager[VersionView]:
        """Raise `UnavailableError`: a cut can be read only on its own host."""
        ...


@runtime_checkable
class KeepsTransfers(Protocol):
    """Worker resources on whose disk there may be shard transfers to its workers."""

    def transfer(self, worker: int, source_worker: int, epoch: int) -> TransferStore:
        """Return the shard transfer from a source to a worker."""
        ...

    def end_transfers(self, worker: int, epoch: int) -> None:
        """Delete all shard transfers to a worker, except those of newer epochs."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferProgress:
    """A stored piece: the numbers of its chunks, and the missing and total bytes of the source's part."""

    route: Route
    numbers: Numbers
    left_bytes: int
    total_bytes: int
    whole: bool


def routes(old: Layout, new: Layout, target_workers: Sequence[int]) -> list[Route]:
    """Return the routes between hosts to these targets when the layout changes.

    >>> from dbsp.layout import initial, rescaled
    >>> two = initial(2, hosts=[("a", 1.0), ("b", 1.0)])
    >>> routes(two, rescaled(two, 3, step=1), [0, 1, 2])
    [Route(source_worker=1, target_worker=2)]
    """
    homes, aims = (dict(zip(each.workers, each.hosts, strict=True)) for each in (old, new))
    pairs = (
        Route(source_worker, target_worker)
        for source_worker in old.workers
        for target_worker in target_workers
        if homes[source_worker] != aims[target_worker]
    )
    return [
        pair for pair in pairs if shared_ranges(new.ranges_of(pair.target_worker), old.ranges_of(pair.source_worker))
    ]


def ship(work: Work, route: Route, version: int, old: Layout, new: Layout, held: Numbers, bytes_max: int) -> Shipment:
    """Return the next piece for a target; runs on the source's host."""
    database: Database | Ships = work.resources.database(route.source_worker)
    if not hasattr(database, "ship"):
        raise InternalError(f"a database that cannot go to another host: worker={route.source_worker}")
    ranges = shared_ranges(new.ranges_of(route.target_worker), old.ranges_of(route.source_worker))
    shipment: Shipment = database.ship(version, ranges, held, bytes_max)
    return shipment


def take(work: Work, route: Route, epoch: int, shipment: Shipment) -> TransferProgress:
    """Store a piece; runs on the target's host."""
    transfer_of(work, route, epoch).take(shipment)
    return TransferProgress(
        route=route, numbers=np.array([number for number, _ in shipment.chunks], np.uint64),
        left_bytes=shipment.left_bytes, total_bytes=shipment.total_bytes, whole=shipment.record is not None,
    )  # fmt: skip


def held(work: Work, target_worker: int, source_workers: Sequence[int], epoch: int) -> Mapping[Route, Numbers]:
    """Return the numbers of the chunks that the target already has, by route; runs on the target's host."""
    found = [Route(source_worker, target_worker) for source_worker in source_workers]
    return {route: transfer_of(work, route, epoch).held() for route in found}


def transfer_of(work: Work, route: Route, epoch: int) -> TransferStore:
    """Return the shard transfer on the target's host that stores the chunks from a source."""
    if not isinstance(work.resources, KeepsTransfers):
        raise InternalError(f"worker resources that take in nothing from other hosts: route={route}")
    return work.resources.transfer(route.target_worker, route.source_worker, epoch)


def end_transfers(work: Work, worker: int, epoch: int) -> None:
    """Delete a worker's shard transfers, which are not needed any more; runs on the worker's host."""
    if isinstance(work.resources, KeepsTransfers):
        work.resources.end_transfers(worker, epoch)
