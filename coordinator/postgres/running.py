"""Run the statements of one session: SELECT by queries, SUBSCRIBE by the changes of views, all else on the session's state."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa

from dbsp.coordinator.postgres import messages as m
from dbsp.coordinator.postgres.backend import Backend
from dbsp.coordinator.postgres.connection import PostgresConnection
from dbsp.coordinator.postgres.copying import CopyStatement, copy_of
from dbsp.coordinator.postgres.fetching import fetch_of
from dbsp.coordinator.postgres.follow import Follow
from dbsp.coordinator.postgres.parameters import oid_of, text_of, type_name
from dbsp.coordinator.postgres.preparing import execute_of, executed, prepare_of
from dbsp.coordinator.postgres.refusals import READ_ONLY, SYNTAX, PostgresRefusal, read_only, refusal_of
from dbsp.coordinator.postgres.results import PORTALS_MAX, STATEMENTS_MAX, Portal, Prepared, described
from dbsp.coordinator.postgres.rows import batches, data_rows
from dbsp.coordinator.postgres.showing import shown_name, shown_schema
from dbsp.coordinator.postgres.sources import HeldRows, RowSource
from dbsp.coordinator.postgres.statements import WRITES, Statement, located, pieces_of, split, unquoted, value_part
from dbsp.coordinator.postgres.stopping import StopSignal
from dbsp.coordinator.postgres.subscribing import SUBSCRIBE, followed_schema, parameters_of, subscription_of
from dbsp.coordinator.postgres.transactions import IDLE, TransactionBlock, refuse_isolation
from dbsp.coordinator.postgres.variables import REPORTED, Variables
from dbsp.coordinator.postgres.whole_views import WholeViewRows, whole_view_of
from dbsp.coordinator.query.pg_types import INT8
from dbsp.coordinator.query.process import Stop
from dbsp.errors import DbspError

NO_SUCH_STATEMENT, NO_SUCH_CURSOR = "26000", "34000"
_SET_CONFIG = re.compile(
    r"(?is)\s*select\s+(?:pg_catalog\.)?set_config\(\s*'([^']*)'\s*,\s*'([^']*)'\s*,\s*\w+\s*\)[^,]*"
)
_ALL = (1 << 63) - 1
T = TypeVar("T")


class Runner:
    """The state of one PostgreSQL session (transaction, prepared statements, portals), and the execution of its statements."""

    def __init__(self, connection: PostgresConnection, backend: Backend, variables: Variables, user: str) -> None:
        """Begin without a transaction, a prepared statement or a portal."""
        self._connection, self._backend, self._variables = connection, backend, variables
        self._session = {"current_user": user}
        self._transaction = TransactionBlock()
        self._prepared: dict[str, Prepared] = {}
        self._portals: dict[str, Portal] = {}
        self._stop: Stop | StopSignal | None = None
        self._verbs: Mapping[str, Callable[[Statement], Awaitable[str]]] = {
            "BEGIN": self._begin, "START": self._begin, "COMMIT": self._commit, "END": self._commit, "ROLLBACK": self._roll_back,
            "ABORT": self._roll_back, "SAVEPOINT": self._savepoint, "RELEASE": self._release, "SET": self._set,
            "RESET": self._reset, "DISCARD": self._discard, "DEALLOCATE": self._deallocate, "CLOSE": self._close_cursor,
            "LISTEN": self._nothing, "UNLISTEN": self._nothing, "DECLARE": self._declare, "COPY": self._copy,
            "PREPARE": self._prepare,
        }  # fmt: skip

    # --- called by the session ---------------------------------------------------------------------------------

    async def run_text(self, sql: str) -> None:
        """Run all statements of a simple-query message, one after the other."""
        self._let_go("")
        statements = split(sql)
        if not statements:
            self._connection.write(m.EMPTY_QUERY)
        for statement in statements:
            portal = Portal(statement)
            try:
                await self._run(portal, 0, describe=True)
            finally:
                portal.close()
        self.synchronized()

    def prepare(self, asked: m.Parse) -> None:
        """Store a prepared statement; it is not checked before it is described or run."""
        if asked.name and asked.name in self._prepared:
            raise PostgresRefusal("42P05", f'prepared statement "{asked.name[:60]}" already exists')
        if len(self._prepared) >= STATEMENTS_MAX:
            raise PostgresRefusal("53400", f"too many prepared statements: most={STATEMENTS_MAX}", "close some")
        statements = split(asked.sql)
        if len(statements) > 1:
            raise PostgresRefusal(SYNTAX, "cannot insert multiple commands into a prepared statement")
        for oid in asked.types:
            type_name(oid)
        statement = statements[0] if statements else None
        if statement is not None:
            self._refuse_failed(statement)
        self._prepared[asked.name] = Prepared(statement, asked.types)

    def bind(self, asked: m.Bind) -> None:
        """Create a portal from a prepared statement and its parameter values."""
        prepared = self._statement(asked.statement)
        count, formats = len(asked.values), asked.formats
        if len(formats) not in (0, 1, count):
            raise PostgresRefusal("08P01", f"formats of other parameters: formats={len(formats)} values={count}")
        if asked.portal and asked.portal in self._portals:
            raise PostgresRefusal("42P03", f'portal "{asked.portal[:60]}" already exists')
        self._room_for_portal()
        values = []
        for place, value in enumerate(asked.values):
            oid = prepared.types[place] if place < len(prepared.types) else 0
            form = formats[place] if len(formats) == count else formats[0] if formats else m.TEXT_FORMAT
            values.append((type_name(oid), text_of(value, oid, form)))
        self._let_go(asked.portal)
        self._portals[asked.portal] = Portal(prepared.statement, tuple(values), asked.result_formats)

    async def describe_statement(self, name: str) -> None:
        """Send the parameter types and the result columns of a prepared statement."""
        prepared = self._statement(name)
        statement = prepared.statement
        schema: pa.Schema | None = None
        types = list(prepared.types)
        if statement is not None and statement.is_read:
            self._refuse_failed(statement)
        whole = None if statement is None else self._whole_view(statement)
        if whole is not None:
            schema = whole.schema
        elif statement is not None and statement.is_read:
            asked = [type_name(oid) for oid in prepared.types]
            schema, names = await self._stoppable(
                lambda stop: self._backend.describe(statement.text, asked, self._session, self._variables.values, stop)
            )
            types = [
                given or oid_of(found)
                for given, found in zip([*types, *[0] * (len(names) - len(types))], names, strict=False)
            ]
            self._prepared[name] = Prepared(statement, tuple(types))
        elif statement is not None and statement.verb == "SHOW":
            schema = shown_schema(statement)
        elif statement is not None and statement.verb == SUBSCRIBE:
            follow = subscription_of(statement.text)
            schema = followed_schema(self._backend.shared.schema(follow.view)[1], progress=follow.progress)
            types += [INT8.oid] * (parameters_of(statement.text) - len(types))
        elif statement is not None and statement.verb == "EXECUTE":
            schema = await self._schema_of(self._executed(statement))
        else:
            schema = self._fetched(statement)
        self._connection.write(m.parameter_description(types))
        self._connection.write(m.NO_DATA if schema is None else described(schema, [m.TEXT_FORMAT] * len(schema)))

    async def describe_portal(self, name: str) -> None:
        """Send the result columns of a portal; run the portal first, because only its result has the columns."""
        portal = self._portal(name)
        await self._fill(portal)
        schema = self._fetched(portal.statement) if portal.rows is None else portal.rows.schema
        formats = portal.formats_of(len(schema or ()))
        self._connection.write(m.NO_DATA if schema is None else described(schema, formats))

    def _fetched(self, statement: Statement | None) -> pa.Schema | None:
        """Return the columns of the cursor that a FETCH reads; None for other statements."""
        if statement is None or statement.verb != "FETCH":
            return None
        rows = self._portal(fetch_of(statement.text).cursor, NO_SUCH_CURSOR).rows
        return None if rows is None else rows.schema

    async def execute(self, name: str, rows_max: int) -> None:
        """Run a portal and send up to `rows_max` rows (0: all); continue a portal that was suspended."""
        portal = self._portal(name)
        if portal.statement is None:
            self._connection.write(m.EMPTY_QUERY)
            return
        await self._run(portal, rows_max, describe=False)

    def forget(self, kind: str, name: str) -> None:
        """Close a prepared statement (kind `S`) or a portal; do nothing if there is none of this name."""
        if kind == "S":
            self._prepared.pop(name, None)
        else:
            self._let_go(name)

    def synchronized(self) -> None:
        """Close the portals that end with their transaction, unless a transaction is open."""
        if self.status == IDLE:
            for name in [name for name, portal in self._portals.items() if not portal.held]:
                self._let_go(name)

    def fail(self) -> None:
        """Note an error: an open transaction has failed."""
        self._transaction.fail()
        self.synchronized()

    def cancel(self) -> None:
        """Cancel the running statement, if there is one."""
        if self._stop is not None:
            self._stop.stop()

    def close(self) -> None:
        """Cancel the running statement, and close all portals."""
        self.cancel()
        for name in list(self._portals):
            self._let_go(name)

    def apply_options(self, options: str) -> None:
        """Set the variables of the startup's `options`, such as `-c statement_timeout=5s`."""
        try:
            words = shlex.split(options)
        except ValueError:
            raise PostgresRefusal(
                "22023", f"the startup options cannot be read: {options[:60]!r}", "write -c name=value"
            ) from None
        for place, word in enumerate(words):
            text = (
                word.removeprefix("--")
                if word.startswith("--")
                else word
                if words[place - 1 : place] == ["-c"]
                else word[2:]
            )
            if word != "-c" and "=" in text:
                name, _, value = text.partition("=")
                self._variables.set(name, value)

    # --- running ------------------------------------------------------------------------------------------------

    async def _run(self, portal: Portal, rows_max: int, *, describe: bool) -> None:
        statement = portal.statement
        assert statement is not None  # noqa: S101 - the callers have looked
        begun = time.monotonic()
        sqlstate = "00000"
        try:
            self._refuse_failed(statement)
            if statement.verb in ("FETCH", "MOVE"):
                await self._fetch(statement, describe=describe)
                return
            await self._fill(portal)
            if portal.rows is None:
                self._connection.write(m.complete(await self._command(statement)))
                return
            if describe:
                self._connection.write(described(portal.rows.schema, portal.formats_of(len(portal.rows.schema))))
            await self._send(portal, portal.rows, rows_max)
        except (PostgresRefusal, DbspError) as error:
            sqlstate = error.sqlstate if isinstance(error, PostgresRefusal) else refusal_of(error).sqlstate
            raise
        finally:
            self._note(statement, sqlstate, time.monotonic() - begun)

    def _note(self, statement: Statement, sqlstate: str, seconds: float) -> None:
        if self._backend.log is not None:
            self._backend.log.write(
                client=self._connection.address, method=statement.verb, path="postgres", status=sqlstate,
                milliseconds=seconds * 1000,
            )  # fmt: skip

    async def _fill(self, portal: Portal) -> None:
        """Run the portal if its statement returns rows and it has not run yet; an EXECUTE becomes what it executes."""
        statement = portal.statement
        if statement is None or portal.rows is not None:
            return
        if statement.is_read or statement.verb in ("SHOW", SUBSCRIBE):
            self._refuse_failed(statement)
        whole = self._whole_view(statement) if statement.is_read and not portal.values else None
        if whole is not None:
            self._refuse_too_often()
            portal.rows = whole
        elif statement.is_read:
            portal.rows = await self._query(statement, portal.values)
        elif statement.verb == SUBSCRIBE:
            self._refuse_too_often()
            portal.rows = Follow(self._backend.shared, subscription_of(statement.text, portal.values))
        elif statement.verb == "SHOW":
            portal.rows = HeldRows(self._show(statement), self._backend.held, "SHOW")
        elif statement.verb == "EXECUTE":
            portal.become(self._executed(statement))
            await self._fill(portal)

    def _whole_view(self, statement: Statement) -> WholeViewRows | None:
        """Return the rows of a plain SELECT, which reads a view and nothing else; None for other statements."""
        return WholeViewRows.of(self._backend.shared, whole_view_of(statement.text))

    async def _query(self, statement: Statement, values: tuple[tuple[str | None, str | None], ...] = ()) -> RowSource:
        self._set_by_function(statement.text)
        self._refuse_too_often()
        return await self._stoppable(
            lambda stop: self._backend.query(
                statement.text, values, self._session, self._variables.values,
                timeout_s=self._variables.statement_timeout_s, stop=stop, tag=_tag(statement),
            )
        )  # fmt: skip

    def _refuse_too_often(self) -> None:
        if not self._backend.rates.allows(self._connection.address, time.monotonic()):
            raise PostgresRefusal(
                "53400", "too many statements a second", "ask again later, or raise `requests_per_s_max` in [http]"
            )

    def _set_by_function(self, sql: str) -> None:
        """Carry out `SELECT set_config(…)`, by which some clients set variables."""
        found = _SET_CONFIG.fullmatch(sql)
        if found is not None:
            self._variables.set(found[1], found[2])
            self._report(found[1])

    async def _stoppable(self, action: Callable[[Stop], Awaitable[T]]) -> T:
        self._stop = stop = Stop()
        if self._connection.gone:
            stop.stop()
        try:
            return await action(stop)
        finally:
            self._stop = None

    async def _send(self, portal: Portal, rows: RowSource, rows_max: int) -> None:
        """Send rows of a portal: all that are left, or up to `rows_max`."""
        formats = portal.formats_of(len(rows.schema))
        sent = await self._write(rows, rows_max or _ALL, formats, all_ready=bool(rows_max))
        if rows_max and sent and not rows.done:
            await self._backend.keep(rows)
            self._connection.write(m.SUSPENDED)
        else:
            self._connection.write(
                m.complete(f"{rows.tag} {sent}" if rows.tag not in ("SHOW", "EXPLAIN") else rows.tag)
            )

    async def _write(
        self,
        rows: RowSource,
        count: int,
        formats: Sequence[int] | CopyStatement | None,
        *,
        all_ready: bool = False,
        wait_s: float | None = None,
    ) -> int:
        """Write up to `count` rows as they become available; return the number of rows written.

        `formats` are the column formats, or the COPY statement that decides the format; with None rows are skipped.
        `wait_s` limits the wait for rows. With `all_ready` only the first rows are waited for.
        """
        self._stop = stop = StopSignal(self._variables.statement_timeout_s)
        if self._connection.gone:
            stop.stop()
        sent = 0
        try:
            while sent < count and not rows.done:
                table = await rows.take(count - sent, stop, 0.0 if sent and all_ready else wait_s)
                if not len(table):
                    break
                for batch in batches(table) if formats is not None else ():
                    stop.refuse()
                    await self._write_batch(batch, formats, first=not sent)
                    sent += len(batch)
                sent += len(table) if formats is None else 0
        finally:
            self._stop = None
        return sent

    async def _write_batch(
        self, batch: pa.RecordBatch, formats: Sequence[int] | CopyStatement | None, *, first: bool
    ) -> None:
        if isinstance(formats, CopyStatement):
            data = await self._backend.encoders.run(formats.rows, batch, first=first)
        else:
            data = await self._backend.encoders.run(data_rows, batch, formats or ())
        self._connection.write(data)
        await self._connection.drain()

    async def _command(self, statement: Statement) -> str:
        """Carry out a statement without rows; return its tag."""
        verb = self._verbs.get(statement.verb)
        if verb is not None:
            return await verb(statement)
        if statement.verb in WRITES:
            raise read_only(statement.verb)
        raise PostgresRefusal(
            SYNTAX,
            f'syntax error at or near "{statement.verb[:60]}"',
            "write SELECT, SUBSCRIBE, SHOW, SET, BEGIN or COPY (SELECT …) TO STDOUT",
        )

    def _refuse_failed(self, statement: Statement) -> None:
        self._transaction.refuse_failed(statement)

    # --- transactions -------------------------------------------------------------------------------------------

    @property
    def status(self) -> str:
        """Return the letter of the transaction's state, as `ReadyForQuery` has it."""
        return self._transaction.status

    async def _begin(self, statement: Statement) -> str:
        return self._warned(*self._transaction.begin(statement))

    async def _commit(self, _statement: Statement) -> str:
        tag = self._warned(*self._transaction.commit())
        self.synchronized()
        return tag

    async def _roll_back(self, statement: Statement) -> str:
        tag = self._warned(*self._transaction.roll_back(statement))
        self.synchronized()
        return tag

    def _warned(self, tag: str, warning: tuple[str, str] | None) -> str:
        """Send the warning, if there is one."""
        if warning is not None:
            self._connection.write(m.notice(*warning))
        return tag

    async def _savepoint(self, statement: Statement) -> str:
        return self._transaction.note_place(statement)

    async def _release(self, statement: Statement) -> str:
        return self._transaction.release(statement)

    # --- variables ----------------------------------------------------------------------------------------------

    async def _set(self, statement: Statement) -> str:
        pieces = pieces_of(statement.text)[1:]
        if pieces[:1] in (["SESSION"], ["LOCAL"]) and pieces[1:2] not in (["CHARACTERISTICS"], ["AUTHORIZATION"]):
            pieces = pieces[1:]
        match pieces:
            case ["TRANSACTION" | "CONSTRAINTS", *_] | ["SESSION", "CHARACTERISTICS", *_]:
                refuse_isolation(pieces)
                return "SET"
            case ["TIME", "ZONE", *value]:
                name = "timezone"
            case ["NAMES", *value]:
                name = "client_encoding"
            case ["ROLE" | "SESSION", *_] if "NONE" in pieces or "DEFAULT" in pieces:
                return "SET"
            case [name, "=" | "TO", *value]:
                pass
            case [first, ".", second, "=" | "TO", *value]:
                name = f"{first}.{second}"
            case _:
                raise PostgresRefusal(
                    SYNTAX, f"SET needs a variable and a value: {statement.text[:80]!r}", "write SET name = value"
                )
        if not value:
            raise PostgresRefusal(SYNTAX, f"SET needs a value: {statement.text[:80]!r}", "write SET name = value")
        parts = [unquoted(piece) if len(value) == 1 else piece for piece in value]
        text = (
            parts[0] if len(parts) == 1 else "".join(f"{part} " if part == "," else value_part(part) for part in parts)
        )
        self._variables.set(unquoted(name), None if text == "default" else text)
        self._report(unquoted(name))
        return "SET"

    async def _reset(self, statement: Statement) -> str:
        pieces = pieces_of(statement.text)[1:]
        if pieces == ["ALL"]:
            self._variables.reset()
        elif pieces not in (["ROLE"], ["SESSION", "AUTHORIZATION"]):
            name = "timezone" if pieces == ["TIME", "ZONE"] else "".join(unquoted(piece) for piece in pieces)
            self._variables.set(name, None)
            self._report(name)
        return "RESET"

    def _report(self, name: str) -> None:
        title = REPORTED.get(name.lower())
        if title is not None:
            self._connection.write(m.parameter_status(title, self._variables.get(name)))

    def _show(self, statement: Statement) -> pa.Table:
        schema = shown_schema(statement)
        if len(schema) > 1:
            rows = sorted(self._variables.values.items())
            return pa.table([[name for name, _ in rows], [value for _, value in rows], [""] * len(rows)], schema=schema)
        return pa.table([[self._variables.get(shown_name(statement))]], schema=schema)

    # --- statements and cursors ---------------------------------------------------------------------------------

    async def _discard(self, statement: Statement) -> str:
        if statement.words[1:2] == ("ALL",):
            if self.status != IDLE:
                raise PostgresRefusal("25001", "DISCARD ALL cannot run inside a transaction block")
            self._variables.reset()
            self._prepared.clear()
            for name in list(self._portals):
                self._let_go(name)
        return f"DISCARD {' '.join(statement.words[1:2])}"

    async def _prepare(self, statement: Statement) -> str:
        asked = prepare_of(statement.text)
        self.prepare(m.Parse(asked.name, asked.text, asked.types))
        return "PREPARE"

    def _executed(self, statement: Statement) -> Portal:
        asked = execute_of(statement.text)
        return executed(asked, self._statement(asked.name))

    async def _schema_of(self, portal: Portal) -> pa.Schema | None:
        """Return the columns of a portal's result, which is dropped."""
        await self._fill(portal)
        schema = None if portal.rows is None else portal.rows.schema
        portal.close()
        return schema

    async def _deallocate(self, statement: Statement) -> str:
        words = [word for word in statement.words[1:] if word != "PREPARE"]
        if words == ["ALL"]:
            self._prepared.clear()
            return "DEALLOCATE ALL"
        self._statement(unquoted(words[0]) if words else "")
        del self._prepared[unquoted(words[0])]
        return "DEALLOCATE"

    async def _nothing(self, statement: Statement) -> str:
        return statement.verb

    async def _declare(self, statement: Statement) -> str:
        pieces = statement.words
        if len(pieces) < 4 or "FOR" not in pieces:  # noqa: PLR2004 - DECLARE name CURSOR FOR
            raise PostgresRefusal(SYNTAX, "not a DECLARE CURSOR statement", "write DECLARE name CURSOR FOR SELECT …")
        name, held = unquoted(pieces[1]), "HOLD" in pieces[: pieces.index("FOR")]
        if self.status == IDLE and not held:
            raise PostgresRefusal(
                "25P01", "DECLARE CURSOR can only be used in transaction blocks", "BEGIN first, or declare it WITH HOLD"
            )
        if name in self._portals:
            raise PostgresRefusal("42P03", f'cursor "{name[:60]}" already exists')
        self._room_for_portal()
        begin = next(last for word, _, last in located(statement.text) if word == "FOR")
        found = split(statement.text[begin:])
        if len(found) != 1 or not (found[0].is_read or found[0].verb == SUBSCRIBE):
            raise PostgresRefusal(
                READ_ONLY, "a cursor is for a SELECT or a SUBSCRIBE", "write DECLARE name CURSOR FOR SELECT …"
            )
        portal = Portal(found[0], held=held)
        await self._fill(portal)
        try:
            await self._backend.keep(portal.rows)
        except BaseException:
            portal.close()
            raise
        self._portals[name] = portal
        return "DECLARE CURSOR"

    async def _fetch(self, statement: Statement, *, describe: bool) -> None:
        """Send the next rows of a cursor: `FETCH [count | ALL | NEXT] [FROM] cursor [WITH (TIMEOUT = '1s')]`."""
        asked = fetch_of(statement.text)
        portal = self._portal(asked.cursor, NO_SUCH_CURSOR)
        await self._fill(portal)
        rows = portal.rows
        assert rows is not None  # noqa: S101 - a cursor has rows
        formats = [m.TEXT_FORMAT] * len(rows.schema) if statement.verb == "FETCH" else None
        if describe and formats is not None:
            self._connection.write(described(rows.schema, formats))
        sent = await self._write(rows, asked.count, formats, all_ready=True, wait_s=asked.wait_s)
        self._connection.write(m.complete(f"{statement.verb} {sent}"))

    async def _close_cursor(self, statement: Statement) -> str:
        name = statement.words[1:2]
        if name == ("ALL",):
            for each in list(self._portals):
                self._let_go(each)
        else:
            self._portal(unquoted(name[0]) if name else "", NO_SUCH_CURSOR)
            self._let_go(unquoted(name[0]))
        return "CLOSE CURSOR"

    async def _copy(self, statement: Statement) -> str:
        copy = copy_of(statement.text)
        found = split(copy.select)
        portal = Portal(
            found[0] if len(found) == 1 and found[0].verb == SUBSCRIBE else Statement(copy.select, ("SELECT",))
        )
        try:
            await self._fill(portal)
            rows = portal.rows
            assert rows is not None  # noqa: S101 - both kinds have rows
            self._connection.write(m.copy_out(len(rows.schema), binary=copy.kind == "binary"))
            self._connection.write(copy.head(rows.schema.names))
            sent = await self._write(rows, _ALL, copy)
            self._connection.write(copy.end(sent) + m.COPY_DONE)
        finally:
            portal.close()
        return f"COPY {sent}"

    # --- prepared statements, portals and cursors -----------------------------------------------------------------

    def _statement(self, name: str) -> Prepared:
        found = self._prepared.get(name)
        if found is None:
            raise PostgresRefusal(NO_SUCH_STATEMENT, f'prepared statement "{name[:60]}" does not exist')
        return found

    def _portal(self, name: str, sqlstate: str = NO_SUCH_CURSOR) -> Portal:
        found = self._portals.get(name)
        if found is None:
            raise PostgresRefusal(sqlstate, f'cursor "{name[:60]}" does not exist')
        return found

    def _room_for_portal(self) -> None:
        if len(self._portals) >= PORTALS_MAX:
            raise PostgresRefusal("53400", f"too many cursors: most={PORTALS_MAX}", "close some")

    def _let_go(self, name: str) -> None:
        portal = self._portals.pop(name, None)
        if portal is not None:
            portal.close()


def _tag(statement: Statement) -> str:
    return "EXPLAIN" if statement.verb == "EXPLAIN" else "SELECT"
