"""Decisions to continue without rows that halt the pipeline, or for which an input waits.

Such rows fail under the error policy `stop`, end the process (`attempts`), or are not explained by the settings
(`failing`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dbsp.coordinator.checks.trials import ProcessTrials, decision
from dbsp.coordinator.decisions import events, states
from dbsp.coordinator.running.attempts import Trial
from dbsp.coordinator.running.command_runner import Parts
from dbsp.coordinator.running.event_loop import EventLoop
from dbsp.coordinator.serving.answers import Skipped
from dbsp.errors import ConfigError, UnavailableError
from dbsp.io.pushed import Position
from dbsp.logs.step_commands import ACCEPT_OUTPUT, DroppedRow

Result = Callable[[Callable[[], Any], float | None], Any]
"""A function that runs an action on the event loop's thread and waits for its result, at most so many seconds."""


class Skips:
    """The decisions about failing rows of one service."""

    def __init__(self, loop: EventLoop, parts: Parts, result: Result) -> None:
        """Keep the event loop, the parts, and `result`, which waits for the result of a call to the event loop."""
        self._loop, self._parts, self._result = loop, parts, result

    def skip(self, step: int | None, timeout_s: float | None) -> Skipped:
        """Continue without the rows that halt the pipeline; see `Service.skip`."""
        halt = self._loop.live_status.now.halt
        if halt is None and step is None and self._loop.runner.failing.refused:
            return self._without_refused(timeout_s)
        if halt is None or (step is not None and step != halt.step):
            return self._skipped_before(step)
        if halt.command == ACCEPT_OUTPUT:
            raise ConfigError(
                f"no row is at fault: step={halt.step} {halt.message}",
                "decide about its output: `coordinator accept-output`",
            )
        dropped = self._killing_rows(halt, timeout_s) if halt.death else ()
        self._decide(halt, decision(dropped, halt.death) if dropped else None, timeout_s)
        return Skipped(step=halt.step, rows=len(dropped) or halt.count, before=False, dropped=dropped)

    def accept_output(self, step: int | None, timeout_s: float | None) -> Skipped:
        """Let the output that a step gives now count; see `Service.accept_output`."""
        halt = self._loop.live_status.now.halt
        if halt is None or halt.command != ACCEPT_OUTPUT or (step is not None and step != halt.step):
            return self._skipped_before(step)
        self._decide(halt, None, timeout_s)
        return Skipped(step=halt.step, rows=0, before=False)

    def _decide(self, halt: states.Halt, command: str | None, timeout_s: float | None) -> None:
        """Log the decision, and wait until the step is done, or halts for another reason."""
        request = events.SkipAsked(step=halt.step, command=command)

        def met(state: states.State) -> bool | None:
            if state.facts.next_step > halt.step:
                return True
            if isinstance(state, states.Halted) and state.awaits == "decision":
                now = state.facts.halt
                if now is None or replace(now, command=halt.command) != halt:
                    return True
                raise UnavailableError(f"the decision was not logged: step={halt.step}", "ask again")
            return None

        self._result(lambda: self._loop.submit(request, met), timeout_s)

    def _without_refused(self, timeout_s: float | None) -> Skipped:
        """Let the inputs that wait for a decision go on without the rows that no setting explains."""
        runner, live_status = self._loop.runner, self._loop.live_status

        def question(_runtime: Any, facts: states.Facts) -> tuple[DroppedRow, ...]:
            if facts.requested.pause:
                raise UnavailableError(
                    "the pipeline is paused, and no step takes the rows", "`coordinator resume` first"
                )
            return runner.failing.drop_refused()

        rows: tuple[DroppedRow, ...] = self._result(lambda: self._loop.ask(question), timeout_s)
        places = [
            Position(table=row.table, partition=row.partition, first=row.offset, last=row.offset + 1) for row in rows
        ]
        live_status.wait_for(lambda now: all(map(now.has_processed, places)) or now.halt is not None, timeout_s)
        if not rows or not all(map(live_status.now.has_processed, places)):
            raise UnavailableError(
                "no step has taken the rows yet: the next that does drops them", "`coordinator status`"
            )
        step = max(runner.index.step_of(row.table, row.partition, row.offset) or 0 for row in rows)
        return Skipped(step=step, rows=len(rows), before=False, dropped=rows)

    def _killing_rows(self, halt: states.Halt, timeout_s: float | None) -> tuple[DroppedRow, ...]:
        """Find the rows that end the process of the step, in processes of its kind; the event loop's thread waits meanwhile."""
        trials = self._parts.trials
        if not isinstance(trials, ProcessTrials):
            raise UnavailableError(f"steps cannot be tried here: step={halt.step}", "fix what crashes, start again")

        def question(_runtime: Any, facts: states.Facts) -> Trial:
            record = next(iter(self._parts.steps.read(halt.step)))
            return Trial(record=record, epoch=facts.epoch, layout=facts.layout)

        trial = self._result(lambda: self._loop.ask(question), timeout_s)
        found = trials.killing_rows(trial, halt.death)
        if not found:
            raise UnavailableError(
                f"the step does not crash its process any more: step={halt.step}",
                "start the service again: it tries the step once more, and goes on if it lives",
            )
        return found

    def _skipped_before(self, step: int | None) -> Skipped:
        now = self._loop.live_status.now
        if now.ended:
            raise UnavailableError(f"the service has ended: {now.last_error or 'it was stopped'}", "start it again")
        if step is not None and self._loop.runner.index.has_decision(step):
            return Skipped(step=step, rows=0, before=True)
        wanted = "" if step is None else f" step={step}"
        story = f"step {now.halt.step} is the one that waits" if now.halt else f"state={now.state}"
        raise ConfigError(
            f"there is nothing to skip:{wanted} {story}", "`coordinator status` names the rows when there is"
        )
