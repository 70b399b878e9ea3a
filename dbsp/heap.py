"""Keeps freed memory in the process, because getting it back from the kernel costs more than the work done in it.

A step allocates and frees the same few megabytes again and again. By default glibc returns them at each free and takes
each page anew, at 0.2 to 1.5 microseconds per 4 KiB: on a virtual machine a merge of two runs of 100,000 rows took 1.6 ms,
1.2 of them page faults. So blocks up to 128 MiB come from the heap, and up to `kept_bytes_max` of freed heap is kept.
Arrow's columns come from the same heap: the allocator that Arrow brings gives freed pages back by a clock of its own.

All threads share that heap. Those that glibc gives to threads hold 64 MiB at most, and what is larger is mapped anew each time:
who reads ahead or copies a checkpoint beside the steps took new pages for all of it (docs/design/0016). How many heaps there are
is settled when a thread first asks for memory, which numpy's do when it is imported; so `dbsp` imports this first.
"""

from __future__ import annotations

import ctypes
import os
import sys

KEPT_BYTES_MAX = 256 * 1024 * 1024
"""How much freed heap stays with the process, unless `DBSP_KEPT_BYTES_MAX` says otherwise; 0 leaves glibc alone."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_HEAP_BLOCK_BYTES_MAX = (128 * 1024 * 1024, 32 * 1024 * 1024)
"""The second one where glibc refuses the first, as versions before 2.35 do."""


def keep_freed_memory(kept_bytes_max: int) -> bool:
    """Set glibc's thresholds for this process, and have its threads share a heap unless the environment says how many.

    False where the C library is another, or where it is not wanted.
    """
    if kept_bytes_max <= 0 or not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    kept = min(kept_bytes_max, (1 << 31) - 1)
    done = any(mallopt(_M_MMAP_THRESHOLD, size) for size in _HEAP_BLOCK_BYTES_MAX) and mallopt(_M_TRIM_THRESHOLD, kept)
    if done and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(_M_ARENA_MAX, 1)
    return bool(done)


def kept_bytes_max() -> int:
    """The limit from the environment, or the default; what is not a number counts as the default."""
    text = os.environ.get("DBSP_KEPT_BYTES_MAX", "")
    return int(text) if text.isascii() and text.isdigit() else KEPT_BYTES_MAX


KEEPS = keep_freed_memory(kept_bytes_max())
"""Whether this process does."""


def share_with_arrow() -> None:
    """Have Arrow's columns come from the heap, if it keeps what is freed and the environment names no allocator of Arrow's."""
    import pyarrow as pa  # noqa: PLC0415 - not before the heap is as it should be

    if KEEPS and "ARROW_DEFAULT_MEMORY_POOL" not in os.environ:
        pa.set_memory_pool(pa.system_memory_pool())
