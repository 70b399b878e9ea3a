"""The stored list of warm chunks: the chunk references of each copied part, and the state of the try.

A try is one warm-up. The module `warm` defines it and states the invariants.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dbsp.storage.tables import Txn
from dbsp.trace.chunks import ChunkRef
from dbsp.trace.manifest import ID, REF_WORDS, StoredBatch

NEXT, TRY = b"next warm", b"warm try"
"""Keys of the next chunk number of the try under way (absent if it is over), and of the epoch's newest try."""

KEYS = "warm"


def numbers(txn: Txn) -> npt.NDArray[np.uint64]:
    """Return the chunk numbers of all warm chunks."""
    parts = [_refs(value)[:, ID] for _, value in txn.items(KEYS)]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def chunks(txn: Txn) -> dict[bytes, tuple[ChunkRef, ...]]:
    """Return the chunks of every part, by the part's key."""
    return {key: tuple(StoredBatch(_refs(value))) for key, value in txn.items(KEYS)}


def clear(txn: Txn) -> None:
    """End the try, and clear the list; its chunks can then be deleted, unless a version refers to them."""
    for key in txn.keys(KEYS):
        txn.delete(KEYS, key)
    txn.delete("meta", NEXT)


def open_anew(txn: Txn) -> None:
    """Clear the list and the number of the newest try, at the start of a new epoch.

    Late pieces of the old try need no further check, because writes of an older epoch are refused.
    """
    clear(txn)
    txn.delete("meta", TRY)


def _refs(value: memoryview) -> npt.NDArray[np.uint64]:
    """Decode a stored array of chunk references."""
    return np.frombuffer(bytes(value), "<u8").reshape(-1, REF_WORDS)
