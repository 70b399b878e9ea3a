"""Rows in order of their key's hash; within one segment of a step several operators ask for the same keys in a row.

A group-by brings the same rows into several forms, one after the other, and all have the group's key. So inside of
`remembering` the last key's hashes and order are kept, and whether two keys share a hash, found again by the identity of the
columns, which are never changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dbsp.zset import kernels
from dbsp.zset.equality import equal_columns
from dbsp.zset.hashing import hash_columns, hash_decides

Words = NDArray[np.uint64]
Positions = NDArray[np.int64]


@dataclass(slots=True)
class _Last:
    """The key that was asked for last, its sorted hashes, and the order that sorts them."""

    arrays: tuple[pa.Array, ...] = ()
    hashes: Words | None = None
    order: Positions | None = None
    agree: bool | None = None

    def is_of(self, arrays: Sequence[pa.Array]) -> bool:
        """Whether these are the columns of that key."""
        return bool(arrays) and list(map(id, arrays)) == list(map(id, self.arrays))


_last: ContextVar[_Last | None] = ContextVar("last sorted key", default=None)


@contextmanager
def remembering() -> Iterator[None]:
    """Keep the last key in this thread: one hash and one position per row of it, until the end of the block."""
    token = _last.set(_Last())
    try:
        yield
    finally:
        _last.reset(token)


def sorted_keys(arrays: Sequence[pa.Array], rows: int) -> tuple[Words, Positions]:
    """The sorted hashes of the rows over these columns, and the stable order that sorts them; the order is the caller's own."""
    last = _last.get()
    if last is None or not arrays:
        return kernels.sort_hash(hash_columns(arrays, rows))
    if last.hashes is None or last.order is None or not last.is_of(arrays):
        last.hashes, last.order = kernels.sort_hash(hash_columns(arrays, rows))
        last.arrays, last.agree = tuple(arrays), None
    return last.hashes, last.order.copy()


def keys_agree(arrays: Sequence[pa.Array], hashes: Words, order: Positions) -> bool:
    """Whether no two keys share a hash, so that rows with equal hashes have equal keys; `order` sorts the rows by them.

    **Cost** a comparison for each row that shares its hash, once for the last key; none where the hash decides.
    """
    if hash_decides(arrays):
        return True
    last = _last.get()
    known = last if last is not None and last.is_of(arrays) else _Last()
    if known.agree is None:
        repeats = np.flatnonzero(hashes[1:] == hashes[:-1]) + 1
        known.agree = bool(equal_columns(arrays, order[repeats - 1], arrays, order[repeats]).all())
    return known.agree
