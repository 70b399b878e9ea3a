"""What a database holds of chunks taken in ahead of a rescale, within one transaction (`dbsp.storage.warm` takes them)."""

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
    """The numbers of all warm chunks."""
    parts = [_refs(value)[:, ID] for _, value in txn.items(KEYS)]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def chunks(txn: Txn) -> dict[bytes, tuple[ChunkRef, ...]]:
    """The chunks of every part, by its key."""
    return {key: tuple(StoredBatch(_refs(value))) for key, value in txn.items(KEYS)}


def clear(txn: Txn) -> None:
    """The try is over: forget what is warm; the chunks are loose from now on, unless a version refers to them."""
    for key in txn.keys(KEYS):
        txn.delete(KEYS, key)
    txn.delete("meta", NEXT)


def open_anew(txn: Txn) -> None:
    """The same in a new epoch, which refuses the pieces of older ones."""
    clear(txn)
    txn.delete("meta", TRY)


def _refs(value: memoryview) -> npt.NDArray[np.uint64]:
    """References as they are stored."""
    return np.frombuffer(bytes(value), "<u8").reshape(-1, REF_WORDS)
