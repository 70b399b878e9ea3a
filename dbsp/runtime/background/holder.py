"""The inside of a background worker: jobs in threads of one process, their results, and the cache that they share.

Invariants:

1. An older epoch is refused, and a newer one cancels all jobs and forgets all results and caches (invariant 6).
2. A cached object is closed only when no job of its epoch runs any more, because a job may be using it.
3. A result is given out once.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dbsp.errors import DbspError, FencedError, InternalError, UnavailableError
from dbsp.processes import Process
from dbsp.runtime.background.protocol import KINDS, BackgroundLostError, Job, JobKind, Status, find_kind

Made = TypeVar("Made")
_END_S = 10.0


class Cache:
    """The objects that the jobs of one epoch share; those with a `close` method are closed at the end."""

    def __init__(self) -> None:
        """Start empty."""
        self._lock = threading.RLock()
        self._kept: dict[Hashable, Any] = {}
        self._users = 0
        self._dropped = False

    def get(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Return the object under the key; if it is absent, make and store it.

        Only one job at a time makes an object.
        """
        with self._lock:
            if key not in self._kept:
                self._kept[key] = make()
            found: Made = self._kept[key]
            return found

    def forget(self, key: Hashable) -> None:
        """Remove and close the object under the key."""
        with self._lock:
            found = self._kept.pop(key, None)
        _close(found)

    def enter(self) -> None:
        """Count a job that begins."""
        with self._lock:
            self._users += 1

    def leave(self) -> None:
        """Count a job that ends; the last one closes a dropped cache."""
        with self._lock:
            self._users -= 1
            ended = self._dropped and self._users == 0
        if ended:
            self._close_all()

    def drop(self) -> None:
        """Close all objects now, or when the last job ends."""
        with self._lock:
            self._dropped = True
            idle = self._users == 0
        if idle:
            self._close_all()

    def _close_all(self) -> None:
        with self._lock:
            kept, self._kept = list(self._kept.values()), {}
        for each in kept:
            _close(each)


def _close(thing: Any) -> None:
    """Close an object if it has a `close` method; ignore errors, because the object is given up anyway."""
    if hasattr(thing, "close"):
        with suppress(Exception):
            thing.close()


@dataclass(slots=True)
class Task:
    """The first argument of a job's function: worker and epoch, the shared cache, progress and cancellation."""

    worker: int
    epoch: int
    cache: Cache
    cancelled: threading.Event = field(default_factory=threading.Event)
    progress: tuple[int, int] = (0, 0)

    def report(self, done: int, total: int) -> None:
        """Report progress; raise as `check` does."""
        self.progress = (done, total)
        self.check()

    def check(self) -> None:
        """Raise `UnavailableError` if the job was cancelled."""
        if self.cancelled.is_set():
            raise UnavailableError(f"a background worker's work was cancelled: worker={self.worker} epoch={self.epoch}")


@dataclass(slots=True)
class _Entry:
    """A job that runs or has run."""

    task: Task
    thread: threading.Thread | None = None
    state: str = "running"
    result: Any = None


class Holder:
    """The jobs of one worker's background worker."""

    def __init__(self, worker: int, kinds: Mapping[str, str] = KINDS, *, packs: bool = False) -> None:
        """Start without jobs or an epoch; with `packs` each job also packs its result, so that `take` returns quickly."""
        self._worker, self._kinds, self._packs = worker, kinds, packs
        self._changed = threading.Condition()
        self._epoch = 0
        self._cache = Cache()
        self._entries: dict[tuple[str, str], _Entry] = {}

    def start(self, job: Job) -> None:
        """Begin the job; do nothing if it was started before. The oldest job of its kind is dropped if there are too many."""
        kind = find_kind(self._kinds, job.kind)
        name = (job.kind, job.key)
        with self._changed:
            self._enter(job.epoch)
            if name in self._entries:
                return
            same = [other for other in self._entries if other[0] == job.kind]
            for other in same[: len(same) - kind.kept + 1]:
                self._entries.pop(other).task.cancelled.set()
            entry = _Entry(Task(worker=self._worker, epoch=job.epoch, cache=self._cache))
            self._entries[name] = entry
            entry.task.cache.enter()
            entry.thread = threading.Thread(
                target=self._run, args=(entry, kind, job), name=f"dbsp-background-{job.kind}", daemon=True
            )
            entry.thread.start()

    def _run(self, entry: _Entry, kind: JobKind, job: Job) -> None:
        try:
            result, state = kind.run(entry.task, *job.arguments), "done"
            if self._packs:
                result = kind.pack(result)
        except DbspError as error:
            result, state = error, "failed"
        except BaseException as error:  # noqa: BLE001 - `take` raises the error in the caller
            story = "".join(traceback.format_exception(error))[-2000:]
            result, state = (
                InternalError(f"a background worker's work failed: kind={job.kind} key={job.key}\n{story}"),
                "failed",
            )
        finally:
            entry.task.cache.leave()
        with self._changed:
            if not entry.task.cancelled.is_set():
                entry.result, entry.state = result, state
            self._changed.notify_all()

    def wait(self, job: Job, wait_s: float = 0.0) -> Status:
        """Return the job's status, once it is no longer running or after `wait_s`."""
        with self._changed:
            self._enter(job.epoch)
            self._changed.wait_for(lambda: self._state(job) != "running", wait_s)
            entry = self._entries.get((job.kind, job.key))
            if entry is None:
                return Status(state="absent")
            done, total = entry.task.progress
            return Status(state=entry.state, done=done, total=total)  # type: ignore[arg-type]

    def _state(self, job: Job) -> str:
        entry = self._entries.get((job.kind, job.key))
        return "absent" if entry is None else entry.state

    def take(self, job: Job) -> Any:
        """Return the job's result, or raise its error; forget the job."""
        with self._changed:
            self._enter(job.epoch)
            state = self._state(job)
            if state in ("absent", "running"):
                raise BackgroundLostError(
                    f"a background worker has no result: kind={job.kind} key={job.key} state={state}"
                )
            result = self._entries.pop((job.kind, job.key)).result
        if state == "failed":
            raise result
        return result

    def cancel(self, job: Job) -> None:
        """Ask the job to end, and forget it."""
        with self._changed:
            self._enter(job.epoch)
            entry = self._entries.pop((job.kind, job.key), None)
            if entry is not None:
                entry.task.cancelled.set()
            self._changed.notify_all()

    def _enter(self, epoch: int) -> None:
        """Refuse an older epoch; drop everything at a newer one."""
        if epoch < self._epoch:
            raise FencedError(
                f"a background worker serves a newer epoch: worker={self._worker} epoch={epoch} newest={self._epoch}"
            )
        if epoch > self._epoch:
            self._drop()
            self._epoch = epoch

    def _drop(self) -> None:
        for entry in self._entries.values():
            entry.task.cancelled.set()
        self._entries.clear()
        cache, self._cache = self._cache, Cache()
        cache.drop()
        self._changed.notify_all()

    def close(self) -> None:
        """Cancel everything, and wait up to `_END_S` for each running job to end."""
        with self._changed:
            threads = [entry.thread for entry in self._entries.values() if entry.thread is not None]
            self._drop()
        for thread in threads:
            thread.join(_END_S)


class BackgroundThread(Holder):
    """A background worker in this process; results are passed as objects."""


class BackgroundThreads:
    """The background workers of the in-process runtime; implements `dbsp.runtime.background.protocol.BackgroundWorkers`."""

    apart = False

    def __init__(self, kinds: Mapping[str, str] = KINDS) -> None:
        """Start without background workers; each is made on first use."""
        self._kinds = kinds
        self._lock = threading.Lock()
        self._made: dict[int, BackgroundThread] = {}

    def of(self, worker: int) -> BackgroundThread:
        """Return the worker's background worker."""
        with self._lock:
            if worker not in self._made:
                self._made[worker] = BackgroundThread(worker, self._kinds)
            return self._made[worker]

    def prepare(self, worker: int) -> None:
        """Do nothing: a thread is made when it is needed."""

    def below(self, owner: Process | None) -> BackgroundThreads:  # noqa: ARG002 - they end with this process
        """Return this object: the threads end with this process."""
        return self

    def close(self) -> None:
        """End all background workers."""
        with self._lock:
            made, self._made = list(self._made.values()), {}
        for background_worker in made:
            background_worker.close()
