"""Write views as Delta tables: a thread reads the changes of finished steps and commits them at intervals.

**Law** a table that says `next` is the view as of step `next` (with a key), or contains all its changes below `next`
(without). This holds after any crash and for any number of workers. The changes of a step are final (`feed`), and a
commit contains its position (`DeltaTable`).

Steps never wait for the thread. A table that cannot be written is tried again in the next round, and shown in status,
log and metrics. A commit covers several steps. Where the view has a key, only the last state of a row that changed
several times is written. Elsewhere: the writing (`dbsp.io.delta_table`), and the checks of the settings
(`dbsp.coordinator.running.delta_views`).
"""

from __future__ import annotations

import threading
import traceback
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from dbsp.coordinator.running.delta_notes import DeltaNotes
from dbsp.coordinator.running.delta_views import DeltaView, delta_views
from dbsp.coordinator.running.feed import added_up
from dbsp.coordinator.running.notices import DeltaFailed, DeltaWritten, Notify
from dbsp.coordinator.running.status import Snapshot
from dbsp.coordinator.serving.answers import ViewChanges, ViewRows
from dbsp.coordinator.settings.config import Config
from dbsp.diagnostics.secrets import without_login
from dbsp.errors import ConfigError, DbspError, PositionError, UnavailableError
from dbsp.io.formats.json_output import newest_rows
from dbsp.plan.plan import Plan

if TYPE_CHECKING:
    from dbsp.io.delta_table import DeltaTable

ROWS_A_COMMIT = 1_000_000
COMMITS_A_TIDYING = 100
QUIET_STEPS_MAX = 1_000
"""After this many steps without a change, a table's position is written, so that it never refers to dropped steps."""


class Pipeline(Protocol):
    """The pipeline whose views are written."""

    @property
    def snapshot(self) -> Snapshot:
        """Return the service as of the last event."""
        ...

    def read_view(self, view: str) -> ViewRows:
        """Return a view as of the last finished step."""
        ...


class Followed(Protocol):
    """The source of a view's changes; see `Feed`."""

    def read(self, view: str, first: int, now: Snapshot, rows_max: int, *, anew: bool = False) -> ViewChanges:
        """Return the changes of finished steps from `first` on."""
        ...

    def kept_from(self) -> int:
        """Return the first step from which on no changes were dropped."""
        ...


class DeltaTables:
    """The Delta tables of one pipeline, written by a thread of their own."""

    def __init__(self, config: Config, plan: Plan, pipeline: Pipeline, feed: Followed, note: Notify) -> None:
        """Open nothing; `note` receives a notice when a table fails or recovers."""
        self._section, self._pipeline = config.delta, pipeline
        self._notes = DeltaNotes(config.data_dir)
        self._ending = threading.Event()
        held = {view.name for view in plan.views if view.trace is not None}
        self._writers = [
            _Writer(
                view,
                config,
                pipeline,
                feed,
                note,
                notes=self._notes,
                ending=self._ending,
                held=view.name in held,
            )
            for view in delta_views(config, plan.circuit)
        ]
        self._thread: threading.Thread | None = None
        self._last_round = False

    def start(self) -> None:
        """Start the thread; raise an error at once for a table that belongs to another pipeline."""
        if self._writers:
            self.open()
            self._thread = threading.Thread(target=self._run, name="dbsp-delta", daemon=True)
            self._thread.start()

    def open(self) -> None:
        """Look up the existing tables; create the mark of this pipeline if it has none."""
        app = self._notes.mark()
        for writer in self._writers:
            writer.open(app)

    def _run(self) -> None:
        while not self._ending.is_set():
            self.round()
            self._ending.wait(self._section.interval_s)
        if self._last_round:
            self.round(final=True)

    def round(self, *, final: bool = False) -> None:
        """Write every table up to the last finished step."""
        now = self._pipeline.snapshot
        for writer in self._writers:
            writer.bring(now, final=final)

    def close(self, *, last_round: bool) -> None:
        """End the thread; with `last_round` first write all finished steps to the tables, if they can be written."""
        self._last_round = last_round
        self._ending.set()
        if self._thread is not None:
            self._thread.join()

    @property
    def status(self) -> list[dict[str, Any]]:
        """Return for each table its place, its step and its error."""
        return [writer.status for writer in self._writers]


class _Writer:
    """The writer of one table."""

    def __init__(
        self,
        view: DeltaView,
        config: Config,
        pipeline: Pipeline,
        feed: Followed,
        note: Notify,
        *,
        notes: DeltaNotes,
        ending: threading.Event,
        held: bool,
    ) -> None:
        self._view, self._pipeline, self._feed = view, pipeline, feed
        self._note, self._notes, self._ending = note, notes, ending
        self._uri, self._options = config.delta_uri(view.name), config.delta.options
        self._place = f"{config.delta.directory}/{view.name}"
        self._keep_hours, self._held, self._quiet = config.delta.keep_hours, held, _quiet(config)
        self._table: DeltaTable | None = None
        self._next = 0
        self._reported = 0
        self._commits = 0
        self._error: str | None = None

    @property
    def status(self) -> dict[str, Any]:
        """Return the status of the table for people and monitors."""
        return {
            "view": self._view.name, "uri": without_login(self._uri), "keys": list(self._view.keys), "step": self._next,
            "behind_steps": max(0, self._pipeline.snapshot.step - self._next), "error": self._error,
        }  # fmt: skip

    def open(self, app: str) -> None:
        """Look up the table; one that cannot be reached now may be reached later."""
        from dbsp.io.delta_table import DeltaTable  # noqa: PLC0415 - its package is optional, and slow to load

        self._table = DeltaTable(
            self._uri, view=self._view.name, schema=self._view.columns(), keys=self._view.keys, app=app,
            options=self._options,
        )  # fmt: skip
        try:
            self._next = self._position(self._table) or 0
        except UnavailableError as error:
            self._failed(error)

    def bring(self, now: Snapshot, *, final: bool = False) -> None:
        """Write the changes of finished steps since the last commit, and note an error or a recovery."""
        if not (now.settled or final):
            return  # while steps are replayed, the table may be ahead of them
        try:
            self._bring(now, final)
        except Exception as error:  # noqa: BLE001 - the pipeline goes on after any error of a table
            if final or not self._pipeline.snapshot.ended:  # else the last round follows
                self._failed(error)
        else:
            if self._error is not None:
                self._error = None
                self._note(DeltaWritten(view=self._view.name, uri=without_login(self._uri)))

    def _position(self, table: DeltaTable) -> int | None:
        """Return the step that the table has reached; None if there is no table.

        **Errors** `ConfigError` if the table contains steps that this data folder has not noted.
        """
        found, noted = table.position(), self._notes.reached(self._place)
        if found is not None and (noted is None or found > noted):
            raise ConfigError(
                "the table has steps of which this data folder knows nothing, as when the folder is put back from a copy:"
                f" uri={self._uri} step={noted or 0} table_step={found}",
                "delete the table, and it is made anew; or name another `directory` in [delta]",
            )
        return found

    def _bring(self, now: Snapshot, final: bool) -> None:
        assert self._table is not None  # noqa: S101 - `open` comes first
        anew = bool(self._view.keys) and self._held and not final  # views cannot be read at the end
        found = self._position(self._table)
        if found is None:
            self._begin(self._table, anew and now.step > 0)
        else:
            self._reported, self._next = found, max(found, self._next)
        while self._next < now.step and (final or not self._ending.is_set()):
            before = self._next
            self._write(self._table, now, anew)
            if self._next == before:  # the view begins anew in the step that comes next
                return
        if self._next - self._reported >= (1 if final else self._quiet):
            self._notes.reach(self._place, self._next)
            self._table.add(self._table.empty(), self._next)
            self._reported = self._next

    def _begin(self, table: DeltaTable, anew: bool) -> None:
        """Create the missing table: from the view's rows if it has a key, else from the oldest changes that are kept."""
        if anew:
            self._create(table, 0)
            self._from_content(table)
            return
        first, found = self._oldest()
        if first and self._view.keys and found.anew is None:
            raise PositionError(
                f"the Delta table cannot be made, because steps were dropped: view={self._view.name} first={first}",
                self._way_out,
            )
        self._create(table, first)
        self._take(table, found)

    def _oldest(self) -> tuple[int, ViewChanges]:
        """Return the oldest kept step, and the changes from there on.

        They are read before the table is created, and read again if steps are dropped meanwhile.
        """
        while True:
            first = self._feed.kept_from()
            try:
                now = self._pipeline.snapshot
                return first, self._feed.read(self._view.name, first, now, ROWS_A_COMMIT, anew=True)
            except PositionError:
                if self._feed.kept_from() == first or self._ending.is_set():
                    raise

    @property
    def _way_out(self) -> str:
        """Return the hint for the user when steps that the table lacks were dropped."""
        if not self._view.keys:
            return (
                "delete the table, and it is made anew of what is left; and write it more often (`interval_s` in [delta])"
                " or keep more (`retention_steps` in [output])"
            )
        if self._held:  # only when the service ends, where views cannot be read any more
            return "start again, and the table is made of the view's rows"
        return "name the view in `materialize` of the circuit, leave out its key, or keep all steps (`retention_steps`)"

    def _create(self, table: DeltaTable, next_: int) -> None:
        """Create the empty table, as of this step."""
        self._notes.reach(self._place, next_)
        table.create(next_)
        self._reported = self._next = next_

    def _from_content(self, table: DeltaTable) -> None:
        """Replace the table's rows by all rows of the view as of now."""
        rows = self._pipeline.read_view(self._view.name)
        self._notes.reach(self._place, rows.step)
        table.replace(rows.table.drop_columns(rows.table.column_names[-1:]), rows.step)
        self._reported = self._next = rows.step

    def _write(self, table: DeltaTable, now: Snapshot, anew: bool) -> None:
        """Write one commit at most, of consecutive steps."""
        try:
            found = self._feed.read(self._view.name, self._next, now, ROWS_A_COMMIT)
        except PositionError as error:
            if not anew:
                raise PositionError(error.message, self._way_out) from None
            self._from_content(table)
            return
        self._take(table, found)

    def _take(self, table: DeltaTable, found: ViewChanges) -> None:
        """Commit the changes that were read."""
        if found.steps:
            self._notes.reach(self._place, found.next)
            self._commit(table, found)
            self._reported = found.next
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
        """Report the failure once, until another failure occurs."""
        story = str(error) if isinstance(error, DbspError) else "".join(traceback.format_exception(error))
        if story != self._error:
            self._error = story
            self._note(DeltaFailed(view=self._view.name, uri=without_login(self._uri), error=story))


def _quiet(config: Config) -> int:
    """Return the number of steps after which an unchanged table gets an empty commit.

    The commit notes the position before the outputs drop the steps.
    """
    kept = config.output.retention
    return QUIET_STEPS_MAX if kept is None else max(1, min(QUIET_STEPS_MAX, kept // 2))
