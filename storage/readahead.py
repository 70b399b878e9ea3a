"""Telling the kernel what of a map will be read, so that it comes in large reads, or many at a time.

The maps are opened for random access: the kernel then reads one page of 4 KiB at each touch while the toucher waits, and brings
in no neighbours that nobody asked for. While the state is in memory that costs nothing. Where it is not, the waiting is all the
time there is; so pages are asked for before they are touched:

- all of a chunk where all of it is read (merging, copying, checksums): `will_need`;
- for a look-up the pages of the hashes that are expected to be read, `foresee_hashes` (hashes are spread evenly, so a hash lies
  within about sqrt(rows) / 2 rows of its share of the chunk's range), and then those of the rows that were found,
  `foresee_rows`. A wrong guess costs time alone. `Paging` says whether look-ups wait for pages at all; where they do not,
  nothing is foreseen.

**Cost** per 2 MiB: 5 us where all is in memory (one system call says so). On other systems than Linux
nothing is asked for, and the pages come as they are touched.

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
"""How much is asked for at once: the kernel silently cuts larger requests down to what the disk reads ahead."""

PAGE = mmap.PAGESIZE
PAGES_MANY = 64
"""So many pages that had to be waited for in one reading are worth looking ahead."""
READINGS_QUIET = 64
"""After so many readings without them nothing is foreseen any more."""

SPREAD = 0.75
"""How far a row lies from its hash's share of the chunk, in square roots of the chunk's rows: 1.5 standard deviations."""
ROWS_AHEAD = 1024
"""How much of a long range of equal hashes is foreseen: whoever asks for one end of it reads no more."""

_WILL_NEED = 3

Mask = npt.NDArray[np.bool_]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]


class Paging:
    """Whether reading the maps of this process waits for the disk: told by its page faults, and by what was found absent."""

    def __init__(self, faults: Callable[[], int] | None = None) -> None:
        """Nothing waits yet; `faults` counts how often this process has waited for a page of a file."""
        self._count = faults or _major_faults
        self._faults = self._count()
        self._absent = 0
        self._left = 0

    @property
    def waits(self) -> bool:
        """Whether the last readings had to wait for many pages."""
        return self._left > 0

    def begin(self) -> None:
        """A reading begins: judge by the one before."""
        faults = self._count()
        many = faults - self._faults >= PAGES_MANY or self._absent >= PAGES_MANY
        self._left = READINGS_QUIET if many else max(0, self._left - 1)
        self._faults, self._absent = faults, 0

    def found_absent(self, pages: int) -> None:
        """So many pages had to be asked for."""
        self._absent += pages


def _major_faults() -> int:
    """How often this process has waited for a page of a file."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def will_need(value: Any) -> int:
    """All of this value of a map will be read now; how many of its pages were not in memory."""
    return _ask(Pages.of(value), None)


def foresee_hashes(payload: memoryview, ref: ChunkRef, key_hash: U64) -> int:
    """These hashes will be looked for in an encoded chunk; how many of the pages for it were not in memory."""
    pages = Pages.of(payload)
    return _ask(pages, hash_pages(pages, payload, ref, key_hash))


def hash_pages(pages: Pages, payload: memoryview, ref: ChunkRef, key_hash: U64) -> Mask:
    """The pages where these hashes should be."""
    (offset, nbytes), *_ = buffer_table(payload)
    share = np.clip((key_hash.astype(np.float64) - ref.first) / max(1, ref.last - ref.first), 0, 1) * ref.rows
    spread = SPREAD * np.sqrt(ref.rows)
    width = nbytes / max(1, ref.rows)
    low, high = np.maximum(share - spread, 0) * width, np.minimum(share + spread, ref.rows - 1) * width
    wanted = pages.between(offset + low.astype(np.int64), offset + high.astype(np.int64))
    # what decoding reads: all before the first buffer, and the ends of that one
    wanted |= pages.between(np.array([0, offset + nbytes - 1]), np.array([offset, offset + nbytes - 1]))
    return wanted


def foresee_rows(payload: memoryview, ref: ChunkRef, low: I64, high: I64) -> int:
    """Rows `low` to `high` (at most `ROWS_AHEAD` of each range) will be read; how many of the pages were not in memory."""
    pages = Pages.of(payload)
    return _ask(pages, row_pages(pages, payload, ref, low, high))


def row_pages(pages: Pages, payload: memoryview, ref: ChunkRef, low: I64, high: I64) -> Mask:
    """The pages of these rows in every buffer but that of the hashes; those of strings by the rows' share of their bytes."""
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
class Pages:
    """The pages that a stretch of memory touches; it begins `lead` bytes into the first."""

    address: int
    lead: int
    count: int

    @staticmethod
    def of(value: Any) -> Pages:
        """The pages of these bytes."""
        octets = np.frombuffer(value, np.uint8)
        address = octets.ctypes.data
        lead = address % PAGE
        return Pages(address=address - lead, lead=lead, count=-(-(lead + len(octets)) // PAGE))

    def between(self, first: I64, last: I64) -> Mask:
        """The pages of the bytes from each `first` to its `last`, both included, counted from the beginning."""
        ends = np.zeros(self.count + 1, np.int64)
        np.add.at(ends, (self.lead + first) // PAGE, 1)
        np.add.at(ends, (self.lead + last) // PAGE + 1, -1)
        found: Mask = np.cumsum(ends[:-1]) > 0
        return found


def _ask(pages: Pages, wanted: Mask | None) -> int:
    """Have those of the wanted pages (None: all) that are not in memory read in, without waiting for them; how many."""
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
    """A function of the C library (address, bytes, last); None on systems where the advice was never tried."""
    found = getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
    if found is None:
        return None
    found.argtypes, found.restype = (ctypes.c_void_p, ctypes.c_size_t, last), ctypes.c_int
    called: Callable[[int, int, int], int] = found
    return called
