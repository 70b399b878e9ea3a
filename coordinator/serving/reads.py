"""The interface for results: read views, and follow their changes."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pyarrow as pa

from dbsp.algebra.table import Table
from dbsp.circuit.names import DEAD_LETTERS
from dbsp.coordinator.build import Built
from dbsp.coordinator.query.statement import Unreadable, not_readable
from dbsp.coordinator.running.delta_tables import DeltaTables
from dbsp.coordinator.running.feed import Feed
from dbsp.coordinator.running.letters import CHANGED, CHANGED_ROWS
from dbsp.coordinator.serving.answers import ViewChanges, ViewRows
from dbsp.coordinator.serving.leases import ViewLeases
from dbsp.coordinator.serving.letters import DeadLetters
from dbsp.coordinator.serving.pages import Pages, ViewRead
from dbsp.coordinator.settings.config import Config
from dbsp.errors import ConfigError
from dbsp.io.formats.json_rows import decode_json
from dbsp.plan.plan import ViewSpec
from dbsp.runtime.leases import ALL, Leased, Wanted, condition_of
from dbsp.zset.batch import Batch
from dbsp.zset.schema import Schema

KEPT_VIEW_BYTES_MAX = 16 << 20


class Reads(DeadLetters):
    """The methods for readers of views and their changes."""

    def __init__(self, config: Config, built: Built | None = None) -> None:
        """Prepare the Delta tables, which start with the service."""
        super().__init__(config, built)
        self._kept_views: dict[str, ViewRows] = {}
        self._flights: dict[tuple[str, int], Future[ViewRows]] = {}
        self._lock = threading.Lock()
        section = config.query
        self.leases = ViewLeases(
            self._loop, self.built.plan, self._result, lease_s=section.lease_s, leases_max=section.leases_max
        )  # fmt: skip
        self.pages = Pages(max(1, section.leases_max // 2))
        self._feed = Feed(config, self.built.plan, self.built.letters.log, self.built.began)
        self.delta = DeltaTables(config, self.built.plan, self, self._feed, self._observers.noted)

    def views(self) -> tuple[str, ...]:
        """Return the names of the views that can be read."""
        return tuple(view.name for view in self.built.plan.views if view.trace is not None)

    def read_view(
        self,
        view: str,
        timeout_s: float | None = None,
        *,
        key: Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
    ) -> ViewRows:
        """Return a view as of the last finished step: all rows, or those whose columns equal the values of `key`.

        **Cost** steps go on meanwhile. A `key` that has all columns by which the view is distributed reads a chunk or
        two of one worker.
        """
        if key is None and columns is None:
            return self.read_views((view,), timeout_s)[0]
        self._schema(view)
        with self.leases.taken((view,), timeout_s) as leased:
            schema = self._spec_in(leased, view).schema
            equal = None if key is None else condition_of(view, schema, key)
            for name in columns or ():
                if name not in schema.names:
                    raise ConfigError(
                        f"the view has no such column: view={view} column={name} columns={list(schema.names)}"
                    )
            wanted = Wanted(equal=equal, columns=None if columns is None else tuple(columns))
            return ViewRows(view=view, step=leased.step, table=pa.concat_tables(leased.read(view, wanted)))

    def open_read(self, view: str, wanted: Wanted = ALL, timeout_s: float | None = None) -> ViewRead:
        """Return a read of a part of a view as of the last finished step; the caller reads it in pieces and closes it."""
        self._schema(view)
        return ViewRead(self.leases, view, wanted, timeout_s)

    def kept(self, view: str) -> ViewRows | None:
        """Return a small view as of the last finished step, if it was read at this step; else None."""
        found, now = self._kept_views.get(view), self.snapshot
        return found if found is not None and now.settled and not now.ended and found.step == now.step else None

    def keep(self, found: ViewRows) -> None:
        """Keep a whole view for the readers of its step, if it is small."""
        if found.table.nbytes <= KEPT_VIEW_BYTES_MAX:
            self._kept_views[found.view] = found

    def key_of(self, view: str, text: str) -> Batch:
        """Return the key that a JSON object of columns and values describes, decoded as a pushed row is."""
        schema = self._schema(view)
        try:
            given = json.loads(text)
        except (ValueError, RecursionError):
            given = None
        if not isinstance(given, dict) or not given:
            raise ConfigError(
                f"a key is no JSON object of columns and values: key={text[:80]}", 'write {"column": value}'
            )
        unknown = sorted(given.keys() - set(schema.names))
        if unknown:
            raise ConfigError(
                f"the view has no such column: view={view} column={unknown[0]} columns={list(schema.names)}"
            )
        some = schema.select([name for name in schema.names if name in given])
        push = decode_json(text.encode(), Table(name=view, schema=some))
        if push.bad or len(push.batch) != 1:
            reason = push.bad[0].reason if push.bad else "not one row"
            raise ConfigError(
                f"a key does not fit the view: view={view} reason={reason}", "give values of the columns' types"
            )
        return push.batch

    def view_schema(self, view: str) -> pa.Schema:
        """Return the columns of a view that can be read; raise `ConfigError` for other names."""
        return self._schema(view).to_arrow()

    def _schema(self, view: str) -> Schema:
        """Return the columns of a view that can be read; raise `ConfigError` for other names."""
        return self._spec(view).schema

    def _spec(self, view: str) -> ViewSpec:
        """Return how a view is read now (an edited view during a backfill: from its old rows); `ConfigError` for other names."""
        for spec in self.built.plan.views:
            if spec.name == view and spec.trace is not None:
                return self.leases.old_view(view) or spec
        raise not_readable(view, self.views(), self.unread)

    @property
    def unread(self) -> Unreadable:
        """Return the names of views and tables whose rows cannot be read."""
        return Unreadable(self._feed.views, tuple(self._tables))

    def _spec_in(self, leased: Leased, view: str) -> ViewSpec:
        """Return how a view is read through a lease."""
        return leased.spec(view) or self._spec(view)

    def read_views(self, views: Sequence[str], timeout_s: float | None = None) -> list[ViewRows]:
        """Return several views as of the same step."""
        for view in views:
            self._schema(view)
        kept = [rows for view in views if (rows := self.kept(view)) is not None]
        if views and len(kept) == len(views) and len({rows.step for rows in kept}) == 1:
            return kept
        with self.leases.taken(views, timeout_s) as leased:
            return [self._whole(leased, view) for view in views]

    def _whole(self, leased: Leased, view: str) -> ViewRows:
        """Read a whole view, or wait for the thread that reads it as of the same step; cache it if it is small."""
        kept = self._kept_views.get(view)
        if kept is not None and kept.step == leased.step:
            return kept
        reads = (view, leased.step)
        with self._lock:
            flight = self._flights.get(reads)
            own = flight is None
            if flight is None:
                flight = self._flights[reads] = Future()
        if own:
            try:
                table = pa.concat_tables(leased.read(view))
                flight.set_result(ViewRows(view=view, step=leased.step, table=table))
            except BaseException as error:
                flight.set_exception(error)
                raise
            finally:
                with self._lock:
                    del self._flights[reads]
        found = flight.result()
        self.keep(found)
        return found

    def changes(self, view: str, first: int = 0, *, rows_max: int = 10_000, anew: bool = False) -> ViewChanges:
        """Return the changes of a view (or `dead_letters`) in finished steps from `first` on, up to about `rows_max` rows.

        **Law** see `dbsp.coordinator.running.feed`: begin at 0, or at the step of `read_view`, and go on at `next`.
        With `anew` the caller promises to forget its rows where a view began anew.
        **Errors** `PositionError` for steps that were dropped (`retention_steps`) or never taken. `BegunAnewError` without
        `anew` for a view that began anew since. `ConfigError` where the outputs are not embedded ones.
        """
        self._refuse_ended()
        found = self._feed.read(view, first, self.snapshot, rows_max, anew=anew)
        if view != DEAD_LETTERS:
            return found
        letters = self.built.letters
        steps = tuple(replace(each, table=letters.changed(each.step, each.table)) for each in found.steps)
        return replace(found, schema=CHANGED_ROWS, steps=steps)

    def followed(self, view: str) -> tuple[str, pa.Schema]:
        """Return the name of a view whose changes can be read, written in any case, and its columns.

        **Errors** `ConfigError` where there is no such view, or its changes are in another output.
        """
        name = next((each for each in self._feed.views if each.lower() == view.lower()), view)
        columns = self._feed.schema(name)
        return name, CHANGED if name == DEAD_LETTERS else columns
