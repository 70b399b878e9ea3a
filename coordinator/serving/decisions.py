"""Decisions of a user about a running pipeline: checkpoint, back up, pause, skip rows, upgrade."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from dbsp.coordinator.backup.process import Backups
from dbsp.coordinator.build import Built
from dbsp.coordinator.decisions import events, states
from dbsp.coordinator.running.copies import TopicCopies
from dbsp.coordinator.running.event_loop import SETTLED
from dbsp.coordinator.serving.answers import Skipped
from dbsp.coordinator.serving.core import ServiceCore, refuse_halted, refuse_in
from dbsp.coordinator.serving.skipping import Skips
from dbsp.coordinator.settings.config import Config
from dbsp.coordinator.takeover.proof_copies import ProofCopies, copied_for_proof
from dbsp.coordinator.takeover.upgrades import Departure


class Decisions(ServiceCore):
    """The methods for operators of a pipeline, except rescales."""

    copies: TopicCopies

    def __init__(self, config: Config, built: Built | None = None) -> None:
        """Create the interface; the base class opens the logs."""
        super().__init__(config, built)
        self._backups = Backups(config, self._observers.noted)

    def checkpoint(self, timeout_s: float | None = None) -> int:
        """Take a checkpoint, and return its version when it is published."""
        wanted: list[int] = []

        def met(state: states.State) -> int | None:
            refuse_in(state)
            if not wanted and isinstance(state, (*SETTLED, states.Checkpointing, states.Stopping)):
                wanted.append(state.facts.next_step)
            return state.facts.version if wanted and state.facts.checkpoint_step >= wanted[0] else None

        return cast(int, self._result(lambda: self._loop.submit(events.CheckpointAsked(), met), timeout_s))

    def back_up(self, folder: Path, timeout_s: float | None = None) -> dict[str, Any]:
        """Take a checkpoint and copy the whole pipeline into a new folder in `folder`, while steps go on.

        Returns a description of the copy, and how long no step could be taken for it. **Errors** as `Backups.make` and
        `checkpoint`.
        """

        def between_steps(action: Callable[[], Any]) -> Any:
            return self._result(lambda: self._loop.ask(lambda _runtime, _facts: action()), timeout_s)

        return self._backups.make(folder, lambda: self.checkpoint(timeout_s), between_steps)

    def keep_version(self, timeout_s: float | None = None) -> dict[str, Any]:
        """Take a checkpoint, and keep it among the copies until a command deletes it; return its version and step.

        **Errors** `UnavailableError` without copies.
        """
        published = self.built.parts.published
        published.refuse_none()
        self.checkpoint(timeout_s)
        name, body = published.keep()
        return {"version": name.version, "step": body["step"], "place": published.where}

    def pause(self, timeout_s: float | None = None) -> int:
        """Pause the pipeline: run no further step; return the number of the next step."""
        return self._settle(events.PauseAsked(), states.Paused, timeout_s)

    def resume(self, timeout_s: float | None = None) -> int:
        """Resume a paused pipeline; return the number of the next step."""
        return self._settle(events.ResumeAsked(), states.Running, timeout_s)

    def _settle(
        self, request: events.Request, kind: type[states.Paused | states.Running], timeout_s: float | None
    ) -> int:
        def met(state: states.State) -> int | None:
            refuse_in(state)
            return state.facts.next_step if isinstance(state, kind) else None

        return cast(int, self._result(lambda: self._loop.submit(request, met), timeout_s))

    def skip(self, step: int | None = None, timeout_s: float | None = None) -> Skipped:
        """Go on without the rows that halt the pipeline, or that stop the copy of a topic: they become dead letters.

        The rows either fail under the error policy `stop`, or kill the process that runs their step. In the second case
        trials in processes of their own find them first.

        The decision is logged before the step runs again, so that a replay follows it too. The call returns when the
        step is done, or rows of the step fail at a later node. For a `step` with an earlier decision, it returns that
        decision again.

        **Errors** `ConfigError` if there is nothing to decide about.
        """
        if step is None and self.snapshot.halt is None and self.copies.refused:
            rows = self.copies.skip_refused(timeout_s)
            return Skipped(step=self.snapshot.step, rows=len(rows), before=False, dropped=rows)
        return Skips(self._loop, self.built.parts, self._result).skip(step, timeout_s)

    def accept_output(self, step: int | None = None, timeout_s: float | None = None) -> Skipped:
        """Accept that a replayed step gives another output, which counts from now on; the difference is written.

        The decision is logged before the step runs again. **Errors** `ConfigError` if there is nothing to decide about.
        """
        return Skips(self._loop, self.built.parts, self._result).accept_output(step, timeout_s)

    def upgrade(
        self, timeout_s: float | None = None, python: str | None = None, *, accepts_pause: bool = False
    ) -> Departure:
        """Hand the pipeline over to another version of dbsp; return when all is stopped at a checkpoint.

        The other version is the installed one or, with `python`, the one of another environment. In the second case a
        process of the other version is ready before the stop. If a cluster has no room for its Spark application, and
        the caller `accepts_pause`, that version starts after the stop.

        No step is logged above the checkpoint. Before that the other version has proved that it can start here. The
        program that started the service starts the other version afterwards.
        Steps go on after each of these errors.
        **Errors** `ConfigError` unless `dbsp-coordinator` started it. `EngineError` if the other version cannot start, or
        there is none. `NoRoomError` with the expected pause. `UnavailableError` if the upgrade was abandoned.
        """
        refuse_halted(self.snapshot.halt)

        def submit(request: events.Request, met: Callable[[states.State], Any]) -> None:
            self._result(lambda: self._loop.submit(request, met), timeout_s)

        @contextmanager
        def copied() -> Iterator[ProofCopies]:
            runtime, facts = self._result(lambda: self._loop.ask(lambda runtime, facts: (runtime, facts)), timeout_s)
            with copied_for_proof(self.config, runtime, facts) as found:
                yield found

        return self.upgrades.leave(
            lambda: self.snapshot, lambda: self.checkpoint(timeout_s), submit, python, accepts_pause=accepts_pause,
            copied=copied,
        )  # fmt: skip
