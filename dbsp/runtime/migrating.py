"""A step of a hot rescale: state moves at its start, then every exchange finds the place of each row by rounds of its own.

The rounds are those of `dbsp.distribute.lockstep`; they carry key hashes and numbers of rows. A row travels once, from the worker
that made it to the one where it passes; so does a state. One region spans the circuit: F depends on the key hash alone, so a
hash moves in all traces at once, and the keys of a worker are those of all its traces.

A distributor between two steps is bytes in the worker's database, under the number of the step after which it was so; nothing
is kept in this process. The command of a step is in its record; without one a step is not part of a migration.

Left out: when to migrate and at what pace. Source: design section 9; design record 0015. Invariants 2, 3 and 9.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np

from dbsp.distribute.commands import BeginCommand, CancelCommand, MigrateCommand, event_of, migration_of
from dbsp.distribute.encoding import decode, encode
from dbsp.distribute.keys import NO_KEYS, Keys, Numbers, contains, distinct, without
from dbsp.distribute.keys import keys_of as hashes_of
from dbsp.distribute.lockstep import run_rounds
from dbsp.distribute.messages import (
    AddKeys,
    Collect,
    Collected,
    Downstream,
    Drop,
    Event,
    Interrogate,
    Interrogated,
    Local,
    Take,
)
from dbsp.distribute.strategies import AnyDistributor, distributor, joint
from dbsp.errors import DataError, InternalError
from dbsp.exchange import Parcel
from dbsp.layout import Layout
from dbsp.logs import StepRecord
from dbsp.plan.plan import ExchangeSpec
from dbsp.runtime.moved import Migration, Rows
from dbsp.runtime.runtime import MigrationReport
from dbsp.runtime.tasks import StepOrder, Work
from dbsp.store import TraceSpec
from dbsp.trace.spine import Spine
from dbsp.zset.batch import Batch, keys_of, merge, rearrange

TABLE = "distributor"


@dataclass(slots=True)
class _Traces:
    """A worker's traces as the operators downstream of its distributor, before a step.

    Of a key that has left there may be rows: they add up to nothing, or lie below a waterline. `elsewhere` are keys whose
    state is known not to be here, whatever rows there are.
    """

    work: Work
    worker: int
    epoch: int
    step: int
    elsewhere: Keys = field(default_factory=lambda: NO_KEYS)
    taken: dict[int, list[Batch]] = field(default_factory=dict)
    collected: dict[int, Batch] = field(default_factory=dict)
    moved_keys: int = 0
    moved_rows: int = 0
    moved_bytes: int = 0

    def ordered(self, order: Downstream) -> Sequence[Event]:
        """Tell keys, hand out rows, take rows over, drop what was handed out."""
        match order:
            case Interrogate():
                return [AddKeys(keys=self._keys()), Interrogated()]
            case Collect(keys=keys):
                self.collected = self._rows(keys)
                return [Collected(keys=keys, state=self.collected)]
            case Take(keys=keys, state=state):
                self.moved_keys += len(keys)
                for trace, batch in state.items():
                    mine = batch.filter(contains(keys, batch.words[0]))
                    self.moved_rows, self.moved_bytes = self.moved_rows + len(mine), self.moved_bytes + mine.nbytes
                    self._change(trace, mine)
            case Drop(keys=keys):
                for trace, batch in self.collected.items():
                    self._change(trace, batch.filter(contains(keys, batch.words[0])).negate())
        return []

    def passed(self, keys: Keys, rows: Numbers) -> None:
        """No row is under way while state moves."""
        raise InternalError(f"rows passed before the step: worker={self.worker} rows={len(rows)} keys={len(keys)}")

    def _change(self, trace: int, batch: Batch) -> None:
        if len(batch):
            self.taken.setdefault(trace, []).append(batch)

    def changes(self) -> Rows:
        """What was taken over less what was dropped, per trace."""
        return {trace: reduce(merge, batches) for trace, batches in self.taken.items()}

    def _spines(self) -> Iterator[tuple[TraceSpec, Spine]]:
        """Every trace as of step-1; nothing read through it is kept."""
        database, plan = self.work.site.database(self.worker), self.work.plan
        for segment in range(plan.segments):
            traces = plan.traces(segment)
            with database.begin(self.epoch, self.step, segment, traces) as transaction:
                for trace in traces:
                    yield trace, transaction.spine(trace)

    def _keys(self) -> Keys:
        """The key hashes of all traces. **Cost** reads the hashes of all stored rows, once per migration."""
        found: list[Keys] = [NO_KEYS]
        for _, spine in self._spines():
            found += [distinct(part.words[0]).copy() for part in spine.parts()]
        return without(hashes_of(np.concatenate(found)), self.elsewhere)

    def _rows(self, keys: Keys) -> dict[int, Batch]:
        """Every trace's rows of these keys. **Cost** that of a look-up of the keys."""
        found: dict[int, Batch] = {}
        for trace, spine in self._spines():
            rows = spine.matches(keys)[1]
            if len(rows):
                found[trace.id] = rearrange(rows, trace.arrangement)
        return found


@dataclass(slots=True)
class _Passing:
    """Where rows end: their numbers, as they pass."""

    numbers: list[Numbers] = field(default_factory=list)

    def ordered(self, order: Downstream) -> Sequence[Event]:
        """State moves before rows, not among them."""
        raise InternalError(f"state moves in the midst of a step: order={type(order).__name__}")

    def passed(self, keys: Keys, rows: Numbers) -> None:  # noqa: ARG002 - the row is found by its number
        """Note them."""
        self.numbers.append(rows)


@dataclass(slots=True)
class MovingStep:
    """One step of a migration, from its record to the distributors after it."""

    work: Work
    record: StepRecord
    epoch: int
    command: MigrateCommand
    layout: Layout
    distributors: dict[int, AnyDistributor]
    moved: dict[int, Rows]
    moved_keys: int = 0
    moved_rows: int = 0
    moved_bytes: int = 0
    rounds: int = 0

    @property
    def order(self) -> StepOrder:
        """What the step's tasks are given."""
        return StepOrder(
            record=self.record, epoch=self.epoch, layout=self.layout, migration=Migration(moved=self.moved)
        )

    def route(self, sent: Mapping[int, Sequence[Parcel]]) -> dict[int, list[Parcel]]:
        """The parcels that workers made for themselves, as one parcel per worker each, every row where it passes.

        **Law** the sum of all rows stays the same; a row passes where the state of its key is (invariant 2).
        """
        specs = {spec.id: spec for spec in self.work.plan.all_exchanges()}
        own = {worker: parcels[self.layout.workers.index(worker)] for worker, parcels in sent.items()}
        rows = _Rows.of(own, specs)
        hosts = {worker: _Passing() for worker in self.layout.workers}
        events = {worker: [Local(keys=keys, rows=numbers)] for worker, (keys, numbers) in rows.local.items()}
        self.distributors, rounds = run_rounds(self.distributors, hosts, events)
        self.rounds = max(self.rounds, rounds)
        dealt = {worker: rows.batches(np.concatenate(host.numbers)) for worker, host in hosts.items() if host.numbers}
        routed: dict[int, list[Parcel]] = {}
        for source, parcels in sent.items():
            local = {number: batch for number, batch in own[source].batches.items() if specs[number].local}
            routed[source] = [
                replace(parcel, batches=dealt.get(to, {}).get(source, {}) | (local if to == source else {}))
                for to, parcel in zip(self.layout.workers, parcels, strict=True)
            ]
        return routed

    def finish(self) -> MigrationReport:
        """Store the distributors as they are after the step; those of the step before stay, for a task that runs again."""
        step = self.record.step
        for worker, part in self.distributors.items():
            database = self.work.site.database(worker)
            database.put(self.epoch, TABLE, _name(step), encode(part))
            database.put(self.epoch, TABLE, _name(step - 2), None)
        return MigrationReport(
            strategy=self.command.strategy, rounds=self.rounds,
            moved_keys=self.moved_keys, moved_rows=self.moved_rows, moved_bytes=self.moved_bytes,
            left_keys=sum(part.left for part in self.distributors.values()),
            over=not any(part.migrating for part in self.distributors.values()),
        )  # fmt: skip


def begin(work: Work, record: StepRecord, epoch: int, old: Layout, new: Layout) -> MovingStep:
    """The distributors as of the step before, told the step's command; all state that moves in this step has moved.

    **Errors** `DataError` if the record holds no command to migrate, or a worker's distributor is not there.
    """
    command = migration_of(record.commands)
    if command is None:
        raise DataError(f"a step between two layouts without a command: step={record.step}")
    layout = joint(old, new)
    parts = {worker: _distributor(work, worker, record.step, command, old) for worker in layout.workers}
    stayed = _unmoved(parts.values()) if isinstance(command, CancelCommand) else NO_KEYS
    hosts = {
        worker: _Traces(work=work, worker=worker, epoch=epoch, step=record.step, elsewhere=stayed)
        for worker in layout.workers
    }
    told = event_of(command, new)
    after, rounds = run_rounds(parts, hosts, {worker: [told] for worker in layout.workers})
    if any((part.layout.version, part.layout.owners) != (new.version, new.owners) for part in after.values()):
        raise DataError(
            f"a migration leads to another layout than the step's: step={record.step} version={new.version}"
        )
    moved = {worker: changes for worker, host in hosts.items() if (changes := host.changes())}
    return MovingStep(
        work=work, record=record, epoch=epoch, command=command, layout=layout, distributors=after, moved=moved,
        moved_keys=sum(host.moved_keys for host in hosts.values()), rounds=rounds,
        moved_rows=sum(host.moved_rows for host in hosts.values()),
        moved_bytes=sum(host.moved_bytes for host in hosts.values()),
    )  # fmt: skip


def _unmoved(distributors: Iterable[AnyDistributor]) -> Keys:
    """Keys that have yet to move: where a migration turns round, their state is at the owners of before, to whom they go back."""
    return hashes_of(np.concatenate([NO_KEYS, *(part.whitelist for part in distributors)]))


def _distributor(work: Work, worker: int, step: int, command: MigrateCommand, old: Layout) -> AnyDistributor:
    """A worker's distributor before a step."""
    if isinstance(command, BeginCommand):
        return distributor(command.strategy, worker, old)
    stored = work.site.database(worker).get(TABLE, _name(step - 1))
    if stored is None:
        raise DataError(f"a worker has no distributor for a migration under way: worker={worker} step={step}")
    return decode(stored)


def _name(step: int) -> bytes:
    return step.to_bytes(8, "big", signed=True)


@dataclass(frozen=True, slots=True)
class _Rows:
    """All rows of one depth, numbered: by worker, exchange, place in the batch."""

    starts: Numbers
    owners: tuple[tuple[int, int, Batch], ...]
    local: Mapping[int, tuple[Keys, Numbers]]

    @staticmethod
    def of(own: Mapping[int, Parcel], specs: Mapping[int, ExchangeSpec]) -> _Rows:
        """Number what every worker sent to itself and has to find its place."""
        owners: list[tuple[int, int, Batch]] = []
        keys: dict[int, list[Keys]] = {}
        for worker, parcel in sorted(own.items()):
            for number, batch in sorted(parcel.batches.items()):
                if not specs[number].local and len(batch):
                    owners.append((worker, number, batch))
                    keys.setdefault(worker, []).append(_key_hashes(batch, specs[number]))
        starts = np.concatenate([[0], np.cumsum([len(batch) for _, _, batch in owners])]).astype(np.int64)
        local: dict[int, tuple[Keys, Numbers]] = {}
        at = 0
        for worker, found in keys.items():
            joined = np.concatenate(found)
            local[worker] = joined, np.arange(at, at + len(joined), dtype=np.int64)
            at += len(joined)
        return _Rows(starts, tuple(owners), local)

    def batches(self, numbers: Numbers) -> dict[int, dict[int, Batch]]:
        """The rows with these numbers, per worker that made them and exchange; arranged ones stay so."""
        numbers = np.sort(numbers)
        bounds = np.searchsorted(numbers, self.starts)
        found: dict[int, dict[int, Batch]] = {}
        for at, (worker, exchange, batch) in enumerate(self.owners):
            places = numbers[bounds[at] : bounds[at + 1]] - self.starts[at]
            if len(places):
                arranged = batch.arrangement is not None
                rows = replace(batch.take(places, words=arranged), arrangement=batch.arrangement)
                found.setdefault(worker, {})[exchange] = rows
        return found


def _key_hashes(batch: Batch, spec: ExchangeSpec) -> Keys:
    arranged = batch.arrangement is not None and batch.arrangement.key == spec.key
    return batch.key_hash if arranged and batch.key_hash is not None else keys_of(batch, spec.key)
