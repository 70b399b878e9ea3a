"""Rows in order of their key's hash, or numbered by group; within one segment of a step several operators ask for the same keys.

A group-by brings the same rows into several forms, one after the other, and all have the group's key. So inside of
`remembering` the last key's hashes, order and groups are kept, and whether two keys share a hash, found again by the identity of
the columns, which are never changed.
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
from dbsp.zset.equality import equal_by_group, equal_columns
from dbsp.zset.hashing import hash_columns, hash_decides
from dbsp.zset.kernels.groups import PROBED_ROWS, ROWS_MIN

Words = NDArray[np.uint64]
Positions = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Rows of few keys: of each row its group, of each group its first row and its key's hash; numbered by first rows.

    `row_hash` is there where rows of one group are equal in more than the key: of each group the hash of what is not key.
    """

    of: Positions
    firsts: Positions
    key_hash: Words
    row_hash: Words | None = None

    def __len__(self) -> int:
        """How many groups there are."""
        return len(self.firsts)


@dataclass(slots=True)
class _Last:
    """The key that was asked for last: its hashes, these sorted with the order that sorts them, its groups if they are few.

    Rows of one hash are numbered as one group; whether they are of one key is looked at where it matters.
    """

    arrays: tuple[pa.Array, ...] = ()
    words: Words | None = None
    probed: bool = False
    numbered: tuple[Positions, Positions] | None = None
    hashes: Words | None = None
    order: Positions | None = None
    agree: bool | None = None
    grouped: bool = False
    groups: Groups | None = None

    def is_of(self, arrays: Sequence[pa.Array]) -> bool:
        """Whether these are the columns of that key."""
        return bool(arrays) and list(map(id, arrays)) == list(map(id, self.arrays))


_last: ContextVar[_Last | None] = ContextVar("last sorted key", default=None)


@contextmanager
def remembering() -> Iterator[None]:
    """Keep the last key in this thread: two hashes and two positions per row of it, until the end of the block."""
    token = _last.set(_Last())
    try:
        yield
    finally:
        _last.reset(token)


def _known(arrays: Sequence[pa.Array], rows: int) -> tuple[_Last, Words]:
    """What is known of these columns, kept as the last key's inside of `remembering`; their hashes for sure."""
    last = _last.get()
    if last is None or not arrays:
        last = _Last()
    if last.words is None or not last.is_of(arrays):
        last.arrays, last.words = tuple(arrays), hash_columns(arrays, rows)
        last.numbered = last.hashes = last.order = last.agree = last.groups = None
        last.probed = last.grouped = False
    return last, last.words


def _numbered(known: _Last, words: Words) -> tuple[Positions, Positions] | None:
    """The group of each row and the first row of each group, by hashes alone, if groups have several rows."""
    if not known.probed:
        known.probed = True
        known.numbered = kernels.number_groups(words) if len(words) >= ROWS_MIN else None
    return known.numbered


def sorted_keys(arrays: Sequence[pa.Array], rows: int) -> tuple[Words, Positions]:
    """The sorted hashes of the rows over these columns, and the stable order that sorts them; the order is the caller's own."""
    known, words = _known(arrays, rows)
    if known.hashes is None or known.order is None:
        numbered = _numbered(known, words)
        by_hash = kernels.sort_hash(words) if numbered is None else kernels.sort_groups(words, *numbered)
        known.hashes, known.order = by_hash
    return known.hashes, known.order.copy()


def few_groups(arrays: Sequence[pa.Array], rows: int) -> Groups | None:
    """The groups of the rows by these columns, where groups have several rows and no two keys share a hash; else None.

    **Cost** a hash and a look-up in a small table for each row, and a comparison with the first row of its group, once for the
    last key; where the first few thousand rows hold many keys nothing but the hashes.
    """
    if rows < ROWS_MIN:
        return None
    known, words = _known(arrays, rows)
    if not known.grouped:
        known.grouped, known.groups = True, _grouped(arrays, words, _numbered(known, words))
    return known.groups


def _grouped(arrays: Sequence[pa.Array], words: Words, found: tuple[Positions, Positions] | None) -> Groups | None:
    """The groups, if hashes tell them apart."""
    if found is None:
        return None
    group, firsts = found
    same = hash_decides(arrays) or all(equal_by_group(array, group, firsts) for array in arrays)
    return Groups(of=group, firsts=firsts, key_hash=words.take(firsts)) if same else None


def few_rows(key: Sequence[pa.Array], rest: Sequence[pa.Array], rows: int) -> Groups | None:
    """Rows of these columns numbered by what they are, where they come several times on the average; else None.

    **Cost** as `few_groups`, each time: two forms of the same rows have little but the key in common. Where the first few
    thousand rows hardly repeat, their hashes and nothing else; fewer rows than that are sorted in no time.
    """
    if rows <= PROBED_ROWS or not kernels.repeat_early(
        hash_columns([each.slice(0, PROBED_ROWS) for each in rest], PROBED_ROWS)
    ):
        return None
    row_hash = hash_columns(rest, rows)
    _, words = _known(key, rows)
    found = kernels.number_groups(kernels.combine_hashes(words, row_hash))
    if found is None or not all(equal_by_group(array, *found) for array in (*key, *rest)):
        return None
    group, firsts = found
    return Groups(of=group, firsts=firsts, key_hash=words.take(firsts), row_hash=row_hash.take(firsts))


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
