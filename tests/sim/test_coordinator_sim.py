"""The coordinator in one process from one seed: crashes, errors, zombies, rescales, requests at any moment.

The same machine and the same hands as in the service; only the world is in memory. A failure names its seed; run one
seed alone with `DBSP_SIM_SEED=n`.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from dbsp.coordinator import machine
from dbsp.coordinator import protocol as p
from dbsp.coordinator.control import Ledger, wish_rescale
from dbsp.coordinator.cutting import StepLimits
from dbsp.coordinator.hands import Hands, ShellSettings
from dbsp.coordinator.machine import step
from dbsp.errors import FencedError, UnavailableError
from dbsp.store import CheckpointId
from tests.coordinator import fakes

SEEDS = [int(os.environ["DBSP_SIM_SEED"])] if "DBSP_SIM_SEED" in os.environ else list(range(150))
LIMITS = StepLimits(max_rows_per_step=12, max_step_delay_ms=5)


@dataclass
class Coordinator:
    """One incarnation: the machine's state, the hands, the command it is about to carry out."""

    hands: Hands
    state: p.State
    command: p.Command | None = None
    finished: p.Finish | None = None

    def decide(self, event: p.Event) -> None:
        self.state, commands = step(self.state, event)
        for command in commands:
            self.command = command
            if isinstance(command, p.Finish):
                self.finished = command


@dataclass
class Simulation:
    """A world, a clock, and whoever runs in it."""

    seed: int
    crash_rate: float = 0.02
    error_rate: float = 0.02
    world: fakes.World = field(default_factory=fakes.World)
    clock: fakes.FakeClock = field(default_factory=fakes.FakeClock)
    trace: list[str] = field(default_factory=list)
    quiet: bool = False
    zombie: Coordinator | None = None
    had_zombies: bool = False

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.world.point = self._point
        self.world.bad = self._is_bad
        fakes.begin(self.world, self.random.randint(1, 4))

    def _point(self, name: str) -> None:
        self.trace.append(name)
        if self.quiet:
            return
        draw = self.random.random()
        if draw < self.crash_rate:
            self.trace.append("CRASH")
            raise fakes.Crash
        if draw < self.crash_rate + self.error_rate:
            raise UnavailableError(f"planted at {name}")

    def _is_bad(self, row: fakes.Row) -> bool:
        """Rows on which the circuit fails; in every fifth seed none."""
        return self.seed % 5 != 0 and fakes.row_hash(row) % 97 == self.seed % 97

    def start(self) -> Coordinator:
        settings = ShellSettings(limits=LIMITS)
        coordinator = Coordinator(
            hands=fakes.hands(self.world, self.clock, settings), state=p.Starting(facts=fakes.facts(self.world))
        )
        coordinator.decide(p.Begin())
        return coordinator

    def request(self, epoch: int) -> p.Request | None:
        """What a user may ask at this moment."""
        draw = self.random.random()
        if draw < 0.02:
            workers = self.random.randint(1, 5)
            try:
                self.world.control.change(epoch, lambda ledger: wish_rescale(ledger, workers))
            except FencedError:
                return None
            return p.RescaleAsked(workers=workers)
        if draw < 0.05:
            return p.CheckpointAsked()
        if draw < 0.06:
            return p.PauseAsked()
        if draw < 0.10:
            return p.ResumeAsked()
        return p.StopAsked() if draw < 0.105 else None

    def news(self, coordinator: Coordinator) -> p.CopyEnded | None:
        """What the shell would be told of the checkpoint in flight."""
        copying = coordinator.state.facts.copying
        if copying is None or copying.ended:
            return None
        return coordinator.hands.copy_news(copying.version)

    def skip(self, state: p.Halted) -> p.Request:
        """The user decides, sometimes about a step that is long past."""
        halt = state.facts.halt
        assert halt is not None
        stale = not self.quiet and self.random.random() < 0.2
        return p.SkipAsked(step=halt.step - 1 if stale else halt.step)

    def arrive(self) -> None:
        """Rows come in, the wall clock jumps."""
        if self.random.random() < 0.4:
            self.world.grow(self.random.choice(sorted(self.world.ends)), self.random.randint(1, 20))
        if self.random.random() < 0.05:
            self.clock.wall_offset_us += self.random.choice([-3_600_000_000, 3_600_000_000])

    def turn(self, coordinator: Coordinator) -> None:
        """Carry out one command and tell the machine."""
        command = coordinator.command
        assert command is not None
        self.trace.append(type(command).__name__)
        for copy in list(self.world.copies):
            if self.quiet or self.random.random() < 0.3:
                copy.advance()
        match command:
            case p.Wait(for_input=for_input):
                self.clock.now_s += 0.01
                asked: p.Request | p.CopyEnded | None = self.news(coordinator)
                if asked is None and not self.quiet:
                    asked = self.request(coordinator.state.facts.epoch)
                if (
                    asked is None
                    and isinstance(coordinator.state, p.Halted)
                    and (self.quiet or self.random.random() < 0.2)
                ):
                    asked = self.skip(coordinator.state)
                if asked is None and not (for_input and coordinator.hands.step_is_due()):
                    return
                coordinator.decide(asked or p.Woken())
            case p.BackOff():
                coordinator.decide(p.Woken())
            case _:
                event = coordinator.hands.perform(command)
                news = self.news(coordinator)
                if news is not None:
                    coordinator.decide(news)
                asked = self.request(coordinator.state.facts.epoch) if not self.quiet else None
                if asked is not None:
                    coordinator.decide(asked)
                if coordinator.finished is None:
                    coordinator.decide(event)

    def live(self, turns: int) -> None:
        """One incarnation after the other, with faults."""
        coordinator = self.start()
        for _ in range(turns):
            self.arrive()
            try:
                self.turn(coordinator)
            except fakes.Crash:
                self.world.crash()
                coordinator = self.start()
                continue
            if coordinator.finished is not None:
                code = coordinator.finished.code
                assert code in (None, "unavailable", "fenced"), coordinator.finished.message
                coordinator = self.start()
            elif self.zombie is None and self.random.random() < 0.02:
                self.zombie, coordinator, self.had_zombies = coordinator, self.start(), True
            elif self.zombie is not None and self.random.random() < 0.2:
                self.wake_zombie()
        self.settle(coordinator)

    def wake_zombie(self) -> None:
        """An older incarnation goes on for a moment."""
        zombie = self.zombie
        assert zombie is not None
        self.trace.append("ZOMBIE")
        try:
            self.turn(zombie)
        except fakes.Crash:
            self.zombie = None
            return
        if zombie.finished is not None:
            self.zombie = None

    def settle(self, coordinator: Coordinator) -> None:
        """No more faults: everything that arrived is processed, then a graceful stop."""
        self.quiet = True
        if coordinator.finished is not None or self.world.epoch != coordinator.state.facts.epoch:
            coordinator = self.start()
        coordinator.decide(p.ResumeAsked())
        stopping = False
        for _ in range(5000):
            if coordinator.finished is not None:
                break
            idle = isinstance(coordinator.command, p.Wait) and coordinator.hands.done == {
                place: end for place, end in self.world.ends.items() if end
            }
            if idle and not stopping:
                stopping = True
                coordinator.decide(p.StopAsked())
                continue
            self.turn(coordinator)
        ledger = self.world.control.load()
        assert ledger is not None
        if coordinator.finished is not None and (not stopping or ledger.rescale is not None):
            self.settle(self.start())  # a stop came first; the next start meets what is left
            return
        assert coordinator.finished is not None, f"did not settle: {coordinator.state}"
        assert coordinator.finished.code is None, coordinator.finished.message
        self.judge()

    def judge(self) -> None:
        """Each row once, in the step that its record says, owned by one worker; nothing left out."""
        world = self.world
        everything = Counter(row for record in world.steps for row in fakes.rows_of(record))
        arrived = {(t, q, offset) for (t, q), end in world.ends.items() for offset in range(end)}
        assert set(everything) == arrived, "every row that arrived is in a step"
        assert set(everything.values()) <= {1}, "no row is in two steps"
        for record in world.steps:
            parts = [*world.outputs.items(), *world.dead.items()]
            written = Counter(row for (_, s), rows in parts if s == record.step for row in rows)
            assert written == Counter(fakes.rows_of(record)), f"outputs of step {record.step}"
        assert not {s for _, s in world.outputs} - {record.step for record in world.steps}
        clocks = [record.clock_us for record in world.steps]
        assert clocks == sorted(clocks), "the logged clock never goes back"
        ledger = world.control.load()
        assert ledger is not None
        saved = ledger.saved[ledger.published]
        layout = ledger.layouts[saved.checkpoint.layout_version]
        assert set(layout.workers) == ledger.members <= set(world.databases)
        assert self.had_zombies or set(world.databases) == ledger.members, "databases of nobody"
        states = [world.databases[worker].versions[saved.version][1] for worker in layout.workers]
        good = Counter(row for row in arrived if not world.bad(row))
        assert Counter(row for state in states for row in state) == good, "each row at one owner"
        dead = {row for rows in world.dead.values() for row in rows}
        assert dead == {row for row in arrived if world.bad(row)}, "what was skipped is a dead letter"
        assert all(bool(record.commands) == bool(dead & fakes.rows_of(record)) for record in world.steps)
        if ledger.rescale is not None:
            assert len(layout.workers) == ledger.rescale


@pytest.mark.parametrize("seed", SEEDS)
def test_every_row_once_whatever_happens(seed: int) -> None:
    simulation = Simulation(seed=seed)
    try:
        simulation.live(turns=400)
    except BaseException as error:
        raise AssertionError(f"DBSP_SIM_SEED={seed}: {error!r}; last: {simulation.trace[-30:]}") from error


def test_without_faults_nothing_is_recovered() -> None:
    simulation = Simulation(seed=1, crash_rate=0.0, error_rate=0.0)
    simulation.live(turns=300)
    assert "CRASH" not in simulation.trace


def test_a_seed_repeats() -> None:
    first, second = Simulation(seed=7), Simulation(seed=7)
    first.live(turns=300)
    second.live(turns=300)
    assert first.trace == second.trace
    assert first.world.steps == second.world.steps


def _no_fence(patch: pytest.MonkeyPatch) -> None:
    """Workers take orders of any epoch."""
    patch.setattr(fakes.FakeDatabase, "check", lambda self, epoch: None)


def _commit_elsewhere(patch: pytest.MonkeyPatch) -> None:
    """A version is published with the input's position of the newest record, not of the last finished step."""
    original = Hands._intend

    def intend(self: Hands, version: int, checkpoint: CheckpointId) -> None:
        self.done = self._cut
        original(self, version, checkpoint)

    patch.setattr(Hands, "_intend", intend)


def _trim_too_much(patch: pytest.MonkeyPatch) -> None:
    """The step log is trimmed below the newest version instead of the oldest openable one."""
    original = Hands._trim

    def trim(self: Hands, ledger: Ledger) -> None:
        original(self, ledger)
        self._parts.steps.trim(ledger.saved[ledger.published].checkpoint.step + 1)

    patch.setattr(Hands, "_trim", trim)


def _run_before_the_record(patch: pytest.MonkeyPatch) -> None:
    """A step runs although its record was not written."""
    original = Hands._cut_step

    def cut_step(self: Hands, number: int, epoch: int, layout_version: int, *, full: bool) -> object:
        steps = self._parts.steps
        kept, steps.world.steps = steps.world.steps, [*steps.world.steps]  # type: ignore[attr-defined]
        try:
            return original(self, number, epoch, layout_version, full=full)
        finally:
            steps.world.steps = kept  # type: ignore[attr-defined]

    patch.setattr(Hands, "_cut_step", cut_step)


def _decide_in_memory(patch: pytest.MonkeyPatch) -> None:
    """A decision to skip is acted on but not logged."""
    original = fakes.FakeSteps.decide

    def decide(self: fakes.FakeSteps, epoch: int, step: int, command: str) -> object:
        before = self.world.steps[step]
        try:
            return original(self, epoch, step, command)
        finally:
            self.world.steps[step] = before

    patch.setattr(fakes.FakeSteps, "decide", decide)


def _publish_early(patch: pytest.MonkeyPatch) -> None:
    """A version is published before all workers have acknowledged it."""
    original = Hands._reports

    def reports(self: Hands, version: int) -> object:
        copying = self._copying
        if copying is not None and not copying.future.done():
            return {}
        return original(self, version)

    patch.setattr(Hands, "copy_news", lambda self, version: p.CopyEnded(version=version))
    patch.setattr(Hands, "_reports", reports)


def _pin_late(patch: pytest.MonkeyPatch) -> None:
    """What lands is the state of the moment, not the cut."""
    original = fakes.FakeCopy._land

    def land(self: fakes.FakeCopy, worker: int) -> None:
        database = self.world.databases[worker]
        if self.version in database.pins:
            database.pins[self.version] = (self.checkpoint, database.state)
        original(self, worker)

    patch.setattr(fakes.FakeCopy, "_land", land)


def _two_in_flight(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint is begun while another one is copied."""
    original = machine._between_steps

    def between_steps(facts: p.Facts, ahead: object) -> object:
        copying = facts.copying
        if copying is not None and not copying.ended and facts.wants.checkpoint:
            return machine._checkpoint(facts, ahead)  # type: ignore[arg-type]
        return original(facts, ahead)  # type: ignore[arg-type]

    patch.setattr(machine, "_between_steps", between_steps)


PLANTS = [
    _publish_early,
    _pin_late,
    _two_in_flight,
    _no_fence,
    _commit_elsewhere,
    _trim_too_much,
    _run_before_the_record,
    _decide_in_memory,
]


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_bug_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(_goes_wrong(seed) for seed in range(30))


def _goes_wrong(seed: int) -> bool:
    try:
        Simulation(seed=seed).live(turns=300)
    except Exception:  # noqa: BLE001 - any refusal counts: an assertion of the world, an error of the coordinator
        return True
    return False
