"""One Spark per module: a JVM takes four seconds to start, a process has only one, and some modules start their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dbsp.runtime.runtime import Runtime
from dbsp.runtime.spark.runtime import SparkRuntime
from dbsp.runtime.spark.session import SparkHandle, SparkSettings, start
from dbsp.runtime.tasks import Work
from tests.spark.pipelines import MakeRuntime, Open, Pipeline


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkHandle]:
    handle = start(SparkSettings(master="local[2]", work_dir=tmp_path_factory.mktemp("spark") / "work"))
    yield handle
    handle.stop()
    assert not handle.alive()


@pytest.fixture
def on_spark(spark: SparkHandle) -> MakeRuntime:
    def make(work: Work) -> Runtime:
        return SparkRuntime(work, spark=spark)

    return make


@pytest.fixture
def opened() -> Iterator[Open]:
    """Opens pipelines that are closed at the end, however it comes."""
    pipelines: list[Pipeline] = []

    def open_one(*arguments: Any, kind: type[Pipeline] = Pipeline, **named: Any) -> Pipeline:
        pipelines.append(kind(*arguments, **named))
        return pipelines[-1]

    yield open_one
    for pipeline in pipelines:
        pipeline.close()
