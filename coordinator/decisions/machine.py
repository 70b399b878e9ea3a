"""What the coordinator decides: one pure function from (state, event) to (state, commands).

The loop: intersect the versions, open the greatest, replay, run, and on the interval pause all at
one step, commit all, publish. The pause is the agreement on the step alone: the cut is pinned, and copied while steps go on.
No clock, no I/O, no threads: the shell and the simulator run this same function.

Invariants kept here: a step is run only after its record came back durable (4); a checkpoint is begun only between steps,
when all outputs below it are durable (11), and only one at a time; a rollback forgets the one in flight, always claims a new
epoch first and fences every member before it reads versions (6); a version is published only after every worker acknowledged
it (8); a layout is logged before it is
used; nothing is discarded that an openable version names (12).

Total: every (state, event) pair has an answer, and a pair that cannot happen raises `InternalError` with its story.
Source: docs/concepts/coordinator.md.
"""

from __future__ import annotations

import re
from dataclasses import replace

from dbsp.coordinator.decisions import fills, migrating, rescaling
from dbsp.coordinator.decisions import orders as do
from dbsp.coordinator.decisions import protocol as p
from dbsp.coordinator.decisions.engines import accepted_anew
from dbsp.coordinator.decisions.recovery import (
    choose,
    destined,
    fence,
    hosts_of,
    learned,
    needed,
    story,
    without_choice,
)
from dbsp.coordinator.decisions.rescaling import checkpoint_id, impossible
from dbsp.errors import AwayError, CapacityError, EngineError, InternalError, OverloadedError, UnavailableError
from dbsp.logs import StepRecord
from dbsp.store import CheckpointId

Answer = tuple[p.State, tuple[do.Command, ...]]

FATAL = frozenset({"fenced", "config", "circuit", "engine"})
PASSING = frozenset({UnavailableError.code, AwayError.code, OverloadedError.code, CapacityError.code})
"""Kinds of errors that waiting may cure. Any other kind is tried once more, as a rollback makes all workers anew."""


def step(state: p.State, event: p.Event) -> Answer:
    """The next state, and what to do now.

    **Law** deterministic; `state` and `event` are not changed.
    **Errors** `InternalError` for an event that this state cannot meet.
    """
    match state:
        case p.Stopped() | p.Broken():
            return state, ()
    match event:
        case (
            p.CheckpointAsked() | p.PauseAsked() | p.ResumeAsked() | p.RescaleAsked() | p.CancelAsked()
            | p.StopAsked() | p.UpgradeAsked() | p.SkipAsked()
        ):  # fmt: skip
            return _request(state, event)
        case p.Failed():
            return _failed(state, event)
        case p.CopyEnded() | p.WarmEnded():
            return _news(state, event)
    return _answer(state, event)


def _answer(state: p.State, event: p.Event) -> Answer:
    """What the command under way has brought."""
    match state:
        case p.Starting():
            return _starting(state, event)
        case p.Recovering():
            return _recovering(state, event)
        case p.Replaying():
            return _replaying(state, event)
        case p.Running():
            return _running(state, event)
        case p.Checkpointing() | p.Stopping():
            return _checkpointing(state, event)
        case p.Rescaling() | p.WarmingUp() | p.Cancelling():
            return _rescaling(state, event)
        case p.Paused():
            return _paused(state, event)
        case p.Halted():
            return _halted(state, event)
    raise impossible(state, event)


# --- requests and failures ------------------------------------------------------------------------------------------


def _request(state: p.State, event: p.Request) -> Answer:
    """Note the wish; it is met between two steps. A state that waits is woken by it."""
    facts = state.facts
    wants = facts.wants
    match event:
        case p.SkipAsked():
            return _skip(state, event)
        case p.CheckpointAsked():
            wants = replace(wants, checkpoint=True)
        case p.PauseAsked():
            refused = isinstance(state, p.Halted) and state.awaits == "decision"
            wants = replace(wants, pause=not refused)
        case p.ResumeAsked():
            wants = replace(wants, pause=False)
        case p.RescaleAsked():
            facts = rescaling.asked(facts, event, ending=isinstance(state, p.Cancelling))
            wants = facts.wants
        case p.CancelAsked():
            running = facts.warming is not None or wants.rescale is not None or facts.course is not None
            wants = replace(wants, cancel=running and not isinstance(state, p.Rescaling))
        case p.StopAsked(now=now):
            wants = replace(wants, stop=True)
            if now:
                return p.Stopped(facts=replace(facts, wants=wants)), (do.Finish(code=None, message="stopped at once"),)
        case p.UpgradeAsked():
            begins = isinstance(state, p.Running | p.Paused | p.Checkpointing)
            wants = replace(wants, upgrade=wants.upgrade or begins)  # one that has begun goes on, wherever it is
            facts = replace(facts, upgrade_error=None if wants.upgrade else "it takes no steps at the moment")
    return _woken(replace(state, facts=replace(facts, wants=wants)))


def _woken(noted: p.State) -> Answer:
    """A state that waits looks at the wishes; any other will when its command is answered."""
    wants = noted.facts.wants
    match noted:
        case p.Running(awaits="input"):
            return _between_steps(noted.facts, None)
        case p.Paused():
            return _between_steps(noted.facts, noted.ahead)
        case p.Halted(awaits="decision") if wants.stop:
            return p.Stopped(facts=noted.facts), (
                do.Finish(code=None, message="stopped before a step whose rows fail"),
            )
        case p.Halted(awaits="decision"):
            return noted, (do.Wait(for_input=False),)
        case p.Recovering(awaits="backoff") if wants.stop:
            return _stopped_recovering(noted.facts)
    return noted, ()


def _failed(state: p.State, event: p.Failed) -> Answer:
    """Fenced or misconfigured: end. Anything else: roll back under a new epoch, a bounded number of times in a row.

    Rows that fail would fail again at every replay: that is no failure in a row, the replay ends before their step, or runs it
    without those that were left to a later step. A system of others that is away is waited for without a bound. An error that
    waiting does not cure ends the service when it comes back.
    """
    facts = _without_upgrade(rescaling.without_warming(_without_copy(state.facts)), event.message)
    moving = isinstance(state, p.Rescaling | p.WarmingUp)
    if (event.halt is not None or event.deferred) and not moving:
        facts = replace(facts, halt=event.halt)
        return p.Recovering(facts=facts, awaits="backoff"), (do.BackOff(failures=facts.failures),)
    if event.code == "fenced" or (event.code in FATAL and not moving):
        return _broken(facts, event.code, event.message)
    if facts.wants.stop and isinstance(state, p.Recovering | p.Replaying):
        return _stopped_recovering(facts)
    if event.code == AwayError.code and not moving:
        facts = replace(facts, aways=facts.aways + 1)
        return p.Recovering(facts=facts, awaits="backoff"), (do.BackOff(failures=facts.aways, away=True),)
    lasting = _lasting(event)
    if lasting is not None and not moving and (lasting, facts.next_step) == (facts.failed_as, facts.failed_step):
        return _broken(facts, event.code, f"{event.message} (it came back after a rollback: step={facts.next_step})")
    failures = facts.failures + 1
    facts = replace(facts, failures=failures, failed_step=facts.next_step, failed_as=lasting)
    if failures >= facts.failures_max:
        return _broken(facts, event.code, f"{event.message} (failures_in_a_row={failures})")
    if moving and facts.wants.rescale is not None:
        facts = replace(rescaling.without_wish(facts), rescale_error=event.message)
        return p.Recovering(facts=facts, awaits="forgotten"), (do.ForgetRescale(),)
    return p.Recovering(facts=facts, awaits="backoff"), (do.BackOff(failures=failures),)


def _lasting(event: p.Failed) -> str | None:
    """Return the story by which an error that waiting does not cure is known again; None for one that may pass.

    Numbers are left out: epochs, process ids and sizes differ from try to try.
    """
    if event.code in PASSING:
        return None
    return f"{event.code}: {re.sub('[0-9]+', '#', event.message.partition(chr(10))[0])}"


def _stopped_recovering(facts: p.Facts) -> Answer:
    """A stop waits for no try more: the next start recovers from where this one did."""
    return p.Stopped(facts=facts), (do.Finish(code=None, message="stopped while recovering"),)


def _without_copy(facts: p.Facts) -> p.Facts:
    """A rollback forgets the checkpoint in flight; the wish for it stands again."""
    if facts.copying is None:
        return facts
    return replace(facts, copying=None, wants=replace(facts.wants, checkpoint=True))


def _without_upgrade(facts: p.Facts, reason: str) -> p.Facts:
    """Steps are logged above the checkpoint that comes next after a failure: this version runs them, and goes on."""
    if not facts.wants.upgrade:
        return facts
    return replace(facts, wants=replace(facts.wants, upgrade=False), upgrade_error=reason)


def _broken(facts: p.Facts, code: str, message: str, hint: str | None = None) -> Answer:
    return p.Broken(facts=facts, code=code, message=message), (do.Finish(code=code, message=message, hint=hint),)


# --- recovery -------------------------------------------------------------------------------------------------------


def _starting(state: p.Starting, event: p.Event) -> Answer:
    match event:
        case p.Begin():
            return _recover(state.facts)
    raise impossible(state, event)


def _recover(facts: p.Facts) -> Answer:
    """The only way to an opened version: a new epoch first."""
    return p.Recovering(facts=facts, awaits="claimed"), (do.ClaimEpoch(),)


def _recovering(state: p.Recovering, event: p.Event) -> Answer:  # noqa: PLR0911 - one line per stage
    facts = state.facts
    match state.awaits, event:
        case "forgotten", p.Forgotten():
            return p.Recovering(facts=facts, awaits="backoff"), (do.BackOff(failures=facts.failures),)
        case "backoff", p.Woken():
            return _recover(facts)
        case "claimed", p.Claimed(epoch=epoch, standing=standing):
            return _claimed(replace(learned(facts, standing), epoch=epoch))
        case "created", p.Created():
            return _fence(facts)
        case "fenced", p.Fenced(others=others):
            return p.Recovering(facts=facts, awaits="held"), (_read_versions(facts, others),)
        case "held", p.Held():
            return _choose(facts, event)
        case "opened", p.Opened():
            return _opened(facts, event)
        case "discarded", p.Discarded(left=left):
            return _read_steps(rescaling.settled(facts, left))
        case "steps", p.StepsRead(records=records):
            return _judge_engines(facts, records)
        case "accepted", p.EnginesAccepted(accepted=accepted):
            wants = replace(facts.wants, checkpoint=True)  # what was run again belongs to this version from there on
            return _replay(replace(facts, accepted=accepted, accepting=frozenset(), wants=wants), state.records)
    raise impossible(state, event)


def _judge_engines(facts: p.Facts, records: tuple[StepRecord, ...]) -> Answer:
    """Steps that another version of the engine has logged are run again only if that was accepted, and noted before."""
    try:
        anew = accepted_anew(records, facts.engine, facts.accepted, facts.accepting)
    except EngineError as error:
        return _broken(facts, error.code, error.message, error.hint)
    if not anew:
        return _replay(facts, records)
    command = do.AcceptEngines(acceptances=anew)
    return p.Recovering(facts=facts, awaits="accepted", records=records), (command,)


def _claimed(facts: p.Facts) -> Answer:
    """A rescale that was taken back is forgotten first; then needed workers get databases, and all are fenced."""
    if facts.wants.cancel and facts.wants.rescale is not None and facts.course is None:
        return _take_back(facts)
    if facts.forming & needed(facts):
        return p.Recovering(facts=facts, awaits="created"), (rescaling.create_joining(facts, facts.layout),)
    return _fence(facts)


def _fence(facts: p.Facts) -> Answer:
    return p.Recovering(facts=facts, awaits="fenced"), (fence(facts),)


def _take_back(facts: p.Facts) -> Answer:
    """A rescale that has not begun is cancelled before the workers are asked, which may take long or fail."""
    facts = replace(rescaling.without_wish(facts), rescale_error=migrating.CANCELLED)
    facts = replace(facts, wants=replace(facts.wants, cancel=False))
    return p.Recovering(facts=facts, awaits="forgotten"), (do.ForgetRescale(),)


def _read_versions(facts: p.Facts, others: tuple[int, ...]) -> do.Command:
    workers = tuple(sorted(needed(facts) | frozenset(others)))
    return do.ReadVersions(epoch=facts.epoch, workers=workers, hosts=hosts_of(facts, workers))


def _choose(facts: p.Facts, event: p.Held) -> Answer:
    choice = choose(event.held, facts.layouts, run=facts.run, fingerprint=facts.fingerprint)
    if choice is None or choice.version < facts.published:
        missed = without_choice(facts, event.held, None if choice is None else choice.version)
        if missed is not None:
            return _failed(p.Recovering(facts=facts, awaits="held"), missed)
        found = "none" if choice is None else choice.version
        message = (
            f"no version that every worker of its layout holds: published={facts.published} found={found}"
            f" {story(event.held)}"
        )
        return _broken(facts, "data", message)
    command = do.OpenVersion(
        version=choice.version, epoch=facts.epoch, layout=choice.layout, checkpoint=choice.checkpoint
    )
    return p.Recovering(facts=facts, awaits="opened"), (command,)


def _opened(facts: p.Facts, event: p.Opened) -> Answer:
    """Every other version is discarded now, so workers outside the layout are named by none."""
    if facts.wants.rescale == destined(event.layout, facts.courses):
        facts = rescaling.without_wish(facts)
    facts = replace(
        facts, version=event.version, layout=event.layout, checkpoint_step=event.checkpoint.step,
        next_step=event.checkpoint.step, published=max(facts.published, event.version),
        version_layout=event.layout.version, course=facts.courses.get(event.layout.version),
    )  # fmt: skip
    gone = tuple(sorted(facts.members - set(event.layout.workers)))
    facts = replace(facts, forming=facts.forming | set(gone))
    command = do.DiscardWorkers(workers=gone, members=event.layout.workers, hosts=hosts_of(facts, gone))
    return p.Recovering(facts=facts, awaits="discarded"), (command,)


def _read_steps(facts: p.Facts) -> Answer:
    return p.Recovering(facts=facts, awaits="steps"), (do.ReadSteps(first=facts.next_step),)


def _replay(facts: p.Facts, records: tuple[StepRecord, ...]) -> Answer:
    if not records:
        return _between_steps(facts, None)
    if records[0].step != facts.next_step:
        found = records[0].step
        message = f"the step log does not go on where the checkpoint ends: step={facts.next_step} found={found}"
        return _broken(facts, "data", message)
    halt = facts.halt
    if halt is not None and halt.step == records[0].step:
        if halt.command not in records[0].commands:
            facts = replace(facts, wants=replace(facts.wants, pause=False))  # refused, so not met after the decision
            return p.Halted(facts=facts, records=records), (do.Wait(for_input=False),)
        facts = replace(facts, halt=None)
    facts = migrating.of_record(facts, records[0])
    following = next(iter(records[1:]), None) if facts.course is None else None
    command = replace(_run(facts, records[0], replay=True), following=following)
    return p.Replaying(facts=facts, records=records), (command,)


def _replaying(state: p.Replaying, event: p.Event) -> Answer:
    match event:
        case p.StepDone(step=number) if number == state.records[0].step:
            facts = _advanced(state.facts, event)
            if facts.wants.stop:
                return p.Stopped(facts=facts), (do.Finish(code=None, message="stopped while replaying"),)
            return _replay(facts, state.records[1:])
    raise impossible(state, event)


# --- steps ----------------------------------------------------------------------------------------------------------


def _run(facts: p.Facts, record: StepRecord, *, replay: bool) -> do.RunStep:
    wants = replace(facts.wants, checkpoint=False) if rescaling.reads_older(facts) else facts.wants
    course = facts.courses.get(record.layout_version)
    quiet = wants == p.Wants() and course is None
    return do.RunStep(
        record=record, layout=facts.layout if course is None else course.old, epoch=facts.epoch, replay=replay,
        may_cut_ahead=quiet and not replay, coming=None if course is None else course.new,
    )  # fmt: skip


def _advanced(facts: p.Facts, done: p.StepDone) -> p.Facts:
    """The facts after a step; failures in a row end when the step that failed has succeeded."""
    failures = 0 if done.step >= facts.failed_step else facts.failures
    failed_as = None if failures == 0 else facts.failed_as
    facts = replace(facts, next_step=done.step + 1, failures=failures, aways=0, failed_as=failed_as)
    return migrating.ended(facts) if done.over else facts


def _between_steps(facts: p.Facts, ahead: StepRecord | None) -> Answer:  # noqa: PLR0911 - the gravest wish first
    """All workers stand at `next_step`: end the checkpoint in flight, meet the requests, else take the next step."""
    copying = facts.copying
    if copying is not None and copying.ended:
        return _end_copy(facts, copying, ahead)
    if facts.wants.end and facts.warming is None:
        return _at_rest(facts, ahead) if ahead is None else _run_ahead(facts, ahead)
    if facts.warming is not None and facts.warming.code == "fenced":
        return _broken(facts, facts.warming.code, facts.warming.message)
    if fills.due(facts.fill, facts.next_step):
        return _cut(facts)
    match rescaling.between_steps(facts, ahead):
        case rescaling.Rest(facts=facts):
            return _at_rest(facts, ahead)
        case rescaling.GoOn(facts=facts):
            wants = facts.wants
        case answer:
            return answer
    if wants.checkpoint and copying is None and not rescaling.reads_older(facts):
        if facts.next_step != facts.checkpoint_step:
            return _checkpoint(facts, ahead)
        wants = replace(wants, checkpoint=False)
        facts = replace(facts, wants=wants)
    if wants.pause:
        return p.Paused(facts=facts, ahead=ahead), (do.Wait(for_input=False),)
    if ahead is not None:
        return _run_ahead(facts, ahead)
    return _cut(facts)


def _cut(facts: p.Facts) -> Answer:
    """Log the next step, if one is due; the one that fills a changed circuit is."""
    commands = migrating.commands(facts)
    if facts.fill is not None and fills.due(facts.fill, facts.next_step):
        commands = (facts.fill.command,)
    cut = do.CutStep(epoch=facts.epoch, step=facts.next_step, layout_version=facts.layout.version, commands=commands)
    return p.Running(facts=facts, awaits="record"), (cut,)


def _run_ahead(facts: p.Facts, ahead: StepRecord) -> Answer:
    return p.Running(facts=facts, record=ahead), (_run(facts, ahead, replay=False),)


def _idle(facts: p.Facts) -> Answer:
    """Nothing waits to be processed: do what else is to be done (a wish, a copy that ended meanwhile), or wait."""
    state, commands = _between_steps(facts, None)
    if any(isinstance(command, do.CutStep) for command in commands):
        return p.Running(facts=state.facts, awaits="input"), (do.Wait(for_input=True),)
    return state, commands


def _at_rest(facts: p.Facts, ahead: StepRecord | None) -> Answer:
    """Stop, upgrade and rescale begin at a published checkpoint of all that was done: one in flight is waited for first.

    Where this process ends no step is logged above it, so that any version of the engine may go on.
    """
    if facts.copying is not None:
        return _checkpoint_state(facts, facts.copying, "copied", ahead), (do.AwaitCopy(version=facts.copying.version),)
    if facts.next_step != facts.checkpoint_step:
        return _checkpoint(facts, ahead)
    if facts.wants.end:
        again = facts.wants.upgrade and not facts.wants.stop
        return p.Stopped(facts=facts), (do.Finish(code=None, message="stopped", again=again),)
    if facts.warming is not None:
        return rescaling.switch(facts, facts.warming, ahead)
    if facts.wants.rescale is not None:
        return rescaling.begin_cold(facts, facts.wants.rescale)
    raise InternalError(f"all is at rest, and nobody asked for it: facts={facts}")


def _running(state: p.Running, event: p.Event) -> Answer:
    facts = state.facts
    match event:
        case p.Recorded(record=None) if state.awaits == "record":
            return _idle(facts)
        case p.Recorded(record=StepRecord() as record) if state.awaits == "record" and record.step == facts.next_step:
            return p.Running(facts=facts, record=record), (_run(facts, record, replay=False),)
        case p.Woken() if state.awaits == "input":
            return _between_steps(facts, None)
        case p.StepDone(step=number, ahead=ahead) if state.record is not None and number == state.record.step:
            if ahead is not None and ahead.step != number + 1:
                raise impossible(state, event)
            return _between_steps(_advanced(facts, event), ahead)
    raise impossible(state, event)


def _paused(state: p.Paused, event: p.Event) -> Answer:
    match event:
        case p.Woken():
            return state, (do.Wait(for_input=False),)
    raise impossible(state, event)


# --- rows that fail ---------------------------------------------------------------------------------------------------


def _skip(state: p.State, event: p.SkipAsked) -> Answer:
    """Log the decision; anywhere else there is nothing to decide, and nothing is noted for later."""
    match state:
        case p.Halted(facts=p.Facts(halt=p.Halt() as halt), awaits="decision"):
            decision = event.command or halt.command
            if halt.step != event.step or not decision:
                return state, (do.Wait(for_input=False),)
            command = do.LogDecision(epoch=state.facts.epoch, step=halt.step, command=decision)
            facts = replace(state.facts, halt=replace(halt, command=decision))
            return replace(state, facts=facts, awaits="logged"), (command,)
        case p.Running(awaits="input") | p.Paused():
            return state, (do.Wait(for_input=isinstance(state, p.Running)),)
    return state, ()


def _halted(state: p.Halted, event: p.Event) -> Answer:
    match state.awaits, event:
        case "decision", p.Woken():
            return state, (do.Wait(for_input=False),)
        case "logged", p.Decided(record=record) if record.step == state.records[0].step:
            return _replay(state.facts, (record, *state.records[1:]))
    raise impossible(state, event)


# --- checkpoints ----------------------------------------------------------------------------------------------------


def _checkpoint(facts: p.Facts, ahead: StepRecord | None) -> Answer:
    """All outputs below `next_step` are durable (a finished step says so), so its state may become a version."""
    copying = p.Copy(version=facts.version + 1, checkpoint=checkpoint_id(facts, facts.layout.version))
    command = do.PinVersion(version=copying.version, checkpoint=copying.checkpoint, layout=facts.layout)
    return _checkpoint_state(facts, copying, "pinned", ahead), (command,)


def _checkpoint_state(
    facts: p.Facts, copying: p.Copy, awaits: str, ahead: StepRecord | None
) -> p.Checkpointing | p.Stopping:
    """The state between two steps in which something is done about a checkpoint."""
    version, checkpoint = copying.version, copying.checkpoint
    if facts.wants.end and ahead is None:
        return p.Stopping(facts=facts, version=version, checkpoint=checkpoint, awaits=awaits)
    return p.Checkpointing(facts=facts, version=version, checkpoint=checkpoint, awaits=awaits, ahead=ahead)


def _news(state: p.State, event: p.News) -> Answer:
    """Note the news; it is acted on between two steps. Of a copy that a rollback has forgotten there is no news."""
    facts = state.facts
    copying = facts.copying
    if isinstance(event, p.WarmEnded):
        state = replace(state, facts=rescaling.note_ended(facts, event))
    elif copying is not None and copying.version == event.version:
        ended = replace(copying, ended=True, code=event.code, message=event.message)
        state = replace(state, facts=replace(facts, copying=ended))
    match state:
        case p.Running(awaits="input") | p.Paused() | p.Halted(awaits="decision"):
            return _woken(state)
    return state, ()


def _end_copy(facts: p.Facts, copying: p.Copy, ahead: StepRecord | None) -> Answer:
    """Publish what every worker has acknowledged; a copy that failed is a failure like any other.

    But it is in a row with the copy that failed before: the steps that succeed between them say nothing of it.
    """
    if copying.code is not None:
        copies = facts.copy_failures
        facts = replace(facts, copy_failures=copies + 1, failures=max(facts.failures, copies))
        return _failed(p.Running(facts=facts), p.Failed(code=copying.code, message=copying.message))
    command = do.Publish(version=copying.version, checkpoint=copying.checkpoint, ends_rescale=False)
    return _checkpoint_state(facts, copying, "published", ahead), (command,)


def _checkpointing(state: p.Checkpointing | p.Stopping, event: p.Event) -> Answer:
    facts = state.facts
    ahead = state.ahead if isinstance(state, p.Checkpointing) else None
    match state.awaits, event:
        case "pinned", p.Pinned(version=version) if version == state.version:
            copying = p.Copy(version=version, checkpoint=state.checkpoint)
            wants = replace(facts.wants, checkpoint=False)
            return _between_steps(replace(facts, copying=copying, wants=wants), ahead)
        case "copied", p.Copied(version=version) if version == state.version:
            return _end_copy(facts, p.Copy(version=version, checkpoint=state.checkpoint), ahead)
        case "published", p.Published(version=version) if version == state.version:
            facts = _published(facts, state.version, state.checkpoint)
            gone = migrating.leavers(facts)
            if not gone or facts.wants.end:
                return _between_steps(facts, ahead)
            command = do.DiscardWorkers(workers=gone, members=facts.layout.workers, hosts=hosts_of(facts, gone))
            return replace(state, facts=facts, awaits="discarded"), (command,)
        case "discarded", p.Discarded(left=left):
            return _between_steps(rescaling.settled(facts, left), ahead)
    raise impossible(state, event)


def _published(facts: p.Facts, version: int, checkpoint: CheckpointId) -> p.Facts:
    return replace(
        facts, version=version, published=version, checkpoint_step=checkpoint.step, failures=0, copy_failures=0,
        failed_as=None, copying=None, version_layout=checkpoint.layout_version,
    )  # fmt: skip


# --- rescale --------------------------------------------------------------------------------------------------------


def _rescaling(state: p.Rescaling | p.WarmingUp | p.Cancelling, event: p.Event) -> Answer:
    """What to do next is said by `rescaling`."""
    match state:
        case p.Rescaling():
            found: Answer | rescaling.GoOn | rescaling.Anew | None = rescaling.rescaling(state, event)
        case p.WarmingUp():
            found = rescaling.warming_up(state, event)
        case p.Cancelling():
            found = rescaling.cancelling(state, event)
    match found:
        case None:
            raise impossible(state, event)
        case rescaling.GoOn(facts=facts, ahead=ahead):
            return _between_steps(facts, ahead)
        case rescaling.Anew(facts=facts):
            return _recover(facts)
        case answer:
            return answer
