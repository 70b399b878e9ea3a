"""The requests to a background worker, their values and their errors; see `dbsp.runtime.background`."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from dbsp.errors import InternalError, UnavailableError
from dbsp.processes import Process

LOOK_S = 0.5
"""Maximum seconds of one wait for a background worker. Short waits let the caller be interrupted, and notice a stopped
background worker."""

KINDS: Mapping[str, str] = {
    "fetch": "dbsp.runtime.ahead:FETCH",
    "touch": "dbsp.runtime.ahead:TOUCH",
    "write": "dbsp.runtime.parts:WRITE",
}
"""The kinds of work that a background worker does: for each name, the place of its `JobKind` as `module:attribute`."""


class BackgroundLostError(UnavailableError):
    """The background worker is gone, does not answer, or does not know the job: the caller does the work itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A piece of work, identified by `kind`, `key` and `epoch`; the arguments are picklable."""

    kind: str
    key: str
    epoch: int
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status of a job; `done` of `total` is the last reported progress, in the job's own unit."""

    state: Literal["absent", "running", "done", "failed"]
    done: int = 0
    total: int = 0


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """A kind of work.

    `run(task, *arguments)` does the work. Between processes a result is pickled after `pack` and before `unpack`. Numpy
    arrays in a result are sent in shared memory, without a copy. At most `kept` jobs of one kind are held: starting one
    more drops the oldest job.
    """

    run: Callable[..., Any]
    pack: Callable[[Any], Any] = _same
    unpack: Callable[[Any], Any] = field(default=_same)
    kept: int = 1


class BackgroundWorker(Protocol):
    """A worker's background worker.

    All calls return within about `LOOK_S`, except `wait`, which lasts up to `wait_s`.

    **Errors** `BackgroundLostError`; `FencedError` if the background worker has seen a newer epoch.
    """

    def start(self, job: Job) -> None:
        """Begin the job; do nothing if it was started before."""
        ...

    def wait(self, job: Job, wait_s: float = 0.0) -> Status:
        """Return the job's status, once it is no longer running or after `wait_s`."""
        ...

    def take(self, job: Job) -> Any:
        """Return the result of a finished job, or raise the error of a failed one; the job is forgotten."""
        ...

    def cancel(self, job: Job) -> None:
        """Ask the job to end, and forget it."""
        ...

    def close(self) -> None:
        """End the background worker with all its work."""
        ...


class BackgroundWorkers(Protocol):
    """A finder of workers' background workers; `apart` says whether they are other processes."""

    @property
    def apart(self) -> bool:
        """Return whether a background worker's objects are in another process."""
        ...

    def of(self, worker: int) -> BackgroundWorker | None:
        """Return the worker's background worker on this host, started if necessary; None where there can be none."""
        ...

    def prepare(self, worker: int) -> None:
        """Start the background worker soon; return at once."""
        ...

    def below(self, owner: Process | None) -> BackgroundWorkers:
        """Return the same background workers for use in a process that is no child of their owner, such as the driver."""
        ...

    def close(self) -> None:
        """End the background workers that this value has found."""
        ...


def finish(background_worker: BackgroundWorker, job: Job, wait_s: float) -> Any:
    """Wait for the result of a started job, in short waits; raise `BackgroundLostError` after `wait_s`."""
    deadline = time.monotonic() + wait_s
    while True:
        left = deadline - time.monotonic()
        found = background_worker.wait(job, max(0.0, min(LOOK_S, left)))
        if found.state != "running":
            return background_worker.take(job)
        if left <= 0:
            raise BackgroundLostError(
                f"a background worker's work takes too long: kind={job.kind} key={job.key} wait_s={wait_s:g}"
            )


def find_kind(kinds: Mapping[str, str], name: str) -> JobKind:
    """Return the kind of this name; only listed kinds are ever imported."""
    if name not in kinds:
        raise InternalError(f"a background worker does not do this: kind={name} kinds={sorted(kinds)}")
    module, _, attribute = kinds[name].partition(":")
    kind = getattr(importlib.import_module(module), attribute)
    if not isinstance(kind, JobKind):
        raise InternalError(f"not a kind of work: kind={name} place={kinds[name]}")
    return kind
