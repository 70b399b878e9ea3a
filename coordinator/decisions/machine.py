"""The state machine of the coordinator: one pure function from (state, event) to (state, commands).

A start intersects the workers' versions, opens the greatest, replays, and runs. At the checkpoint interval it pauses
all workers at one step, commits all, and publishes. The pause only serves to agree on the step: the cut is pinned, and
copied while steps go on. No clock, no I/O, no threads: the event loop and the simulator run this same function.

Invariants kept here: a step runs only after its record is durable (invariant 4). A checkpoint begins only between steps, when
all outputs below it are durable (invariant 11), and only one at a time. A rollback forgets the checkpoint in flight, claims a
new epoch, and fences every member before it reads versions (invariant 6). A version is published only after every worker has
acknowledged it (invariant 8). A layout is logged before its use. Nothing that an openable version names is discarded
(invariant 12).

Total: every (state, event) pair has a result, and an impossible pair raises `InternalError` that describes it. Source:
docs/concepts/coordinator.md.
"""

from __future__ import annotations

from dataclasses import replace

from dbsp.coordinator.decisions import commands, events, fills, lost_hosts, migrating, rescaling, states
from dbsp.coordinator.decisions.engines import accepted_anew
from dbsp.coordinator.decisions.recovery import (
    chosen,
    counted,
    fence,
    hosts_of,
    lasting_story,
    learned,
    needed,
    none_fits,
    read_versions,
    return_to_copies,
    serves,
    without_choice,
    without_copy,
    without_upgrade,
)
from dbsp.coordinator.decisions.rescaling import checkpoint_id, impossible
from dbsp.errors import AwayError, EngineError, InternalError
from dbsp.logs import StepRecord
from dbsp.store import CheckpointId

Answer = tuple[states.State, tuple[commands.Command, ...]]

FATAL = frozenset({"fenced", "config", "circuit", "engine"})


def step(state: states.State, event: events.Event) -> Answer:
    """Return the next state and the commands to carry out now.

    **Law** deterministic; `state` and `event` are not changed.
    **Errors** `InternalError` for an event that is impossible in this state.
    """
    match state:
        case states.Stopped() | states.Broken():
            return state, ()
    match event:
        case (
            events.CheckpointAsked() | events.PauseAsked() | events.ResumeAsked() | events.RescaleAsked() | events.CancelAsked()
            | events.StopAsked() | events.UpgradeAsked() | events.SkipAsked()
        ):  # fmt: skip
            return _request(state, event)
        case events.Failed():
            return _failed(state, event)
        case events.CopyEnded() | events.WarmEnded() | events.HostsAwaited():
            return _news(state, event)
    return _answer(state, event)


def _answer(state: states.State, event: events.Event) -> Answer:
    """Handle the result of the command that is under way."""
    match state:
        case states.Starting():
            return _starting(state, event)
        case states.Recovering():
            return _recovering(state, event)
        case states.Replaying():
            return _replaying(state, event)
        case states.Running():
            return _running(state, event)
        case states.Checkpointing() | states.Stopping():
            return _checkpointing(state, event)
        case states.Rescaling() | states.WarmingUp() | states.Cancelling():
            return _rescaling(state, event)
        case states.Paused():
            return _paused(state, event)
        case states.Halted():
            return _halted(state, event)
    raise impossible(state, event)


# --- requests and failures ------------------------------------------------------------------------------------------


def _request(state: states.State, event: events.Request) -> Answer:
    """Note a request, which is served between two steps; wake a state that waits."""
    facts = state.facts
    requested = facts.requested
    match event:
        case events.SkipAsked():
            return _skip(state, event)
        case events.CheckpointAsked():
            requested = replace(requested, checkpoint=True)
        case events.PauseAsked():
            refused = isinstance(state, states.Halted) and state.awaits == "decision"
            requested = replace(requested, pause=not refused)
        case events.ResumeAsked():
            requested = replace(requested, pause=False)
        case events.RescaleAsked():
            facts = rescaling.asked(facts, event, ending=isinstance(state, states.Cancelling))
            requested = facts.requested
        case events.CancelAsked():
            running = facts.warming is not None or requested.rescale is not None or facts.migration_plan is not None
            requested = replace(requested, cancel=running and not isinstance(state, states.Rescaling))
        case events.StopAsked(now=now):
            requested = replace(requested, stop=True)
            if now:
                return states.Stopped(facts=replace(facts, requested=requested)), (
                    commands.Shutdown(code=None, message="stopped at once"),
                )
        case events.UpgradeAsked():
            begins = isinstance(state, states.Running | states.Paused | states.Checkpointing)
            requested = replace(
                requested, upgrade=requested.upgrade or begins
            )  # an upgrade that has begun goes on in any state
            facts = replace(facts, upgrade_error=None if requested.upgrade else "it takes no steps at the moment")
    return _woken(replace(state, facts=replace(facts, requested=requested)))


def _woken(noted: states.State) -> Answer:
    """Serve the requests at once in a state that waits; any other state serves them when its command has ended."""
    requested = noted.facts.requested
    match noted:
        case states.Running(awaits="input"):
            return _between_steps(noted.facts, None)
        case states.Paused():
            return _between_steps(noted.facts, noted.ahead)
        case states.Halted(awaits="decision") if requested.stop:
            return states.Stopped(facts=noted.facts), (
                commands.Shutdown(code=None, message="stopped before a step whose rows fail"),
            )
        case states.Halted(awaits="decision"):
            return noted, (commands.Wait(for_input=False),)
        case states.Recovering(awaits="backoff") if requested.stop:
            return _stopped_recovering(noted.facts)
    return noted, ()


def _failed(state: states.State, event: events.Failed) -> Answer:
    """Handle a failed command: end if fenced or misconfigured, else roll back under a new epoch.

    The number of consecutive rollbacks is bounded. Failing rows do not count, because they fail at every replay: the
    replay ends before their step, or runs it without the deferred rows. The wait for an unavailable external system is
    unbounded. An error that a retry cannot cure ends the service when it occurs again.
    """
    facts = without_upgrade(rescaling.without_warming(without_copy(state.facts)), event.message)
    moving = isinstance(state, states.Rescaling | states.WarmingUp)
    if (event.halt is not None or event.deferred) and not moving:
        facts = replace(facts, halt=event.halt)
        return states.Recovering(facts=facts, awaits="backoff"), (commands.BackOff(failures=facts.failures),)
    if event.code == "fenced" or (event.code in FATAL and not moving):
        return _broken(facts, event.code, event.message)
    if facts.requested.stop and isinstance(state, states.Recovering | states.Replaying):
        return _stopped_recovering(facts)
    if event.code == AwayError.code and not moving:
        facts = replace(facts, aways=facts.aways + 1)
        return states.Recovering(facts=facts, awaits="backoff"), (commands.BackOff(failures=facts.aways, away=True),)
    lasting = lasting_story(event)
    if lasting is not None and not moving and (lasting, facts.next_step) == (facts.failed_as, facts.failed_step):
        return _broken(facts, event.code, f"{event.message} (it came back after a rollback: step={facts.next_step})")
    failures = facts.failures + 1
    facts = replace(facts, failures=failures, failed_step=facts.next_step, failed_as=lasting)
    if failures >= facts.failures_max:
        return _broken(facts, event.code, f"{event.message} (failures_in_a_row={failures})")
    if moving and facts.requested.rescale is not None:
        facts = replace(rescaling.without_request(facts), rescale_error=event.message)
        return states.Recovering(facts=facts, awaits="forgotten"), (commands.ForgetRescale(),)
    return states.Recovering(facts=facts, awaits="backoff"), (commands.BackOff(failures=failures),)


def _stopped_recovering(facts: states.Facts) -> Answer:
    """Stop without another try: the next start recovers from the same point."""
    return states.Stopped(facts=facts), (commands.Shutdown(code=None, message="stopped while recovering"),)


def _broken(facts: states.Facts, code: str, message: str, hint: str | None = None) -> Answer:
    return states.Broken(facts=facts, code=code, message=message), (
        commands.Shutdown(code=code, message=message, hint=hint),
    )


# --- recovery -------------------------------------------------------------------------------------------------------


def _starting(state: states.Starting, event: events.Event) -> Answer:
    match event:
        case events.LoopReady():
            return _recover(state.facts)
    raise impossible(state, event)


def _recover(facts: states.Facts) -> Answer:
    """Claim a new epoch, with which every recovery begins; a version is opened only after that."""
    return states.Recovering(facts=facts, awaits="claimed"), (commands.ClaimEpoch(),)


def _recovering(state: states.Recovering, event: events.Event) -> Answer:  # noqa: C901, PLR0911 - one line per stage
    facts = state.facts
    match state.awaits, event:
        case "forgotten", events.Forgotten():
            return states.Recovering(facts=facts, awaits="backoff"), (commands.BackOff(failures=facts.failures),)
        case "backoff", events.Woken():
            return _recover(facts)
        case "claimed", events.Claimed(epoch=epoch, standing=standing):
            return _claimed(replace(learned(facts, standing), epoch=epoch))
        case "created", events.Created():
            return _fence(facts)
        case "created" | "fenced", events.HostsLost() | events.DisksLost():
            decided = lost_hosts.decided(facts, event)
            return _failed(state, decided) if isinstance(decided, events.Failed) else decided
        case "fenced", events.Fenced(others=others):
            return states.Recovering(facts=facts, awaits="held"), (read_versions(facts, others),)
        case "moved", events.WorkersMoved(standing=standing):
            return _claimed(learned(facts, standing))
        case "held", events.VersionsRead():
            return _choose(facts, event)
        case "returned", events.ReturnedToCopies(version=version, standing=standing):
            return _recover(replace(learned(facts, standing), returned=version))
        case "returned", events.NothingCopied(message=message):
            return _broken(facts, "data", message)
        case "opened", events.VersionOpened():
            return _opened(facts, event)
        case "discarded", events.Discarded(left=left):
            facts = rescaling.settled(facts, left)
            return states.Recovering(facts=facts, awaits="steps"), (commands.ReadSteps(first=facts.next_step),)
        case "steps", events.StepsRead(records=records, partitions=seen):
            return _judge_engines(replace(facts, partitions=counted(facts, seen)), records)
        case "accepted", events.EnginesAccepted(accepted=accepted):
            requested = replace(
                facts.requested, checkpoint=True
            )  # after this checkpoint, the replayed steps belong to this engine version
            return _replay(replace(facts, accepted=accepted, accepting=frozenset(), requested=requested), state.records)
    raise impossible(state, event)


def _judge_engines(facts: states.Facts, records: tuple[StepRecord, ...]) -> Answer:
    """Check which engine versions logged the steps; steps of another version are replayed only after the acceptance is noted."""
    try:
        anew = accepted_anew(records, facts.engine, facts.accepted, facts.accepting)
    except EngineError as error:
        return _broken(facts, error.code, error.message, error.hint)
    if not anew:
        return _replay(facts, records)
    command = commands.AcceptEngines(acceptances=anew)
    return states.Recovering(facts=facts, awaits="accepted", records=records), (command,)


def _claimed(facts: states.Facts) -> Answer:
    """Begin recovery: forget a cancelled rescale first, then create databases of needed workers, then fence all."""
    if facts.requested.cancel and facts.requested.rescale is not None and facts.migration_plan is None:
        return _take_back(facts)
    if facts.forming & needed(facts):
        command = replace(
            rescaling.create_joining(facts, facts.layout), offered=tuple(host for host, _ in facts.offered)
        )
        return states.Recovering(facts=facts, awaits="created"), (command,)
    return _fence(facts)


def _fence(facts: states.Facts) -> Answer:
    return states.Recovering(facts=facts, awaits="fenced"), (fence(facts),)


def _take_back(facts: states.Facts) -> Answer:
    """Cancel a rescale that has not begun, at once: asking the workers first may take long or fail."""
    facts = replace(rescaling.without_request(facts), rescale_error=migrating.CANCELLED)
    facts = replace(facts, requested=replace(facts.requested, cancel=False))
    return states.Recovering(facts=facts, awaits="forgotten"), (commands.ForgetRescale(),)


def _choose(facts: states.Facts, event: events.VersionsRead) -> Answer:
    choice = chosen(facts, event.held)
    if choice is None or choice.version < facts.published:
        missed = without_choice(facts, event.held, None if choice is None else choice.version)
        if missed is not None:
            return _failed(states.Recovering(facts=facts, awaits="held"), missed)
        if facts.copies_lag and facts.returned is None:
            return states.Recovering(facts=facts, awaits="returned"), (return_to_copies(facts, event.held),)
        return _broken(facts, "data", none_fits(facts, event.held, choice))
    command = commands.OpenVersion(
        version=choice.version, epoch=facts.epoch, layout=choice.layout, checkpoint=choice.checkpoint
    )
    return states.Recovering(facts=facts, awaits="opened"), (command,)


def _opened(facts: states.Facts, event: events.VersionOpened) -> Answer:
    """Note the opened version, and discard the workers outside its layout, which no version names any more."""
    requested, plans = facts.requested, facts.migration_plans
    if serves(event.layout, plans, requested.rescale, facts.offered, facts.partitions, requested.excluded):
        facts = rescaling.without_request(facts)
    facts = replace(
        facts, version=event.version, layout=event.layout, checkpoint_step=event.checkpoint.step,
        next_step=event.checkpoint.step, published=max(facts.published, event.version), moved=event.moved,
        version_layout=event.layout.version, migration_plan=facts.migration_plans.get(event.layout.version),
        returned=None,
    )  # fmt: skip
    gone = tuple(sorted(facts.members - set(event.layout.workers)))
    facts = replace(facts, forming=facts.forming | set(gone))
    command = commands.DiscardWorkers(workers=gone, members=event.layout.workers, hosts=hosts_of(facts, gone))
    return states.Recovering(facts=facts, awaits="discarded"), (command,)


def _replay(facts: states.Facts, records: tuple[StepRecord, ...]) -> Answer:
    if not records:
        return _between_steps(facts, None)
    if records[0].step != facts.next_step:
        found = records[0].step
        message = f"the step log does not continue at the step of the checkpoint: step={facts.next_step} found={found}"
        return _broken(facts, "data", message)
    halt = facts.halt
    if halt is not None and halt.step == records[0].step:
        if halt.command not in records[0].commands:
            facts = replace(
                facts, requested=replace(facts.requested, pause=False)
            )  # a halted pipeline refuses a pause, so no pause can be pending here
            return states.Halted(facts=facts, records=records), (commands.Wait(for_input=False),)
        facts = replace(facts, halt=None)
    facts = migrating.of_record(facts, records[0])
    following = next(iter(records[1:]), None) if facts.migration_plan is None else None
    command = replace(_run(facts, records[0], replay=True), following=following)
    return states.Replaying(facts=facts, records=records), (command,)


def _replaying(state: states.Replaying, event: events.Event) -> Answer:
    match event:
        case events.StepDone(step=number) if number == state.records[0].step:
            facts = _advanced(state.facts, event)
            if facts.requested.stop:
                return states.Stopped(facts=facts), (commands.Shutdown(code=None, message="stopped while replaying"),)
            return _replay(facts, state.records[1:])
    raise impossible(state, event)


# --- steps ----------------------------------------------------------------------------------------------------------


def _run(facts: states.Facts, record: StepRecord, *, replay: bool) -> commands.RunStep:
    requested = replace(facts.requested, checkpoint=False) if rescaling.reads_older(facts) else facts.requested
    migration_plan = facts.migration_plans.get(record.layout_version)
    quiet = requested == states.Requested() and migration_plan is None
    return commands.RunStep(
        record=record, layout=facts.layout if migration_plan is None else migration_plan.old, epoch=facts.epoch, replay=replay,
        may_cut_ahead=quiet and not replay, coming=None if migration_plan is None else migration_plan.new,
    )  # fmt: skip


def _advanced(facts: states.Facts, done: events.StepDone) -> states.Facts:
    """Return the facts after a finished step.

    The count of consecutive failures is reset once the step that failed has succeeded.
    """
    failures = 0 if done.step >= facts.failed_step else facts.failures
    failed_as = None if failures == 0 else facts.failed_as
    facts = replace(facts, next_step=done.step + 1, failures=failures, aways=0, failed_as=failed_as)
    return migrating.ended(facts) if done.over else facts


def _between_steps(facts: states.Facts, ahead: StepRecord | None) -> Answer:  # noqa: PLR0911 - the gravest request first
    """End the checkpoint in flight, serve the requests, or take the next step: all workers are before `next_step`."""
    copying = facts.copying
    if copying is not None and copying.ended:
        return _end_copy(facts, copying, ahead)
    if facts.requested.end and facts.warming is None:
        return _at_rest(facts, ahead) if ahead is None else _run_ahead(facts, ahead)
    if facts.warming is not None and facts.warming.code == "fenced":
        return _broken(facts, facts.warming.code, facts.warming.message)
    if fills.due(facts.fill, facts.next_step):
        return _cut(facts)
    match rescaling.between_steps(facts, ahead):
        case rescaling.Rest(facts=facts):
            return _at_rest(facts, ahead)
        case rescaling.GoOn(facts=facts):
            requested = facts.requested
        case answer:
            return answer
    if requested.checkpoint and copying is None and not rescaling.reads_older(facts):
        if facts.next_step != facts.checkpoint_step:
            return _checkpoint(facts, ahead)
        requested = replace(requested, checkpoint=False)
        facts = replace(facts, requested=requested)
    if requested.pause:
        return states.Paused(facts=facts, ahead=ahead), (commands.Wait(for_input=False),)
    if ahead is not None:
        return _run_ahead(facts, ahead)
    return _cut(facts)


def _cut(facts: states.Facts) -> Answer:
    """Cut and log the next step, which may be the backfill of a changed circuit."""
    issued = migrating.step_commands(facts)
    if facts.fill is not None and fills.due(facts.fill, facts.next_step):
        issued = (facts.fill.command,)
    cut = commands.CutStep(
        epoch=facts.epoch, step=facts.next_step, layout_version=facts.layout.version, commands=issued
    )
    return states.Running(facts=facts, awaits="record"), (cut,)


def _run_ahead(facts: states.Facts, ahead: StepRecord) -> Answer:
    return states.Running(facts=facts, record=ahead), (_run(facts, ahead, replay=False),)


def _idle(facts: states.Facts) -> Answer:
    """Serve a request or the end of a copy when no row waits; else wait for input."""
    state, issued = _between_steps(facts, None)
    if any(isinstance(command, commands.CutStep) for command in issued):
        return states.Running(facts=state.facts, awaits="input"), (commands.Wait(for_input=True),)
    return state, issued


def _at_rest(facts: states.Facts, ahead: StepRecord | None) -> Answer:
    """Return the next command on the way to a published checkpoint of all steps, at which a stop, upgrade or rescale begins.

    A checkpoint in flight is awaited first. If this process ends, no step is logged above the checkpoint, so that any
    version of the engine may continue.
    """
    if facts.copying is not None:
        return _checkpoint_state(facts, facts.copying, "copied", ahead), (
            commands.AwaitCopy(version=facts.copying.version),
        )
    if facts.next_step != facts.checkpoint_step:
        return _checkpoint(facts, ahead)
    if facts.requested.end:
        again = facts.requested.upgrade and not facts.requested.stop
        return states.Stopped(facts=facts), (commands.Shutdown(code=None, message="stopped", again=again),)
    if facts.warming is not None:
        return rescaling.switch(facts, facts.warming, ahead)
    if facts.requested.rescale is not None:
        return rescaling.begin_cold(facts, facts.requested.rescale)
    raise InternalError(f"a checkpoint of all steps is published, and no request needs it: facts={facts}")


def _running(state: states.Running, event: events.Event) -> Answer:
    facts = state.facts
    match event:
        case events.Recorded(record=None) if state.awaits == "record":
            return _idle(facts)
        case events.Recorded(record=StepRecord() as record) if (
            state.awaits == "record" and record.step == facts.next_step
        ):
            return states.Running(facts=facts, record=record), (_run(facts, record, replay=False),)
        case events.Woken() if state.awaits == "input":
            return _between_steps(facts, None)
        case events.StepDone(step=number, ahead=ahead) if state.record is not None and number == state.record.step:
            if ahead is not None and ahead.step != number + 1:
                raise impossible(state, event)
            return _between_steps(_advanced(facts, event), ahead)
    raise impossible(state, event)


def _paused(state: states.Paused, event: events.Event) -> Answer:
    match event:
        case events.Woken():
            return state, (commands.Wait(for_input=False),)
    raise impossible(state, event)


# --- rows that fail ---------------------------------------------------------------------------------------------------


def _skip(state: states.State, event: events.SkipAsked) -> Answer:
    """Log the decision to skip rows in the state `Halted`; in any other state there is nothing to decide or note."""
    match state:
        case states.Halted(facts=states.Facts(halt=states.Halt() as halt), awaits="decision"):
            decision = event.command or halt.command
            if halt.step != event.step or not decision:
                return state, (commands.Wait(for_input=False),)
            command = commands.LogDecision(epoch=state.facts.epoch, step=halt.step, command=decision)
            facts = replace(state.facts, halt=replace(halt, command=decision))
            return replace(state, facts=facts, awaits="logged"), (command,)
        case states.Running(awaits="input") | states.Paused():
            return state, (commands.Wait(for_input=isinstance(state, states.Running)),)
    return state, ()


def _halted(state: states.Halted, event: events.Event) -> Answer:
    match state.awaits, event:
        case "decision", events.Woken():
            return state, (commands.Wait(for_input=False),)
        case "logged", events.Decided(record=record) if record.step == state.records[0].step:
            return _replay(state.facts, (record, *state.records[1:]))
    raise impossible(state, event)


# --- checkpoints ----------------------------------------------------------------------------------------------------


def _checkpoint(facts: states.Facts, ahead: StepRecord | None) -> Answer:
    """Pin a checkpoint of the state before `next_step`; a finished step implies that all outputs below are durable."""
    copying = states.Copy(version=facts.version + 1, checkpoint=checkpoint_id(facts, facts.layout.version))
    command = commands.PinVersion(version=copying.version, checkpoint=copying.checkpoint, layout=facts.layout)
    return _checkpoint_state(facts, copying, "pinned", ahead), (command,)


def _checkpoint_state(
    facts: states.Facts, copying: states.Copy, awaits: str, ahead: StepRecord | None
) -> states.Checkpointing | states.Stopping:
    """Return the state between two steps in which the coordinator works on a checkpoint."""
    version, checkpoint = copying.version, copying.checkpoint
    if facts.requested.end and ahead is None:
        return states.Stopping(facts=facts, version=version, checkpoint=checkpoint, awaits=awaits)
    return states.Checkpointing(facts=facts, version=version, checkpoint=checkpoint, awaits=awaits, ahead=ahead)


def _news(state: states.State, event: events.News) -> Answer:
    """Note the news, to be handled between two steps; ignore news of a copy that a rollback has forgotten."""
    facts = state.facts
    copying = facts.copying
    if isinstance(event, events.WarmEnded):
        state = replace(state, facts=rescaling.note_ended(facts, event))
    elif isinstance(event, events.HostsAwaited):
        state = replace(state, facts=rescaling.note_hosts(facts, event))
    elif copying is not None and copying.version == event.version:
        ended = replace(copying, ended=True, code=event.code, message=event.message)
        state = replace(state, facts=replace(facts, copying=ended))
    match state:
        case states.Running(awaits="input") | states.Paused() | states.Halted(awaits="decision"):
            return _woken(state)
    return state, ()


def _end_copy(facts: states.Facts, copying: states.Copy, ahead: StepRecord | None) -> Answer:
    """Publish a version that every worker has acknowledged, or handle the failure of the copy.

    Consecutive failures of copies are counted; steps that succeed in between do not reset the count.
    """
    if copying.code is not None:
        copies = facts.copy_failures
        facts = replace(facts, copy_failures=copies + 1, failures=max(facts.failures, copies))
        return _failed(states.Running(facts=facts), events.Failed(code=copying.code, message=copying.message))
    command = commands.Publish(version=copying.version, checkpoint=copying.checkpoint, ends_rescale=False)
    return _checkpoint_state(facts, copying, "published", ahead), (command,)


def _checkpointing(state: states.Checkpointing | states.Stopping, event: events.Event) -> Answer:
    facts = state.facts
    ahead = state.ahead if isinstance(state, states.Checkpointing) else None
    match state.awaits, event:
        case "pinned", events.VersionPinned(version=version) if version == state.version:
            copying = states.Copy(version=version, checkpoint=state.checkpoint)
            requested = replace(facts.requested, checkpoint=False)
            return _between_steps(replace(facts, copying=copying, requested=requested), ahead)
        case "copied", events.Copied(version=version) if version == state.version:
            return _end_copy(facts, states.Copy(version=version, checkpoint=state.checkpoint), ahead)
        case "published", events.Published(version=version) if version == state.version:
            facts = _published(facts, state.version, state.checkpoint)
            gone = migrating.leavers(facts)
            if not gone or facts.requested.end:
                return _between_steps(facts, ahead)
            command = commands.DiscardWorkers(workers=gone, members=facts.layout.workers, hosts=hosts_of(facts, gone))
            return replace(state, facts=facts, awaits="discarded"), (command,)
        case "discarded", events.Discarded(left=left):
            return _between_steps(rescaling.settled(facts, left), ahead)
    raise impossible(state, event)


def _published(facts: states.Facts, version: int, checkpoint: CheckpointId) -> states.Facts:
    return replace(
        facts, version=version, published=version, checkpoint_step=checkpoint.step, failures=0, copy_failures=0,
        failed_as=None, copying=None, version_layout=checkpoint.layout_version,
    )  # fmt: skip


# --- rescale --------------------------------------------------------------------------------------------------------


def _rescaling(state: states.Rescaling | states.WarmingUp | states.Cancelling, event: events.Event) -> Answer:
    """Pass the event to module `rescaling`, and carry out its result."""
    match state:
        case states.Rescaling():
            found: Answer | rescaling.GoOn | rescaling.Anew | None = rescaling.rescaling(state, event)
        case states.WarmingUp():
            found = rescaling.warming_up(state, event)
        case states.Cancelling():
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
