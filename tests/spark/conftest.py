"""One Spark for all modules that take the usual one: a JVM takes four seconds to start.

A process has only one, and some modules start their own, so it is stopped before the first file that does not ask for it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest

from dbsp.runtime.runtime import Runtime
from dbsp.runtime.spark.runtime import SparkRuntime
from dbsp.runtime.spark.session import SparkHandle, SparkSettings, start
from dbsp.runtime.work import Work
from tests.spark.pipelines import MakeRuntime, Open, Pipeline

NEXT = pytest.StashKey[pytest.Item | None]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
    """What runs next in this process, for the fixture that is about to end."""
    item.config.stash[NEXT] = nextitem
    return (yield)


def takes_the_usual_one(item: pytest.Item | None) -> bool:
    """Whether the test, or another one of its file, does."""
    if item is None:
        return False
    of_its_file = (other for other in item.session.items if other.path == item.path)
    return any("spark" in getattr(other, "fixturenames", ()) for other in of_its_file)


@pytest.fixture(scope="session")
def sparks() -> list[SparkHandle]:
    """The one that runs, if one does."""
    return []


@pytest.fixture(scope="module")
def spark(
    sparks: list[SparkHandle], request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkHandle]:
    if sparks and not sparks[0].alive():
        sparks.pop().stop()
    if not sparks:
        sparks.append(start(SparkSettings(master="local[2]", work_dir=tmp_path_factory.mktemp("spark") / "work")))
    (handle,) = sparks
    yield handle
    if not takes_the_usual_one(request.config.stash[NEXT]):
        sparks.clear()
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
