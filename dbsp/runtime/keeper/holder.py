"""The inside of a keeper: jobs in threads of one process, their results, what they keep for one another.

Invariants: an older epoch is refused, and a newer one cancels all jobs and forgets all results and caches (6); a cached thing
is closed only when no job of its epoch runs any more, because one may be using it; a result is given out once.
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
from dbsp.runtime.keeper.protocol import KINDS, Job, KeeperLostError, Kind, Status, find_kind

Made = TypeVar("Made")
_END_S = 10.0


class Cache:
    """What the jobs of one epoch keep for one another; things with a `close` are closed at the end."""

    def __init__(self) -> None:
        """Empty."""
        self._lock = threading.RLock()
        self._kept: dict[Hashable, Any] = {}
        self._users = 0
        self._dropped = False

    def get(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What is kept under the key, else what `make` gives; one job at a time makes."""
        with self._lock:
            if key not in self._kept:
                self._kept[key] = make()
            found: Made = self._kept[key]
            return found

    def forget(self, key: Hashable) -> None:
        """Close what is kept under the key."""
        with self._lock:
            found = self._kept.pop(key, None)
        _close(found)

    def enter(self) -> None:
        """A job begins."""
        with self._lock:
            self._users += 1

    def leave(self) -> None:
        """A job has ended; the last one closes what was dropped."""
        with self._lock:
            self._users -= 1
            ended = self._dropped and self._users == 0
        if ended:
            self._close_all()

    def drop(self) -> None:
        """Close all now, or when the last job ends."""
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
    """Close it if it can be; what fails to close was given up anyway."""
    if hasattr(thing, "close"):
        with suppress(Exception):
            thing.close()


@dataclass(slots=True)
class Task:
    """What a job's function gets first: whose it is, what is kept, whether to go on."""

    worker: int
    epoch: int
    cache: Cache
    cancelled: threading.Event = field(default_factory=threading.Event)
    progress: tuple[int, int] = (0, 0)

    def report(self, done: int, total: int) -> None:
        """Say how far the work is; raises as `check` does."""
        self.progress = (done, total)
        self.check()

    def check(self) -> None:
        """Raise `UnavailableError` if nobody wants the result any more."""
        if self.cancelled.is_set():
            raise UnavailableError(f"a keeper's work was cancelled: worker={self.worker} epoch={self.epoch}")


@dataclass(slots=True)
class _Entry:
    """A job that runs or has run."""

    task: Task
    thread: threading.Thread | None = None
    state: str = "running"
    result: Any = None


class Holder:
    """The jobs of one worker's keeper."""

    def __init__(self, worker: int, kinds: Mapping[str, str] = KINDS, *, packs: bool = False) -> None:
        """Nothing runs, no epoch is known; with `packs` results are packed by the job, so that who takes one need not wait."""
        self._worker, self._kinds, self._packs = worker, kinds, packs
        self._changed = threading.Condition()
        self._epoch = 0
        self._cache = Cache()
        self._entries: dict[tuple[str, str], _Entry] = {}

    def start(self, job: Job) -> None:
        """Begin the job; nothing if it is there."""
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
                target=self._run, args=(entry, kind, job), name=f"dbsp-keeper-{job.kind}", daemon=True
            )
            entry.thread.start()

    def _run(self, entry: _Entry, kind: Kind, job: Job) -> None:
        try:
            result, state = kind.run(entry.task, *job.arguments), "done"
            if self._packs:
                result = kind.pack(result)
        except DbspError as error:
            result, state = error, "failed"
        except BaseException as error:  # noqa: BLE001 - whoever takes the result gets it
            story = "".join(traceback.format_exception(error))[-2000:]
            result, state = InternalError(f"a keeper's work failed: kind={job.kind} key={job.key}\n{story}"), "failed"
        finally:
            entry.task.cache.leave()
        with self._changed:
            if not entry.task.cancelled.is_set():
                entry.result, entry.state = result, state
            self._changed.notify_all()

    def wait(self, job: Job, wait_s: float = 0.0) -> Status:
        """How the job stands, as soon as it is no longer running or after `wait_s`."""
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
        """The result, or the error, raised; forgotten here."""
        with self._changed:
            self._enter(job.epoch)
            state = self._state(job)
            if state in ("absent", "running"):
                raise KeeperLostError(f"a keeper has no result: kind={job.kind} key={job.key} state={state}")
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
        """Refuse an older epoch, begin a newer one from nothing."""
        if epoch < self._epoch:
            raise FencedError(
                f"a keeper serves a newer epoch: worker={self._worker} epoch={epoch} newest={self._epoch}"
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
        """Cancel everything, and wait a little for what runs to end."""
        with self._changed:
            threads = [entry.thread for entry in self._entries.values() if entry.thread is not None]
            self._drop()
        for thread in threads:
            thread.join(_END_S)


class ThreadKeeper(Holder):
    """A keeper in this process; results pass as they are."""


class ThreadKeepers:
    """The keepers of the in-process runtime; implements `dbsp.runtime.keeper.protocol.Keepers`."""

    apart = False

    def __init__(self, kinds: Mapping[str, str] = KINDS) -> None:
        """None is made before it is asked for."""
        self._kinds = kinds
        self._lock = threading.Lock()
        self._made: dict[int, ThreadKeeper] = {}

    def of(self, worker: int) -> ThreadKeeper:
        """The worker's keeper."""
        with self._lock:
            if worker not in self._made:
                self._made[worker] = ThreadKeeper(worker, self._kinds)
            return self._made[worker]

    def prepare(self, worker: int) -> None:
        """Nothing: a thread is there when it is asked for."""

    def below(self, owner: Process | None) -> ThreadKeepers:  # noqa: ARG002 - they end with this process
        """These."""
        return self

    def close(self) -> None:
        """End all keepers."""
        with self._lock:
            made, self._made = list(self._made.values()), {}
        for keeper in made:
            keeper.close()
