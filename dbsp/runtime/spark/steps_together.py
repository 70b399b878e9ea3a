"""The steps of a layout as jobs of one stage, whose tasks meet at exchanges (`dbsp.runtime.spark.meetings`).

Without a shuffle nothing of a job is left for the next one to mistake for its own, so it is described once, not for every step.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from dbsp.plan.plan import Plan
from dbsp.runtime.spark.jobs import collected
from dbsp.runtime.spark.meetings import Meetings
from dbsp.runtime.spark.step_job import MEETING, StepTask, whole_step

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.core.rdd import RDD


class StepsTogether:
    """The jobs of the steps of one layout. **Errors** those of Spark."""

    def __init__(self, ground: RDD[int], task: StepTask, workers: int, meetings: Meetings) -> None:
        """Describe the job."""
        self._job: RDD[Any] = ground.mapPartitionsWithIndex(partial(whole_step, task, meetings.address))
        self._workers, self._meetings = workers, meetings

    def run(self, step: int) -> list[Any]:  # noqa: ARG002 - which one it is, the tasks learn from the thread's local property
        """What the workers report of a step."""
        with self._meetings.held(self._workers) as number:
            self._job.context.setLocalProperty(MEETING, str(number))
            return collected(self._job)

    def close(self) -> None:
        """Nothing is kept."""


def meet(context: SparkContext, plan: Plan, workers: int) -> bool:
    """Whether the tasks of a step may wait for one another: all of them certainly run at once, as long as the JVM lives.

    Not where executors come and go, and not in a plan with loops, whose rounds are jobs of their own, or without exchanges.
    """
    if plan.loops or plan.segments == 1 or not str(context.master).startswith("local["):
        return False
    cores: Any = context._jsc.sc().schedulerBackend().totalCores()
    return workers * int(context.getConf().get("spark.task.cpus", "1") or 1) <= int(cores)
