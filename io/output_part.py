"""The part of one worker in one step's outputs: its checksum, its dead letters as a batch, and the rule for repeated
writes.

The checksum covers the rows and weights of every view by their row hashes. So it does not depend on row order, on
Arrow's encoding, or on which layout made the part, and sums over workers are comparable. `decide` is the whole rule
for writing (docs/concepts/logs.md) and does no I/O; every output log uses it.
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dbsp.circuit.names import DEAD_LETTERS, is_former, view_of
from dbsp.errors import CircuitError, DataError, FencedError, MismatchError
from dbsp.logs import DeadLetter
from dbsp.zset.arrow_stream import arrow_stream
from dbsp.zset.batch import Batch
from dbsp.zset.hashing import hash_columns
from dbsp.zset.schema import INT32, INT64, STRING, Column, Schema

DEAD_LETTER_SCHEMA = Schema(
    (
        Column("step", INT64, nullable=False),
        Column("origin", STRING, nullable=False),
        Column("partition", INT32, nullable=False),
        Column("offset", INT64, nullable=False),
        Column("reason", STRING, nullable=False),
        Column("payload", STRING, nullable=False),
    )
)
PART_BYTES_MAX = 8 << 20
_MIX = np.uint64(0x9E3779B97F4A7C15)


class Verdict(enum.Enum):
    """The decision about a write: append the part, or discard it."""

    APPEND = "append"
    DISCARD = "discard"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputProgress:
    """The progress of a worker's outputs: the written steps `first <= s < last`, and the newest epoch seen."""

    first: int
    last: int
    epoch: int = 0


def decide(progress: OutputProgress, epoch: int, step: int, checksum: int, stored: int | None) -> Verdict:
    """Decide what to do with a write of a step, by the worker's progress.

    - An older epoch: `FencedError`, before any other check.
    - Below `last`: compare the checksums, and discard; `MismatchError` if they differ.
    - At `last`: append.
    - Above `last`: `DataError`.

    `stored` is the step's stored checksum, None if it is not kept any more.
    """
    if epoch < progress.epoch:
        raise FencedError(f"a newer epoch writes these outputs: step={step} epoch={epoch} newest={progress.epoch}")
    if step > progress.last:
        raise DataError(f"an output step is out of order: step={step} next={progress.last}")
    if step == progress.last:
        return Verdict.APPEND
    if stored is not None and stored != checksum:
        raise MismatchError(
            f"a replayed step gave another output than before: step={step} checksum={checksum:016x} before={stored:016x}",
            "the step log, the state or the program is not what it was; compare with a replay from step 0",
        )
    return Verdict.DISCARD


def with_dead_letters(parts: Mapping[str, Batch], dead: Sequence[DeadLetter]) -> dict[str, Batch]:
    """Return all non-empty parts by name, with the dead letters as one more output."""
    refuse_taken(parts)
    full = {name: batch for name, batch in sorted(parts.items()) if len(batch)}
    if dead:
        full[DEAD_LETTERS] = dead_letter_batch(dead)
    return full


def by_view(parts: Mapping[str, Batch]) -> dict[str, list[Batch]]:
    """Return the parts of each view in the order in which they are written: rows under former columns are taken back first."""
    found: dict[str, list[Batch]] = {}
    for name in sorted(parts, key=lambda part: (view_of(part), not is_former(part))):
        found.setdefault(view_of(name), []).append(parts[name])
    return found


def refuse_taken(views: Collection[str]) -> None:
    """Refuse a view that has the name of the dead letters with a `CircuitError`."""
    if DEAD_LETTERS in views:
        raise CircuitError(
            f"a view cannot be called {DEAD_LETTERS}: the pipeline has an output of that name", "rename the view"
        )


def dead_letter_batch(dead: Sequence[DeadLetter], schema: Schema = DEAD_LETTER_SCHEMA) -> Batch:
    """Return these columns of dead letters as a loose batch, ordered by their fields."""
    ordered = sorted(dead, key=lambda d: (d.origin, d.partition, d.offset, d.reason, d.payload, d.weight))
    columns = [pa.array([_writable(getattr(d, column.name)) for d in ordered], type=column.type) for column in schema]
    weights = np.array([[d.weight] for d in ordered], dtype=np.int64).reshape(len(ordered), 1)
    return Batch.of(schema, columns, weights)


def _writable(value: str | int) -> str | int:
    """Return a text with its surrogates escaped, as no stored text may contain them; other values stay.

    Names of files and texts in JSON may bring surrogates.
    """
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def checksum_of(parts: Mapping[str, Batch]) -> int:
    """Return 64 bits that two parts share only if they have the same rows with the same weights.

    **Law** independent of row order within a view; an empty view counts as an absent one.
    """
    total = 0
    for name, batch in parts.items():
        if len(batch):
            salt = struct.unpack(
                "<Q", struct.pack("<II", zlib.crc32(name.encode()), zlib.crc32(name.encode()[::-1], 1))
            )[0]
            total += int(_row_sum(batch, np.uint64(salt)))
    return total & ((1 << 64) - 1)


def _row_sum(batch: Batch, salt: np.uint64) -> np.uint64:
    """Return the sum over rows of weight times a mix of row hash and view.

    The sum is linear in the weights, so unconsolidated parts agree too.
    """
    hashes = _row_hashes(batch)
    with np.errstate(over="ignore"):
        mixed = (hashes ^ salt) * _MIX
        mixed = (mixed ^ (mixed >> np.uint64(29))) * _MIX
        return np.uint64((mixed * batch.weight.astype(np.uint64)).sum(dtype=np.uint64))


def _row_hashes(batch: Batch) -> NDArray[np.uint64]:
    """Return the hash of each row; a batch whose key is the whole row already has them."""
    form = batch.arrangement
    if form is not None and form.key == batch.schema.names and batch.key_hash is not None:
        return batch.key_hash
    return hash_columns(batch.columns, len(batch))


def to_table(batch: Batch) -> pa.Table:
    """Return the rows with their weights in a last int64 column.

    The column is called `weight`, or `__weight` if the view has a `weight` of its own.
    """
    return batch.to_arrow("__weight" if "weight" in batch.schema else "weight")


def encode_part(batch: Batch, bytes_max: int = PART_BYTES_MAX) -> Iterator[bytes]:
    """Yield the batch as Arrow streams of about `bytes_max` or less."""
    table = to_table(batch)
    pieces = max(1, -(-batch.nbytes // bytes_max))
    step = max(1, -(-len(batch) // pieces))
    for first in range(0, len(batch), step):
        yield arrow_stream(table.slice(first, step))
