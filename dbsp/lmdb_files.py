"""Check a file of LMDB 0.9 before LMDB maps it: reading a missing page ends the process with SIGBUS.

Invariants:
1. Every page of a committed file is in use or in its list of free pages. LMDB may leave free pages at the end unwritten.
   So the tail of a file is whole if and only if that list contains each page from the file's end to the last page.
2. This module only reads a file and never maps it. A commit of another process meanwhile restarts the check.

**Cost**: two pages. Only where the file ends before its last page are the pages of the list read, too.
Left out: whether the pages that are there are right (`lmdb.verify`, which does not look at the end of large values).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from dbsp.errors import DataError
from dbsp.stored.format_numbers import check_format

FORMAT = 1
"""The number of LMDB 0.9's file format."""
META_BYTES = 8192
"""Both meta pages."""
RESTORE = "restore it from a backup"
_MAGIC, _PAGE, _HEAD = 0xBEEFC0DE, 4096, 16
_ROOT_AT, _LAST_AT = _HEAD + 64, _HEAD + 120
"""Where a meta page has the root of the list of free pages, and the last page, which the transaction follows."""
_BRANCH, _LEAF, _OVERFLOW, _BIG = 0x01, 0x02, 0x04, 0x01
_NONE = (1 << 64) - 1
_TREE_DEPTH_MAX = 32
_TRIES = 100
_PAGE_HEAD, _NODE, _NUMBER = struct.Struct("<QHHHH"), struct.Struct("<HHHH"), struct.Struct("<Q")

Pages = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """The newest meta page: the last page, the transaction that wrote it, and where the list of free pages begins."""

    last_page: int
    transaction: int
    free_root: int


def check_lmdb_file(file: Path, what: str, hint: str = RESTORE) -> None:
    """Refuse a file that is missing, empty, not of LMDB 0.9, or cut off; `what` names its kind in the error.

    **Errors** `DataError` names the file; `FormatError` if another version of LMDB wrote it.
    """
    try:
        with file.open("rb") as stream:
            lost = _lost(stream, f"file={file}", what)
    except FileNotFoundError as error:
        story = f"the {what} is missing: file={file}"
        raise DataError(story, f"{hint}; an empty one is never put in its place") from error
    except OSError as error:
        raise DataError(f"the {what} cannot be read: file={file} error={error.strerror}", hint) from error
    if lost:
        raise DataError(f"the {what} is cut short: file={file} {lost}", hint)


def _lost(stream: BinaryIO, place: str, what: str) -> str:
    """Return what the end of the file lacks, in words; empty if nothing."""
    for _ in range(_TRIES):
        head = _read(stream, 0, META_BYTES)
        if len(head) < META_BYTES:
            return f"bytes={len(head)}"
        meta = newest_meta(head, place, what)
        size = stream.seek(0, 2)
        if size >= (meta.last_page + 1) * _PAGE:
            return ""
        lost = _used_pages_lost(stream, meta, size // _PAGE)
        if head == _read(stream, 0, META_BYTES):
            return f"bytes={size} pages in use that are lost={lost}" if lost else ""
    return "it changes all the time"


def newest_meta(head: bytes, place: str, what: str) -> Meta:
    """Return the newer of the two meta pages in `head`; `DataError` if LMDB 0.9 did not write them."""
    found = []
    for at in (0, _PAGE):
        magic, version = struct.unpack_from("<II", head, at + _HEAD)
        if magic != _MAGIC:
            raise DataError(f"the {what} is not LMDB's: {place} meta page={at // _PAGE}", RESTORE)
        check_format(f"the {what} (LMDB)", place, version, FORMAT)
        last_page, transaction = struct.unpack_from("<QQ", head, at + _LAST_AT)
        (free_root,) = _NUMBER.unpack_from(head, at + _ROOT_AT)
        found.append(Meta(last_page=last_page, transaction=transaction, free_root=free_root))
    return max(found, key=lambda meta: meta.transaction)


def _used_pages_lost(stream: BinaryIO, meta: Meta, end: int) -> int:
    """Return how many pages from `end` on are in use; all, where the list of free pages cannot be read."""
    missing = meta.last_page + 1 - end
    try:
        lists = list(_free_lists(stream, meta.free_root, end))
    except (struct.error, ValueError):
        return missing
    free = np.unique(np.concatenate([np.empty(0, np.uint64), *lists]))
    return missing - int(np.count_nonzero((free >= end) & (free <= meta.last_page)))


def _free_lists(stream: BinaryIO, root: int, end: int, depth: int = 0) -> Iterator[Pages]:
    """Yield the lists in the tree below `root`; `ValueError` where a page of it is lost or is none of a tree."""
    if root == _NONE:
        return
    page = _page(stream, root, end)
    number, _, flags, lower, _ = _PAGE_HEAD.unpack_from(page)
    if number != root or flags not in (_BRANCH, _LEAF) or depth > _TREE_DEPTH_MAX:
        raise ValueError(root)
    for index in range((lower - _HEAD) // 2):
        (at,) = struct.unpack_from("<H", page, _HEAD + 2 * index)
        low, high, node_flags, key_bytes = _NODE.unpack_from(page, at)
        if flags == _BRANCH:
            yield from _free_lists(stream, low | high << 16 | node_flags << 32, end, depth + 1)
            continue
        data_at, size = at + _NODE.size + key_bytes, low | high << 16
        if node_flags & _BIG:
            yield _numbers(_large(stream, _NUMBER.unpack_from(page, data_at)[0], size, end))
        else:
            yield _numbers(page[data_at : data_at + size])


def _large(stream: BinaryIO, first: int, size: int, end: int) -> bytes:
    """Return the value that begins at page `first` and has pages of its own.

    **Errors** `ValueError` if a page of it is lost, or is not the first of a value.
    """
    if first + (_HEAD + size - 1) // _PAGE >= end:
        raise ValueError(first)
    number, _, flags, *_ = _PAGE_HEAD.unpack_from(_page(stream, first, end))
    if number != first or flags != _OVERFLOW:
        raise ValueError(first)
    return _read(stream, first * _PAGE + _HEAD, size)


def _numbers(data: bytes) -> Pages:
    """Return the page numbers of one list, which begins with their count."""
    (count,) = _NUMBER.unpack_from(data)
    if len(data) != _NUMBER.size * (count + 1):
        raise ValueError(count)
    return np.frombuffer(data, np.uint64, offset=_NUMBER.size)


def _page(stream: BinaryIO, number: int, end: int) -> bytes:
    if number >= end:
        raise ValueError(number)
    return _read(stream, number * _PAGE, _PAGE)


def _read(stream: BinaryIO, at: int, size: int) -> bytes:
    stream.seek(at)
    return stream.read(size)
