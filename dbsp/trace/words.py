"""Sort words: the one to three 64-bit words by which the rows of an arranged batch are ordered.

The words of a row are (key hash, order code if the arrangement has one, row hash unless these two tell all). Searching a
batch by words is at most three binary searches, each inside the range the one before it left.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dbsp.errors import InternalError
from dbsp.zset.batch import Batch

U64 = npt.NDArray[np.uint64]


def word_columns(batch: Batch) -> tuple[U64, ...]:
    """The word arrays of an arranged batch, most significant first."""
    if batch.key_hash is None:
        raise InternalError(f"the batch is not arranged: rows={len(batch)}")
    more = (words for words in (batch.order_code, batch.row_hash) if words is not None)
    return (batch.key_hash, *more)


def words_at(batch: Batch, position: int) -> tuple[np.uint64, ...]:
    """The words of one row."""
    return tuple(column[position] for column in word_columns(batch))


def lower_bound(batch: Batch, words: tuple[np.uint64, ...], after: bool = False) -> int:
    """The first position whose words are not below `words` (with `after`: are above them).

    **Cost**: one binary search per word.
    """
    low, high = 0, len(batch)
    columns = word_columns(batch)
    for column, word in zip(columns[:-1], words[:-1], strict=True):
        window = column[low:high]
        low, high = low + int(window.searchsorted(word, "left")), low + int(window.searchsorted(word, "right"))
    return low + int(columns[-1][low:high].searchsorted(words[-1], "right" if after else "left"))
