"""The interface for results: read views, follow their changes, query them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa

from dbsp.coordinator.answers import ViewChanges, ViewRows
from dbsp.coordinator.build import Built
from dbsp.coordinator.config import Config
from dbsp.coordinator.decisions import states
from dbsp.coordinator.query.process import Queries
from dbsp.coordinator.query.statement import QueryLimits, not_readable
from dbsp.coordinator.running.delta_tables import DeltaTables
from dbsp.coordinator.running.feed import Feed
from dbsp.coordinator.serving.core import ServiceCore

KEPT_VIEW_BYTES_MAX = 16 << 20


class Reads(ServiceCore):
    """The interface of readers."""

    def __init__(self, config: Config, built: Built | None = None) -> None:
        """Prepare the Delta tables, which begin with the service."""
        super().__init__(config, built)
        self._kept_views: dict[str, ViewRows] = {}
        self._feed = Feed(config, self.built.plan)
        self._queries = Queries(at_once_max=config.query.at_once_max)
        self.delta = DeltaTables(config, self.built.plan, self, self._feed, self._observers.noted)

    def views(self) -> tuple[str, ...]:
        """Return the names of the views that can be read."""
        return tuple(view.name for view in self.built.plan.views if view.trace is not None)

    def read_view(self, view: str, timeout_s: float | None = None) -> ViewRows:
        """Return a view as of the last finished step."""
        return self.read_views((view,), timeout_s)[0]

    def read_views(self, views: Sequence[str], timeout_s: float | None = None) -> list[ViewRows]:
        """Return several views as of the same step."""
        for view in views:
            if view not in self.views():
                raise not_readable(view, self.views(), self._feed.views)

        def question(runtime: Any, facts: states.Facts) -> list[ViewRows]:
            return [self._read_now(runtime, facts, view) for view in views]

        return cast(list[ViewRows], self._result(lambda: self._loop.ask(question), timeout_s))

    def _read_now(self, runtime: Any, facts: states.Facts, view: str) -> ViewRows:
        """Read a view on the event loop's thread; cache it for the step if it is small."""
        kept = self._kept_views.get(view)
        if kept is not None and kept.step == facts.next_step:
            return kept
        found = ViewRows(view=view, step=facts.next_step, table=runtime.read_view(view, facts.layout))
        self._kept_views.pop(view, None)
        if found.table.nbytes <= KEPT_VIEW_BYTES_MAX:
            self._kept_views[view] = found
        return found

    def changes(self, view: str, first: int = 0, *, rows_max: int = 10_000) -> ViewChanges:
        """Return the changes of a view (or `dead_letters`) in finished steps from `first` on, up to about `rows_max` rows.

        **Law** see `dbsp.coordinator.running.feed`: begin at 0, or at the step of `read_view`, and go on at `next`.
        **Errors** `PositionError` for steps that were dropped (`retention_steps`) or never taken; `ConfigError` where
        the outputs are not embedded ones.
        """
        self._refuse_ended()
        return self._feed.read(view, first, self.snapshot, rows_max)

    def query(self, sql: str, timeout_s: float | None = None) -> tuple[int, pa.Table]:
        """Return (step, result) of one read-only statement over the views, all as of that step."""
        section = self.config.query
        limits = QueryLimits(
            memory_mb_max=section.memory_mb_max, timeout_s=section.timeout_s, threads=section.threads,
            rows_max=section.rows_max, result_mb_max=section.result_mb_max,
        )  # fmt: skip
        steps: list[int] = []

        def read(names: Sequence[str]) -> dict[str, pa.Table]:
            found = self.read_views(names, timeout_s)
            steps.extend(rows.step for rows in found)
            return {rows.view: rows.table for rows in found}

        found = self._queries.ask(sql, self.views(), read, limits, self._feed.views)
        return steps[0] if steps else self.snapshot.step, found
