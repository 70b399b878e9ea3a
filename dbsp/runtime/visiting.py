"""State that goes to workers on other hosts: what must travel from whom to whom, and what both ends do with a piece of it.

Where every host has a disk of its own, a worker reads the databases of its own host alone. Of a giver elsewhere it reads a
visit (`dbsp.storage.visits`), which is filled before slices are taken of it. How pieces travel is the runtime's business.

Invariant 2 as for slices of the same host: the ranges are those. Source: docs/concepts/rescale.md; design record 0031.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from dbsp.errors import InternalError
from dbsp.layout import Layout
from dbsp.store import CheckpointId, Database, Shipment, VersionView
from dbsp.trace.slicing import HashRange, shared_ranges

if TYPE_CHECKING:
    from dbsp.runtime.tasks import Work

Numbers = npt.NDArray[np.uint64]
NOTHING_HELD: Numbers = np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True, order=True)
class Route:
    """Whose state goes to whom, on another host."""

    giver: int
    taker: int


class Ships(Protocol):
    """A database whose versions can go to other hosts."""

    def ship(self, version: int, ranges: Sequence[HashRange], held: Numbers, bytes_max: int) -> Shipment:
        """About `bytes_max` more of the chunks that slices of these ranges of a version need and are not `held`."""
        ...


class Visit(Protocol):
    """What is here of a giver's versions, in an epoch; read as the giver's database is."""

    def held(self) -> Numbers:
        """The numbers of all chunks that are here."""
        ...

    def take(self, shipment: Shipment) -> None:
        """Keep a piece; taking it again does nothing."""
        ...

    def read_version(self, version: int) -> AbstractContextManager[VersionView]:
        """The traces of a version; `UnavailableError` if not all of it is here."""
        ...

    def read_cut(self, version: int, cut: CheckpointId) -> AbstractContextManager[VersionView]:
        """Refused: a cut is seen on its own host alone."""
        ...


@runtime_checkable
class KeepsVisits(Protocol):
    """A site on whose disk there may be visits to its workers."""

    def visit(self, worker: int, giver: int, epoch: int) -> Visit:
        """That of a giver to a worker."""
        ...

    def end_visits(self, worker: int, epoch: int) -> None:
        """Delete all that there are to a worker but those of newer epochs."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """A piece that has come: which chunks, and how much of the giver's part is still missing, out of all of it."""

    route: Route
    numbers: Numbers
    left_bytes: int
    total_bytes: int
    whole: bool


def routes(old: Layout, new: Layout, takers: Sequence[int]) -> list[Route]:
    """From whom to whom, of these takers, state goes between hosts when the layout changes.

    >>> from dbsp.layout import initial, rescaled
    >>> two = initial(2, hosts=[("a", 1.0), ("b", 1.0)])
    >>> routes(two, rescaled(two, 3, step=1), [0, 1, 2])
    [Route(giver=1, taker=2)]
    """
    homes, aims = (dict(zip(each.workers, each.hosts, strict=True)) for each in (old, new))
    pairs = (Route(giver, taker) for giver in old.workers for taker in takers if homes[giver] != aims[taker])
    return [pair for pair in pairs if shared_ranges(new.ranges_of(pair.taker), old.ranges_of(pair.giver))]


def ship(work: Work, route: Route, version: int, old: Layout, new: Layout, held: Numbers, bytes_max: int) -> Shipment:
    """On the giver's host: the next piece for a taker."""
    database: Database | Ships = work.site.database(route.giver)
    if not hasattr(database, "ship"):
        raise InternalError(f"a database that cannot go to another host: worker={route.giver}")
    ranges = shared_ranges(new.ranges_of(route.taker), old.ranges_of(route.giver))
    shipment: Shipment = database.ship(version, ranges, held, bytes_max)
    return shipment


def take(work: Work, route: Route, epoch: int, shipment: Shipment) -> Landed:
    """On the taker's host: keep a piece."""
    visit_of(work, route, epoch).take(shipment)
    return Landed(
        route=route, numbers=np.array([number for number, _ in shipment.chunks], np.uint64),
        left_bytes=shipment.left_bytes, total_bytes=shipment.total_bytes, whole=shipment.record is not None,
    )  # fmt: skip


def held(work: Work, taker: int, givers: Sequence[int], epoch: int) -> Mapping[Route, Numbers]:
    """On the taker's host: what is here already."""
    found = [Route(giver, taker) for giver in givers]
    return {route: visit_of(work, route, epoch).held() for route in found}


def visit_of(work: Work, route: Route, epoch: int) -> Visit:
    """Where a taker's host keeps what comes from a giver."""
    if not isinstance(work.site, KeepsVisits):
        raise InternalError(f"a site that takes in nothing of other hosts: route={route}")
    return work.site.visit(route.taker, route.giver, epoch)


def end_visits(work: Work, worker: int, epoch: int) -> None:
    """On a worker's host: what has come for it is of no use any more."""
    if isinstance(work.site, KeepsVisits):
        work.site.end_visits(worker, epoch)
