"""Rows as JSON lines: `{"insert": {...}}` for positive weights, `{"delete": {...}}` for negative ones.

A weight other than 1 or -1 is a member of the line, `{"insert": {...}, "weight": 3}`. Lines are not repeated, because
a weight can be a billion. Values have the forms of `dbsp.io.formats.wire`; decimals are strings, so that no reader
rounds them. The lines of a batch are in its order. Text is built a column at a time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.errors import DataError
from dbsp.io.formats.pieces import for_texts
from dbsp.io.formats.wire import to_json_text
from dbsp.zset.batch import Batch, consolidate
from dbsp.zset.schema import STRING


def json_lines(batch: Batch) -> pa.Array:
    """Return one JSON object per row, as a string array.

    **Errors** `DataError` if a row has weight 0: such a row is no change.
    """
    weight = batch.weight
    if not np.all(weight):
        raise DataError(f"a row of weight 0 cannot be written: rows={int(np.sum(weight == 0))}")
    sign = pc.if_else(pa.array(weight > 0), '{"insert":', '{"delete":')
    return pc.binary_join_element_wise(sign, *_objects(batch, batch.schema.names), _tail(weight), _text(""))


def upsert_messages(batch: Batch, keys: Sequence[str]) -> tuple[pa.Array, pa.Array]:
    """Return each changed key (`key_texts`) and its current row; null if the key has no row any more.

    **Law** If no two rows of a view share a key, the last rows of all keys, over all batches in order, are the view.
    **Errors** `DataError` if two rows of one key are inserted, or one row twice.
    """
    batch, came, names = newest_rows(batch, keys)
    rows = pc.binary_join_element_wise(*_objects(batch, batch.schema.names), _text(""))
    return names, pc.if_else(came, rows, pa.scalar(None, STRING))


def newest_rows(batch: Batch, keys: Sequence[str]) -> tuple[Batch, pa.Array, pa.Array]:
    """Return a row of each changed key, whether it is present now, and the key (`key_texts`).

    The row is the key's current row, or the deleted one if there is none.

    **Errors** `DataError` if two rows of one key are inserted, or one row twice.
    """
    batch = consolidate(batch)
    came = batch.weight > 0
    names = key_texts(batch, keys)
    present = names.filter(pa.array(came))
    if len(pc.unique(present)) < len(present) or np.any(batch.weight[came] > 1):
        raise DataError(f"a step inserted two rows of one key: keys={list(keys)}")
    told = came | ~pc.is_in(names, present).to_numpy(zero_copy_only=False)
    return batch.filter(told), pa.array(came[told]), names.filter(pa.array(told))


def key_texts(batch: Batch, keys: Sequence[str]) -> pa.Array:
    """Return the key of every row: the JSON text of one column, or an object of several."""
    if len(keys) == 1:
        return to_json_text(batch.column(keys[0]))
    return pc.binary_join_element_wise(*_objects(batch, keys), _text(""))


def _objects(batch: Batch, names: Sequence[str]) -> list[pa.Array | pa.Scalar]:
    """Return the parts of each row's object of these columns, to be joined."""
    parts: list[pa.Array | pa.Scalar] = []
    for number, name in enumerate(names):
        parts.append(_text(("{" if number == 0 else ",") + json.dumps(name, ensure_ascii=False) + ":"))
        parts.append(to_json_text(batch.column(name)))
    return [*parts, _text("}")]


def encode_json(batch: Batch) -> bytes:
    """Return the whole batch as JSON lines."""
    pieces = []
    for piece in for_texts(batch):
        lines = json_lines(piece)
        ended = pc.binary_join_element_wise(lines, _text("\n"), _text(""))
        offsets = np.frombuffer(ended.buffers()[1], dtype=np.int32)[ended.offset : ended.offset + len(ended) + 1]
        pieces.append(ended.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0])).to_pybytes())
    return b"".join(pieces)


def _tail(weight: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> pa.Array:
    """Return the end of each line: a brace, after the weight if that is not 1 or -1."""
    if np.all((weight == 1) | (weight == -1)):
        return pa.array(["}"] * 1).take(pa.array(np.zeros(len(weight), dtype=np.int8)))
    count = pa.array(np.abs(weight).astype(np.uint64))
    written = pc.binary_join_element_wise(_text(',"weight":'), count.cast(STRING), _text("}"), _text(""))
    return pc.if_else(pc.equal(count, pa.scalar(1, pa.uint64())), "}", written)


def _text(text: str) -> pa.Scalar:
    return pa.scalar(text, STRING)
