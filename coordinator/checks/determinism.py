"""Check that user functions are deterministic: run each twice on the same rows, in two processes with different hash seeds.

A result may depend on random numbers, the time, the order of a set, or earlier calls. When a step is replayed after a
crash, such a function gives another output, and the pipeline halts. So functions are checked earlier: by `--check` on
generated rows, and in a pipeline's first steps on real rows. The check does not see a dependence on something that
stays the same for a while, such as today's date.

`determinism_child` is the program of the two processes.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

from dbsp.coordinator.running.notices import FunctionsNotTried, FunctionsTried, Notify
from dbsp.coordinator.running.status import LiveStatus
from dbsp.coordinator.settings.config import Config
from dbsp.errors import CircuitError, UnavailableError
from dbsp.logs import Range, StepLog
from dbsp.plan.plan import Plan
from dbsp.plan.user_code import user_functions

COMMAND = [sys.executable, "-P", "-m", "dbsp.coordinator.checks.determinism_child"]
SEEDS = ("1", "2")
ROWS_MAX = 1000
"""The most rows of each table on which functions are tried."""
TIMEOUT_S = 300.0

Answers = Mapping[str, Mapping[str, str]]
"""By function, the digest of each result by the digest of its arguments."""


def varying(config: Config, ranges: Sequence[Range] | None, *, command: Sequence[str] = COMMAND) -> tuple[str, ...]:
    """Return the user functions whose results differ between two processes, each with its line.

    `ranges` are rows of the input log; None: rows are generated.
    **Errors** `UnavailableError` if a process ends early or takes too long.
    """
    line = base64.b64encode(pickle.dumps((config, ranges))) + b"\n"
    processes = [
        subprocess.Popen(  # noqa: S603 - our own program
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, process_group=0,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        for seed in SEEDS
    ]  # fmt: skip
    try:
        for process in processes:
            with suppress(OSError):  # the process has ended: reading its result fails with the reason
                process.stdin.write(line)  # type: ignore[union-attr]  # a pipe
                process.stdin.close()  # type: ignore[union-attr]
        return differing([_answer(process) for process in processes])
    finally:
        for process in processes:
            process.kill()
            process.wait()
            process.stdout.close()  # type: ignore[union-attr]  # a pipe


def _answer(process: subprocess.Popen[bytes]) -> Answers:
    """Return the findings of one process: its last line, because the user's module may print others."""
    timer = threading.Timer(TIMEOUT_S, process.kill)
    timer.daemon = True
    timer.start()
    try:
        lines = process.stdout.read().splitlines()  # type: ignore[union-attr]  # a pipe
    finally:
        timer.cancel()
    if not lines or not lines[-1].startswith(b"{"):
        raise UnavailableError(f"the process that tries user functions has ended: exit={process.wait()}", "try again")
    found: Answers = json.loads(lines[-1])
    return found


def differing(answers: Sequence[Answers]) -> tuple[str, ...]:
    """Return the functions that gave different results for equal arguments.

    >>> differing([{"f": {"q": "1"}, "g": {"q": "1"}}, {"f": {"q": "2"}, "g": {"q": "1", "r": "5"}}])
    ('f',)
    """
    first, second = answers
    return tuple(
        name
        for name, found in sorted(first.items())
        if any(second.get(name, {}).get(asked, said) != said for asked, said in found.items())
    )


def refuse_varying(config: Config, plan: Plan) -> None:
    """Try the user functions on generated rows.

    **Errors** `CircuitError` names those that are not deterministic.
    """
    found = varying(config, None) if user_functions(plan) else ()
    if found:
        raise CircuitError(
            f"a user function is not deterministic: {'; '.join(found)}",
            "equal rows must give equal answers, whenever and wherever it is called: functions may run more than once, and again"
            " after a crash. The result must not depend on random numbers, the time, the order of a set, or earlier calls",
        )


class FirstSteps:
    """The check of a new pipeline's user functions after its first step with rows, on a thread of its own."""

    def __init__(self, config: Config, plan: Plan, steps: StepLog, note: Notify) -> None:
        """Create the check of the first steps, which does nothing before `watch`."""
        self._config, self._plan, self._steps, self._note = config, plan, steps, note
        self.found: tuple[str, ...] = ()

    def watch(self, live_status: LiveStatus) -> None:
        """Start the check, if there are user functions."""
        if user_functions(self._plan):
            threading.Thread(target=self._look, args=(live_status,), name="dbsp-determinism", daemon=True).start()

    def _look(self, live_status: LiveStatus) -> None:
        live_status.wait_for(lambda now: now.settled, None)
        if live_status.now.ended or live_status.now.step > 0:
            return
        live_status.wait_for(lambda now: now.rows_in > 0, None)
        if live_status.now.ended:
            return
        try:
            ranges = [each for record in self._steps.read(0) for each in record.ranges]
            self.found = varying(self._config, bounded(ranges))
        except Exception as error:  # noqa: BLE001 - the check is a help, and its failure must not stop the steps
            self._note(FunctionsNotTried(error=f"{type(error).__name__}: {error}"))
            return
        self._note(FunctionsTried(not_deterministic=list(self.found)))


def bounded(ranges: Sequence[Range]) -> list[Range]:
    """Return the first of these rows, at most `ROWS_MAX` of each table.

    >>> [(r.first, r.last) for r in bounded([Range(table="t", partition=p, first=0, last=600) for p in (0, 1, 2)])]
    [(0, 600), (0, 400)]
    """
    left: dict[str, int] = {}
    found = []
    for each in ranges:
        room = left.get(each.table, ROWS_MAX)
        last = min(each.last, each.first + room)
        left[each.table] = room - (last - each.first)
        if last > each.first:
            found.append(Range(table=each.table, partition=each.partition, first=each.first, last=last))
    return found
