"""Sets of key hashes as sorted arrays without repeats, for whitelists and hold sets.

A key is known by its 64-bit hash alone, so keys that share a hash are owned, held and moved together. All functions
work on whole arrays.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dbsp.layout import Layout

Keys = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

NO_KEYS: Keys = np.empty(0, np.uint64)
NO_ROWS: Numbers = np.empty(0, np.int64)
for _empty in (NO_KEYS, NO_ROWS):
    _empty.flags.writeable = False


def keys_of(hashes: npt.ArrayLike) -> Keys:
    """Return the set of these hashes.

    **Cost** One sort; sorted runs end to end are merged. `np.unique` builds a hash table instead, which takes fifty
    times longer on key hashes (numpy 2.4).

    >>> keys_of([3, 1, 3]).tolist()
    [1, 3]
    """
    return distinct(np.sort(np.asarray(hashes, dtype=np.uint64), kind="stable"))


def distinct(hashes: Keys) -> Keys:
    """Return sorted hashes, each once."""
    return hashes[np.concatenate([[True], hashes[1:] != hashes[:-1]])] if len(hashes) else hashes


def contains(keys: Keys, hashes: Keys) -> Mask:
    """Return the mask of the hashes that are in the set `keys`.

    **Cost** One binary search per hash.

    >>> contains(keys_of([1, 3]), np.array([3, 2, 9], np.uint64)).tolist()
    [True, False, False]
    """
    if not len(keys):
        return np.zeros(len(hashes), np.bool_)
    places = np.searchsorted(keys, hashes)
    found: Mask = keys[np.minimum(places, len(keys) - 1)] == hashes
    return found


def union(left: Keys, right: Keys) -> Keys:
    """Return the union of two sets."""
    if not len(right):
        return left
    return keys_of(np.concatenate([left, right])) if len(left) else right


def without(keys: Keys, other: Keys) -> Keys:
    """Return the first set without the members of the second."""
    return keys[~contains(other, keys)] if len(other) else keys


def owner_of(layout: Layout, hashes: Keys) -> Numbers:
    """Return the number of the worker that owns each hash in a layout: the distribution function F."""
    found: Numbers = np.asarray(layout.owners, np.int64)[layout.shard_of(hashes)]
    return found


def losing(old: Layout, new: Layout) -> frozenset[int]:
    """Return the workers that own some shard in `old` and do not keep all of it in `new`."""
    count = max(old.shards, new.shards)
    before = np.repeat(np.asarray(old.owners), count // old.shards)
    after = np.repeat(np.asarray(new.owners), count // new.shards)
    return frozenset(before[before != after].tolist())
