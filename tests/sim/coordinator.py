"""One incarnation of the coordinator in the simulator: the machine, and the command runner that is the product's own."""

from __future__ import annotations

from dataclasses import dataclass

from dbsp.coordinator.decisions import commands, events, states
from dbsp.coordinator.decisions.machine import step
from dbsp.coordinator.running.command_runner import CommandRunner
from dbsp.errors import AwayError
from tests.coordinator import fakes
from tests.sim.coverage import Coverage


@dataclass
class Coordinator:
    """One incarnation: the machine's state, the command runner, the command it is about to carry out."""

    runner: CommandRunner
    state: states.State
    coverage: Coverage
    command: commands.Command | None = None
    finished: commands.Shutdown | None = None
    copies_failed: int = 0

    def decide(self, event: events.Event) -> None:
        """One turn of the machine."""
        before = self.state
        self.state, issued = step(self.state, event)
        self.coverage.note(before, event, self.state)
        self._count_copies(before, event)
        for command in issued:
            self.command = command
            if isinstance(command, commands.Shutdown):
                self.finished = command

    def _count_copies(self, before: states.State, event: events.Event) -> None:
        """Copies that fail, one after the other, end it in the end; whatever steps are done meanwhile."""
        if isinstance(event, events.Published):
            self.copies_failed = 0
        told = event if isinstance(event, events.CopyEnded) else before.facts.copying
        if told is not None and told.code == AwayError.code:
            return  # it is waited for
        rolled_back = isinstance(self.state, states.Recovering) and not isinstance(event, events.Failed)
        if told is not None and told.code is not None and rolled_back:
            self.copies_failed += 1
        fakes.must(self.copies_failed <= self.state.facts.failures_max, "e: copies fail for ever, and nobody is told")

    @property
    def recovers(self) -> bool:
        """Whether it does not take new steps yet."""
        return isinstance(self.state, states.Starting | states.Recovering | states.Replaying | states.Rescaling)
