"""A limit on the memory of single processes: whoever goes beyond it is ended by SIGKILL, as the kernel does for want of memory.

Where a memory cgroup can be made, the kernel does it. Elsewhere (a test run without the rights) a thread of the test process
plays its part: it kills from outside, at whatever moment, who holds more than was allowed.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.spark.waiting import until

LIMIT_BYTES = 64 << 20
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PARENTS = (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup"))
_LIMITS = ("memory.limit_in_bytes", "memory.max")


@contextmanager
def limited(folder: Path) -> Iterator[None]:
    """Whoever calls `enter` for this folder meanwhile may take `LIMIT_BYTES` more and no more."""
    folder.mkdir()
    group = _cgroup()
    if group is not None:
        (folder / "cgroup").write_text(str(group))
        try:
            yield
        finally:
            until(lambda: not (group / "cgroup.procs").read_text(), "the group is empty")
            group.rmdir()
        return
    over = threading.Event()
    thread = threading.Thread(target=_watch, args=(folder, over))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def enter(folder: Path) -> None:
    """This process is under the limit from here on."""
    group = folder / "cgroup"
    if group.exists():
        (Path(group.read_text()) / "cgroup.procs").write_text(str(os.getpid()))
    else:
        (folder / f"allowed {os.getpid()}").write_text(str(_resident(os.getpid()) + LIMIT_BYTES))


def hoard(bytes_max: int = 16 * LIMIT_BYTES) -> None:
    """Take memory, and use it, until there is none; ends by itself only if there is no limit."""
    held = [bytearray(os.urandom(1 << 10) * (1 << 10)) for _ in range(bytes_max >> 20)]
    raise AssertionError(f"nobody has minded: bytes={sum(map(len, held))}")


@contextmanager
def own_limit() -> Iterator[None]:
    """This process may reserve `LIMIT_BYTES` more and no more: what goes beyond is a `MemoryError`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    reserved = int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE
    resource.setrlimit(resource.RLIMIT_AS, (reserved + LIMIT_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _cgroup() -> Path | None:
    """A new group with the limit, of either version of cgroups; None where none may be made."""
    for parent, name in zip(_PARENTS, _LIMITS, strict=True):
        group = parent / f"dbsp-test-{os.getpid()}-{os.urandom(4).hex()}"
        with suppress(OSError):
            group.mkdir()
            try:
                (group / name).write_text(str(LIMIT_BYTES))
                swap = group / "memory.swap.max"
                if swap.exists():
                    swap.write_text("0")
                _try(group)
            except OSError:
                group.rmdir()
                continue
            return group
    return None


def _try(group: Path) -> None:
    """Let a process enter that does nothing; `OSError` where that is not allowed."""
    with subprocess.Popen(["sleep", "60"]) as idle:
        try:
            (group / "cgroup.procs").write_text(str(idle.pid))
        finally:
            idle.kill()


def _watch(folder: Path, over: threading.Event) -> None:
    while not over.wait(0.002):
        for file in folder.glob("allowed *"):
            pid = int(file.name.split()[1])
            with suppress(OSError, ValueError):
                if _resident(pid) > int(file.read_text()):
                    os.kill(pid, signal.SIGKILL)
                    file.unlink()


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
