"""Live starts: where the rows of a long group begin that are not all gone.

In a queue the oldest rows leave all the time. They stay at the front of the large, old runs, with their retractions in the
newer ones, until merges reach them, and whoever asks for the first rows would read all of them again. A front says for a key
hash the order code of the first row that is there, so that readers begin behind those that cancel out.

**Law** all stored rows of the hash with a lesser code sum to zero.

**State** 16 bytes for a group whose rows were taken away while it was long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dbsp.zset.batch import Batch
from dbsp.zset.kernels import run_starts

KEYS_MIN, ROWS_MIN = 256, 4096
"""Live starts are kept up by appends that take rows from so many keys, or fewer; of keys with at least so many rows in a run."""
ROWS_PER_KEY = 1024
"""In a trace with so many rows for each key that an append takes rows from, they are kept up by that too."""

U64 = npt.NDArray[np.uint64]
_NOTHING: U64 = np.empty((0, 2), np.uint64)
_NOTHING.flags.writeable = False


@dataclass(frozen=True, slots=True, eq=False)
class LiveStarts:
    """Rows of (key hash, order code), sorted by hash."""

    words: U64 = field(default_factory=lambda: _NOTHING)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.words)

    def __eq__(self, other: object) -> bool:
        """Equal when all words are."""
        return isinstance(other, LiveStarts) and np.array_equal(self.words, other.words)

    def __hash__(self) -> int:
        """By the words."""
        return hash(self.words.tobytes())

    def of(self, key_hash: U64) -> U64:
        """The front of each hash; the least code where there is none."""
        if not len(self):
            return np.zeros(len(key_hash), np.uint64)
        at = np.minimum(self.words[:, 0].searchsorted(key_hash), len(self) - 1)
        return np.where(self.words[at, 0] == key_hash, self.words[at, 1], np.uint64(0))

    def lowered(self, batch: Batch) -> LiveStarts:
        """As they are when these arranged rows are added."""
        key_hash, code = batch.words[0], batch.order_code
        if not len(self) or not len(batch) or code is None:
            return self
        first = np.minimum(key_hash.searchsorted(self.words[:, 0]), len(batch) - 1)
        there = key_hash[first] == self.words[:, 0]
        least = np.where(there, np.minimum(code[first], self.words[:, 1]), self.words[:, 1])
        return LiveStarts(np.column_stack([self.words[:, 0], least]))

    def replaced(self, key_hash: U64, code: U64) -> LiveStarts:
        """With these codes for these different hashes; the least code: none."""
        kept = self.words[~np.isin(self.words[:, 0], key_hash)]
        made = np.concatenate([kept, np.column_stack([key_hash, code])[code > 0]])
        return LiveStarts(made[np.argsort(made[:, 0])])


Long = Callable[[U64], npt.NDArray[np.bool_]]
"""Which of some sorted hashes have many rows in a run."""
Firsts = Callable[[U64], U64]
"""The code of the first row that is there of each of some sorted hashes."""


def moved(live_starts: LiveStarts, batch: Batch, rows: int, long: Long, firsts: Firsts) -> LiveStarts:
    """The live starts when a batch is added to so many `rows`; `firsts` tells of the trace with it.

    **Cost** to look the keys up from which rows are taken, where they are few for the trace. Where rows are taken away in front
    of the first that is there, or a long group loses rows for the first time: to read as far as the next that is there. So each
    row that is gone is passed once.
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
    if len(hashes) > keys_max:  # these are found anew when fewer keys change
        return lowered.replaced(hashes[in_front], np.zeros(int(in_front.sum()), np.uint64))
    hashes = hashes[in_front | (front == 0)]
    found, large = np.zeros(len(hashes), np.uint64), long(hashes)
    if large.any():
        found[large] = firsts(hashes[large])
    return lowered.replaced(hashes, found) if len(lowered) or large.any() else lowered
