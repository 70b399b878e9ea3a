"""Transfer state between hosts for a rescale through Spark's shuffle: one job a piece, from sources to targets.

    ground RDD of the sources ── next chunks for each target ── partitionBy ── stored on the target's host ── `TransferProgress`

Each source sends every target one block; the block is empty where the pair has no transfer. The driver tracks the chunks that
each target has and requests the missing ones. Pieces are bounded in bytes, so that steps get their cores back soon. Spark may
run a task twice: chunks never change, and storing a chunk again does nothing.

Source: docs/concepts/rescale.md; design record 0031. `dbsp.runtime.transfers` says what a transfer contains and how it is used.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dbsp.errors import DbspError
from dbsp.layout import Layout
from dbsp.runtime import transfers
from dbsp.runtime.spark.failures import TaskFailure, failure_from, failure_of, is_failure, worst
from dbsp.runtime.spark.placement import drain, refuse_elsewhere, seated
from dbsp.runtime.spark.shared import PackedWork, unpack
from dbsp.runtime.spark.step_job import slot
from dbsp.runtime.transfers import Numbers, Route, TransferProgress
from dbsp.trace.redistribute import WarmReport

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.core.rdd import RDD

Record = tuple[int, bytes]
_NOTHING = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShipTask:
    """A piece of a transfer: the routes, the chunks that the targets hold already, and the version that the sources read.

    `bytes_max` bounds the bytes that one source sends in this piece, over all of its routes.
    """

    work: Broadcast[PackedWork]
    version: int
    epoch: int
    old: Layout
    new: Layout
    source_workers: tuple[int, ...]
    target_workers: tuple[int, ...]
    held: Mapping[Route, Numbers]
    bytes_max: int

    def host(self, layout: Layout, worker: int) -> str:
        """Return the host of a worker in a layout."""
        return layout.hosts[layout.workers.index(worker)]


def ship_rdd(ground: RDD[int], task: ShipTask) -> RDD[TransferProgress | TaskFailure]:
    """Return the job of a piece, not yet run; `ground` has one partition for each source worker, on its host."""
    sent: RDD[Record] = ground.mapPartitionsWithIndex(partial(send, task))
    arrived = sent.partitionBy(len(task.target_workers), slot)
    hosts = [task.host(task.new, target_worker) for target_worker in task.target_workers]
    return seated(arrived, hosts, len(task.source_workers)).mapPartitionsWithIndex(partial(receive, task))


def send(task: ShipTask, index: int, nothing: Iterable[int]) -> Iterator[Record]:
    """Yield one block for each target worker; runs on a source's host. A failure is sent to every target."""
    drain(nothing)
    source_worker, work = task.source_workers[index], unpack(task.work.value)
    refuse_elsewhere(task.host(task.old, source_worker), source_worker)
    ways = [route for route in task.held if route.source_worker == source_worker]
    try:
        for place, target_worker in enumerate(task.target_workers):
            route = Route(source_worker, target_worker)
            yield place, _block(task, work, route, len(ways)) if route in task.held else _NOTHING
    except DbspError as error:
        yield from enumerate([failure_of(error, source_worker).to_bytes()] * len(task.target_workers))


def _block(task: ShipTask, work: Any, route: Route, ways: int) -> bytes:
    """Return the next chunks for a target, pickled; the source's byte limit is shared equally among its routes."""
    share = max(1, task.bytes_max // ways)
    shipment = transfers.ship(work, route, task.version, task.old, task.new, task.held[route], share)
    return pickle.dumps((route, shipment))


def receive(task: ShipTask, index: int, records: Iterable[Record]) -> Iterator[TransferProgress | TaskFailure]:
    """Store the chunks that arrived; yield a `TransferProgress` for each, or the worst failure. Runs on a target's host."""
    blocks = [block for _, block in records if block]
    target_worker, work = task.target_workers[index], unpack(task.work.value)
    refuse_elsewhere(task.host(task.new, target_worker), target_worker)
    failed = [failure_from(block) for block in blocks if is_failure(block)]
    if failed:
        yield worst(failed)
        return
    try:
        for block in blocks:
            route, shipment = pickle.loads(block)  # noqa: S301  (made by a task of this project's driver)
            yield transfers.take(work, route, task.epoch, shipment)
    except DbspError as error:
        yield failure_of(error, target_worker)


class Shipping:
    """The driver's record of the transfer of one version from an old layout to a new one.

    **State** the chunks that each target has on each route, and the bytes that it still lacks.
    """

    def __init__(self, work: Broadcast[PackedWork], version: int, epoch: int, old: Layout, new: Layout) -> None:
        """Begin without knowing which chunks the targets hold."""
        self.epoch = epoch
        self._work, self._version, self._old, self._new = work, version, old, new
        self._held: dict[Route, Numbers] = {}
        self._asked: set[int] = set()
        self._whole: set[Route] = set()
        self._left: dict[Route, tuple[int, int]] = {}

    def routes(self, target_workers: Sequence[int]) -> list[Route]:
        """Return the routes to these targets that are not complete yet."""
        return [each for each in transfers.routes(self._old, self._new, target_workers) if each not in self._whole]

    def home(self, target_worker: int) -> str:
        """Return the host of a target in the new layout."""
        return self._new.hosts[self._new.workers.index(target_worker)]

    def unasked(self, target_workers: Sequence[int]) -> list[int]:
        """Return the targets that were not asked yet which chunks they hold."""
        return [target_worker for target_worker in target_workers if target_worker not in self._asked]

    def note_held(self, target_worker: int, held: Mapping[Route, Numbers]) -> None:
        """Record the chunks that a target holds, by route."""
        self._asked.add(target_worker)
        self._held |= held

    def piece(self, routes: Sequence[Route], bytes_max: int) -> ShipTask:
        """Return the task that carries the next piece on these routes."""
        return ShipTask(
            work=self._work, version=self._version, epoch=self.epoch, old=self._old, new=self._new,
            source_workers=tuple(sorted({route.source_worker for route in routes})),
            target_workers=tuple(sorted({route.target_worker for route in routes})),
            held={route: self._held.get(route, transfers.NOTHING_HELD) for route in routes}, bytes_max=bytes_max,
        )  # fmt: skip

    def note_arrived(self, arrived: Iterable[TransferProgress]) -> None:
        """Record what the targets stored of a piece; a complete route is not sent again."""
        for each in arrived:
            self._held[each.route] = np.union1d(self._held.get(each.route, transfers.NOTHING_HELD), each.numbers)
            self._left[each.route] = each.left_bytes, each.total_bytes
            if each.whole:
                self._whole.add(each.route)

    def progress(self, target_worker: int) -> WarmReport:
        """Return a report of the bytes that a target still lacks, at least 1.

        Copied bytes are 0, because copying begins after the transfer.
        """
        mine = [sizes for route, sizes in self._left.items() if route.target_worker == target_worker]
        left, total = (sum(sizes[at] for sizes in mine) for at in (0, 1))
        return WarmReport(copied_bytes=0, missing_bytes=max(1, left), slices_bytes=total)
