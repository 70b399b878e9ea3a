"""Keeps freed memory in the process, because getting it back from the kernel costs more than the work done in it.

A step allocates and frees the same few megabytes again and again. By default glibc returns them at each free and takes
each page anew, at 0.2 to 1.5 microseconds per 4 KiB: on a virtual machine a merge of two runs of 100,000 rows took 1.6 ms,
1.2 of them page faults. So blocks up to 128 MiB come from the heap, and up to `kept_bytes_max` of freed heap is kept.
Arrow's columns come from the same heap: the allocator that Arrow brings gives freed pages back by a clock of its own.
"""

from __future__ import annotations

import ctypes
import os
import sys

import pyarrow as pa

KEPT_BYTES_MAX = 256 * 1024 * 1024
"""How much freed heap stays with the process, unless `DBSP_KEPT_BYTES_MAX` says otherwise; 0 leaves glibc alone."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_HEAP_BLOCK_BYTES_MAX = (128 * 1024 * 1024, 32 * 1024 * 1024)
"""The second one where glibc refuses the first, as versions before 2.35 do."""


def keep_freed_memory(kept_bytes_max: int) -> bool:
    """Set glibc's thresholds for this process, and have Arrow use its heap unless the environment names Arrow's allocator.

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
    if done and "ARROW_DEFAULT_MEMORY_POOL" not in os.environ:
        pa.set_memory_pool(pa.system_memory_pool())
    return bool(done)


def kept_bytes_max() -> int:
    """The limit from the environment, or the default; what is not a number counts as the default."""
    text = os.environ.get("DBSP_KEPT_BYTES_MAX", "")
    return int(text) if text.isascii() and text.isdigit() else KEPT_BYTES_MAX
