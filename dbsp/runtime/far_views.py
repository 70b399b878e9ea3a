"""Read views as of one step where the workers' files are on other hosts, while further steps run.

The lease is in each worker's database, under a name (`dbsp.store.NamesLeases`). A read is a sequence of short tasks on
the workers' hosts. Each task reads the next page of its worker's wanted rows. Conditions, ranges, columns and the
limit are applied there, so only wanted rows are sent. No task waits for the reader. Between two pages nothing of the
read is on a host except the lease.

    driver:  grant ──► page 1 of each worker ──► page 2 of some ──► … ──► end
    worker:  lease n    rows up to hash h1        rows up to h2           lease n is over

Rows are returned in the order of their keys' hashes, as in a read through `LeasedViews`. A key is on one worker
(invariant 2). So the driver merges pages by the hash alone, up to the smallest hash that all workers have passed.

**Cost** a job for each grant and for each round of pages. Memory of the driver: a page of each worker; pages begin small.

Source: design record 0064.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from dbsp.errors import DataError, DbspError, FencedError, InternalError, UnavailableError
from dbsp.plan.plan import Plan, ViewSpec
from dbsp.runtime import tasks
from dbsp.runtime.leases import (
    ALL,
    NO_OLD_VIEWS,
    WEIGHT,
    OldViews,
    Part,
    Wanted,
    parts_of,
    refuse_other_columns,
    traces_of,
    views_of,
)
from dbsp.runtime.work import Work
from dbsp.store import Lease, LeaseNames, NamesLeases, TraceSpec, is_lease_over, lease_over
from dbsp.trace.manifest import SpineState, StoredBatch, state_bytes
from dbsp.trace.sorted_read import WORD_MAX, Place, SortedRead
from dbsp.zset.arrow_stream import arrow_stream
from dbsp.zset.batch import Batch, Words

PAGE_BYTES_FIRST, PAGE_BYTES_MAX = 256 << 10, 8 << 20
"""Approximate bytes of rows in a worker's first page, and in its largest; each page is twice as large as the page before."""
PAGE_ROWS_MAX = 1 << 20
"""Approximate maximum of stored rows that one task reads, so that a step gets the core soon."""
_NO_HASHES = np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The size of a leased trace on a worker, and its smallest and greatest key hash."""

    stored_bytes: int
    first: int
    last: int


Extents = Mapping[int, Extent]
"""The extents of a worker's traces that are not empty, by the number of the trace."""


class FarCursor(NamedTuple):
    """The position at which a worker's read continues: the index of a part, and the place in the part (None: its start)."""

    part: int = 0
    place: Place | None = None


_BEGINNING = FarCursor()


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOrder:
    """The parameters of a read that every one of its tasks gets; `hashed` asks for the hashes of the rows' keys.

    `name` and `epoch` identify the lease. `old` is the former spec of an edited view, which is read by it until its backfill.
    `old` is None if the view is read by the spec in the plan.
    """

    name: int
    epoch: int
    view: str
    old: ViewSpec | None
    wanted: Wanted
    hashed: bool

    def spec(self, plan: Plan) -> ViewSpec:
        """Return the spec by which the view is read."""
        return tasks.materialized_view(plan, self.view) if self.old is None else self.old


class PageAsk(NamedTuple):
    """A request for a worker's next page: its start, its approximate size in bytes, and a number of rows.

    The page may end after `first` rows of positive weight (None: no such limit).
    """

    cursor: FarCursor
    bytes_max: int
    first: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FarPage:
    """Some rows of a worker as an Arrow stream, and the ascending hashes of their keys if the order asked for hashes.

    With this page the reader has all wanted rows of the worker whose hashes are smaller than `read_up_to`. `cursor` is the
    position of the next page; None after the last page.
    """

    data: bytes
    hashes: bytes
    cursor: FarCursor | None
    read_up_to: int


class Hosts(Protocol):
    """The tasks of a read on the workers' hosts."""

    @property
    def epoch(self) -> int:
        """Return the newest epoch that opened the workers."""
        ...

    def pages(self, order: PageOrder, asks: Mapping[int, PageAsk]) -> Mapping[int, FarPage]:
        """Return the next page of each of these workers."""
        ...

    def end(self, name: int) -> None:
        """End a lease on all workers, now or later; ignore errors, because the next grant ends the lease too."""
        ...


# ---- on a worker's host


def named_leases(work: Work, worker: int) -> NamesLeases:
    """Return the worker's database, which keeps leases for readers on other hosts.

    **Errors** `UnavailableError` if it cannot be opened: the worker has left this host, or its host has lost its executor.
    """
    try:
        database = work.resources.database(worker)
    except DataError as error:
        raise UnavailableError(
            f"a worker's database is not here: worker={worker}: {error.message}", error.hint
        ) from error
    if not isinstance(database, NamesLeases):
        raise InternalError(f"a database that keeps no named leases is read from another host: worker={worker}")
    return database


def grant(work: Work, worker: int, epoch: int, names: LeaseNames, step: int, old: OldViews) -> Extents:
    """Grant the newest of these leases on all views before `step`, end the leases that are over, and return the extents."""
    return extents(named_leases(work, worker).grant_named(epoch, names, step, traces_of(work.plan, old)))


def end(work: Work, worker: int, epoch: int, names: LeaseNames) -> None:
    """End the leases that are over."""
    named_leases(work, worker).end_named(epoch, names)


def page(work: Work, worker: int, order: PageOrder, asks: Mapping[int, PageAsk]) -> FarPage:
    """Return a worker's next page, read through a lease that an earlier process was granted."""
    traces = (_trace(order.spec(work.plan)),)
    lease = named_leases(work, worker).named_lease(order.epoch, order.name, traces)
    try:
        return read_page(work.plan, lease, order, asks[worker])
    finally:
        lease.end()


def extents(states: Mapping[int, SpineState]) -> Extents:
    """Return the extents of the traces that have chunks."""
    found = {}
    for trace, state in states.items():
        runs = [run for entry in state.entries for run in _runs(entry) if len(run)]
        if runs:
            first, last = min(int(run.first[0]) for run in runs), max(int(run.last[-1]) for run in runs)
            found[trace] = Extent(stored_bytes=state_bytes(state), first=first, last=last)
    return found


def _runs(entry: Any) -> list[StoredBatch]:
    """Return the runs of an entry of a manifest: the run itself, or the runs that a merge reads."""
    return [entry] if isinstance(entry, StoredBatch) else [run for run, _ in entry.read()]


def read_page(plan: Plan, lease: Lease, order: PageOrder, ask: PageAsk) -> FarPage:
    """Read the next page through a lease of one worker."""
    spec = order.spec(plan)
    parts, trace = parts_of(spec, order.wanted, plan.circuit.error_policy), _trace(spec)
    filled, (number, place) = _Filled(order.hashed), ask.cursor
    while number < len(parts):
        read = SortedRead((lease,), trace, parts[number].span, place)
        while read.piece(filled.taker(parts[number])) is not None:
            if ask.first is not None and filled.positive >= ask.first:
                return filled.page(parts[0], None, read.read_up_to)
            if filled.bytes >= ask.bytes_max or filled.rows_read >= PAGE_ROWS_MAX:
                return filled.page(parts[0], FarCursor(number, read.place), read.read_up_to)
        number, place = number + 1, None
    return filled.page(parts[0], None, WORD_MAX)


@dataclass(slots=True)
class _Filled:
    """The rows of a page that is being read."""

    hashed: bool
    tables: list[pa.Table] = field(default_factory=list)
    hashes: list[Words] = field(default_factory=list)
    bytes: int = 0
    rows_read: int = 0
    positive: int = 0

    def taker(self, part: Part) -> Callable[[Batch], bool]:
        """Return the function that takes the wanted rows of a piece."""

        def take(kept: Batch) -> bool:
            table, hashes = part.hashed(kept) if self.hashed else (part.table(kept), _NO_HASHES)
            weights = table.column(table.num_columns - 1).to_numpy()
            self.rows_read += len(kept)
            self.positive += int(weights[weights > 0].sum())
            self.bytes += table.nbytes
            if len(table):
                self.tables.append(table)
                self.hashes.append(hashes)
            return True

        return take

    def page(self, part: Part, cursor: FarCursor | None, read_up_to: int) -> FarPage:
        """Return the page."""
        table = pa.concat_tables(self.tables or [part.none()])
        hashes = np.concatenate([_NO_HASHES, *self.hashes]).tobytes()
        return FarPage(data=arrow_stream(table), hashes=hashes, cursor=cursor, read_up_to=read_up_to)


# ---- in the driver


@dataclass(slots=True)
class _Side:
    """A worker's part of a read: the received rows that were not returned yet, and the cursor of its next page.

    `cursor` is None after the last page.
    """

    bytes_max: int
    cursor: FarCursor | None = _BEGINNING
    table: pa.Table | None = None
    hashes: Words = field(default_factory=lambda: _NO_HASHES)
    read_up_to: int = 0
    left: int | None = None

    def came(self, page: FarPage) -> None:
        """Take the next page."""
        self.table = pa.ipc.open_stream(page.data).read_all()
        self.hashes = np.frombuffer(page.hashes, np.uint64)
        self.cursor, self.read_up_to = page.cursor, page.read_up_to
        self.bytes_max = min(2 * self.bytes_max, PAGE_BYTES_MAX)
        if self.left is not None:
            weights = self.table.column(WEIGHT).to_numpy()
            self.left -= int(weights[weights > 0].sum())

    def taken(self, last: int | None) -> tuple[pa.Table, Words]:
        """Remove and return the rows up to the hash `last`, with their hashes; None: all rows, for a read without hashes."""
        table = self.table
        assert table is not None  # noqa: S101 - a side is read before
        count = len(table) if last is None else int(self.hashes.searchsorted(np.uint64(last), "right"))
        found = table.slice(0, count), self.hashes[:count]
        self.table, self.hashes = table.slice(count), self.hashes[count:]
        return found

    @property
    def empty(self) -> bool:
        """Return whether all received rows were returned to the reader."""
        return self.table is None or not len(self.table)


class FarViews:
    """All materialized views of a plan as of one step, on workers of other hosts; see `dbsp.runtime.leases.Leased`."""

    def __init__(
        self,
        plan: Plan,
        step: int,
        order: tuple[int, int],
        found: Mapping[int, Extents],
        hosts: Hosts,
        old: OldViews = NO_OLD_VIEWS,
    ) -> None:
        """Read through the lease `order` (its name and epoch), which found these traces on the workers."""
        self.step = step
        self._plan, self._found, self._hosts = plan, found, hosts
        self._name, self._epoch = order
        self._views, self._old, self._over = views_of(plan, old), old, False

    def holds(self, views: Sequence[str]) -> bool:
        """Return whether these views are materialized."""
        return self._views.keys() >= set(views)

    def spec(self, view: str) -> ViewSpec:
        """Return the spec by which the view is read; before the backfill of an edited view, its former spec."""
        return self._views[view]

    def size(self, view: str) -> int:
        """Return the stored bytes of the view's trace."""
        trace = _trace(self._views[view])
        return sum(found[trace.id].stored_bytes for found in self._found.values() if trace.id in found)

    def read(self, view: str, wanted: Wanted = ALL) -> Iterator[pa.Table]:
        """Yield the wanted rows page by page, read in tasks on the workers' hosts; at least one table."""
        spec = self._views[view]
        refuse_other_columns(spec, wanted)
        self._refuse_over()
        parts = parts_of(spec, wanted, self._plan.circuit.error_policy)
        sides = {worker: _Side(PAGE_BYTES_FIRST, left=wanted.first) for worker in self._workers(_trace(spec), parts)}
        order = PageOrder(
            name=self._name, epoch=self._epoch, view=view, old=self._old.get(view), wanted=wanted,
            hashed=len(sides) > 1,
        )  # fmt: skip
        empty = True
        while any(side.cursor is not None or not side.empty for side in sides.values()):
            self._fetch(order, sides)
            last = min((side.read_up_to for side in sides.values() if side.cursor is not None), default=WORD_MAX)
            table = _merged([side.taken(last if order.hashed else None) for side in sides.values()])
            if len(table):
                empty = False
                yield table
        if empty:
            yield parts[0].none()

    def _workers(self, trace: TraceSpec, parts: Sequence[Part]) -> list[int]:
        """Return the workers that may have rows of these parts."""
        spans = [part.span for part in parts]
        return [
            worker
            for worker, found in self._found.items()
            if (extent := found.get(trace.id)) is not None
            and any(span.first_hash <= extent.last and extent.first <= span.last_hash for span in spans)
        ]

    def _fetch(self, order: PageOrder, sides: Mapping[int, _Side]) -> None:
        """Fetch the next page of each worker whose received rows were all returned.

        **Errors** `UnavailableError` once the lease is over, or a host does not answer.
        """
        asks = {
            worker: PageAsk(side.cursor, side.bytes_max, side.left)
            for worker, side in sides.items()
            if side.empty and side.cursor is not None
        }
        if not asks:
            return
        self._refuse_over()
        try:
            found = self._hosts.pages(order, asks)
        except DbspError as error:
            self._refuse_over()
            if isinstance(error, UnavailableError | FencedError) and not is_lease_over(error):
                raise lease_over(error.message) from error
            raise
        for worker, each in found.items():
            sides[worker].came(each)

    def _refuse_over(self) -> None:
        """Refuse a read after the end of the lease."""
        if self._over:
            raise lease_over("the lease has ended")
        if self._hosts.epoch != self._epoch:
            raise lease_over("the pipeline rolled back, or the workers changed")

    def end(self) -> None:
        """End the lease, without waiting for the workers."""
        if not self._over:
            self._over = True
            self._hosts.end(self._name)


def _trace(spec: ViewSpec) -> TraceSpec:
    """Return the trace of a view that can be read."""
    assert spec.trace is not None  # noqa: S101 - only such views are held
    return spec.trace


def _merged(parts: Sequence[tuple[pa.Table, Words]]) -> pa.Table:
    """Return the rows of several workers in the order of their hashes; no hash is on two workers."""
    filled = sorted(((table, hashes) for table, hashes in parts if len(table)), key=lambda each: tuple(each[1][:1]))
    if not filled:
        return parts[0][0]
    table = pa.concat_tables([table for table, _ in filled])
    hashes = np.concatenate([hashes for _, hashes in filled])
    if bool(np.all(hashes[:-1] <= hashes[1:])):
        return table
    return table.take(pa.array(np.argsort(hashes, kind="stable")))
