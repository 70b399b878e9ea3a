"""What a keeper can be asked, by whom and how; see `dbsp.runtime.keeper`."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from dbsp.errors import InternalError, UnavailableError
from dbsp.processes import Process

LOOK_S = 0.5
"""How long one look at a keeper takes at most: a caller can be interrupted, and a keeper that is stopped is noticed."""

KINDS: Mapping[str, str] = {
    "fetch": "dbsp.runtime.ahead:FETCH",
    "touch": "dbsp.runtime.ahead:TOUCH",
    "write": "dbsp.runtime.parts:WRITE",
}
"""The kinds of work that a keeper does: their names, and where the `Kind` is, as `module:attribute`."""


class KeeperLostError(UnavailableError):
    """The keeper is gone, does not answer, or does not know the job: do the work without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One piece of work: `kind`, `key` and `epoch` name it; the arguments are picklable."""

    kind: str
    key: str
    epoch: int
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How a job stands; `done` of `total` is what the work said last, in its own unit."""

    state: Literal["absent", "running", "done", "failed"]
    done: int = 0
    total: int = 0


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of work.

    `run(task, *arguments)` does it. Between processes a result is pickled after `pack` and before `unpack`; arrays of numpy in
    it pass in shared memory, without a copy. Of one kind `kept` jobs are held at most: starting one more drops the oldest.
    """

    run: Callable[..., Any]
    pack: Callable[[Any], Any] = _same
    unpack: Callable[[Any], Any] = field(default=_same)
    kept: int = 1


class Keeper(Protocol):
    """One worker's keeper. All calls return within `LOOK_S` and a little, but `wait` as long as it is told.

    **Errors** `KeeperLostError`; `FencedError` if the keeper has seen a newer epoch.
    """

    def start(self, job: Job) -> None:
        """Begin the job; nothing if it is there."""
        ...

    def wait(self, job: Job, wait_s: float = 0.0) -> Status:
        """How the job stands, as soon as it is no longer running or after `wait_s`."""
        ...

    def take(self, job: Job) -> Any:
        """The result of a job that is done, or the error of one that failed, raised; the keeper forgets it."""
        ...

    def cancel(self, job: Job) -> None:
        """Ask the job to end, and forget it."""
        ...

    def close(self) -> None:
        """End the keeper with all its work."""
        ...


class Keepers(Protocol):
    """Finds the keeper of a worker; `apart` says whether keepers are other processes."""

    @property
    def apart(self) -> bool:
        """Whether what a keeper holds is out of this process's reach."""
        ...

    def of(self, worker: int) -> Keeper | None:
        """The worker's keeper on this host, started if need be; None where there can be none."""
        ...

    def prepare(self, worker: int) -> None:
        """Let the keeper be there soon; returns at once."""
        ...

    def below(self, owner: Process | None) -> Keepers:
        """The same keepers as a process finds them that does not work for their owner, but knows it."""
        ...

    def close(self) -> None:
        """End the keepers that this value has found."""
        ...


def finish(keeper: Keeper, job: Job, wait_s: float) -> Any:
    """The result of a started job, waited for in pieces; `KeeperLostError` if it is not there in time."""
    deadline = time.monotonic() + wait_s
    while True:
        left = deadline - time.monotonic()
        found = keeper.wait(job, max(0.0, min(LOOK_S, left)))
        if found.state != "running":
            return keeper.take(job)
        if left <= 0:
            raise KeeperLostError(f"a keeper's work takes too long: kind={job.kind} key={job.key} wait_s={wait_s:g}")


def find_kind(kinds: Mapping[str, str], name: str) -> Kind:
    """The kind of this name; only what is listed is ever imported."""
    if name not in kinds:
        raise InternalError(f"a keeper does not do this: kind={name} kinds={sorted(kinds)}")
    module, _, attribute = kinds[name].partition(":")
    kind = getattr(importlib.import_module(module), attribute)
    if not isinstance(kind, Kind):
        raise InternalError(f"not a kind of work: kind={name} place={kinds[name]}")
    return kind
