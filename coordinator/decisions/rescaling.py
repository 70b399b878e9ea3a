"""What the coordinator decides about a change of the layout: cold, warmed up, key by key; part of the machine, and as pure.

**Cold**: at a published checkpoint log the new layout, make the joining workers, slice, publish, and open under a new epoch.

**Warm-up**: the same slicing, but most of its bytes are copied beside the steps before it. Databases of joining workers are made
at the beginning, and merges are held; then a checkpoint is taken, a round copies what the new owners lack of it, another
checkpoint, the next round copies what has changed since, and so on, until a round has found no more than
`acceptable_recovery_lag` bytes missing.
Then comes the switch: a cold rescale that finds nearly everything there. It begins when no checkpoint is in flight, and takes
none: where all workers are on one host the state of now is sliced as it is, into the next version. Until that one is published
a crash or an error anywhere finds the old layout.

**Key by key** (`icadd`, `redistribute`): prepared as a warm-up that has nothing to copy, by two checkpoints beside the steps; the
switch goes into a layout in which nothing has moved, and what follows is in `migrating`.

Invariants kept here: a layout is logged before it is used; while a round reads a version, no second newer one is begun, so that
the one it reads is openable all the time (12); nothing that is copied ahead is part of any version before the switch (3); a
rollback, a stop, an upgrade, a cancel and another request each end a warm-up; what it has made is taken away by the same commands
that take away a worker who left.

Source: docs/concepts/rescale.md ("KIP-441"); design records 0014 and 0015.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dbsp.coordinator.decisions import commands, events, migrating, states
from dbsp.coordinator.decisions.recovery import destined, hosts_of
from dbsp.coordinator.strategies import COLD, WARMUP
from dbsp.errors import ConfigError, InternalError
from dbsp.layout import Layout, rescaled
from dbsp.logs import StepRecord
from dbsp.store import CheckpointId

Answer = tuple[states.State, tuple[commands.Command, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoOn:
    """Nothing of a rescale is to be done now: go on between two steps."""

    facts: states.Facts
    ahead: StepRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """What comes next needs a published checkpoint of all that was done."""

    facts: states.Facts
    ahead: StepRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Anew:
    """The new layout is published: open it under a new epoch."""

    facts: states.Facts


# --- cold, and the switch -------------------------------------------------------------------------------------------


def begin_cold(facts: states.Facts, workers: int) -> Answer:
    """At a published checkpoint: log the new layout."""
    new = _target(facts, workers)
    if not isinstance(new, Layout):
        facts = replace(without_request(facts), rescale_error=new)
        return states.Recovering(facts=facts, awaits="forgotten"), (commands.ForgetRescale(),)
    facts = _joined(facts, new)
    return _log(states.Rescaling(
        facts=facts, version=facts.version + 1, checkpoint=checkpoint_id(facts, new.version), new=new, awaits="logged",
    ))  # fmt: skip


def switch(facts: states.Facts, warming: states.Warming, ahead: StepRecord | None) -> Answer:
    """Log the layout as it begins here, and slice: a published checkpoint of all that was done, or what is done as it is."""
    course = None
    if warming.strategy == WARMUP:
        steps = dict(zip(facts.layout.workers, facts.layout.first_steps, strict=True))
        firsts = tuple(steps.get(worker, facts.next_step) for worker in warming.new.workers)
        new = replace(warming.new, first_steps=firsts)
        facts = replace(facts, layouts={**facts.layouts, new.version: new})
    else:
        course = migrating.course_to(
            facts, _after(facts, warming.workers, warming.new.version), warming.strategy, ahead
        )
        new, facts = course.layout, migrating.noted(facts, course)
    return _log(states.Rescaling(
        facts=facts, version=facts.version + 1, checkpoint=checkpoint_id(facts, new.version), new=new, awaits="logged",
        warm=True, course=course,
    ))  # fmt: skip


def _log(state: states.Rescaling) -> Answer:
    return state, (migrating.log(state.facts, state.new, state.course),)


def rescaling(state: states.Rescaling, event: events.Event) -> Answer | Anew | None:
    """A joining worker starts from nothing: what an older incarnation may have left there is deleted first."""
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
            met = facts.requested.rescale == destined(state.new, facts.courses)
            facts = without_request(facts) if met else facts
            return Anew(facts=replace(facts, published=version, failures=0, copy_failures=0, warming=None))
    return None


def _slice(state: states.Rescaling) -> Answer:
    facts = state.facts
    done = facts.next_step == facts.checkpoint_step
    command = commands.RedistributeShards(
        version=state.version, checkpoint=state.checkpoint, old=facts.layout, new=state.new,
        cut=None if done else checkpoint_id(facts, facts.layout.version), course=state.course,
    )  # fmt: skip
    return replace(state, awaits="redistributed"), (command,)


# --- warm-up --------------------------------------------------------------------------------------------------------


def between_steps(facts: states.Facts, ahead: StepRecord | None) -> Answer | GoOn | Rest:
    """What a rescale wants between these two steps."""
    if migrating.is_open(facts):
        found = migrating.between_steps(facts, ahead)
        return GoOn(facts=found, ahead=ahead) if isinstance(found, states.Facts) else found
    requested, warming = facts.requested, facts.warming
    if requested.cancel:
        return _cancel(facts, ahead)
    if warming is not None and (requested.end or requested.rescale is not None or warming.code is not None):
        return _cancel(facts, ahead)
    if requested.rescale is not None and requested.strategy == COLD:
        return Rest(facts=facts, ahead=ahead)
    if requested.rescale is not None:
        # making the joining workers fences them, and that would end the copy of a checkpoint in flight
        return (
            GoOn(facts=facts, ahead=ahead) if facts.copying is not None else _prepare(facts, requested.rescale, ahead)
        )
    return _go_on(facts, warming, ahead) if warming is not None else GoOn(facts=facts, ahead=ahead)


def _prepare(facts: states.Facts, workers: int, ahead: StepRecord | None) -> Answer:
    """Log the layout that is to come, so that a crash finds whose databases to take away."""
    new, strategy = _target(facts, workers), facts.requested.strategy
    facts = without_request(facts)
    if not isinstance(new, Layout):
        return _forget(replace(facts, rescale_error=new), ahead)
    if strategy != WARMUP:
        new = migrating.course_to(facts, new, strategy, ahead).layout
    facts = replace(_joined(facts, new), warming=states.Warming(new=new, workers=workers, strategy=strategy))
    return states.WarmingUp(facts=facts, awaits="logged", ahead=ahead), (migrating.log(facts, new, None),)


def warming_up(state: states.WarmingUp, event: events.Event) -> Answer | GoOn | None:
    """Make the joining workers, then hold merges; or a round has begun."""
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
    """Before the checkpoint that the first round copies: much of an older one is replaced when the second round looks."""
    return replace(state, awaits="held"), (commands.HoldMerges(old=state.facts.layout, new=warming.new),)


def _begin_round(facts: states.Facts, warming: states.Warming, ahead: StepRecord | None) -> Answer | GoOn | Rest:
    """Copy what the new owners lack of the newest published version: nothing, where no key moves before its steps."""
    warming = states.Warming(
        new=warming.new, workers=warming.workers, strategy=warming.strategy, round=warming.round + 1,
        version=facts.version, step=facts.checkpoint_step,
    )  # fmt: skip
    if warming.strategy != WARMUP:
        return _go_on(facts, replace(warming, ended=True), ahead)
    command = commands.WarmUp(round=warming.round, version=warming.version, old=facts.layout, new=warming.new)
    return states.WarmingUp(facts=replace(facts, warming=warming), awaits="begun", ahead=ahead), (command,)


def note_ended(facts: states.Facts, event: events.WarmEnded) -> states.Facts:
    """The news of a round; of one that is past there is none."""
    warming = facts.warming
    if warming is None or warming.round != event.round or warming.ended:
        return facts
    ended = replace(warming, ended=True, lag_bytes=event.lag_bytes, code=event.code, message=event.message)
    return replace(facts, warming=ended)


def _go_on(facts: states.Facts, warming: states.Warming, ahead: StepRecord | None) -> Answer | GoOn | Rest:
    """After a round the switch, if the lag was little; else, as before the first one, a checkpoint of now and a round on it."""
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
    """Whether the switch has little to copy.

    The first round says nothing of that: it copies all there is. What the second one lacked came up while the first was under
    way, and the second, being shorter, has left less.
    """
    if facts.next_step == warming.step:
        return warming.round > 0
    return warming.round > 1 and warming.lag_bytes <= facts.acceptable_recovery_lag


def _when_free(facts: states.Facts, new: Layout, ahead: StepRecord | None) -> GoOn | Rest | None:
    """None: the state may be sliced now. Steps go on until the checkpoint in flight has landed, unless it is the one to slice."""
    together, copying = _share_a_host(facts.layout, new), facts.copying
    if copying is not None and (together or copying.checkpoint.step != facts.next_step):
        return GoOn(facts=facts, ahead=ahead)
    return None if together else Rest(facts=facts, ahead=ahead)


def _share_a_host(old: Layout, new: Layout) -> bool:
    """Whether all workers can read what another one's steps have made before it is a version."""
    return len({*old.hosts, *new.hosts}) == 1


def is_moving(facts: states.Facts) -> bool:
    """Whether a rescale is under way, or what a migration has left behind is still there."""
    return facts.warming is not None or migrating.is_open(facts)


def reads_older(facts: states.Facts) -> bool:
    """Whether a round reads the version before the opened one: the next checkpoint would delete it."""
    warming = facts.warming
    return warming is not None and not warming.ended and warming.version < facts.version


# --- taking it back -------------------------------------------------------------------------------------------------


def _cancel(facts: states.Facts, ahead: StepRecord | None) -> Answer:
    """End the round, and take away what was made."""
    if facts.warming is None:
        return _forget(facts, ahead)
    workers = facts.layout.workers
    command = commands.EndWarmUp(
        layout_version=facts.warming.new.version, workers=workers, hosts=hosts_of(facts, workers)
    )
    return states.Cancelling(facts=facts, awaits="cooled", ahead=ahead), (command,)


def cancelling(state: states.Cancelling, event: events.Event) -> Answer | GoOn | None:
    """Until the ledger knows nothing of it any more; a newer request stays there."""
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
    """Whether the next start will begin the warm-up anew, and take away what there is of it."""
    return facts.requested.end and not facts.requested.cancel and warming.code is None


def _forget(facts: states.Facts, ahead: StepRecord | None) -> Answer:
    return states.Cancelling(facts=facts, awaits="forgotten", ahead=ahead), (commands.ForgetRescale(),)


def without_warming(facts: states.Facts) -> states.Facts:
    """A rollback ends a warm-up; the request for it stands again, unless there is another."""
    warming = facts.warming
    if warming is None:
        return facts
    facts = replace(facts, warming=None)
    if facts.requested.rescale is not None:
        return facts
    return replace(facts, requested=replace(facts.requested, rescale=warming.workers, strategy=warming.strategy))


# --- what all of them need ------------------------------------------------------------------------------------------


def asked(facts: states.Facts, event: events.RescaleAsked, *, ending: bool) -> states.Facts:
    """Note a request; one that is being met already is none, unless what meets it is being taken away (`ending`)."""
    warming = facts.warming
    facts = replace(facts, rescale_error=None)
    met = warming is not None and (event.strategy, event.workers) == (warming.strategy, warming.workers)
    if met and not ending:
        return replace(facts, requested=replace(facts.requested, rescale=None, strategy=COLD, cancel=False))
    return replace(
        facts, requested=replace(facts.requested, rescale=event.workers, strategy=event.strategy, cancel=False)
    )


def without_request(facts: states.Facts) -> states.Facts:
    """No other number of workers is requested for."""
    return replace(facts, requested=replace(facts.requested, rescale=None, strategy=COLD))


def checkpoint_id(facts: states.Facts, layout_version: int) -> CheckpointId:
    """The id of a checkpoint that is taken now."""
    return CheckpointId(
        run=facts.run, epoch=facts.epoch, step=facts.next_step, layout_version=layout_version,
        fingerprint=facts.fingerprint,
    )  # fmt: skip


def empty_checkpoint(facts: states.Facts) -> CheckpointId:
    """The id of version 0: the same in every epoch, so that a worker made by an earlier try fits."""
    return CheckpointId(run=facts.run, epoch=0, step=0, layout_version=0, fingerprint=facts.fingerprint)


def _target(facts: states.Facts, workers: int) -> Layout | str | None:
    """The layout to come; None if it is the one in use, the reason if there cannot be such a one."""
    if workers == len(facts.layout.workers):
        return None
    try:
        return _after(facts, workers, max(facts.layouts) + 1)
    except ConfigError as error:
        return str(error)


def _after(facts: states.Facts, workers: int, version: int) -> Layout:
    """The layout in use, rescaled."""
    new = rescaled(facts.layout, workers, step=facts.next_step, host=facts.layout.hosts[0])
    return replace(new, version=version)


def _joined(facts: states.Facts, new: Layout) -> states.Facts:
    """The facts with the new layout, and the workers that join by it as members that may have no database yet."""
    fresh = frozenset(new.workers) - facts.members
    return replace(
        facts, layouts={**facts.layouts, new.version: new}, members=facts.members | fresh,
        forming=facts.forming | fresh,
    )  # fmt: skip


def settled(facts: states.Facts, left: tuple[int, ...]) -> states.Facts:
    """Only the workers of the layout have databases, and perhaps those `left`, which could not be reached."""
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


def create_joining(facts: states.Facts, new: Layout) -> commands.Command:
    """Version 0 for the workers of a layout that have no database yet."""
    workers = joining(facts, new)
    return commands.CreateWorkers(workers=workers, checkpoint=empty_checkpoint(facts), hosts=hosts_of(facts, workers))


def _fence_joining(facts: states.Facts, new: Layout) -> commands.Command:
    workers = joining(facts, new)
    return commands.FenceWorkers(epoch=facts.epoch, workers=workers, hosts=hosts_of(facts, workers))


def impossible(state: states.State, event: events.Event) -> InternalError:
    """What a function of the machine says to an event that its state cannot meet."""
    return InternalError(f"an event that cannot happen here: state={state} event={event}")
