"""Dead letters of topics and files as the input of a step: the step's record has their rows.

`replay {"table": …, "letters": […], "rows": …}`: the step inserts these rows into the table, in the order of the letters. The
rows are decoded before the record is written, so every run of the step has the same ones (invariant 3). A letter is named by
its step and its number there. Each row keeps the place of its letter in the input. The partition decides which worker takes
the row. A command `drop` leaves it out by its place, as any other row.

Invariant: a step with replayed rows reads no ranges, so their order among other rows of the step does not arise.

Source: design record 0066.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from dbsp.algebra.table import Table
from dbsp.errors import DataError
from dbsp.logs import Changes
from dbsp.logs.step_commands import REPLAY, dropped_rows
from dbsp.zset.batch import Batch, concat
from dbsp.zset.loose import loose_batch
from dbsp.zset.schema import Schema

LetterPosition = tuple[int, int]
"""The step of a dead letter, and its number among the letters of the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterRows:
    """The rows of one dead letter: the letter's position, its place in the input, and the number of rows."""

    position: LetterPosition
    partition: int
    offset: int
    rows: int = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replay:
    """The rows of some dead letters of one table, in the order of the letters, and the operation of each row."""

    table: str
    letters: tuple[LetterRows, ...]
    batch: Batch
    operations: np.ndarray

    def to_text(self) -> str:
        """Return the command that a step record stores."""
        letters = [[*each.position, each.partition, each.offset, each.rows] for each in self.letters]
        names = [*self.batch.schema.names, ""]
        columns = [*self.batch.columns, pa.array(self.operations, type=pa.int8())]
        rows = pa.RecordBatch.from_arrays(columns, names=names)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_batch(rows)
        data = base64.b64encode(zlib.compress(sink.getvalue())).decode()
        return REPLAY + json.dumps({"table": self.table, "letters": letters, "rows": data}, separators=(",", ":"))


def of_letters(table: str, rows: Iterable[tuple[LetterRows, Batch, np.ndarray]]) -> Replay:
    """Return the replay of the rows of these letters, ordered by the letters' places."""
    ordered = sorted(rows, key=lambda each: (each[0].partition, each[0].offset, each[0].position))
    return Replay(
        table=table, letters=tuple(letter for letter, _, _ in ordered),
        batch=concat([batch for _, batch, _ in ordered]),
        operations=np.concatenate([operations for _, _, operations in ordered]).astype(np.int8),
    )  # fmt: skip


def replayed_letters(commands: Iterable[str]) -> list[LetterRows]:
    """Return the letters whose rows a step with these commands takes; decode no row."""
    return [letter for _, letter in _letters(commands)]


def replayed_places(commands: Iterable[str]) -> list[tuple[str, int, int]]:
    """Return table, partition and offset of each replayed letter, once per place."""
    return list(
        dict.fromkeys((found["table"], letter.partition, letter.offset) for found, letter in _letters(commands))
    )


def _letters(commands: Iterable[str]) -> Iterator[tuple[dict[str, str], LetterRows]]:
    for command in commands:
        if command.startswith(REPLAY):
            found = json.loads(command[len(REPLAY) :])
            yield from ((found, letter) for letter in _letter_rows(found))


def _letter_rows(stored: Mapping[str, Any]) -> Iterator[LetterRows]:
    for step, number, partition, offset, rows in stored["letters"]:
        yield LetterRows(position=(step, number), partition=partition, offset=offset, rows=rows)


def replayed_changes(commands: Sequence[str], tables: Mapping[str, Table]) -> list[Changes]:
    """Return the replayed rows of a step as changes, one for each table and partition, without the rows that it drops."""
    dropped = {(row.table, row.partition, row.offset) for row in dropped_rows(commands)}
    found: list[Changes] = []
    for command in commands:
        if command.startswith(REPLAY):
            replay = _decoded(json.loads(command[len(REPLAY) :]), tables)
            found += _changes(replay, dropped)
    return sorted(found, key=lambda each: (each.table, each.partition))


def _decoded(stored: Mapping[str, Any], tables: Mapping[str, Table]) -> Replay:
    """Decode a replay; columns that were added to the table later are left out, and get their default like other rows."""
    name = stored["table"]
    with pa.ipc.open_stream(zlib.decompress(base64.b64decode(stored["rows"]))) as reader:
        rows = reader.read_next_batch()
    *columns, operations = rows.columns
    table = tables.get(name)
    schema = Schema(()) if table is None else Schema(table.schema.columns[: len(columns)])
    known = (schema.names, [column.type for column in schema])
    if table is None or known != (tuple(rows.schema.names[:-1]), list(rows.schema.types[:-1])):
        raise DataError(
            f"replayed rows have another schema: table={name} found={rows.schema.names[:-1]} expected={list(schema.names)}"
        )
    batch = loose_batch(schema, columns)
    return Replay(table=name, letters=tuple(_letter_rows(stored)), batch=batch, operations=operations.to_numpy())


def _changes(replay: Replay, dropped: set[tuple[str, int, int]]) -> Iterator[Changes]:
    """Yield the rows of each partition."""
    at = 0
    for partition, group in groupby(replay.letters, lambda letter: letter.partition):
        letters = list(group)
        counts = [letter.rows for letter in letters]
        kept = np.repeat([(replay.table, partition, letter.offset) not in dropped for letter in letters], counts)
        offsets = np.repeat(np.array([letter.offset for letter in letters], np.int64), counts)
        rows = np.flatnonzero(kept) + at
        at += len(kept)
        if len(rows):
            yield Changes(
                table=replay.table, partition=partition, batch=replay.batch.take(rows),
                operations=replay.operations[rows], offsets=offsets[kept],
            )  # fmt: skip
