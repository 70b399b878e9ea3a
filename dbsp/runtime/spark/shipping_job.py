"""Carrying state between hosts for a rescale, through Spark's shuffle: a job a piece, from the givers' hosts to the takers'.

    ground RDD of the givers ── the next chunks for each taker ── partitionBy ── kept on the taker's host ── what has landed

Every giver sends each taker one block, empty where nothing goes that way. The driver knows what each taker has, and asks for the
rest; pieces are bounded, so that steps find their cores again soon. Tasks may run twice: chunks never change, and taking one
again does nothing.

Source: docs/concepts/rescale.md; design record 0031. What travels, and what becomes of it: `dbsp.runtime.visiting`.
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
from dbsp.runtime import visiting
from dbsp.runtime.spark.failures import Failure, failure_from, failure_of, is_failure, worst
from dbsp.runtime.spark.placement import drain, refuse_elsewhere, seated
from dbsp.runtime.spark.shared import PackedWork, unpack
from dbsp.runtime.spark.step_job import slot
from dbsp.runtime.visiting import Landed, Numbers, Route
from dbsp.trace.redistribute import WarmReport

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.core.rdd import RDD

Record = tuple[int, bytes]
_NOTHING = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShipTask:
    """One piece: what goes from whom to whom, of a version of the givers; `bytes_max` for each that sends."""

    work: Broadcast[PackedWork]
    version: int
    epoch: int
    old: Layout
    new: Layout
    givers: tuple[int, ...]
    takers: tuple[int, ...]
    held: Mapping[Route, Numbers]
    bytes_max: int

    def host(self, layout: Layout, worker: int) -> str:
        """Where a worker lives."""
        return layout.hosts[layout.workers.index(worker)]


def ship_rdd(ground: RDD[int], task: ShipTask) -> RDD[Landed | Failure]:
    """The job of a piece, not yet run; `ground` has a partition for each giver, at its host."""
    sent: RDD[Record] = ground.mapPartitionsWithIndex(partial(send, task))
    arrived = sent.partitionBy(len(task.takers), slot)
    hosts = [task.host(task.new, taker) for taker in task.takers]
    return seated(arrived, hosts, len(task.givers)).mapPartitionsWithIndex(partial(receive, task))


def send(task: ShipTask, index: int, nothing: Iterable[int]) -> Iterator[Record]:
    """On a giver's host: a block for each taker."""
    drain(nothing)
    giver, work = task.givers[index], unpack(task.work.value)
    refuse_elsewhere(task.host(task.old, giver), giver)
    ways = [route for route in task.held if route.giver == giver]
    try:
        for place, taker in enumerate(task.takers):
            route = Route(giver, taker)
            yield place, _block(task, work, route, len(ways)) if route in task.held else _NOTHING
    except DbspError as error:
        yield from enumerate([failure_of(error, giver).to_bytes()] * len(task.takers))


def _block(task: ShipTask, work: Any, route: Route, ways: int) -> bytes:
    """What a taker is sent next."""
    share = max(1, task.bytes_max // ways)
    shipment = visiting.ship(work, route, task.version, task.old, task.new, task.held[route], share)
    return pickle.dumps((route, shipment))


def receive(task: ShipTask, index: int, records: Iterable[Record]) -> Iterator[Landed | Failure]:
    """On a taker's host: keep what has come."""
    blocks = [block for _, block in records if block]
    taker, work = task.takers[index], unpack(task.work.value)
    refuse_elsewhere(task.host(task.new, taker), taker)
    failed = [failure_from(block) for block in blocks if is_failure(block)]
    if failed:
        yield worst(failed)
        return
    try:
        for block in blocks:
            route, shipment = pickle.loads(block)  # noqa: S301  (made by a task of this project's driver)
            yield visiting.take(work, route, task.epoch, shipment)
    except DbspError as error:
        yield failure_of(error, taker)


class Shipping:
    """One version's way to those who take slices of it; the driver's side.

    **State** which chunks each taker has, and how much it lacks.
    """

    def __init__(self, work: Broadcast[PackedWork], version: int, epoch: int, old: Layout, new: Layout) -> None:
        """Nothing is known yet of what the takers have."""
        self.epoch = epoch
        self._work, self._version, self._old, self._new = work, version, old, new
        self._held: dict[Route, Numbers] = {}
        self._asked: set[int] = set()
        self._whole: set[Route] = set()
        self._left: dict[Route, tuple[int, int]] = {}

    def routes(self, takers: Sequence[int]) -> list[Route]:
        """What is still on its way to these takers."""
        return [each for each in visiting.routes(self._old, self._new, takers) if each not in self._whole]

    def home(self, taker: int) -> str:
        """Where a taker lives."""
        return self._new.hosts[self._new.workers.index(taker)]

    def unasked(self, takers: Sequence[int]) -> list[int]:
        """Takers that were not asked yet what they have."""
        return [taker for taker in takers if taker not in self._asked]

    def note_held(self, taker: int, held: Mapping[Route, Numbers]) -> None:
        """A taker says what it has."""
        self._asked.add(taker)
        self._held |= held

    def piece(self, routes: Sequence[Route], bytes_max: int) -> ShipTask:
        """The next piece on these ways."""
        return ShipTask(
            work=self._work, version=self._version, epoch=self.epoch, old=self._old, new=self._new,
            givers=tuple(sorted({route.giver for route in routes})),
            takers=tuple(sorted({route.taker for route in routes})),
            held={route: self._held.get(route, visiting.NOTHING_HELD) for route in routes}, bytes_max=bytes_max,
        )  # fmt: skip

    def note_landed(self, landed: Iterable[Landed]) -> None:
        """A piece has come."""
        for each in landed:
            self._held[each.route] = np.union1d(self._held.get(each.route, visiting.NOTHING_HELD), each.numbers)
            self._left[each.route] = each.left_bytes, each.total_bytes
            if each.whole:
                self._whole.add(each.route)

    def progress(self, taker: int) -> WarmReport:
        """How much of what a taker needs is still to come; what it copies then is told then."""
        mine = [sizes for route, sizes in self._left.items() if route.taker == taker]
        left, total = (sum(sizes[at] for sizes in mine) for at in (0, 1))
        return WarmReport(copied_bytes=0, missing_bytes=max(1, left), slices_bytes=total)
