"""Tell the kernel which parts of a map will be read, so that it reads large parts, or many at a time.

The maps are opened for random access. The kernel then reads one page of 4 KiB at each touch while the process waits,
and reads no neighbours that nothing asked for. This costs nothing while the state is in memory. Where it is not,
waiting takes all the time, so pages are requested before they are touched:

- All of a chunk where all of it is read (merging, copying, checksums): `will_need`.
- For a look-up, the pages of the hashes that are expected to be read: `foresee_hashes`. Hashes are spread evenly, so a hash is
  within about sqrt(rows) / 2 rows of its share of the chunk's range.
- Then the pages of the rows that were found: `foresee_rows`.

A wrong guess costs only time. `Paging` estimates whether look-ups wait for pages at all. If they do not wait, nothing is
requested.

**Cost** per 2 MiB: 5 us where all is in memory (one system call reports this). On systems other than Linux nothing is
requested, and pages are read as they are touched.

Source: design record 0018 (measured).
"""

from __future__ import annotations

import ctypes
import mmap
import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dbsp.trace.chunks import ChunkRef
from dbsp.zset.encoding import buffer_table

REQUEST_BYTES = 128 << 10
"""Bytes of one request; the kernel silently truncates larger requests to the read-ahead size of the disk."""

PAGE = mmap.PAGESIZE
PAGES_MANY = 64
"""Read-ahead begins after a reading that waited for this many pages."""
READINGS_QUIET = 64
"""Read-ahead ends after this many readings in a row that waited for no page."""

SPREAD = 0.75
"""The assumed distance of a row from its hash's share of the chunk, in units of sqrt(rows): 1.5 standard deviations."""
ROWS_AHEAD = 1024
"""Rows of a long range of equal hashes that are read ahead: a reader of one end of the range needs no more."""

_WILL_NEED = 3

Mask = npt.NDArray[np.bool_]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]


class Paging:
    """An estimate of whether reading the maps of this process waits for the disk.

    The estimate uses the process's page faults and the number of requested pages that were not in memory.
    """

    def __init__(self, faults: Callable[[], int] | None = None) -> None:
        """Start with no waiting; `faults` returns how often this process has waited for a page of a file."""
        self._count = faults or _major_faults
        self._faults = self._count()
        self._absent = 0
        self._left = 0

    @property
    def waits(self) -> bool:
        """Return whether recent readings had to wait for many pages."""
        return self._left > 0

    def begin(self) -> None:
        """Begin a reading: judge by the page faults and absent pages of the reading before."""
        faults = self._count()
        many = faults - self._faults >= PAGES_MANY or self._absent >= PAGES_MANY
        self._left = READINGS_QUIET if many else max(0, self._left - 1)
        self._faults, self._absent = faults, 0

    def found_absent(self, pages: int) -> None:
        """Add pages that had to be requested."""
        self._absent += pages


def _major_faults() -> int:
    """Return how often this process has waited for a page of a file."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def will_need(value: Any) -> int:
    """Request all pages of this value of a map; return how many of them were not in memory."""
    return _ask(MappedPages.of(value), None)


def foresee_hashes(payload: memoryview, ref: ChunkRef, key_hash: U64) -> int:
    """Request the pages where look-ups of these hashes read an encoded chunk; return how many were not in memory."""
    pages = MappedPages.of(payload)
    return _ask(pages, hash_pages(pages, payload, ref, key_hash))


def hash_pages(pages: MappedPages, payload: memoryview, ref: ChunkRef, key_hash: U64) -> Mask:
    """Return the mask of the pages in which these hashes should be found."""
    (offset, nbytes), *_ = buffer_table(payload)
    share = np.clip((key_hash.astype(np.float64) - ref.first) / max(1, ref.last - ref.first), 0, 1) * ref.rows
    spread = SPREAD * np.sqrt(ref.rows)
    width = nbytes / max(1, ref.rows)
    low, high = np.maximum(share - spread, 0) * width, np.minimum(share + spread, ref.rows - 1) * width
    wanted = pages.between(offset + low.astype(np.int64), offset + high.astype(np.int64))
    # decoding reads these as well: everything before the first buffer, and both ends of that buffer
    wanted |= pages.between(np.array([0, offset + nbytes - 1]), np.array([offset, offset + nbytes - 1]))
    return wanted


def foresee_rows(payload: memoryview, ref: ChunkRef, low: I64, high: I64) -> int:
    """Request the pages of rows `low` to `high`; return how many were not in memory.

    At most `ROWS_AHEAD` rows of each range are requested.
    """
    pages = MappedPages.of(payload)
    return _ask(pages, row_pages(pages, payload, ref, low, high))


def row_pages(pages: MappedPages, payload: memoryview, ref: ChunkRef, low: I64, high: I64) -> Mask:
    """Return the mask of the pages of these rows in every buffer except that of the hashes.

    The pages of strings are estimated by the rows' share of their bytes.
    """
    some = low < high
    first, last = low[some], np.minimum(high[some], low[some] + ROWS_AHEAD) - 1
    wanted = np.zeros(pages.count, np.bool_)
    if len(first):
        for offset, nbytes in buffer_table(payload)[1:]:
            if nbytes:
                width = nbytes / ref.rows
                end = np.minimum(((last + 1) * width).astype(np.int64), nbytes - 1)
                wanted |= pages.between(offset + (first * width).astype(np.int64), offset + end)
    return wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedPages:
    """The pages that a range of memory touches; the range begins `lead` bytes into the first page."""

    address: int
    lead: int
    count: int

    @staticmethod
    def of(value: Any) -> MappedPages:
        """Return the pages of these bytes."""
        octets = np.frombuffer(value, np.uint8)
        address = octets.ctypes.data
        lead = address % PAGE
        return MappedPages(address=address - lead, lead=lead, count=-(-(lead + len(octets)) // PAGE))

    def between(self, first: I64, last: I64) -> Mask:
        """Return the mask of the pages with bytes from each `first` to its `last`, both included; bytes count from 0."""
        ends = np.zeros(self.count + 1, np.int64)
        np.add.at(ends, (self.lead + first) // PAGE, 1)
        np.add.at(ends, (self.lead + last) // PAGE + 1, -1)
        found: Mask = np.cumsum(ends[:-1]) > 0
        return found


def _ask(pages: MappedPages, wanted: Mask | None) -> int:
    """Request those wanted pages (None: all) that are not in memory, without waiting for them; return their number."""
    advise, resident = _function("madvise", ctypes.c_int), _function("mincore", ctypes.c_void_p)
    if advise is None or resident is None or pages.count == 0:
        return 0
    there = np.zeros(pages.count, np.uint8)
    if resident(pages.address, pages.count * PAGE, there.ctypes.data) != 0:
        return 0
    absent = (there & 1) == 0
    if wanted is not None:
        absent &= wanted
    edges = np.flatnonzero(np.diff(np.concatenate([[False], absent, [False]]).astype(np.int8)))
    for begin, end in edges.reshape(-1, 2).tolist():
        for some in range(begin, end, REQUEST_BYTES // PAGE):
            stop = min(end, some + REQUEST_BYTES // PAGE)
            advise(pages.address + some * PAGE, (stop - some) * PAGE, _WILL_NEED)
    return int(absent.sum())


@cache
def _function(name: str, last: Any) -> Callable[[int, int, int], int] | None:
    """Return a function of the C library (address, bytes, last); None on systems where the advice was never tried."""
    found = getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
    if found is None:
        return None
    found.argtypes, found.restype = (ctypes.c_void_p, ctypes.c_size_t, last), ctypes.c_int
    called: Callable[[int, int, int], int] = found
    return called
