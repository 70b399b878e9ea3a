"""Build the Spark job of the next step while the current step runs.

Building a job takes the driver a few milliseconds of calls into the JVM, a tenth of a small step. All steps of a layout
have the same job, so the next job is built while the driver only waits for the current one. Each job runs once: Spark would take
the shuffle files of an earlier run of the same job as the result of the next run.

The builder is a daemon thread, not a thread of an executor. The interpreter would wait for an executor's thread at its exit,
and a call into a stopped JVM never returns.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from dbsp.logs import StepRecord
from dbsp.plan.plan import Plan
from dbsp.runtime.spark.placement import drain
from dbsp.runtime.spark.step_job import ORDER, Record, StepTask, as_property, exchanged, step_rdd

if TYPE_CHECKING:
    from pyspark.core.rdd import RDD


CLOSE_WAIT_S = 10.0
"""Seconds that `close` waits for a job that is being built; `JobThread.close` also waits for a job so long."""


class StepsAhead:
    """The jobs of the steps of one layout, each built ahead of its step.

    **State** at most one job built ahead, and the thread that builds it.
    **Errors** `run` raises Spark's errors, those of building included. A job whose early build failed is built again at its step.
    """

    def __init__(self, ground: RDD[int], task: StepTask, workers: int, plan: Plan) -> None:
        """Start the building thread, unless the plan has loops: building such a job runs other jobs, so it cannot be early."""
        self._ground, self._task, self._workers, self._plan = ground, task, workers, plan
        self._next: Future[RDD[Any]] | None = None
        self._orders: queue.SimpleQueue[tuple[int, Future[RDD[Any]]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        if not plan.loops:
            self._thread = threading.Thread(target=self._build, name="spark-steps-ahead", daemon=True)
            self._thread.start()

    def run(self, record: StepRecord, epoch: int) -> list[Any]:
        """Run a step and return the workers' reports; a local property of this thread tells the tasks which step runs."""
        self._ground.context.setLocalProperty(ORDER, as_property(record, epoch))
        job = self._made()
        if job is None:
            job = self._described(record.step)
        if self._thread is not None:
            self._next = Future()
            self._orders.put((record.step + 1, self._next))
        return job.collect()

    def warm_up(self) -> None:
        """Exchange an empty record between all workers, so that executors load what the exchange of a first step needs."""
        sent = self._ground.mapPartitionsWithIndex(partial(_nothing_for_each, self._workers))
        exchanged(sent, self._task, self._workers).mapPartitions(_ended).collect()

    def _made(self) -> RDD[Any] | None:
        """Return the job built ahead, or None; a failed build also gives None, as a lasting cause fails again at the step."""
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
        """Build jobs until the order to end; the body of the thread."""
        while (order := self._orders.get()) is not None:
            step, future = order
            try:
                job = self._described(step)
            except BaseException as error:  # noqa: BLE001 - `_made` reads the future
                future.set_exception(error)
            else:
                future.set_result(job)

    def close(self, wait_s: float = CLOSE_WAIT_S) -> None:
        """End the thread; abandon it after `wait_s` seconds if it hangs in the JVM."""
        if self._thread is not None:
            thread, self._thread = self._thread, None
            self._orders.put(None)
            thread.join(wait_s)


def warm_exchange(steps: object) -> None:
    """Warm up the exchange of steps that are jobs; resident tasks exchange without Spark."""
    if isinstance(steps, StepsAhead):
        steps.warm_up()


def _nothing_for_each(workers: int, _index: int, nothing: Iterable[int]) -> Iterator[Record]:
    """Yield an empty record for each worker."""
    drain(nothing)
    yield from ((destination, b"") for destination in range(workers))


def _ended(records: Iterable[Record]) -> Iterator[Record]:
    """Read the records to their end, and yield nothing."""
    deque(records, maxlen=0)
    return iter(())
