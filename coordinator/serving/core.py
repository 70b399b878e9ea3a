"""The parts of a service that all its interfaces share: settings, event loop, live status, waiting for a result."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from dbsp.algebra.table import Table
from dbsp.coordinator.build import Built, build
from dbsp.coordinator.decisions import states
from dbsp.coordinator.layouts import StateRates
from dbsp.coordinator.running.event_loop import EventLoop
from dbsp.coordinator.running.events_log import EventsLog
from dbsp.coordinator.running.history import History
from dbsp.coordinator.running.metrics import Metrics
from dbsp.coordinator.running.observers import Observers
from dbsp.coordinator.running.status import LiveStatus, Snapshot
from dbsp.coordinator.running.traces import Traces
from dbsp.coordinator.settings.config import Config
from dbsp.coordinator.takeover.upgrades import Upgrades
from dbsp.errors import ConfigError, UnavailableError
from dbsp.logs.step_commands import ACCEPT_OUTPUT
from dbsp.settings import similar


class ServiceCore:
    """A pipeline with its event loop, the base class of all interfaces."""

    def __init__(self, config: Config, built: Built | None = None) -> None:
        """Open logs and ledger; nothing runs before the service starts."""
        self.config = config
        self.built = built or build(config)
        views = {view.name: view.node for view in self.built.plan.views}
        self.history = History(self.built.parts.clock)
        self.metrics = Metrics(views, self.built.parts.clock, self.history.arrived)
        self._log = EventsLog(config.log_file, self.built.parts.clock, config.log)
        self._rates = StateRates(self.built.parts.clock.monotonic_s)
        self._observers = Observers(self.metrics, self.history, self._log, self._rates)
        self.traces: Traces | None = None
        if config.traces.endpoint:
            self.traces = Traces(config.traces, config.pipeline.name, self.built.parts.clock, self._observers.noted)
            self._observers.add(self.traces)
        self.upgrades = Upgrades(config, self.built.parts.clock, self._observers.noted)
        self._observers.add(self.upgrades)
        facts = self.upgrades.arriving(self.built.facts)
        self._loop = EventLoop(self.built.parts, self.built.settings, facts, self._observers)
        self._tables = {table.name: table for table in self.built.plan.tables}
        self._thread: threading.Thread | None = None

    @property
    def live_status(self) -> LiveStatus:
        """Return the live status, which has the newest snapshot and can be waited on."""
        return self._loop.live_status

    @property
    def snapshot(self) -> Snapshot:
        """Return the service as of the last event."""
        return self._loop.live_status.now

    def table(self, name: str) -> Table:
        """Return a table of the circuit; raise `ConfigError`, with the names of all tables, if there is none."""
        if name not in self._tables and any(view.name == name for view in self.built.plan.views):
            raise ConfigError(
                f"this is a view, which takes no rows: view={name} tables={sorted(self._tables)}",
                "push to the tables that it is made of, and it changes",
            )
        if name not in self._tables:
            raise ConfigError(f"no such table: table={name} tables={sorted(self._tables)}", similar(name, self._tables))
        return self._tables[name]

    def _result(self, hand_in: Callable[[], Any], timeout_s: float | None) -> Any:
        if self._thread is None:
            raise UnavailableError("the service was not started", "call start() first")
        future = hand_in()
        try:
            return future.result(timeout_s)
        except FutureTimeoutError:
            raise UnavailableError(
                f"no answer in time: timeout_s={timeout_s}", "try again, or look at the status"
            ) from None

    def _refuse_ended(self) -> None:
        if self.live_status.now.ended:
            reason = self.live_status.now.last_error or "it was stopped"
            raise UnavailableError(f"the service has ended: {reason}", "start it again")


def refuse_halted(halt: states.Halt | None) -> None:
    """Raise `UnavailableError` if a step waits for a decision."""
    if halt is not None:
        what = "the next step ends its process" if halt.death else "rows of the next step fail"
        hint = "`coordinator status` names them, `coordinator skip` goes on without them"
        if halt.command == ACCEPT_OUTPUT:
            what, hint = "the next step gives another output", "`coordinator accept-output` goes on with it"
        raise UnavailableError(f"{what}: step={halt.step} {halt.message}", hint)


def refuse_in(state: states.State) -> None:
    """Raise `UnavailableError` if the state waits for a decision about failed rows."""
    if isinstance(state, states.Halted) and state.awaits == "decision":
        refuse_halted(state.facts.halt)
