"""The changes of views, step by step, for consumers that follow a view; read from the embedded outputs, not from the state.

**Law** the changes of a step are final. They are the same rows in the same order for any number of workers and after
any crash. A step is returned when all workers have written it, each writes it once (invariant 5), and the parts are
summed. So the changes of the steps below `next`, summed, are the view as of `next`. A consumer that stores `next`
together with its results has used every change once, whatever crashed meanwhile.

A view that was edited, or dropped and made again, begins anew: the law holds from the step of its first output on. Its
earlier rows are never returned, because they belong to another definition, perhaps with other columns. A follower from
before that step is notified, and has to forget them (record 0047).

Not here: waiting for further steps (see `LiveStatus`), and other outputs, which are read where they are written.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

import pyarrow as pa

from dbsp.circuit.names import DEAD_LETTERS
from dbsp.coordinator.running.status import Snapshot
from dbsp.coordinator.serving.answers import StepChanges, ViewChanges
from dbsp.coordinator.settings.config import Config
from dbsp.errors import BegunAnewError, ConfigError, PositionError, UnavailableError
from dbsp.io.embedded_output import EmbeddedOutputLog, by_step, output_workers
from dbsp.io.letter_log import LetterLog
from dbsp.io.output_part import DEAD_LETTER_SCHEMA, to_table
from dbsp.plan.plan import Plan
from dbsp.settings import similar
from dbsp.zset.batch import Batch, consolidate
from dbsp.zset.merge import sum_of
from dbsp.zset.schema import Schema


class Feed:
    """The embedded outputs of a pipeline; their files stay open until `close`. May be used from any thread."""

    def __init__(self, config: Config, plan: Plan, letters: LetterLog, began: Mapping[str, int]) -> None:
        """Open nothing before the first read; other outputs than embedded ones leave the dead letters in `letters`.

        `began` maps views that began anew to the steps of their first output.
        """
        self._began = began
        self._data_dir, self._output = config.data_dir, config.output
        self._schemas = {**{view.name: view.schema for view in plan.views}, DEAD_LETTERS: DEAD_LETTER_SCHEMA}
        self._letters = letters
        self._logs: dict[int, EmbeddedOutputLog] = {}
        self._lock = threading.Lock()
        self._closed = False

    def read(self, view: str, first: int, now: Snapshot, rows_max: int, *, anew: bool = False) -> ViewChanges:
        """Return the changes of finished steps from `first` on: whole steps up to about `rows_max` rows, at least one step.

        If the view began anew at `first` or later, it is read from there with `anew`, and refused otherwise. Until the step
        in which it begins is finished, there are no changes.

        **Cost** a look-up, and reading and sorting the rows; steps that changed nothing cost nothing.
        **Errors** see `Service.changes`.
        """
        is_letters = view == DEAD_LETTERS and self._output.changes_elsewhere is not None
        if not is_letters:
            self._refuse_unknown(view)
        _refuse_beyond(first, now)
        if is_letters:
            return self._read_letters(first, now.step, rows_max)
        began = self._began.get(view, 0)
        if first <= began and began >= now.step:
            return self._joined(iter(()), view, first, first, rows_max)
        has_old = 0 < first <= began
        if has_old and not anew:
            raise BegunAnewError(
                f"the view began anew, with another definition: view={view} first={first} step={began}",
                "forget its rows, read the view anew and go on from its step; or follow it with `anew=true`",
                began,
            )
        first = max(first, began)
        logs = self._open()
        found = self._joined(by_step(logs, view, first, now.step), view, first, now.step, rows_max)
        found = replace(found, anew=began) if has_old else found
        kept_from = _kept_from(logs)  # read after the rows, because steps may be dropped while rows are read
        if first < kept_from:
            raise PositionError(
                f"the changes of these steps were dropped: view={view} first={first} kept_from={kept_from}",
                "read the view anew and go on from its step; or raise `retention_steps` in [output]",
            )
        return found

    def schema(self, view: str) -> pa.Schema:
        """Return the columns of the changes of a view, without their weight; raise `ConfigError` where none can be read."""
        if view != DEAD_LETTERS or self._output.changes_elsewhere is None:
            self._refuse_unknown(view)
        columns = to_table(Batch.empty(self._schemas[view])).schema
        return columns.remove(len(columns) - 1)

    def _read_letters(self, first: int, last: int, rows_max: int) -> ViewChanges:
        """Return the dead letters that the letter log has of these steps."""
        steps = ((step, 0, table.drop_columns(["header"])) for step, table in self._letters.read(first, last))
        found = self._joined(steps, DEAD_LETTERS, first, last, rows_max)
        if first < (kept_from := self._letters.kept_from):
            raise PositionError(
                f"the dead letters of these steps were dropped: first={first} kept_from={kept_from}",
                "go on from there; or keep more of them: `rows_max`, `mb_max` and `days_max` in [letters]",
            )
        return found

    def kept_from(self) -> int:
        """Return the first step from which on no changes were dropped."""
        return _kept_from(self._open())

    def _joined(
        self, parts_of_steps: Iterator[tuple[int, int, pa.Table]], view: str, first: int, last: int, rows_max: int
    ) -> ViewChanges:
        """Return the changes of whole steps, each summed over its parts."""
        schema = to_table(Batch.empty(self._schemas[view])).schema
        found, rows, next_ = list[StepChanges](), 0, max(first, last)
        for step, parts in groupby(parts_of_steps, itemgetter(0)):
            table = to_table(added_up(self._schemas[view], [part for _, _, part in parts]))
            if table.num_rows:
                found.append(StepChanges(step=step, table=table))
                rows += table.num_rows
            if rows >= rows_max:
                next_ = step + 1
                break
        return ViewChanges(view=view, first=first, next=next_, schema=schema, steps=tuple(found))

    @property
    def views(self) -> tuple[str, ...]:
        """Return the names with changes: all views, and the dead letters."""
        return tuple(self._schemas)

    def _refuse_unknown(self, view: str) -> None:
        if view not in self._schemas:
            raise ConfigError(f"no such view: view={view} views={sorted(self._schemas)}", similar(view, self._schemas))
        if self._output.changes_elsewhere is not None:
            raise ConfigError(
                f"changes are not kept in this output: output.kind={self._output.kind}", self._output.changes_elsewhere
            )

    def _open(self) -> dict[int, EmbeddedOutputLog]:
        """Return the output logs of all workers that ever existed; open the logs of workers that joined since the last call."""
        with self._lock:
            if self._closed:
                raise UnavailableError("the service has ended", "start it again")
            for worker in output_workers(self._data_dir):
                if worker not in self._logs:
                    self._logs[worker] = EmbeddedOutputLog(self._data_dir, worker)
            return dict(self._logs)

    def close(self) -> None:
        """Close the files, after a `read` that is under way."""
        with self._lock:
            self._closed = True
            logs, self._logs = self._logs, {}
        for log in logs.values():
            log.close()


def _kept_from(logs: Mapping[int, EmbeddedOutputLog]) -> int:
    return max((log.kept_from() for log in logs.values()), default=0)


def added_up(schema: Schema, parts: Sequence[pa.Table]) -> Batch:
    """Sum changes, of workers or of steps, into one sorted batch; their weights are the last column."""
    batches = [Batch.from_arrow(part, schema, part.column(part.num_columns - 1).to_numpy()) for part in parts]
    return consolidate(sum_of(batches, schema))


def _refuse_beyond(first: int, now: Snapshot) -> None:
    """Raise `PositionError` if the consumer has seen steps that this pipeline never ran.

    Such a pipeline was restored from a backup, or is another one.
    """
    if first > now.step and now.settled:
        raise PositionError(
            f"the pipeline has not reached this step: first={first} next={now.step}",
            "read the view anew and go on from its step: a pipeline that was restored counts on from its backup",
        )
