"""Steps tried in processes of their own, and the search for the rows that end them. `trial_child` is the child's side.

Law of the search: the step lives without the rows found. If two rows end it only together, the later one is found.
"""

from __future__ import annotations

import base64
import json
import pickle
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

from dbsp.coordinator.children import ChildProcess
from dbsp.coordinator.exits import error_of
from dbsp.coordinator.running.attempts import Trial
from dbsp.coordinator.settings.config import Config
from dbsp.errors import DataError, UnavailableError
from dbsp.logs import Range, StepRecord
from dbsp.logs.replays import replayed_places
from dbsp.logs.step_commands import DEADLY, DroppedRow, drop_command

COMMAND = [sys.executable, "-P", "-m", "dbsp.coordinator.checks.trial_child"]
ROWS_MAX = 1000
"""The most rows to search for; if more rows end a step, the rows are not the cause."""

Place: TypeAlias = tuple[str, int, int]
"""Table, partition, offset."""


class ProcessTrials:
    """The tries of one pipeline's steps; several threads may call, and the tries run one at a time.

    **State** a process that has loaded the circuit, from the first try to `close` or its end.
    """

    def __init__(self, config: Config, *, command: Sequence[str] = COMMAND) -> None:
        """Keep the settings and the command; start no process before the first try."""
        self._config, self._command = config, list(command)
        self._turn = threading.Lock()
        self._process: _Process | None = None
        self._closed = False

    def death(self, trial: Trial) -> str | None:
        """Return how the process has ended that tried the step; None if it lived.

        **Errors** `UnavailableError` if no process can be started, or this one was closed.
        """
        found: str | None = self._asked("try", trial)["death"]
        return found

    def killing_rows(self, trial: Trial, death: str) -> tuple[DroppedRow, ...]:
        """Find the rows that end the step, with their content where it can be read.

        **Cost** about two tries for each bisection of the step's rows, for each row found.
        **Errors** `DataError` if the step ends its process without any row, or more than `ROWS_MAX` end it.
        """
        places = [
            (each.table, each.partition, at) for each in trial.record.ranges for at in range(each.first, each.last)
        ]
        replayed = replayed_places(trial.record.commands)

        def dies(kept: Sequence[Place]) -> bool:
            return self.death(replace(trial, record=reduced(trial.record, kept))) is not None

        if dies([]):
            raise DataError(
                f"the step crashes its process even without rows: step={trial.record.step} death={death}",
                "the circuit or a library crashes by itself: see the core file or the log of the system, fix it, start again",
            )
        found = killers([*places, *replayed], [], dies)
        contents = self._contents(trial, found)
        return tuple(
            DroppedRow(
                table=table, partition=partition, offset=offset, payload=contents.get((table, partition, offset), "")
            )
            for table, partition, offset in found
        )

    def _contents(self, trial: Trial, places: Sequence[Place]) -> dict[Place, str]:
        """Read rows in a process of its own, all together, or one by one where that dies."""
        record = reduced(trial.record, places)
        found = self._asked("show", replace(trial, record=record))
        if found["death"] is not None and len(places) > 1:
            return {place: text for each in places for place, text in self._contents(trial, [each]).items()}
        return {(table, partition, offset): text for table, partition, offset, text in found["rows"]}

    def _asked(self, kind: str, trial: Trial) -> dict[str, Any]:
        with self._turn:
            if self._closed:
                raise UnavailableError("the service has ended", "start it again")
            if self._process is None:
                self._process = _Process(self._command, self._config)
            try:
                return self._process.ask(kind, trial)
            except BaseException:
                self._process.close()
                self._process = None
                raise

    def close(self) -> None:
        """End the process, from any thread."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()
        with self._turn:  # the thread that was asking the killed process has returned by now
            if self._process is not None:
                self._process.close()
                self._process = None


class _Process(ChildProcess):
    """The process that forks one for each try."""

    def __init__(self, command: Sequence[str], config: Config) -> None:
        """Start it, and have it load the circuit."""
        super().__init__(command)
        try:
            self._write(config)
            self._answer()
        except BaseException:
            self.close()
            raise

    def ask(self, kind: str, trial: Trial) -> dict[str, Any]:
        """Try or show a step."""
        self._write((kind, trial))
        return self._answer()

    def _write(self, value: Any) -> None:
        with suppress(OSError):  # the process has ended: reading its result fails with the reason
            self._in.write(base64.b64encode(pickle.dumps(value)) + b"\n")
            self._in.flush()

    def _answer(self) -> dict[str, Any]:
        line = self._out.readline()
        while line and not line.startswith(b"{"):  # a line that the user's module prints
            line = self._out.readline()
        if not line:
            raise UnavailableError(f"the process that tries steps has ended: {self._ended()}", "ask again")
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise error_of(**found["error"])
        return found


def killers(places: Sequence[Place], kept: Sequence[Place], dies: Callable[[Sequence[Place]], bool]) -> list[Place]:
    """Return the places to leave out, so that a step over the rest and over `kept` lives; `kept` alone lives.

    >>> killers([("t", 0, at) for at in range(8)], [], lambda rows: any(at in (2, 7) for _, _, at in rows))
    [('t', 0, 2), ('t', 0, 7)]
    """
    if not places or not dies([*kept, *places]):
        return []
    if len(places) == 1:
        return list(places)
    half = len(places) // 2
    first = killers(places[:half], kept, dies)
    if len(first) > ROWS_MAX:
        raise DataError(f"too many rows crash the step: rows_max={ROWS_MAX}", "fix what crashes, start again")
    alive = [place for place in places[:half] if place not in set(first)]
    return first + killers(places[half:], [*kept, *alive], dies)


def reduced(record: StepRecord, kept: Sequence[Place]) -> StepRecord:
    """Return the record with the rows of these places alone: shorter ranges, and replayed rows dropped.

    >>> record = StepRecord(
    ...     epoch=1, step=7, layout_version=0, ranges=(), clock_us=0, engine="",
    ...     commands=('replay {"table":"t","letters":[[3,0,0,5,1],[3,1,0,9,1]],"rows":""}',),
    ... )
    >>> reduced(record, [("t", 0, 9)]).commands[1:]
    ('drop {"reason": "", "rows": [["t", 0, 5, ""]]}',)
    """
    replayed = replayed_places(record.commands)
    left = set(replayed).difference(kept)
    dropped = [DroppedRow(table=each[0], partition=each[1], offset=each[2], payload="") for each in sorted(left)]
    commands = (*record.commands, drop_command(dropped, "")) if dropped else record.commands
    return replace(record, ranges=ranges_of([each for each in kept if each not in set(replayed)]), commands=commands)


def ranges_of(places: Sequence[Place]) -> tuple[Range, ...]:
    """Return the ranges that hold these places and no others.

    >>> [(r.first, r.last) for r in ranges_of([("t", 0, 3), ("t", 0, 4), ("t", 0, 6)])]
    [(3, 5), (6, 7)]
    """
    found: list[Range] = []
    for table, partition, offset in sorted(places):
        if found and (found[-1].table, found[-1].partition, found[-1].last) == (table, partition, offset):
            found[-1] = replace(found[-1], last=offset + 1)
        else:
            found.append(Range(table=table, partition=partition, first=offset, last=offset + 1))
    return tuple(found)


def decision(rows: Sequence[DroppedRow], death: str) -> str:
    """Return the logged command that continues without these rows."""
    return drop_command(rows, f"{DEADLY}{death}")
