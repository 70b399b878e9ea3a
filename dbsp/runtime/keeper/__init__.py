"""The keeper: what must outlive a task, one per worker and host.

A task of Spark ends after milliseconds and the next one may run in another process. Work that goes on beside the steps, and
things that are dear to make, live in the worker's keeper: a thread in the in-process runtime (`ThreadKeeper`), a process that
the first task on the host starts and later ones find again on Spark (`ProcessKeeper`).

To use it:

1. Write the work as a function of a `Task` and picklable arguments, and wrap it in a `Kind`. It looks at `task.check()` now
   and then (which raises when nobody wants it any more) and says how far it is with `task.report(done, total)`. What it wants
   to find again next time it gets from `task.cache.get(key, make)`; such a thing is closed when the epoch changes.
2. Name the kind in `KINDS`: a keeper runs nothing else.
3. In a task: `keeper = work.keepers.of(worker)`, which is None where there can be none. Then
   `keeper.start(job)` begins the work, or does nothing if this very job is there; `keeper.wait(job, wait_s)` says how it
   stands; `keeper.take(job)` brings its result or its error, once; `keeper.cancel(job)` ends it. `finish(keeper, job, wait_s)` is
   `wait` and `take` together. A `Job` is the kind's name, a key, the epoch and the arguments; kind, key and epoch name it.

Invariants: a keeper holds only caches and work in progress, so that it may be killed at any moment and costs time alone:
whoever uses it catches `KeeperLostError` and does the work itself. An older epoch is refused, a newer one drops everything (6).
It ends with its owner (the executor's JVM). Source: docs/concepts/steps.md.
"""

from dbsp.runtime.keeper.holder import Cache, Holder, Task, ThreadKeeper, ThreadKeepers
from dbsp.runtime.keeper.process import ProcessKeeper, ProcessKeepers
from dbsp.runtime.keeper.protocol import (
    KINDS,
    Job,
    Keeper,
    KeeperLostError,
    Keepers,
    Kind,
    Status,
    find_kind,
    finish,
)

__all__ = [
    "KINDS",
    "Cache",
    "Holder",
    "Job",
    "Keeper",
    "KeeperLostError",
    "Keepers",
    "Kind",
    "ProcessKeeper",
    "ProcessKeepers",
    "Status",
    "Task",
    "ThreadKeeper",
    "ThreadKeepers",
    "find_kind",
    "finish",
]
