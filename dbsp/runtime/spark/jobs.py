"""Run Spark jobs from a separate thread, and watch their progress.

PySpark pins a JVM thread to each Python thread. So all jobs share one thread, because starting a thread per step is
expensive. The caller waits with a limit, so that a job without progress is cancelled and a dead JVM is noticed.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext

from dbsp.errors import DbspError, UnavailableError
from dbsp.runtime.spark.failures import job_failed, jvm_lost

_POLL_S = 2.0
_CANCEL_WAIT_S = 10.0

if TYPE_CHECKING:
    from pyspark.core.rdd import RDD

Job = Callable[[], Any]
Order = tuple[Job, "Future[Any]"] | None


def begun(job: RDD[Any]) -> Any:
    """Start a job that has no elements; `get` of the returned action waits for its end.

    For each job Spark reads the whole class in which a closure was written, to look at the closure. The class of
    `collect` is very large, and its closure passes through another class. Reading them was a quarter of the JVM's
    work in a small step.
    """
    java: Any = job._jrdd
    return java.collectAsync()


class JobThread:
    """A thread that runs jobs in one job group, one at a time."""

    def __init__(
        self,
        context: SparkContext,
        group: str,
        silence_s: float,
        alive: Callable[[], bool],
        *,
        pool: str | None = None,
        idle_s: float | None = None,
        idle: Job = lambda: None,
        heard: Callable[[], int] = lambda: 0,
    ) -> None:
        """Start the thread; `alive` returns whether the JVM's process runs; `idle` is called after `idle_s` without a job.

        A job is not silent while the number of `heard` grows, even if none of its tasks has finished. Jobs of
        different pools share the cores fairly, if Spark was started with fair scheduling.
        """
        self._context = context
        self.group = group
        self._silence_s = silence_s
        self._alive, self._heard = alive, heard
        self.silent: Callable[[], str] = lambda: ""
        """A function that returns the silent workers as text, for the error of a job without progress."""
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._closed = False
        self._idle_s, self._idle, self._pool = idle_s, idle, pool
        self._thread = threading.Thread(target=self._loop, name=f"spark-jobs-{group}", daemon=True)
        self._thread.start()

    def run(self, what: str, job: Job) -> Any:
        """Run a job and return its result; raise a `DbspError` with the cause if the job fails."""
        if self._closed:
            raise UnavailableError(f"the Spark runtime is closed: while={what}")
        if not self._alive():
            raise jvm_lost(what)
        future: Future[Any] = Future()
        self._orders.put((job, future))
        try:
            return self._wait(what, future)
        except DbspError:
            raise
        except (Py4JError, OSError, EOFError) as error:
            raise self._translated(what, error) from None  # the JVM's own stack trace is in Spark's log
        except BaseException:
            self.cancel()
            raise

    def post(self, job: Job) -> None:
        """Run a job without waiting for it; ignore its failure."""
        if not self._closed:
            self._orders.put((job, Future()))

    def _wait(self, what: str, future: Future[Any]) -> Any:
        """Wait for the job and return its result; cancel a job in which no task has finished for `silence_s` seconds."""
        poll_s = min(_POLL_S, self._silence_s / 4)
        seen, since = None, time.monotonic()
        while True:
            with suppress(FutureTimeoutError):
                return future.result(poll_s)
            if future.done():
                return future.result()
            if not self._alive():
                raise jvm_lost(what)
            now, progress = time.monotonic(), self._progress()
            if progress != seen:
                seen, since = progress, now
            elif now - since > self._silence_s:
                story = self._silence()
                self.cancel()
                with suppress(Exception):
                    future.result(_CANCEL_WAIT_S)
                raise UnavailableError(
                    f"no worker finished a task for too long: while={what}{story} worker_silence_s={self._silence_s:g}",
                    "see whether these workers still do something; raise `worker_silence_s` if steps may take that long",
                )

    def _silence(self) -> str:
        """Return the words that name the silent workers, as far as Spark can tell."""
        try:
            return self.silent()
        except (Py4JError, OSError, EOFError):
            return ""

    def _progress(self) -> tuple[int, tuple[tuple[int, int], ...]]:
        """Return the number of `heard`, and the finished tasks by active stage, of this group's jobs."""
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(self.group)]
        own = {int(number) for job in jobs if job is not None for number in job.stageIds}
        stages = {number: tracker.getStageInfo(number) for number in tracker.getActiveStageIds() if number in own}
        finished = ((number, info.numCompletedTasks) for number, info in sorted(stages.items()) if info is not None)
        return self._heard(), tuple(finished)

    def cancel(self) -> None:
        """Cancel the running job; its Python workers may go on for four seconds, and the epoch fences their writes.

        Tasks are interrupted. Otherwise a task that waits for rows of a silent host keeps its core for minutes. The jobs of a
        recovery would wait for that core.
        """
        with suppress(Py4JError, OSError):
            self._context.cancelJobGroup(self.group)

    def close(self) -> None:
        """End the thread; a job in it is cancelled."""
        self._closed = True
        if self._alive():
            self.cancel()
        self._orders.put(None)
        self._thread.join(_CANCEL_WAIT_S)

    def _translated(self, what: str, error: Exception) -> DbspError:
        """Translate an error of Spark, of the bridge to it or of its sockets."""
        if isinstance(error, Py4JJavaError):
            return job_failed(what, str(error))
        if isinstance(error, (Py4JNetworkError, OSError, EOFError)) or not self._alive():
            return jvm_lost(what)
        return job_failed(what, str(error))

    def _loop(self) -> None:
        with suppress(Py4JError, OSError):
            self._context.setJobGroup(self.group, "dbsp", interruptOnCancel=True)
            if self._pool is not None:
                self._context.setLocalProperty("spark.scheduler.pool", self._pool)
        while (order := self._next()) is not None:
            job, future = order
            try:
                result = job()
            except BaseException as error:  # noqa: BLE001  (handed to the thread that waits)
                future.set_exception(error)
            else:
                future.set_result(result)

    def _next(self) -> Order:
        """Return the next job; call `idle` while there is none."""
        while True:
            with suppress(queue.Empty):
                return self._orders.get(timeout=self._idle_s)
            with suppress(Py4JError, OSError, EOFError):
                self._idle()
