"""Run a step of a hot rescale: state moves at the step's start, and then the step runs as usual, routed by `KeyPlaces`.

There are three parts:

- `ask` runs on every worker. It returns the worker's migration state after the step before, and the part of its traces as of
  step-1 that the command needs.
- `decide` runs once, in the driver. It gives the command to the distributors of all workers, and runs their rounds of messages
  (`dbsp.distribute.rounds`) with the answers of `ask`. The messages contain no rows.
- The result, a `Migration`, is passed to the step's tasks. It says where rows are routed, what each worker took over and
  dropped, and which migration state it keeps.

The whole circuit is one region of the migration. The owner of a row depends on its key hash alone, so a hash moves in all
traces at once. The keys of a worker are the key hashes of all its traces.

Only the record and the databases as of step-1 determine the decision. `Driver` holds the moving keys during the steps
of one epoch, only to save reading them at every step.

Left out: when to migrate and at what pace. Source: docs/concepts/rescale.md; design record 0015. Invariants 2, 3 and
9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from dbsp.distribute.commands import (
    BeginCommand,
    CancelCommand,
    EnterCommand,
    MigrateCommand,
    MoveCommand,
    event_of,
    migration_of,
)
from dbsp.distribute.encoding import decode, encode
from dbsp.distribute.keys import NO_KEYS, Keys, Numbers, contains, distinct, owner_of, without
from dbsp.distribute.keys import keys_of as hashes_of
from dbsp.distribute.messages import (
    AddKeys,
    Collect,
    Collected,
    Downstream,
    Drop,
    Event,
    Interrogate,
    Interrogated,
    Move,
    Take,
)
from dbsp.distribute.names import ICADD
from dbsp.distribute.places import all_keys, finds_out, places_of, with_keys, yet_to_give
from dbsp.distribute.rounds import run_rounds
from dbsp.distribute.strategies import AnyDistributor, distributor, joint
from dbsp.errors import DataError, InternalError
from dbsp.layout import Layout
from dbsp.logs import StepRecord
from dbsp.runtime.migration_state import NEVER, MigrationState, kept_after, keys_kept
from dbsp.runtime.moved import Migration, Rows
from dbsp.runtime.runtime import MigrationReport
from dbsp.runtime.work import Work
from dbsp.store import TraceSpec
from dbsp.trace.spine import Spine
from dbsp.zset.batch import Batch, rearrange
from dbsp.zset.merge import merge

STATE_BYTES_MAX = 64 << 20
"""Approximate maximum of bytes that a worker gives away in one step; a single key may have more."""

_LOOKED_UP_AT_ONCE = 1024


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """A worker's answer before a step: its migration state, and the data that the command needs.

    - `keys`: the keys of the worker's traces that have to leave the worker, in a step that determines them.
    - `coming`: the next keys to leave. The first `budget` of them leave in this step; one further key is known.
    - `rows`: the state of the keys that leave in this step, by trace.
    """

    kept: MigrationState | None = None
    keys: Keys = field(default_factory=lambda: NO_KEYS)
    coming: Keys = field(default_factory=lambda: NO_KEYS)
    budget: int = 0
    rows: Rows = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A decided step of a migration: the layout of its tasks, their migration data, and the report."""

    layout: Layout
    migration: Migration
    report: MigrationReport


def command_of(record: StepRecord) -> MigrateCommand:
    """Return the record's command; raise `DataError` if it holds none."""
    command = migration_of(record.commands)
    if command is None:
        raise DataError(f"a step between two layouts without a command: step={record.step}")
    return command


# On a worker.


def ask(work: Work, worker: int, record: StepRecord, epoch: int, old: Layout, new: Layout) -> Answer:
    """Return the answer of a worker, which `decide` needs.

    **Cost** a step that determines keys reads the hashes of all stored rows; a migration has at most three such steps. Any
    other step looks up the keys that move.
    """
    command, database = command_of(record), work.resources.database(worker)
    database.attach(epoch)
    kept = None if isinstance(command, BeginCommand) else kept_after(database, record.step - 1)
    if kept is None and command.strategy == ICADD:
        return Answer()
    if _finds(command):
        turns_before_it_moves = kept is not None and isinstance(command, CancelCommand) and finds_out(_part(kept))
        if turns_before_it_moves:
            return Answer(kept=kept)
        found = _all_keys(work, worker, record.step, epoch)
        leaving = (owner_of(old, found) == worker) & (owner_of(new, found) != worker)
        return Answer(kept=kept, keys=found[leaving])
    if kept is None or kept.found == NEVER:
        return Answer(kept=kept)
    wanted = command.budget if isinstance(command, MoveCommand) else 0
    coming = keys_kept(database, kept, wanted + 1)
    budget, rows = _bounded_rows(work, worker, record.step, epoch, coming[:wanted])
    return Answer(kept=kept, coming=coming[: budget + 1], budget=budget, rows=rows)


def keys_of_worker(work: Work, worker: int, epoch: int, step: int) -> Keys:
    """Return the keys that a worker had yet to give away after a step."""
    database = work.resources.database(worker)
    database.attach(epoch)
    return keys_kept(database, kept_after(database, step))


def _finds(command: MigrateCommand) -> bool:
    """Return whether the step of this command determines the keys that move.

    ICADD determines keys when it enters its second phase, not when it begins, so that keys which arrive in between
    are included.
    """
    match command:
        case BeginCommand():
            return command.strategy != ICADD
        case EnterCommand():
            return command.strategy == ICADD
        case CancelCommand():
            return True
        case MoveCommand():
            return False


def _spines(work: Work, worker: int, step: int, epoch: int) -> Iterator[tuple[TraceSpec, Spine]]:
    """Yield every trace as of step-1; nothing read through it may be kept."""
    database, plan = work.resources.database(worker), work.plan
    for segment in range(plan.segments):
        traces = plan.traces(segment)
        with database.begin(epoch, step, segment, traces) as transaction:
            for trace in traces:
                yield trace, transaction.spine(trace)


def _all_keys(work: Work, worker: int, step: int, epoch: int) -> Keys:
    """Return the key hashes of all traces. **Cost** reads the hashes of all stored rows."""
    found: list[Keys] = [NO_KEYS]
    for _, spine in _spines(work, worker, step, epoch):
        found += [distinct(part.words[0]).copy() for part in spine.parts()]
    return hashes_of(np.concatenate(found))


def _bounded_rows(work: Work, worker: int, step: int, epoch: int, keys: Keys) -> tuple[int, Rows]:
    """Return how many of these keys can move within a step's bound on bytes, and their rows.

    The bound uses the consolidated rows, not their storage, so the same keys move when the step runs again.
    """
    parts: dict[int, list[Batch]] = {}
    count, at_once, room = 0, _LOOKED_UP_AT_ONCE, STATE_BYTES_MAX
    while count < len(keys):
        some = keys[count : count + at_once]
        found = _rows(work, worker, step, epoch, some)
        sizes = np.cumsum(sum((_bytes_of_keys(batch, some) for batch in found.values()), np.zeros(len(some), np.int64)))
        fit = int(np.searchsorted(sizes, room, side="right"))
        if fit == 0 and count == 0:
            fit = 1
        for trace, batch in found.items():
            parts.setdefault(trace, []).append(batch.filter(contains(some[:fit], batch.words[0])))
        count += fit
        if fit < len(some):
            break
        room, at_once = room - int(sizes[-1]), 2 * at_once
    rows = {trace: reduce(merge, batches) for trace, batches in parts.items()}
    return count, {trace: batch for trace, batch in rows.items() if len(batch)}


def _bytes_of_keys(batch: Batch, keys: Keys) -> Numbers:
    """Estimate the bytes of each key's rows, with the average size of a row."""
    counts = np.bincount(np.searchsorted(keys, batch.words[0]), minlength=len(keys))
    sizes: Numbers = counts.astype(np.int64) * batch.nbytes // len(batch)
    return sizes


def _rows(work: Work, worker: int, step: int, epoch: int, keys: Keys) -> dict[int, Batch]:
    """Return every trace's rows of these keys. **Cost** that of a look-up of the keys."""
    found: dict[int, Batch] = {}
    if not len(keys):
        return found
    for trace, spine in _spines(work, worker, step, epoch):
        rows = rearrange(spine.matches(keys)[1], trace.arrangement)
        if len(rows):
            found[trace.id] = rows
    return found


# In the driver.


@dataclass(slots=True)
class _Operators:
    """A stand-in for a worker's operators, with which its distributor talks; it replies from the worker's `Answer`."""

    worker: int
    answer: Answer
    keys: Keys
    taken: dict[int, list[Batch]] = field(default_factory=dict)
    moved_keys: int = 0
    moved_rows: int = 0
    moved_bytes: int = 0

    def ordered(self, order: Downstream) -> Sequence[Event]:
        """Carry out an order: report keys, hand out rows, take rows over, or drop rows that were handed out."""
        rows = self.answer.rows
        match order:
            case Interrogate():
                return [AddKeys(keys=self.keys), Interrogated()]
            case Collect(keys=keys):
                if not np.array_equal(keys, self.answer.coming[: len(keys)]):
                    raise InternalError(f"other keys go than were asked for: worker={self.worker} keys={len(keys)}")
                return [Collected(keys=keys, state=rows)]
            case Take(keys=keys, state=state):
                self.moved_keys += len(keys)
                for trace, batch in state.items():
                    mine = batch.filter(contains(keys, batch.words[0]))
                    self.moved_rows, self.moved_bytes = self.moved_rows + len(mine), self.moved_bytes + mine.nbytes
                    self._change(trace, mine)
            case Drop(keys=keys):
                for trace, batch in rows.items():
                    self._change(trace, batch.filter(contains(keys, batch.words[0])).negate())
        return []

    def passed(self, keys: Keys, rows: Numbers) -> None:
        """Raise `InternalError`: no row is being routed while state moves."""
        raise InternalError(f"rows passed before the step: worker={self.worker} rows={len(rows)} keys={len(keys)}")

    def _change(self, trace: int, batch: Batch) -> None:
        if len(batch):
            self.taken.setdefault(trace, []).append(batch)

    def changes(self) -> Rows:
        """Return the rows taken over minus the rows dropped, per trace."""
        return {trace: reduce(merge, batches) for trace, batches in self.taken.items()}


@dataclass(slots=True)
class Driver:
    """The driver's part of migrations, which decides one step after another; a new one may replace it between steps.

    **State** the moving keys, as determined at a step of an epoch: eight bytes each.
    """

    _at: tuple[int, int] | None = None
    _keys: Keys = field(default_factory=lambda: NO_KEYS)

    def moving(self, epoch: int, found: int, fetch: Callable[[], Mapping[int, Keys]]) -> Keys:
        """Return the keys determined at step `found`; after a fetch, perhaps only those that had not moved yet."""
        if self._at != (epoch, found):
            self.found(epoch, found, all_keys(fetch().values()))
        return self._keys

    def found(self, epoch: int, step: int, keys: Keys) -> None:
        """Store the keys that were determined at this step, or were fetched from the workers."""
        self._at, self._keys = (epoch, step), keys


def decide(
    driver: Driver,
    record: StepRecord,
    epoch: int,
    old: Layout,
    new: Layout,
    answers: Mapping[int, Answer],
    fetch: Callable[[], Mapping[int, Keys]],
) -> Decision:
    """Give the step's command to all distributors; return what moves in the step, and each worker's state after it.

    `fetch` reads the keys that every worker has yet to give away, if the driver does not have them.

    **Errors** `DataError` if the migration leads to another layout than `new`.
    """
    command, layout = command_of(record), joint(old, new)
    finds = _finds(command)
    found = record.step if finds else _agreed(answers)
    moving = NO_KEYS if found == NEVER or finds else driver.moving(epoch, found, fetch)
    stayed = _unmoved(command, answers, fetch)
    coming = {worker: answer.coming for worker, answer in answers.items()}
    parts = {worker: _with_next_keys(command, worker, old, answer.kept, coming) for worker, answer in answers.items()}
    hosts = {
        worker: _Operators(worker=worker, answer=answer, keys=without(answer.keys, stayed))
        for worker, answer in answers.items()
    }
    after, rounds = run_rounds(parts, hosts, {worker: _events(command, new, host) for worker, host in hosts.items()})
    if any((part.layout.version, part.layout.owners) != (new.version, new.owners) for part in after.values()):
        raise DataError(
            f"a migration leads to another layout than the step's: step={record.step} version={new.version}"
        )
    if finds:
        moving = all_keys(map(yet_to_give, after.values()))
        driver.found(epoch, found, moving)
    kept = {worker: _kept(part, answers[worker], found, finds) for worker, part in after.items()}
    migration = Migration(
        places=places_of(after, old, new, moving),
        moved={worker: changes for worker, host in hosts.items() if (changes := host.changes())},
        kept=kept, finds=finds, begins=isinstance(command, BeginCommand),
    )  # fmt: skip
    report = MigrationReport(
        strategy=command.strategy, moved_keys=sum(host.moved_keys for host in hosts.values()), rounds=rounds,
        moved_rows=sum(host.moved_rows for host in hosts.values()),
        moved_bytes=sum(host.moved_bytes for host in hosts.values()),
        left_keys=sum(one.keys - one.gone for one in kept.values()),
        over=not any(part.migrating for part in after.values()),
    )  # fmt: skip
    return Decision(layout=layout, migration=migration, report=report)


def _agreed(answers: Mapping[int, Answer]) -> int:
    """Return the step at which the moving keys were determined; raise `DataError` unless it is the same on all workers."""
    found = {NEVER if answer.kept is None else answer.kept.found for answer in answers.values()}
    if len(found) != 1:
        raise DataError(f"workers move keys of different steps: found={sorted(found)}")
    return found.pop()


def _unmoved(command: MigrateCommand, answers: Mapping[int, Answer], fetch: Callable[[], Mapping[int, Keys]]) -> Keys:
    """Return the keys that have not moved when a migration is cancelled: their state is still at the old owners.

    The new owner may have stored rows of such a key. These rows are no state: their weights sum to zero, or they are
    below a waterline.
    """
    if not isinstance(command, CancelCommand) or _agreed(answers) == NEVER:
        return NO_KEYS
    return all_keys(fetch().values())


def _with_next_keys(
    command: MigrateCommand, worker: int, old: Layout, kept: MigrationState | None, coming: Mapping[int, Keys]
) -> AnyDistributor:
    """Return a worker's distributor before the step, with the next keys of every source."""
    if kept is None:
        return distributor(command.strategy, worker, old)
    return with_keys(_part(kept), coming)


def _part(kept: MigrationState) -> AnyDistributor:
    return decode(kept.distributor)


def _events(command: MigrateCommand, new: Layout, host: _Operators) -> list[Event]:
    """Return a worker's events in the step.

    ICADD gets its keys just before it enters its second phase. A worker whose keys have many bytes moves fewer keys.
    """
    match command:
        case EnterCommand():
            return [AddKeys(keys=host.keys), event_of(command, new)]
        case MoveCommand():
            return [Move(budget=host.answer.budget)]
        case _:
            return [event_of(command, new)]


def _kept(part: AnyDistributor, answer: Answer, found: int, finds: bool) -> MigrationState:
    """Return a worker's migration state after the step."""
    left = len(yet_to_give(part))
    stripped = encode(with_keys(part, {}))
    if finds or answer.kept is None:
        return MigrationState(distributor=stripped, found=found, keys=left if finds else 0)
    gone = answer.kept.gone + len(answer.coming) - left
    return MigrationState(distributor=stripped, found=found, keys=answer.kept.keys, gone=gone)
