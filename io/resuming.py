"""Make an embedded input log again at the positions of a checkpoint, after its disk was lost.

The rows below the positions are in the state of the checkpoint; those above are lost. So the new log is empty, and its next row
gets the offset of the position. The numbers of producers' pushes are those of the checkpoint:

- A push whose rows are all in the checkpoint is known: a repeat adds nothing.
- A push whose rows are all lost is unknown: a repeat is taken. It is refused if a later number of the producer, sent to
  another partition, is in the checkpoint.
- A push that the checkpoint cut is *torn*: a repeat is refused, because its first rows are in the state. A restore names it.

Notes of replayed dead letters are left out, as the letters are lost too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dbsp.io.environment import LogEnvironment
from dbsp.io.producer_numbers import ProducerNumbers
from dbsp.io.spans import OFFSET, OffsetSpan, Place, Spans
from dbsp.stored.checksums import sealed

PushPlace = tuple[int, int, int]
"""Partition, first and last offset of a push."""


def remembered(
    producers: Mapping[bytes, ProducerNumbers],
    pushes: Mapping[bytes, PushPlace],
    positions: Mapping[Place, int],
    ends: Mapping[Place, int],
) -> dict[str, Any]:
    """Return the producers' numbers and the ends of the rows, as JSON values for `resume`.

    `pushes` are those whose rows are not trimmed, by the producer's key and the number.
    """
    kept, torn = dict[bytes, PushPlace](), list[list[Any]]()
    lost: dict[bytes, set[int]] = {}
    newest = {key: numbers.trimmed for key, numbers in producers.items()}
    for push, (partition, first, last) in pushes.items():
        key, number = push[: -OFFSET.size], int(OFFSET.unpack(push[-OFFSET.size :])[0])
        table, producer = _names(key)
        position = positions.get((table, partition), 0)
        if last > position and first >= position:
            lost.setdefault(key, set()).add(number)
            continue
        if last > position:
            torn.append([table, producer, number, position, last])
        kept[push] = (partition, first, min(last, position))
        newest[key] = max(newest.get(key, -1), number)
    known = {
        key: numbers.without(lost[key], newest[key]) if key in lost else numbers
        for key, numbers in producers.items()
        if newest[key] >= 0 or key not in lost
    }
    return {
        "ends": [[table, partition, end] for (table, partition), end in sorted(ends.items())],
        "torn": torn,
        "producers": [
            [key.hex(), each.newest, each.trimmed, each.known, [list(gap) for gap in each.gaps]]
            for key, each in sorted(known.items())
        ],
        "pushes": [[push.hex(), *place] for push, place in sorted(kept.items())],
    }


def resume(
    env: LogEnvironment, spans: Spans, positions: Mapping[Place, int], known: Mapping[str, Any], pack: Any
) -> None:
    """Make an empty log continue at these positions, with the result of `remembered`; `pack` encodes the place of a push."""

    def action(txn: Any) -> None:
        for (table, partition), offset in positions.items():
            spans.put(txn, table, partition, OffsetSpan(end=offset, floor=offset, rows=offset))
        for text, newest, trimmed, since, gaps in known["producers"]:
            key = bytes.fromhex(text)
            numbers = ProducerNumbers(newest=newest, trimmed=trimmed, known=since, gaps=tuple(map(tuple, gaps)))
            txn.put(key, numbers.encoded(key), db=env.db("producers"))
        for text, *place in known["pushes"]:
            key = bytes.fromhex(text)
            txn.put(key, sealed(key, pack(*place)), db=env.db("producers"))

    env.write(action)


def _names(key: bytes) -> tuple[str, str]:
    """Return the table and the producer of a producer's key."""
    table, producer, _ = key.split(b"\0")
    return table.decode(), producer.decode()
