"""Chunks taken in ahead of a rescale: on the durable side, outside every version, until a version is made of them.

They are numbered from a block of their own, so that steps which run on the same database meanwhile (a worker that stays) never
give a chunk the same number: the block is cut out of the scratch's count before the first of them is written.

Invariants: a warm chunk stays until `adopt` makes a version (what it refers to is then the version's), `forget`, or `open`
(12); the epoch is compared in each transaction that writes (6).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dbsp.storage.chunkfile import ReadChunks, WriteChunks
from dbsp.storage.records import number_key, number_of
from dbsp.storage.tables import Txn
from dbsp.trace.chunks import ChunkRef
from dbsp.trace.manifest import ID, StoredBatch, refs_of
from dbsp.trace.merging import store
from dbsp.zset.batch import Batch

if TYPE_CHECKING:
    from dbsp.storage.durable import Durable

BLOCK = 1 << 40
"""How many numbers a warm-up may use."""

_NEXT = b"next warm"
_KEYS = "warm"


def numbers(txn: Txn) -> npt.NDArray[np.uint64]:
    """The numbers of all warm chunks."""
    parts = [_refs(value)[:, ID] for _, value in txn.items(_KEYS)]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def chunks(txn: Txn) -> dict[bytes, tuple[ChunkRef, ...]]:
    """The chunks of every part, by its key."""
    return {key: tuple(StoredBatch(_refs(value))) for key, value in txn.items(_KEYS)}


def clear(txn: Txn) -> None:
    """Forget what is warm; the chunks are loose from now on, unless a version refers to them."""
    for key in txn.keys(_KEYS):
        txn.delete(_KEYS, key)
    txn.delete("meta", _NEXT)


def take(
    durable: Durable,
    epoch: int,
    parts: Sequence[tuple[bytes, Batch]],
    chunk_bytes_max: int,
    first_number: Callable[[], int],
) -> int:
    """Write these parts in one transaction; the bytes. `first_number` is asked for the block when there is none yet."""
    with durable.environment.reading() as txn:
        durable.check_epoch(txn, epoch)
        begun = txn.get("meta", _NEXT) is not None
    if not begun:
        _begin(durable, epoch, first_number())
    rows = sum(len(batch) for _, batch in parts)  # a chunk has at least one
    writing = WriteChunks(ReadChunks((), chunk_bytes_max), _Count(_reserve(durable, epoch, rows)).take)
    made = [(key, refs_of(store(batch, writing))) for key, batch in parts]
    values = writing.take()

    def written(txn: Txn) -> None:
        for number, value in values.items():
            txn.put("chunks", number_key(number), value)
            txn.put("loose", number_key(number), b"")
        for key, refs in made:
            txn.put(_KEYS, key, refs.tobytes())

    durable.write(epoch, written)
    durable.environment.verified.update(
        values
    )  # made by this process just now: there is nothing to find out by reading them
    return sum(map(len, values.values()))


def forget(durable: Durable, epoch: int) -> None:
    """Delete all warm chunks; their numbers are not used again."""
    with durable.environment.reading() as txn:
        if txn.get("meta", _NEXT) is None:
            return

    def forgotten(txn: Txn) -> None:
        durable.keep_numbers(txn)
        for number in numbers(txn).tolist():
            txn.delete("chunks", number_key(number))
            txn.delete("loose", number_key(number))
        clear(txn)

    durable.write(epoch, forgotten)


class _Count:
    """Numbers, one after the other."""

    def __init__(self, first: int) -> None:
        """Begin with `first`."""
        self._next = first

    def take(self) -> int:
        """The next one."""
        self._next += 1
        return self._next - 1


def _begin(durable: Durable, epoch: int, first: int) -> None:
    """Note where the block begins, unless another process has."""

    def begun(txn: Txn) -> None:
        if txn.get("meta", _NEXT) is None:
            txn.put("meta", _NEXT, number_key(first))

    durable.write(epoch, begun)


def _reserve(durable: Durable, epoch: int, count: int) -> int:
    """The first of `count` numbers that nobody else gets."""

    def reserved(txn: Txn) -> int:
        value = txn.get("meta", _NEXT)
        first = number_of(value) if value is not None else durable.next_chunk(txn)
        txn.put("meta", _NEXT, number_key(first + count))
        return first

    return durable.write(epoch, reserved)


def _refs(value: memoryview) -> npt.NDArray[np.uint64]:
    """References as they are stored."""
    return np.frombuffer(bytes(value), "<u8").reshape(-1, 6)
