"""The steps of a layout without a job for each: the tasks of one job stay, and are given one step after the other.

See `dbsp.runtime.spark.meetings`. Where others need the cores a job stands for one step alone.
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
from dbsp.runtime.spark.meetings import Meetings
from dbsp.runtime.spark.step_job import MEETING, StepTask, standing_worker

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.core.rdd import RDD

CLOSE_WAIT_S = 10.0
"""How long `close` waits for the job to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standing:
    """A job whose tasks stay: the number under which they stand, and its end."""

    number: int
    action: Any
    ended: Future[None] = field(default_factory=Future)


class StepsTogether:
    """The steps of one layout.

    **State** the job that stands, and a thread that waits for its end.
    **Errors** those of Spark; of a job that ends in the middle of a step.
    """

    def __init__(
        self, ground: RDD[int], task: StepTask, workers: int, meetings: Meetings, stays: Callable[[], bool]
    ) -> None:
        """Describe the job; `stays` says after each step whether its tasks may wait for the next one."""
        self._job: RDD[Any] = ground.mapPartitionsWithIndex(partial(standing_worker, task, meetings.address))
        self._workers, self._meetings, self._stays = workers, meetings, stays
        self._standing: _Standing | None = None
        self._began: queue.SimpleQueue[_Standing | None] = queue.SimpleQueue()
        self._watcher = threading.Thread(target=self._watch, name="spark-standing", daemon=True)
        self._watcher.start()

    def run(self, record: StepRecord, epoch: int) -> list[Any]:
        """What the workers report of a step."""
        order, reports = pickle.dumps((record, epoch)), None
        while reports is None:
            standing = self._standing = self._at_hand() or self._begin()
            try:
                reports = self._meetings.step(standing.number, order, self._workers, record.step)
            except DbspError:
                standing.ended.result()  # what ended it says more
                raise
            if reports is None:
                standing.ended.exception()  # it has gone for want of steps; whether well does not matter
        if not self._stays():
            self._meetings.send_away()
            standing.ended.result()
        return [pickle.loads(report) for report in reports]  # noqa: S301  (made by this project's workers)

    def coming(self, record: StepRecord, epoch: int) -> None:
        """A step comes, and its record is durable: workers that have nothing to do may read its input."""
        self._meetings.coming(pickle.dumps((record, epoch)), record.step)

    def close(self) -> None:
        """Let the tasks go, and wait for the end of their job; one that hangs in the JVM is left to itself."""
        self._meetings.send_away()
        self._began.put(None)
        self._watcher.join(CLOSE_WAIT_S)

    def _at_hand(self) -> _Standing | None:
        """The job that stands, unless it has ended."""
        standing = self._standing
        return None if standing is None or standing.ended.done() else standing

    def _begin(self) -> _Standing:
        """Start a job, in the group and the pool of this thread."""
        number = self._meetings.stand()
        try:
            self._job.context.setLocalProperty(MEETING, str(number))
            standing = _Standing(number=number, action=begun(self._job))
        except BaseException:
            self._meetings.over(number)
            raise
        self._began.put(standing)
        return standing

    def _watch(self) -> None:
        """The thread: it waits for jobs to end, one after the other, as they stand one at a time."""
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
            self._meetings.over(standing.number)


def meet(context: SparkContext, workers: int) -> bool:
    """Whether the tasks of a step may wait for one another: all of them certainly run at once, as long as the JVM lives.

    Not where executors come and go.
    """
    if not str(context.master).startswith("local["):
        return False
    cores: Any = context._jsc.sc().schedulerBackend().totalCores()
    return workers * int(context.getConf().get("spark.task.cpus", "1") or 1) <= int(cores)
