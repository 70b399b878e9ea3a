"""The simulation with a real circuit: the in-process runtime on databases and logs in memory, under the same faults.

`Simulation` has workers that hold sets of rows, which makes a step cheap; here a step runs a plan with joins, groups and first
rows, and what a warm-up, a slicing or a migration moves are its traces. A fault may strike whenever a worker's database or
output log is reached for; those that are about tasks, exchanges and databases are in `tests.sim.circuit_faults`. The golden run
is the step log without its moves, run from its beginning by one worker: outputs and dead letters of every step are its own.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar, cast

import numpy as np

import dbsp
from dbsp.coordinator.decisions import events
from dbsp.coordinator.running.command_runner import CommandRunner
from dbsp.coordinator.running.status import LiveStatus
from dbsp.errors import AwayError, DbspError, UnavailableError
from dbsp.layout import Layout, initial
from dbsp.logs import DELETE, INSERT, DeadLetter, StepRecord
from dbsp.logs.step_commands import skipped_nodes
from dbsp.plan.plan import Plan, ViewSpec
from dbsp.plan.planner import plan as make_plan
from dbsp.runtime import tasks
from dbsp.runtime.inprocess import InProcessRuntime
from dbsp.runtime.memory_logs import MemoryInputLog, MemoryOutputLog
from dbsp.runtime.runtime import NOTHING, MoveReport, StepReport
from dbsp.runtime.session import MemoryResources
from dbsp.runtime.work import Work
from dbsp.steps.exchange import Parcel
from dbsp.store import CheckpointId
from dbsp.trace.memory import MemoryDatabase
from dbsp.zset.batch import Batch, concat, consolidate
from tests.coordinator import fake_runtime, fakes
from tests.coordinator.under_traffic import without_moves
from tests.sim import circuit_faults, late_tasks
from tests.sim.circuit_faults import CircuitFaults, Strikes
from tests.sim.coordinator import Coordinator
from tests.sim.faults import Faults
from tests.sim.late_tasks import LateTasks
from tests.sim.simulation import Simulation

RUN = "run"
KEYS = 12
FAULTS = CircuitFaults(
    crash=0.002, crash_again=0.003, error=0.002, pause=0.0003, zombie=0.01, slow=0.01, clock=0.02, ask=0.1, rescale=0.08,
    workers_max=4, straggler=0.6, twice=0.02, parcel=0.002, power=0.0007, outage=0.3, rare=5.0,
)  # fmt: skip
TURNS_ROUND = 0.05
LATE = 0.5
"""How often, in a turn, a task that has run runs again."""
STRAGGLERS_WAIT = 0.8
POLICIES = ("stop", "dead-letter", "null", "stop")


@cache
def circuit_plan(policy: str = "dead-letter") -> Plan:
    """Two tables; a join, its sums, and the first rows of each group of them; an expression that fails on one row in 60 of a."""
    a = dbsp.table("a", {"k": dbsp.INT64, "v": dbsp.INT64})
    b = dbsp.table("b", {"k": dbsp.INT64, "name": dbsp.INT64}, primary_key=["k"])
    joined = a.join(b, on="k")
    sums = joined.group_by("name").aggregate(n=dbsp.count(), least=dbsp.min("v"), total=dbsp.sum("v"))
    best = joined.top_k(2, by=["v"], partition_by="k")
    shares = a.filter(dbsp.col("k") < 8).select("v", share=100 // (dbsp.col("k") * 40 + dbsp.col("v")))
    views = {"sums": sums, "best": best, "values": a.select("v").distinct(), "shares": shares}
    return make_plan(dbsp.circuit("simulated", views, error_policy=policy))


@dataclass
class PointedResources:
    """A site at which a fault may strike whenever a worker's part of it is reached for."""

    kept: MemoryResources
    point: Callable[[str], None]
    loses_power: Callable[[], bool] = lambda: False

    def database(self, worker: int, create: CheckpointId | None = None) -> MemoryDatabase:
        self.point(f"database {worker}")
        if create is None and worker not in self.kept.databases:
            raise UnavailableError(f"no database: worker={worker}")
        if worker in self.kept.databases and self.loses_power():
            self.kept.databases[worker] = circuit_faults.rebooted(self.kept.databases[worker])
            raise UnavailableError(f"the host has lost its power: worker={worker}")
        return self.kept.database(worker, create)

    def condemn_database(self, worker: int, epoch: int) -> Any:
        return self.kept.condemn_database(worker, epoch)

    def discard_database(self, worker: int, epoch: int, condemned: Any) -> None:
        self.point(f"discard {worker}")
        self.kept.discard_database(worker, epoch, condemned)

    def restore_database(self, worker: int, epoch: int, since: int = 0) -> bool:
        return self.kept.restore_database(worker, epoch, since)

    def discard_stray(self, worker: int, epoch: int, since: int) -> bool:
        return self.kept.discard_stray(worker, epoch, since)

    def input_log(self) -> MemoryInputLog:
        return self.kept.input_log()

    def output_log(self, worker: int, first_step: int = 0, *, create: bool = False) -> MemoryOutputLog:
        self.point(f"output log {worker}")
        return self.kept.output_log(worker, first_step, create=create)


class PieceByPiece(fake_runtime.Beside):
    """A copy beside the steps, a piece of one worker whenever the simulator lets it go on."""

    def __init__(self, workers: tuple[int, ...], piece: Callable[[tuple[int, ...]], Mapping[int, Any]]) -> None:
        super().__init__(list(workers), {})
        self.piece = piece

    def take(self, each: int) -> None:
        try:
            report = self.piece((each,))[each]
        except AwayError:  # asked again later, as a copier does
            report = None
        if report is None:
            self.waiting.insert(0, each)
        else:
            self.reports[each] = report


@dataclass
class SimulatedCopier:
    """As `dbsp.runtime.copying.Copier`, without a thread."""

    world: fakes.World
    order: Callable[[Sequence[int]], Sequence[int]] = tuple
    _going: PieceByPiece | None = None

    def start(
        self,
        workers: tuple[int, ...],
        piece: Callable[[tuple[int, ...]], Mapping[int, Any]],
        at_once: int | None = None,
        threads: int = 1,
    ) -> Future[Mapping[int, Any]]:
        self._going = PieceByPiece(tuple(self.order(workers)), piece)
        self.world.copies.append(self._going)
        return self._going.future

    def end(self, wait_s: float | None = None) -> None:
        going, self._going = self._going, None
        if going is not None and not going.future.done():
            self.world.copies = [copy for copy in self.world.copies if copy is not going]
            going.future.set_exception(UnavailableError("the copying was stopped"))


@dataclass(frozen=True, slots=True)
class AnyOrder:
    """The workers of a layout, in some order."""

    workers: Sequence[int]


class SimulatedRuntime(InProcessRuntime):
    """The runtime of a process; a fault may strike at the end of a step too, and where tasks run and parcels arrive."""

    strikes: Strikes
    late: Callable[[StepRecord, Layout, Layout | None, int], None]
    tasks: LateTasks

    def create(self, workers: Sequence[int], checkpoint: CheckpointId, hosts: Sequence[str] = ()) -> None:
        super().create(workers, checkpoint, hosts)
        self.tasks.note(late_tasks.create, workers, checkpoint)

    def fence(
        self, epoch: int, workers: Sequence[int], hosts: Sequence[str] = (), since: Mapping[int, int] = NOTHING
    ) -> tuple[int, ...]:
        found = super().fence(epoch, workers, hosts, since)
        self.tasks.note(tasks.fence, workers, epoch, since)
        return found

    def fence_others(self, epoch: int, workers: Sequence[int], hosts: Sequence[str] = ()) -> tuple[int, ...]:
        found = super().fence_others(epoch, workers, hosts)
        self.tasks.note(tasks.fence_other, workers, epoch)
        return found

    def open(self, version: int, epoch: int, layout: Layout) -> CheckpointId:
        self.tasks.note(tasks.open_version, layout.workers, version, epoch, layout)
        return super().open(version, epoch, layout)

    def pin(self, version: int, checkpoint: CheckpointId, layout: Layout) -> None:
        self.tasks.note(tasks.pin, layout.workers, version, checkpoint, layout)
        super().pin(version, checkpoint, layout)

    def copy(self, version: int, checkpoint: CheckpointId, layout: Layout) -> Future[Mapping[int, Any]]:
        self.tasks.note(tasks.copy, layout.workers, version, checkpoint)
        self.tasks.note(tasks.commit, layout.workers, version, checkpoint, layout)
        return super().copy(version, checkpoint, layout)

    def redistribute(
        self, version: int, checkpoint: CheckpointId, old: Layout, new: Layout, cut: CheckpointId | None = None
    ) -> MoveReport:
        self.tasks.note(tasks.take_over, new.workers, version, checkpoint, old, new, cut)
        return super().redistribute(version, checkpoint, old, new, cut)

    def hold_merges(self, old: Layout, new: Layout) -> None:
        self.tasks.note(tasks.hold_merges, old.workers, self.epoch, old, new)
        super().hold_merges(old, new)

    def warm(self, version: int, old: Layout, new: Layout, told: Any, at_once: int) -> Future[Mapping[int, Any]]:
        self.tasks.note(tasks.warm, new.workers, version, self.epoch, old, new)
        return super().warm(version, old, new, told, at_once)

    def cool(self, workers: Sequence[int], layout_version: int, hosts: Sequence[str] = ()) -> None:
        self.tasks.note(tasks.cool, workers, self.epoch, layout_version)
        super().cool(workers, layout_version, hosts)

    def discard(self, workers: Sequence[int], hosts: Sequence[str] = (), *, must: bool = True) -> tuple[int, ...]:
        for worker in workers:
            with suppress(DbspError):
                condemned = {worker: tasks.condemn(self.work, worker, self.epoch)}
                self.tasks.note(tasks.discard, [worker], self.epoch, condemned)
        self.tasks.note(tasks.condemn, workers, self.epoch)
        return super().discard(workers, hosts, must=must)

    def run_step(self, record: StepRecord, layout: Layout, coming: Layout | None = None) -> StepReport:
        resources: Any = self.work.resources
        try:
            report = super().run_step(record, layout, coming)
        except (DbspError, fakes.Crash):
            self.late(record, layout, coming, self.epoch)
            raise
        resources.point("step done")
        views = [view for view in self.work.plan.views if view.trace is not None]
        self.tasks.note(tasks.view_part, layout.workers, views[0], self.epoch)
        return report

    def _on_all(self, layout: Layout, run: Callable[[int], Any]) -> dict[int, Any]:
        """In any order, as tasks that run beside each other: so a crash leaves the work of any of them."""
        some = AnyOrder(self.strikes.shuffled(layout.workers))
        found = super()._on_all(cast(Layout, some), lambda worker: self.strikes.run(run, worker))
        return {worker: found[worker] for worker in layout.workers}

    def _each(self, workers: Sequence[int], work: Callable[[int], Any]) -> list[Any]:
        found = {worker: work(worker) for worker in self.strikes.shuffled(workers)}
        return [found[worker] for worker in workers]

    def _deliver(self, results: Mapping[int, Any], layout: Layout) -> dict[int, list[Parcel]]:
        sent = super()._deliver(results, layout)
        return {worker: self.strikes.arrive(worker, parcels) for worker, parcels in sent.items()}


@dataclass
class CircuitWorld(fakes.World):
    """A world with rows in it: what arrives is a matter of the seed, the place and the offset."""

    seed: int = 0
    waits: Callable[[], bool] = lambda: False
    resources: MemoryResources = field(
        default_factory=lambda: MemoryResources(inputs=MemoryInputLog(("a", "b"), spread=2))
    )

    def late(self) -> None:
        """A task that was given up goes on when a coordinator has done much else, or at once."""
        if not self.waits():
            super().late()

    def grow(self, place: tuple[str, int], rows: int) -> None:
        table, partition = place
        draw = random.Random(f"{self.seed} {place} {self.ends[place]}")
        second = KEYS // 3 if table == "b" else 40
        drawn = [(draw.randrange(KEYS), draw.randrange(second)) for _ in range(rows)]
        schema = next(known.schema for known in circuit_plan().tables if known.name == table)
        operations = np.array([DELETE if draw.random() < 0.2 else INSERT for _ in drawn], np.int8)
        self.resources.inputs.append(table, Batch.from_rows(schema, drawn), operations, partition)
        super().grow(place, rows)


@dataclass
class CircuitSimulation(Simulation):
    """One seed of it."""

    faults: Faults | None = FAULTS
    world: CircuitWorld = field(default_factory=CircuitWorld)
    runtime_class: ClassVar[type[SimulatedRuntime]] = SimulatedRuntime
    common_disk: ClassVar[bool] = True
    HOSTS_CHANGE: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """The random seed decides the rows, and what happens to rows that fail."""
        self.world.seed = self.seed
        self.plan = circuit_plan(POLICIES[self.seed % len(POLICIES)])
        super().__post_init__()
        rates = self.rates if isinstance(self.rates, CircuitFaults) else CircuitFaults()
        self.usual, self.seldom = rates, rates.in_rare_states()
        self.strikes_in = Strikes(rates, random.Random(f"circuit {self.seed}"), self.fired, lambda: self.quiet)
        self.late = LateTasks(random.Random(f"late tasks of {self.seed}"))
        self.world.waits = lambda: not self.quiet and self.strikes_in.random.random() < STRAGGLERS_WAIT

    def request(self, epoch: int) -> events.Request | None:
        """Also, more often than else, that a migration turns round."""
        under_way = self.main is not None and self.main.state.facts.migration_plan is not None
        if under_way and self.random.random() < TURNS_ROUND:
            return events.CancelAsked()
        return super().request(epoch)

    def turn(self, coordinator: Coordinator) -> None:
        """More strikes where a machine seldom stands."""
        self.rates = self.seldom if self._is_rare() else self.usual
        super().turn(coordinator)

    def make_runner(self) -> CommandRunner:
        """A new command runner whose runtime is the one of a process."""
        found = fake_runtime.parts(self.world, self.clock)
        parts = replace(found, runtime=self._runtime, steps=self.make_steps())
        return CommandRunner(parts, self.settings, LiveStatus(), fakes.Silent(), fakes.Inline())

    def make_steps(self) -> Any:
        """A handle on the step log."""
        return fakes.FakeSteps(self.world)

    @property
    def encodes(self) -> bool:
        """Whether parcels pass through their bytes."""
        return False

    def make_resources(self, point: Callable[[str], None], loses_power: Callable[[], bool]) -> PointedResources:
        """What a process that starts now has of databases and logs."""
        return PointedResources(self.world.resources, point, loses_power)

    def power_goes(self) -> None:
        """All hosts at once."""
        databases = self.world.resources.databases
        self.world.resources.databases = {worker: circuit_faults.rebooted(found) for worker, found in databases.items()}

    def databases_there(self) -> set[int]:
        """The workers that have one."""
        return set(self.world.resources.databases)

    def written(self, step: int, view: ViewSpec) -> list[Any]:
        """What a step changed in a view, summed over the workers."""
        return outputs(self.world.resources, step, view.name, view.schema)

    def dead(self, step: int) -> Counter[DeadLetter]:
        """What a step could not use."""
        return dead_letters(self.world.resources, step)

    def _runtime(self) -> SimulatedRuntime:
        strikes = self.strikes_in
        resources = self.make_resources(self._point, lambda: strikes.strikes(strikes.rates.power, "power"))
        work = Work(resources=resources, plan=self.plan, run=RUN, common_disk=self.common_disk)
        copier, warmer = (SimulatedCopier(self.world, strikes.shuffled) for _ in range(2))
        made = self.runtime_class(work, self.encodes, _copier=copier, _warmer=warmer)  # type: ignore[arg-type]
        made.strikes, made.late, made.tasks = strikes, self._goes_on, self.late
        return made

    def arrive(self) -> None:
        """Also, tasks of any kind run once more."""
        super().arrive()
        if not self.quiet and self.late.random.random() < LATE:
            point, self.world.point = self.world.point, lambda _name: None
            try:
                self.late.run_one(self._work_of_its_own)
            finally:
                self.world.point = point

    def _work_of_its_own(self, looks: int) -> Work:
        """What a process of its own has."""
        resources = self.make_resources(Patience(looks).look, lambda: False)
        return Work(resources=resources, plan=self.plan, run=RUN, common_disk=self.common_disk)

    def _goes_on(self, record: StepRecord, layout: Layout, coming: Layout | None, epoch: int) -> None:
        """The tasks of a step that was given up may go on later, as far as they get."""
        if not self._straggles():
            return
        looks = self.strikes_in.random.randint(1, self.strikes_in.rates.tasks_max)

        def goes_on() -> None:
            resources = self.make_resources(Patience(looks).look, lambda: False)
            runtime = InProcessRuntime(
                Work(resources=resources, plan=self.plan, run=RUN, common_disk=self.common_disk),
                encode_parcels=self.encodes, epoch=epoch,
                _copier=SimulatedCopier(self.world), _warmer=SimulatedCopier(self.world),  # type: ignore[arg-type]
            )  # fmt: skip
            runtime.run_step(record, layout, coming)

        self.world.stragglers.append(goes_on)

    def _after_crash(self) -> Coordinator:
        """Hosts may lose their power with the coordinator's; tasks of hosts that did not go on."""
        strikes = self.strikes_in
        if strikes.random.random() < strikes.rates.outage:
            strikes.fired.note("power")
            self.power_goes()
            return super()._after_crash()
        going = self.world.stragglers
        coordinator = super()._after_crash()
        self.world.stragglers = going
        return coordinator

    def golden_run(self) -> None:
        """(a) Every step's outputs are those of its record, run by one worker, whatever the layout was."""
        plan, golden = self.plan, MemoryResources(inputs=self.world.resources.inputs)
        runtime, layout = InProcessRuntime(Work(resources=golden, plan=plan, run=RUN), encode_parcels=False), initial(1)
        empty = CheckpointId(run=RUN, epoch=0, step=0, layout_version=0, fingerprint=fakes.FINGERPRINT)
        runtime.create((0,), empty)
        runtime.fence(1, (0,))
        runtime.open(0, 1, layout)
        for record in self.world.steps:
            runtime.run_step(without_moves(record), layout)
            for view in plan.views:
                wanted = outputs(golden, record.step, view.name, view.schema)
                fakes.must(
                    self.written(record.step, view) == wanted, f"a: outputs of step {record.step} in {view.name}"
                )
            self._count_failures(record)
            fakes.must(
                self.dead(record.step) == dead_letters(golden, record.step), f"a: dead letters of step {record.step}"
            )

    def _count_failures(self, record: StepRecord) -> None:
        """Rows that failed, and halts that somebody decided about, are faults that fired."""
        if self.dead(record.step):
            self.fired.note("row")
        if skipped_nodes(record.commands):
            self.fired.note("halt")

    def recomputation(self) -> None:
        """(b) The workers of the published layout have databases, and nobody else."""
        ledger = self.world.control.load()
        assert ledger is not None
        layout = ledger.layouts[ledger.saved[ledger.published].checkpoint.layout_version]
        there = self.databases_there()
        fakes.must(set(layout.owners) == set(layout.workers) == set(ledger.members), "b: a worker owns nothing")
        fakes.must(set(layout.workers) <= there, "b: members have databases")
        fakes.must(self.had_zombies or there - self.late.created <= set(layout.workers), "b: databases of nobody")


@dataclass
class Patience:
    """Ends who looks too often."""

    looks: int

    def look(self, name: str) -> None:
        self.looks -= 1
        if self.looks < 0:
            raise UnavailableError(f"this task has ended: at={name}")


def dead_letters(resources: MemoryResources, step: int) -> Counter[DeadLetter]:
    """What a step could not use, added up over the workers."""
    sums: Counter[DeadLetter] = Counter()
    for log in resources.outputs.values():
        for letter in log.dead.get(step, ()):
            sums[replace(letter, weight=0)] += letter.weight
    return Counter({letter: weight for letter, weight in sums.items() if weight})


def outputs(resources: MemoryResources, step: int, view: str, schema: Any) -> list[Any]:
    """What a step changed in a view, summed over the workers."""
    logs = (log.parts.get(step, {}) for log in resources.outputs.values())
    parts = [part[view] for part in logs if view in part]
    return sorted(consolidate(concat(parts, schema)).to_rows(), key=repr)
