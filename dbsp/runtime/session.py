"""The function `dbsp.open`: a circuit that runs in this process, in memory, for notebooks and tests.

The run keeps its state in `MemoryDatabase`s and its input in a `MemoryInputLog`. `checkpoint`, `restart` and
`rescale` do the same as the coordinator does for a durable pipeline. So the five equalities can be tried on any
circuit in milliseconds.
"""

from __future__ import annotations

import datetime
import html
import itertools
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, ClassVar, Self

import numpy as np

from dbsp.algebra.table import NO_DELETE, Table
from dbsp.circuit.circuit import Circuit
from dbsp.diagnostics.source_lines import located, user_line
from dbsp.distribute.commands import to_text
from dbsp.distribute.migration_plan import MigrationPlan
from dbsp.errors import CircuitError, DataError
from dbsp.expr.answering import Answering
from dbsp.expr.durations import MICROSECOND
from dbsp.layout import Layout, initial, rescaled, with_readers
from dbsp.logs import DELETE, INSERT, DeadLetter, Range, StepRecord, read_so_far
from dbsp.plan.backfill import backfill_of
from dbsp.plan.changes import CircuitChange, change
from dbsp.plan.plan import Plan
from dbsp.plan.planner import plan as make_plan
from dbsp.plan.signatures import signatures
from dbsp.runtime.idleness import Idleness
from dbsp.runtime.inprocess import InProcessRuntime
from dbsp.runtime.memory_logs import MemoryInputLog, MemoryOutputLog
from dbsp.runtime.pushed import Rows, rows_to_batch
from dbsp.runtime.rowset import Rowset
from dbsp.runtime.runtime import MoveReport, StepReport
from dbsp.runtime.totals import NodeTotals, measured
from dbsp.runtime.work import Work
from dbsp.steps.timing import IDLE_S, Moment, Partitions, Timing
from dbsp.store import CheckpointId
from dbsp.trace.memory import MemoryDatabase
from dbsp.trace.relabel import relabel
from dbsp.version import VERSION
from dbsp.zset.batch import Batch, consolidate
from dbsp.zset.hashing import hash_columns
from dbsp.zset.merge import sum_of

RUN = "in-process"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(slots=True)
class MemoryResources:
    """Worker resources whose databases and logs are objects of this process."""

    inputs: MemoryInputLog
    databases: dict[int, MemoryDatabase] = field(default_factory=dict)
    outputs: dict[int, MemoryOutputLog] = field(default_factory=dict)

    def database(self, worker: int, create: CheckpointId | None = None) -> MemoryDatabase:
        """Return the worker's database, made on first use with `create`."""
        if worker not in self.databases and create is not None:
            self.databases[worker] = MemoryDatabase(create)
        return self.databases[worker]

    def condemn_database(self, worker: int, epoch: int) -> MemoryDatabase | None:
        """Return the worker's database, or None if it has none."""
        found = self.databases.get(worker)
        if found is not None:
            found.raise_epoch(epoch)
        return found

    def discard_database(self, worker: int, epoch: int, condemned: MemoryDatabase | None) -> None:
        """Forget the database of a removed worker."""
        if condemned is not None and self.databases.get(worker) is condemned:
            condemned.raise_epoch(epoch)
            del self.databases[worker]

    def restore_database(self, worker: int, epoch: int, since: int = 0) -> bool:  # noqa: ARG002 - the contract's
        """Return false: there are no standbys."""
        return False

    def discard_stray(self, worker: int, epoch: int, since: int) -> bool:  # noqa: ARG002 - the contract's
        """Return false: all workers are here."""
        return False

    def input_log(self) -> MemoryInputLog:
        """Return the run's input log."""
        return self.inputs

    def output_log(self, worker: int, first_step: int = 0, *, create: bool = False) -> MemoryOutputLog:
        """Return the worker's outputs, made with `create`; raise `DataError` if they are absent."""
        if create:
            self.outputs.setdefault(worker, MemoryOutputLog(first=first_step)).join_at(first_step)
        if worker not in self.outputs:
            raise DataError(f"the worker has no outputs: worker={worker}")
        return self.outputs[worker]


class Run(Answering):
    """A circuit that runs in this process, made by `dbsp.open`. Use it as a context manager, or `close` it."""

    _CALLED: ClassVar[str] = "a Run"
    _OTHERS: ClassVar[tuple[str, ...]] = ("run",)

    def __init__(self, plan: Plan, workers: int, partitions: int, idle_s: float = IDLE_S) -> None:
        """Open an empty state with `workers` workers."""
        self.plan = plan
        self.layout: Layout = with_readers(initial(workers), {table.name: partitions for table in plan.tables})
        self.step_number = 0
        self.reports: list[StepReport] = []
        self.totals = NodeTotals()
        self._inputs = MemoryInputLog(tuple(table.name for table in plan.tables), partitions)
        self._resources = MemoryResources(self._inputs)
        self._runtime = InProcessRuntime(Work(resources=self._resources, plan=plan, run=RUN), encode_parcels=False)
        self._records: list[StepRecord] = []
        self._ways: list[tuple[Layout, Layout | None]] = []
        self._course: MigrationPlan | None = None
        self._timing = self._saved = Timing()
        self._idleness = Idleness(lambda _table: idle_s)
        self._saved_layout = self.layout
        self._done: dict[tuple[str, int], int] = {}
        self._pushes = 0
        self._epoch, self._version = 1, 0
        self._closed = False
        self._runtime.create(self.layout.workers, self._checkpoint_id())
        self._roll_back()

    def __enter__(self) -> Self:
        """Return the run itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Forget everything."""
        self.close()

    def close(self) -> None:
        """Forget everything; a second call does nothing."""
        self._closed = True
        self._runtime.close()

    def __repr__(self) -> str:
        """Return the run's step, number of workers and views as text."""
        views = ", ".join(view.name for view in self.plan.views)
        workers = "closed" if self._closed else f"workers {len(self.layout.workers)}"
        return f"<dbsp.Run: step {self.step_number}, {workers}, views {views}>"

    def _repr_html_(self) -> str:
        """Return the state of the run and its views with their columns, for notebooks."""
        state = "closed" if self._closed else f"{len(self.layout.workers)} workers"
        lines = "".join(
            f"<tr><td>{html.escape(view.name)}</td><td>{html.escape(str(view.schema))}</td></tr>"
            for view in self.plan.views
        )
        head = (
            f"<caption>step {self.step_number}, {state}</caption><thead><tr><th>view</th><th>columns</th></tr></thead>"
        )
        return f"<table>{head}<tbody>{lines}</tbody></table>"

    def _refuse_closed(self) -> None:
        if self._closed:
            with located(user_line()):
                raise CircuitError("the run is closed", "open it anew: dbsp.open(circuit)")

    def push(self, table: str, rows: Rows, *, partition: int | None = None) -> None:
        """Insert rows (replace them where the table has a primary key); the next `step` processes them.

        **Shape** `rows` are a list of dicts, a dict of columns, an Arrow table, or an object that offers one.
        Examples are a data frame of pandas (NaN is null) or Polars, a relation of DuckDB, and a `RecordBatchReader`.

        In dicts decimals, dates and times may be texts, as in JSON: `"3.50"`, `"2024-05-31"`,
        `"2024-05-31T10:00:00"`. A time for a column of `dbsp.TIMESTAMP_UTC` ends with `Z` or `+02:00`. Arrow tables
        are not copied, so their memory must not change.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"day": dbsp.DATE, "paid": dbsp.decimal(6, 2)})
        >>> paid = t.group_by("day").aggregate(paid=dbsp.sum("paid"))
        >>> with dbsp.open(dbsp.circuit("demo", {"paid": paid})) as run:
        ...     run.push("t", [{"day": "2024-05-31", "paid": "3.50"}, {"day": "2024-05-31", "paid": "1"}])
        ...     print(run.step()["paid"].to_rows())
        ...     run.delete("t", [{"day": "2024-05-31", "paid": "3.50"}])
        ...     _ = run.step()
        ...     print(run.view("paid").to_rows())
        [((datetime.date(2024, 5, 31), Decimal('4.50')), 1)]
        [((datetime.date(2024, 5, 31), Decimal('1.00')), 1)]
        """
        self._append(table, rows, INSERT, partition)

    def delete(self, table: str, rows: Rows, *, partition: int | None = None) -> None:
        """Delete rows; where the table has a primary key only the key's columns are needed.

        Without a key whole rows are deleted, and an absent column is null, as in `push`. Deleting an absent row gives
        it weight -1, which cancels with the next equal row that is pushed.
        """
        self._append(table, rows, DELETE, partition)

    def _append(self, name: str, rows: Rows, operation: int, partition: int | None) -> None:
        self._refuse_closed()
        table = self._table(name)
        if table.append_only and operation == DELETE:
            raise CircuitError(f"{NO_DELETE}: table={name}", "declare the table without append_only")
        batch = rows_to_batch(table, rows, operation)
        for at, part in self._parts(table, batch, partition):
            self._inputs.append(name, part, np.full(len(part), operation, dtype=np.int8), at)
        self._pushes += 1

    def _parts(self, table: Table, batch: Batch, partition: int | None) -> list[tuple[int, Batch]]:
        """Return the rows for each partition; all changes of a key are in one partition, because order exists only there."""
        spread = self._inputs.spread
        if partition is not None:
            return [(partition, batch)]
        if spread == 1 or not table.primary_key:
            return [(self._pushes % spread, batch)]
        at = hash_columns([batch.column(name) for name in table.primary_key], len(batch)) % np.uint64(spread)
        return [(number, batch.take(np.flatnonzero(at == number))) for number in range(spread)]

    def _table(self, name: str) -> Table:
        for table in self.plan.tables:
            if table.name == name:
                return table
        raise CircuitError(f"no such table: table={name} tables={[table.name for table in self.plan.tables]}")

    def step(self, *, clock: datetime.datetime | None = None) -> dict[str, Rowset]:
        """Process all pushed rows; return the change of each view.

        **Shape** `clock` is the time of `dbsp.now()` (UTC if it names no zone); the wall clock if it is not given.

        **Errors** `CircuitError` for a clock before the clock of the last step. A step that fails or is interrupted has
        no effect: its rows wait for the next step.
        """
        self._refuse_closed()
        moment = self._moment(clock)
        ranges = tuple(
            Range(table=table, partition=partition, first=self._done.get((table, partition), 0), last=end)
            for (table, partition), end in sorted(self._inputs.ends().items())
            if end > self._done.get((table, partition), 0)
        )
        commands = () if self._course is None else (to_text(self._course.command(self.step_number)),)
        record = self._record(moment, commands, ranges)
        self._records.append(record)
        self._ways.append((self.layout, None) if self._course is None else (self._course.old, self._course.new))
        try:
            report = self._run(record)
        except BaseException:
            self._take_back(record)
            raise
        self._go_on(report)
        return {view.name: Rowset(self.output(record.step, view.name)) for view in self.plan.views}

    def _record(self, moment: Moment, commands: tuple[str, ...], ranges: tuple[Range, ...] = ()) -> StepRecord:
        """Return the record of the next step."""
        return StepRecord(
            epoch=self._epoch, step=self.step_number, layout_version=self.layout.version, ranges=ranges,
            clock_us=moment.clock_us, clock_before_us=moment.clock_before_us, waterlines=moment.waterlines,
            idle=moment.idle, engine=VERSION, commands=commands,
        )  # fmt: skip

    def _moment(self, clock: datetime.datetime | None) -> Moment:
        """Return the time of the next step; raise `CircuitError` for a clock that goes back."""
        if clock is None:
            return self._moment_at(time.time_ns() // 1000)
        zoned = clock if clock.tzinfo is not None else clock.replace(tzinfo=datetime.UTC)
        wanted = (zoned - _EPOCH) // MICROSECOND
        before = self._timing.clock_us
        if before is not None and wanted < before:
            shown = _EPOCH + before * MICROSECOND
            raise CircuitError(f"the clock never goes back: clock={zoned} before={shown}", "give every step a clock")
        return self._moment_at(wanted)

    def _moment_at(self, wall_us: int) -> Moment:
        """Return the time of the next step at this wall clock; partitions without new rows may become idle."""
        clock_us = self._timing.moment(wall_us).clock_us
        partitions = self._look(clock_us)
        tables = {node: event_time.table for node, event_time in self.plan.event_times.items()}
        return self._timing.over(tables, partitions).moment(wall_us)

    def _look(self, clock_us: int) -> Partitions:
        """Return the partitions, and which of them are idle at this clock."""
        tables = {event_time.table for event_time in self.plan.event_times.values()}
        return self._idleness.look(tables, self._inputs.ends(), self._done, clock_us / 1e6, before=self._timing.idle)

    @property
    def due(self) -> datetime.datetime | None:
        """Return the time at which a step is due without a push, because a row enters or leaves a filter over `dbsp.now()`.

        Return None if no row does.
        """
        at = self._timing.due_us
        return None if at is None else _EPOCH + at * MICROSECOND

    def _run(self, record: StepRecord) -> StepReport:
        report = self._runtime.run_step(record, *self._ways[record.step])
        if backfill_of(record.commands) is None:  # a backfill step advances neither the clock nor a waterline
            self._timing = self._timing.recorded(record.moment).finished(report.signals)
        self.reports.append(report)
        self.totals.add(report)
        self.step_number = record.step + 1
        self._done.update({(r.table, r.partition): r.last for r in record.ranges})
        self._look(record.clock_us)  # the partitions of the step rest from now on
        return report

    def _take_back(self, record: StepRecord) -> None:
        """Undo a step that failed: otherwise workers and segments that finished would keep its rows."""
        self._records.pop()
        self._ways.pop()
        for database in self._resources.databases.values():
            database.take_back(record.step)
        for log in self._resources.outputs.values():
            log.take_back(record.step)

    def output(self, step: int, view: str) -> Batch:
        """Return a step's change of a view, summed over the workers."""
        schema = self._view_schema(view)
        logs = (log.parts.get(step, {}) for log in self._resources.outputs.values())
        parts = [part[view] for part in logs if view in part]
        return parts[0] if len(parts) == 1 else consolidate(sum_of(parts, schema))

    def forget_outputs(self) -> None:
        """Drop the outputs and the input rows of finished steps, so that a long run keeps only its state.

        A `restart` afterwards needs a `checkpoint` after the last forgotten step.
        """
        for log in self._resources.outputs.values():
            log.parts.clear()
            log.dead.clear()
        self._inputs.trim(self._done)

    def _view_schema(self, name: str) -> Any:
        for view in self.plan.views:
            if view.name == name:
                return view.schema
        raise CircuitError(f"no such view: view={name} views={[view.name for view in self.plan.views]}")

    def view(self, name: str) -> Rowset:
        """Return the rows of a materialized view now."""
        self._refuse_closed()
        table = self._runtime.read_view(name, self.layout)
        weights = table.column("weight").to_numpy()
        return Rowset(Batch.from_arrow(table.drop_columns(["weight"]), self._view_schema(name), weights))

    def dead_letters(self) -> list[DeadLetter]:
        """Return the dead letters so far, step by step, added up over the workers; see `dbsp.logs.DeadLetter`."""
        sums: Counter[DeadLetter] = Counter()
        for log in self._resources.outputs.values():
            for letter in itertools.chain.from_iterable(log.dead.values()):
                sums[replace(letter, weight=0)] += letter.weight
        found = [replace(letter, weight=weight) for letter, weight in sums.items() if weight]
        return sorted(
            found, key=lambda letter: (letter.step, letter.origin, letter.offset, letter.payload, letter.reason)
        )

    def checkpoint(self) -> None:
        """Store the current state as a version; `restart` returns to the newest one."""
        self._refuse_closed()
        self._version += 1
        self._runtime.commit(self._version, self._checkpoint_id(), self.layout)
        self._saved, self._saved_layout = self._timing, self.layout

    def restart(self) -> None:
        """Restart as after a crash: return to the last checkpoint, under a new epoch, and replay all later steps."""
        self._refuse_closed()
        self._epoch += 1
        self._roll_back()

    def rescale(self, workers: int) -> MoveReport:
        """Rescale cold to `workers` workers: checkpoint, slice the state, and open the new layout; return the figures."""
        self._refuse_two()
        old, new = self.layout, rescaled(self.layout, workers, step=self.step_number)
        report = self._slice(new)
        self._runtime.discard([worker for worker in old.workers if worker not in new.workers])
        return report

    def _slice(self, new: Layout) -> MoveReport:
        """Make a checkpoint, then a version in another layout, and open it under a new epoch."""
        self.checkpoint()
        old, self.layout = self.layout, new
        self._version += 1
        self._saved_layout = new
        self._runtime.create(new.workers, self._checkpoint_id())
        report = self._runtime.redistribute(self._version, self._checkpoint_id(), old, new)
        self._epoch += 1
        self._roll_back()
        return report

    def evolve(self, circuit: Circuit) -> CircuitChange:
        """Replace the circuit: keep state with the same meaning, backfill new state; return the change.

        A separate step emits the rows of the new views, and nothing else. A view with an old name and a new definition is
        a new view. It emits all its rows, and its earlier changes are forgotten.

        **Law** after the change all views are as if the run had had this circuit from the beginning.

        **Errors** `CircuitError` for an impossible change; the run is unchanged. Another error ends the run.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"k": dbsp.INT64}, primary_key="k")
        >>> with dbsp.open(dbsp.circuit("one", {"t": t})) as run:
        ...     run.push("t", [{"k": 1}, {"k": 2}])
        ...     _ = run.step()
        ...     _ = run.evolve(dbsp.circuit("two", {"n": t.aggregate(n=dbsp.count())}))
        ...     run.delete("t", [{"k": 2}])
        ...     print(run.step()["n"].to_rows())
        [((1,), 1), ((2,), -1)]
        """
        self._refuse_two()
        if not self.step_number:
            raise CircuitError(
                "a circuit can be changed only after a step, and no step has run", "open the other circuit"
            )
        plan = make_plan(circuit)
        tables = tuple(table.name for table in plan.tables)
        logged = read_so_far(self._done, self._inputs.floors())
        found = change(signatures(self.plan), plan, self._inputs.untouched(tables), logged)
        self.checkpoint()
        version, self.plan, self._version = self._version, plan, self._version + 1
        for worker in self.layout.workers:
            relabel(self._resources.database(worker), version, self._checkpoint_id(), found.kept, found.narrowed)
        self._runtime = replace(self._runtime, work=replace(self._runtime.work, plan=plan))
        self._timing = self._saved = found.timing(self._timing)
        self.totals, self._epoch, self._inputs.tables = NodeTotals(), self._epoch + 1, tables
        self._roll_back()
        for log in self._resources.outputs.values():
            log.forget_views((*found.views_edited, *found.views_dropped))
        if found.needs_backfill:
            self._fill(self._record(self._timing.still(), (found.backfill.to_text(),)))
        return found

    def _fill(self, record: StepRecord) -> None:
        """Run the backfill step; close the run if it fails."""
        self._records.append(record)
        self._ways.append((self.layout, None))
        try:
            self._run(record)
        except BaseException:
            self.close()
            self._resources.databases.clear()  # the state is neither the old circuit's nor the new one's
            raise

    def begin_rescale(self, workers: int, strategy: str, keys_per_step: int = 1000) -> None:
        """Rescale hot: the next steps move state, at most `keys_per_step` keys of every worker in each.

        **Shape** `strategy` is `icadd` or `redistribute`. `rescaling` is true until a step has moved the last key.

        **Errors** `CircuitError` while another rescale is under way.
        """
        self._refuse_two()
        new = rescaled(self.layout, workers, step=self.step_number)
        migration_plan = MigrationPlan.towards(
            new, self.layout, strategy=strategy, first=self.step_number, budget=keys_per_step
        )
        self._slice(migration_plan.layout)
        self._course = migration_plan

    @property
    def rescaling(self) -> bool:
        """Return whether a hot rescale is under way."""
        return self._course is not None

    def cancel_rescale(self) -> None:
        """Cancel a hot rescale: the next steps move back the state that has moved.

        **Errors** `ConfigError` if it has run no step yet, `CircuitError` if none is under way.
        """
        if self._course is None:
            raise CircuitError("no rescale is under way")
        self._course = self._course.turned_round(self.step_number)
        self.layout = self._course.layout

    def _refuse_two(self) -> None:
        self._refuse_closed()
        if self._course is not None:
            raise CircuitError("a rescale is under way", "run steps until `rescaling` is false, or cancel it")

    def _go_on(self, report: StepReport) -> None:
        """Finish a migration after its last step: checkpoint in the new layout, and delete the removed workers' databases."""
        if self._course is None or report.migration is None:
            return
        if not report.migration.over:
            return
        left = [worker for worker in self.layout.workers if worker not in self._course.new.workers]
        self.layout, self._course = self._course.new, None
        self.checkpoint()
        self._runtime.discard(left)

    def _roll_back(self) -> None:
        self._runtime.fence(self._epoch, self._saved_layout.workers)
        checkpoint = self._runtime.open(self._version, self._epoch, self._saved_layout)
        self._timing = self._saved
        for record in self._records[checkpoint.step :]:
            self._run(record)

    def _checkpoint_id(self) -> CheckpointId:
        return CheckpointId(
            run=RUN, epoch=self._epoch, step=self.step_number, layout_version=self.layout.version,
            fingerprint=self.plan.fingerprint,
        )  # fmt: skip

    def explain(self) -> str:
        """Return the plan as text, with every node's figures so far: rows, time, state, the busiest worker's share."""
        return measured(self.plan, self.totals)


def open_run(circuit: Circuit, workers: int = 1, partitions: int = 1, idle_s: float = IDLE_S) -> Run:
    """Run a circuit in this process, in memory (exported as `dbsp.open`).

    **Shape** the circuit has `workers` copies. Each table's input has `partitions` partitions, to which pushes are
    distributed in turn. Only changes within a partition are in order. The changes of a primary key are in one
    partition, unless the caller names another (`push(…, partition=…)`).

    A partition without new rows holds back the waterline of a table with a watermark for `idle_s` seconds of the
    steps' clock.

    **State** all state is in memory, and is lost with the run.

    **Errors** `CircuitError` for an unknown table or view, or rows that do not fit the table.
    """
    if not isinstance(circuit, Circuit):
        with located(user_line()):
            hint = 'write dbsp.open(dbsp.circuit("name", {"view": stream}))'
            raise CircuitError(f"not a circuit: got={type(circuit).__name__}", hint)
    return Run(make_plan(circuit), workers, partitions, idle_s)
