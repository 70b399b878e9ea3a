"""Draw the states of the coordinator's state machine and of a rescale from the code, as docs/states.md.

The command `python tools/state_diagrams.py` writes the page; `tests/sim/test_states.py` compares the page with this
module's output.

The machine is a function from a state and an event to a state and commands. This module explores the machine. For each
command it feeds every event that the command's docstring promises, and failures; in every state it sends every request.
Two situations that differ only in growing numbers (steps, epochs, versions) count as one, so their number is finite.
Every transition in the drawing was taken by the machine; `tests/sim` checks that its seeds take no other transition.
"""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

from dbsp.coordinator.decisions import commands, events, rescaling, states
from dbsp.coordinator.decisions.lost_hosts import with_hosts
from dbsp.coordinator.decisions.machine import step
from dbsp.coordinator.decisions.migrating import leavers
from dbsp.coordinator.decisions.strategies import COLD, WARMUP
from dbsp.distribute.migration_plan import MigrationPlan
from dbsp.distribute.names import ICADD
from dbsp.layout import Layout, initial
from dbsp.logs import StepRecord
from dbsp.store import CheckpointId, VersionInfo

STRATEGIES = (COLD, WARMUP, ICADD)
"""The strategies that are explored; the machine treats `redistribute` as `icadd`."""
PAGE = Path(__file__).parent.parent / "docs" / "states.md"
WORKERS, GROWN, HOSTS = 1, 2, (("a", 1.0), ("b", 1.0))
RECORDS_MAX = 2
LABELS_MAX = 3
"""An arrow with more events than this has no text; the table has them all."""
FAILURES = frozenset({"Failed", "Failed(fenced)", "Failed(rows)", "StopAsked(now)"})
"""Events that may occur in most states; an arrow for these alone is only in the table."""

Edges = dict[tuple[str, str], set[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The data that outlives the machine's process: the ledger, the step log, and the versions in the workers' databases."""

    layouts: Mapping[int, Layout]
    members: frozenset[int]
    held: Mapping[int, CheckpointId]
    migration_plans: Mapping[int, MigrationPlan] = field(default_factory=dict)
    used: int = 0
    forming: frozenset[int] = frozenset()
    published: int = 0
    rescale: int | None = None
    strategy: str = COLD
    records: tuple[StepRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The machine's state, the command under way, and the world outside."""

    state: states.State
    command: commands.Command | None
    world: World

    def kind(self) -> tuple[object, ...]:
        """Return the properties that distinguish situations, without numbers that only grow."""
        facts = self.state.facts
        copying, warming, migration_plan = facts.copying, facts.warming, facts.migration_plan
        return (
            place(self.state), type(self.command), facts.requested, facts.halt is not None, facts.failures > 0,
            copying and (copying.ended, copying.code),
            warming and (warming.ended, warming.ready, min(warming.round, 2), warming.code, warming.awaited is None),
            migration_plan and (migration_plan.turned, min(facts.next_step - migration_plan.first, 2)),
            len(facts.layout.workers), facts.next_step == facts.checkpoint_step, len(facts.members) > len(facts.layout.workers),
            facts.version_layout == facts.layout.version, self.world.rescale is None, bool(self.world.records),
        )  # fmt: skip


def place(state: states.State) -> str:
    """Return a state's name, with the event that the state waits for."""
    awaits = getattr(state, "awaits", None)
    return type(state).__name__ + (f".{awaits}" if awaits else "")


def begin(strategy: str) -> Situation:
    """Return the situation of a first start; hosts have names, so that one may be lost, with `cold` alone."""
    layout = initial(WORKERS, shards=4, hosts=HOSTS if strategy == COLD else ())
    first = CheckpointId(run="r", epoch=0, step=0, layout_version=0, fingerprint="f")
    members = frozenset(layout.workers)
    facts = states.Facts(
        run="r",
        fingerprint="f",
        layouts={0: layout},
        layout=layout,
        members=members,
        forming=frozenset(),
        failures_max=2,
    )
    world = World(layouts={0: layout}, members=members, held={0: first})
    return Situation(state=states.Starting(facts=facts), command=None, world=world)


# --- what may happen next -------------------------------------------------------------------------------------------

Next = Iterator[tuple[events.Event, World]]


def next_events(now: Situation, strategy: str) -> Next:
    """Yield every event that is possible now, with the world after the event.

    Events that have nothing to do with a rescale are explored with `cold` alone, which has the fewest situations.
    """
    if isinstance(now.state, states.Starting):
        yield events.LoopReady(), now.world
        return
    yield from _requests(now, strategy)
    yield from _news(now)
    if now.command is not None and not isinstance(now.command, commands.Shutdown):
        yield from _answers(now, now.command)
        if not isinstance(now.command, commands.Wait | commands.BackOff):
            yield events.Failed(code="unavailable", message="away"), now.world
            yield events.Failed(code="fenced", message="another owner"), now.world
        if isinstance(now.command, commands.RunStep) and strategy == COLD:
            yield events.Failed(code="rows", message="rows fail", halt=_halt(now.command.record.step)), now.world


def _halt(number: int) -> states.Halt:
    return states.Halt(step=number, node=1, name="n", command=f"skip {number}", count=1, rows=(), message="rows fail")


def _requests(now: Situation, strategy: str) -> Next:
    """Yield the requests of users: one change of the requested state at a time, and a cancel during a rescale."""
    requested, world, halt = now.state.facts.requested, now.world, now.state.facts.halt
    if requested.cancel or requested.stop or requested.upgrade:
        return
    yield events.StopAsked(now=True), world
    if halt is not None:
        yield events.SkipAsked(step=halt.step), world
    if requested.pause:
        yield events.ResumeAsked(), world
    if requested in (states.Requested(), states.Requested(pause=True)):
        yield events.StopAsked(), world
        yield events.CheckpointAsked(), world
        workers = WORKERS if len(now.state.facts.layout.workers) == GROWN else GROWN
        requested_rescale = replace(world, rescale=workers, strategy=strategy)
        yield events.RescaleAsked(workers=workers, strategy=strategy), requested_rescale
    if requested == states.Requested():
        yield events.PauseAsked(), world
        if strategy == COLD:
            yield events.UpgradeAsked(), world
    if strategy != COLD and requested.rescale is None and now.state.facts.warming is not None:
        other = replace(world, rescale=GROWN + 1, strategy=COLD)
        yield events.RescaleAsked(workers=GROWN + 1), other
    if (
        requested.rescale is not None
        or now.state.facts.warming is not None
        or now.state.facts.migration_plan is not None
    ):
        yield events.StopAsked(), world
        yield events.CancelAsked(), world


def _news(now: Situation) -> Next:
    """Yield the news of threads in the background: a copy or a round of a warm-up has ended, awaited hosts answer or do not."""
    copying, warming = now.state.facts.copying, now.state.facts.warming
    if copying is not None and not copying.ended:
        held = {**now.world.held, copying.version: copying.checkpoint}
        yield events.CopyEnded(version=copying.version), replace(now.world, held=held)
        yield events.CopyEnded(version=copying.version, code="unavailable", message="disk"), now.world
    awaited = rescaling.awaited_hosts(now.state.facts)
    if awaited:
        yield events.HostsAwaited(hosts=awaited), now.world
        yield events.HostsAwaited(hosts=awaited, silent=awaited[:1]), now.world
    if warming is not None and not warming.ended and warming.round:
        yield events.WarmEnded(round=warming.round), now.world
        yield events.WarmEnded(round=warming.round, lag_bytes=1 << 40), now.world
        yield events.WarmEnded(round=warming.round, code="unavailable", message="disk"), now.world


def _standing(world: World) -> events.LedgerState:
    return events.LedgerState(
        layouts=world.layouts, migration_plans=world.migration_plans, used=world.used, members=world.members,
        forming=world.forming, published=world.published, rescale=world.rescale, strategy=world.strategy,
    )  # fmt: skip


def _lost(world: World, workers: Sequence[int], hosts: Sequence[str]) -> Next:
    """Yield that a host, or its disk alone, is lost, where there is another host."""
    if len({*hosts}) <= 1:
        return
    for movable in (True, False):
        yield events.HostsLost(hosts=(hosts[0],), silent=(hosts[0],), movable=movable), world
        yield (
            events.DisksLost(
                workers=(workers[0],), unwritable=(hosts[0],), silent=(), movable=movable, standbys=(), message="disk"
            ),
            world,
        )


def _answers(now: Situation, command: commands.Command) -> Next:  # noqa: C901, PLR0912, PLR0915 - one case a command  # long: a table
    """Yield the events that a command's docstring promises, with the world after each."""
    world, facts = now.world, now.state.facts
    match command:
        case commands.ClaimEpoch():
            yield events.Claimed(epoch=facts.epoch + 1, standing=_standing(world)), world
        case commands.CreateWorkers(workers=workers, hosts=hosts):
            yield events.Created(), world
            if isinstance(now.state, states.Recovering):
                yield from _lost(world, workers, hosts)
        case commands.FenceWorkers(workers=workers, hosts=hosts):
            yield events.Fenced(), world
            if isinstance(now.state, states.Recovering):
                yield from _lost(world, workers, hosts)
        case commands.MoveWorkers(places=places, anew=anew):
            layouts = {number: with_hosts(layout, dict(places)) for number, layout in world.layouts.items()}
            moved_world = replace(world, layouts=layouts, forming=world.forming | frozenset(anew))
            yield events.WorkersMoved(standing=_standing(moved_world)), moved_world
        case commands.ReadVersions(workers=workers):
            infos = tuple(VersionInfo(version=number, checkpoint=id_) for number, id_ in world.held.items())
            yield events.VersionsRead(held=dict.fromkeys(workers, infos)), world
        case commands.OpenVersion(version=version, checkpoint=checkpoint, layout=layout):
            opened = replace(world, held={version: checkpoint})
            yield events.VersionOpened(version=version, checkpoint=checkpoint, layout=layout), opened
        case commands.DiscardWorkers(members=members, forming=forming):
            yield events.Discarded(), replace(world, members=frozenset(members), forming=frozenset(forming))
        case commands.ReadSteps(first=first):
            yield events.StepsRead(records=tuple(each for each in world.records if each.step >= first)), world
        case commands.CutStep(epoch=epoch, step=number, layout_version=layout_version, commands=issued):
            record = StepRecord(
                epoch=epoch, step=number, layout_version=layout_version, ranges=(), clock_us=0, engine=facts.engine,
                commands=issued,
            )  # fmt: skip
            if not issued:
                yield events.Recorded(record=None), world
            logged = tuple(each for each in world.records if facts.checkpoint_step <= each.step < number)
            if len(logged) < RECORDS_MAX or issued:
                yield events.Recorded(record=record), replace(world, records=(*logged, record))
        case commands.RunStep(record=record):
            yield events.StepDone(step=record.step), world
            if facts.migration_plan is not None and record.step > facts.migration_plan.first + 1:
                yield events.StepDone(step=record.step, over=True), world
        case commands.PinVersion(version=version):
            yield events.VersionPinned(version=version), world
        case commands.AwaitCopy(version=version):
            copying = facts.copying
            held = world.held if copying is None else {**world.held, version: copying.checkpoint}
            yield events.Copied(version=version), replace(world, held=held)
        case commands.Publish(version=version, checkpoint=checkpoint, ends_rescale=ends):
            kept = {number: id_ for number, id_ in world.held.items() if number == version}
            changed = replace(world, held=kept, published=version, used=checkpoint.layout_version, records=())
            yield events.Published(version=version), replace(changed, rescale=None) if ends else changed
        case commands.LogLayout(layout=layout, members=members, forming=forming, migration_plan=migration_plan):
            layouts = {**world.layouts, layout.version: layout}
            migration_plans = dict(world.migration_plans)
            if migration_plan is not None:
                layouts[migration_plan.new.version], migration_plans[migration_plan.version] = (
                    migration_plan.new,
                    migration_plan,
                )
            logged_world = replace(
                world,
                layouts=layouts,
                migration_plans=migration_plans,
                members=frozenset(members),
                forming=frozenset(forming),
            )
            yield events.LayoutLogged(layout=layout), logged_world
        case commands.RedistributeShards(version=version, checkpoint=checkpoint):
            held = {**world.held, version: checkpoint}
            yield events.Redistributed(version=version), replace(world, held=held)
        case commands.HoldMerges():
            yield events.MergesHeld(), world
        case commands.WarmUp(round=number):
            yield events.WarmBegun(round=number), world
        case commands.EndWarmUp():
            yield events.Cooled(), world
        case commands.ForgetRescale():
            yield events.Forgotten(), replace(world, rescale=None)
        case commands.LogDecision(step=number, command=text):
            records = tuple(
                replace(each, commands=(*each.commands, text)) if each.step == number else each
                for each in world.records
            )
            decided = next(each for each in records if each.step == number)
            yield events.Decided(record=decided), replace(world, records=records)
        case commands.Wait() | commands.BackOff():
            yield events.Woken(), world
        case _:
            raise NotImplementedError(f"a command that nobody answers here: {command}")


# --- exploring ------------------------------------------------------------------------------------------------------


def explore(strategy: str) -> tuple[Edges, Edges]:
    """Return the transitions between states, and between stages of a rescale by a strategy, with their events.

    The search is breadth-first and visits each kind of situation once.
    """
    known_states: Edges = defaultdict(set)
    stages: Edges = defaultdict(set)
    waiting, seen = deque([begin(strategy)]), set[tuple[object, ...]]()
    while waiting:
        now = waiting.popleft()
        kind = now.kind()
        if kind in seen or isinstance(now.state, states.Stopped | states.Broken):
            continue
        seen.add(kind)
        for event, world in next_events(now, strategy):
            state, issued = step(now.state, event)
            known_states[type(now.state).__name__, type(state).__name__].add(said(event))
            stages[stage(now.state), stage(state)].add(said(event))
            command = issued[0] if issued else now.command
            waiting.append(Situation(state=state, command=command, world=world))
    return known_states, stages


def together(found: Iterable[Edges]) -> Edges:
    """Return the union of the transitions of several explorations."""
    edges: Edges = defaultdict(set)
    for each in found:
        for pair, names in each.items():
            edges[pair] |= names
    return edges


def said(event: events.Event) -> str:
    """Return an event's name, with the field that decides the transition, if there is one."""
    match event:
        case events.Failed(halt=halt, code=code):
            return "Failed(rows)" if halt is not None else "Failed(fenced)" if code == "fenced" else "Failed"
        case events.StopAsked(now=True):
            return "StopAsked(now)"
    return type(event).__name__


def stage(state: states.State) -> str:
    """Return the stage of a rescale, as docs/states.md names it."""
    facts = state.facts
    warming, migration_plan = facts.warming, facts.migration_plan
    if isinstance(state, states.Stopped | states.Broken):
        return "Ended"
    if isinstance(state, states.Recovering | states.Starting):
        return "Recovering"
    if isinstance(state, states.Cancelling):
        return "TakingBack"
    if isinstance(state, states.Rescaling):
        return "Switching"
    if warming is not None:
        return "Preparing" if warming.round == 0 else "ReadyToSwitch" if warming.ready else "CopyingRounds"
    if migration_plan is not None:
        return "TurningBack" if migration_plan.turned else "MovingKeys"
    if facts.version_layout != facts.layout.version or leavers(facts):
        return "Settling"
    return "Idle" if facts.requested.rescale is None else "Asked"


# --- drawing --------------------------------------------------------------------------------------------------------


def drawn(edges: Edges, first: str, last: Iterable[str] = ()) -> str:
    """Return a state diagram in Mermaid, and a table of all transitions."""
    edges = {pair: names for pair, names in edges.items() if pair[0] != pair[1]}
    lines = ["```mermaid", "stateDiagram-v2", f"  [*] --> {first}"]
    for (before, after), names in sorted(edges.items()):
        if names <= FAILURES:
            continue
        label = f" : {', '.join(sorted(names))}" if len(names) <= LABELS_MAX else ""
        lines.append(f"  {before} --> {after}{label}")
    lines += [f"  {name} --> [*]" for name in last]
    lines += ["```", "", "| from | to | events |", "| --- | --- | --- |"]
    for (before, after), names in sorted(edges.items()):
        lines.append(f"| {before} | {after} | {', '.join(f'`{name}`' for name in sorted(names))} |")
    return "\n".join(lines)


def arrows() -> set[tuple[str, str]]:
    """Return the transitions between different states that the page has."""
    table = PAGE.read_text(encoding="utf-8").partition("## The coordinator\n")[2].partition("\n## ")[0]
    rows = (line.split(" | ") for line in table.splitlines() if line.startswith("| "))
    return {(before.removeprefix("| "), after) for before, after, *_ in rows} - {("from", "to"), ("---", "---")}


def meanings(kinds: Iterable[type]) -> str:
    """Return a list of classes with the first paragraphs of their docstrings."""
    lines = []
    for kind in kinds:
        text = " ".join((kind.__doc__ or "").strip().split("\n\n")[0].split())
        lines.append(f"- **{kind.__name__}**: {text}")
    return "\n".join(lines)


def page() -> str:
    """Return the text of the page."""
    found = {strategy: explore(strategy) for strategy in STRATEGIES}
    rescales = "\n\n".join(
        f"### `{strategy}`\n\n{drawn(stages, 'Recovering', ['Ended'])}" for strategy, (_, stages) in found.items()
    )
    machine = drawn(together(known_states for known_states, _ in found.values()), "Starting", ["Stopped", "Broken"])
    kinds = get_args(states.State)
    return f"""# States

This page is written by `python tools/state_diagrams.py`, which explores the coordinator's machine
([`coordinator/decisions/machine.py`](../coordinator/decisions/machine.py)); a test compares it with the code. An arrow with more
than {LABELS_MAX} events has no text. The drawing leaves out failures, stops at once, and arrows from a state to itself.
The table below each drawing has all transitions with all events.

## The coordinator

{machine}

{meanings(kinds)}

## A rescale

The table shows the stages of a rescale, by strategy; `redistribute` has those of `icadd`. `Recovering` is every start and
rollback: a requested rescale is taken up again afterwards. `Idle` means that no rescale is requested.

- **Asked**: the ledger holds the request; steps run until the rescale can begin.
- **Preparing**: databases of joining workers are made, and merges are held.
- **CopyingRounds**: rounds copy what the new owners lack while steps run; with `icadd` there is nothing to copy.
- **ReadyToSwitch**: little enough is missing; the switch waits for the checkpoint in flight.
- **Switching**: no step runs; the layout is logged, the state is sliced, and the new version is published.
- **MovingKeys**: each step moves some keys to their new owners.
- **TurningBack**: a cancelled migration moves its keys back.
- **Settling**: the new layout is in use; its checkpoint is taken, and workers without keys are removed.
- **TakingBack**: a rescale is cancelled or has failed; what it made is removed.
- **Ended**: the process has ended; the next start takes the rescale up again.

{rescales}
"""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"written: {PAGE}\n")
