"""Run one session: encryption, startup, password, then messages until the client disconnects.

Invariants
1. No statement runs before the client has proved a token that may read, where tokens are set.
2. If there is a certificate, the session requires TLS.
3. Bytes of a client end at most their own session. A bug of the service is noted, and the client receives an internal
   error.
4. After an error in the extended protocol everything up to the next `Sync` is ignored.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import Callable
from contextlib import suppress

from dbsp.coordinator.postgres import messages as m
from dbsp.coordinator.postgres.backend import Backend
from dbsp.coordinator.postgres.connection import Gone, PostgresConnection
from dbsp.coordinator.postgres.messages import ProtocolError
from dbsp.coordinator.postgres.refusals import BUG, PostgresRefusal, refusal_of
from dbsp.coordinator.postgres.running import Runner
from dbsp.coordinator.postgres.scram import MECHANISM, Exchange, ScramError
from dbsp.coordinator.postgres.variables import REPORTED, Variables
from dbsp.errors import DbspError

PASSWORD_BYTES_MAX = 2000
SASL_CONTINUE, SASL_FINAL = 11, 12
NOT_ALLOWED, WRONG_PASSWORD, TOO_MANY = "28000", "28P01", "53300"
ENDED = "57P01"
_CLIENT_CHOOSES = frozenset({"user", "database", "options", "replication"})


class PostgresSession:
    """A session of PostgreSQL's protocol; `run` returns when the session is over."""

    def __init__(
        self,
        connection: PostgresConnection,
        backend: Backend,
        certificate: ssl.SSLContext | None,
        admit: Callable[[PostgresSession], None],
        cancel: Callable[[int, int], None],
    ) -> None:
        """Create the session. `admit` counts or refuses it; `cancel` cancels the running statement of another session."""
        self._connection, self._backend, self._certificate = connection, backend, certificate
        self._admit, self._cancel = admit, cancel
        self.secret = secrets.randbits(32)
        self.pid = secrets.randbits(31)
        self.runner: Runner | None = None
        self._ending = False

    async def run(self) -> None:
        """Serve the client until it disconnects, or is refused."""
        try:
            async with asyncio.timeout(self._backend.http.header_timeout_s):
                runner = await self._begin()
            if runner is not None:
                await self._converse(runner)
        except (Gone, OSError):
            pass
        except TimeoutError:
            self._say_last("57014", "the startup message did not arrive in time")
        except ProtocolError as error:
            self._say_last("08P01", str(error))
        except PostgresRefusal as refusal:
            self._say_last(refusal.sqlstate, refusal.message, refusal.hint)
        except Exception as error:  # noqa: BLE001 - a bug ends its session, not the service
            self._backend.service.note_bug("postgres", error)
            self._say_last(BUG, f"a bug: {type(error).__name__}", "report it with the lines of coordinator.log")
        finally:
            if self.runner is not None:
                self.runner.close()
            self._connection.close()

    def end(self) -> None:
        """End the session because the service stops; called on the thread of the sessions."""
        self._ending = True
        if self.runner is not None:
            self.runner.cancel()
        self._say_last(ENDED, "the service stops", "connect again when it runs")
        self._connection.close()

    def _say_last(self, sqlstate: str, text: str, hint: str | None = None) -> None:
        self._connection.write(m.error(sqlstate, text, hint, severity="FATAL"))

    # --- startup ------------------------------------------------------------------------------------------------

    async def _begin(self) -> Runner | None:
        """Start TLS, check the password, and report that the session is ready; return None after a cancel request."""
        connection = self._connection
        encrypted = False
        while True:
            found = await connection.first()
            match found:
                case m.CancelRequest(pid, secret):
                    self._cancel(pid, secret)
                    return None
                case m.EncryptionAsked(ssl=wanted):
                    if not wanted or self._certificate is None or encrypted:
                        connection.write(b"N")
                        continue
                    if not connection.is_empty:
                        raise ProtocolError("bytes before the TLS handshake")
                    connection.write(b"S")
                    await connection.encrypt(self._certificate, self._backend.http.header_timeout_s)
                    encrypted = True
                case m.Startup():
                    break
        if self._certificate is not None and not encrypted:
            raise PostgresRefusal(NOT_ALLOWED, "this service answers by TLS alone", "connect with sslmode=require")
        self._admit(self)
        return await self._greet(found)

    async def _greet(self, startup: m.Startup) -> Runner:
        connection, given = self._connection, startup.parameters
        unknown = [name for name in given if name.startswith("_pq_.")]
        if startup.minor or unknown:
            connection.write(m.negotiate(0, unknown))
        if "replication" in given and given["replication"].lower() not in ("", "off", "false", "no", "0"):
            raise PostgresRefusal("0A000", "replication is not supported", "follow a view with SUBSCRIBE TO view")
        await self._check_password()
        user = given.get("user", "")
        database = given.get("database") or user
        if database != self._backend.database:
            raise PostgresRefusal(
                "3D000", f'database "{database[:100]}" does not exist',
                f'the database of this pipeline is "{self._backend.database}"'
            )  # fmt: skip
        variables = Variables({"session_authorization": user, "ssl": "on" if self._certificate else "off"})
        for name, value in given.items():
            if name not in _CLIENT_CHOOSES and name not in unknown:
                with suppress(PostgresRefusal):  # the client receives the value that is in force
                    variables.set(name, value)
        self.runner = runner = Runner(connection, self._backend, variables, user)
        runner.apply_options(given.get("options", ""))
        connection.on_gone = runner.cancel
        connection.write(m.authentication(0))
        for name, title in REPORTED.items():
            connection.write(m.parameter_status(title, variables.get(name)))
        connection.write(m.backend_key(self.pid, self.secret))
        connection.write(m.ready("I"))
        await connection.drain()
        return runner

    async def _check_password(self) -> None:
        verifiers = self._backend.verifiers
        if verifiers is None:
            return
        connection, exchange = self._connection, Exchange(verifiers)
        connection.write(m.sasl_mechanisms([MECHANISM]))
        mechanism, _, rest = (await self._password()).partition(b"\0")
        size = int.from_bytes(rest[:4], "big", signed=True)
        try:
            if mechanism != MECHANISM.encode() or size != len(rest) - 4:
                raise ScramError("not a mechanism that was offered")
            first = await self._backend.encoders.run(exchange.first, rest[4:])
            connection.write(m.authentication(SASL_CONTINUE, first))
            token, last = await self._backend.encoders.run(exchange.final, await self._password())
        except ScramError as error:
            raise PostgresRefusal(
                WRONG_PASSWORD,
                f"password authentication failed: {error}",
                "the password is a token of [http] with the scope read",
            ) from None
        if not self._backend.may_read(token):
            raise PostgresRefusal(
                NOT_ALLOWED, "the token does not allow to read", "connect with a token of the scope read"
            )
        connection.write(m.authentication(SASL_FINAL, last))

    async def _password(self) -> bytes:
        found = await self._connection.message(PASSWORD_BYTES_MAX)
        if not isinstance(found, m.Password):
            raise ProtocolError(f"a password is expected: message={type(found).__name__}")
        return found.data

    # --- messages -----------------------------------------------------------------------------------------------

    async def _converse(self, runner: Runner) -> None:
        skipping = False
        while not self._ending:
            found = await self._connection.message()
            if isinstance(found, m.Terminate):
                return
            if skipping and not isinstance(found, m.Sync):
                continue
            try:
                await self._answer(runner, found)
                skipping = skipping and not isinstance(found, m.Sync)
            except (PostgresRefusal, DbspError) as error:
                refusal = refusal_of(error) if isinstance(error, DbspError) else error
                runner.fail()
                self._connection.write(m.error(refusal.sqlstate, refusal.message, refusal.hint))
                if isinstance(found, m.Query):
                    self._connection.write(m.ready(runner.status))
                else:
                    skipping = True
            await self._connection.drain()

    async def _answer(self, runner: Runner, found: m.Message) -> None:
        match found:
            case m.Query(sql):
                await runner.run_text(sql)
                self._connection.write(m.ready(runner.status))
            case m.Parse():
                runner.prepare(found)
                self._connection.write(m.PARSE_COMPLETE)
            case m.Bind():
                runner.bind(found)
                self._connection.write(m.BIND_COMPLETE)
            case m.Describe("S", name):
                await runner.describe_statement(name)
            case m.Describe(_, name):
                await runner.describe_portal(name)
            case m.Execute(name, rows_max):
                await runner.execute(name, rows_max)
            case m.Close(kind, name):
                runner.forget(kind, name)
                self._connection.write(m.CLOSE_COMPLETE)
            case m.Sync():
                runner.synchronized()
                self._connection.write(m.ready(runner.status))
            case m.Password():
                raise ProtocolError("a password, and none was asked for")
            case m.Flush() | m.CopyInput() | m.Terminate():
                pass
