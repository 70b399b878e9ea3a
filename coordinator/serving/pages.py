"""Read a view as of one step in pieces, streamed to one caller, or page by page over several requests.

A page is named by a cursor, the id of its read and the number of the page. The read holds a lease, so all pages are of
one step. The same cursor gives the same page again, until the page after it was asked for. A read that nobody
continues ends with its lease. At most `reads_max` reads wait for their next page: then the oldest ends.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from dbsp.coordinator.serving.leases import ViewLeases
from dbsp.errors import ConfigError, UnavailableError
from dbsp.runtime.leases import Wanted


class ViewRead:
    """A read of a part of a view as of one step, table by table; the caller closes it."""

    def __init__(self, leases: ViewLeases, view: str, wanted: Wanted, timeout_s: float | None = None) -> None:
        """Take a lease; nothing is read yet."""
        self.view = view
        self._leases, self._shared = leases, leases.take((view,), timeout_s)
        self._tables = self._shared.leased.read(view, wanted)
        self._rest: pa.Table | None = None
        self._closed = False

    @property
    def step(self) -> int:
        """Return the step that follows the rows."""
        return self._shared.leased.step

    def next(self) -> pa.Table | None:
        """Return the next rows, at most a few chunks of them; None after the last ones."""
        rest, self._rest = self._rest, None
        return rest if rest is not None else next(self._tables, None)

    def rows(self, count: int) -> pa.Table | None:
        """Return the next `count` rows, or those that are left; None if none are left."""
        parts: list[pa.Table] = []
        while count > 0 and (table := self.next()) is not None:
            if len(table) > count:
                self._rest = table.slice(count)
            parts.append(table.slice(0, count))
            count -= len(parts[-1])
        return pa.concat_tables(parts) if parts else None

    def put_back(self, table: pa.Table) -> None:
        """Put back the rows that `next` returned last, so that it returns them again."""
        self._rest = table

    def close(self) -> None:
        """Release the lease, without waiting for a step; a second call does nothing."""
        if not self._closed:
            self._closed = True
            self._leases.leave(self._shared)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some rows of a view, the step that follows them, and the cursor of the next page (None: there is none)."""

    view: str
    step: int
    table: pa.Table
    cursor: str | None


@dataclass(slots=True)
class _Paged:
    """A read that waits for its next page, and the page before."""

    read: ViewRead
    number: int
    last: Page
    lock: threading.Lock


class Pages:
    """The paged reads of a service."""

    def __init__(self, reads_max: int) -> None:
        """Create the store without a read."""
        self._reads_max = reads_max
        self._lock = threading.Lock()
        self._reads: dict[str, _Paged] = {}

    def begin(self, open_read: Callable[[], ViewRead], rows: int) -> Page:
        """Return the first page of a new read."""
        read = open_read()
        name = secrets.token_hex(8)
        try:
            page = self._page(read, name, 1, rows)
        except BaseException:
            read.close()
            raise
        if page.cursor is not None:
            self._keep(name, _Paged(read, 1, page, threading.Lock()))
        return page

    def _keep(self, name: str, paged: _Paged) -> None:
        """Store a read for its next page; end the oldest read if there are too many."""
        with self._lock:
            self._reads[name] = paged
            gone = [self._reads.pop(old) for old in list(self._reads)[: max(0, len(self._reads) - self._reads_max)]]
        for each in gone:
            each.read.close()

    def _page(self, read: ViewRead, name: str, number: int, rows: int) -> Page:
        """Read a page; close the read after the last one."""
        table = read.rows(rows)
        if table is None:
            raise UnavailableError("a read gave no table")
        after = read.next()
        if after is None:
            read.close()
        else:
            read.put_back(after)
        cursor = None if after is None else f"{name}.{number}"
        return Page(view=read.view, step=read.step, table=table, cursor=cursor)

    def go_on(self, view: str, cursor: str, rows: int) -> Page:
        """Return the page of a cursor.

        **Errors** `ConfigError` for a text that is no cursor of this view; `UnavailableError` if its read has ended.
        """
        name, _, number = cursor.partition(".")
        if not number.isdecimal() or len(number) > 9:  # noqa: PLR2004 - more pages than anybody reads
            raise ConfigError(f"not a cursor: cursor={cursor[:40]}", "give `next` of the page before")
        with self._lock:
            paged = self._reads.get(name)
        if paged is None or paged.read.view != view:
            raise UnavailableError("the read of this cursor has ended", "read the view again from its first page")
        with paged.lock:
            if int(number) == paged.number - 1:
                return paged.last
            if int(number) != paged.number:
                raise ConfigError(f"a cursor of another page: cursor={cursor[:40]}", "give `next` of the page before")
            try:
                paged.last = self._page(paged.read, name, paged.number + 1, rows)
            except BaseException:
                self._forget(name, paged)
                raise
            paged.number += 1
            return paged.last

    def _forget(self, name: str, paged: _Paged) -> None:
        """End a read that failed."""
        with self._lock:
            self._reads.pop(name, None)
        paged.read.close()

    def close(self) -> None:
        """End all reads."""
        with self._lock:
            left, self._reads = list(self._reads.values()), {}
        for each in left:
            each.read.close()
