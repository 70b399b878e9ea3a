"""A Python worker that imports another version of dbsp than the driver runs takes no task; no JVM is needed to see it."""

from __future__ import annotations

import pickle

import pytest

from dbsp.errors import EngineError
from dbsp.runtime.spark.shared import PackedWork, unpack
from dbsp.version import VERSION


def test_a_worker_of_another_version_takes_no_task() -> None:
    data = pickle.dumps("work")
    assert unpack(PackedWork(digest="own", data=data)) == "work"
    with pytest.raises(EngineError, match=f"worker={VERSION} coordinator=0\\.0\\.1 host=") as refused:
        unpack(PackedWork(digest="other", data=data, engine="0.0.1"))
    assert "coordinator upgrade" in str(refused.value)
