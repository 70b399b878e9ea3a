"""One Spark per module: a JVM takes four seconds to start, a process has only one, and some modules start their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dbsp.runtime.spark.session import SparkHandle, SparkSettings, start


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkHandle]:
    handle = start(SparkSettings(master="local[2]", work_dir=tmp_path_factory.mktemp("spark") / "work"))
    yield handle
    handle.stop()
    assert not handle.alive()
