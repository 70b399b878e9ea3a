"""Batches cut into runs of rows that are small enough to become texts: an array of texts holds 2 GiB at most."""

from __future__ import annotations

from collections.abc import Iterator

from dbsp.zset.batch import Batch

TEXT_ROWS, TEXT_BYTES = 1 << 16, 1 << 26


def in_pieces(batch: Batch, bytes_max: int) -> Iterator[Batch]:
    """Yield the rows in runs of at most `bytes_max`, however unequal they are; only a single row may be longer."""
    if len(batch) <= 1 or batch.nbytes <= bytes_max:
        yield batch
        return
    middle = len(batch) // 2
    yield from in_pieces(batch.slice(0, middle), bytes_max)
    yield from in_pieces(batch.slice(middle, len(batch)), bytes_max)


def for_texts(batch: Batch) -> Iterator[Batch]:
    """Yield the rows in runs small enough for one array of texts each; none for no rows.

    The bounds leave room for the names of columns and for escapes.
    """
    for first in range(0, len(batch), TEXT_ROWS):
        yield from in_pieces(batch.slice(first, min(len(batch), first + TEXT_ROWS)), TEXT_BYTES)
