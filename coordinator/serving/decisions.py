"""Decisions of a user about a running pipeline: checkpoint, back up, pause, skip rows, upgrade."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from dbsp.coordinator.answers import Skipped
from dbsp.coordinator.backup.process import Backups
from dbsp.coordinator.build import Built
from dbsp.coordinator.config import Config
from dbsp.coordinator.decisions import events, states
from dbsp.coordinator.running.copies import TopicCopies
from dbsp.coordinator.running.event_loop import SETTLED
from dbsp.coordinator.serving.core import ServiceCore, refuse_halted, refuse_in
from dbsp.coordinator.skipping import Skips
from dbsp.coordinator.upgrades import Departure


class Decisions(ServiceCore):
    """The interface of operators, for all but rescales."""

    copies: TopicCopies

    def __init__(self, config: Config, built: Built | None = None) -> None:
        """Open nothing more."""
        super().__init__(config, built)
        self._backups = Backups(config, self._observers.noted)

    def checkpoint(self, timeout_s: float | None = None) -> int:
        """Make the state of now a version; the number of the one that holds it, when it is published."""
        wanted: list[int] = []

        def met(state: states.State) -> int | None:
            refuse_in(state)
            if not wanted and isinstance(state, (*SETTLED, states.Checkpointing, states.Stopping)):
                wanted.append(state.facts.next_step)
            return state.facts.version if wanted and state.facts.checkpoint_step >= wanted[0] else None

        return cast(int, self._result(lambda: self._loop.submit(events.CheckpointAsked(), met), timeout_s))

    def back_up(self, folder: Path, timeout_s: float | None = None) -> dict[str, Any]:
        """Take a checkpoint, and copy all that is needed to go on from now into a new folder in `folder`, while steps go on.

        What was copied, and how long no step could be taken for it. **Errors** as `Backups.make`; as `checkpoint`.
        """

        def between_steps(action: Callable[[], Any]) -> Any:
            return self._result(lambda: self._loop.ask(lambda _runtime, _facts: action()), timeout_s)

        return self._backups.make(folder, lambda: self.checkpoint(timeout_s), between_steps)

    def pause(self, timeout_s: float | None = None) -> int:
        """Take no further step; the next one."""
        return self._settle(events.PauseAsked(), states.Paused, timeout_s)

    def resume(self, timeout_s: float | None = None) -> int:
        """Take steps again; the next one."""
        return self._settle(events.ResumeAsked(), states.Running, timeout_s)

    def _settle(
        self, request: events.Request, kind: type[states.Paused | states.Running], timeout_s: float | None
    ) -> int:
        def met(state: states.State) -> int | None:
            refuse_in(state)
            return state.facts.next_step if isinstance(state, kind) else None

        return cast(int, self._result(lambda: self._loop.submit(request, met), timeout_s))

    def skip(self, step: int | None = None, timeout_s: float | None = None) -> Skipped:
        """Go on without the rows that halt the pipeline, or at which the copy of a topic stops: they become dead letters.

        Either they fail under the error policy `stop`, or they end the process that runs their step: then they are found first,
        by tries in processes of their own.

        The decision is logged before the step runs again, so a replay takes it too; it returns when the step is done, or rows
        of it fail at a later node. With `step`, one that was logged before is answered again.

        **Errors** `ConfigError` if there is nothing to decide about.
        """
        if step is None and self.snapshot.halt is None and self.copies.refused:
            rows = self.copies.skip_refused(timeout_s)
            return Skipped(step=self.snapshot.step, rows=len(rows), before=False, dropped=rows)
        return Skips(self._loop, self.built.parts, self._result).skip(step, timeout_s)

    def accept_output(self, step: int | None = None, timeout_s: float | None = None) -> Skipped:
        """Go on although a step that ran again gives another output: it counts from now on, and the difference is put out.

        The decision is logged before the step runs again. **Errors** `ConfigError` if there is nothing to decide about.
        """
        return Skips(self._loop, self.built.parts, self._result).accept_output(step, timeout_s)

    def upgrade(self, timeout_s: float | None = None) -> Departure:
        """Go on as the version of dbsp that is installed now: returns when all is stopped at a checkpoint with no later step.

        Before that the installed version has shown that it can start here. Whoever started the service starts the other one then.
        **Errors** `ConfigError` unless `dbsp-coordinator` started it; `EngineError` if the other one cannot start, or is none;
        `UnavailableError` if it was given up. Steps go on after each of them.
        """
        refuse_halted(self.snapshot.halt)

        def submit(request: events.Request, met: Callable[[states.State], Any]) -> None:
            self._result(lambda: self._loop.submit(request, met), timeout_s)

        return self.upgrades.leave(lambda: self.snapshot, lambda: self.checkpoint(timeout_s), submit)
