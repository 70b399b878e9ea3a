"""Views as Delta tables, behind the steps: a thread that reads what finished steps changed, and writes it every so often.

**Law** a table that says `next` is the view as of step `next` (with a key), or all its changes below that (without), whoever
was killed when, for any number of workers: what is read of a step is final (`feed`), and a commit says how far it goes
(`DeltaTable`).

Steps never wait for it. A table that cannot be written is tried again in the next round and told of in status, log and metrics.
Several steps are one commit; of a row that changed in several of them only the last one is written where the view has a key.
Left out: what is written how (`dbsp.io.delta_table`), and what settings may ask for (`dbsp.coordinator.delta_views`).
"""

from __future__ import annotations

import threading
import traceback
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa

from dbsp.coordinator.config import Config
from dbsp.coordinator.delta_views import DeltaView, delta_views
from dbsp.coordinator.http.answers import ViewChanges, ViewRows
from dbsp.coordinator.running.feed import added_up
from dbsp.coordinator.running.status import Snapshot
from dbsp.disk import sync_path
from dbsp.errors import ConfigError, DbspError, PositionError, UnavailableError
from dbsp.io.formats.json_output import newest_rows
from dbsp.plan.plan import Plan

if TYPE_CHECKING:
    from dbsp.io.delta_table import DeltaTable

MARK_FILE = "delta-tables"
ROWS_A_COMMIT = 1_000_000
COMMITS_A_TIDYING = 100
QUIET_STEPS_MAX = 1_000
"""A table that nothing changes says after so many steps how far it is, so that dropped steps are not missed."""


Changes: TypeAlias = Callable[[str, int, Snapshot, int], ViewChanges]
Note: TypeAlias = Callable[[str, dict[str, Any]], None]


class Pipeline(Protocol):
    """What is written of."""

    @property
    def snapshot(self) -> Snapshot:
        """The service as of the last event."""
        ...

    def read_view(self, view: str) -> ViewRows:
        """A view as of the last finished step."""
        ...


class DeltaTables:
    """Writes the tables of one pipeline, in a thread of its own."""

    def __init__(self, config: Config, plan: Plan, pipeline: Pipeline, changes: Changes, note: Note) -> None:
        """Nothing is opened; `changes` is `Feed.read`, `note` hears when a table fails, and when it does not any more."""
        self._section, self._pipeline = config.delta, pipeline
        self._mark = config.data_dir / MARK_FILE
        quiet = QUIET_STEPS_MAX if config.output.retention_steps is None else config.output.retention_steps // 2
        self._ending = threading.Event()
        held = {view.name for view in plan.views if view.trace is not None}
        self._writers = [
            _Writer(
                view,
                config,
                pipeline,
                changes,
                note,
                ending=self._ending,
                held=view.name in held,
                quiet=max(1, min(QUIET_STEPS_MAX, quiet)),
            )
            for view in delta_views(config, plan.circuit)
        ]
        self._thread: threading.Thread | None = None
        self._last_round = False

    def start(self) -> None:
        """Begin; a table that is another pipeline's is refused at once."""
        if self._writers:
            self.open()
            self._thread = threading.Thread(target=self._run, name="dbsp-delta", daemon=True)
            self._thread.start()

    def open(self) -> None:
        """Look at the tables that are there; writes the mark of this pipeline, if it has none."""
        app = own_mark(self._mark)
        for writer in self._writers:
            writer.open(app)

    def _run(self) -> None:
        while not self._ending.is_set():
            self.round()
            self._ending.wait(self._section.interval_s)
        if self._last_round:
            self.round(final=True)

    def round(self, *, final: bool = False) -> None:
        """Bring every table to where the pipeline is."""
        now = self._pipeline.snapshot
        for writer in self._writers:
            writer.bring(now, final=final)

    def close(self, *, last_round: bool) -> None:
        """End; with `last_round` the tables hold all finished steps then, if they can be written."""
        self._last_round = last_round
        self._ending.set()
        if self._thread is not None:
            self._thread.join()

    @property
    def shown(self) -> list[dict[str, Any]]:
        """Each table: where, how far, what is in its way."""
        return [writer.shown for writer in self._writers]


class _Writer:
    """One table."""

    def __init__(
        self,
        view: DeltaView,
        config: Config,
        pipeline: Pipeline,
        changes: Changes,
        note: Note,
        *,
        ending: threading.Event,
        held: bool,
        quiet: int,
    ) -> None:
        self._view, self._pipeline, self._changes = view, pipeline, changes
        self._note, self._ending = note, ending
        self._uri, self._options = config.delta_uri(view.name), config.delta.options
        self._keep_hours, self._held, self._quiet = config.delta.keep_hours, held, quiet
        self._table: DeltaTable | None = None
        self._next = 0
        self._told = 0
        self._commits = 0
        self._error: str | None = None

    @property
    def shown(self) -> dict[str, Any]:
        """For people and monitors."""
        return {
            "view": self._view.name, "uri": self._uri, "keys": list(self._view.keys), "step": self._next,
            "behind_steps": max(0, self._pipeline.snapshot.step - self._next), "error": self._error,
        }  # fmt: skip

    def open(self, app: str) -> None:
        """Look at the table; one that cannot be reached now may be later."""
        from dbsp.io.delta_table import DeltaTable  # noqa: PLC0415 - its package is optional, and slow to load

        self._table = DeltaTable(
            self._uri, view=self._view.name, schema=self._view.columns(), keys=self._view.keys, app=app,
            options=self._options,
        )  # fmt: skip
        try:
            self._next = self._table.position() or 0
        except UnavailableError as error:
            self._failed(error)

    def bring(self, now: Snapshot, *, final: bool = False) -> None:
        """Write what finished steps changed since the table was last written."""
        if not (now.settled or final):
            return  # steps are run again: the table may be ahead of them
        try:
            self._bring(now, final)
        except Exception as error:  # noqa: BLE001 - whatever it is, the pipeline goes on
            if final or not self._pipeline.snapshot.ended:  # else the last round follows
                self._failed(error)
        else:
            if self._error is not None:
                self._error = None
                self._note("delta-written", {"view": self._view.name, "uri": self._uri})

    def _bring(self, now: Snapshot, final: bool) -> None:
        assert self._table is not None  # noqa: S101 - `open` comes first
        anew = bool(self._view.keys) and self._held and not final  # at the end nobody reads a view any more
        found = self._table.position()
        if found is None:
            self._begin(self._table, anew and now.step > 0)
        elif found > now.step:
            raise ConfigError(
                f"the table is ahead of the pipeline: uri={self._uri} step={now.step} table_step={found}",
                "delete the table, and it is made anew",
            )
        else:
            self._told, self._next = found, max(found, self._next)
        while self._next < now.step and (final or not self._ending.is_set()):
            self._write(self._table, now, anew)
        if self._next - self._told >= (1 if final else self._quiet):
            self._table.add(self._table.empty(), self._next)
            self._told = self._next

    def _begin(self, table: DeltaTable, anew: bool) -> None:
        """A table that is not there: made from the view's rows where it has a key, else from the first change on."""
        table.create()
        self._told = self._next = 0
        if anew:
            self._from_content(table)

    def _from_content(self, table: DeltaTable) -> None:
        """All rows of the view as of now."""
        rows = self._pipeline.read_view(self._view.name)
        table.replace(rows.table.drop_columns(rows.table.column_names[-1:]), rows.step)
        self._told = self._next = rows.step

    def _write(self, table: DeltaTable, now: Snapshot, anew: bool) -> None:
        """One commit at most, of steps that follow each other."""
        try:
            found = self._changes(self._view.name, self._next, now, ROWS_A_COMMIT)
        except PositionError:
            if not anew:
                raise
            self._from_content(table)
            return
        if found.steps:
            self._commit(table, found)
            self._told = found.next
            self._commits += 1
            if self._commits % COMMITS_A_TIDYING == 0:
                table.tidy(self._keep_hours)
        self._next = found.next

    def _commit(self, table: DeltaTable, found: ViewChanges) -> None:
        if not self._view.keys:
            table.add(found.with_steps(), found.next)
            return
        change = added_up(self._view.schema, [each.table for each in found.steps])
        rows, there, _ = newest_rows(change, self._view.keys)
        if len(rows):
            columns = dict(zip(rows.schema.names, rows.columns, strict=True))
            table.merge(pa.table(columns), there, found.next)
        else:
            table.add(table.empty(), found.next)

    def _failed(self, error: Exception) -> None:
        """Told once, until it is another failure."""
        story = str(error) if isinstance(error, DbspError) else "".join(traceback.format_exception(error))
        if story != self._error:
            self._error = story
            self._note("delta-failed", {"view": self._view.name, "uri": self._uri, "error": story})


def own_mark(file: Path) -> str:
    """What tells this pipeline's tables from others: in the data folder, and in no backup of it, so that a restored pipeline,
    which goes another way from some step on, does not go on with tables that have gone the first one.
    """
    if file.exists():
        return file.read_text()
    mark = uuid.uuid4().hex
    aside = file.with_name(f".{file.name}")
    aside.write_text(mark)
    sync_path(aside)
    aside.rename(file)
    sync_path(file.parent)
    return mark
