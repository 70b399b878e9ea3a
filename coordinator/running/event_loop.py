"""The loop around the machine: it feeds events in and has commands carried out, on the one thread that uses the runtime.

Requests of other threads arrive through `submit` and reach the machine between two commands. Questions about the state
(`ask`) are answered between two steps, so that a view is always read as of one step.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from dbsp.coordinator.decisions import commands, events, fills, states
from dbsp.coordinator.decisions.autoscale import Sample, Watching, decide, emptied, looked, may_do_with, seen
from dbsp.coordinator.decisions.machine import step
from dbsp.coordinator.decisions.rescaling import awaited_hosts, is_moving
from dbsp.coordinator.decisions.strategies import COLD
from dbsp.coordinator.running.command_runner import CommandRunner, Parts
from dbsp.coordinator.running.control import request_rescale
from dbsp.coordinator.running.host_command import HostCommand, HostOffer
from dbsp.coordinator.running.idle_disks import IdleDisks
from dbsp.coordinator.running.joining_hosts import JoiningHosts
from dbsp.coordinator.running.loop_settings import LoopSettings
from dbsp.coordinator.running.notices import (
    Autoscaled,
    AutoscaleFailed,
    CloseFailed,
    Observer,
    RolledBack,
    ServiceEnded,
    StateChanged,
)
from dbsp.coordinator.running.status import LiveStatus, Snapshot, waiting_rescale
from dbsp.coordinator.running.unusable_hosts import excluded, unusable
from dbsp.errors import AwayError, DbspError, UnavailableError
from dbsp.hosts import Offered
from dbsp.logs import Waiting
from dbsp.runtime.runtime import Runtime

SETTLED = (states.Running, states.Paused, states.Halted)
RENEW_AFTER_FAILURES = 2
OWNER_CHECK_S = 1.0
REST_BY_LOOK, REST_S_MIN, REST_S_MAX = 4, 0.02, 0.1
"""The pause between two looks for input: 4 times as long as a look takes, but 0.02 to 0.1 s.

Many partitions mean many requests.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ask:
    """A function to run on the event loop's thread between two steps, and the future of its result."""

    question: Callable[[Runtime, states.Facts], Any]
    answer: Future[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watch:
    """A request and its future; `met` returns None until the request is served, and may raise."""

    request: events.Request
    met: Callable[[states.State], Any]
    answer: Future[Any]


_WITHOUT_NEW_STEPS = (states.Starting, states.Recovering, states.Replaying, states.Paused, states.Halted)
"""States in which no new step runs, so that autoscale gets no samples."""


class EventLoop:
    """The loop that drives one pipeline.

    `run` blocks until the end; `submit`, `ask` and `wake` may be called from any thread.
    """

    def __init__(self, parts: Parts, settings: LoopSettings, facts: states.Facts, observer: Observer) -> None:
        """Prepare the loop; nothing happens before `run`."""
        self.live_status = LiveStatus()
        self.runner = CommandRunner(parts, settings, self.live_status, observer)
        self._clock, self._settings, self._observer = parts.clock, settings, observer
        self._state: states.State = states.Starting(facts=facts)
        self._inbox: deque[_Ask | _Watch] = deque()
        self._asks: list[_Ask] = []
        self._watches: list[_Watch] = []
        self._wake = threading.Event()
        self._checkpoint_at = parts.clock.monotonic_s()
        self._owned_at = parts.clock.monotonic_s()
        self._control = parts.control
        # the layout before recovery: a rescale that recovery completes counts as a change of the layout
        self._watching = Watching(since_s=parts.clock.monotonic_s(), layout=facts.layout.version)
        self._sampled = -1
        section = settings.autoscale
        self._hosts = HostCommand(section.hosts_command, section.hosts_timeout_s, self._wake.set)
        self._disks = IdleDisks(parts.clock, self.runner.silent_hosts)
        self._joining = JoiningHosts(parts.clock, self._wake.set)
        self._left: frozenset[str] = frozenset()
        """The hosts on offer before the rescale of autoscale; `hosts_command` takes back those that are then unused."""
        self._backfills = False
        self.backfill_begins: Callable[[Runtime, states.Facts], None] = lambda _runtime, _facts: None
        """Called before each run of the backfill step: while it runs, the event loop answers no request to read."""
        self.backfill_ends: Callable[[], None] = lambda: None
        """Called when the backfill step is done, or was given up."""
        self.runner.woken = self._wake.set

    def begin_with_rescale(self, workers: int, strategy: str = COLD) -> None:
        """Request a rescale before `run`; it begins as soon as the pipeline has recovered."""
        facts = self._state.facts
        requested = replace(facts.requested, rescale=workers, strategy=strategy)
        self._state = states.Starting(facts=replace(facts, requested=requested))

    # --- from other threads -------------------------------------------------------------------------------------

    def submit(self, request: events.Request, met: Callable[[states.State], Any]) -> Future[Any]:
        """Submit a request; the future resolves when `met` of the state is not None, or the service ends."""
        return self._post(_Watch(request=request, met=met, answer=Future()))

    def ask(self, question: Callable[[Runtime, states.Facts], Any]) -> Future[Any]:
        """Run a question on the event loop's thread, between two steps; the future gets its result."""
        return self._post(_Ask(question=question, answer=Future()))

    def wake(self) -> None:
        """Wake the loop, because there may be new input."""
        self._wake.set()

    @property
    def fill(self) -> fills.Fill | None:
        """Return the note of the backfill step, which may be done."""
        return self._state.facts.fill

    def give_up(self, message: str) -> None:
        """Post the failure after an unexpected error of the loop, and fail all waiting requests."""
        self.live_status.post(replace(self.live_status.now, ended=True, state="Failed", last_error=message))
        self._refuse_all()

    def _post(self, item: _Ask | _Watch) -> Future[Any]:
        self._inbox.append(item)
        self._wake.set()
        if self.live_status.now.ended:
            self._refuse_all()
        return item.answer

    # --- the loop -----------------------------------------------------------------------------------------------

    def run(self) -> commands.Shutdown:
        """Recover and run steps until a requested end or a fatal error; return the reason of the end."""
        command = self._decide(events.LoopReady())
        while not isinstance(command, commands.Shutdown):
            event = self._perform(command)
            command = self._decide(event) if isinstance(command, commands.Wait) else self._between(event)
        return self._end(command)

    def _perform(self, command: commands.Command) -> events.Event:
        match command:
            case commands.Wait(for_input=for_input):
                event = self._wait(for_input)
            case commands.BackOff(failures=failures, away=away):
                self._observer.noted(RolledBack(failures=failures))
                self.live_status.post(replace(self.live_status.now, rollbacks=self.live_status.now.rollbacks + 1))
                return self._back_off(failures, away)
            case _:
                event = self.runner.perform(command)
        if isinstance(event, events.Failed):
            self.live_status.post(self._with_error(event))
        if isinstance(event, events.Published):
            self._checkpoint_at = self._clock.monotonic_s()
        return event

    def _with_error(self, event: events.Failed) -> Snapshot:
        """Return the snapshot with a new error; an external system keeps the time since when it is away."""
        now, away = self.live_status.now, None
        if event.code == AwayError.code:
            since_s = self._clock.wall_us() / 1e6 if now.away is None else now.away.since_s
            away = Waiting(table="", place=f"pipeline while={now.state}", reason=event.message, since_s=since_s)
        return replace(now, last_error=event.message, away=away)

    def _between(self, event: events.Event) -> commands.Command:
        """Feed the requests that arrived during the command to the machine, then the command's own event."""
        while (request := self._next_request()) is not None:
            self._state, issued = step(self._state, request)
            for command in issued:
                return command
        return self._decide(event)

    def _decide(self, event: events.Event) -> commands.Command:
        """Feed the event to the state machine and return its next command."""
        before = self._state
        self._state, (command,) = step(self._state, event)
        name = state_name(self._state)
        if name != state_name(before):
            self._observer.noted(StateChanged(state=name, step=self._state.facts.next_step))
            if isinstance(self._state, states.Running) and isinstance(before, _WITHOUT_NEW_STEPS):
                self._watching = emptied(self._watching, self._clock.monotonic_s())
        self._show(name)
        self._note_backfill()
        self._answer_watches()
        self._answer_asks()
        return command

    def _note_backfill(self) -> None:
        """Call the hooks around the backfill step; an error of theirs is noted, and the step runs all the same."""
        backfills = is_backfilling(self._state)
        if backfills == self._backfills:
            return
        self._backfills = backfills
        try:
            if backfills:
                self.backfill_begins(self.runner.runtime, self._state.facts)
            else:
                self.backfill_ends()
        except Exception as error:  # noqa: BLE001 - reads wait for the end of the step then
            self.runner.failed("LeaseViews", error)

    def _next_request(self) -> events.Request | events.News | None:
        """Return news; else the next request of a user, of the checkpoint interval or of autoscale; None without any."""
        if (news := self._next_news()) is not None:
            if not isinstance(news, events.HostsAwaited) and news.code is not None:
                self.live_status.post(replace(self.live_status.now, last_error=news.message))
            return news
        while self._inbox:
            item = self._inbox.popleft()
            if isinstance(item, _Watch):
                self._watches.append(item)
                return self._counted(item.request)
            self._asks.append(item)
        if self._checkpoint_due() and isinstance(self._state, states.Running | states.Paused):
            self._checkpoint_at = self._clock.monotonic_s()
            return events.CheckpointAsked()
        return self._scale() if self._settings.autoscale.enabled and isinstance(self._state, states.Running) else None

    def _next_news(self) -> events.News | None:
        """Return the end of a copy, a round or a wait for hosts that the machine does not know yet; None if there is none."""
        copying = self._state.facts.copying
        if copying is not None and not copying.ended and (news := self.runner.copy_news(copying.version)) is not None:
            return news
        warming = self._state.facts.warming
        if warming is not None and not warming.ended and (ended := self.runner.warm_news(warming.round)) is not None:
            return ended
        hosts = awaited_hosts(self._state.facts) if isinstance(self._state, SETTLED) else ()
        return self._joining.news(self.runner.running, hosts) if hosts else None

    def _scale(self) -> events.Request | None:
        """Return the rescale that `[autoscale]` decides on, after its request is durable in the ledger; else None."""
        section, facts, now = self._settings.autoscale, self._state.facts, self._clock.monotonic_s()
        report, lag = self.live_status.now.last_report, self.live_status.now.lag_rows
        moving = facts.requested.rescale is not None or is_moving(facts)
        before, self._watching = self._watching, looked(self._watching, facts.layout.version, now, moving=moving)
        if self._watching is not before and report is not None:
            self._sampled = report.step  # the last step ran before the change: not a sample of the present layout
        if moving:
            return None
        if report is not None and report.step != self._sampled:
            sample = Sample(at_s=now, latency_ms=report.seconds * 1000, backlog_rows=lag)
            self._watching, self._sampled = seen(self._watching, sample, section), report.step
        if (offer := self._hosts.taken()) is not None:
            return self._scale_on(offer)
        self._release()
        if self._hosts.runs:
            return None
        workers = len(facts.layout.workers)
        wanted, watching = decide(self._watching, workers, now, section)
        if wanted is None or (wanted < workers and not may_do_with(wanted, workers, self.runner.lag_rows(), section)):
            return None
        self._watching = watching
        if self._hosts.exists:
            self._hosts.offer(wanted, facts.layout.version, (host for host, _ in facts.offered))
            return None
        return self._scale_to(wanted, None)

    def _scale_on(self, offer: HostOffer) -> events.Request | None:
        """Return the rescale to the hosts that the command offers; None if it offers none, or the layout has changed since."""
        facts = self._state.facts
        error = offer.error
        if error is None and offer.layout != facts.layout.version:
            error = "the layout has changed since the hosts were asked for"
        if error is not None:
            self._observer.noted(AutoscaleFailed(workers=offer.workers, error=error))
            return None
        self._left = frozenset(host for host, _ in facts.offered)
        return self._scale_to(offer.workers, offer.hosts)

    def _scale_to(self, wanted: int, hosts: Offered | None) -> events.Request | None:
        """Return the request for so many workers, on these hosts or those on offer, but for the unusable ones."""
        facts, strategy, rows = self._state.facts, self._settings.strategy, self.runner.partitions
        offered = facts.offered if hosts is None else hosts
        try:
            left_out = excluded(offered, unusable(self.runner.running, self.runner.silent_hosts, offered))
            self._control.change(
                facts.epoch, lambda ledger: request_rescale(ledger, wanted, strategy, hosts, rows, left_out)
            )
        except DbspError as error:
            self._observer.noted(AutoscaleFailed(workers=wanted, error=str(error)))
            return None
        lag, workers = self.live_status.now.lag_rows, len(facts.layout.workers)
        self._observer.noted(Autoscaled(workers=wanted, workers_before=workers, lag_rows=lag, excluded=list(left_out)))
        return events.RescaleAsked(workers=wanted, strategy=strategy, hosts=hosts, partitions=rows, excluded=left_out)

    def _release(self) -> None:
        """Run `hosts_command … release` with the hosts that autoscale's last rescale no longer uses."""
        facts = self._state.facts
        if (error := self._hosts.failed()) is not None:
            self._observer.noted(AutoscaleFailed(workers=len(facts.layout.workers), error=error))
        if self._hosts.runs:
            return
        gone = self._left.difference(facts.layout.hosts, (host for host, _ in facts.offered))
        if gone:
            self._hosts.release(sorted(gone))
        self._left = frozenset()

    def _counted(self, request: events.Request) -> events.Request:
        """Return the rescale request with the input partitions and their recent rows."""
        if not isinstance(request, events.RescaleAsked):
            return request
        return replace(request, partitions=self.runner.partitions)

    def _checkpoint_due(self) -> bool:
        interval = self._settings.checkpoint_interval_s
        facts = self._state.facts
        if interval is None or facts.requested.checkpoint or facts.copying is not None:
            return False
        if facts.next_step == facts.checkpoint_step:
            return False
        return self._clock.monotonic_s() - self._checkpoint_at >= interval

    def _wait(self, for_input: bool) -> events.Event:
        """Wait until there is a request or a step is due; run the functions of `ask` meanwhile."""
        while True:
            self._wake.clear()
            request = self._next_request()
            if request is not None:
                return request
            self._answer_asks()
            if (progress := self.runner.rescale) is not self.live_status.now.rescale:
                self.live_status.post(replace(self.live_status.now, rescale=progress))
            began = self._clock.monotonic_s()
            try:
                self._check_owner()
                self.runner.silent_hosts.refuse_lost(self._state.facts.layout.hosts)
                self._disks.refuse_lost(self.runner.running, self._state.facts.layout, self._state.facts.next_step)
                if for_input and self.runner.step_is_due():
                    return events.Woken()
            except Exception as error:  # noqa: BLE001 - whatever a log raises is judged by the machine, as of any command
                return self.runner.failed("Wait", error)
            took = self._clock.monotonic_s() - began
            self._clock.wait(self._wake, min(max(REST_BY_LOOK * took, REST_S_MIN), REST_S_MAX))

    def _check_owner(self) -> None:
        """Check now and then for a newer epoch of another coordinator; an idle loop writes nothing that would be refused."""
        now = self._clock.monotonic_s()
        if now - self._owned_at >= OWNER_CHECK_S:
            self._owned_at = now
            self.runner.check_owner()

    def _back_off(self, failures: int, away: bool) -> events.Event:
        """Wait before the next try, longer after every failure in a row; a request ends the wait early.

        A runtime that fails again after a rollback may be unusable (a JVM that died), so it is replaced.
        """
        if failures < 1:
            return events.Woken()
        if failures >= RENEW_AFTER_FAILURES and not away:
            self.runner.renew_runtime()
        pause = min(self._settings.back_off_s * 2 ** (failures - 1), self._settings.back_off_s_max)
        until = self._clock.monotonic_s() + pause
        while not self._inbox and (left := until - self._clock.monotonic_s()) > 0:
            self._wake.clear()
            self._clock.wait(self._wake, left)
        return events.Woken()

    # --- answers ------------------------------------------------------------------------------------------------

    def _answer_asks(self) -> None:
        """Run the functions of `ask` if the runtime is between two steps and not replaying."""
        if not isinstance(self._state, SETTLED) or is_filling(self._state):
            return
        asks, self._asks = self._asks, []
        for ask in asks:
            try:
                ask.answer.set_result(ask.question(self.runner.runtime, self._state.facts))
            except Exception as error:  # noqa: BLE001 - any error is passed to the caller of `ask`
                ask.answer.set_exception(error)

    def _answer_watches(self) -> None:
        watches, self._watches = self._watches, []
        for watch in watches:
            try:
                result = watch.met(self._state)
            except DbspError as error:
                watch.answer.set_exception(error)
                continue
            if result is None:
                self._watches.append(watch)
            else:
                watch.answer.set_result(result)

    def _show(self, name: str) -> None:
        """Post a snapshot of the present facts."""
        facts = self._state.facts
        now = self.live_status.now
        if isinstance(self._state, SETTLED):
            self.runner.new_steps.begin(facts.next_step)
            if not facts.copy_failures:
                now = now.recovered(self._clock.wall_us() / 1e6)
        self.live_status.post(
            replace(
                now.in_layout(facts.layout), state=name, epoch=facts.epoch, step=facts.next_step, version=facts.version,
                checkpoint_step=facts.checkpoint_step, processed=self.runner.done,
                replaying=isinstance(self._state, states.Replaying),
                halt=facts.halt if isinstance(self._state, states.Halted) else None, rescale=self.runner.rescale,
                waiting=waiting_rescale(facts), migration_plan=facts.migration_plan, moved=facts.moved,
            )
        )  # fmt: skip

    def _end(self, finish: commands.Shutdown) -> commands.Shutdown:
        """Close the runtime, post the end, and fail the requests that still wait.

        In an upgrade the processes with the state are closed with the service. The other version need not wait for
        them, because its claim of the epoch fences them.
        """
        self._hosts.close()
        try:
            self.runner.close(keep_runtime=finish.again and self._settings.has_remote_state)
        except Exception as error:  # noqa: BLE001 - the reason of the end stays the first one
            self._observer.noted(CloseFailed(error=f"{type(error).__name__}: {error}"))
        self._observer.noted(ServiceEnded(code=finish.code or "ok", message=finish.message))
        error_text = None if finish.code is None else finish.message
        self.live_status.post(
            replace(self.live_status.now, ended=True, state=state_name(self._state), last_error=error_text)
        )
        self._answer_watches()
        self._refuse_all()
        return finish

    def _refuse_all(self) -> None:
        waiting: list[_Ask | _Watch] = [*self._asks, *self._watches]
        while self._inbox:
            waiting.append(self._inbox.popleft())
        reason = self.live_status.now.last_error or "it was stopped"
        for item in waiting:
            if not item.answer.done():
                item.answer.set_exception(UnavailableError(f"the service has ended: {reason}", "start it again"))
        self._asks, self._watches = [], []


def state_name(state: states.State) -> str:
    """Return the name of the state as users see it."""
    if is_filling(state):
        return "Filling"
    return "Failed" if isinstance(state, states.Broken) else type(state).__name__


def is_backfilling(state: states.State) -> bool:
    """Return True if the workers are open, and the backfill step runs next, for the first time or again."""
    ready = isinstance(state, states.Running | states.Replaying)
    return ready and fills.due(state.facts.fill, state.facts.next_step)


def is_filling(state: states.State) -> bool:
    """Return True if the backfill step of a changed circuit is next: its new views do not exist yet."""
    return isinstance(state, states.Running) and fills.due(state.facts.fill, state.facts.next_step)
