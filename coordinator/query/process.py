"""Run queries in a process of their own, so that no statement can exhaust the coordinator's memory or time, or end it.

A process is started for the first query and kept for the next. It is killed when its query reaches a limit, is
cancelled, or does not end `KILL_AFTER_S` after its time. At most `at_once_max` queries run at a time; more wait, and
are refused after a time limit. Module `child` is the other side.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias

import pyarrow as pa

from dbsp.coordinator.children import ChildProcess, put
from dbsp.coordinator.exits import error_of
from dbsp.coordinator.query.child import get_table, put_table, too_much_memory
from dbsp.coordinator.query.pushdown import Needed
from dbsp.coordinator.query.sieve import Sieve
from dbsp.coordinator.query.statement import READABLE_ALL, QueryLimits, Unreadable
from dbsp.errors import CapacityError, ConfigError, DbspError, UnavailableError

START_S = 60.0
KILL_AFTER_S = 2.0
COMMAND = [sys.executable, "-P", "-m", "dbsp.coordinator.query.child"]

Given: TypeAlias = pa.Table | Iterator[pa.Table]
"""The needed rows of a view as one table, or all its rows in pieces, from which the view's sieve takes the needed ones."""
Read: TypeAlias = Callable[[Mapping[str, Needed]], AbstractContextManager[Mapping[str, Given]]]


class TakesBack(Protocol):
    """A function that receives the process of a finished query."""

    def __call__(self, process: _Process, *, sound: bool) -> None:
        """Receive the process; `sound` says whether it can run another query."""


class QueryStopped(UnavailableError):  # noqa: N818 - it is no fault
    """The error of a query that its caller has cancelled."""


class Stop:
    """A switch by which any thread can cancel one query, before it begins or while it runs."""

    def __init__(self) -> None:
        """Create the switch without a process to end."""
        self._lock = threading.Lock()
        self._process: ChildProcess | None = None
        self.is_set = False

    def stop(self) -> None:
        """End the process of the query; without one, the query does not begin."""
        with self._lock:
            self.is_set = True
            if self._process is not None:
                self._process.kill()

    @contextmanager
    def ending(self, process: ChildProcess) -> Iterator[None]:
        """Run the body, and end the process when somebody stops the query; raise `QueryStopped` then."""
        with self._lock:
            self._refuse_stopped()
            self._process = process
        try:
            yield
        except DbspError:
            self._refuse_stopped()
            raise
        finally:
            with self._lock:
                self._process = None

    def _refuse_stopped(self) -> None:
        if self.is_set:
            raise QueryStopped("the query was cancelled")


class Queries:
    """The queries of a service; each runs in a process that serves one query at a time."""

    def __init__(self, *, at_once_max: int = 2, command: Sequence[str] = COMMAND) -> None:
        """Start no process before the first query."""
        self._command = list(command)
        self._places = threading.Semaphore(at_once_max)
        self._lock = threading.Lock()
        self._idle: _Process | None = None
        self._closed = False

    def ask(
        self,
        sql: str,
        views: Sequence[str],
        read: Read,
        limits: QueryLimits,
        unread: Unreadable = READABLE_ALL,
        *,
        dialect: Mapping[str, Any] | None = None,
        stop: Stop | None = None,
        explain: str | None = None,
    ) -> pa.Table:
        """Return the statement's result; `read(parts)` yields the views that it reads; views in `unread` cannot be read.

        `dialect` are the parts of a `dialect.Dialect`, for a statement in PostgreSQL's. `stop` breaks the query off. `explain`
        asks for the plan; see `statement.run_query`.

        **Errors** `ConfigError` for a statement that is refused or wrong; `CapacityError` names the limit that was
        reached; `UnavailableError` while too many run; `QueryStopped` after `stop.stop()`.
        """
        asked = SentQuery(sql=sql, views=views, unread=unread, limits=limits, dialect=dialect, explain=explain)
        with closing(self._open(asked, read, stop or Stop())) as portions:
            return pa.concat_tables(portions)

    def open(
        self,
        sql: str,
        views: Sequence[str],
        read: Read,
        limits: QueryLimits,
        unread: Unreadable = READABLE_ALL,
        *,
        dialect: Mapping[str, Any] | None = None,
        stop: Stop | None = None,
        ends_s: float,
    ) -> Portions:
        """Return the statement's result in portions, to be closed; the first portion is there. See `ask`.

        `rows_max` and `result_mb_max` do not count. The process serves no other query until the result is closed or at its
        end. It is ended `ends_s` seconds from now.
        """
        asked = SentQuery(sql=sql, views=views, unread=unread, limits=limits, dialect=dialect, streamed=True)
        return self._open(asked, read, stop or Stop(), ends_s)

    def _open(self, asked: SentQuery, read: Read, stop: Stop, ends_s: float | None = None) -> Portions:
        if not self._places.acquire(timeout=asked.limits.timeout_s):
            raise UnavailableError("too many queries run at once", "ask again, or raise `at_once_max` in [query]")
        try:
            process = self._take()
        except BaseException:
            self._places.release()
            raise
        found = Portions(process, asked.limits, stop, self._ended, ends_s)
        found.begin(asked, read)
        return found

    def _ended(self, process: _Process, *, sound: bool) -> None:
        """Keep the process of a finished query for the next one, or end it if it is not usable."""
        self._places.release()
        if sound:
            self._give_back(process)
        else:
            process.close()

    def close(self) -> None:
        """End the idle process; a busy one ends with its query."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, None
        if idle is not None:
            idle.close()

    def __enter__(self) -> Self:
        """Return this object."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the queries."""
        self.close()

    def _take(self) -> _Process:
        with self._lock:
            found, self._idle = self._idle, None
        if found is not None and found.alive:
            return found
        if found is not None:
            found.close()
        return _Process(self._command)

    def _give_back(self, process: _Process) -> None:
        with self._lock:
            if self._idle is None and not self._closed:
                self._idle = process
                return
        process.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class SentQuery:
    """A query, as it is sent to its process."""

    sql: str
    views: Sequence[str]
    unread: Unreadable
    limits: QueryLimits
    dialect: Mapping[str, Any] | None = None
    explain: str | None = None
    streamed: bool = False


class Portions:
    """The result of one query, portion by portion, each a table; to be closed. One thread at a time reads it."""

    def __init__(
        self, process: _Process, limits: QueryLimits, stop: Stop, ended: TakesBack, ends_s: float | None = None
    ) -> None:
        """Hold the process, which `ended` takes back."""
        self._process, self._limits, self._stop, self._ended = process, limits, stop, ended
        self._first: pa.Table | None = None
        self._lock = threading.Lock()
        self._over = self._late = False
        self._timer = None if ends_s is None else threading.Timer(ends_s, self._end_late)
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()

    @property
    def schema(self) -> pa.Schema:
        """Return the columns; only before the first portion is read."""
        assert self._first is not None  # noqa: S101 - it was begun
        return self._first.schema

    def begin(self, asked: SentQuery, read: Read) -> None:
        """Run the query up to its first portion."""
        with self._ends_on_errors():
            self._process.begin(asked, read)
            self._first = self._process.portion(self._limits)

    def __iter__(self) -> Iterator[pa.Table]:
        """Yield the portions that are left."""
        while (portion := self.next()) is not None:
            yield portion

    def next(self) -> pa.Table | None:
        """Return the next portion; None after the last.

        **Errors** those of a query, and `CapacityError` once the result was open too long.
        """
        first, self._first = self._first, None
        if first is not None:
            return first
        if self._over:
            if self._late:
                raise CapacityError("the result was read too slowly", "ask for less, or raise `lease_s` in [query]")
            return None
        with self._ends_on_errors():
            found = self._process.portion(self._limits)
        if found is None:
            self._end(sound=True)
        return found

    @contextmanager
    def _ends_on_errors(self) -> Iterator[None]:
        """End the query with an error of the body; the process can be used again after a statement that was refused."""
        try:
            with self._stop.ending(self._process):
                yield
        except BaseException as error:
            late = self._late
            self._end(sound=isinstance(error, ConfigError))
            if late:
                raise CapacityError(
                    "the result was read too slowly", "ask for less, or raise `lease_s` in [query]"
                ) from error
            raise

    def _end_late(self) -> None:
        """End a result that was open too long: its reader gets an error, and the next query a place."""
        with self._lock:
            self._late = not self._over
            if self._late:
                self._process.kill()
        self._end(sound=False)

    def _end(self, *, sound: bool) -> None:
        with self._lock:
            if self._over:
                return
            self._over = True
        if self._timer is not None:
            self._timer.cancel()
        self._ended(self._process, sound=sound)

    def close(self) -> None:
        """Drop what was not read; repeating it does nothing."""
        self._end(sound=False)


class _Process(ChildProcess):
    """The service's side of one process that runs queries."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start the process, shielded from interrupts at the terminal."""
        super().__init__(command)
        self._late = False
        with self._killed_after(START_S):
            started = self._out.readline()
        if not started:
            story = self._ended()
            self.close()
            raise UnavailableError(f"no process for queries could be started: {story}", "ask again")

    @property
    def alive(self) -> bool:
        """Return True if the process still runs."""
        return self._process.poll() is None

    def begin(self, asked: SentQuery, read: Read) -> None:
        """Begin one query."""
        limits = asked.limits
        with self._bounded(limits):
            put(self._in, asdict(asked) | {"views": list(asked.views)})
            parts = {name: _needed(each) for name, each in self._answer()["reads"].items()}
        with read(parts) as given:
            with self._bounded(limits):
                put(self._in, {"bytes": sum(each.nbytes for each in given.values() if isinstance(each, pa.Table))})
            for name in parts:
                self._send(given[name], limits)

    def _send(self, given: Given, limits: QueryLimits) -> None:
        """Send the rows of a view; pieces as long as the process needs more."""
        if isinstance(given, pa.Table):
            with self._bounded(limits):
                put(self._in, {"whole": True})
                put_table(self._in, given)
                self._in.flush()
            return
        for piece in given:
            with self._bounded(limits):
                put(self._in, {"piece": True})
                put_table(self._in, piece)
                self._in.flush()
                if not self._answer()["more"]:
                    break
        with self._bounded(limits):
            put(self._in, {"end": True})

    def portion(self, limits: QueryLimits) -> pa.Table | None:
        """Return the next portion of the result; None after the last."""
        with self._bounded(limits):
            return None if "done" in self._answer() else get_table(self._out)

    @contextmanager
    def _bounded(self, limits: QueryLimits) -> Iterator[None]:
        """Run the body, and kill the process when its time is over."""
        try:
            with self._killed_after(limits.timeout_s + KILL_AFTER_S):
                yield
        except (OSError, pa.ArrowException, ValueError) as error:
            raise self._broken_off(limits) from error

    def _answer(self) -> dict[str, Any]:
        line = self._out.readline()
        if not line:
            raise BrokenPipeError("the process for queries ended")
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise error_of(**found["error"])
        return found

    def _broken_off(self, limits: QueryLimits) -> DbspError:
        """Return why the process gave no result: killed after its time, or ended by the system at its memory limit."""
        story = self._ended()
        if self._late:
            hint = "ask for less, or raise `timeout_s` in [query]"
            return CapacityError(f"the query took too long: timeout_s={limits.timeout_s}", hint)
        error = too_much_memory(limits)
        return CapacityError(f"{error.message} ({story})", error.hint)

    @contextmanager
    def _killed_after(self, seconds: float) -> Iterator[None]:
        timer = threading.Timer(seconds, self._kill_late)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _kill_late(self) -> None:
        self._late = True
        self._process.kill()


def _needed(found: Mapping[str, Any]) -> Needed:
    sieve = found["sieve"]
    return Needed(**{**found, "sieve": None if sieve is None else Sieve(**sieve)})


__all__ = ["Portions", "Queries", "QueryStopped", "Stop"]
