"""Read materialized views as of one step, on any thread, while further steps run.

`LeasedViews` reads the workers' chunks through their leases, piece by piece. Each piece is made into view rows,
filtered and cut down to the wanted columns before it is copied. So memory does not grow with the view. Rows come in the
order of their keys' hashes, for any number of workers. A condition on all columns by which a trace is keyed reads only
the chunks that can hold that key, which are on one worker.

`HeldViews` has tables that were read before: of workers on other hosts, whose chunks this process cannot map.

Invariant 12 of ARCHITECTURE.md holds for leased chunks; see `dbsp.store.Lease`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from dbsp.errors import ConfigError, DbspError
from dbsp.plan.plan import Plan, ViewSpec
from dbsp.store import Database, Lease
from dbsp.trace.manifest import state_bytes
from dbsp.trace.sorted_read import HASH_MAX, SortedRead
from dbsp.zset.batch import Batch, keys_of
from dbsp.zset.equality import equal_columns
from dbsp.zset.schema import Schema

WEIGHT = "weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The part of a view that is read: `columns` of the rows that equal any row of `equal` in its columns."""

    equal: Batch | None = None
    columns: tuple[str, ...] | None = None


ALL = Wanted()


class Leased(Protocol):
    """Views as of one step, which any thread may read."""

    step: int

    def holds(self, views: Sequence[str]) -> bool:
        """Return whether these views can be read here."""
        ...

    def size(self, view: str) -> int:
        """Return about how many bytes the whole view has, without reading it."""
        ...

    def read(self, view: str, wanted: Wanted = ALL) -> Iterator[pa.Table]:
        """Yield the rows in bounded tables, each row once, with the weight as the last column; at least one table.

        **Errors** `UnavailableError` once the lease is over.
        """
        ...

    def end(self) -> None:
        """End the lease."""
        ...


class LeasedViews:
    """All materialized views of a plan, read through a lease of every worker."""

    def __init__(self, plan: Plan, step: int, leases: Sequence[Lease]) -> None:
        """Read through these leases, which are on the state before `step`."""
        self.step = step
        self._plan, self._leases = plan, leases
        self._views = {view.name: view for view in plan.views if view.trace is not None}

    @staticmethod
    def grant(plan: Plan, step: int, epoch: int, databases: Iterable[Database]) -> LeasedViews:
        """Return a lease on the views of these databases, between two steps."""
        traces = {view.trace.id: view.trace for view in plan.views if view.trace is not None}
        leases: list[Lease] = []
        try:
            for database in databases:
                database.attach(epoch)
                leases.append(database.lease(epoch, step, tuple(traces.values())))
        except BaseException:
            _end(leases)
            raise
        return LeasedViews(plan, step, tuple(leases))

    def holds(self, views: Sequence[str]) -> bool:
        """Return whether these views are materialized."""
        return self._views.keys() >= set(views)

    def read(self, view: str, wanted: Wanted = ALL) -> Iterator[pa.Table]:
        """Yield the rows piece by piece; pieces without rows are left out, unless there is no other."""
        spec = self._views[view]
        assert spec.trace is not None  # noqa: S101 - only such views are held
        empty = True
        parts = _parts(spec, wanted, self._plan.circuit.error_policy)
        for part in parts:
            read = SortedRead(self._leases, spec.trace, part.first, part.last)
            while (table := read.piece(part.table)) is not None:
                if len(table):
                    empty = False
                    yield table
        if empty:
            yield parts[0].none()

    def size(self, view: str) -> int:
        """Return the stored bytes of the view's trace."""
        trace = self._views[view].trace
        assert trace is not None  # noqa: S101 - only such views are held
        return sum(state_bytes(lease.state(trace)) for lease in self._leases)

    def end(self) -> None:
        """End the leases of all workers."""
        _end(self._leases)


def _end(leases: Sequence[Lease]) -> None:
    """End the leases; one that cannot be written any more ends with its epoch."""
    for lease in leases:
        with suppress(DbspError):
            lease.end()


class HeldViews:
    """Views that were read whole when the lease was taken."""

    def __init__(self, step: int, tables: Mapping[str, pa.Table]) -> None:
        """Hold these tables, whose last column is the weight."""
        self.step = step
        self._tables = tables

    def holds(self, views: Sequence[str]) -> bool:
        """Return whether these views were read."""
        return self._tables.keys() >= set(views)

    def read(self, view: str, wanted: Wanted = ALL) -> Iterator[pa.Table]:
        """Yield the wanted rows in one table."""
        table = self._tables[view]
        if wanted.equal is not None:
            columns = [table.column(name).combine_chunks() for name in wanted.equal.schema.names]
            table = table.filter(pa.array(_among(wanted.equal, columns, len(table))))
        yield table if wanted.columns is None else table.select([*wanted.columns, WEIGHT])

    def size(self, view: str) -> int:
        """Return the bytes of the table."""
        return int(self._tables[view].nbytes)

    def end(self) -> None:
        """Do nothing: the tables are memory of this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The wanted part of a view, and the range of key hashes in which it is."""

    spec: ViewSpec
    condition: Batch | None
    columns: Sequence[str]
    error_policy: str
    first: int = 0
    last: int = HASH_MAX

    def table(self, kept: Batch) -> pa.Table:
        """Return the wanted rows of a piece of the trace, in memory of their own."""
        rows = kept
        if self.spec.shows is not None:
            rows = self.spec.shows.shown(kept, self.error_policy)
        positions = np.arange(len(rows))
        if self.condition is not None:
            columns = [rows.held_column(name) for name in self.condition.schema.names]
            positions = np.flatnonzero(_among(self.condition, columns, len(rows)))
        return rows.project(self.columns).take(positions).to_arrow(weight_column=WEIGHT)

    def none(self) -> pa.Table:
        """Return the table without rows."""
        return Batch.empty(self.spec.schema.select(self.columns)).to_arrow(weight_column=WEIGHT)


def _parts(spec: ViewSpec, wanted: Wanted, error_policy: str) -> list[_Part]:
    """Return the wanted part, in the order of its rows.

    A condition on all columns by which the trace is keyed gives one part for each of its keys, with one hash.
    """
    columns, condition = spec.schema.names if wanted.columns is None else wanted.columns, wanted.equal
    whole = _Part(spec=spec, condition=condition, columns=columns, error_policy=error_policy)
    key = spec.trace.arrangement.key if spec.trace is not None else ()
    if condition is None or not key or not set(key) <= set(condition.schema.names):
        return [whole]
    hashes = keys_of(condition, key)
    found = []
    for number in np.unique(hashes):
        rows = condition.take(np.flatnonzero(hashes == number))
        found.append(replace(whole, condition=rows, first=int(number), last=int(number)))
    return found or [whole]


def _among(condition: Batch, columns: Sequence[pa.Array], rows: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which rows equal any row of the condition in all its columns; null equals null."""
    found = np.zeros(rows, np.bool_)
    for place in range(len(condition)):
        found |= equal_columns(columns, np.arange(rows), condition.held, np.full(rows, place, np.int64))
    return found


def condition_of(view: str, schema: Schema, equal: Mapping[str, Any]) -> Batch:
    """Return the values (None: null) as a row of these columns of the view; raise `ConfigError` if they do not fit."""
    unknown = sorted(equal.keys() - set(schema.names))
    if unknown:
        raise ConfigError(f"the view has no such column: view={view} column={unknown[0]} columns={list(schema.names)}")
    some = schema.select([name for name in schema.names if name in equal])
    columns: list[pa.Array] = []
    for column in some:
        try:
            columns.append(pa.array([equal[column.name]], column.type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise ConfigError(
                f"a value does not fit its column: view={view} column={column.name} type={column.type}"
                f" value={str(equal[column.name])[:80]!r}",
                f"give a value of that type ({str(error)[:120]})",
            ) from None
    return Batch.of(some, columns)
