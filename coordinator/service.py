"""A pipeline as an object: start it, push rows, read views, checkpoint, rescale, stop. The HTTP interface is a thin layer.

All methods may be called from any thread; the event loop's thread does the work that needs the runtime. A push returns
the position of its rows when they are durable. `wait_until_processed(position)` returns when their results are durable.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from dbsp.coordinator.build import Built
from dbsp.coordinator.checks.determinism import FirstSteps
from dbsp.coordinator.checks.trials import ProcessTrials
from dbsp.coordinator.decisions import commands, events, states
from dbsp.coordinator.exits import error_of, say
from dbsp.coordinator.layouts import RescalePlan
from dbsp.coordinator.running.notices import BugFound, LedgerFound, Observer, ServiceCrashed
from dbsp.coordinator.running.status_json import as_json, at, health_as_json, snapshot_as_json
from dbsp.coordinator.running.watch import is_ready
from dbsp.coordinator.serving.answers import Completion, Skipped, ViewRows
from dbsp.coordinator.serving.decisions import Decisions
from dbsp.coordinator.serving.queries import QueryReads
from dbsp.coordinator.serving.rescales import Rescales
from dbsp.coordinator.serving.rows_in import Rows
from dbsp.coordinator.settings.config import Config
from dbsp.coordinator.worker_resources import close_resources
from dbsp.errors import DbspError, UnavailableError
from dbsp.version import VERSION


class Service(QueryReads, Decisions, Rescales):
    """A running pipeline with all interfaces.

    **Errors** methods raise `UnavailableError` when the service has ended, with the reason; `start` and `stop` raise
    the error that ended it.
    """

    def __init__(self, config: Config, built: Built | None = None) -> None:
        """Open the logs and the ledger; start no thread before `start`."""
        super().__init__(config, built)
        if self.built.is_ledger_found:
            self._log.noted(LedgerFound(run=self.built.facts.run, epoch=self.built.facts.epoch))
        self._finish: commands.Shutdown | None = None
        self._closed = False
        self.postgres_status: Callable[[], Mapping[str, Any]] | None = None
        self.flight_status: Callable[[], Mapping[str, Any]] | None = None
        self.first_steps = FirstSteps(config, self.built.plan, self.built.parts.steps, self._observers.noted)

    def __enter__(self) -> Self:
        """Start the service; close it if the start fails."""
        try:
            self.start()
        except BaseException:
            self.stop(now=True, quiet=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the service; without a last checkpoint if the body raised an error."""
        if kind is None:
            self.stop()
        else:
            self.stop(now=True, quiet=True)

    def tell(self, observer: Observer) -> None:
        """Add an observer, which is called on the event loop's thread; call this before `start`."""
        self._observers.add(observer)

    def start(self, *, wait: bool = True, timeout_s: float | None = None) -> None:
        """Start the event loop's thread; with `wait`, return when the service takes steps (recovery and replay are over)."""
        if self._thread is None:
            self.delta.start()
            self.copies.start()
            self._thread = threading.Thread(target=self._run, name="dbsp-event-loop", daemon=True)
            self._thread.start()
            self.watch.start()
        if not wait:
            return
        ready = self.live_status.wait_for(lambda now: now.settled, timeout_s)
        if not ready:
            self._raise_if_broken()
            if not self.live_status.now.ended:
                raise UnavailableError(f"the service did not start in time: timeout_s={timeout_s}")

    def _run(self) -> None:
        try:
            self._finish = self._loop.run()
        except BaseException as error:
            self._finish = commands.Shutdown(code="internal", message=f"{type(error).__name__}: {error}")
            self._log.noted(ServiceCrashed(error=self._finish.message))
            self._loop.give_up(self._finish.message)
            raise
        finally:
            self._backups.close()

    def stop(self, *, now: bool = False, quiet: bool = False, timeout_s: float | None = None) -> None:
        """End the service after a last checkpoint (`now`: without); raise the error that ended it, unless `quiet`."""
        if self._thread is not None:
            if not self.live_status.now.ended:
                self._loop.submit(events.StopAsked(now=now), lambda state: True if _is_end(state) else None)
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                raise UnavailableError(f"the service did not stop in time: timeout_s={timeout_s}")
        self.close()
        if not quiet:
            self._raise_if_broken()

    def ask_to_stop(self, *, now: bool = False) -> None:
        """Request a stop without waiting for it; may be called from a signal handler."""
        self._loop.submit(events.StopAsked(now=now), lambda state: True if _is_end(state) else None)

    def wait_for_end(self, timeout_s: float | None = None) -> commands.Shutdown | None:
        """Wait for the service to end; return the reason, or None if it still runs."""
        if self._thread is not None:
            self._thread.join(timeout_s)
            if not self._thread.is_alive():
                return self._finish
        return None

    def close(self) -> None:
        """Close logs and ledger, after the event loop has ended, and a runtime that was kept."""
        self.close_pipeline()
        try:
            self._loop.runner.close()
        except Exception as error:  # noqa: BLE001 - the log is closed, and the processes end with this one
            say(f"the runtime could not be closed: {type(error).__name__}: {error}")

    def close_pipeline(self) -> None:
        """Close logs and ledger, after the event loop has ended; processes of Spark may still run."""
        if self._closed:
            return
        self._closed = True
        ended_well = self._finish is not None and self._finish.code is None and not self._finish.again
        self.watch.close()
        self.copies.close()
        self.delta.close(last_round=ended_well)
        self.pages.close()
        self.leases.close()
        self._backups.close()
        self._queries.close()
        self._feed.close()
        if self.traces is not None:
            self.traces.close()
        if isinstance(self.built.parts.trials, ProcessTrials):
            self.built.parts.trials.close()
        parts = self.built.parts
        for part in (parts.inputs, parts.steps, self.built.letters.log, parts.control, parts.marker, self._log):
            part.close()
        close_resources(self.config.data_dir)

    def _raise_if_broken(self) -> None:
        if self._finish is not None and self._finish.code is not None:
            raise error_of(self._finish.code, self._finish.message, self._finish.hint)

    def note_bug(self, where: str, error: BaseException) -> None:
        """Write the traceback of an unexpected error into the event log."""
        self._log.noted(BugFound(where=where, error="".join(traceback.format_exception(error))))

    def explain(self) -> str:
        """Return the plan, with the measurements of every node since this process started."""
        return self.metrics.explained(self.built.plan)

    def dataflow(self) -> dict[str, Any]:
        """Return the plan as a graph of JSON values, with the measurements of `explain`, and the kinds of the connectors."""
        kinds = {"input": self.config.input.kind, "output": self.config.output.kind}
        return {**self.metrics.dataflow(self.built.plan), "connectors": kinds}

    def readiness(self) -> tuple[bool, dict[str, Any]]:
        """Return whether the service takes steps, and its alarms, including those that do not affect readiness."""
        now, health = self.snapshot, self.watch.health
        ready = is_ready(now, health)
        health_json = health_as_json(health, sorted(self._tables), now.processed)
        return ready, {"ready": ready, "state": now.state, "alarms": health_json["alarms"]}

    def copies_lag(self) -> dict[str, Any] | None:
        """Return as JSON values how far the copies of checkpoints are behind; None where they do not lag."""
        return self._loop.runner.behind.status()

    @property
    def standbys(self) -> dict[str, Any]:
        """Return the standbys of workers on other hosts, as they are in the status."""
        return self._loop.runner.standbys.status

    def rollback_until(self) -> str | None:
        """Return until when the version of dbsp before can continue from what is stored; None if it cannot."""
        ends_us = self._loop.runner.checkpoints.rollback_until_us
        return None if ends_us is None else at(ends_us / 1e6)

    def status(self) -> dict[str, Any]:
        """Return the status of the service as JSON values."""
        now, layout = self.snapshot, self.layout()
        return {
            "name": self.config.pipeline.name, "run": self.built.facts.run, **snapshot_as_json(now),
            "workers": len(layout.workers), "layout_version": layout.version,
            "lag_rows": self.lag_rows() if now.knows_positions else None,
            "tables": sorted(self._tables), "views": sorted(self.views()), "engine": VERSION,
            "upgrade": self.upgrades.status(), "rollback_until": self.rollback_until(),
            "fingerprint": self.built.plan.fingerprint,
            "rescale": as_json(self._loop.runner.rescale), "backup": as_json(self._backups.progress),
            "last_backup": self._backups.last, "delta": self.delta.status, "copies": self.copies.status,
            "checkpoint_copies": self.copies_lag(),
            "standbys": self.standbys,
            "postgres": None if self.postgres_status is None else dict(self.postgres_status()),
            "flight": None if self.flight_status is None else dict(self.flight_status()),
            "not_deterministic": list(self.first_steps.found),
            **health_as_json(self.watch.health, sorted(self._tables), now.processed if now.knows_positions else None),
            "waterlines": self.built.parts.waterlines.status, "last_dead_letters": self.newest_letters(),
        }  # fmt: skip


def _is_end(state: states.State) -> bool:
    return isinstance(state, states.Stopped | states.Broken)


__all__ = ["Completion", "DbspError", "RescalePlan", "Rows", "Service", "Skipped", "ViewRows"]
