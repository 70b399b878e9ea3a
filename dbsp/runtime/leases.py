"""Read materialized views as of one step, on any thread, while further steps run.

`LeasedViews` reads the workers' chunks through their leases, piece by piece. Each piece is made into view rows,
filtered and reduced to the wanted columns before it is copied. So memory does not grow with the view. Rows are returned
in the order of their keys' hashes, for any number of workers. A condition on all key columns of a trace reads only the
chunks that can contain the key, which are on one worker. Where a trace is ordered within its keys, a range of the first
ordering column reads only the chunks that can contain the range. Other ranges read all chunks and filter the rows.

Where the chunks are on other hosts, `dbsp.runtime.far_views` reads the same parts in tasks there.

Invariant 12 of ARCHITECTURE.md holds for leased chunks; see `dbsp.store.Lease`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from dbsp.errors import ConfigError, DbspError, UnavailableError
from dbsp.operators.operator import AsKept
from dbsp.plan.plan import Plan, ViewSpec
from dbsp.runtime.ranges import CODE_MAX, ColumnRange, in_all
from dbsp.store import Database, Lease, TraceSpec
from dbsp.trace.manifest import state_bytes
from dbsp.trace.sorted_read import WHOLE, SortedRead, Span
from dbsp.zset.arrays import Positions
from dbsp.zset.batch import Batch, Words, keys_of
from dbsp.zset.equality import equal_columns
from dbsp.zset.order import order_codes
from dbsp.zset.schema import OrderBy, Schema

WEIGHT = "weight"
OldViews: TypeAlias = Mapping[str, ViewSpec]
NO_OLD_VIEWS: OldViews = MappingProxyType({})
_HASH_OF_NONE = 0
"""The key hash of every row of a trace whose key has no columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The part of a view that is read: `columns` of the rows in all `ranges` that equal any row of `equal` in its columns.

    With `first`, the read may stop after that many rows, counted by their positive weights.
    """

    equal: Batch | None = None
    columns: tuple[str, ...] | None = None
    ranges: tuple[ColumnRange, ...] = ()
    first: int | None = None

    @property
    def all_rows(self) -> bool:
        """Return whether no condition leaves a row out."""
        return self.equal is None and not self.ranges


ALL = Wanted()


class Leased(Protocol):
    """Views as of one step, which any thread may read."""

    step: int

    def holds(self, views: Sequence[str]) -> bool:
        """Return whether these views can be read here."""
        ...

    def spec(self, view: str) -> ViewSpec | None:
        """Return the spec by which the view is read here; None if it is the spec in the plan."""
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


def at_once() -> None:
    """Return at once: the default of `between_pieces`, which does not wait."""


def views_of(plan: Plan, old: OldViews) -> dict[str, ViewSpec]:
    """Return the views that can be read, by name; those in `old` are read from their old traces."""
    return {view.name: view for view in plan.views if view.trace is not None} | dict(old)


def traces_of(plan: Plan, old: OldViews) -> tuple[TraceSpec, ...]:
    """Return the traces that are leased, each once: those of all views, and of those in `old`."""
    found = {view.trace.id: view.trace for view in (*plan.views, *old.values()) if view.trace is not None}
    return tuple(found.values())


class LeasedViews:
    """All materialized views of a plan, read through a lease of every worker."""

    def __init__(
        self,
        plan: Plan,
        step: int,
        leases: Sequence[Lease],
        old: OldViews = NO_OLD_VIEWS,
        between_pieces: Callable[[], None] = at_once,
    ) -> None:
        """Read through these leases, which are on the state before `step`; the views `old` are read from their old traces.

        `between_pieces` is called after each piece of a whole trace, and may wait for a moment.
        """
        self.step, self._between_pieces = step, between_pieces
        self._plan, self._leases = plan, leases
        self._views = views_of(plan, old)

    @staticmethod
    def grant(
        plan: Plan,
        step: int,
        epoch: int,
        databases: Iterable[Database],
        old: OldViews = NO_OLD_VIEWS,
        between_pieces: Callable[[], None] = at_once,
    ) -> LeasedViews:
        """Return a lease on the views of these databases, between two steps."""
        traces = traces_of(plan, old)
        leases: list[Lease] = []
        try:
            for database in databases:
                database.attach(epoch)
                leases.append(database.lease(epoch, step, traces))
        except BaseException:
            _end(leases)
            raise
        return LeasedViews(plan, step, tuple(leases), old, between_pieces)

    def holds(self, views: Sequence[str]) -> bool:
        """Return whether these views are materialized."""
        return self._views.keys() >= set(views)

    def spec(self, view: str) -> ViewSpec:
        """Return the spec by which the view is read; before the backfill of an edited view, its former spec."""
        return self._views[view]

    def read(self, view: str, wanted: Wanted = ALL) -> Iterator[pa.Table]:
        """Yield the rows piece by piece; skip pieces without rows, but yield at least one table."""
        spec = self._views[view]
        refuse_other_columns(spec, wanted)
        assert spec.trace is not None  # noqa: S101 - only such views are held
        empty = True
        parts = parts_of(spec, wanted, self._plan.circuit.error_policy)
        for part in parts:
            read = SortedRead(self._leases, spec.trace, part.span)
            while (table := read.piece(part.table)) is not None:
                if len(table):
                    empty = False
                    yield table
                if part.span is WHOLE:  # a look-up reads a piece or two
                    self._between_pieces()
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
    """End the leases; ignore errors, because a lease whose database cannot be written any more ends with its epoch."""
    for lease in leases:
        with suppress(DbspError):
            lease.end()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The wanted part of a view, and the span of sort words in which it is."""

    spec: ViewSpec
    condition: Batch | None
    ranges: Sequence[ColumnRange]
    columns: Sequence[str]
    error_policy: str
    span: Span = WHOLE

    def table(self, kept: Batch) -> pa.Table:
        """Return the wanted rows of a piece of the trace, copied, because the piece's arrays become invalid."""
        return self._wanted(self._rows(kept))[0]

    def hashed(self, kept: Batch) -> tuple[pa.Table, Words]:
        """Return the wanted rows of a piece of the trace, and the hash of each one's key."""
        rows = self._rows(kept)
        table, places = self._wanted(rows)
        assert self.spec.trace is not None  # noqa: S101 - only such views are read
        hashes = keys_of(rows, self.spec.trace.arrangement.key) if rows.key_hash is None else rows.key_hash
        return table, hashes.take(places)

    def _rows(self, kept: Batch) -> Batch:
        """Return the rows of the view that follow from a piece of its trace."""
        return kept if self.spec.shows is None else self.spec.shows.shown(kept, self.error_policy)

    def _wanted(self, rows: Batch) -> tuple[pa.Table, Positions]:
        """Return the wanted rows among `rows`, and their places in `rows`."""
        among = np.ones(len(rows), np.bool_)
        if self.condition is not None:
            columns = [rows.held_column(name) for name in self.condition.schema.names]
            among = rows_among(self.condition, columns, len(rows))
        if self.ranges:
            among &= in_all(self.ranges, [rows.held_column(each.column) for each in self.ranges], len(rows))
        places = np.flatnonzero(among)
        return rows.project(self.columns).take(places).to_arrow(weight_column=WEIGHT), places

    def none(self) -> pa.Table:
        """Return the table without rows."""
        return Batch.empty(self.spec.schema.select(self.columns)).to_arrow(weight_column=WEIGHT)


def parts_of(spec: ViewSpec, wanted: Wanted, error_policy: str) -> list[Part]:
    """Return the parts that a read consists of, in the order of their rows: the whole trace, or one part per wanted key.

    A condition on all key columns of the trace gives one part for each key that it names, and each part has one key hash.
    """
    columns, condition = spec.schema.names if wanted.columns is None else wanted.columns, wanted.equal
    whole = Part(spec=spec, condition=condition, ranges=wanted.ranges, columns=columns, error_policy=error_policy)
    if not looked_up(spec, wanted):
        return [whole]
    if condition is None:
        return [replace(whole, span=_span(spec, wanted, None, _HASH_OF_NONE))]
    assert spec.trace is not None  # noqa: S101 - it has a key or an order
    key = spec.trace.arrangement.key
    hashes = keys_of(condition, key)
    found = []
    for number in np.unique(hashes):
        rows = condition.take(np.flatnonzero(hashes == number))
        found.append(replace(whole, condition=rows, span=_span(spec, wanted, rows, int(number))))
    return found or [whole]


def looked_up(spec: ViewSpec, wanted: Wanted) -> tuple[str, ...]:
    """Return the columns by which the wanted rows are looked up; none if all rows are read and filtered."""
    if spec.trace is None:
        return ()
    key, equal = spec.trace.arrangement.key, () if wanted.equal is None else wanted.equal.schema.names
    if not set(key) <= set(equal):
        return ()
    by = _order(spec)
    ordered = by is not None and (by.column in equal or any(each.column == by.column for each in wanted.ranges))
    return (*key, by.column) if by is not None and ordered else key


def _order(spec: ViewSpec) -> OrderBy | None:
    """Return the order of a view's rows within a key; None if the trace has no order, or its rows are not the view's."""
    if spec.trace is None or not (spec.shows is None or isinstance(spec.shows, AsKept)):
        return None
    order = spec.trace.arrangement.order
    return order[0] if order else None


def _span(spec: ViewSpec, wanted: Wanted, equal: Batch | None, key_hash: int) -> Span:
    """Return the span of sort words of the wanted rows of one key hash; `equal` has the condition's rows for this hash."""
    by = _order(spec)
    first, last = 0, CODE_MAX
    if by is not None:
        for each in wanted.ranges:
            if each.column == by.column:
                low, high = each.codes(by)
                first, last = max(first, low), min(last, high)
        if equal is not None and by.column in equal.schema.names:
            codes = order_codes(equal.held_column(by.column), by)
            first, last = max(first, int(codes.min())), min(last, int(codes.max()))
    return Span(key_hash, first, key_hash, last)


def refuse_other_columns(spec: ViewSpec, wanted: Wanted) -> None:
    """Raise `UnavailableError` if a read names columns that the view does not have: it was edited since the read began."""
    types = {column.name: column.type for column in spec.schema}
    asked = dict.fromkeys(wanted.columns or ()) | {each.column: None for each in wanted.ranges}
    equal = {} if wanted.equal is None else {column.name: column.type for column in wanted.equal.schema}
    if not asked.keys() <= types.keys() or any(types.get(name) != type_ for name, type_ in equal.items()):
        raise UnavailableError(f"the view was edited while the read began: view={spec.name}", "read it again")


def rows_among(condition: Batch, columns: Sequence[pa.Array], rows: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return the mask of the rows that equal any row of the condition in all its columns; null equals null."""
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
