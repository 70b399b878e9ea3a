"""Decoding of runs of messages: together if all are good; a run with a bad message is bisected down to that message.

So each message is decoded independently of its neighbours. Only messages near a bad one are read again: some ten
times, in ever smaller runs. Messages of several kinds are read kind by kind, and their rows are put back into the
messages' order.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp.algebra.table import Table
from dbsp.io.chunk import join_pushes
from dbsp.io.formats.json_rows import bad_row, nulls_fit
from dbsp.io.pushed import Push
from dbsp.logs import DELETE, INSERT
from dbsp.zset.loose import loose_batch

Counts = npt.NDArray[np.int64]
Decoded = tuple[Push, Counts]
"""The rows of some messages, and each message's number of rows."""


class WrongMessageError(ValueError):
    """The fault of a message, in words for its sender."""


MISFITS = (pa.ArrowException, ValueError, OverflowError)
"""Errors that a decoder raises for a run with a bad row."""


def in_halves(
    messages: Sequence[bytes],
    rows: Callable[[Sequence[bytes]], Decoded],
    reason: Callable[[bytes, Exception], str],
    table: Table,
) -> list[Decoded]:
    """Apply `rows` to the messages, or to each half of a run that fails.

    A single message that fails becomes a bad row with its reason.
    """
    try:
        return [rows(messages)]
    except MISFITS as error:
        if len(messages) > 1:
            middle = len(messages) // 2
            halves = messages[:middle], messages[middle:]
            return [made for half in halves for made in in_halves(half, rows, reason, table)]
        why = str(error) if isinstance(error, WrongMessageError) else reason(messages[0], error)
        return [(bad_row(why, messages[0], table), np.ones(1, np.int64))]


def by_kind(
    kinds: Sequence[Hashable],
    messages: Sequence[Any],
    read: Callable[[Any, list[Any]], Sequence[Decoded]],
    table: Table,
) -> Decoded:
    """Decode the messages of each kind together, and return all rows in the messages' order."""
    if len(set(kinds)) == 1:
        return joined(read(kinds[0], list(messages)), table)
    groups: dict[Hashable, list[int]] = {}
    for place, kind in enumerate(kinds):
        groups.setdefault(kind, []).append(place)
    pieces = [joined(read(kind, [messages[place] for place in places]), table) for kind, places in groups.items()]
    if not pieces:
        return joined([], table)
    return _woven(joined(pieces, table), np.concatenate(list(groups.values())))


def _woven(decoded: Decoded, places: npt.NDArray[np.int64]) -> Decoded:
    """Order decoded messages anew: message i moves to `places[i]`, with its rows."""
    push, counts = decoded
    woven = np.empty_like(counts)
    woven[places] = counts
    order = np.argsort(np.repeat(places, counts), kind="stable")
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    rows = np.argsort(number[push.good_indices()])
    bad = sorted((replace(row, index=int(number[row.index])) for row in push.bad), key=lambda row: row.index)
    return Push(batch=push.batch.take(rows), operations=push.operations[rows], bad=tuple(bad)), woven


def joined(pieces: Sequence[Decoded], table: Table) -> Decoded:
    """Concatenate decoded pieces."""
    pushes, counts = zip(no_rows(table, 0), *pieces, strict=True)
    return join_pushes(list(pushes), table.schema), np.concatenate(counts)


def no_rows(table: Table, messages: int) -> Decoded:
    """Return `messages` messages without rows."""
    columns = [pa.nulls(0, column.type) for column in table.schema]
    push = Push(batch=loose_batch(table.schema, columns), operations=np.zeros(0, np.int8))
    return push, np.zeros(messages, np.int64)


def good_rows(table: Table, columns: Sequence[pa.Array], deletes: npt.NDArray[np.bool_]) -> Push:
    """Return rows that are all good as a push; raise a `WrongMessageError` for a forbidden null."""
    for array, column in zip(columns, table.schema, strict=True):
        require(nulls_fit(array, column, deletes, table), f"column {column.name}: missing or null")
    operations = np.where(deletes, DELETE, INSERT).astype(np.int8)
    return Push(batch=loose_batch(table.schema, columns), operations=operations)


def require(holds: bool | np.bool_, otherwise: str) -> None:
    """Raise a `WrongMessageError` with the message `otherwise` unless `holds` is true."""
    if not holds:
        raise WrongMessageError(otherwise)
