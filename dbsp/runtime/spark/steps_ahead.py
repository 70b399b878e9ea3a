"""Builds the job of the next step while the one before it runs.

To describe a job to Spark takes the driver a few milliseconds of calls into the JVM, a tenth of a small step. The job is the
same for every step of a layout, so the next one is described while the driver only waits for this one. A description is
used once: Spark would take the shuffle files of a job that ran before for the result of its next run.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from dbsp.plan.plan import Plan
from dbsp.runtime.spark.step_job import StepTask, step_rdd

if TYPE_CHECKING:
    from pyspark.core.rdd import RDD


class StepsAhead:
    """The jobs of the steps of one layout.

    **State** the description of at most one job to come, and a thread that makes it.
    **Errors** those of Spark, of the description as of the run: from `run`.
    """

    def __init__(self, ground: RDD[int], task: StepTask, workers: int, plan: Plan) -> None:
        """A recursion runs jobs while it is described, so nothing is made ahead of it."""
        self._ground, self._task, self._workers, self._plan = ground, task, workers, plan
        self._builder = None if plan.loops else ThreadPoolExecutor(1, thread_name_prefix="spark-steps-ahead")
        self._next: Future[RDD[Any]] | None = None

    def run(self, step: int) -> list[Any]:
        """What the workers report of a step; which one it is the jobs learn from the thread's local property."""
        if self._builder is None:
            return self._described(step).collect()
        made, self._next = self._next, None
        job = made.result() if made is not None else self._described(step)
        self._next = self._builder.submit(self._described, step + 1)
        return job.collect()

    def _described(self, step: int) -> RDD[Any]:
        job = step_rdd(self._ground, self._task, self._workers, self._plan, step)
        if self._builder is not None:
            job._jrdd  # noqa: B018  (PySpark describes the last stage to the JVM when this is first asked for)
        return job

    def close(self) -> None:
        """End the thread."""
        if self._builder is not None:
            self._builder.shutdown(wait=True, cancel_futures=True)
