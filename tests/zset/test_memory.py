"""Freed memory stays with the process, within its limit, unless the user says otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dbsp.zset.kernels.memory import KEPT_BYTES_MAX, keep_freed_memory, kept_bytes_max

PROGRAM = """
import resource
import numpy as np
import dbsp.zset.kernels
def step():
    np.empty(400_000, np.int64)[:] = 1
step(), step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(limit: str) -> int:
    """Page faults of twenty allocations of 3.2 MB."""
    environment = {**os.environ, "DBSP_KEPT_BYTES_MAX": limit}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, capture_output=True, text=True)
    return int(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's thresholds exist on Linux only")
def test_steps_take_no_new_pages() -> None:
    """After the first step the same memory is used again."""
    assert faults("268435456") < 200


def test_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment wins; nonsense counts as the default; 0 leaves the allocator alone."""
    monkeypatch.delenv("DBSP_KEPT_BYTES_MAX", raising=False)
    assert kept_bytes_max() == KEPT_BYTES_MAX
    monkeypatch.setenv("DBSP_KEPT_BYTES_MAX", "17")
    assert kept_bytes_max() == 17
    monkeypatch.setenv("DBSP_KEPT_BYTES_MAX", "-1 GiB")
    assert kept_bytes_max() == KEPT_BYTES_MAX
    assert not keep_freed_memory(0)
