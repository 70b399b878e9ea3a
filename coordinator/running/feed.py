"""Changes of views, step by step, for consumers that follow them: read from the embedded outputs, not from the state.

**Law** what is told of a step is final, and the same rows in the same order for any number of workers and after any crash: a
step is told when all workers have written it, each writes it once (invariant 5), and the parts are added up. So the changes
of the steps below `next`, added up, are the view as of `next`; and a consumer that keeps `next` with what it made of the rows
has used every change once, whoever was killed meanwhile.

Left out: waiting for further steps (the live status's business), and other outputs: those are read where they are written.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter

import pyarrow as pa

from dbsp.circuit.names import DEAD_LETTERS
from dbsp.coordinator.answers import StepChanges, ViewChanges
from dbsp.coordinator.config import Config
from dbsp.coordinator.running.status import Snapshot
from dbsp.errors import ConfigError, PositionError, UnavailableError
from dbsp.io.embedded_output import EmbeddedOutputLog, by_step, output_workers
from dbsp.io.output_part import DEAD_LETTER_SCHEMA, to_table
from dbsp.plan.plan import Plan
from dbsp.zset.batch import Batch, consolidate
from dbsp.zset.merge import sum_of
from dbsp.zset.schema import Schema


class Feed:
    """Reads a pipeline's embedded outputs; the files stay open until `close`. May be used from any thread."""

    def __init__(self, config: Config, plan: Plan) -> None:
        """Nothing is opened before something is asked."""
        self._data_dir, self._output = config.data_dir, config.output
        self._schemas = {**{view.name: view.schema for view in plan.views}, DEAD_LETTERS: DEAD_LETTER_SCHEMA}
        self._logs: dict[int, EmbeddedOutputLog] = {}
        self._lock = threading.Lock()
        self._closed = False

    def read(self, view: str, first: int, now: Snapshot, rows_max: int) -> ViewChanges:
        """What finished steps from `first` on changed, as many whole ones as `rows_max` rows take, at least one.

        **Cost** a look-up, and what is read and sorted; steps that changed nothing cost nothing.
        **Errors** see `Service.changes`.
        """
        self._refuse_unknown(view)
        _refuse_beyond(first, now)
        logs = self._open()
        found = self._read(logs, view, first, now.step, rows_max)
        kept_from = _kept_from(logs)  # asked behind the reading: rows may be dropped meanwhile
        if first < kept_from:
            raise PositionError(
                f"the changes of these steps were dropped: view={view} first={first} kept_from={kept_from}",
                "read the view anew and go on from its step; or raise `retention_steps` in [output]",
            )
        return found

    def kept_from(self) -> int:
        """The first step whose changes were never dropped."""
        return _kept_from(self._open())

    def _read(self, logs: dict[int, EmbeddedOutputLog], view: str, first: int, last: int, rows_max: int) -> ViewChanges:
        """What is there."""
        schema = to_table(Batch.empty(self._schemas[view])).schema
        found, rows, next_ = list[StepChanges](), 0, max(first, last)
        for step, parts in groupby(by_step(logs, view, first, last), itemgetter(0)):
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
        """Of what there are changes: all views, and dead letters."""
        return tuple(self._schemas)

    def _refuse_unknown(self, view: str) -> None:
        if view not in self._schemas:
            raise ConfigError(f"no such view: view={view} views={sorted(self._schemas)}")
        if self._output.changes_elsewhere is not None:
            raise ConfigError(
                f"changes are not kept in this output: output.kind={self._output.kind}", self._output.changes_elsewhere
            )

    def _open(self) -> dict[int, EmbeddedOutputLog]:
        """The logs of all workers that there ever were; those that joined since the last look are opened."""
        with self._lock:
            if self._closed:
                raise UnavailableError("the service has ended", "start it again")
            for worker in output_workers(self._data_dir):
                if worker not in self._logs:
                    self._logs[worker] = EmbeddedOutputLog(self._data_dir, worker)
            return dict(self._logs)

    def close(self) -> None:
        """Close the files; a `read` on its way ends first."""
        with self._lock:
            self._closed = True
            logs, self._logs = self._logs, {}
        for log in logs.values():
            log.close()


def _kept_from(logs: Mapping[int, EmbeddedOutputLog]) -> int:
    return max((log.kept_from() for log in logs.values()), default=0)


def added_up(schema: Schema, parts: Sequence[pa.Table]) -> Batch:
    """Changes as one, in one order: what workers wrote of a step, or what steps changed; the weights are the last column."""
    batches = [Batch.from_arrow(part, schema, part.column(part.num_columns - 1).to_numpy()) for part in parts]
    return consolidate(sum_of(batches, schema))


def _refuse_beyond(first: int, now: Snapshot) -> None:
    """Refuse a consumer that has seen steps which this pipeline never took: it was restored from a backup, or is another one."""
    if first > now.step and now.settled:
        raise PositionError(
            f"the pipeline has not come so far: first={first} next={now.step}",
            "read the view anew and go on from its step: a pipeline that was restored counts on from its backup",
        )
