"""The stored list of warm chunks: the keys and references of their parts, and the state of the try. See the module
`warm`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dbsp.storage.tables import Txn
from dbsp.trace.chunks import ChunkRef
from dbsp.trace.manifest import ID, REF_WORDS, StoredBatch

NEXT, TRY = b"next warm", b"warm try"
"""The next number of the try under way (absent: it is over), and the newest try there was in this epoch."""

KEYS = "warm"


def numbers(txn: Txn) -> npt.NDArray[np.uint64]:
    """Return the numbers of all warm chunks."""
    parts = [_refs(value)[:, ID] for _, value in txn.items(KEYS)]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def chunks(txn: Txn) -> dict[bytes, tuple[ChunkRef, ...]]:
    """Return the chunks of every part, by the part's key."""
    return {key: tuple(StoredBatch(_refs(value))) for key, value in txn.items(KEYS)}


def clear(txn: Txn) -> None:
    """End the try: forget the warm chunks, which are loose from now on, unless a version refers to them."""
    for key in txn.keys(KEYS):
        txn.delete(KEYS, key)
    txn.delete("meta", NEXT)


def open_anew(txn: Txn) -> None:
    """End the try in a new epoch, and forget it: pieces of older epochs are refused by their epoch."""
    clear(txn)
    txn.delete("meta", TRY)


def _refs(value: memoryview) -> npt.NDArray[np.uint64]:
    """Decode stored references."""
    return np.frombuffer(bytes(value), "<u8").reshape(-1, REF_WORDS)
