"""Builds the job of the next step while the one before it runs.

To describe a job to Spark takes the driver a few milliseconds of calls into the JVM, a tenth of a small step. The job is the
same for every step of a layout, so the next one is described while the driver only waits for this one. A description is
used once: Spark would take the shuffle files of a job that ran before for the result of its next run.

The thread is a daemon and not one of an executor's, which the interpreter would wait for at its exit: a call into a JVM
that is stopped never returns.
"""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dbsp.logs import StepRecord
from dbsp.plan.plan import Plan
from dbsp.runtime.spark.step_job import ORDER, StepTask, as_property, step_rdd

if TYPE_CHECKING:
    from pyspark.core.rdd import RDD


CLOSE_WAIT_S = 10.0
"""How long `close` waits for a description under way, as `JobThread.close` does for a job."""


class StepsAhead:
    """The jobs of the steps of one layout.

    **State** the description of at most one job to come, and a thread that makes it.
    **Errors** those of Spark, of the description as of the run: from `run`. What fails ahead of its step is described again
    at the step.
    """

    def __init__(self, ground: RDD[int], task: StepTask, workers: int, plan: Plan) -> None:
        """A recursion runs jobs while it is described, so nothing is made ahead of it."""
        self._ground, self._task, self._workers, self._plan = ground, task, workers, plan
        self._next: Future[RDD[Any]] | None = None
        self._orders: queue.SimpleQueue[tuple[int, Future[RDD[Any]]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        if not plan.loops:
            self._thread = threading.Thread(target=self._build, name="spark-steps-ahead", daemon=True)
            self._thread.start()

    def run(self, record: StepRecord, epoch: int) -> list[Any]:
        """What the workers report of a step; which one it is the jobs learn from this thread's local property."""
        self._ground.context.setLocalProperty(ORDER, as_property(record, epoch))
        job = self._made()
        if job is None:
            job = self._described(record.step)
        if self._thread is not None:
            self._next = Future()
            self._orders.put((record.step + 1, self._next))
        return job.collect()

    def _made(self) -> RDD[Any] | None:
        """What was described ahead; None if nothing was, or it failed: if there is a reason, it fails again at the step."""
        made, self._next = self._next, None
        if made is not None:
            with suppress(Exception):
                return made.result()
        return None

    def _described(self, step: int) -> RDD[Any]:
        job = step_rdd(self._ground, self._task, self._workers, self._plan, step)
        if not self._plan.loops:
            job._jrdd  # noqa: B018  (PySpark describes the last stage to the JVM when this is first asked for)
        return job

    def _build(self) -> None:
        """The thread."""
        while (order := self._orders.get()) is not None:
            step, future = order
            try:
                job = self._described(step)
            except BaseException as error:  # noqa: BLE001 - the step gets it
                future.set_exception(error)
            else:
                future.set_result(job)

    def close(self, wait_s: float = CLOSE_WAIT_S) -> None:
        """End the thread; one that hangs in the JVM is left to itself after `wait_s`."""
        if self._thread is not None:
            thread, self._thread = self._thread, None
            self._orders.put(None)
            thread.join(wait_s)
