"""The decisions about a change of the layout, a pure part of the machine: cold, warmed up, or key by key.

**Cold**: at a published checkpoint log the new layout, create the joining workers, slice, publish, and open under a new
epoch.

**Warm-up**: the same slicing, but most of its bytes are copied before, while steps run. First the databases of the
joining workers are created, and merges are suspended. Then a checkpoint is taken, and a round copies what the new
owners lack of it. Another checkpoint follows, and the next round copies what has changed since. The rounds end when one
has found no more than `acceptable_recovery_lag` bytes missing.

Then the switch follows: a cold rescale that finds nearly all state in place. It begins when no checkpoint is in flight,
and takes none. Where all workers are on one host, the present state is sliced directly into the next version. Until
that version is published, a crash or an error anywhere returns to the old layout.

**Key by key** (`icadd`, `redistribute`): prepared as a warm-up that copies nothing, by two checkpoints while steps run.
The switch leads into a layout in which nothing has moved; `migrating` decides what follows.

Invariants kept here:

- A layout is logged before it is used.
- While a round reads a version, no second newer version is begun, so that the version stays openable (invariant 12).
- Nothing that is copied ahead is part of any version before the switch (invariant 3).
- A rollback, a stop, an upgrade, a cancellation and another request each end a warm-up. The commands that remove a
  worker that left also remove what the warm-up has made.

Source: docs/concepts/rescale.md ("KIP-441"); design records 0014 and 0015.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from dbsp.coordinator.decisions import commands, events, migrating, states
from dbsp.coordinator.decisions.recovery import hosts_of, serves
from dbsp.coordinator.decisions.strategies import COLD, WARMUP
from dbsp.errors import ConfigError, InternalError
from dbsp.hosts import remaining
from dbsp.layout import Layout, is_change, rescaled
from dbsp.logs import StepRecord
from dbsp.store import CheckpointId

Answer = tuple[states.State, tuple[commands.Command, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoOn:
    """A result without an action: a rescale needs nothing now, so continue between two steps."""

    facts: states.Facts
    ahead: StepRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """A result that demands a published checkpoint of all finished steps before the rescale continues."""

    facts: states.Facts
    ahead: StepRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Anew:
    """A result after the new layout is published: open it under a new epoch."""

    facts: states.Facts


# --- cold, and the switch -------------------------------------------------------------------------------------------


def begin_cold(facts: states.Facts, workers: int) -> Answer:
    """Begin a cold rescale, at a published checkpoint: log the new layout, or drop a request that cannot be served."""
    new = _target(facts, workers)
    if not isinstance(new, Layout):
        facts = replace(without_request(facts), rescale_error=new)
        return states.Recovering(facts=facts, awaits="forgotten"), (commands.ForgetRescale(),)
    facts = _joined(facts, new)
    return _log(states.Rescaling(
        facts=facts, version=facts.version + 1, checkpoint=checkpoint_id(facts, new.version), new=new, awaits="logged",
    ))  # fmt: skip


def switch(facts: states.Facts, warming: states.Warming, ahead: StepRecord | None) -> Answer:
    """Log the layout that begins at the next step, and slice the state.

    The slice is of a published checkpoint of all finished steps, or of the present state as it is.
    """
    migration_plan = None
    if warming.strategy == WARMUP:
        steps = dict(zip(facts.layout.workers, facts.layout.first_steps, strict=True))
        firsts = tuple(steps.get(worker, facts.next_step) for worker in warming.new.workers)
        new = replace(warming.new, first_steps=firsts)
        facts = replace(facts, layouts={**facts.layouts, new.version: new})
    else:
        migration_plan = migrating.course_to(
            facts, _after(facts, warming.workers, warming.new.version, warming.excluded), warming.strategy, ahead
        )
        new, facts = migration_plan.layout, migrating.noted(facts, migration_plan)
    return _log(states.Rescaling(
        facts=facts, version=facts.version + 1, checkpoint=checkpoint_id(facts, new.version), new=new, awaits="logged",
        warm=True, migration_plan=migration_plan,
    ))  # fmt: skip


def _log(state: states.Rescaling) -> Answer:
    return state, (migrating.log(state.facts, state.new, state.migration_plan),)


def rescaling(state: states.Rescaling, event: events.Event) -> Answer | Anew | None:
    """Handle an event in the state `Rescaling`; return None if the event is impossible there.

    A joining worker starts empty: the databases that an earlier attempt may have left are deleted first.
    """
    facts = state.facts
    match state.awaits, event:
        case "logged", events.LayoutLogged(layout=layout) if layout == state.new:
            if state.warm or not joining(facts, state.new):
                return _slice(state)
            return replace(state, awaits="discarded"), (_discard_joining(facts, state.new),)
        case "discarded", events.Discarded():
            return replace(state, awaits="created"), (create_joining(facts, state.new),)
        case "created", events.Created():
            return replace(state, awaits="fenced"), (_fence_joining(facts, state.new),)
        case "fenced", events.Fenced():
            return _slice(state)
        case "redistributed", events.Redistributed(version=version) if version == state.version:
            publish = commands.Publish(version=version, checkpoint=state.checkpoint, ends_rescale=True)
            return replace(state, awaits="published"), (publish,)
        case "published", events.Published(version=version) if version == state.version:
            plans, wanted = facts.migration_plans, facts.requested
            met = serves(state.new, plans, wanted.rescale, facts.offered, excluded=wanted.excluded)
            facts = without_request(facts) if met else facts
            facts = replace(facts, forming=facts.forming - frozenset(state.new.workers))
            return Anew(facts=replace(facts, published=version, failures=0, copy_failures=0, warming=None))
    return None


def _slice(state: states.Rescaling) -> Answer:
    facts = state.facts
    done = facts.next_step == facts.checkpoint_step
    command = commands.RedistributeShards(
        version=state.version, checkpoint=state.checkpoint, old=facts.layout, new=state.new,
        cut=None if done else checkpoint_id(facts, facts.layout.version), migration_plan=state.migration_plan,
    )  # fmt: skip
    return replace(state, awaits="redistributed"), (command,)


# --- warm-up --------------------------------------------------------------------------------------------------------


def between_steps(facts: states.Facts, ahead: StepRecord | None) -> Answer | GoOn | Rest:
    """Decide what a rescale needs between these two steps."""
    if migrating.is_open(facts):
        found = migrating.between_steps(facts, ahead)
        return GoOn(facts=found, ahead=ahead) if isinstance(found, states.Facts) else found
    requested, warming = facts.requested, facts.warming
    if requested.cancel:
        return _cancel(facts, ahead)
    if warming is not None and (requested.end or requested.rescale is not None or warming.code is not None):
        return _cancel(facts, ahead)
    if requested.silent:
        return _forget(replace(without_request(facts), rescale_error=_unanswered(requested.silent)), ahead)
    if awaited_hosts(facts):
        return GoOn(facts=facts, ahead=ahead)
    if requested.rescale is not None and requested.strategy == COLD:
        return Rest(facts=facts, ahead=ahead)
    if requested.rescale is not None:
        # creating the joining workers fences them, which would abort the copy of a checkpoint in flight
        return (
            GoOn(facts=facts, ahead=ahead) if facts.copying is not None else _prepare(facts, requested.rescale, ahead)
        )
    return _go_on(facts, warming, ahead) if warming is not None else GoOn(facts=facts, ahead=ahead)


def awaited_hosts(facts: states.Facts) -> tuple[str, ...]:
    """Return the hosts that have no worker yet, and that the requested rescale awaits before it begins. Steps go on meanwhile."""
    requested = facts.requested
    if requested.rescale is None or requested.silent is not None or not any(facts.layout.hosts):
        return ()
    new = _target(facts, requested.rescale)
    return tuple(sorted({*new.hosts}.difference(facts.layout.hosts))) if isinstance(new, Layout) else ()


def note_hosts(facts: states.Facts, event: events.HostsAwaited) -> states.Facts:
    """Note whether the awaited hosts answer; ignore news of an earlier request."""
    if event.hosts != awaited_hosts(facts):
        return facts
    return replace(facts, requested=replace(facts.requested, silent=event.silent))


def _unanswered(hosts: tuple[str, ...]) -> str:
    """Return the error message for a rescale whose hosts were awaited in vain."""
    return f"no executor answers on hosts of joining workers: hosts={', '.join(hosts)}; start Spark's workers there"


def _prepare(facts: states.Facts, workers: int, ahead: StepRecord | None) -> Answer:
    """Log the layout that is to follow, so that a start after a crash finds the databases to remove."""
    new, strategy, excluded = _target(facts, workers), facts.requested.strategy, facts.requested.excluded
    facts = without_request(facts)
    if not isinstance(new, Layout):
        return _forget(replace(facts, rescale_error=new), ahead)
    if strategy != WARMUP:
        new = migrating.course_to(facts, new, strategy, ahead).layout
    warming = states.Warming(new=new, workers=workers, strategy=strategy, excluded=excluded)
    facts = replace(_joined(facts, new), warming=warming)
    return states.WarmingUp(facts=facts, awaits="logged", ahead=ahead), (migrating.log(facts, new, None),)


def warming_up(state: states.WarmingUp, event: events.Event) -> Answer | GoOn | None:
    """Handle an event in the state `WarmingUp`: create the joining workers, suspend merges, or note that a round has begun."""
    facts, warming = state.facts, state.facts.warming
    if warming is None:
        return None
    match state.awaits, event:
        case "logged", events.LayoutLogged(layout=layout) if layout == warming.new and joining(facts, warming.new):
            return replace(state, awaits="discarded"), (_discard_joining(facts, warming.new),)
        case "discarded", events.Discarded():
            return replace(state, awaits="created"), (create_joining(facts, warming.new),)
        case "created", events.Created():
            return replace(state, awaits="fenced"), (_fence_joining(facts, warming.new),)
        case ("logged", events.LayoutLogged(layout=warming.new)) | ("fenced", events.Fenced()):
            return _hold(state, warming)
        case "held", events.MergesHeld():
            return GoOn(facts=replace(facts, warming=replace(warming, ended=True)), ahead=state.ahead)
        case "begun", events.WarmBegun(round=number) if number == warming.round:
            return GoOn(facts=facts, ahead=state.ahead)
    return None


def _hold(state: states.WarmingUp, warming: states.Warming) -> Answer:
    """Suspend merges before the checkpoint that the first round copies.

    Chunks of an older checkpoint would mostly be replaced by the time the second round looks at them.
    """
    return replace(state, awaits="held"), (commands.HoldMerges(old=state.facts.layout, new=warming.new),)


def _begin_round(facts: states.Facts, warming: states.Warming, ahead: StepRecord | None) -> Answer | GoOn | Rest:
    """Begin a round that copies what the new owners lack of the newest published version.

    A migration moves keys only in its steps, so its rounds copy nothing.
    """
    warming = states.Warming(
        new=warming.new, workers=warming.workers, strategy=warming.strategy, round=warming.round + 1,
        version=facts.version, step=facts.checkpoint_step, excluded=warming.excluded,
    )  # fmt: skip
    if warming.strategy != WARMUP:
        return _go_on(facts, replace(warming, ended=True), ahead)
    command = commands.WarmUp(round=warming.round, version=warming.version, old=facts.layout, new=warming.new)
    return states.WarmingUp(facts=replace(facts, warming=warming), awaits="begun", ahead=ahead), (command,)


def note_ended(facts: states.Facts, event: events.WarmEnded) -> states.Facts:
    """Note that the current round has ended; ignore news of an earlier round."""
    warming = facts.warming
    if warming is None or warming.round != event.round or warming.ended:
        return facts
    ended = replace(warming, ended=True, lag_bytes=event.lag_bytes, code=event.code, message=event.message)
    return replace(facts, warming=ended)


def _go_on(facts: states.Facts, warming: states.Warming, ahead: StepRecord | None) -> Answer | GoOn | Rest:
    """Continue a warm-up after a round: with the switch if the lag was small, else with a checkpoint and another round."""
    if not warming.ended:
        return GoOn(facts=facts, ahead=ahead)
    if warming.ready or _caught_up(facts, warming):
        ready = replace(warming, ready=True)
        facts = replace(facts, warming=ready)
        return _when_free(facts, ready.new, ahead) or switch(facts, ready, ahead)
    if facts.version >= (warming.awaited or facts.version + 1) or facts.next_step == facts.checkpoint_step:
        return _begin_round(facts, warming, ahead)
    if warming.awaited is None:
        awaited = facts.version + (1 if facts.copying is None else 2)
        requested = replace(facts.requested, checkpoint=True)
        facts = replace(facts, warming=replace(warming, awaited=awaited), requested=requested)
    return GoOn(facts=facts, ahead=ahead)


def _caught_up(facts: states.Facts, warming: states.Warming) -> bool:
    """Return True if the switch has little left to copy.

    The lag of the first round says nothing, because that round copies all state. What the second round lacked arose
    while the first ran; the second is shorter, so it has left less.
    """
    if facts.next_step == warming.step:
        return warming.round > 0
    return warming.round > 1 and warming.lag_bytes <= facts.acceptable_recovery_lag


def _when_free(facts: states.Facts, new: Layout, ahead: StepRecord | None) -> GoOn | Rest | None:
    """Return None if the state may be sliced now; else continue with steps, or wait for a checkpoint.

    Steps go on until the checkpoint in flight is complete, unless that checkpoint is the one to slice.
    """
    together, copying = _share_a_host(facts.layout, new), facts.copying
    if copying is not None and (together or copying.checkpoint.step != facts.next_step):
        return GoOn(facts=facts, ahead=ahead)
    return None if together else Rest(facts=facts, ahead=ahead)


def _share_a_host(old: Layout, new: Layout) -> bool:
    """Return True if all workers are on one host, so that each can read unversioned state of the others."""
    return len({*old.hosts, *new.hosts}) == 1


def is_moving(facts: states.Facts) -> bool:
    """Return True while a rescale is under way, or the clean-up after a migration is not finished."""
    return facts.warming is not None or migrating.is_open(facts)


def reads_older(facts: states.Facts) -> bool:
    """Return True if a round reads the version before the opened one, which the next checkpoint would delete."""
    warming = facts.warming
    return warming is not None and not warming.ended and warming.version < facts.version


# --- cancellation ---------------------------------------------------------------------------------------------------


def _cancel(facts: states.Facts, ahead: StepRecord | None) -> Answer:
    """End the round that is under way, and remove what the warm-up has made."""
    if facts.warming is None:
        return _forget(facts, ahead)
    workers = facts.layout.workers
    command = commands.EndWarmUp(
        layout_version=facts.warming.new.version, workers=workers, hosts=hosts_of(facts, workers)
    )
    return states.Cancelling(facts=facts, awaits="cooled", ahead=ahead), (command,)


def cancelling(state: states.Cancelling, event: events.Event) -> Answer | GoOn | None:
    """Handle an event in the state `Cancelling`, until the request is out of the ledger; a newer request stays there."""
    facts, warming = state.facts, state.facts.warming
    match state.awaits, event:
        case "cooled", events.Cooled() if warming is not None and _only_stops(facts, warming):
            return GoOn(facts=without_warming(facts), ahead=state.ahead)
        case "cooled", events.Cooled() if warming is not None:
            gone = tuple(sorted(facts.members - set(facts.layout.workers)))
            command = commands.DiscardWorkers(workers=gone, members=facts.layout.workers, hosts=hosts_of(facts, gone))
            return replace(state, awaits="discarded"), (command,)
        case "discarded", events.Discarded(left=left) if warming is not None:
            facts = replace(settled(facts, left), warming=None)
            if facts.requested.rescale is not None and not facts.requested.cancel:
                return GoOn(facts=facts, ahead=state.ahead)
            failed = warming.message if warming.code is not None else None
            return _forget(replace(facts, rescale_error=failed), state.ahead)
        case "logged", events.LayoutLogged(layout=layout) if layout == facts.layout:
            return GoOn(facts=facts, ahead=state.ahead)
        case "forgotten", events.Forgotten():
            if facts.requested.cancel:
                facts = replace(without_request(facts), rescale_error=facts.rescale_error or migrating.CANCELLED)
            return GoOn(facts=replace(facts, requested=replace(facts.requested, cancel=False)), ahead=state.ahead)
    return None


def _only_stops(facts: states.Facts, warming: states.Warming) -> bool:
    """Return True if the process just ends: the next start begins the warm-up again, and removes its remains."""
    return facts.requested.end and not facts.requested.cancel and warming.code is None


def _forget(facts: states.Facts, ahead: StepRecord | None) -> Answer:
    return states.Cancelling(facts=facts, awaits="forgotten", ahead=ahead), (commands.ForgetRescale(),)


def without_warming(facts: states.Facts) -> states.Facts:
    """End a warm-up because of a rollback; its request is made again unless there is a newer one."""
    warming = facts.warming
    if warming is None:
        return facts
    facts = replace(facts, warming=None)
    if facts.requested.rescale is not None:
        return facts
    requested = replace(facts.requested, rescale=warming.workers, strategy=warming.strategy, excluded=warming.excluded)
    return replace(facts, requested=requested)


# --- helpers of all strategies --------------------------------------------------------------------------------------


def asked(facts: states.Facts, event: events.RescaleAsked, *, ending: bool) -> states.Facts:
    """Note a request to rescale.

    A request for the rescale that is already under way changes nothing, unless that rescale is being removed
    (`ending`).
    """
    warming = facts.warming
    hosts = facts.requested.hosts if event.hosts is None else event.hosts
    counted = facts.partitions if event.partitions is None else event.partitions
    requested = replace(facts.requested, hosts=hosts)
    facts = replace(facts, rescale_error=None, requested=requested, partitions=counted)
    wanted = (event.strategy, event.workers, facts.offered, event.excluded)
    met = warming is not None and wanted == (
        warming.strategy, warming.workers, warming.new.offered, warming.excluded
    )  # fmt: skip
    if met and not ending:
        facts = without_request(facts)
        return replace(facts, requested=replace(facts.requested, cancel=False))
    requested = replace(
        requested, rescale=event.workers, strategy=event.strategy, excluded=event.excluded, silent=None, cancel=False
    )
    return replace(facts, requested=requested)


def without_request(facts: states.Facts) -> states.Facts:
    """Return the facts without a request for another number of workers."""
    return replace(facts, requested=replace(facts.requested, rescale=None, strategy=COLD, excluded=None, silent=None))


def checkpoint_id(facts: states.Facts, layout_version: int) -> CheckpointId:
    """Return the id of a checkpoint that is taken now."""
    return CheckpointId(
        run=facts.run, epoch=facts.epoch, step=facts.next_step, layout_version=layout_version,
        fingerprint=facts.fingerprint,
    )  # fmt: skip


def empty_checkpoint(facts: states.Facts) -> CheckpointId:
    """Return the id of version 0; it is the same in every epoch, so that a worker created by an earlier try fits."""
    return CheckpointId(run=facts.run, epoch=0, step=0, layout_version=0, fingerprint=facts.fingerprint)


def _target(facts: states.Facts, workers: int) -> Layout | str | None:
    """Return the layout for this many workers on the offered hosts; None if it is the one in use.

    If there can be none, return the reason.
    """
    try:
        new = _after(facts, workers, max(facts.layouts) + 1, facts.requested.excluded)
    except ConfigError as error:
        return str(error)
    return new if is_change(facts.layout, new, facts.partitions) else None


def _after(facts: states.Facts, workers: int, version: int, excluded: Collection[str] | None) -> Layout:
    """Return the layout in use, rescaled to this many workers and with this version.

    Workers are placed on the offered hosts but for the excluded ones; all stay on offer for later rescales.
    """
    base = replace(facts.layout, offered=remaining(facts.offered, excluded))
    host, partitions = facts.layout.hosts[0], facts.partitions
    new = rescaled(base, workers, step=facts.next_step, host=host, partitions=partitions)
    return replace(new, version=version, offered=facts.offered)


def _joined(facts: states.Facts, new: Layout) -> states.Facts:
    """Return the facts with the new layout, and its joining workers as members that may have no database yet."""
    fresh = frozenset(new.workers) - facts.members
    return replace(
        facts, layouts={**facts.layouts, new.version: new}, members=facts.members | fresh,
        forming=facts.forming | fresh,
    )  # fmt: skip


def settled(facts: states.Facts, left: tuple[int, ...]) -> states.Facts:
    """Return the facts where only workers of the layout have databases, and perhaps the unreachable workers `left`."""
    remain = frozenset(left)
    return replace(facts, members=frozenset(facts.layout.workers) | remain, forming=remain)


def joining(facts: states.Facts, new: Layout) -> tuple[int, ...]:
    """Return the workers of a layout that may have no database yet."""
    return tuple(sorted(facts.forming & frozenset(new.workers)))


def _discard_joining(facts: states.Facts, new: Layout) -> commands.Command:
    workers, members = joining(facts, new), tuple(sorted(facts.members))
    forming = tuple(sorted(facts.forming))
    return commands.DiscardWorkers(
        workers=workers, members=members, forming=forming, hosts=hosts_of(facts, workers), must=True
    )


def create_joining(facts: states.Facts, new: Layout) -> commands.CreateWorkers:
    """Return the command that creates version 0 for the workers of a layout that have no database yet."""
    workers = joining(facts, new)
    return commands.CreateWorkers(workers=workers, checkpoint=empty_checkpoint(facts), hosts=hosts_of(facts, workers))


def _fence_joining(facts: states.Facts, new: Layout) -> commands.Command:
    workers = joining(facts, new)
    return commands.FenceWorkers(epoch=facts.epoch, workers=workers, hosts=hosts_of(facts, workers))


def impossible(state: states.State, event: events.Event) -> InternalError:
    """Return the internal error for an event that cannot happen in this state."""
    return InternalError(f"an event that cannot happen here: state={state} event={event}")
