"""Compute the worker to which each row of a migration step is routed: a function of its key alone.

In a step of the engine all state that moves has moved before the first row, and every distributor is at rest. So no
worker has to ask an old owner, and no row waits. The messages of the module `rounds` would send a row of key K to F(K)
until K's state has moved, and then to F'(K). While icadd only determines keys, they would send the row to F(K). An
exchange of such a step splits rows by these places instead of by a layout.

**Law** Every row passes where the distributors' rounds would bring it (`tests/distribute/test_places.py`); invariant 2.

Source: docs/concepts/rescale.md; design record 0015.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from dbsp.distribute.icadd import IcaddDistributor, Phase
from dbsp.distribute.keys import NO_KEYS, Keys, Mask, Numbers, contains, keys_of, owner_of
from dbsp.distribute.redistribute import RedistributeDistributor
from dbsp.distribute.strategies import AnyDistributor, joint
from dbsp.layout import Layout

KEY_END = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeyPlaces:
    """The owners of all keys in one step of a migration from `old` to `new`.

    **Shape** `keys` are the keys that have to move, of all source workers, as they were determined. A source gives its
    keys away in hash order. `first` has the lowest key of each source that has not moved, so the keys below have moved. A
    source without further keys is not in `first`. With `by_old`, keys are only being determined, and F routes all rows.

    **State** Eight bytes a key, the same ones in every step; only `first` changes.

    **Cost** Per row a binary search in `keys`.

    **Example**

    >>> from dbsp.layout import initial, rescaled
    >>> one = initial(1, shards=2)
    >>> moving = keys_of([1 << 63, 3 << 62])
    >>> places = KeyPlaces(old=one, new=rescaled(one, 2, step=3), keys=moving, first={0: 3 << 62})
    >>> places.owner_of(keys_of([5, 1 << 63, 3 << 62, (3 << 62) + 1])).tolist()  # ours, moved, not moved, without state
    [0, 1, 0, 1]
    """

    old: Layout
    new: Layout
    keys: Keys = field(default_factory=lambda: NO_KEYS)
    first: Mapping[int, int] = field(default_factory=dict)
    by_old: bool = False

    @property
    def workers(self) -> tuple[int, ...]:
        """Return the workers of both layouts, in the order of the slots."""
        return joint(self.old, self.new).workers

    def owner_of(self, hashes: Keys) -> Numbers:
        """Return the worker to which rows of each key are routed."""
        before = owner_of(self.old, hashes)
        if self.by_old:
            return before
        places: Numbers = np.where(self._stays(hashes, before), before, owner_of(self.new, hashes))
        return places

    def slot_of(self, key_hash: Keys) -> Numbers:
        """Return the position in `workers` of each key's owner, as `Layout.slot_of`."""
        slots: Numbers = np.searchsorted(np.asarray(self.workers), self.owner_of(key_hash)).astype(np.uint32)
        return slots

    def _stays(self, hashes: Keys, before: Numbers) -> Mask:
        """Return the mask of the keys whose state has not moved yet."""
        if not self.first or not len(self.keys):
            return np.zeros(len(hashes), np.bool_)
        lowest = np.full(max(self.old.workers) + 1, KEY_END, np.uint64)
        gives = np.zeros(len(lowest), np.bool_)
        for source_worker, key in self.first.items():
            lowest[source_worker], gives[source_worker] = key, True
        at = np.flatnonzero(gives[before] & (hashes >= lowest[before]))
        found: Mask = np.zeros(len(hashes), np.bool_)
        found[at] = contains(self.keys, hashes[at])
        return found

    def given_by(self, worker: int) -> Keys:
        """Return the keys that a worker has to give away, as they were determined."""
        given: Keys = self.keys[owner_of(self.old, self.keys) == worker]
        return given


def places_of(parts: Mapping[int, AnyDistributor], old: Layout, new: Layout, keys: Keys) -> KeyPlaces:
    """Return the places of a step from `old` to `new`, given the distributors after the step's start.

    `keys` are all keys of the migration, whether they have moved already or not.
    """
    if any(finds_out(part) for part in parts.values()):
        return KeyPlaces(old=old, new=new, by_old=True)
    left = {worker: yet_to_give(part) for worker, part in parts.items()}
    return KeyPlaces(
        old=old, new=new, keys=keys, first={worker: int(own[0]) for worker, own in left.items() if len(own)}
    )


def finds_out(part: AnyDistributor) -> bool:
    """Return whether keys are being determined, so that rows are routed by F alone."""
    return isinstance(part, IcaddDistributor) and part.phase is Phase.INTERROGATE


def yet_to_give(part: AnyDistributor) -> Keys:
    """Return the keys that this worker has yet to give away, in hash order."""
    match part:
        case IcaddDistributor(whitelist=keys):
            return keys
        case RedistributeDistributor(giving=giving):
            return giving.whitelist if giving is not None else NO_KEYS


def with_keys(part: AnyDistributor, left: Mapping[int, Keys]) -> AnyDistributor:
    """Return the distributor with `left` as the keys that each source has yet to give away.

    **Law** A step that moves N keys acts the same with the next N + 1 keys of every source as with all keys. It needs only
    these N keys, and whether more follow.
    """
    own = left.get(part.worker, NO_KEYS)
    match part:
        case IcaddDistributor():
            return replace(part, whitelist=own)
        case RedistributeDistributor(giving=giving):
            giving = None if giving is None else replace(giving, whitelist=own)
            return replace(part, whitelist=all_keys(left.values()), giving=giving)


def all_keys(sets: Iterable[Keys]) -> Keys:
    """Return the union of these sets."""
    return keys_of(np.concatenate([NO_KEYS, *sets]))
