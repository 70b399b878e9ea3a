"""Rows in the order of their key's hash, or numbered by group; operators of a segment share the work for equal keys.

A group-by converts the same rows into several forms, one after the other, and all forms have the group's key. So inside
`remembering` the results for the last key are cached: its hashes, their order, its groups, and whether two keys share a
hash. The cache compares the identity of the column objects, which never change.
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
class KeyGroups:
    """Rows of few keys, numbered by group in the order of first rows.

    Each row has its group; each group has its first row and its key's hash. Where all rows of a group are equal in
    every column, `row_hash` has each group's hash of the columns outside the key.
    """

    of: Positions
    firsts: Positions
    key_hash: Words
    row_hash: Words | None = None

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.firsts)


@dataclass(slots=True)
class _Last:
    """Cached results for the last key: its hashes, the sorted hashes with their order, and its groups if they are few.

    Rows of one hash are numbered as one group. Callers that need one key per group check that separately.
    """

    arrays: tuple[pa.Array, ...] = ()
    words: Words | None = None
    probed: bool = False
    numbered: tuple[Positions, Positions] | None = None
    hashes: Words | None = None
    order: Positions | None = None
    agree: bool | None = None
    grouped: bool = False
    groups: KeyGroups | None = None

    def is_of(self, arrays: Sequence[pa.Array]) -> bool:
        """Return whether the cached results are for these columns."""
        return bool(arrays) and list(map(id, arrays)) == list(map(id, self.arrays))


_last: ContextVar[_Last | None] = ContextVar("last sorted key", default=None)


@contextmanager
def remembering() -> Iterator[None]:
    """Cache the last key's results in this thread until the end of the block: two hashes and two positions per row."""
    token = _last.set(_Last())
    try:
        yield
    finally:
        _last.reset(token)


def _known(arrays: Sequence[pa.Array], rows: int) -> tuple[_Last, Words]:
    """Return the cached results for these columns, and their hashes, which are computed if they are not cached."""
    last = _last.get()
    if last is None or not arrays:
        last = _Last()
    if last.words is None or not last.is_of(arrays):
        last.arrays, last.words = tuple(arrays), hash_columns(arrays, rows)
        last.numbered = last.hashes = last.order = last.agree = last.groups = None
        last.probed = last.grouped = False
    return last, last.words


def _numbered(known: _Last, words: Words) -> tuple[Positions, Positions] | None:
    """Return the group of each row and the first row of each group, by hashes alone; None if rows hardly share hashes."""
    if not known.probed:
        known.probed = True
        known.numbered = kernels.number_groups(words) if len(words) >= ROWS_MIN else None
    return known.numbered


def sorted_keys(arrays: Sequence[pa.Array], rows: int) -> tuple[Words, Positions]:
    """Return the sorted hashes of the rows over these columns, and the stable order that sorts them.

    The order is a copy, which the caller may change.
    """
    known, words = _known(arrays, rows)
    if known.hashes is None or known.order is None:
        numbered = _numbered(known, words)
        by_hash = kernels.sort_hash(words) if numbered is None else kernels.sort_groups(words, *numbered)
        known.hashes, known.order = by_hash
    return known.hashes, known.order.copy()


def few_groups(arrays: Sequence[pa.Array], rows: int) -> KeyGroups | None:
    """Return the groups of the rows by these columns, or None if groups hardly have several rows or two keys share a hash.

    **Cost** A hash, a look-up in a small table, and a comparison with the group's first row, per row, once for the last
    key. If the first few thousand rows hold many keys, only the hashes.
    """
    if rows < ROWS_MIN:
        return None
    known, words = _known(arrays, rows)
    if not known.grouped:
        known.grouped, known.groups = True, _grouped(arrays, words, _numbered(known, words))
    return known.groups


def _grouped(arrays: Sequence[pa.Array], words: Words, found: tuple[Positions, Positions] | None) -> KeyGroups | None:
    """Return the groups, or None if two keys share a hash."""
    if found is None:
        return None
    group, firsts = found
    same = hash_decides(arrays) or all(equal_by_group(array, group, firsts) for array in arrays)
    return KeyGroups(of=group, firsts=firsts, key_hash=words.take(firsts)) if same else None


def few_rows(key: Sequence[pa.Array], rest: Sequence[pa.Array], rows: int) -> KeyGroups | None:
    """Return rows numbered by their whole content, or None unless rows repeat several times on average.

    **Cost** As `few_groups`, at each call: two forms of the same rows share little but the key. If the first few
    thousand rows hardly repeat, only their hashes. Fewer rows than that are not examined, because sorting them takes
    little time.
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
    return KeyGroups(of=group, firsts=firsts, key_hash=words.take(firsts), row_hash=row_hash.take(firsts))


def keys_agree(arrays: Sequence[pa.Array], hashes: Words, order: Positions) -> bool:
    """Return whether no two keys share a hash, so that rows with equal hashes have equal keys.

    The order `order` sorts the rows by their hashes, which are `hashes`.

    **Cost** A comparison for each row that shares its hash, once for the last key; none where the hash decides.
    """
    if hash_decides(arrays):
        return True
    last = _last.get()
    known = last if last is not None and last.is_of(arrays) else _Last()
    if known.agree is None:
        repeats = np.flatnonzero(hashes[1:] == hashes[:-1]) + 1
        known.agree = bool(equal_columns(arrays, order[repeats - 1], arrays, order[repeats]).all())
    return known.agree
