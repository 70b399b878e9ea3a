"""Settings of glibc's heap that keep freed memory in the process.

To get memory back from the kernel costs more than the work done in it. A step allocates and frees the same few megabytes
again and again. By default glibc returns them at each free and maps each page anew, at 0.2 to 1.5 microseconds per 4 KiB.
On a virtual machine a merge of two runs of 100,000 rows took 1.6 ms, 1.2 of them page faults. So blocks up to 128 MiB are
allocated on the heap, and up to `kept_bytes_max` of freed heap is kept. Arrow's columns use the same heap, because
Arrow's bundled allocator gives freed pages back on a timer of its own.

All threads share that heap. A heap that glibc gives to one thread holds 64 MiB at most, and larger blocks are mapped anew
each time. A thread that reads ahead or copies a checkpoint while steps run then mapped all its pages anew
(docs/design/0016). The number of heaps is settled when a thread first allocates. The threads of numpy do so when numpy is
imported, so `dbsp` imports this module first.
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
    """Set glibc's thresholds for this process, and have its threads share one heap unless the environment sets a count.

    Return False if `kept_bytes_max` is 0 or less, or if the C library is not glibc.
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
    """Return the limit from the environment, or the default if the variable is not a number."""
    text = os.environ.get("DBSP_KEPT_BYTES_MAX", "")
    return int(text) if text.isascii() and text.isdigit() else KEPT_BYTES_MAX


KEEPS = keep_freed_memory(kept_bytes_max())
"""Whether this process does."""


def share_with_arrow() -> None:
    """Allocate Arrow's columns on this heap, unless it does not keep freed memory or the environment names an allocator."""
    import pyarrow as pa  # noqa: PLC0415 - not before the heap is as it should be

    if KEEPS and "ARROW_DEFAULT_MEMORY_POOL" not in os.environ:
        pa.set_memory_pool(pa.system_memory_pool())
