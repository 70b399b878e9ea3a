"""A pipeline as an object: start it, push rows, read views, checkpoint, rescale, stop. The HTTP interface is a thin coat on it.

All methods may be called from any thread; what touches the runtime is handed to the event loop's thread. A push returns when the
rows are durable, with their position; `wait_until_processed(position)` returns when their results are.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import pyarrow as pa

from dbsp.algebra.table import Table
from dbsp.coordinator.admission import refuse_overload
from dbsp.coordinator.answers import Completion, Skipped, ViewChanges, ViewRows
from dbsp.coordinator.backup.process import Backups
from dbsp.coordinator.build import Built, build, shows_clock
from dbsp.coordinator.config import Config
from dbsp.coordinator.decisions import commands, events, states
from dbsp.coordinator.decisions.cutting import unread
from dbsp.coordinator.decisions.rescaling import is_moving
from dbsp.coordinator.determinism import FirstSteps
from dbsp.coordinator.exits import error_of
from dbsp.coordinator.layouts import RescalePlan, StateRates, layout_as_json, plan_rescale
from dbsp.coordinator.query.process import Queries
from dbsp.coordinator.query.statement import QueryLimits, not_readable
from dbsp.coordinator.rows_in import Rows, as_push, refuse_bad, writer_of
from dbsp.coordinator.running import control as ledgers
from dbsp.coordinator.running.copies import TopicCopies
from dbsp.coordinator.running.delta_tables import DeltaTables
from dbsp.coordinator.running.event_loop import SETTLED, EventLoop
from dbsp.coordinator.running.events_log import EventsLog
from dbsp.coordinator.running.feed import Feed
from dbsp.coordinator.running.metrics import Metrics
from dbsp.coordinator.running.notices import BugFound, Observer, ServiceCrashed
from dbsp.coordinator.running.observers import Observers
from dbsp.coordinator.running.status import LiveStatus, Snapshot
from dbsp.coordinator.running.status_json import as_json, health_as_json, snapshot_as_json
from dbsp.coordinator.running.watch import Watch, is_ready, unread_rows
from dbsp.coordinator.site import close_site
from dbsp.coordinator.skipping import Skips
from dbsp.coordinator.strategies import COLD, STRATEGIES
from dbsp.coordinator.trials import ProcessTrials
from dbsp.coordinator.upgrades import Departure, Upgrades
from dbsp.errors import ConfigError, DbspError, UnavailableError
from dbsp.io import Incoming, InputWriter, Position, Producer
from dbsp.layout import Layout
from dbsp.runtime.runtime import MoveReport
from dbsp.skips import ACCEPT_OUTPUT
from dbsp.version import VERSION

KEPT_VIEW_BYTES_MAX = 16 << 20


class Service:
    """One running pipeline.

    **Errors** methods raise `UnavailableError` when the service has ended, with the reason; `start` and `stop` raise the error
    that ended it.
    """

    def __init__(self, config: Config, built: Built | None = None) -> None:
        """Open logs and ledger; nothing runs before `start`."""
        self.config = config
        self.built = built or build(config)
        self.metrics = Metrics()
        path = config.folder / config.log.path if config.log.path else config.data_dir / "coordinator.log"
        self._log = EventsLog(path, self.built.parts.clock, config.log)
        self._rates = StateRates(self.built.parts.clock.monotonic_s)
        self._observers = Observers(self.metrics, self._log, self._rates)
        self.upgrades = Upgrades(config, self.built.parts.clock, self._observers.noted)
        self._observers.add(self.upgrades)
        facts = self.upgrades.arriving(self.built.facts)
        self._loop = EventLoop(self.built.parts, self.built.settings, facts, self._observers)
        self._tables = {table.name: table for table in self.built.plan.tables}
        self._thread: threading.Thread | None = None
        self._finish: commands.Shutdown | None = None
        self._closed = False
        self._kept_views: dict[str, ViewRows] = {}
        self._feed = Feed(config, self.built.plan)
        self._queries = Queries(at_once_max=config.query.at_once_max)
        self.first_steps = FirstSteps(config, self.built.plan, self.built.parts.steps, self._observers.noted)
        self._backups = Backups(config, self._observers.noted)
        self.copies = TopicCopies(config, self.built.plan, self.built.parts, self, self._observers.noted)
        self.delta = DeltaTables(config, self.built.plan, self, self._feed, self._observers.noted)
        self.watch = Watch(
            self.live_status, self._loop.runner, self.built.parts.clock, self.built.parts.inputs, self._observers.noted,
            own_input=self.built.own_input, others=self.copies.waits, shows_clock=shows_clock(self.built.plan),
        )  # fmt: skip

    def __enter__(self) -> Self:
        """Start; a service that does not is closed before the error goes on."""
        try:
            self.start()
        except BaseException:
            self.stop(now=True, quiet=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, without a last checkpoint if an error is on its way out."""
        if kind is None:
            self.stop()
        else:
            self.stop(now=True, quiet=True)

    # --- life ---------------------------------------------------------------------------------------------------

    def tell(self, observer: Observer) -> None:
        """Tell one more what happens, on the event loop's thread; before `start`."""
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
        """Checkpoint and end (`now`: without a checkpoint); raises the error that ended the service, unless `quiet`."""
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
        """As `stop`, without waiting; may be called from a signal handler."""
        self._loop.submit(events.StopAsked(now=now), lambda state: True if _is_end(state) else None)

    def wait_for_end(self, timeout_s: float | None = None) -> commands.Shutdown | None:
        """Wait for the service to end; why it did, or None if it has not yet."""
        if self._thread is not None:
            self._thread.join(timeout_s)
            if not self._thread.is_alive():
                return self._finish
        return None

    def close(self) -> None:
        """Close logs and ledger; the event loop has ended."""
        if self._closed:
            return
        self._closed = True
        ended_well = self._finish is not None and self._finish.code is None and not self._finish.again
        self.watch.close()
        self.copies.close()
        self.delta.close(last_round=ended_well)
        self._backups.close()
        self._queries.close()
        self._feed.close()
        if isinstance(self.built.parts.trials, ProcessTrials):
            self.built.parts.trials.close()
        parts = self.built.parts
        for part in (parts.inputs, parts.steps, parts.control, parts.marker, self._log):
            part.close()
        close_site(self.config.data_dir)

    def _raise_if_broken(self) -> None:
        if self._finish is not None and self._finish.code is not None:
            raise error_of(self._finish.code, self._finish.message, self._finish.hint)

    @property
    def live_status(self) -> LiveStatus:
        """The newest snapshot, and waiting on it."""
        return self._loop.live_status

    @property
    def snapshot(self) -> Snapshot:
        """The service as of the last event."""
        return self._loop.live_status.now

    # --- rows in ------------------------------------------------------------------------------------------------

    def table(self, name: str) -> Table:
        """A table of the circuit; `ConfigError` lists them."""
        if name not in self._tables:
            raise ConfigError(f"no such table: table={name} tables={sorted(self._tables)}")
        return self._tables[name]

    def push(
        self, table: str, rows: Rows, *, delete: bool = False, partition: int = 0, producer: Producer | None = None
    ) -> Position:
        """Append rows to a table's input; durable on return, at the position given back."""
        push = as_push(self.table(table), rows, delete=delete)
        return self.push_many([Incoming(table=table, push=push, producer=producer, partition=partition)])[0]

    def push_together(
        self, rows: Mapping[str, Rows], *, partition: int = 0, producer: Producer | None = None
    ) -> list[Position]:
        """Append rows of several tables in one transaction, all or none; one step takes all of them, however many.

        With a producer its number counts for each of the tables.
        """
        pushes = {name: as_push(self.table(name), each) for name, each in rows.items()}
        for name, push in pushes.items():
            refuse_bad(self.table(name), push)
        incoming = [
            Incoming(table=name, push=push, producer=producer, partition=partition) for name, push in pushes.items()
        ]
        return self.push_many(incoming, together=True)

    def push_many(self, incoming: Sequence[Incoming], *, together: bool = False) -> list[Position]:
        """Append many pushes in one synced transaction; `OverloadedError` while too much waits to be processed.

        `together`: one step takes all of them.
        """
        writer = self._writer()
        inputs = self.built.parts.inputs
        done = {**inputs.floors(), **self.snapshot.processed}
        refuse_overload(unread(inputs.ends(), done), inputs.sizes, self.config.input)
        positions = writer.append_many(incoming, together=together)
        self._loop.wake()
        return positions

    def last_sequence(self, table: str, producer: str) -> int | None:
        """The newest sequence number that a producer's pushes to a table have reached: where it goes on after a crash."""
        return self._writer().last_sequence(table, producer)

    def _writer(self) -> InputWriter:
        return writer_of(self.built.parts.inputs, self.config.input)

    def wait_until_processed(self, position: Position, timeout_s: float | None = None) -> None:
        """Return when the results of these rows are durable in the outputs and seen in the views."""
        self.live_status.wait_for(lambda now: now.has_processed(position) or now.halt is not None, timeout_s)
        self.refuse_unprocessed(position, timeout_s)

    def refuse_unprocessed(self, position: Position, waited_s: float | None) -> None:
        """An error that says why these rows are not processed, if they are not."""
        if not self.snapshot.has_processed(position):
            self._refuse_ended()
            refuse_halted(self.snapshot.halt)
            raise UnavailableError(
                f"not processed in time: table={position.table} partition={position.partition} first={position.first}"
                f" last={position.last} timeout_s={waited_s}",
                "the rows are on disk and wait: do not send them again, unless as the same push of a producer",
            )

    def completion(self, table: str, partition: int, offset: int) -> Completion:
        """How far one row has come."""
        self.table(table)
        place = (table, partition)
        ends = {**self.watch.health.ends, **self.built.parts.inputs.ends()}
        if place not in ends:
            raise ConfigError(f"no such partition: table={table} partition={partition}")
        processed = self.snapshot.processed.get(place, 0) > offset
        step = self._loop.runner.index.step_of(table, partition, offset) if processed else None
        return Completion(durable=ends[place] > offset, processed=processed, step=step, delivered=processed)

    def lag_rows(self) -> int:
        """How many rows wait in the input, as the input tells: other inputs than the embedded one are asked once a second."""
        now = self.snapshot
        if now.ended or (not self.config.input.knows_ends and not self.watch.health.ends):
            return now.lag_rows
        if not self.config.input.knows_ends:
            return sum(unread_rows(self.watch.health, now.processed).values())
        ends = self.built.parts.inputs.ends()
        return sum(max(0, end - now.processed.get(place, 0)) for place, end in ends.items())

    # --- results out --------------------------------------------------------------------------------------------

    def views(self) -> tuple[str, ...]:
        """The views that can be read."""
        return tuple(view.name for view in self.built.plan.views if view.trace is not None)

    def read_view(self, view: str, timeout_s: float | None = None) -> ViewRows:
        """A view as of the last finished step."""
        return self.read_views((view,), timeout_s)[0]

    def read_views(self, views: Sequence[str], timeout_s: float | None = None) -> list[ViewRows]:
        """Several views as of the same step."""
        for view in views:
            if view not in self.views():
                raise not_readable(view, self.views(), self._feed.views)

        def question(runtime: Any, facts: states.Facts) -> list[ViewRows]:
            return [self._read_now(runtime, facts, view) for view in views]

        return cast(list[ViewRows], self._result(lambda: self._loop.ask(question), timeout_s))

    def _read_now(self, runtime: Any, facts: states.Facts, view: str) -> ViewRows:
        """On the event loop's thread: a view after the last step, read once per step as long as it is not large."""
        kept = self._kept_views.get(view)
        if kept is not None and kept.step == facts.next_step:
            return kept
        found = ViewRows(view=view, step=facts.next_step, table=runtime.read_view(view, facts.layout))
        self._kept_views.pop(view, None)
        if found.table.nbytes <= KEPT_VIEW_BYTES_MAX:
            self._kept_views[view] = found
        return found

    def changes(self, view: str, first: int = 0, *, rows_max: int = 10_000) -> ViewChanges:
        """What the finished steps from `first` on changed in a view (or in `dead_letters`), as far as some `rows_max` rows go.

        **Law** see `dbsp.coordinator.running.feed`: begin at 0, or at the step of `read_view`, and go on at `next`.
        **Errors** `PositionError` for steps that were dropped (`retention_steps`) or never taken; `ConfigError` where the
        outputs are not embedded ones.
        """
        self._refuse_ended()
        return self._feed.read(view, first, self.snapshot, rows_max)

    def query(self, sql: str, timeout_s: float | None = None) -> tuple[int, pa.Table]:
        """(step, result) of one read-only statement over the views, all as of that step."""
        section = self.config.query
        limits = QueryLimits(
            memory_mb_max=section.memory_mb_max, timeout_s=section.timeout_s, threads=section.threads,
            rows_max=section.rows_max, result_mb_max=section.result_mb_max,
        )  # fmt: skip
        steps: list[int] = []

        def read(names: Sequence[str]) -> dict[str, pa.Table]:
            found = self.read_views(names, timeout_s)
            steps.extend(rows.step for rows in found)
            return {rows.view: rows.table for rows in found}

        found = self._queries.ask(sql, self.views(), read, limits, self._feed.views)
        return steps[0] if steps else self.snapshot.step, found

    # --- decisions ----------------------------------------------------------------------------------------------

    def checkpoint(self, timeout_s: float | None = None) -> int:
        """Make the state of now a version; the number of the one that holds it, when it is published."""
        wanted: list[int] = []

        def met(state: states.State) -> int | None:
            _refuse_in(state)
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
            _refuse_in(state)
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

    def note_bug(self, where: str, error: BaseException) -> None:
        """Put the story of an error that nobody foresaw into the log."""
        self._log.noted(BugFound(where=where, error="".join(traceback.format_exception(error))))

    def explain(self) -> str:
        """The plan, and what every node did since this process started."""
        return self.metrics.explained(self.built.plan)

    def plan_rescale(self, workers: int) -> RescalePlan:
        """What a rescale to `workers` would move, once nothing moves any more; `ConfigError` if there cannot be so many."""
        layout, step = self._layout_to_be(), self.snapshot.step
        return plan_rescale(layout, workers, step=step, state_bytes=self._state_bytes(), rates=self._rates)

    def _state_bytes(self) -> dict[int, int]:
        """What every worker's state takes, as of the last step; empty before the first one."""
        report = self.snapshot.last_report
        return {worker.worker: worker.state_bytes for worker in report.workers} if report is not None else {}

    def rescale(
        self, workers: int, timeout_s: float | None = None, *, strategy: str | None = None
    ) -> MoveReport | None:
        """Go on with `workers` workers; returns when a checkpoint in the new layout is published.

        `strategy`: "cold" stops the steps until all state is moved; "warmup" moves most of it beside them; "icadd" and
        "redistribute" move it key by key in the steps (None: as the settings say). The request is durable before anything moves,
        so
        a crash resumes it. While keys move another rescale waits. What has moved since it was asked for; None if nothing has.

        **Errors** `UnavailableError` if it was given up: an error, `cancel_rescale`, or another count that was asked for since.
        """
        strategy = strategy or self.config.layout.strategy
        if strategy not in STRATEGIES:
            raise ConfigError(f"no such strategy: strategy={strategy}", f"known: {', '.join(STRATEGIES)}")
        now = self.snapshot
        if self.plan_rescale(workers).workers_before == workers and now.rescale is None and now.waiting is None:
            return None
        refuse_halted(self.snapshot.halt)
        before = self._loop.runner.moved
        self.request_rescale(workers, strategy)

        def met(state: states.State) -> bool | None:
            _refuse_in(state)
            facts = state.facts
            if not isinstance(state, SETTLED) or facts.requested.rescale is not None or is_moving(facts):
                return None
            if facts.rescale_error is not None:
                raise UnavailableError(f"the rescale was given up: {facts.rescale_error}", "the old layout goes on")
            if len(facts.layout.workers) != workers:
                raise UnavailableError(f"another rescale took its place: workers={len(facts.layout.workers)}")
            return True

        asked = events.RescaleAsked(workers=workers, strategy=strategy)
        self._result(lambda: self._loop.submit(asked, met), timeout_s)
        moved = self._loop.runner.moved
        return None if moved is before else moved

    def cancel_rescale(self, timeout_s: float | None = None) -> None:
        """Take back a rescale that has not come to its switch; returns when nothing of it is left.

        Keys that have moved already move back. Of one that waits behind another, the one that waits is taken back.
        **Errors** `ConfigError` if none is under way; `UnavailableError` if it is too late.
        """
        begun: list[bool] = []

        def met(state: states.State) -> bool | None:
            _refuse_in(state)
            facts = state.facts
            if isinstance(state, states.Rescaling):
                raise UnavailableError("the rescale cannot be taken back any more", "wait for it, then rescale back")
            turned = facts.course is not None and facts.course.turned
            if facts.requested.cancel or isinstance(state, states.Cancelling) or turned:
                begun.append(True)
                return None
            if not begun:
                raise ConfigError(f"no rescale is under way: workers={len(facts.layout.workers)}")
            forgotten = (
                isinstance(state, states.Recovering) and state.awaits == "backoff" and facts.requested.rescale is None
            )
            return True if forgotten or isinstance(state, SETTLED) else None

        self._result(lambda: self._loop.submit(events.CancelAsked(), met), timeout_s)

    def request_rescale(self, workers: int, strategy: str = COLD) -> None:
        """Note the request durably; before `start`, the service begins with it."""
        epoch = self.snapshot.epoch if self._thread is not None else None
        self.built.parts.control.change(epoch, lambda ledger: ledgers.request_rescale(ledger, workers, strategy))
        if self._thread is None:
            self._loop.begin_with_rescale(workers, strategy)

    def layout(self) -> Layout:
        """The layout in use; while keys move, the workers of both."""
        return self.snapshot.layout or self.built.facts.layout

    @property
    def workers_to_be(self) -> int:
        """How many workers there are once nothing moves any more."""
        return len(self._layout_to_be().workers)

    def _layout_to_be(self) -> Layout:
        """The layout in use once nothing moves any more."""
        course = self.snapshot.course if self.snapshot.layout is not None else self.built.facts.course
        return self.layout() if course is None else course.new

    def readiness(self) -> tuple[bool, dict[str, Any]]:
        """Whether steps are taken and answers given, and what is wrong: alarms, also those that keep nobody from either."""
        now, health = self.snapshot, self.watch.health
        ready = is_ready(now, health)
        health_json = health_as_json(health, sorted(self._tables), now.processed)
        return ready, {"ready": ready, "state": now.state, "alarms": health_json["alarms"]}

    def status(self) -> dict[str, Any]:
        """The snapshot as JSON values."""
        now, layout = self.snapshot, self.layout()
        return {
            "name": self.config.pipeline.name, "run": self.built.facts.run, **snapshot_as_json(now),
            "workers": len(layout.workers), "layout_version": layout.version, "lag_rows": self.lag_rows(),
            "tables": sorted(self._tables), "views": sorted(self.views()), "engine": VERSION,
            "upgrade": self.upgrades.status(), "fingerprint": self.built.plan.fingerprint,
            "rescale": as_json(self._loop.runner.rescale), "backup": as_json(self._backups.progress),
            "last_backup": self._backups.last, "delta": self.delta.status, "copies": self.copies.status,
            "not_deterministic": list(self.first_steps.found),
            **health_as_json(self.watch.health, sorted(self._tables), now.processed),
            "waterlines": self.built.parts.waterlines.status,
        }  # fmt: skip

    def layout_status(self) -> dict[str, Any]:
        """The layout as JSON values."""
        inputs = self.built.parts.inputs
        partitions = {name: inputs.partitions(name) for name in sorted(self._tables)}
        return layout_as_json(self.layout(), partitions, self._state_bytes(), self.snapshot.course)

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
    """`UnavailableError` while a step waits for a decision."""
    if halt is not None:
        what = "the next step ends its process" if halt.death else "rows of the next step fail"
        hint = "`coordinator status` names them, `coordinator skip` goes on without them"
        if halt.command == ACCEPT_OUTPUT:
            what, hint = "the next step gives another output", "`coordinator accept-output` goes on with it"
        raise UnavailableError(f"{what}: step={halt.step} {halt.message}", hint)


def _refuse_in(state: states.State) -> None:
    if isinstance(state, states.Halted) and state.awaits == "decision":
        refuse_halted(state.facts.halt)


def _is_end(state: states.State) -> bool:
    return isinstance(state, states.Stopped | states.Broken)


__all__ = ["Completion", "DbspError", "RescalePlan", "Rows", "Service", "Skipped", "ViewRows"]
