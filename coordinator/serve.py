"""`dbsp-coordinator pipeline.toml`: run a pipeline's service in the foreground until it is stopped.

SIGTERM, SIGHUP and the first SIGINT stop it after a last checkpoint; a second SIGINT stops it between two commands, a third
at once.
Killed in any other way it continues where it was when the same command is given again.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

import dbsp.coordinator.garbage  # noqa: F401 - first, since it takes effect on the imports that follow
from dbsp.coordinator.address import changed_setting
from dbsp.coordinator.build import Built, build
from dbsp.coordinator.checks.checking import check_pipeline
from dbsp.coordinator.checks.preflight import formats_read
from dbsp.coordinator.decisions.alarms import NOT_RELOADED
from dbsp.coordinator.decisions.states import Halt
from dbsp.coordinator.exits import INTERRUPTED, exit_code, guarded, lead_nowhere, report, say
from dbsp.coordinator.flight.listen import bind_flight
from dbsp.coordinator.garbage import BEGUN_S
from dbsp.coordinator.http.access_log import open_log
from dbsp.coordinator.http.app import make_app
from dbsp.coordinator.http.connections import Gate, raise_descriptor_limit
from dbsp.coordinator.http.listen import HttpServer, bind
from dbsp.coordinator.postgres.listen import PostgresServer, bind_postgres
from dbsp.coordinator.preparing import prepare
from dbsp.coordinator.running.clock import SystemClock
from dbsp.coordinator.running.ledger_in_log import LoggedControl
from dbsp.coordinator.running.live_line import LiveLine, console
from dbsp.coordinator.running.notices import AlarmRaised, EpochClaimed, FileReloaded, Notice
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import Config, load_config
from dbsp.coordinator.systemd import SystemdNotices
from dbsp.coordinator.takeover.lease import Heart, name_of, open_heartbeats
from dbsp.coordinator.takeover.standby import OwnerLock, PreparedStart, prepare_start, stand_by
from dbsp.coordinator.takeover.successor import RUNNING, RUNNING_S, Inheritance, Successor
from dbsp.coordinator.takeover.upgrades import Restart, note_failure, own_interpreter
from dbsp.errors import ConfigError, DbspError, EngineError
from dbsp.logs import StepRecord
from dbsp.logs.step_commands import ACCEPT_OUTPUT
from dbsp.plan.explain import explain
from dbsp.runtime.runtime import StepReport
from dbsp.version import VERSION

if TYPE_CHECKING:
    from dbsp.coordinator.flight.server import FlightServer

SHOW_INTERVAL_S = 0.25
HTTP, POSTGRES, FLIGHT = "http", "postgres", "flight"
"""The names under which the listening sockets are handed to a successor."""
SWITCH_S = 0.0002
"""Seconds that a thread may hold the interpreter lock while others wait for it.

A request or a step needs the lock again after every system call, some hundred times a step. A bare loop beside steps of 17 ms
makes them 60 ms long with this figure, 120 ms with 1 ms, and 450 ms with Python's own 5 ms.
"""

EPILOG = """\b
Examples:
  dbsp-coordinator pipeline.toml --check
  dbsp-coordinator pipeline.toml
  dbsp-coordinator pipeline.toml --set http.port=0 --set checkpoint.interval_s=5
  dbsp-coordinator pipeline.toml --rescale 4
  dbsp-coordinator pipeline.toml --standby
  dbsp-coordinator pipeline.toml --check --accept-circuit

\b
Settings come from --set, then DBSP_SECTION_KEY, then the file, then the defaults.
Exit codes: 0 stopped as asked, 2 settings or circuit, 3 data, 4 unavailable or running already,
5 a limit, 6 fenced by another coordinator, 7 another version of dbsp logged the steps above the
checkpoint, 70 a bug, 130 interrupted twice.
"""


def _show_formats(context: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    """Print the values that an upgrade compares, and exit: the version, and the format numbers that it reads."""
    if asked:
        click.echo(json.dumps({"engine": VERSION, "formats": formats_read(), "proves": True}))
        context.exit()


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("pipeline", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--check", is_flag=True, help="Check settings, circuit and stored state; print the plan; start nothing.")
@click.option(
    "--prove", is_flag=True,
    help="Check, and run finished steps again in memory: refuse if this version gives other outputs. Start nothing.",
)  # fmt: skip
@click.option("--rescale", type=click.IntRange(min=1), help="Rescale to this many workers (cold), then run.")
@click.option(
    "--accept-engine", "accepting", multiple=True, metavar="VERSION",
    help="Run the steps after the checkpoint again, although this other version of dbsp has logged them.",
)  # fmt: skip
@click.option(
    "--accept-circuit", "evolve", is_flag=True,
    help="Continue with a changed circuit: keep state that means the same, fill what is new. With --check: say what.",
)  # fmt: skip
@click.option(
    "--formats",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_formats,
    help="Print the version, and the formats that it reads.",
)
@click.option(
    "--take-over",
    is_flag=True,
    help="Start although a service of this pipeline answers; that service is fenced, and ends.",
)
@click.option(
    "--standby", "waits", is_flag=True,
    help="Prepare a start while the pipeline's coordinator runs, and start when that one has ended.",
)  # fmt: skip
@click.option("--succeed", "inherited", hidden=True)  # the start of a successor, by the process before it
@click.option("--set", "overrides", multiple=True, metavar="SECTION.KEY=VALUE", help="Override one setting.")
@click.option("--no-progress", is_flag=True, help="Show no progress line.")
@click.version_option(VERSION, prog_name="dbsp-coordinator")
def command(  # noqa: PLR0913 - one for each option
    pipeline: Path,
    *,
    check: bool,
    prove: bool,
    rescale: int | None,
    accepting: tuple[str, ...],
    evolve: bool,
    take_over: bool,
    waits: bool,
    inherited: str | None,
    overrides: tuple[str, ...],
    no_progress: bool,
) -> None:
    """Run the pipeline that PIPELINE (a TOML file) describes."""
    config = load_config(pipeline, overrides=overrides)
    if check or prove:
        _check(config, evolve, proves=prove)
        return
    again = [
        str(pipeline),
        *(f"--set={override}" for override in overrides),
        *(["--no-progress"] if no_progress else []),
    ]
    restart = Restart(interpreter=own_interpreter(), arguments=tuple(again))
    prepared, inheritance = None, None if inherited is None else Inheritance(inherited)
    if waits:
        if take_over or rescale is not None:
            raise ConfigError(
                "--standby cannot be combined with --take-over or --rescale", "start a standby without them"
            )
        prepared = stand_by(config)
        if prepared is None:
            return
    elif inheritance is None and not take_over:
        from dbsp.coordinator.client.liveness import refuse_running  # noqa: PLC0415 (it loads an HTTP client)

        refuse_running(config)
    try:
        if inheritance is not None:
            prepared = _succeed(config, inheritance)
        code = run(
            config, rescale=rescale, progress=not no_progress, accepting=accepting, evolve=evolve, restart=restart,
            prepared=prepared,
        )  # fmt: skip
        sys.exit(code)
    except DbspError as error:
        note_failure(config.data_dir, str(error))
        if inheritance is not None:
            inheritance.fail(error)
        raise


def main() -> None:
    """Run the console script `dbsp-coordinator`, and exit with its code."""
    sys.exit(guarded(lambda: command.main(standalone_mode=False, prog_name="dbsp-coordinator")))


def _succeed(config: Config, inheritance: Inheritance) -> PreparedStart:
    """Prepare the start of a successor, report it to the old process, and return when that process has closed the pipeline."""
    prepared = prepare_start(config, is_successor=True)
    prepared.inheritance = inheritance
    inheritance.wait_to_go_on()
    return prepared


def _check(config: Config, evolve: bool, *, proves: bool) -> None:
    """Print the plan and the findings; with `proves`, print the proof as a line of JSON at the end."""
    plan, said = check_pipeline(config, evolve=evolve)
    click.echo("\n".join([explain(plan), *said]))
    if proves:
        from dbsp.coordinator.takeover.proving import prove as prove_steps  # noqa: PLC0415 - of one option

        click.echo(json.dumps(asdict(prove_steps(config))))


def run(
    config: Config,
    *,
    rescale: int | None = None,
    progress: bool = True,
    accepting: Iterable[str] = (),
    evolve: bool = False,
    restart: Restart | None = None,
    prepared: PreparedStart | None = None,
    wrap: Callable[[str, Any], Any] = lambda _name, part: part,
) -> int:
    """Run the service until it ends, and return the exit code. `wrap` is as in `build.build`.

    `restart` says how to start this program again; an upgrade does that instead of returning. `prepared` is what a
    standby or a successor has prepared before its turn.

    The port is bound first: a second coordinator on the same address ends before it fences the first.
    """
    raise_descriptor_limit()
    sys.setswitchinterval(SWITCH_S)
    inheritance = None if prepared is None else prepared.inheritance
    interfaces = _Interfaces(config, inheritance)
    prepare(config)
    service: Service | None = None
    heart = None if prepared is None else prepared.heart
    try:
        built = build(config, wrap=wrap, accepting=accepting, evolve=evolve, report=say)
        heart = heart or _heart(config)
        built = built if prepared is None else prepared.equip(built)
        service = Service(config, built if heart is None else _attended(built, heart))
        lock = OwnerLock(config.data_dir) if prepared is None else prepared.lock
        _own(lock, heart)
        service.upgrades.restart, service.upgrades.sockets = restart, interfaces.sockets
        service.upgrades.prepared_s = time.monotonic() - BEGUN_S if prepared is None else prepared.seconds
        for observer in (SystemdNotices(), inheritance):
            if observer is not None:
                service.tell(observer)
        if rescale is not None:
            _request_in_ledger(service, rescale)
        _note_workers(service, rescale)
        interrupts = _Interrupts(service)
        interfaces.attach(service)
        service.first_steps.watch(service.live_status)
        service.start(wait=False)
        interfaces.start()
        finish = _watch(service, interfaces.http, progress, interrupts)
        if finish.code is not None:
            report(DbspError(finish.message, finish.hint))
            note_failure(config.data_dir, finish.message)
        code = INTERRUPTED if interrupts.count > 1 else exit_code(finish.code)
        goes_on = finish.again and not interrupts.asked_to_end
        if (successor := service.upgrades.successor) is not None:
            _hand_over(service, interfaces, successor) if goes_on else successor.end()
    finally:
        interfaces.stop()
        if service is not None:
            service.close()
        if prepared is not None:
            prepared.close()
        if heart is not None and sys.exc_info()[0] is not None:
            heart.close()
    _leave(lock, heart, goes_on=goes_on, is_stopped=not goes_on and finish.code is None and not interrupts.asked_to_end)
    if goes_on:
        _go_on_as_another(service, successor, lock)
    lock.close()
    return code


def _own(lock: OwnerLock, heart: Heart | None) -> None:
    """Take the lock, and begin the heartbeats, by which standbys see that a coordinator runs."""
    lock.take()
    if heart is not None:
        heart.begin()


def _leave(lock: OwnerLock, heart: Heart | None, *, goes_on: bool, is_stopped: bool) -> None:
    """Report to the standbys that the pipeline continues as another version, or was stopped by `coordinator stop`."""
    if heart is not None:
        heart.close(stopped=is_stopped, pause_s=RUNNING_S if goes_on else 0.0)
    if is_stopped:
        lock.count_stop()


def _heart(config: Config) -> Heart | None:
    """Return the writer of heartbeats; None if the logs are in the data folder, or without the right to use the topic."""
    try:
        beats = open_heartbeats(config)
    except ConfigError as error:
        say(f"error: standbys on other hosts hear nothing of this coordinator: {error}")
        return None
    return None if beats is None else Heart(beats, name_of(config.data_dir), config.coordinator.lease_s, say)


def _attended(built: Built, heart: Heart) -> Built:
    """Return the parts with a runtime that frees the previous coordinator's application; heartbeats name the new application."""
    make, control = built.parts.runtime, built.parts.control
    if isinstance(control, LoggedControl):
        heart.doubt = control.doubt
    return replace(built, parts=replace(built.parts, runtime=lambda: heart.attend(make())))


def _go_on_as_another(service: Service, successor: Successor | None, lock: OwnerLock) -> None:
    """Finish an upgrade: hand the pipeline over to the other version of dbsp.

    Without a successor, this process executes the other version in its place. A successor already runs: this process
    waits until it takes steps, and becomes its launcher. If it does not take steps in time, this version starts again.
    """
    if successor is None:
        lock.keep_for_next_program()
        service.upgrades.become(service.snapshot)
        return
    try:
        successor.expect(RUNNING, RUNNING_S)
        lock.close()
        successor.become_its_launcher()
    except EngineError as error:
        successor.end()
        say(f"{service.config.pipeline.name}: version {VERSION} goes on: {error}")
        note_failure(service.config.data_dir, str(error), goes_on=True)
        lock.keep_for_next_program()
        service.upgrades.become(None)


def _hand_over(service: Service, interfaces: _Interfaces, successor: Successor) -> None:
    """Close the pipeline so that the successor can take it over; finish the requests under way meanwhile."""
    interfaces.hand_over()
    service.close_pipeline()
    service.upgrades.leave_note(service.snapshot)
    successor.go()


class _Interfaces:
    """The interfaces of a service to the outside: HTTP, PostgreSQL's protocol and Flight SQL.

    Their ports are bound before anything else is touched.
    """

    def __init__(self, config: Config, inheritance: Inheritance | None) -> None:
        """Bind the ports, or use the sockets of the previous process; close the first ones if another is in use."""
        self._config = config
        self.http: HttpServer | None = None
        self._postgres: PostgresServer | None = None
        self._flight: FlightServer | None = None
        self._bound: Gate | None = None
        self._bound_postgres: socket.socket | None = None
        self._bound_flight: socket.socket | None = None
        web, has_tokens = config.http.port if config.http.enabled else None, config.http.needs_token
        inherited = {
            name: None if inheritance is None else inheritance.socket_for(name, port)
            for name, port in ((HTTP, web), (POSTGRES, config.postgres.port), (FLIGHT, config.flight.port))
        }
        try:
            self._bound = bind(config.http, inherited[HTTP]) if config.http.enabled else None
            self._bound_postgres = bind_postgres(config.postgres, has_tokens=has_tokens, inherited=inherited[POSTGRES])
            self._bound_flight = bind_flight(config.flight, has_tokens=has_tokens, inherited=inherited[FLIGHT])
        except DbspError:
            self.stop()
            raise

    @property
    def sockets(self) -> Mapping[str, int]:
        """Return the listening sockets by name, for a successor."""
        bound = {HTTP: self._bound, POSTGRES: self._bound_postgres, FLIGHT: self._bound_flight}
        return {name: each.fileno() for name, each in bound.items() if each is not None}

    def hand_over(self) -> None:
        """Stop accepting HTTP connections, because the successor accepts them at the same socket."""
        if self.http is not None:
            self.http.hand_over()

    def attach(self, service: Service) -> None:
        """Create the servers of a service, and write their address."""
        config = self._config
        log = open_log(config.http, config.folder)
        if self._bound is not None:
            who = {"name": config.pipeline.name, "run": service.built.facts.run}
            app = make_app(service, log)
            self.http = server = HttpServer(app, self._bound, config.data_dir, who, folder=config.folder)
            announce(server, service)
            if server.certificate is not None:
                service.watch.reload(server.certificate)
        if self._bound_postgres is not None:
            self._postgres = PostgresServer(service, self._bound_postgres, log)
            for each in self._postgres.reloadables:
                service.watch.reload(each)
            service.postgres_status = self._postgres.status
        if self._bound_flight is not None:
            from dbsp.coordinator.flight.server import FlightServer  # noqa: PLC0415 (its packages are an extra)

            self._flight = FlightServer(service, self._bound_flight, log)
            for each in self._flight.reloadables:
                service.watch.reload(each)
            service.flight_status = self._flight.status

    def start(self) -> None:
        """Start to respond to requests."""
        name = self._config.pipeline.name
        if self._postgres is not None:
            self._postgres.start()
            say(f"{name}: answering PostgreSQL's protocol at {self._postgres.url}")
        if self._flight is not None:
            self._flight.start()
            say(f"{name}: answering Flight SQL at {self._flight.url}")
        if self.http is not None:
            self.http.start()
            say(f"{name}: answering at {self.http.url}")

    def stop(self) -> None:
        """Finish the requests under way, then close the servers."""
        for server, bound in (
            (self._flight, self._bound_flight),
            (self._postgres, self._bound_postgres),
            (self.http, self._bound),
        ):
            if server is not None:
                server.stop()
            elif bound is not None:
                bound.close()


def announce(server: HttpServer, service: Service) -> None:
    """Write the address of the server now and whenever the service has claimed the pipeline."""
    server.announce()
    service.tell(_Announcer(server))


class _Announcer:
    """An observer that writes the address at every claim, and prints which files are read again."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server

    def stepped(self, record: StepRecord, report: StepReport, *, replay: bool, lag_rows: int) -> None:
        """Ignore the step: the address does not depend on steps."""

    def noted(self, notice: Notice) -> None:
        """Write the address once this process has claimed the epoch; print files that were read again, or are not used."""
        if isinstance(notice, EpochClaimed):
            self._server.announce()
        elif isinstance(notice, FileReloaded):
            say(f"read again: {notice.what}")
        elif isinstance(notice, AlarmRaised) and notice.kind == NOT_RELOADED:
            say(f"error: {notice.text}")


def _watch(service: Service, server: HttpServer | None, progress: bool, interrupts: _Interrupts) -> Any:
    """Wait for the end and draw the status meanwhile; return how the service ended.

    Messages about signals are printed here, because a signal may arrive in the middle of another write.
    """
    reported: Halt | None = None
    interrupted = False
    with LiveLine(SystemClock(), console(quiet=not progress)) as live_line:
        while (finish := service.wait_for_end(SHOW_INTERVAL_S)) is None:
            live_line.show(replace(service.snapshot, lag_rows=service.lag_rows()))
            if server is not None:
                with suppress(OSError):
                    server.keep_announced()
            halt = service.snapshot.halt
            if halt is not None and halt != reported:
                reported = halt
                say(f"halted before step {halt.step}: {halt.message}")
                say(f"hint: {way_past(halt)}")
            if interrupts.count and not interrupted:
                interrupted = True
                say("stopping after a checkpoint (interrupt again to stop now)")
        live_line.show(service.snapshot)
    return finish


def way_past(halt: Halt) -> str:
    """Return a hint on what a user can do about a halt."""
    if halt.command == ACCEPT_OUTPUT:
        return "correct the function, or `coordinator accept-output` writes the difference and continues"
    return "`coordinator status` names the rows, `coordinator skip` goes on without them"


def _request_in_ledger(service: Service, workers: int) -> None:
    """Request a rescale before the start; raise `ConfigError` if there cannot be so many workers."""
    service.plan_rescale(workers)
    service.request_rescale(workers)


def _note_workers(service: Service, rescale: int | None) -> None:
    """Print a note if the setting `workers` was edited since the last start, because it has no effect on an existing pipeline.

    The setting is the number of workers of a new pipeline; a rescale changes that of an existing one.
    """
    wanted, found = service.config.pipeline.workers, service.workers_to_be
    before = changed_setting(service.config.data_dir, "workers", wanted)
    if rescale is None and wanted not in (found, before):
        say(f"{found} workers go on; `workers` in [pipeline] is {wanted}, which counts for a new pipeline")
        say(f"hint: change the number with `coordinator rescale {wanted}`")


class _Interrupts:
    """The signal handlers, which turn signals into requests and count interrupts.

    A process that was asked to end does not start again for an upgrade.
    """

    def __init__(self, service: Service) -> None:
        self.count, self.asked_to_end = 0, False
        self._service = service
        self._on_terminal = sys.stderr.isatty()
        signal.signal(signal.SIGTERM, self._terminate)
        signal.signal(signal.SIGINT, self._interrupt)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # `nohup` has it ignored
            signal.signal(signal.SIGHUP, self._terminate)

    def _terminate(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP and self._on_terminal:
            lead_nowhere()  # the terminal is gone
        self.asked_to_end = True
        self._service.ask_to_stop()

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self.asked_to_end = True
        self.count += 1
        match self.count:
            case 1:
                self._service.ask_to_stop()  # `_watch` prints the message: a signal may arrive in the middle of a write
            case 2:
                self._service.ask_to_stop(now=True)
            case _:
                os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
