"""Bounds on waiting rows, so that a producer that is too fast waits, and the disk does not fill.

The checks compute with offsets; the service asks before it appends. Before a body is decoded, the service also asks
whether the process has the memory and the descriptors for it. A refused body cannot exhaust the process.

A refused push leaves no row, and the client sends it again later. An admitted push may take the backlog over the bound
by its own size. So a push larger than the bound is not refused for ever.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dbsp.coordinator.decisions.cutting import Place
from dbsp.errors import OverloadedError
from dbsp.io.connectors import InputKind
from dbsp.logs import Range
from dbsp.logs.sizes import Sizes

HINT = "send it again later; or raise `max_backlog_rows`, `max_backlog_bytes` in [input]"

MEMORY_PER_BYTE = 40
"""Bytes of memory required per byte of a body: twice the 20 that decoding a JSON array takes, as measured (lines: 2.4)."""
MEMORY_RESERVE_BYTES = 64 << 20
"""Memory that a push leaves for steps."""
DESCRIPTORS_RESERVE = 32
"""File descriptors that a push leaves for the engine, which opens databases, logs and processes."""


def refuse_scarcity(size: int) -> None:
    """Refuse a body of this size if memory to decode it may be missing on the host, or descriptors in the process.

    **Cost** some system calls; the open descriptors are counted.
    **Errors** `OverloadedError` with the needed and the remaining amount.
    """
    free, needed = free_bytes(), size * MEMORY_PER_BYTE + MEMORY_RESERVE_BYTES
    if free is not None and needed > free:
        raise OverloadedError(
            f"not enough memory for this push: bytes={size} needed_bytes={needed} free_bytes={free}",
            "send smaller pushes, or send it again later",
        )
    left = descriptors_left()
    if left is not None and left < DESCRIPTORS_RESERVE:
        raise OverloadedError(
            f"the process has too many files and connections open: descriptors_left={left}",
            "send it again later; or start the service with a larger `ulimit -n`",
        )


def free_bytes() -> int | None:
    """Return the memory that the host can give out, or the cgroup's if that is less; None where /proc does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return None
    try:
        most = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return found
    return found if most == "max" else min(found, max(0, int(most) - used))


def descriptors_left() -> int | None:
    """Return how many descriptors the process may still open; None without a limit or without /proc."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        return int(most) - sum(1 for _ in Path("/proc/self/fd").iterdir()) if most != resource.RLIM_INFINITY else None
    except FileNotFoundError:
        return None
    except OSError:  # without a free descriptor /proc cannot be read
        return 0


def refuse_overload(
    waiting: Sequence[Range],
    sizes: Callable[[Sequence[Range]], Mapping[Place, Sizes]],
    limits: InputKind,
) -> None:
    """Refuse a push while the backlog `waiting` reaches a bound of the settings; `sizes` is the function of the log.

    **Errors** `OverloadedError` with the backlog and the bound that it exceeds.
    """
    total = sum(each.last - each.first for each in waiting)
    if total >= limits.max_backlog_rows:
        raise OverloadedError(
            f"too many rows wait: backlog_rows={total} max_backlog_rows={limits.max_backlog_rows}", HINT
        )
    known = sizes(waiting)
    size = sum(known[each.table, each.partition].between(each.first, each.last) for each in waiting)
    if size >= limits.max_backlog_bytes:
        raise OverloadedError(
            f"too many bytes wait: backlog_bytes={size} max_backlog_bytes={limits.max_backlog_bytes}", HINT
        )
