"""Spark's runtimes for `benchmarks.read_ahead`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from dbsp.runtime.background import BackgroundProcesses
from dbsp.runtime.spark.runtime import SparkRuntime
from dbsp.runtime.spark.session import SparkSettings, start
from dbsp.runtime.work import Work


@dataclass(frozen=True)
class DearInput:
    """A site as it is, but for the claim that its input takes long to read, so that background workers read it."""

    inner: Any
    input_is_expensive: bool = True

    def __getattr__(self, name: str) -> Any:
        """Everything else."""
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)


@contextmanager
def making(workers: int, background: bool) -> Iterator[Callable[[bool], Callable[[Work], SparkRuntime]]]:
    """How to make a runtime, with reading ahead or without, on one Spark."""
    spark = start(SparkSettings(master=f"local[{workers}]", app_name="benchmark"))

    def make(ahead: bool) -> Callable[[Work], SparkRuntime]:
        def runtime(work: Work) -> SparkRuntime:
            if not ahead or not background:
                return SparkRuntime(work, spark=spark)
            found = BackgroundProcesses(str(work.resources.data_dir))  # type: ignore[attr-defined]
            made = SparkRuntime(replace(work, resources=DearInput(work.resources), background=found), spark=spark)
            near = made._near.background if made._near is not None else None
            for worker in range(workers):
                near.of(worker).ready(60.0)  # type: ignore[union-attr]
            return made

        return runtime

    try:
        yield make
    finally:
        spark.stop()
