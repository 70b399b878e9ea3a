from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from databases import Kit, MemoryKit, WorkerKit

from dbsp.storage import registry


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    """Close what a test leaves open: each is a map of 1 TiB, and a process has room for some hundred."""
    before = set(registry._open_environments)
    yield
    for key in set(registry._open_environments) - before:
        if key[0] == os.getpid():
            registry._open_environments.pop(key).close()


@pytest.fixture(params=["memory", "lmdb"])
def kit(request: pytest.FixtureRequest, tmp_path: Path) -> Kit:
    """Each database in turn."""
    return MemoryKit() if request.param == "memory" else WorkerKit(tmp_path)
