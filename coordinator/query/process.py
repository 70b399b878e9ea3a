"""Run queries in a process of their own, so that no statement can exhaust the coordinator's memory or time, or end it.

A process is started for the first query and kept for the next. It is killed when its query reaches a limit, breaks off,
or does not end `KILL_AFTER_S` after its time. At most `at_once_max` queries run at a time; more wait, and are refused
after a time limit. Module `child` is the other side.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self, TypeAlias

import pyarrow as pa

from dbsp.coordinator.children import ChildProcess, put
from dbsp.coordinator.exits import error_of
from dbsp.coordinator.query.child import get_table, put_table, too_much_memory
from dbsp.coordinator.query.pushdown import Needed
from dbsp.coordinator.query.statement import READABLE_ALL, QueryLimits, Unreadable
from dbsp.errors import CapacityError, ConfigError, DbspError, UnavailableError

START_S = 60.0
KILL_AFTER_S = 2.0
COMMAND = [sys.executable, "-P", "-m", "dbsp.coordinator.query.child"]

Read: TypeAlias = Callable[[Mapping[str, Needed]], Mapping[str, pa.Table]]


class QueryStopped(UnavailableError):  # noqa: N818 - it is no fault
    """A query was broken off by the one who asked."""


class Stop:
    """A switch that breaks one query off, from any thread: before it begins or while it runs."""

    def __init__(self) -> None:
        """Have nothing to end yet."""
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
        """Return the statement's result; `read(parts)` returns the views that it reads; views in `unread` cannot be read.

        `dialect` are the parts of a `dialect.Dialect`, for a statement in PostgreSQL's. `stop` breaks the query off. `explain`
        asks for the plan; see `statement.run_query`.

        **Errors** `ConfigError` for a statement that is refused or wrong; `CapacityError` names the limit that was
        reached; `UnavailableError` while too many run; `QueryStopped` after `stop.stop()`.
        """
        if not self._places.acquire(timeout=limits.timeout_s):
            raise UnavailableError("too many queries run at once", "ask again, or raise `at_once_max` in [query]")
        try:
            process = self._take()
            try:
                with (stop or Stop()).ending(process):
                    found = process.ask(sql, views, read, limits, unread, dialect, explain)
            except ConfigError:
                self._give_back(process)
                raise
            except BaseException:
                process.close()
                raise
            self._give_back(process)
            return found
        finally:
            self._places.release()

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

    def ask(
        self,
        sql: str,
        views: Sequence[str],
        read: Read,
        limits: QueryLimits,
        unread: Unreadable,
        dialect: Mapping[str, Any] | None,
        explain: str | None,
    ) -> pa.Table:
        """Run one query and return its result."""
        asked = {
            "sql": sql, "views": list(views), "unread": asdict(unread), "limits": asdict(limits), "dialect": dialect,
            "explain": explain,
        }  # fmt: skip
        with self._bounded(limits):
            put(self._in, asked)
            parts = {name: Needed(**needed) for name, needed in self._answer()["reads"].items()}
        tables = read(parts)
        with self._bounded(limits):
            put(self._in, {"bytes": sum(table.nbytes for table in tables.values())})
            for name in parts:
                put_table(self._in, tables[name])
            self._in.flush()
            self._answer()
            return get_table(self._out)

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


__all__ = ["Queries", "QueryStopped", "Stop"]
