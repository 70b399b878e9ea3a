"""Carry out the tasks of a worker: open a version, run one segment, commit, read its part of a view.

The same functions run inside one process (`dbsp.runtime.inprocess`) and inside Spark tasks (`dbsp.runtime.spark`). A
runtime only decides where they run, and moves parcels. Every function takes the worker's `Work`, a picklable value,
and reaches files and logs through its worker resources. So a task can run again wherever their paths exist
(docs/concepts/steps.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from dbsp.circuit.names import view_of
from dbsp.distribute.commands import migration_of
from dbsp.errors import ConfigError, DataError, InternalError, MismatchError, UnavailableError
from dbsp.layout import Layout
from dbsp.logs import AcceptsOutput, Changes, DeadLetter, Range, StepRecord
from dbsp.logs.replays import replayed_changes
from dbsp.logs.step_commands import ACCEPT_OUTPUT, dropped_rows, skipped_nodes, without_rows
from dbsp.plan.backfill import backfill_of
from dbsp.plan.plan import Plan, ViewSpec
from dbsp.plan.reading import columns_of
from dbsp.plan.user_code import functions_above
from dbsp.runtime import ahead, parts, transfers
from dbsp.runtime.backfill import BackfillSegment
from dbsp.runtime.dead_counts import LATE_ROWS, counted
from dbsp.runtime.dead_rows import sendable
from dbsp.runtime.disks import failing_disk
from dbsp.runtime.event_times import signals_of
from dbsp.runtime.loop_state import after_loops, flush
from dbsp.runtime.moved import Migration, moved_over
from dbsp.runtime.runtime import NOTHING, BehindOrder, LagsCopies, Stray, WorkerReport
from dbsp.runtime.table_batches import table_batches, whole_table
from dbsp.runtime.work import Work
from dbsp.steps import figures
from dbsp.steps.error_policy import judge
from dbsp.steps.exchange import Address, Carried, Owners, Parcel, check_arrival, gather, split
from dbsp.steps.segment import NOTHING_GIVEN, Arrived, SegmentResult, run_segment
from dbsp.store import CheckpointId, CommitReport, Database, VersionInfo
from dbsp.trace.redistribute import Readable, WarmReport, redistribute, warm_up
from dbsp.trace.relabel import Relabeling, relabel
from dbsp.trace.slicing import HashRange, shared_ranges
from dbsp.zset.batch import Batch, arrange, concat, consolidate

PIECE_BYTES = 16 << 20
"""Approximate bytes in one piece of a copy that is made while steps run."""
COMMIT_PIECE_BYTES = 128 << 20
"""Approximate bytes of a piece while no step waits; LMDB holds the piece in memory until it is written."""

Sent = TypeVar("Sent")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOrder:
    """A step to run: its durable record, the epoch that runs it now, the layout, and the migration if it is a step of one."""

    record: StepRecord
    epoch: int
    layout: Layout
    migration: Migration | None = None

    def __post_init__(self) -> None:
        """Refuse a record with a migration command if there is no migration data."""
        if self.migration is None and migration_of(self.record.commands) is not None:
            raise InternalError(f"keys move in a step that was given one layout alone: step={self.record.step}")

    @property
    def owners(self) -> Owners:
        """Return the router of exchanged rows to workers."""
        return self.layout if self.migration is None else self.migration.places


def run_first_segment(
    work: Work, order: StepOrder, worker: int, send: Callable[[Parcel], Sent], held: ahead.HeldInput | None = None
) -> list[Sent] | WorkerReport:
    """Run segment 0: read the worker's input ranges, run up to the first exchange; `held` is the result of `read_before`.

    `send` encodes each parcel, one per worker of the layout in order. It is called while the database is still being
    read, because batches may be views of its memory.
    """
    watch = figures.Stopwatch()
    changes = [*read_changes(work, order, worker, held), *_replayed(work, order, worker)]
    tables = table_batches(work.plan, changes)
    narrow = {change.table for change in changes if change.whole is not None}
    whole = {name: partial(whole_table, work.plan, name, changes) for name in narrow}
    dead = (*(letter for change in changes for letter in change.dead), *_dropped(order, worker))
    rows = sum(len(change.batch) for change in changes)
    backfilled = backfill_of(order.record.commands) is not None  # rows that a backfill reads moved waterlines before
    seen = () if backfilled else signals_of(work.plan, order.record, changes, tables)
    reads = () if backfilled else figures.reads_of(changes)
    carried = Carried(dead=dead, rows_in=rows, signals=seen, reads=reads, phases=(watch.phase(figures.READ),))
    return _run(work, order, 0, worker, Arrived(tables=tables, exchanges={}, whole=whole), carried, send)


def run_later_segment(
    work: Work,
    order: StepOrder,
    segment: int,
    worker: int,
    parcels: Sequence[Parcel],
    send: Callable[[Parcel], Sent],
    turn: int = 0,
) -> list[Sent] | WorkerReport:
    """Run segment s > 0: check the parcels, run up to the next exchange or to the end.

    `turn` counts the tasks of the loops before this segment.

    **Errors** `RowsError` if rows failed before it, under the error policy `stop`.
    """
    watch = figures.Stopwatch()
    expected = replace(_address(work, order, segment - 1, worker, worker), round=turn)
    check_arrival(parcels, expected, order.layout)
    judge(row for parcel in parcels for row in parcel.failed)
    carried = next(p.carried for p in parcels if p.address.source == worker and p.carried is not None)
    between = watch.since(carried.phases[-1], figures.LOOP if turn else figures.EXCHANGE)
    carried = replace(carried, phases=(*carried.phases, between))
    if turn == 0:
        exchanges = gather(parcels, work.plan, segment - 1)
        return _run(work, order, segment, worker, Arrived(tables={}, exchanges=exchanges), carried, send)
    rest, exchanges = after_loops(work.plan, segment - 1, carried)
    return _run(work, order, segment, worker, Arrived(tables={}, exchanges=exchanges), rest, send)


def _run(
    work: Work,
    order: StepOrder,
    segment: int,
    worker: int,
    arrived: Arrived,
    carried: Carried,
    send: Callable[[Parcel], Sent],
) -> list[Sent] | WorkerReport:
    """Run a segment in one transaction; send its parcels, or write the outputs after the last one."""
    started, watch = time.perf_counter(), figures.Stopwatch()
    database = work.resources.database(worker)
    record = order.record
    traces = work.plan.traces(segment)
    backfill = backfill_of(record.commands)
    backfilled = None if backfill is None else BackfillSegment.of(work.plan, segment, backfill)
    shared = work.plan.shared(segment) if backfilled is None else backfilled.shared()
    with database.begin(order.epoch, record.step, segment, traces, shared) as begun:
        moved = moved_over(order.migration, worker, begun, traces)
        transaction = moved if backfilled is None else backfilled.emptied(moved)
        result = run_segment(
            work.plan,
            segment,
            step=record.step,
            moment=record.moment,
            arrived=arrived,
            transaction=transaction,
            skipped=skipped_nodes(record.commands),
            given=NOTHING_GIVEN if backfilled is None else backfilled.given(begun),
        )
        result = result if backfilled is None else backfilled.result(result)
        flush(work.plan, segment - 1, carried.loop_state, transaction)
        seconds = time.perf_counter() - started
        made = Carried(
            parts=result.views, dead=result.dead, nodes=result.nodes, seconds=seconds, signals=result.signals,
            phases=(watch.phase(figures.SEGMENT, segment),),
        )  # fmt: skip
        total = replace(carried, loop_state={}).plus(made)
        last = segment == work.plan.segments - 1
        sent = [] if last else [send(parcel) for parcel in _parcels(work, order, segment, worker, result, total)]
        if last and backfilled is not None:
            total = replace(total, parts=backfilled.outputs(total.parts, begun))
        if last:
            _write_outputs(work, order, worker, total)
            written = watch.phase(figures.OUTPUT, segment)
        transaction.finish()
    if last and order.migration is not None:
        order.migration.keep(database, worker, order.epoch, record.step)
    if not last:
        return sent
    phases = (*total.phases, written, watch.phase(figures.STATE, segment))
    return _report(worker, replace(total, phases=phases), database)


def _parcels(
    work: Work, order: StepOrder, segment: int, worker: int, result: SegmentResult, carried: Carried
) -> list[Parcel]:
    """Make one parcel per worker of the layout; the worker's parcel to itself carries data for the end of the step."""
    here = [spec for spec in work.plan.exchanges if spec.depth == segment and spec.id in result.sent]
    shares = {
        spec.id: own_rows(result.sent[spec.id], worker, order.layout)
        if spec.local
        else split(result.sent[spec.id], spec, order.owners)
        for spec in here
    }
    enters = {outer for loop in work.plan.loops_after(segment) for outer, _ in loop.enters}
    works = any(len(result.sent[number]) for number in enters)
    return [
        Parcel(
            address=_address(work, order, segment, worker, destination),
            batches={number: share[slot] for number, share in shares.items() if len(share[slot])},
            carried=carried if destination == worker else None,
            least=0 if works else -1,
            failed=result.failed,
        )
        for slot, destination in enumerate(order.layout.workers)
    ]


def own_rows(batch: Batch, worker: int, layout: Layout) -> list[Batch]:
    """Return one batch per worker: all rows for the worker itself, none for the others."""
    return [batch if other == worker else batch.slice(0, 0) for other in layout.workers]


def _address(work: Work, order: StepOrder, depth: int, source: int, destination: int) -> Address:
    return Address(
        run=work.run, epoch=order.epoch, step=order.record.step, layout_version=order.layout.version,
        depth=depth, source=source, destination=destination,
    )  # fmt: skip


def _write_outputs(work: Work, order: StepOrder, worker: int, carried: Carried) -> None:
    first, step = _first_step(order.layout, worker), order.record.step
    if ACCEPT_OUTPUT in order.record.commands:
        log = work.resources.output_log(worker, first)
        if not isinstance(log, AcceptsOutput):
            raise ConfigError(
                f"outputs of this kind cannot be corrected by later steps: step={step}",
                "make the functions deterministic and start from a backup, or with new outputs",
            )
        log.accept(order.epoch, step, carried.parts, carried.dead)
        return
    place = parts.OutputPlace(worker=worker, first=first, epoch=order.epoch, step=step)
    try:
        parts.write(work.background, work.resources, place, carried.parts, carried.dead)
    except MismatchError as error:
        raise _named(work, place, carried, error) from error


def _named(work: Work, place: parts.OutputPlace, carried: Carried, error: MismatchError) -> MismatchError:
    """Return the error with the views that differ, and the user functions that compute their rows."""
    log, written = work.resources.output_log(place.worker, place.first), sorted(carried.parts)
    views = log.differing(place.step, carried.parts, carried.dead) if isinstance(log, AcceptsOutput) else written
    functions = sorted({label for view in views for label in functions_above(work.plan, view_of(view))})
    return MismatchError(
        f"{error.message} views={', '.join(views)} functions={'; '.join(functions) or 'none'}",
        "a function that is not deterministic does that; `coordinator accept-output` writes the difference, and continues",
    )


def _first_step(layout: Layout, worker: int) -> int:
    """Return the step at which the worker's outputs begin.

    An output log on Kafka needs this number when another process opens it, as long as the log has no record.
    """
    return layout.first_steps[layout.workers.index(worker)]


def _report(worker: int, carried: Carried, database: Database) -> WorkerReport:
    dead = counted(carried.dead)
    letters = sendable(carried.dead)
    return WorkerReport(
        worker=worker, rows_in=carried.rows_in, rows_out=sum(map(len, carried.parts.values())),
        dead=sum(each.rows for each in dead), seconds=carried.seconds, state_bytes=database.state_bytes(),
        nodes=carried.nodes, signals=carried.signals, late=sum(each.rows for each in dead if each.kind == LATE_ROWS),
        dead_of=dead, letters=letters, letters_left=len(carried.dead) - len(letters), reads=carried.reads,
        phases=carried.phases,
        view_bytes=tuple((view_of(name), part.arrow_bytes) for name, part in carried.parts.items() if len(part)),
    )  # fmt: skip


def read_changes(work: Work, order: StepOrder, worker: int, held: ahead.HeldInput | None = None) -> list[Changes]:
    """Return the changes of the worker's ranges, in (table, partition, offset) order.

    Changes that were read ahead, by the worker or its background worker, are used; the others are read here. A
    backfill step reads the rows of its past, without dead letters, because these were reported when the rows arrived.
    """
    step, backfill = order.record.step, backfill_of(order.record.commands)
    ranges = order.record.ranges if backfill is None else backfill.past
    mine = _ranges_read(order.record, ranges, order.layout, worker)
    if backfill is None:
        found = None if held is None else held.taken(step, mine)
        found = ahead.taken(work.readers, worker, mine, step, order.epoch) if found is None else found
        return _read(work, mine, step) if found is None else found
    return [replace(change, dead=()) for change in _read(work, mine, step)]


def _ranges_read(record: StepRecord, ranges: Sequence[Range], layout: Layout, worker: int) -> tuple[Range, ...]:
    """Return the parts of these ranges that the worker reads, without the rows that the step leaves out."""
    return ahead.ranges_of(without_rows(ranges, dropped_rows(record.commands)), layout, worker)


def _replayed(work: Work, order: StepOrder, worker: int) -> Iterator[Changes]:
    """Yield the rows of replayed dead letters, at the worker that reads their partitions."""
    for change in replayed_changes(order.record.commands, {table.name: table for table in work.plan.tables}):
        if order.layout.reader_of(change.table, change.partition) == worker:
            yield change


def _dropped(order: StepOrder, worker: int) -> Iterator[DeadLetter]:
    """Yield the dead letters of the rows that the step leaves out, at the worker that would have read them."""
    for row in dropped_rows(order.record.commands):
        if order.layout.reader_of(row.table, row.partition) == worker:
            yield DeadLetter(
                step=order.record.step, origin=row.table, partition=row.partition, offset=row.offset, reason=row.reason,
                payload=row.payload,
            )  # fmt: skip


def _read(work: Work, ranges: Sequence[Range], step: int) -> list[Changes]:
    """Return the changes of a worker's ranges, with the needed columns of their tables."""
    log, columns = work.resources.input_log(), _columns(work, ranges)
    return [change for range_ in ranges for change in ahead.read(log, range_, step, columns)]


def read_before(work: Work, order: StepOrder, worker: int) -> ahead.HeldInput | None:
    """Return the worker's input of a step that runs later; None for a backfill step."""
    step = order.record.step
    if backfill_of(order.record.commands) is not None:
        return None
    mine = _ranges_read(order.record, order.record.ranges, order.layout, worker)
    return ahead.HeldInput(step, mine, _read(work, mine, step))


def _columns(work: Work, ranges: Sequence[Range]) -> ahead.Columns:
    """Return the needed columns of the tables of these ranges."""
    return columns_of(work.plan, {range_.table for range_ in ranges})


def read_ahead(work: Work, worker: int, record: StepRecord, epoch: int, layout: Layout) -> None:
    """Let the background worker read the input of the next step, whose record is durable."""
    mine = _ranges_read(record, record.ranges, layout, worker)
    ahead.begin(work.readers, work.resources, worker, mine, record.step, epoch, _columns(work, mine))


def create(work: Work, worker: int, checkpoint: CheckpointId) -> None:
    """Make the worker's database with version 0, if the worker has no database."""
    with failing_disk(worker):
        work.resources.database(worker, checkpoint)


def fence(work: Work, worker: int, epoch: int, since: Mapping[int, int] = NOTHING) -> bool:
    """Raise the worker's epoch; return whether its lost or stale database was first restored from a standby or copies."""
    with failing_disk(worker):
        restored = work.resources.restore_database(worker, epoch, since.get(worker, 0))
        if not _is_lost(work, worker):
            work.resources.database(worker).raise_epoch(epoch)
    return restored


def relabeled(work: Work, worker: int, order: Relabeling) -> None:
    """Raise the worker's epoch, and make its next version: the state of a changed circuit."""
    database = work.resources.database(worker)
    database.raise_epoch(order.checkpoint.epoch)
    relabel(database, order.version, order.checkpoint, order.kept, order.narrowed)


def discard_stray(work: Work, worker: int, stray: Stray, epoch: int) -> None:
    """Delete the database that a worker left here when it moved to another host."""
    with failing_disk(worker):
        work.resources.discard_stray(worker, epoch, stray.since)


def fence_other(work: Work, worker: int, epoch: int) -> bool:
    """Raise the epoch of a worker that nothing needs; return whether its database can be opened."""
    try:
        fence(work, worker, epoch)
        versions(work, worker)
    except (DataError, UnavailableError):
        return False
    return True


def condemn(work: Work, worker: int, epoch: int) -> Any:
    """Return a picklable value that identifies the worker's database, which `discard` is to delete."""
    return work.resources.condemn_database(worker, epoch)


def discard(work: Work, worker: int, epoch: int, condemned: Mapping[int, Any]) -> None:
    """Delete the worker's condemned database, unless it has seen a newer epoch."""
    work.resources.discard_database(worker, epoch, condemned[worker])


def versions(work: Work, worker: int) -> tuple[VersionInfo, ...]:
    """Return the versions that the worker can open; empty if its database is lost and all workers may return to the copies."""
    return () if _is_lost(work, worker) else work.resources.database(worker).versions()


def _is_lost(work: Work, worker: int) -> bool:
    return isinstance(work.resources, LagsCopies) and work.resources.is_lost(worker)


def open_version(work: Work, worker: int, version: int, epoch: int, layout: Layout) -> CheckpointId:
    """Open the worker at a version, if its outputs reach that far; discard other versions and later steps."""
    database = work.resources.database(worker)
    for info in database.versions():
        if info.version == version:
            check_outputs(work, worker, info.checkpoint.step, layout)
    transfers.end_transfers(work, worker, epoch - 1)
    return database.open(version, epoch)


def check_outputs(work: Work, worker: int, step: int, layout: Layout) -> None:
    """Check that the worker's outputs of all steps below a checkpoint exist, as they did when it was taken (invariant 11).

    The log begins at the step at which the worker joins, and is created only then.

    **Errors** `DataError` names the worker, the log's place, and both steps.
    """
    first = _first_step(layout, worker)
    joins = step <= first
    wanted = max(step, first)
    hint = (
        "put [output] back if it was changed, restore the outputs from a backup, or start over with an empty data_dir"
    )
    try:
        log = work.resources.output_log(worker, first, create=joins)
        found = log.bounds()[1]
    except (ConfigError, DataError) as error:
        if joins:
            raise
        raise DataError(
            f"a worker's outputs are gone: worker={worker} wanted={wanted}: {error.message}", hint
        ) from error
    if found < wanted:
        raise DataError(
            f"a worker's outputs end below the checkpoint: worker={worker} {log.place} found={found} wanted={wanted}",
            hint,
        )


def pin(work: Work, worker: int, version: int, checkpoint: CheckpointId, layout: Layout) -> None:
    """Pin the worker's state for `version`; trim output progress that only replays from before `version - 1` would compare.

    All workers have held `version - 1` since it was published, and return to no older version (invariant 12). If copies lag,
    the workers may return to the newest version that is whole in the copies. The outputs are trimmed here, between two steps,
    and not by `copy`, because a worker's output log has one user at a time.
    """
    database = work.resources.database(worker)
    database.pin(version, checkpoint)
    oldest = next((info.checkpoint.step for info in database.versions() if info.version == version - 1), 0)
    if isinstance(work.resources, LagsCopies):
        needed = work.resources.outputs_needed_from(worker, checkpoint.epoch)
        oldest = oldest if needed is None else min(oldest, needed)
    if oldest > 0:
        work.resources.output_log(worker, _first_step(layout, worker)).trim_progress(oldest)


def copy(work: Work, worker: int, version: int, checkpoint: CheckpointId) -> CommitReport | None:
    """Copy a piece of the worker's pinned state; return the report once it is `version`, else None."""
    return work.resources.database(worker).copy(version, checkpoint, PIECE_BYTES)


def copy_behind(work: Work, worker: int, order: BehindOrder) -> int:
    """Copy a piece of a published version to the copies that lag; return the bytes that are still missing."""
    if not isinstance(work.resources, LagsCopies):
        raise InternalError("a version should be copied after its checkpoint, but the workers have no copies that lag")
    return work.resources.copy_behind(worker, order, PIECE_BYTES)


def commit(work: Work, worker: int, version: int, checkpoint: CheckpointId, layout: Layout) -> CommitReport | None:
    """Pin the worker's state, and copy a large piece of it; return the report once it is `version`.

    No step runs meanwhile.
    """
    database = work.resources.database(worker)
    if VersionInfo(version=version, checkpoint=checkpoint) not in database.versions():
        pin(work, worker, version, checkpoint, layout)
    return database.copy(version, checkpoint, COMMIT_PIECE_BYTES)


def view_part(work: Work, worker: int, view: ViewSpec, epoch: int) -> Batch:
    """Return the worker's rows of a materialized view after its last finished step in an epoch, consolidated."""
    if view.trace is None:
        raise InternalError(f"the view has no trace: view={view.name}")
    database = work.resources.database(worker)
    database.attach(epoch)
    with database.read_trace(view.trace) as spine:
        arrangement = view.trace.arrangement
        parts = list(spine.parts())
        rows = concat(parts, arrangement.schema) if parts else Batch.empty(arrangement.schema, arrangement.weights)
        if view.shows is not None:
            rows = view.shows.shown(arrange(rows, arrangement), work.plan.circuit.error_policy)
        return consolidate(rows.loose())


def materialized_view(plan: Plan, name: str) -> ViewSpec:
    """Return the specification of a view that can be read as a table; raise `ConfigError` for other names."""
    found = {view.name: view for view in plan.views if view.trace is not None}
    if name not in found and name in {view.name for view in plan.views}:
        hint = "look at what the steps change in it, or name it in `materialize` (in SQL `create materialized view`)"
        raise ConfigError(f"there is such a view, but it is not materialized: view={name} views={sorted(found)}", hint)
    if name not in found:
        raise ConfigError(f"no such view: view={name} views={sorted(found)}")
    return found[name]


def take_over(
    work: Work,
    worker: int,
    version: int,
    checkpoint: CheckpointId,
    old: Layout,
    new: Layout,
    cut: CheckpointId | None = None,
) -> CommitReport:
    """Make `version` in a worker of the new layout from slices of the old layout's version - 1, or of its pinned `cut`.

    **Law** invariant 2: the ranges taken from the old workers are disjoint and together are what the worker owns.

    **Cost** the bytes that move are copied; for the rest, the version refers to existing chunks.
    """
    target = work.resources.database(worker)
    source_workers = _givers(work, worker, checkpoint.epoch, old, new)
    return redistribute(
        source_workers, target, version, checkpoint, work.plan.all_traces(), cut=cut, opened=worker in old.workers
    )


def warm(work: Work, worker: int, version: int, epoch: int, old: Layout, new: Layout) -> WarmReport:
    """Copy a piece of the state that the worker will take over, from a version that all sources hold.

    The copied chunks are warm: no version refers to them yet.
    """
    target, source_workers = work.resources.database(worker), _givers(work, worker, epoch, old, new)
    return warm_up(
        source_workers, target, version, epoch, new.version, work.plan.all_traces(),
        bytes_max=PIECE_BYTES, opened=worker in old.workers,
    )  # fmt: skip


def hold_merges(work: Work, worker: int, epoch: int, old: Layout, new: Layout) -> None:
    """Hold the worker's merges, so that existing chunks stay, and let new chunks end where a new owner's range begins."""
    work.resources.database(worker).hold_merges(epoch, new.version, cuts_between(worker, old, new))


def cuts_between(worker: int, old: Layout, new: Layout) -> list[int]:
    """Return the hashes inside a worker's ranges at which the new owner changes.

    >>> from dbsp.layout import initial, rescaled
    >>> one = initial(1, shards=4)
    >>> [hex(cut) for cut in cuts_between(0, one, rescaled(one, 3, step=0))]
    ['0x8000000000000000', '0xc000000000000000']
    """
    own = old.ranges_of(worker)
    shared = [part for other in new.workers for part in shared_ranges(new.ranges_of(other), own)]
    outer = {end for range_ in own for end in range_}
    return sorted({end for part in shared for end in part} - outer)


def cool(work: Work, worker: int, epoch: int, layout_version: int) -> None:
    """Delete the state that was copied ahead for this layout, and let merges go on."""
    transfers.end_transfers(work, worker, epoch)
    database = work.resources.database(worker)
    database.forget_warm(epoch, layout_version)
    database.end_hold(epoch, layout_version)


def _givers(
    work: Work, worker: int, epoch: int, old: Layout, new: Layout
) -> dict[int, tuple[Readable, list[HashRange]]]:
    """Return the sources of a worker's ranges: databases of this host, and shard transfers from other hosts."""
    wanted = new.ranges_of(worker)
    taken = [(source_worker, shared_ranges(wanted, old.ranges_of(source_worker))) for source_worker in old.workers]
    far = set() if work.common_disk else {route.source_worker for route in transfers.routes(old, new, [worker])}
    return {
        source_worker: (_giver(work, worker, source_worker, epoch, source_worker in far), ranges)
        for source_worker, ranges in taken
        if ranges
    }


def _giver(work: Work, worker: int, source_worker: int, epoch: int, far: bool) -> Readable:
    return (
        transfers.transfer_of(work, transfers.Route(source_worker, worker), epoch)
        if far
        else work.resources.database(source_worker)
    )
