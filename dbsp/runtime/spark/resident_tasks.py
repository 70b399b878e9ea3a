"""Run the steps of a layout on resident tasks: one Spark job runs many steps.

`dbsp.runtime.spark.task_server` explains the protocol. While other jobs need the cores, the resident job ends after each step.
"""

from __future__ import annotations

import pickle
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from dbsp.errors import DbspError
from dbsp.logs import StepRecord
from dbsp.runtime.spark.jobs import begun
from dbsp.runtime.spark.step_job import TASK_CONNECTION, StepTask, resident_task
from dbsp.runtime.spark.task_server import TaskServer

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.core.rdd import RDD

CLOSE_WAIT_S = 10.0
"""Seconds that `close` waits for the job to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ResidentJob:
    """A resident job: its number, its Spark action, and a future that ends with it."""

    number: int
    action: Any
    ended: Future[None] = field(default_factory=Future)


class ResidentTasks:
    """The runner of one layout's steps on resident tasks.

    **State** the resident job, and a thread that waits for its end.
    **Errors** those of Spark, and the error of a job that ends during a step.
    """

    def __init__(
        self, ground: RDD[int], task: StepTask, workers: int, task_server: TaskServer, stays: Callable[[], bool]
    ) -> None:
        """Build the job; `stays` returns, after each step, whether the tasks may keep their cores until the next one."""
        self._job: RDD[Any] = ground.mapPartitionsWithIndex(partial(resident_task, task, task_server.address))
        self._workers, self._task_server, self._stays = workers, task_server, stays
        self._standing: _ResidentJob | None = None
        self._began: queue.SimpleQueue[_ResidentJob | None] = queue.SimpleQueue()
        self._watcher = threading.Thread(target=self._watch, name="spark-standing", daemon=True)
        self._watcher.start()

    def run(self, record: StepRecord, epoch: int) -> list[Any]:
        """Run a step and return the workers' reports; start a resident job if there is none."""
        order, reports = pickle.dumps((record, epoch)), None
        while reports is None:
            standing = self._standing = self._at_hand() or self._begin()
            try:
                reports = self._task_server.step(standing.number, order, self._workers, record.step)
            except DbspError:
                standing.ended.result()  # raises the job's own error, which names the cause
                raise
            if reports is None:
                standing.ended.exception()  # the idle job ended before the step began; start another, however it ended
        if not self._stays():
            self._task_server.send_away()
            standing.ended.result()
        return [pickle.loads(report) for report in reports]  # noqa: S301  (made by this project's workers)

    def coming(self, record: StepRecord, epoch: int) -> None:
        """Notify idle workers of a step whose record is durable, so that they read its input."""
        self._task_server.coming(pickle.dumps((record, epoch)), record.step)

    def close(self) -> None:
        """Dismiss the tasks and wait for the end of their job; abandon it after `CLOSE_WAIT_S` seconds if it hangs in the JVM."""
        self._task_server.send_away()
        self._began.put(None)
        self._watcher.join(CLOSE_WAIT_S)

    def _at_hand(self) -> _ResidentJob | None:
        """Return the resident job; None if there is none or it has ended."""
        standing = self._standing
        return None if standing is None or standing.ended.done() else standing

    def _begin(self) -> _ResidentJob:
        """Start a resident job in this thread's job group and pool."""
        number = self._task_server.stand()
        try:
            self._job.context.setLocalProperty(TASK_CONNECTION, str(number))
            standing = _ResidentJob(number=number, action=begun(self._job))
        except BaseException:
            self._task_server.over(number)
            raise
        self._began.put(standing)
        return standing

    def _watch(self) -> None:
        """Wait for the end of each resident job in turn and pass on its error; the body of the thread."""
        while (standing := self._began.get()) is not None:
            error = None
            try:
                standing.action.get()
            except BaseException as found:  # noqa: BLE001  (handed to the step that waits)
                error = found
            if error is None:
                standing.ended.set_result(None)
            else:
                standing.ended.set_exception(error)
            self._task_server.over(standing.number)


def meet(context: SparkContext, workers: int) -> bool:
    """Return whether the tasks of a step may wait for one another, because all of them certainly run at once.

    That holds for `local[N]` with a core for each worker. With separate executors it does not: a lost one would leave the other
    tasks waiting.
    """
    if not str(context.master).startswith("local["):
        return False
    cores: Any = context._jsc.sc().schedulerBackend().totalCores()
    return workers * int(context.getConf().get("spark.task.cpus", "1") or 1) <= int(cores)
