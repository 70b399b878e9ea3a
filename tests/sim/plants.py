"""Rules of the protocol taken out, one at a time; the simulator must find each within a stated number of seeds.

`test_traps` says for each where it is explained. `python -m tests.sim --plant NAME` shows how one ends.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dbsp.coordinator.decisions import commands, events, machine, migrating, recovery, states
from dbsp.coordinator.running import control
from dbsp.coordinator.running.checkpoint_copy import CheckpointCopy
from dbsp.coordinator.running.checkpoints import Checkpoints, InputCut
from dbsp.coordinator.running.command_runner import CommandRunner
from dbsp.coordinator.running.control import Ledger
from dbsp.distribute import places
from dbsp.distribute.strategies import AnyDistributor
from dbsp.layout import Layout
from dbsp.logs import StepRecord
from dbsp.runtime import migrating as moving_steps
from dbsp.runtime.runtime import MoveReport
from dbsp.steps.timing import Timing
from dbsp.store import CheckpointId, VersionInfo
from tests.coordinator import fake_runtime, fakes
from tests.coordinator.fake_moves import FakeMove
from tests.sim import circuit_plants, copy_plants, disk_plants, loss_plants
from tests.sim.circuits import FAULTS, CircuitSimulation
from tests.sim.copied import CopiedSimulation
from tests.sim.disks import DiskSimulation
from tests.sim.faults import USUAL, Faults
from tests.sim.simulation import Simulation, first_failure

FIRSTS: dict[str, int] = json.loads(Path(__file__).with_name("firsts.json").read_text())
"""Which seed finds each planted bug soonest. It goes stale as the coordinator changes, and then costs time and nothing else:
`python -m tests.sim --firsts` finds the seeds anew.
"""
Patch = pytest.MonkeyPatch
Cut = CheckpointId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """A rule, how it is broken, the number of its concept page (`test_traps`), and within how many seeds it is found."""

    rule: str
    breaks: Callable[[Patch], None]
    design: str
    seeds: int
    faults: Faults | None = None
    circuits: bool = False
    disks: bool = False
    copied: bool = False

    @property
    def name(self) -> str:
        """As on the command line."""
        return self.breaks.__name__.replace("_", "-")

    def simulation(self, seed: int) -> Simulation:
        """A seed of the faults under which the rule matters."""
        if self.copied:
            return CopiedSimulation(seed=seed)
        if self.disks:
            return DiskSimulation(seed=seed, faults=self.faults)
        if self.circuits:
            return CircuitSimulation(seed=seed, faults=self.faults or FAULTS)
        return Simulation(seed=seed, faults=self.faults)

    @property
    def turns(self) -> int:
        """How many turns a seed takes: fewer where each writes files."""
        return 120 if self.disks or self.copied else 300

    @property
    def order(self) -> list[int]:
        """Return all seeds, each once; the one in `FIRSTS` comes first, and saves the others."""
        first = FIRSTS.get(self.name, 0)
        return sorted(range(self.seeds), key=lambda seed: seed != first)

    def quickest(self, enough: int = 3) -> int | None:
        """Return the seed that finds the bug in the least time, of the first few that find it at all."""
        found: list[tuple[float, int]] = []
        for seed in self.order:
            began = time.process_time()
            if first_failure([seed], self.turns, self.simulation) is not None:
                found.append((time.process_time() - began, seed))
            if len(found) == enough:
                break
        return min(found)[1] if found else None


def any_engine(patch: Patch) -> None:
    """Every version runs every step again."""
    patch.setattr(machine, "accepted_anew", lambda *_: ())


def accept_in_memory(patch: Patch) -> None:
    """An acceptance is kept nowhere."""
    patch.setattr(control, "accept_engines", lambda ledger, _: ledger)


def leave_a_step(patch: Patch) -> None:
    """A step that was logged ahead is left for the next start."""
    found = machine._run_ahead

    def run(facts: states.Facts, ahead: StepRecord) -> machine.Answer:
        return machine._at_rest(facts, ahead) if facts.requested.end else found(facts, ahead)

    patch.setattr(machine, "_run_ahead", run)


def no_fence(patch: Patch) -> None:
    def changed(ledger: Ledger, epoch: int | None, action: Callable[[Ledger], Ledger]) -> Ledger:
        return action(ledger)

    patch.setattr(fakes.FakeDatabase, "check", lambda self, epoch: None)
    patch.setattr(control, "changed_ledger", changed)


def same_epoch(patch: Patch) -> None:
    original = machine._recovering

    def recovering(state: states.Recovering, event: events.Event) -> machine.Answer:
        if (
            state.awaits == "backoff"
            and isinstance(event, events.Woken)
            and state.facts.epoch
            and not state.facts.forming
        ):
            return machine._fence(state.facts)
        return original(state, event)

    patch.setattr(machine, "_recovering", recovering)


def take_back(patch: Patch) -> None:
    original = CommandRunner._recovery

    def claim(self: CommandRunner, command: commands.ClaimEpoch) -> events.Event:
        if isinstance(command, commands.ClaimEpoch):
            self.epoch = 0
        return original(self, command)

    patch.setattr(CommandRunner, "_recovery", claim)


def all_workers_vote(patch: Patch) -> None:
    def is_held(
        held: Mapping[int, Sequence[VersionInfo]], layout: Layout, version: int, checkpoint: CheckpointId
    ) -> bool:
        return all(any(i.version == version and i.checkpoint == checkpoint for i in infos) for infos in held.values())

    patch.setattr(recovery, "_is_held", is_held)


def some_workers_vote(patch: Patch) -> None:
    def is_held(
        held: Mapping[int, Sequence[VersionInfo]], layout: Layout, version: int, checkpoint: CheckpointId
    ) -> bool:
        return any(info.version == version and info.checkpoint == checkpoint for i in held.values() for info in i)

    patch.setattr(recovery, "_is_held", is_held)


def pin_late(patch: Patch) -> None:
    original = fake_runtime.FakeCopy._land

    def land(self: fake_runtime.FakeCopy, worker: int, host: str) -> None:
        database = self.world.databases[worker]
        if self.version in database.pins:
            database.pins[self.version] = (self.checkpoint, database.state)
        original(self, worker, host)

    patch.setattr(fake_runtime.FakeCopy, "_land", land)


def two_in_flight(patch: Patch) -> None:
    original = machine._between_steps

    def between_steps(facts: states.Facts, ahead: object) -> object:
        copying = facts.copying
        if copying is not None and not copying.ended and facts.requested.checkpoint:
            return machine._checkpoint(facts, ahead)  # type: ignore[arg-type]
        return original(facts, ahead)  # type: ignore[arg-type]

    patch.setattr(machine, "_between_steps", between_steps)


def publish_early(patch: Patch) -> None:
    original = CheckpointCopy.reports

    def reports(self: CheckpointCopy) -> object:
        return original(self) if self.future.done() else {}

    patch.setattr(CommandRunner, "copy_news", lambda self, version: events.CopyEnded(version=version))
    patch.setattr(CheckpointCopy, "reports", reports)


def forget_a_record(patch: Patch) -> None:
    crash = fakes.World.crash

    def forgetful(self: fakes.World) -> None:
        crash(self)
        del self.steps[-1:]

    patch.setattr(fakes.World, "crash", forgetful)


def run_before_the_record(patch: Patch) -> None:
    original = CommandRunner._cut_step

    def cut_step(self: CommandRunner, command: commands.CutStep, *, full: bool) -> object:
        steps = self._parts.steps
        kept, steps.world.steps = steps.world.steps, [*steps.world.steps]  # type: ignore[attr-defined]
        try:
            return original(self, command, full=full)
        finally:
            steps.world.steps = kept  # type: ignore[attr-defined]

    patch.setattr(CommandRunner, "_cut_step", cut_step)


def decide_in_memory(patch: Patch) -> None:
    original = fakes.FakeSteps.decide

    def decide(self: fakes.FakeSteps, epoch: int, step: int, command: str) -> object:
        before = self.world.steps[step]
        try:
            return original(self, epoch, step, command)
        finally:
            self.world.steps[step] = before

    patch.setattr(fakes.FakeSteps, "decide", decide)


def positions_of_the_cut(patch: Patch) -> None:
    def cut(self: CommandRunner) -> InputCut:
        self.done = self._cut
        return InputCut(positions=dict(self._cut), timing=self._timing)

    patch.setattr(CommandRunner, "_cut_of_done", cut)


def intend_late(patch: Patch) -> None:
    original, intend = Checkpoints.pin, Checkpoints.intend

    def pin(self: Checkpoints, runtime: Any, *rest: Any) -> events.Event:
        held: list[tuple[Any, ...]] = []
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Checkpoints, "intend", lambda _self, *found: held.append(found))
            event = original(self, runtime, *rest)
        for copy in runtime.world.copies:
            while not copy.future.done():
                copy.advance()
        for found in held:
            intend(self, *found)
        return event

    patch.setattr(Checkpoints, "pin", pin)


def forget_failed_copies(patch: Patch) -> None:
    """A copy that fails is forgotten as soon as a step has succeeded."""
    original = machine._advanced

    def advanced(facts: states.Facts, done: events.StepDone) -> states.Facts:
        return replace(original(facts, done), copy_failures=0)

    patch.setattr(machine, "_advanced", advanced)


def trim_too_much(patch: Patch) -> None:
    original = Checkpoints._trim

    def trim(self: Checkpoints, ledger: Ledger) -> None:
        original(self, ledger)
        self._logs.steps.trim(ledger.saved[ledger.published].checkpoint.step + 1)

    patch.setattr(Checkpoints, "_trim", trim)


def move_a_shard_twice(patch: Patch) -> None:
    original = fake_runtime.FakeRuntime.redistribute

    def redistribute(
        self: fake_runtime.FakeRuntime, version: int, checkpoint: CheckpointId, old: Layout, new: Layout, cut: Cut
    ) -> MoveReport:
        found = original(self, version, checkpoint, old, new, cut)
        owner, other = new.owners[0], new.workers[-1]
        if owner != other:
            rows = self._database(owner).versions[version][1]
            twice = frozenset(row for row in rows if fakes.row_hash(row) >> (64 - new.shard_bits) == 0)
            kept = self._database(other).versions[version]
            self._database(other).versions[version] = (kept[0], kept[1] | twice)
        return found

    patch.setattr(fake_runtime.FakeRuntime, "redistribute", redistribute)


def forget_a_shard(patch: Patch) -> None:
    original = fake_runtime.FakeRuntime.redistribute

    def redistribute(
        self: fake_runtime.FakeRuntime, version: int, checkpoint: CheckpointId, old: Layout, new: Layout, cut: Cut
    ) -> MoveReport:
        found = original(self, version, checkpoint, old, new, cut)
        database = self._database(new.owners[0])
        identity, rows = database.versions[version]
        kept = frozenset(row for row in rows if fakes.row_hash(row) >> (64 - new.shard_bits))
        database.versions[version] = (identity, kept)
        return found

    patch.setattr(fake_runtime.FakeRuntime, "redistribute", redistribute)


def slice_the_version_before(patch: Patch) -> None:
    original = fake_runtime.FakeRuntime.redistribute

    def redistribute(
        self: fake_runtime.FakeRuntime, version: int, checkpoint: CheckpointId, old: Layout, new: Layout, cut: Cut
    ) -> MoveReport:
        return original(self, version, checkpoint, old, new, None)

    patch.setattr(fake_runtime.FakeRuntime, "redistribute", redistribute)


def discard_leavers_early(patch: Patch) -> None:
    original = fake_runtime.FakeRuntime.redistribute

    def redistribute(
        self: fake_runtime.FakeRuntime, version: int, checkpoint: CheckpointId, old: Layout, new: Layout, cut: Cut
    ) -> MoveReport:
        found = original(self, version, checkpoint, old, new, cut)
        for worker in set(old.workers) - set(new.workers):
            self.world.databases.pop(worker, None)
        return found

    patch.setattr(fake_runtime.FakeRuntime, "redistribute", redistribute)


def discard_without_epoch(patch: Patch) -> None:
    def discard(self: fake_runtime.FakeRuntime, workers: Sequence[int], hosts: Sequence[str] = ()) -> None:
        for worker in workers:
            self.world.point(f"discard {worker}")
            self.world.databases.pop(worker, None)

    patch.setattr(fake_runtime.FakeRuntime, "discard", discard)


def old_layout_goes_on(patch: Patch) -> None:
    original = machine._opened

    def opened(facts: states.Facts, event: events.VersionOpened) -> machine.Answer:
        wrong = replace(event, layout=facts.layout) if len(facts.layouts) > 1 else event
        return original(facts, wrong)

    patch.setattr(machine, "_opened", opened)


def clock_as_it_is(patch: Patch) -> None:
    original = Timing.moment

    def moment(self: Timing, wall_us: int) -> object:
        return replace(original(self, wall_us), clock_us=wall_us)

    patch.setattr(Timing, "moment", moment)


def slices_in_the_manifest(patch: Patch) -> None:
    original = fake_runtime.FakeWarm._take

    def take(self: fake_runtime.FakeWarm, source_worker: int, target_worker: int) -> None:
        original(self, source_worker, target_worker)
        database = self.world.databases[target_worker]
        database.versions = {v: (c, rows | database.warm) for v, (c, rows) in database.versions.items()}

    patch.setattr(fake_runtime.FakeWarm, "_take", take)


def take_over_early(patch: Patch) -> None:
    original = fake_runtime.FakeRuntime._adopt

    def adopt(
        self: fake_runtime.FakeRuntime,
        worker: int,
        host: str,
        version: int,
        checkpoint: CheckpointId,
        mine: frozenset[fakes.Row],
    ) -> None:
        warm = self._database(worker, host).warm
        original(self, worker, host, version, checkpoint, warm or mine)

    patch.setattr(fake_runtime.FakeRuntime, "_adopt", adopt)


def forget_the_course(patch: Patch) -> None:
    original = control.log_layout

    def log_layout(ledger: Ledger, layout: Layout, members: object, forming: object, migration_plan: object) -> Ledger:
        return original(ledger, layout, members, forming)  # type: ignore[arg-type]

    patch.setattr(control, "log_layout", log_layout)


def cut_ahead_while_keys_move(patch: Patch) -> None:
    original = machine._run

    def run(facts: states.Facts, record: StepRecord, *, replay: bool) -> commands.RunStep:
        return replace(original(facts, record, replay=replay), may_cut_ahead=not replay)

    patch.setattr(machine, "_run", run)


def route_before_the_state_has_moved(patch: Patch) -> None:
    patch.setattr(FakeMove, "place", lambda self, row: fakes.owner(self.new, row))


def keep_what_has_moved(patch: Patch) -> None:
    def after(
        self: FakeMove, worker: int, state: frozenset[fakes.Row], mine: frozenset[fakes.Row]
    ) -> frozenset[fakes.Row]:
        taken = frozenset(row for rows in self.given.values() for row in rows if fakes.owner(self.new, row) == worker)
        return state | taken | mine

    patch.setattr(FakeMove, "after", after)


def lose_what_moves(patch: Patch) -> None:
    original = FakeMove.after

    def after(
        self: FakeMove, worker: int, state: frozenset[fakes.Row], mine: frozenset[fakes.Row]
    ) -> frozenset[fakes.Row]:
        source_workers = {source_worker: rows for source_worker, rows in self.given.items() if source_worker == worker}
        return original(replace(self, given={worker: frozenset(), **source_workers}), worker, state, mine)

    patch.setattr(FakeMove, "after", after)


def split_rows_by_the_new_layout(patch: Patch) -> None:
    patch.setattr(places.KeyPlaces, "_stays", lambda self, hashes, before: np.zeros(len(hashes), np.bool_))


def forget_what_has_moved(patch: Patch) -> None:
    original = places.places_of

    def places_of(parts: Mapping[int, AnyDistributor], old: Layout, new: Layout, keys: places.Keys) -> places.KeyPlaces:
        found = original(parts, old, new, keys)
        return replace(found, first=dict.fromkeys(found.first, 0))

    patch.setattr(moving_steps, "places_of", places_of)


def replay_in_the_layouts_of_the_version(patch: Patch) -> None:
    patch.setattr(migrating, "of_record", lambda facts, record: facts)


PAUSES = replace(USUAL, crash=0.002, crash_again=0.0, error=0.002, pause=0.02, zombie=0.05, rescale=0.08)
ERRORS = replace(USUAL, crash=0.0, crash_again=0.0, error=0.03, straggler=1.0, rescale=0.08, pause=0.0, zombie=0.0)
BESIDE = replace(
    USUAL, crash=0.005, crash_again=0.0, error=0.01, pause=0.0, zombie=0.0, rescale=0.1, copy_speed=0.9, workers_max=4,
    lost=0.0,
)  # fmt: skip
COPIES = replace(
    USUAL, crash=0.0, crash_again=0.0, error=0.0, pause=0.0, disk_full=0.0, zombie=0.0, rescale=0.0, standby=1.0,
    copy_speed=0.9, ask=0.03,
)  # fmt: skip
QUIET = replace(USUAL, crash=0.001, crash_again=0.0, error=0.001, pause=0.0, zombie=0.0, rescale=0.08, lost=0.0)

BEHIND = Plant(
    rule="a task of an older epoch, or of a step that is past, is refused", breaks=circuit_plants.let_stragglers_write,
    design="6", seeds=30, faults=circuit_plants.STRAGGLERS, circuits=True,
)  # fmt: skip
"""Only stragglers reveal this one."""


def ask_anywhere(patch: Patch) -> None:
    for module in (machine, recovery):
        patch.setattr(module, "hosts_of", lambda _facts, _workers: ())


PLANTS = (
    BEHIND,
    Plant(rule="a worker is asked at its host", breaks=ask_anywhere, design="9", seeds=20),
    Plant(rule="steps of another engine are run again when accepted", breaks=any_engine, design="9", seeds=20),
    Plant(rule="an acceptance is durable before the replay", breaks=accept_in_memory, design="9", seeds=60),
    Plant(rule="an upgrade leaves no step above its checkpoint", breaks=leave_a_step, design="9", seeds=60),
    Plant(rule="an older epoch is refused", breaks=no_fence, design="6", seeds=60, faults=PAUSES),
    Plant(rule="a new epoch at each rollback", breaks=same_epoch, design="8", seeds=60, faults=ERRORS),
    Plant(rule="who was replaced takes nothing back", breaks=take_back, design="8", seeds=20, faults=PAUSES),
    Plant(rule="recovery asks the workers of the version's own layout", breaks=all_workers_vote, design="8", seeds=20),
    Plant(rule="recovery asks every worker of the layout", breaks=some_workers_vote, design="8", seeds=20),
    Plant(rule="the cut is pinned", breaks=pin_late, design="6", seeds=20),
    Plant(rule="at most one checkpoint in flight", breaks=two_in_flight, design="6", seeds=60),
    Plant(rule="published when all have committed", breaks=publish_early, design="8", seeds=20),
    Plant(rule="a step record is durable", breaks=forget_a_record, design="7", seeds=20),
    Plant(rule="the record before the step", breaks=run_before_the_record, design="7", seeds=20),
    Plant(rule="a decision is logged", breaks=decide_in_memory, design="4", seeds=20),
    Plant(rule="a checkpoint's positions are those of its steps", breaks=positions_of_the_cut, design="8", seeds=20),
    Plant(rule="positions before the first commit", breaks=intend_late, design="8", seeds=60),
    Plant(
        rule="copies that fail end the service",
        breaks=forget_failed_copies,
        design="8",
        seeds=60,
        faults=COPIES,
    ),
    Plant(rule="logs trimmed below the oldest openable version", breaks=trim_too_much, design="7", seeds=20),
    Plant(rule="a shard moves to one owner", breaks=move_a_shard_twice, design="9", seeds=60),
    Plant(rule="every shard moves", breaks=forget_a_shard, design="9", seeds=20),
    Plant(
        rule="warm slices lie outside the manifest",
        breaks=slices_in_the_manifest,
        design="9",
        seeds=120,
        faults=BESIDE,
    ),
    Plant(
        rule="what a warm-up lacks is copied at the switch",
        breaks=take_over_early,
        design="9",
        seeds=60,
        faults=QUIET,
    ),
    Plant(
        rule="the switch slices what all steps have made",
        breaks=slice_the_version_before,
        design="9",
        seeds=60,
        faults=QUIET,
    ),
    Plant(rule="a leaver stays until no version names it", breaks=discard_leavers_early, design="9", seeds=300),
    Plant(rule="deleting asks for the epoch", breaks=discard_without_epoch, design="6", seeds=60, faults=PAUSES),
    Plant(rule="a course is logged before its first step", breaks=forget_the_course, design="9", seeds=20),
    Plant(rule="no step is logged ahead while keys move", breaks=cut_ahead_while_keys_move, design="9", seeds=20),
    Plant(
        rule="rows go where their key's state is",
        breaks=route_before_the_state_has_moved,
        design="9",
        seeds=20,
    ),
    Plant(rule="a key moves to one owner", breaks=keep_what_has_moved, design="9", seeds=20),
    Plant(rule="a key on hold is not dropped", breaks=lose_what_moves, design="9", seeds=20),
    Plant(
        rule="rows of a key that has yet to move stay",
        breaks=split_rows_by_the_new_layout,
        design="9",
        seeds=12,
        circuits=True,
    ),
    Plant(
        rule="rows follow the keys that have moved",
        breaks=forget_what_has_moved,
        design="9",
        seeds=12,
        circuits=True,
    ),
    Plant(
        rule="a replay runs each step in the layouts of its record",
        breaks=replay_in_the_layouts_of_the_version,
        design="9",
        seeds=20,
        circuits=True,
    ),
    Plant(rule="the layout is that of the opened version", breaks=old_layout_goes_on, design="8", seeds=80),
    Plant(rule="the clock never goes back", breaks=clock_as_it_is, design="4", seeds=20),
    *(Plant(rule=rule, breaks=breaks, design=design, seeds=seeds) for rule, breaks, design, seeds in loss_plants.RULES),
    *(
        Plant(rule=rule, breaks=breaks, design=design, seeds=seeds, faults=faults, circuits=True)
        for rule, breaks, design, seeds, faults in circuit_plants.RULES
    ),
    *(
        Plant(rule=rule, breaks=breaks, design=design, seeds=seeds, faults=faults, disks=True)
        for rule, breaks, design, seeds, faults in disk_plants.RULES
    ),
    *(
        Plant(rule=rule, breaks=breaks, design=design, seeds=seeds, copied=True)
        for rule, breaks, design, seeds in copy_plants.RULES
    ),
)
