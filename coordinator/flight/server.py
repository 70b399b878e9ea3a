"""Serve the calls of Flight SQL: a command returns a ticket, and the ticket returns Arrow batches.

A ticket contains the whole statement, so the service keeps no state between two calls. A statement is checked when its
ticket is made, and runs when its rows are asked for, as of one step.

Invariants
1. Nothing is read before `FlightAccess` has let the call in.
2. Bytes of a client end at most their own call. An error of ours is noted as a bug, and the client receives its kind.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from dbsp.coordinator.flight import messages as m
from dbsp.coordinator.flight.access import FlightAccess, Handshake
from dbsp.coordinator.flight.gate import FlightGate, client_of
from dbsp.coordinator.flight.metadata import FlightMetadata
from dbsp.coordinator.flight.results import FlightResults
from dbsp.coordinator.flight.statements import SentStatement, numbered
from dbsp.coordinator.http.access_log import AccessLog
from dbsp.coordinator.http.rates import RateLimiter
from dbsp.coordinator.http.tls import certificate_of, listening
from dbsp.coordinator.http.tokens import tokens_of
from dbsp.coordinator.postgres.refusals import WRITE_HINT
from dbsp.coordinator.query.process import QueryStopped, Stop
from dbsp.coordinator.service import Service
from dbsp.errors import CapacityError, ConfigError, DbspError, OverloadedError, UnavailableError
from dbsp.reloading import Reloadable

LOOK_S = 0.1
STOP_TIMEOUT_S = 10.0
CREATE, CLOSE = "CreatePreparedStatement", "ClosePreparedStatement"
UPDATES = ("CommandStatementUpdate", "CommandPreparedStatementUpdate")


class FlightServer:
    """Flight SQL on a bound socket."""

    def __init__(self, service: Service, bound: socket.socket, log: AccessLog | None = None) -> None:
        """Create the server, which serves no call before `start`."""
        config = service.config
        self.service, self._connections_max = service, config.flight.connections_max
        self._tokens = tokens_of(config.http, config.folder)
        self._certificate = certificate_of(config.http, config.folder, protocols=("h2",))
        self._gate = FlightGate(
            bound, connections_max=self._connections_max, handshake_timeout_s=config.http.header_timeout_s,
            tls=None if self._certificate is None else listening(self._certificate),
        )  # fmt: skip
        self.results = FlightResults(service)
        self._access = FlightAccess(lambda: self._tokens.value, self._connections_max)
        self._calls = _Calls(self._gate, self._access, self.results, service, log)
        host, port = bound.getsockname()[:2]
        self.address: tuple[str, int] = (str(host), int(port))

    @property
    def reloadables(self) -> tuple[Reloadable[Any], ...]:
        """Return the certificate and tokens that are read again when their files change."""
        return (self._tokens,) if self._certificate is None else (self._tokens, self._certificate)

    @property
    def url(self) -> str:
        """Return the URL of the service."""
        host, port = self.address
        scheme = "grpc" if self._certificate is None else "grpc+tls"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    def status(self) -> Mapping[str, Any]:
        """Return the entry of Flight SQL in the service's status."""
        return {
            "url": self.url, "connections": self._gate.connections, "connections_max": self._connections_max,
            "calls": self._access.calls,
        }  # fmt: skip

    def start(self) -> None:
        """Serve calls from now on."""
        self._gate.start()

    def stop(self) -> None:
        """Cancel all calls, and close; Arrow's server ends when it has no connection."""
        self._gate.stop()
        ending = threading.Thread(target=self._calls.shutdown, name="dbsp-flight-end", daemon=True)
        ending.start()
        ending.join(STOP_TIMEOUT_S)


class _Calls(fl.FlightServerBase):  # type: ignore[misc] # pyarrow comes without types
    """Arrow's server; it calls each method on a thread of the call."""

    def __init__(
        self, gate: FlightGate, access: FlightAccess, results: FlightResults, service: Service, log: AccessLog | None
    ) -> None:
        super().__init__(location=f"grpc+unix://{gate.inner}", auth_handler=Handshake(), middleware={"access": access})
        self._results, self._service, self._log = results, service, log
        self._metadata = FlightMetadata(results.database, results.relations)
        self._rates = RateLimiter(service.config.http.requests_per_s_max)
        self._rates_lock = threading.Lock()

    # --- what Arrow calls ---------------------------------------------------------------------------------------

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        """Return the result columns of a command, and a ticket for its rows."""
        with self._answering(context, "GetFlightInfo"):
            schema, ticket = self._planned(context, descriptor.command)
            return fl.FlightInfo(schema, descriptor, [fl.FlightEndpoint(ticket, [])], -1, -1)

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        """Return the result columns of a command."""
        with self._answering(context, "GetSchema"):
            return fl.SchemaResult(self._planned(context, descriptor.command)[0])

    def do_get(self, context: Any, ticket: Any) -> Any:
        """Return the rows of a ticket."""
        with self._answering(context, "DoGet"):
            name, asked = _command(ticket.ticket)
            found = self._metadata.table(name, asked)
            if found is not None:
                return fl.RecordBatchStream(found)
            statement = (
                SentStatement.of(asked.statement_handle) if name == "TicketStatementQuery" else _statement(name, asked)
            )
            with _stopping(context) as stop:
                schema, batches = self._results.rows(statement, stop)
            return fl.GeneratorStream(schema, self._sent(context, batches))

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Bind the parameters of a prepared statement; the client uses the returned handle from then on."""
        with self._answering(context, "DoPut"):
            name, asked = _command(descriptor.command)
            bound = _statement(name, asked).bind(reader.read_all())
            answer = m.message("DoPutPreparedStatementResult", prepared_statement_handle=bound.handle)
            writer.write(pa.py_buffer(answer.SerializeToString()))

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        """Prepare a statement, or close it."""
        with self._answering(context, "DoAction"):
            return iter(self._done(context, action))

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        """Return the supported actions."""
        with self._answering(context, "ListActions"):
            return [(CREATE, "Prepare a statement."), (CLOSE, "Close a prepared statement.")]

    # --- how calls are served -------------------------------------------------------------------------------------

    def _planned(self, context: Any, command: bytes) -> tuple[pa.Schema, Any]:
        name, asked = _command(command)
        found = self._metadata.table(name, asked)
        if found is not None:
            return found.schema, fl.Ticket(command)
        statement = _statement(name, asked)
        with _stopping(context) as stop:
            schema, _ = self._results.columns(statement, stop)
        return schema, fl.Ticket(m.packed(m.message("TicketStatementQuery", statement_handle=statement.handle)))

    def _done(self, context: Any, action: Any) -> list[Any]:
        _, asked = _command(action.body.to_pybytes())
        if action.type == CLOSE:
            return []
        if action.type != CREATE:
            raise ConfigError(
                f"not an action of this service: action={action.type[:60]}", f"there are {CREATE} and {CLOSE}"
            )
        statement = SentStatement(numbered(asked.query))
        with _stopping(context) as stop:
            columns, parameters = self._results.columns(statement, stop)
        answer = m.message(
            "ActionCreatePreparedStatementResult", prepared_statement_handle=statement.handle,
            dataset_schema=columns.serialize().to_pybytes(), parameter_schema=parameters.serialize().to_pybytes(),
        )  # fmt: skip
        return [fl.Result(pa.py_buffer(m.packed(answer)))]

    def _sent(self, context: Any, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a result; raise errors of the read as errors of Flight."""
        with self._translated():
            for batch in batches:
                if context.is_cancelled():
                    return
                yield batch

    @contextmanager
    def _answering(self, context: Any, method: str) -> Iterator[None]:
        """Run the body as a call: apply the rate limit of the client's address, and write a line into the access log."""
        client, begun, status = client_of(context.peer()), time.monotonic(), "error"
        try:
            with self._translated():
                with self._rates_lock:
                    allowed = self._rates.allows(client, begun)
                if not allowed:
                    raise OverloadedError(
                        "too many calls a second", "ask again later, or raise `requests_per_s_max` in [http]"
                    )
                yield
                status = "ok"
        finally:
            if self._log is not None:
                ms = (time.monotonic() - begun) * 1000
                self._log.write(client=client, method=method, path="flight", status=status, milliseconds=ms)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Run the body; turn its errors into those of Flight."""
        try:
            yield
        except DbspError as error:
            raise flight_error(error) from None
        except Exception as error:  # noqa: BLE001 - a bug ends its call, not the service
            self._service.note_bug("flight", error)
            raise fl.FlightInternalError(
                f"a bug: {type(error).__name__}\nhint: report it with the lines of coordinator.log"
            ) from None


def _command(data: bytes | None) -> tuple[str, Any]:
    found = m.unpacked(data or b"")
    if found is None:
        raise ConfigError("not a command of Flight SQL", "connect with a client of Flight SQL, such as ADBC's")
    return found


def _statement(name: str, asked: Any) -> SentStatement:
    """Return the statement that a command names."""
    match name:
        case "CommandStatementQuery":
            return SentStatement(numbered(asked.query))
        case "CommandPreparedStatementQuery":
            return SentStatement.of(asked.prepared_statement_handle)
        case _ if name in UPDATES:
            raise ConfigError("only reading is allowed", WRITE_HINT)
    raise ConfigError(f"not answered by this service: command={name}")


def flight_error(error: DbspError) -> Exception:
    """Return an error of this project as Flight's, with its hint."""
    text = error.message if error.hint is None else f"{error.message}\nhint: {error.hint}"
    match error:
        case QueryStopped():
            return fl.FlightCancelledError(text)  # type: ignore[no-any-return] # pyarrow comes without types
        case CapacityError() if "too long: timeout" in error.message:
            return fl.FlightTimedOutError(text)  # type: ignore[no-any-return]
        case OverloadedError() | CapacityError() | UnavailableError():
            return fl.FlightUnavailableError(text)  # type: ignore[no-any-return]
        case ConfigError():
            return fl.FlightServerError(text)  # type: ignore[no-any-return]
    return fl.FlightInternalError(text)  # type: ignore[no-any-return]


@contextmanager
def _stopping(context: Any) -> Iterator[Stop]:
    """Yield a switch that cancels the query when the client cancels its call or disconnects."""
    stop, done = Stop(), threading.Event()

    def watch() -> None:
        while not done.wait(LOOK_S):
            if context.is_cancelled():
                stop.stop()
                return

    watching = threading.Thread(target=watch, name="dbsp-flight-call", daemon=True)
    watching.start()
    try:
        yield stop
    finally:
        done.set()
        watching.join()
