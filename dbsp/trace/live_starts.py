"""Track live starts: the order code at which the rows of a long group begin that are not cancelled.

In a queue the oldest rows leave all the time. They stay at the front of large, old runs until merges reach them, with
their retractions in newer runs. Without live starts, every read of the first rows would read the cancelled rows
again. A live start is the order code of the first present row of a key hash. Readers begin there.

**Law** all stored rows of the hash with a smaller code sum to zero.

**State** 16 bytes for each group from which rows were retracted while it was long.

Source: design record 0005.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dbsp.zset.batch import Batch
from dbsp.zset.kernels import run_starts

KEYS_MIN, ROWS_MIN = 256, 4096
"""An append updates live starts if it retracts rows of at most 256 keys. Only keys with at least 4,096 rows in a run get one."""
ROWS_PER_KEY = 1024
"""In a large trace, the limit of `KEYS_MIN` keys grows to one key per this many rows of the trace."""

U64 = npt.NDArray[np.uint64]
_NOTHING: U64 = np.empty((0, 2), np.uint64)
_NOTHING.flags.writeable = False


@dataclass(frozen=True, slots=True, eq=False)
class LiveStarts:
    """Live starts of one trace: rows of (key hash, order code), sorted by hash."""

    words: U64 = field(default_factory=lambda: _NOTHING)

    def __len__(self) -> int:
        """Return the number of live starts."""
        return len(self.words)

    def __eq__(self, other: object) -> bool:
        """Return True if all words are equal."""
        return isinstance(other, LiveStarts) and np.array_equal(self.words, other.words)

    def __hash__(self) -> int:
        """Return the hash of the words."""
        return hash(self.words.tobytes())

    def of(self, key_hash: U64) -> U64:
        """Return the live start of each hash; 0, the least code, for a hash without a live start."""
        if not len(self):
            return np.zeros(len(key_hash), np.uint64)
        at = np.minimum(self.words[:, 0].searchsorted(key_hash), len(self) - 1)
        return np.where(self.words[at, 0] == key_hash, self.words[at, 1], np.uint64(0))

    def lowered(self, batch: Batch) -> LiveStarts:
        """Return the live starts lowered to the first order code of each key in `batch`, an arranged batch."""
        key_hash, code = batch.words[0], batch.order_code
        if not len(self) or not len(batch) or code is None:
            return self
        first = np.minimum(key_hash.searchsorted(self.words[:, 0]), len(batch) - 1)
        there = key_hash[first] == self.words[:, 0]
        least = np.where(there, np.minimum(code[first], self.words[:, 1]), self.words[:, 1])
        return LiveStarts(np.column_stack([self.words[:, 0], least]))

    def replaced(self, key_hash: U64, code: U64) -> LiveStarts:
        """Return the live starts with these codes for these different hashes; code 0 removes a hash."""
        kept = self.words[~np.isin(self.words[:, 0], key_hash)]
        made = np.concatenate([kept, np.column_stack([key_hash, code])[code > 0]])
        return LiveStarts(made[np.argsort(made[:, 0])])


Long = Callable[[U64], npt.NDArray[np.bool_]]
"""A function that returns the mask of the hashes, given sorted, that have many rows in a run."""
Firsts = Callable[[U64], U64]
"""A function that returns, for each of the sorted hashes, the order code of its first uncancelled row."""


def moved(live_starts: LiveStarts, batch: Batch, rows: int, long: Long, firsts: Firsts) -> LiveStarts:
    """Return the live starts after `batch` is added to a trace of `rows` rows.

    `long` and `firsts` read the trace that includes the batch.

    **Cost** one look-up of the keys from which rows are retracted, if they are few for the trace.
    A live start is found anew by reading on to the next present row. This happens if rows before it are retracted,
    or if a long group loses rows for the first time. So each cancelled row is passed once.
    """
    lowered = live_starts.lowered(batch)
    key_hash, code = batch.words[0], batch.order_code
    gone = np.flatnonzero((batch.weights < 0).any(axis=1))
    if not len(gone) or code is None:
        return lowered
    first = gone[run_starts(key_hash[gone])]
    keys_max = max(KEYS_MIN, rows // ROWS_PER_KEY)
    if len(first) > keys_max and not len(live_starts):
        return lowered
    hashes, front = key_hash[first], live_starts.of(key_hash[first])
    in_front = code[first] <= front
    # Too many keys to look up now: drop their starts. A later append that changes fewer keys finds new ones.
    if len(hashes) > keys_max:
        return lowered.replaced(hashes[in_front], np.zeros(int(in_front.sum()), np.uint64))
    hashes = hashes[in_front | (front == 0)]
    found, large = np.zeros(len(hashes), np.uint64), long(hashes)
    if large.any():
        found[large] = firsts(hashes[large])
    return lowered.replaced(hashes, found) if len(lowered) or large.any() else lowered
