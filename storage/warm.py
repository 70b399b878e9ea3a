"""Store warm chunks: chunks copied into the durable side ahead of a rescale, to which no version refers yet.

Warm chunks have numbers from a separate block. A worker that stays runs steps on the same database meanwhile, and the
steps must not use the same numbers. So the block is reserved in the scratch's counter before the first warm chunk is
written.

A *try* is one warm-up, identified by the version of its layout. A later try has a greater version, and within an
epoch no version occurs twice. The first piece of a try begins it here, and sweeps what an earlier try left. A piece,
and the end of a try, may run again while the first attempt goes on, even during a later try. So each transaction
checks which try is under way.

Invariants:

1. A warm chunk stays until `adopt` makes a version (its chunks are then the version's), `forget`, a later try, or `open`
   (invariant 12).
2. The epoch is compared in each transaction that writes (invariant 6).
3. A try that was ended is not begun again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

from dbsp.errors import InternalError, UnavailableError
from dbsp.storage.chunkfile import ReadChunks, WriteChunks
from dbsp.storage.durable import Durable
from dbsp.storage.readahead import PAGE, will_need
from dbsp.storage.records import number_key, number_of
from dbsp.storage.tables import Txn
from dbsp.storage.warm_chunks import KEYS, NEXT, TRY, clear, numbers
from dbsp.trace.manifest import Refs, refs_of
from dbsp.trace.merging import store
from dbsp.zset.batch import Batch

TOUCHED_BYTES_MAX = 256 << 20
"""Maximum bytes that `touch` reads into memory, so that a state larger than memory does not evict everything else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """A part whose chunks are encoded but not written yet."""

    key: bytes
    refs: Refs
    values: dict[int, bytearray]


def take(
    durable: Durable,
    epoch: int,
    layout_version: int,
    parts: Sequence[tuple[bytes, Batch]],
    chunk_bytes_max: int,
    first_number: Callable[[], int],
) -> int:
    """Write these parts in one transaction; return the bytes written.

    `first_number` returns the number above which the block of a new try has to be.

    **Errors** `UnavailableError` where the try is over, or a later one has begun.
    """
    with durable.environment.reading() as txn:
        durable.check_epoch(txn, epoch)
        begun = _has_begun(txn, layout_version)
    if not begun:
        _begin(durable, epoch, layout_version, first_number())
    rows = sum(len(batch) for _, batch in parts)  # a chunk has at least one
    first = durable.write(epoch, lambda txn: _reserve(txn, layout_version, rows))
    writing = WriteChunks(ReadChunks((), chunk_bytes_max), count(first).__next__)
    made = [_Made(key=key, refs=refs_of(store(batch, writing)), values=writing.take()) for key, batch in parts]
    values = durable.write(epoch, lambda txn: _written(txn, layout_version, made))
    # this process encoded these chunks just now, so checking their checksums is unnecessary
    durable.environment.verified.add(values)
    return sum(map(len, values.values()))


def _written(txn: Txn, layout_version: int, made: Sequence[_Made]) -> dict[int, bytearray]:
    """Write the parts that no other attempt of this piece has written before, and return the values of their chunks."""
    _check(txn, layout_version)
    written = dict[int, bytearray]()
    for part in made:
        if txn.get(KEYS, part.key) is not None:
            continue
        for number, value in part.values.items():
            txn.put("chunks", number_key(number), value)
            txn.put("loose", number_key(number), b"")
        txn.put(KEYS, part.key, part.refs.tobytes())
        written |= part.values
    return written


def touch(durable: Durable) -> int:
    """Request those pages of warm chunks that are not in memory, without waiting; return their number.

    A kernel that is short of memory gives back pages that nothing has touched since they were written. The first step
    after the switch would then wait for them one after the other.

    **Cost** some 8 us per chunk, and the reading, of `TOUCHED_BYTES_MAX` at most.
    """
    pages = 0
    with durable.environment.reading() as txn:
        for number in numbers(txn).tolist():
            value = txn.lying("chunks", number_key(number))
            pages += will_need(value) if value is not None else 0
            if pages * PAGE > TOUCHED_BYTES_MAX:
                break
    return pages


def forget(durable: Durable, epoch: int, layout_version: int) -> None:
    """End the try, even if it has not begun here, and delete all warm chunks; their numbers are not used again."""

    def ended(txn: Txn) -> None:
        if _newest(txn) <= layout_version:
            _sweep(txn)
            txn.put("meta", TRY, number_key(layout_version))

    durable.write(epoch, ended)


def _sweep(txn: Txn) -> None:
    """Delete all warm chunks."""
    for number in numbers(txn).tolist():
        txn.delete("chunks", number_key(number))
        txn.delete("loose", number_key(number))
    clear(txn)


def _newest(txn: Txn) -> int:
    """Return the newest try of this epoch, as its layout version; -1 if there was none."""
    value = txn.get("meta", TRY)
    return number_of(value) if value is not None else -1


def _has_begun(txn: Txn, layout_version: int) -> bool:
    """Return whether this try has begun here; refuse a try that is over."""
    newest = _newest(txn)
    if newest < layout_version:
        return False
    if newest > layout_version or txn.get("meta", NEXT) is None:
        story = f"layout_version={layout_version} newest={newest}"
        raise UnavailableError(f"this warm-up is over: {story}", "ask for the rescale again")
    return True


def _check(txn: Txn, layout_version: int) -> None:
    """Refuse a try that is not under way."""
    if not _has_begun(txn, layout_version):
        raise UnavailableError(
            f"this warm-up has not begun: layout_version={layout_version}", "ask for the rescale again"
        )


def _begin(durable: Durable, epoch: int, layout_version: int, least: int) -> None:
    """Delete the chunks of an earlier try, and note where the block of numbers begins, unless another process has."""

    def begun(txn: Txn) -> None:
        if _has_begun(txn, layout_version):
            return
        _sweep(txn)
        txn.put("meta", TRY, number_key(layout_version))
        txn.put("meta", NEXT, number_key(durable.reserve(txn, least)))

    durable.write(epoch, begun)


def _reserve(txn: Txn, layout_version: int, count: int) -> int:
    """Reserve `count` numbers for the caller alone; return the first."""
    _check(txn, layout_version)
    value = txn.get("meta", NEXT)
    if value is None:
        raise InternalError(f"a warm-up under way has no numbers: layout_version={layout_version}")
    first = number_of(value)
    txn.put("meta", NEXT, number_key(first + count))
    return first
