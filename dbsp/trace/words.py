"""Read and search sort words: the one to three 64-bit words that order the rows of an arranged batch.

The words are the key hash, the order code if the arrangement has an order, and the row hash. The row hash is omitted
if the other words determine the row. A search by words is at most three nested binary searches.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dbsp.errors import InternalError
from dbsp.zset.batch import Batch

U64 = npt.NDArray[np.uint64]


def word_columns(batch: Batch) -> tuple[U64, ...]:
    """Return the word arrays of an arranged batch, most significant first.

    **Errors** `InternalError` if the batch is not arranged.
    """
    if batch.key_hash is None:
        raise InternalError(f"the batch is not arranged: rows={len(batch)}")
    more = (words for words in (batch.order_code, batch.row_hash) if words is not None)
    return (batch.key_hash, *more)


def words_at(batch: Batch, position: int) -> tuple[np.uint64, ...]:
    """Return the sort words of the row at `position`."""
    return tuple(column[position] for column in word_columns(batch))


def lower_bound(batch: Batch, words: tuple[np.uint64, ...], after: bool = False) -> int:
    """Return the first position whose words are at least `words`; with `after`, greater than `words`.

    **Cost**: one binary search per word.
    """
    low, high = 0, len(batch)
    columns = word_columns(batch)
    for column, word in zip(columns[:-1], words[:-1], strict=True):
        window = column[low:high]
        low, high = low + int(window.searchsorted(word, "left")), low + int(window.searchsorted(word, "right"))
    return low + int(columns[-1][low:high].searchsorted(words[-1], "right" if after else "left"))
