"""The coordinator in one process from one seed: crashes, errors, zombies, rescales, requests at any moment.

The machine and the command runner are those of the service; only the world is in memory (`tests.coordinator.fakes`: states are
sets of rows). The random numbers of a seed decide everything, so a seed repeats.

After the faults, `settle` lets all that arrived be processed, stops gracefully, and `judge` asks the five oracles at the head of
docs/faults.md: (a) golden run, (b) recomputation, (c) ranges, (d) faults fired, (e) liveness.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

from dbsp.coordinator.decisions import commands, events, states
from dbsp.coordinator.decisions.cutting import advance
from dbsp.coordinator.decisions.limits import StepLimits
from dbsp.coordinator.decisions.migrating import is_open
from dbsp.coordinator.decisions.strategies import STRATEGIES
from dbsp.coordinator.running.command_runner import CommandRunner
from dbsp.coordinator.running.control import request_rescale
from dbsp.coordinator.running.loop_settings import LoopSettings
from dbsp.coordinator.running.relocations import strays
from dbsp.errors import AwayError, CapacityError, DbspError, FencedError, UnavailableError
from dbsp.logs import StepRecord
from dbsp.logs.step_commands import skipped_nodes
from tests.coordinator import fake_runtime, fakes
from tests.sim.coordinator import Coordinator
from tests.sim.coverage import Coverage
from tests.sim.faults import NONE, OUTSIDE, WRITES, Faults, Fired, drawn
from tests.sim.losses import Losses, opens_yet
from tests.sim.unusable import UnusableHosts, named_hosts

LIMITS = StepLimits(max_rows_per_step=12, max_step_delay_ms=5)
RECOVERY_COMMANDS_USUAL = 12
"""Commands other than replayed steps from a claim to the next new step, with a rescale and a copy on the way."""
LIVENESS = 10
ENDS = (None, "unavailable", "fenced", "capacity", "engine")
"""Why an incarnation may end while faults go on: asked to, too many failures in a row, another owner, a full disk, steps of
another version of the engine.
"""
ENGINES = ("1.0", "2.0")
HOSTS, APART, NAMED = ("a", "b", "c"), 0.4, 0.3
"""Hosts with a disk of their own each, in how many seeds there are such, and how often a rescale names some."""
UPGRADES, UPGRADES_RARE = 0.03, 0.3
"""How often an upgrade is asked for, as parts of how often another version is installed; in seldom states more often."""
PAUSED_TURNS_MAX = 60
CRASHES_AT_RECOVERY_MAX = 6
STANDBYS, AWAY_TURNS_MAX = 0.1, 300
"""In how many seeds copies go to a disk of their own, and for how long at most it cannot be written."""
OUTSIDERS = 0.15
"""In how many seeds a broker is away for a while now and then, as long as a standby."""
CANCELS = 0.2
"""The part of what is asked about rescales that takes one back."""


@dataclass
class Simulation:
    """A world, a clock, and whoever runs in it.

    `strikes` makes the n-th point (from 0) crash, whatever the faults; `on_turn` is called after every turn.
    """

    HOSTS_CHANGE: ClassVar[bool] = True
    """Whether hosts are lost, and rescales name some."""

    seed: int
    faults: Faults | None = None
    world: fakes.World = field(default_factory=fakes.World)
    clock: fakes.FakeClock = field(default_factory=fakes.FakeClock)
    trace: list[str] = field(default_factory=list)
    coverage: Coverage = field(default_factory=Coverage)
    fired: Fired = field(default_factory=Fired)
    strikes: frozenset[int] = frozenset()
    settings: LoopSettings = field(default_factory=lambda: LoopSettings(limits=LIMITS))
    quiet: bool = False
    zombie: Coordinator | None = None
    main: Coordinator | None = None
    had_zombies: bool = False
    points: int = 0
    turns: int = 0
    engine: str = ENGINES[0]
    accepting: tuple[str, ...] = ()
    _depth: int = 0
    _full_until: int = -1
    _away_until: int = -1
    _outside_until: int = -1
    _crashes_in_recovery: int = 0

    def __post_init__(self) -> None:
        """The seed decides the mix of faults and the first layout."""
        self.random = random.Random(self.seed)
        self.faults = drawn(self.random) if self.faults is None else self.faults
        self.rates = self.faults
        self.engines = random.Random(f"engines of {self.seed}")  # apart, so that nothing else of a seed hangs on it
        self.world.point = self._point
        self.world.bad = self._is_bad
        self.world.straggle = self._straggles
        self.places = random.Random(f"places of {self.seed}")
        self.unusable = UnusableHosts(self.seed, self.world)
        self.standbys = random.Random(f"standbys of {self.seed}")
        self.outside = random.Random(f"outside of {self.seed}")
        self.has_outside = self.outside.random() < OUTSIDERS
        self.has_standby = self.standbys.random() < STANDBYS
        if self.places.random() < APART:
            self.world.offered = HOSTS[:2]
        self.losses = Losses(self.seed, self.world, self.fired, self.rates.lost if self.HOSTS_CHANGE else 0.0)
        self.losses.claims = self._claims_standbys
        fakes.begin(self.world, self.random.randint(1, min(4, self.rates.workers_max)))

    # --- faults -------------------------------------------------------------------------------------------------

    def _point(self, name: str) -> None:
        self.trace.append(name)
        number, self.points = self.points, self.points + 1
        if number in self.strikes:
            self._strike("crash")
        if self.quiet:
            return
        self.losses.strike(self.turns)
        if self.has_outside and name.startswith(OUTSIDE):
            self._ask_outside()
        draw = self.random.random()
        recovers = self.main is not None and self.main.recovers
        again = self.rates.crash_again if recovers and self._crashes_in_recovery < CRASHES_AT_RECOVERY_MAX else 0.0
        if draw < self.rates.crash:
            self._strike("crash")
        if draw < self.rates.crash + again:
            self._crashes_in_recovery += 1
            self._strike("crash-in-recovery")
        draw -= self.rates.crash + again
        if 0 <= draw < self.rates.error:
            self.fired.note("error")
            raise UnavailableError(f"planted at {name}")
        draw -= self.rates.error
        if 0 <= draw < self.rates.disk_full:
            self._full_until = self.turns + self.random.randint(1, 12)
        if self.turns <= self._full_until and name.startswith(WRITES):
            self.fired.note("disk-full")
            raise CapacityError(f"no space left on the device: at={name}", "free some space")
        draw -= self.rates.disk_full
        if 0 <= draw < self.rates.pause and self._depth == 0 and self.zombie is None:
            self._pause()
        if self.has_standby and name.startswith("before copy"):
            self._write_standby()

    def _write_standby(self) -> None:
        """Pieces of a copy go to a second disk, which is away for a while now and then."""
        if self.turns > self._away_until and self.standbys.random() < self.rates.standby:
            self._away_until = self.turns + self.standbys.randint(1, AWAY_TURNS_MAX)
        if self.turns <= self._away_until:
            self.fired.note("standby")
            raise UnavailableError("the standby cannot be written")

    def _ask_outside(self) -> None:
        """A broker is asked, which is away for a while now and then."""
        if self.turns > self._outside_until and self.outside.random() < self.rates.away:
            self._outside_until = self.turns + self.outside.randint(1, AWAY_TURNS_MAX)
        if self.turns <= self._outside_until:
            self.fired.note("away")
            raise AwayError("the broker does not answer")

    def _strike(self, kind: str) -> None:
        self.trace.append("CRASH")
        self.fired.note(kind)
        raise fakes.Crash

    def _pause(self) -> None:
        """Whoever stands at this point is stopped; a successor starts and goes on for a while; then the stopped one wakes up.

        A crash in between is the successor's; the stopped one knows nothing of it.
        """
        self.trace.append("PAUSED")
        self.fired.note("pause")
        self.had_zombies, self._depth = True, 1
        stopped, self.main = self.main, None
        try:
            self._run(self.start(), self.random.randint(1, PAUSED_TURNS_MAX))
        finally:
            self._depth = 0
            self.trace.append("WOKEN")
            self.zombie = stopped

    def _straggles(self) -> bool:
        """Whether the worker on which a step failed goes on with it behind everybody's back."""
        straggles = not self.quiet and self.random.random() < self.rates.straggler
        if straggles:
            self.fired.note("straggler")
        return straggles

    def _claims_standbys(self) -> bool:
        """Whether the service says that each worker has a standby on another host, and that it has the published version."""
        main = self.main
        if main is None or not isinstance(main.state, states.Running | states.Paused):
            return False
        facts, told = main.state.facts, main.runner.standbys.status
        if facts.epoch != self.world.epoch:
            return False  # another one owns the pipeline
        whole = [each for each in told["standbys"] if (each["version"], each["lag_bytes"]) == (facts.published, 0)]
        return not told["missing"] and {each["worker"] for each in whole} >= set(facts.layout.workers)

    def _is_bad(self, row: fakes.Row) -> bool:
        """Rows on which the circuit fails; in every fifth seed none."""
        return self.seed % 5 != 0 and fakes.row_hash(row) % 97 == self.seed % 97

    # --- what happens -------------------------------------------------------------------------------------------

    def make_runner(self) -> CommandRunner:
        """A new command runner on the world."""
        hosts = tuple((host, 1.0) for host in self.world.offered)
        return fake_runtime.command_runner(
            self.world, self.clock,
            replace(self.settings, hosts=hosts, host_loss=self.losses.rule, standbys=self.losses.standbys),
        )  # fmt: skip

    def facts(self) -> states.Facts:
        """What an incarnation starts from; the seed says what lag, in rows, a warm-up accepts, and how many keys a step moves."""
        lag, keys = (1, 10, 1000)[self.seed % 3], (1, 3, 20)[self.seed % 3]
        return replace(
            fakes.facts(self.world), acceptable_recovery_lag=lag, keys_per_step=keys, only_published=self.world.far is not None
        )  # fmt: skip

    def start(self) -> Coordinator:
        """A new incarnation, maybe of another version of the engine, or with other hosts for the workers to come."""
        self._install()
        if self.world.offered and self.places.random() < 0.5:
            self.world.offered = tuple(self.places.sample(HOSTS, self.places.randint(1, len(HOSTS))))
        runner = self.make_runner()
        runner._parts = replace(runner._parts, engine=self.engine)
        facts = replace(self.facts(), engine=self.engine, accepting=frozenset(self.accepting))
        made = Coordinator(runner=runner, state=states.Starting(facts=facts), coverage=self.coverage)
        self.main = made
        made.decide(events.LoopReady())
        return made

    def _install(self) -> None:
        """What is installed when somebody starts; at the end all is accepted."""
        if self.quiet:
            self.accepting = ENGINES
        elif self.engines.random() < self.rates.engine:
            self.fired.note("engine")
            self.engine = ENGINES[1 - ENGINES.index(self.engine)]

    def _refused(self) -> None:
        """Steps of another version: a user accepts them, or puts that version back."""
        self.fired.note("refused")
        if self.engines.random() < 0.5:
            self.accepting = ENGINES
        elif self.world.steps:
            self.engine = self.world.steps[-1].engine

    def _wants_upgrade(self) -> bool:
        share = UPGRADES_RARE if self._is_rare() else UPGRADES
        return self.engines.random() < self.rates.engine * share

    def request(self, epoch: int) -> events.Request | None:
        """What a user may ask at this moment."""
        if self._wants_upgrade():
            return events.UpgradeAsked()
        draw = self.random.random()
        if draw < self.rates.rescale * CANCELS:
            return events.CancelAsked()
        if draw < self.rates.rescale:
            workers = self.random.randint(1, self.rates.workers_max)
            if self.random.random() < 0.05:
                workers = 5000  # more than there can be
            strategy = self.random.choice(STRATEGIES)
            hosts = named_hosts(self.world, self.places, NAMED, HOSTS) if self.HOSTS_CHANGE else None
            left_out = self.unusable.left_out(HOSTS) if hosts is None else None
            wanted = partial(request_rescale, workers=workers, strategy=strategy, hosts=hosts, excluded=left_out)
            try:
                self.world.control.change(epoch, wanted)
            except (FencedError, UnavailableError):  # the ledger may have the request all the same
                self.unusable.is_heard = False
                return None
            self.unusable.is_heard = True
            return events.RescaleAsked(workers=workers, strategy=strategy, hosts=hosts, excluded=left_out)
        draw = (draw - self.rates.rescale) / max(self._asks(), 1e-9)
        if draw >= 1.0:
            return None
        skip = events.SkipAsked(step=self.random.randint(0, 9))
        kinds = events.CheckpointAsked(), events.PauseAsked(), events.ResumeAsked(), skip
        every = (*kinds, events.StopAsked(now=True), events.StopAsked())
        weights = (1, 1, 2, 1, 1, 2) if self._is_rare() else (30, 10, 48, 4, 2, 6)
        return self.random.choices(every, weights)[0]

    def _is_rare(self) -> bool:
        """States that are seldom and short: users ask more often there, so that every request meets every state."""
        state = self.main.state if self.main is not None else None
        forgets = isinstance(state, states.Recovering) and state.awaits in ("forgotten", "created")
        idle = isinstance(state, states.Running) and state.awaits in ("input", "record")
        rare = states.Rescaling | states.Stopping | states.Checkpointing | states.Halted
        return forgets or idle or isinstance(state, rare)

    def _asks(self) -> float:
        return 3 * self.rates.ask if self._is_rare() else self.rates.ask

    def news(self, coordinator: Coordinator) -> events.News | None:
        """What the event loop would be told of what is copied beside the steps."""
        copying, warming = coordinator.state.facts.copying, coordinator.state.facts.warming
        told: events.News | None = None
        if copying is not None and not copying.ended:
            told = coordinator.runner.copy_news(copying.version)
        if told is None and warming is not None and not warming.ended:
            told = coordinator.runner.warm_news(warming.round)
        return told or self.unusable.news(coordinator.state.facts, quiet=self.quiet)

    def skip(self, state: states.Halted) -> events.Request:
        """The user decides, sometimes about a step that is long past."""
        halt = state.facts.halt
        assert halt is not None
        stale = not self.quiet and self.random.random() < 0.2
        return events.SkipAsked(step=halt.step - 1 if stale else halt.step)

    def arrive(self) -> None:
        """Rows come in, the wall clock jumps, stragglers go on."""
        if self.random.random() < self.rates.arrive:
            self.world.grow(self.random.choice(sorted(self.world.ends)), self.random.randint(1, 20))
        if self.random.random() < self.rates.clock:
            self.fired.note("clock")
            self.clock.wall_offset_us += self.random.choice([-3_600_000_000, 3_600_000_000])
        if self.world.stragglers and self.random.random() < 0.3:
            self.world.late()

    def turn(self, coordinator: Coordinator) -> None:
        """Carry out one command and tell the machine."""
        command = coordinator.command
        assert command is not None
        steps: Any = coordinator.runner._parts.steps
        owned, ledger = steps.claimed, self.world.control.load()
        self.turns += 1
        self.trace.append(type(command).__name__)
        if self.quiet:
            self.clock.now_s += 0.001
        elif self.random.random() < self.rates.slow:
            self.fired.note("slow")
            self.clock.now_s += 30.0
        for copy in list(self.world.copies):
            if self.quiet or self.random.random() < self.rates.copy_speed:
                copy.advance()
        match command:
            case commands.Wait(for_input=for_input):
                self._wait(coordinator, for_input)
            case commands.BackOff():
                asked = self.request(coordinator.state.facts.epoch) if not self.quiet else None
                if asked is not None:
                    coordinator.decide(asked)
                if coordinator.finished is None:
                    coordinator.decide(events.Woken())
            case _:
                self._perform(coordinator, command)
        replaced = owned and ledger is not None and ledger.epoch > owned
        fakes.must(not replaced or steps.claimed == owned, "6: who was replaced takes nothing back")

    def _wait(self, coordinator: Coordinator, for_input: bool) -> None:
        self.clock.now_s += 0.01
        asked: events.Request | events.News | None = self.news(coordinator)
        if asked is None and not self.quiet:
            asked = self.request(coordinator.state.facts.epoch)
        halted = isinstance(coordinator.state, states.Halted) and (self.quiet or self.random.random() < 0.2)
        if asked is None and halted:
            asked = self.skip(coordinator.state)  # type: ignore[arg-type]
        try:
            due = for_input and coordinator.runner.step_is_due()
        except DbspError as error:
            coordinator.decide(events.Failed(code=error.code, message=str(error)))
            return
        spurious = not self.quiet and self.random.random() < 0.05
        if asked is not None or due or spurious:
            coordinator.decide(asked or events.Woken())

    def _perform(self, coordinator: Coordinator, command: commands.Command) -> None:
        facts = coordinator.state.facts
        if isinstance(command, commands.RunStep) and command.replay and facts.epoch == self.world.epoch:
            self._engine_may(command.record, facts.engine)
        if isinstance(command, commands.LogLayout) and facts.epoch == self.world.epoch:
            self.unusable.judge(command.layout, facts.layout)
        event = coordinator.runner.perform(command)
        news = self.news(coordinator)
        if news is not None:
            coordinator.decide(news)
        asked = self.request(coordinator.state.facts.epoch) if not self.quiet else None
        if asked is not None and coordinator.finished is None:
            coordinator.decide(asked)
        if coordinator.finished is None:
            coordinator.decide(event)

    def _engine_may(self, record: StepRecord, engine: str) -> None:
        """A replay is by the version that logged the step, or by one that was accepted for it, durably."""
        ledger = self.world.control.load()
        assert ledger is not None
        may = record.engine == engine or any(
            (known.engine, known.by) == (record.engine, engine) and record.step <= known.last
            for known in ledger.accepted
        )
        fakes.must(may, f"9: step {record.step} of engine {record.engine} is run again by {engine}")

    def live(self, turns: int) -> None:
        """One incarnation after the other, with faults; then none, and the judgement."""
        self._run(self.start(), turns)
        self.settle()
        self.judge()

    def _run(self, coordinator: Coordinator, turns: int) -> None:
        for _ in range(turns):
            self.arrive()
            try:
                self.turn(coordinator)
            except fakes.Crash:
                coordinator = self._after_crash()
                continue
            if self.main is not coordinator and self.main is not None:
                coordinator = self.main  # it was stopped within the command, and another one has taken over
            if coordinator.finished is not None:
                self._ended(coordinator)
                coordinator = self.start()
            elif self.zombie is None and self.random.random() < self.rates.zombie:
                self.fired.note("zombie")
                self.zombie, coordinator, self.had_zombies = coordinator, self.start(), True
            elif self.zombie is not None and self.random.random() < 0.2 and self._depth == 0:
                self.wake_zombie()
            self.main = coordinator
            if not coordinator.recovers:
                self._crashes_in_recovery = 0
        self.main = coordinator

    def _after_crash(self) -> Coordinator:
        self.world.crash()
        self.zombie = None if self._depth == 0 else self.zombie
        return self.start()

    def _ended(self, coordinator: Coordinator) -> None:
        finished, facts = coordinator.finished, coordinator.state.facts
        assert finished is not None
        without_disk = bool(self.world.broken) and finished.message.startswith("the disks of workers are lost")
        fakes.must(finished.code in ENDS or without_disk, f"{finished.code}: {finished.message}")
        if finished.code == "engine":
            self._refused()
        else:
            self.accepting = ()
        if finished.message == "stopped" and facts.epoch == self.world.epoch:
            above = [record.step for record in self.world.steps if record.step >= facts.checkpoint_step]
            fakes.must(not above, f"9: an upgrade or a stop leaves steps above its checkpoint: {above}")
        if finished.again and facts.epoch == self.world.epoch:
            self.engine = ENGINES[1 - ENGINES.index(self.engine)]

    def wake_zombie(self) -> None:
        """An older incarnation goes on for a moment."""
        zombie, main = self.zombie, self.main
        assert zombie is not None
        self.trace.append("ZOMBIE")
        self.main, self._depth = None, 1
        try:
            if zombie.finished is None:
                self.turn(zombie)
        except fakes.Crash:
            self.zombie = None
            return
        finally:
            self.main, self._depth = main, 0
        if zombie.finished is not None:
            self._ended(zombie)
            self.zombie = None

    # --- the end ------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """No more faults: everything that arrived is processed, then a graceful stop (oracle e)."""
        self.quiet = True
        self.world.silent.clear()
        self.world.broken.clear()
        for _ in range(5):
            if self._settled_once():
                return
        raise fakes.ViolationError("e: liveness: it does not settle")

    def _settled_once(self) -> bool:
        """One incarnation without faults; whether it ended with nothing left to do."""
        coordinator = self.main
        if coordinator is None or coordinator.finished is not None or self.world.epoch != coordinator.state.facts.epoch:
            coordinator = self.start()
        fresh = opens_yet(coordinator.state)
        coordinator.decide(events.ResumeAsked())
        stopping, issued, steps = False, 0, len(self.world.steps)
        waiting = sum(self.world.ends.values())
        most = max(len(layout.workers) for layout in coordinator.state.facts.layouts.values())
        pairs = most**2  # of source workers and target workers, by which a round of a warm-up copies
        limit = LIVENESS * (RECOVERY_COMMANDS_USUAL + steps + waiting + pairs)
        while coordinator.finished is None:
            done = {place: end for place, end in self.world.ends.items() if end}
            facts = coordinator.state.facts
            moves = facts.requested.rescale is not None or facts.warming is not None or is_open(facts)
            idle = isinstance(coordinator.command, commands.Wait) and coordinator.runner.done == done and not moves
            if idle and not stopping:
                stopping = True
                coordinator.decide(events.StopAsked())
                continue
            try:
                self.turn(coordinator)
            except fakes.Crash:  # one that `strikes` asked for
                self.world.crash()
                self.main = None
                return False
            issued += 1
            fakes.must(issued <= limit, f"e: liveness: no end after {issued} commands: {_brief(coordinator.state)}")
        if coordinator.finished.code == "engine" and coordinator.state.facts.accepting != frozenset(ENGINES):
            return False  # it was started before the faults ended; the next one accepts
        fakes.must(coordinator.finished.code is None, f"{coordinator.finished.code}: {coordinator.finished.message}")
        ledger = self.world.control.load()
        assert ledger is not None
        left = ledger.members - set(coordinator.state.facts.layout.workers)
        if (strays(ledger) or left) and not fresh:
            return False  # the next start deletes them: their host did not answer
        return stopping and ledger.rescale is None  # else a stop came first; the next start meets what is left

    def judge(self) -> None:
        """The oracles of docs/faults.md on what is left."""
        self.golden_run()
        self.recomputation()
        self.ranges()

    def golden_run(self) -> None:
        """(a) Outputs per step are those of the step log, each row once, at whatever worker."""
        world = self.world
        parts = world.written()
        for record in world.steps:
            written = Counter(row for rows in parts.get(record.step, ()) for row in rows)
            fakes.must(written == Counter(fakes.rows_of(record)), f"a: outputs of step {record.step}")
        fakes.must(not {s for _, s in world.outputs} - {r.step for r in world.steps}, "a: outputs of no step")

    def recomputation(self) -> None:
        """(b) The state is what a batch computation of the input gives, each row at its one owner."""
        world = self.world
        ledger = world.control.load()
        assert ledger is not None
        saved = ledger.saved[ledger.published]
        layout = ledger.layouts[saved.checkpoint.layout_version]
        arrived = {(t, q, offset) for (t, q), end in world.ends.items() for offset in range(end)}
        there = all(world.bring(worker, host) for worker, host in zip(layout.workers, layout.hosts, strict=True))
        fakes.must(there and set(layout.workers) == ledger.members, "b: members have databases")
        alone = set(world.databases) == ledger.members and not world.elsewhere
        fakes.must(self.had_zombies or alone, "b: databases of nobody")
        fakes.must(set(layout.owners) == set(layout.workers), "b: a worker owns nothing: a migration came to no end")
        for worker in layout.workers:
            state = world.databases[worker].versions[saved.version][1]
            fakes.must(all(fakes.owner(layout, row) == worker for row in state), "b: a row at another's")
        known_states = [world.databases[worker].versions[saved.version][1] for worker in layout.workers]
        good = Counter(row for row in arrived if not world.bad(row))
        fakes.must(Counter(row for state in known_states for row in state) == good, "b: each row at one owner")
        dead = {row for rows in world.dead.values() for row in rows}
        fakes.must(dead == {row for row in arrived if world.bad(row)}, "b: what was skipped is a dead letter")
        decided = all(
            bool(skipped_nodes(record.commands)) == bool(dead & fakes.rows_of(record)) for record in world.steps
        )
        fakes.must(decided, "b: a decision where there was something to decide")

    def ranges(self) -> None:
        """(c) The ranges of the step log are contiguous, do not overlap and cover the input; its clock never goes back."""
        world = self.world
        records = world.steps
        fakes.must([record.step for record in records] == list(range(len(records))), "c: steps are numbered in order")
        after = advance({}, records)
        fakes.must(after == {place: end for place, end in world.ends.items() if end}, "c: the ranges cover the input")
        clocks = [record.clock_us for record in records]
        fakes.must(clocks == sorted(clocks), "c: the logged clock never goes back")
        epochs = [record.epoch for record in records]
        fakes.must(epochs == sorted(epochs), "c: epochs never go back")


def _brief(state: states.State) -> str:
    """Where a machine stands, without its layouts."""
    facts, warming = state.facts, state.facts.warming
    at = f"{type(state).__name__} layout={facts.layout.version} step={facts.next_step} requested={facts.requested}"
    if warming is None:
        return at
    return f"{at} warming_to={warming.new.version} round={warming.round} ended={warming.ended}"


def without_faults(seed: int, **changes: Any) -> Simulation:
    """A simulation in which nothing goes wrong, unless `strikes` says so."""
    faults = replace(NONE, **{name: changes.pop(name) for name in list(changes) if name in Faults.__slots__})
    return Simulation(seed=seed, faults=faults, **changes)


def first_failure(
    seeds: Iterable[int], turns: int, make: Callable[[int], Simulation] = lambda n: Simulation(seed=n)
) -> int | None:
    """How many seeds it takes until something is wrong; None if nothing is."""
    for count, seed in enumerate(seeds, 1):
        try:
            make(seed).live(turns)
        except (Exception, fakes.ViolationError):  # noqa: BLE001 - any refusal counts
            return count
    return None
