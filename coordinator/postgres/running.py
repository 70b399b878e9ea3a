"""Run the statements of one session: SELECT by the service's queries, everything else on the session's own state.

The state of a transaction is kept as clients expect. It protects nothing, since nothing is written. Every statement reads the
views as of one step of its own, which is what READ COMMITTED promises.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import pyarrow as pa

from dbsp.coordinator.postgres import messages as m
from dbsp.coordinator.postgres.backend import Backend
from dbsp.coordinator.postgres.connection import PostgresConnection
from dbsp.coordinator.postgres.copying import copy_of
from dbsp.coordinator.postgres.parameters import text_of, type_name
from dbsp.coordinator.postgres.refusals import NOT_SUPPORTED, READ_ONLY, SYNTAX, WRITE_HINT, PostgresRefusal, refusal_of
from dbsp.coordinator.postgres.results import PORTALS_MAX, STATEMENTS_MAX, Portal, Prepared, described
from dbsp.coordinator.postgres.rows import batches, data_rows
from dbsp.coordinator.postgres.statements import WRITES, Statement, pieces_of, split, unquoted
from dbsp.coordinator.postgres.variables import REPORTED, Variables
from dbsp.coordinator.query.pg_types import BY_OID, OIDS, TEXT
from dbsp.coordinator.query.process import Stop
from dbsp.errors import DbspError

IDLE, OPEN, FAILED = "I", "T", "E"
NO_SUCH_STATEMENT, NO_SUCH_CURSOR, FAILED_TRANSACTION = "26000", "34000", "25P02"
_SET_CONFIG = re.compile(
    r"(?is)\s*select\s+(?:pg_catalog\.)?set_config\(\s*'([^']*)'\s*,\s*'([^']*)'\s*,\s*\w+\s*\)[^,]*"
)
_SAVEPOINTS_MAX = 1000
_ALL = (1 << 31) - 1


class Runner:
    """The state of a session, and its statements."""

    def __init__(self, connection: PostgresConnection, backend: Backend, variables: Variables, user: str) -> None:
        """Have no transaction, statement or portal."""
        self._connection, self._backend, self._variables = connection, backend, variables
        self._session = {"current_user": user}
        self.status = IDLE
        self._prepared: dict[str, Prepared] = {}
        self._portals: dict[str, Portal] = {}
        self._savepoints: list[str] = []
        self._stop: Stop | None = None
        self._verbs: Mapping[str, Callable[[Statement], Awaitable[str]]] = {
            "BEGIN": self._begin, "START": self._begin, "COMMIT": self._commit, "END": self._commit, "ROLLBACK": self._roll_back,
            "ABORT": self._roll_back, "SAVEPOINT": self._savepoint, "RELEASE": self._release, "SET": self._set,
            "RESET": self._reset, "DISCARD": self._discard, "DEALLOCATE": self._deallocate, "CLOSE": self._close_cursor,
            "LISTEN": self._nothing, "UNLISTEN": self._nothing, "DECLARE": self._declare, "COPY": self._copy,
        }  # fmt: skip

    # --- what the session calls ---------------------------------------------------------------------------------

    async def run_text(self, sql: str) -> None:
        """Run all statements of a simple query."""
        self._let_go("")
        statements = split(sql)
        if not statements:
            self._connection.write(m.EMPTY_QUERY)
        for statement in statements:
            portal = Portal(statement)
            try:
                await self._run(portal, 0, describe=True)
            finally:
                self._release_table(portal)
        self.synchronized()

    def prepare(self, asked: m.Parse) -> None:
        """Prepare a statement; it is looked into when it is described or run."""
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
        """Make a portal of a statement and values."""
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
        """Tell the parameters and the columns of a statement."""
        prepared = self._statement(name)
        statement = prepared.statement
        schema: pa.Schema | None = None
        types = list(prepared.types)
        if statement is not None and statement.is_read:
            self._refuse_failed(statement)
            asked = [type_name(oid) for oid in prepared.types]
            schema, names = await self._stoppable(
                lambda stop: self._backend.describe(statement.text, asked, self._session, self._variables.values, stop)
            )
            types = [
                given or _oid_of(found)
                for given, found in zip([*types, *[0] * (len(names) - len(types))], names, strict=False)
            ]
            self._prepared[name] = Prepared(statement, tuple(types))
        elif statement is not None and statement.verb == "SHOW":
            schema = _shown_schema(statement)
        self._connection.write(m.parameter_description(types))
        self._connection.write(m.NO_DATA if schema is None else described(schema, [m.TEXT_FORMAT] * len(schema)))

    async def describe_portal(self, name: str) -> None:
        """Tell the columns of a portal, which runs for that."""
        portal = self._portal(name)
        await self._fill(portal)
        if portal.table is None:
            self._connection.write(m.NO_DATA)
        else:
            self._connection.write(described(portal.table.schema, portal.formats_of(portal.table.num_columns)))

    async def execute(self, name: str, rows_max: int) -> None:
        """Run a portal, or send more of its rows."""
        portal = self._portal(name)
        if portal.statement is None:
            self._connection.write(m.EMPTY_QUERY)
            return
        await self._run(portal, rows_max, describe=False)

    def forget(self, kind: str, name: str) -> None:
        """Close a statement or a portal; there need be none."""
        if kind == "S":
            self._prepared.pop(name, None)
        else:
            self._let_go(name)

    def synchronized(self) -> None:
        """End what lives no longer than a transaction, where none is open."""
        if self.status == IDLE:
            for name in [name for name, portal in self._portals.items() if not portal.held]:
                self._let_go(name)

    def fail(self) -> None:
        """Note an error: an open transaction has failed."""
        if self.status == OPEN:
            self.status = FAILED
        self.synchronized()

    def cancel(self) -> None:
        """Break off what runs, if anything does."""
        if self._stop is not None:
            self._stop.stop()

    def close(self) -> None:
        """Let go of everything."""
        self.cancel()
        for name in list(self._portals):
            self._let_go(name)

    def apply_options(self, options: str) -> None:
        """Set the variables of the startup's `options`, such as `-c statement_timeout=5s`."""
        try:
            words = shlex.split(options)
        except ValueError:
            raise PostgresRefusal("22023", f"not options: {options[:60]!r}", "write -c name=value") from None
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
            if portal.table is None:
                self._connection.write(m.complete(await self._command(statement)))
                return
            if describe:
                self._connection.write(described(portal.table.schema, portal.formats_of(portal.table.num_columns)))
            await self._send(portal, rows_max)
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
        """Run a portal that has rows, unless it has run."""
        statement = portal.statement
        if statement is None or portal.table is not None:
            return
        if statement.is_read:
            self._refuse_failed(statement)
            portal.table = await self._query(statement.text, portal.values)
        elif statement.verb == "SHOW":
            self._refuse_failed(statement)
            portal.table = self._show(statement)
            portal.tag = "SHOW"
        if portal.table is not None:
            try:
                self._backend.held.take(portal.table.nbytes)
            except PostgresRefusal:
                portal.table = None
                raise

    async def _query(self, sql: str, values: tuple[tuple[str | None, str | None], ...] = ()) -> pa.Table:
        self._set_by_function(sql)
        if not self._backend.rates.allows(self._connection.address, time.monotonic()):
            raise PostgresRefusal(
                "53400", "too many statements a second", "ask again later, or raise `requests_per_s_max` in [http]"
            )
        return await self._stoppable(
            lambda stop: self._backend.query(
                sql, values, self._session, self._variables.values,
                timeout_s=self._variables.statement_timeout_s, stop=stop,
            )
        )  # fmt: skip

    def _set_by_function(self, sql: str) -> None:
        """Carry out `SELECT set_config(…)`, by which some clients set variables."""
        found = _SET_CONFIG.fullmatch(sql)
        if found is not None:
            self._variables.set(found[1], found[2])
            self._report(found[1])

    async def _stoppable(self, action: Callable[[Stop], Awaitable[pa.Table]]) -> pa.Table:
        self._stop = stop = Stop()
        if self._connection.gone:
            stop.stop()
        try:
            return await action(stop)
        finally:
            self._stop = None

    async def _send(self, portal: Portal, rows_max: int) -> None:
        """Send rows of a portal: all that are left, or up to `rows_max`."""
        table = portal.table
        assert table is not None  # noqa: S101 - the callers have looked
        rows = table.slice(portal.sent, rows_max or None)
        formats = portal.formats_of(table.num_columns)
        for batch in batches(rows):
            self._connection.write(await self._backend.encoders.run(data_rows, batch, formats))
            await self._connection.drain()
        portal.sent += len(rows)
        if rows_max and len(rows) == rows_max and portal.sent < len(table):
            self._connection.write(m.SUSPENDED)
        else:
            self._connection.write(m.complete(portal.tag or f"SELECT {len(rows)}"))

    async def _command(self, statement: Statement) -> str:
        """Carry out a statement without rows; return its tag."""
        verb = self._verbs.get(statement.verb)
        if verb is not None:
            return await verb(statement)
        if statement.verb in WRITES:
            raise PostgresRefusal(READ_ONLY, f"cannot execute {statement.verb} in a read-only transaction", WRITE_HINT)
        if statement.verb == "EXPLAIN":
            raise PostgresRefusal(
                NOT_SUPPORTED, "EXPLAIN is not supported", "`coordinator explain` shows how views are kept"
            )
        raise PostgresRefusal(
            SYNTAX,
            f'syntax error at or near "{statement.verb[:60]}"',
            "write SELECT, SHOW, SET, BEGIN or COPY (SELECT …) TO STDOUT",
        )

    def _refuse_failed(self, statement: Statement) -> None:
        if self.status == FAILED and statement.verb not in ("ROLLBACK", "ABORT", "COMMIT", "END"):
            raise PostgresRefusal(
                FAILED_TRANSACTION, "current transaction is aborted, commands ignored until end of transaction block"
            )

    # --- transactions -------------------------------------------------------------------------------------------

    async def _begin(self, statement: Statement) -> str:
        self._refuse_isolation(pieces_of(statement.text))
        if self.status == OPEN:
            self._connection.write(m.notice("25001", "there is already a transaction in progress"))
        self.status = OPEN
        return "START TRANSACTION" if statement.verb == "START" else "BEGIN"

    async def _commit(self, _statement: Statement) -> str:
        tag = "ROLLBACK" if self.status == FAILED else "COMMIT"
        self._end_transaction()
        return tag

    async def _roll_back(self, statement: Statement) -> str:
        words = [word for word in statement.words if word not in ("WORK", "TRANSACTION", "SAVEPOINT")]
        if words[1:2] == ["TO"]:
            place = self._place_of(words[2:3])
            del self._savepoints[place + 1 :]
            self.status = OPEN
            return "ROLLBACK"
        self._end_transaction()
        return "ROLLBACK"

    def _end_transaction(self) -> None:
        if self.status == IDLE:
            self._connection.write(m.notice("25P01", "there is no transaction in progress"))
        self.status = IDLE
        self._savepoints.clear()
        self.synchronized()

    async def _savepoint(self, statement: Statement) -> str:
        self._refuse_outside("SAVEPOINT")
        if len(self._savepoints) >= _SAVEPOINTS_MAX:
            raise PostgresRefusal("53400", f"too many savepoints: most={_SAVEPOINTS_MAX}")
        self._savepoints.append(unquoted(statement.words[1]) if len(statement.words) > 1 else "")
        return "SAVEPOINT"

    async def _release(self, statement: Statement) -> str:
        self._refuse_outside("RELEASE SAVEPOINT")
        words = [word for word in statement.words[1:] if word != "SAVEPOINT"]
        del self._savepoints[self._place_of(words) :]
        return "RELEASE"

    def _refuse_outside(self, what: str) -> None:
        if self.status == IDLE:
            raise PostgresRefusal("25P01", f"{what} can only be used in transaction blocks")

    def _place_of(self, words: list[str] | tuple[str, ...]) -> int:
        name = unquoted(words[0]) if words else ""
        if name not in self._savepoints:
            raise PostgresRefusal("3B001", f'SAVEPOINT "{name[:60]}" does not exist')
        return len(self._savepoints) - 1 - self._savepoints[::-1].index(name)

    def _refuse_isolation(self, pieces: list[str]) -> None:
        text = " ".join(pieces)
        if "SERIALIZABLE" in text or "REPEATABLE READ" in text:
            raise PostgresRefusal(
                NOT_SUPPORTED, "every statement reads the views as of its own step: only READ COMMITTED is supported",
                "use READ COMMITTED, and one statement where values must fit together",
            )  # fmt: skip

    # --- variables ----------------------------------------------------------------------------------------------

    async def _set(self, statement: Statement) -> str:
        pieces = pieces_of(statement.text)[1:]
        if pieces[:1] in (["SESSION"], ["LOCAL"]) and pieces[1:2] not in (["CHARACTERISTICS"], ["AUTHORIZATION"]):
            pieces = pieces[1:]
        match pieces:
            case ["TRANSACTION" | "CONSTRAINTS", *_] | ["SESSION", "CHARACTERISTICS", *_]:
                self._refuse_isolation(pieces)
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
                    SYNTAX, f"not a variable and its value: {statement.text[:80]!r}", "write SET name = value"
                )
        if not value:
            raise PostgresRefusal(SYNTAX, f"no value: {statement.text[:80]!r}", "write SET name = value")
        parts = [unquoted(piece) if len(value) == 1 else piece for piece in value]
        text = parts[0] if len(parts) == 1 else "".join(f"{part} " if part == "," else _part(part) for part in parts)
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
        schema = _shown_schema(statement)
        if len(schema) > 1:
            rows = sorted(self._variables.values.items())
            return pa.table([[name for name, _ in rows], [value for _, value in rows], [""] * len(rows)], schema=schema)
        return pa.table([[self._variables.get(_shown_name(statement))]], schema=schema)

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
            raise PostgresRefusal(SYNTAX, "not a cursor", "write DECLARE name CURSOR FOR SELECT …")
        name, held = unquoted(pieces[1]), "HOLD" in pieces and "WITH" in pieces
        if self.status == IDLE and not held:
            raise PostgresRefusal(
                "25P01", "DECLARE CURSOR can only be used in transaction blocks", "BEGIN first, or declare it WITH HOLD"
            )
        if name in self._portals:
            raise PostgresRefusal("42P03", f'cursor "{name[:60]}" already exists')
        self._room_for_portal()
        found = split(re.split(r"(?i)\bfor\b", statement.text, maxsplit=1)[1])
        if len(found) != 1 or not found[0].is_read:
            raise PostgresRefusal(READ_ONLY, "a cursor is for a SELECT", "write DECLARE name CURSOR FOR SELECT …")
        portal = Portal(found[0], held=held)
        await self._fill(portal)
        self._portals[name] = portal
        return "DECLARE CURSOR"

    async def _fetch(self, statement: Statement, *, describe: bool) -> None:
        """Send the next rows of a cursor: `FETCH [count | ALL | NEXT] [FROM] cursor`."""
        pieces = [piece for piece in pieces_of(statement.text)[1:] if piece not in ("FROM", "IN", "FORWARD")]
        if not pieces or "BACKWARD" in pieces or "-" in pieces:
            raise PostgresRefusal(NOT_SUPPORTED, "cursors only go forward", "write FETCH count FROM cursor")
        portal = self._portal(unquoted(pieces[-1]), NO_SUCH_CURSOR)
        counts = {"ALL": _ALL, "NEXT": 1}
        given = pieces[0] if len(pieces) > 1 else "NEXT"
        if given not in counts and not given.isdecimal():
            raise PostgresRefusal(SYNTAX, f"not a count of rows: {given[:40]}", "write FETCH count FROM cursor")
        count = counts.get(given) if given in counts else min(int(given[:18]), _ALL)
        await self._fill(portal)
        assert portal.table is not None and count is not None  # noqa: S101, PT018 - a cursor has rows
        rows = portal.table.slice(portal.sent, count)
        portal.sent += len(rows)
        if statement.verb == "FETCH":
            if describe:
                self._connection.write(described(rows.schema, [m.TEXT_FORMAT] * rows.num_columns))
            for batch in batches(rows):
                formats = [m.TEXT_FORMAT] * rows.num_columns
                self._connection.write(await self._backend.encoders.run(data_rows, batch, formats))
                await self._connection.drain()
        self._connection.write(m.complete(f"{statement.verb} {len(rows)}"))

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
        table = await self._query(copy.select)
        self._backend.held.take(table.nbytes)
        try:
            self._connection.write(m.copy_out(table.num_columns, binary=copy.kind == "binary"))
            self._connection.write(copy.head(table.column_names))
            for number, batch in enumerate(batches(table)):
                self._connection.write(await self._backend.encoders.run(copy.rows, batch, first=not number))
                await self._connection.drain()
            self._connection.write(copy.end(len(table)) + m.COPY_DONE)
        finally:
            self._backend.held.give(table.nbytes)
        return f"COPY {len(table)}"

    # --- what is held -------------------------------------------------------------------------------------------

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
            self._release_table(portal)

    def _release_table(self, portal: Portal) -> None:
        if portal.table is not None:
            self._backend.held.give(portal.table.nbytes)
            portal.table = None


def _oid_of(name: str) -> int:
    found = OIDS.get(name.partition("(")[0].strip())
    return found if isinstance(found, int) and found in BY_OID else TEXT.oid


def _part(piece: str) -> str:
    with suppress(IndexError):
        if piece[0] == "'":
            return unquoted(piece)
    return piece if piece.startswith('"') else piece.lower()


def _shown_name(statement: Statement) -> str:
    pieces = pieces_of(statement.text)[1:]
    if pieces == ["TRANSACTION", "ISOLATION", "LEVEL"]:
        return "transaction_isolation"
    if pieces == ["TIME", "ZONE"]:
        return "timezone"
    if pieces == ["SESSION", "AUTHORIZATION"]:
        return "session_authorization"
    return "".join(unquoted(piece) for piece in pieces)


def _shown_schema(statement: Statement) -> pa.Schema:
    name = _shown_name(statement)
    names = ["name", "setting", "description"] if name == "all" else [REPORTED.get(name, name)]
    return pa.schema([(each, pa.string()) for each in names])
