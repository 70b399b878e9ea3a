from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from databases import Kit, MemoryKit, WorkerKit


@pytest.fixture(params=["memory", "lmdb"])
def kit(request: pytest.FixtureRequest, tmp_path: Path) -> Kit:
    """Each database in turn."""
    return MemoryKit() if request.param == "memory" else WorkerKit(tmp_path)
