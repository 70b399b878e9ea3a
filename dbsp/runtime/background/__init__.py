"""Background workers: processes or threads that hold work and objects which must outlive a task, one per worker and host.

A task of Spark ends after milliseconds, and the next task may run in another process. Work that continues while steps
run, and objects that are expensive to make, are in the worker's background worker. In the in-process runtime this is
a thread (`BackgroundThread`). On Spark it is a process that the first task on the host starts and later tasks find again
(`BackgroundProcess`).

To use a background worker:

1. Write the work as a function of a `Task` and picklable arguments, and wrap it in a `JobKind`. The function calls
   `task.check()` now and then, which raises when the work is cancelled. It reports progress with `task.report(done, total)`. It
   gets objects that the next job can use again from `task.cache.get(key, make)`; these are closed when the epoch changes.
2. Add the kind to `KINDS`: a background worker runs nothing else.
3. In a task, call `background_worker = work.background.of(worker)`. It returns None where no background worker can run.

| call | effect |
| --- | --- |
| `background_worker.start(job)` | begin the work; do nothing if the job was started before |
| `background_worker.wait(job, wait_s)` | return the job's status |
| `background_worker.take(job)` | return the job's result or raise its error, once |
| `background_worker.cancel(job)` | end the job |
| `finish(background_worker, job, wait_s)` | `wait` and `take` together |

A `Job` is the name of a kind, a key, the epoch and the arguments; kind, key and epoch identify it.

Invariants:

- A background worker holds only caches and work in progress. Killing it at any moment costs only time: the caller catches
  `BackgroundLostError` and does the work itself.
- A background worker refuses an older epoch, and drops everything at a newer one (invariant 6).
- A background worker ends with its owner (the executor's JVM).

Source: docs/concepts/steps.md.
"""

from dbsp.runtime.background.holder import BackgroundThread, BackgroundThreads, Cache, Holder, Task
from dbsp.runtime.background.process import BackgroundProcess, BackgroundProcesses
from dbsp.runtime.background.protocol import (
    KINDS,
    BackgroundLostError,
    BackgroundWorker,
    BackgroundWorkers,
    Job,
    JobKind,
    Status,
    find_kind,
    finish,
)

__all__ = [
    "KINDS",
    "BackgroundLostError",
    "BackgroundProcess",
    "BackgroundProcesses",
    "BackgroundThread",
    "BackgroundThreads",
    "BackgroundWorker",
    "BackgroundWorkers",
    "Cache",
    "Holder",
    "Job",
    "JobKind",
    "Status",
    "Task",
    "find_kind",
    "finish",
]
