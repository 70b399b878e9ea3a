"""Carry errors from a task to the caller.

A `DbspError` in a task is the same at every retry. So the task returns it as a value, and Spark does not run the task
again. The value passes through later segments as a marked block of bytes instead of a parcel. All other errors are
raised in the task, so that Spark retries. This module classifies the exception that Spark raises when it gives up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dbsp.errors import (
    KINDS,
    PYTHON_WORKER_DIED,
    CapacityError,
    DbspError,
    FencedError,
    InternalError,
    RowsError,
    UnavailableError,
)

MARK = b"DBSPFAIL"
_AGAIN = "start the same command again: it continues from its state"
_PYTHON_ERROR = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning)\b.*)$", re.MULTILINE)
_CANCELLED = re.compile(r"Job \d+ cancelled|cancelled job group|SparkContext was shut down")
"""Spark's message for a job that was ended. The word may also occur in a task's own message."""
_STORY_CHARS_MAX = 4000
_LESS = "lower `max_rows_per_step` in [step], or give its host more"
_WORKER_DIED = "Python worker exited unexpectedly"
_MEMORY = (
    "if the system has ended it for want of memory (its log says so: `dmesg`), lower `max_rows_per_step` in [step] or give its"
    " host more; else a library in it has crashed. Started again, it continues from its state"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailure:
    """A `DbspError` as a plain value, with the worker it happened on."""

    worker: int
    code: str
    message: str
    hint: str | None
    node: int = -1
    name: str = ""
    count: int = 0
    rows: tuple[tuple[str, str, int], ...] = ()

    def to_bytes(self) -> bytes:
        """Encode the failure as a block that is no parcel."""
        fields = [self.worker, self.code, self.message, self.hint, self.node, self.name, self.count, self.rows]
        return MARK + json.dumps(fields).encode()

    def error(self) -> DbspError:
        """Return the error, of its own class, with the worker in its message."""
        message = self.message if "worker=" in self.message else f"{self.message} worker={self.worker}"
        if self.code == RowsError.code:  # all workers say the same
            return RowsError(self.message, self.hint, self.node, self.name, self.count, self.rows)
        return KINDS.get(self.code, InternalError)(message, self.hint)


def failure_of(error: DbspError, worker: int) -> TaskFailure:
    """Return the failure for an error on a worker."""
    found = TaskFailure(worker=worker, code=error.code, message=error.message, hint=error.hint)
    if isinstance(error, RowsError):
        return replace(found, node=error.node, name=error.name, count=error.count, rows=error.rows)
    return found


def is_failure(block: bytes) -> bool:
    """Return whether a received block is a failure, not a parcel."""
    return block[: len(MARK)] == MARK


def failure_from(block: bytes) -> TaskFailure:
    """Decode the failure in a block."""
    worker, code, message, hint, node, name, count, rows = json.loads(block[len(MARK) :])
    return TaskFailure(
        worker=worker, code=code, message=message, hint=hint, node=node, name=name, count=count,
        rows=tuple((payload, reason, weight) for payload, reason, weight in rows),
    )  # fmt: skip


def worst(failures: Sequence[TaskFailure]) -> TaskFailure:
    """Return the failure to raise: a fenced worker first (the caller must stop), else the first that rows did not cause.

    If only rows failed, any worker's failure will do, because all have judged the same.
    """
    known = sorted(set(failures), key=lambda failure: (failure.worker, failure.message))
    others = [failure for failure in known if failure.code != RowsError.code]
    return min(others or known, key=lambda failure: failure.code != FencedError.code)


def successes(results: Sequence[Any], kind: type) -> list[Any]:
    """Return the results of one type; raise the worst failure if there is one."""
    failures = [result for result in results if isinstance(result, TaskFailure)]
    if failures:
        raise worst(failures).error()
    return [result for result in results if isinstance(result, kind)]


def jvm_lost(what: str) -> UnavailableError:
    """Return the error for a dead JVM of the driver, after which this process cannot run further jobs."""
    return UnavailableError(f"the Spark JVM died: while={what}", _AGAIN)


def job_failed(what: str, text: str) -> DbspError:
    """Translate the text of a failed Spark job's exception.

    A Python traceback in it is an error that a task raised on purpose, a bug of this project, or memory. All else is
    an outage: a lost executor, a Python worker that dies whenever its task is tried, a cancelled job, a lost shuffle
    file.
    """
    if _CANCELLED.search(text):
        return UnavailableError(f"the Spark job was cancelled: while={what}", _AGAIN)
    if "Traceback (most recent call last)" in text:
        story = _traceback(text)
        last = _last_error(story)
        if last.startswith(
            ("MemoryError", "pyarrow.lib.ArrowMemoryError", "numpy._core._exceptions._ArrayMemoryError")
        ):
            return CapacityError(f"a worker ran out of memory: while={what} reason={last}", _LESS)
        if (error := _error_of(last)) is not None:
            return error
        return InternalError(f"a Spark task failed: while={what} reason={last}\n{story[-_STORY_CHARS_MAX:]}")
    if _WORKER_DIED in text:
        return UnavailableError(f"{PYTHON_WORKER_DIED}: while={what}", _MEMORY)
    reason = next(
        (line.strip() for line in text.splitlines() if "failed" in line or "lost" in line), text[:300].strip()
    )
    return UnavailableError(f"a Spark job failed: while={what} reason={reason[:600]}", _AGAIN)


def _error_of(last: str) -> DbspError | None:
    """Return the `DbspError` in the last line of a traceback, which a task raised for Spark; None for other errors."""
    name, _, story = last.partition(": ")
    kind = next((kind for kind in KINDS.values() if name == f"{kind.__module__}.{kind.__name__}"), None)
    if kind is None or issubclass(kind, (InternalError, RowsError)):
        return None
    message, _, hint = story.partition("; ")
    return kind(message, hint or None)


def _traceback(text: str) -> str:
    """Return the last Python traceback of a JVM exception, without the JVM's frames."""
    story = text[text.rindex("Traceback (most recent call last)") :]
    end = re.search(r"\n\s*(at [\w.$]+\(|SQLSTATE)", story)
    return story[: end.start()].strip() if end else story.strip()


def _last_error(story: str) -> str:
    found = _PYTHON_ERROR.findall(story)
    return found[-1].strip() if found else story.splitlines()[-1].strip()
