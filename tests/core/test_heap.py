"""Freed memory stays with the process, within its limit, unless the user says otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dbsp.heap import KEPT_BYTES_MAX, keep_freed_memory, kept_bytes_max

PROGRAM = """
import resource, sys, threading
import dbsp
import numpy as np
def fill():
    np.empty(int(sys.argv[2]), np.int64)[:] = 1
def step():
    if sys.argv[1] == "here":
        return fill()
    thread = threading.Thread(target=fill)
    thread.start()
    thread.join()
step(), step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


POOL = "import dbsp.zset.kernels, pyarrow; print(pyarrow.default_memory_pool().backend_name)"


def pool(**settings: str) -> str:
    """Where a process with these settings has Arrow's columns from."""
    plain = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    done = subprocess.run(
        [sys.executable, "-c", POOL], env=plain | settings, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def faults(limit: str, where: str, words: int = 400_000) -> int:
    """Page faults of twenty allocations of so many words, in the first thread or in a new one each."""
    environment = {**os.environ, "DBSP_KEPT_BYTES_MAX": limit}
    command = [sys.executable, "-c", PROGRAM, where, str(words)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return int(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's thresholds exist on Linux only")
def test_steps_take_no_new_pages() -> None:
    """After the first step the same memory is used again."""
    assert faults("268435456", "here") < 200


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's heaps exist on Linux only")
def test_threads_take_no_new_pages_for_large_blocks() -> None:
    """They share the heap of the process, which has room for blocks that one of a thread's own has not."""
    assert faults("268435456", "in threads", 9_000_000) < 1000


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's heap exists on Linux only")
def test_columns_come_from_the_same_heap_unless_the_user_says_otherwise() -> None:
    """Arrow's own switch wins, and where freed memory is not kept nothing is changed."""
    assert pool() == "system"
    assert pool(ARROW_DEFAULT_MEMORY_POOL="mimalloc") == "mimalloc"
    assert pool(DBSP_KEPT_BYTES_MAX="0") != "system"


def test_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment wins; nonsense counts as the default; 0 leaves the allocator alone."""
    monkeypatch.delenv("DBSP_KEPT_BYTES_MAX", raising=False)
    assert kept_bytes_max() == KEPT_BYTES_MAX
    monkeypatch.setenv("DBSP_KEPT_BYTES_MAX", "17")
    assert kept_bytes_max() == 17
    monkeypatch.setenv("DBSP_KEPT_BYTES_MAX", "-1 GiB")
    assert kept_bytes_max() == KEPT_BYTES_MAX
    assert not keep_freed_memory(0)
