"""The embedded input log: rows pushed to tables, in one LMDB file on the coordinator's host.

The coordinator's process appends; worker processes on the same host read at the same time. Invariants:

- An append is on disk when it returns.
- Offsets count rows without gaps; offsets of trimmed rows are never used again.
- A bad row keeps its offset and gives the same dead letter at every read (invariant 10).
- A repeated push returns its first position, also after a crash, because one transaction writes the rows and the
  number.
- A number that the producer passed over is refused later, and never taken for a repeat (`dbsp.io.producer_numbers`).

**State** rows until they are trimmed. Per table and producer: for ever, which sequence numbers were taken; until its
rows are trimmed, the position of each push. Per replayed dead letter: a note, until the letter was dropped. Source:
docs/concepts/logs.md.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dbsp.algebra.table import Table
from dbsp.errors import ConfigError, DataError, PositionError
from dbsp.io import forms, resuming
from dbsp.io import replayed as replays
from dbsp.io.changes import changes_of
from dbsp.io.chunk import (
    CHUNK_BYTES_MAX,
    Chunk,
    chunk_rows,
    decode_chunk,
    encode_chunk,
    join_chunks,
    join_pushes,
    split_push,
)
from dbsp.io.environment import MAP_BYTES_START
from dbsp.io.local_input import LocalInputLog
from dbsp.io.producer_numbers import ProducerNumbers, decode_numbers
from dbsp.io.pushed import Incoming, Position, Producer, Push
from dbsp.io.replayed import LetterPlace, Replayed
from dbsp.io.spans import (
    OFFSET,
    OffsetSpan,
    Place,
    check_range,
    place_key,
    record_key,
    records,
    table_prefix,
)
from dbsp.io.transactions import PART, Transactions
from dbsp.logs import Changes, Range
from dbsp.stored.checksums import CRC_BYTES, sealed, unsealed
from dbsp.stored.levels import NEWEST

FORM = forms.INPUT_LOG
NAME_BYTES_MAX = 200

_PLACE = struct.Struct("<HQQ")


class EmbeddedInputLog(LocalInputLog):
    """The input log of one pipeline under `<directory>/input`; see `dbsp.logs.InputLog` for reading."""

    def __init__(
        self,
        directory: Path | str,
        tables: Sequence[Table],
        *,
        partitions: int = 1,
        create: bool = False,
        map_bytes: int = MAP_BYTES_START,
        chunk_bytes_max: int = CHUNK_BYTES_MAX,
        level: int = NEWEST,
    ) -> None:
        """Open the log; `create` makes an absent one, otherwise absence is a `DataError`.

        Rows are appended to the first `partitions` partitions; rows of further ones, from earlier settings, are still
        read.
        """
        for table in tables:
            _check_name(table.name, "table")
        super().__init__(
            directory,
            tables,
            form=FORM,
            names=("rows", "spans", "producers"),
            later=(PART, replays.PART),
            create=create,
            map_bytes=map_bytes,
            level=level,
        )
        self._transactions, self._replayed = Transactions(self._env), Replayed(self._env)
        self._chunk_bytes_max, self._given = chunk_bytes_max, dict.fromkeys(self._tables, partitions)
        stored = (
            partition + 1 for _, partition in self._spans.places()
        )  # earlier settings may have had more partitions
        self._partitions = dict.fromkeys(self._tables, max([partitions, *stored]))

    def widen(self, table: str, partitions: int) -> None:
        """Give the table's input at least `partitions` partitions while the log is open; existing ones stay."""
        self._given[table] = max(partitions, self._given[self._table(table).name])
        self._partitions[table] = max(partitions, self._partitions[table])

    def append(self, table: str, push: Push, producer: Producer | None = None, partition: int = 0) -> Position:
        """Append one push; the rows are on disk on return."""
        return self.append_many([Incoming(table=table, push=push, producer=producer, partition=partition)])[0]

    def append_many(self, incoming: Sequence[Incoming], *, together: bool = False) -> list[Position]:
        """Append pushes in one synced transaction; those of one partition are packed into common records.

        With `together` one step takes them all.

        **Errors** Nothing is appended if one of these is raised:

        - `DataError` if a producer repeats a sequence number with another number of rows, or sends a number that it
          had passed over
        - `DataError` if a producer repeats only a part of pushes that belong together
        - `PositionError` if the producer's newest number is not `Producer.after`
        """
        for item in incoming:
            self._check(item)
        if together:
            self._transactions.prepare()
        if any(item.letter is not None for item in incoming):
            self._replayed.prepare()
        return self._env.write(lambda txn: self._append(txn, incoming, together))

    def transactions(self, done: Mapping[Place, int]) -> Sequence[Sequence[Range]]:
        """Return the unfinished groups of rows that one step has to take together, the oldest first."""
        return self._transactions.waiting(done)

    def _append(self, txn: Any, incoming: Sequence[Incoming], together: bool) -> list[Position]:
        spans: dict[Place, OffsetSpan] = {}
        fresh: dict[tuple[str, int], list[Push]] = {}
        positions = []
        for item in incoming:
            place = (item.table, item.partition)
            span = spans[place] if place in spans else self._spans.get(txn, *place)
            known = self._known(txn, item)
            if known is not None:
                positions.append(known)
                continue
            first = span.end
            position = Position(table=item.table, partition=item.partition, first=first, last=first + item.push.rows)
            spans[place] = span.longer(item.push.rows, 0)
            fresh.setdefault(place, []).append(item.push)
            self._remember(txn, item.producer, position)
            if item.letter is not None:
                self._replayed.add(txn, item.letter, position)
            positions.append(position)
        for place, pushes in fresh.items():
            self._put(txn, place, spans[place], join_pushes(pushes, self._table(place[0]).schema))
        if together:
            self._join(txn, positions)
        return positions

    def _join(self, txn: Any, positions: Sequence[Position]) -> None:
        """Note that the rows of these pushes belong together; do nothing if all of them are repeats."""
        before = [position for position in positions if position.repeated]
        if before and len(before) < len(positions):
            raise DataError(
                f"a part of this transaction was pushed before: tables={','.join(position.table for position in before)}",
                "give every transaction a sequence number that its producer used for none of its tables",
            )
        fresh = [each for each in positions if each.last > each.first and not each.repeated]
        if fresh:
            self._transactions.add(txn, [each.range() for each in fresh])

    def _put(self, txn: Any, place: Place, span: OffsetSpan, push: Push) -> None:
        offset, size = span.end - push.rows, 0
        for piece in split_push(push, self._chunk_bytes_max):
            if piece.rows:
                data = encode_chunk(piece, self._level)
                txn.put(record_key(*place, offset), data, db=self._env.db("rows"), append=False)
                offset, size = offset + piece.rows, size + len(data)
        self._spans.put(txn, *place, span.longer(0, size))

    def _known(self, txn: Any, item: Incoming) -> Position | None:
        """Return the first position of a repeated push, or of a letter that was replayed; None for a new one."""
        if item.letter is not None:
            return self._replayed.find(txn, item.table, item.letter)
        if item.producer is None:
            return None
        key = _producer_key(item.table, item.producer.id)
        numbers = self._numbers(txn, key)
        if item.producer.after not in (None, numbers.newest):
            raise PositionError(
                f"the producer's newest number is not the expected one: table={item.table} producer={item.producer.id}"
                f" after={item.producer.after} newest={numbers.newest}",
                "ask for the newest number, and continue after it",
            )
        if item.producer.sequence > numbers.newest:
            return None
        place = self._push_place(txn, key + OFFSET.pack(item.producer.sequence))
        if place is None:
            _refuse_unless_taken(item.table, item.producer, numbers)
            floor = self._spans.get(txn, item.table, item.partition).floor
            return Position(table=item.table, partition=item.partition, first=floor, last=floor, repeated=True)
        partition, first, last = place
        if last - first != item.push.rows:
            raise DataError(
                f"a producer repeats a sequence number with other rows: table={item.table} producer={item.producer.id}"
                f" sequence={item.producer.sequence} rows={item.push.rows} rows_before={last - first}",
                "give every new push a new sequence number",
            )
        return Position(table=item.table, partition=partition, first=first, last=last, repeated=True)

    def _remember(self, txn: Any, producer: Producer | None, position: Position) -> None:
        if producer is None:
            return
        db, key = self._env.db("producers"), _producer_key(position.table, producer.id)
        txn.put(key, self._numbers(txn, key).take(producer.sequence).encoded(key, self._level), db=db)
        push = key + OFFSET.pack(producer.sequence)
        txn.put(push, sealed(push, _PLACE.pack(position.partition, position.first, position.last), self._level), db=db)

    def _numbers(self, txn: Any, key: bytes) -> ProducerNumbers:
        """Return the known numbers of a producer's pushes."""
        return decode_numbers(key, txn.get(key, db=self._env.db("producers")), self._env.where)

    def _push_place(self, txn: Any, key: bytes) -> tuple[int, int, int] | None:
        """Return partition, first and last offset of a producer's push; None if they are not stored."""
        found = txn.get(key, db=self._env.db("producers"))
        return None if found is None else push_place_of(key, found, self._env.where)

    def last_sequence(self, table: str, producer: str) -> int | None:
        """Return the newest sequence number of this producer's pushes to the table; None without one."""
        with self._env.read() as txn:
            numbers = self._numbers(txn, _producer_key(table, producer))
        return None if numbers.newest < 0 else numbers.newest

    def replayed(self, table: str, places: Sequence[LetterPlace]) -> list[Position | None]:
        """Return, for each dead letter of a table, the position to which it was replayed; see `dbsp.io.replayed`."""
        return self._replayed.known(table, places)

    def forget_replayed(self, below: Mapping[Place, int]) -> None:
        """Drop the notes of trimmed letters below these offsets; see `dbsp.io.replayed`."""

        def action(txn: Any) -> None:
            for place, to in below.items():
                self._replayed.forget(txn, place, min(to, self._spans.get(txn, *place).floor))

        if self._env.has(replays.PART):
            self._env.write(action)

    def partition_of(self, table: str, producer: str) -> int | None:
        """Return the partition of this producer's newest push to the table.

        None if all rows of this push are trimmed, or there is none.
        """
        key = _producer_key(table, producer)
        with self._env.read() as txn:
            place = self._push_place(txn, key + OFFSET.pack(max(self._numbers(txn, key).newest, 0)))
            return None if place is None else place[0]

    def read(self, range_: Range, step: int) -> Sequence[Changes]:
        """Return the changes of one range as one piece, its bad rows as dead letters of `step`.

        **Cost** decodes the records that the range touches; nothing per row. **Errors** `DataError` names the offsets
        if part of the range is trimmed, not written yet, or damaged.
        """
        table = self._table(range_.table)
        with self._env.read() as txn:
            check_range(range_, self._spans.get(txn, range_.table, range_.partition))
            found = list(records(txn, self._env.db("rows"), range_))
        pieces: list[Chunk] = []
        wanted, stored = range_.first, 0
        for offset, data in found:
            where = f"{self._env.where} table={range_.table} partition={range_.partition} offset={offset}"
            chunk = decode_chunk(data, table, where)
            low, high = wanted - offset, min(chunk.rows, range_.last - offset)
            if low < 0 or low >= high:
                raise DataError(f"input rows are missing: {where} wanted={wanted}")
            pieces.append(chunk.cut(low, high))
            wanted, stored = offset + high, stored + share(len(data), chunk.rows, low, high)
        if wanted != range_.last:
            raise DataError(
                f"input rows are missing: table={range_.table} partition={range_.partition} first={wanted} last={range_.last}"
            )
        return [changes_of(join_chunks(pieces, table.schema), range_, step, stored_bytes=stored)] if pieces else []

    def _kept(self, txn: Any, range_: Range) -> Iterator[tuple[int, int]]:
        """Yield the offset and size of each record of a range."""
        return ((offset, len(data)) for offset, data in records(txn, self._env.db("rows"), range_))

    def touch(self, range_: Range) -> None:
        """Read the records of a range into the page cache, and return nothing.

        Other threads run meanwhile. The reader of the range reports errors.
        """
        with self._env.read(buffers=True) as txn:
            for _, data in records(txn, self._env.db("rows"), range_):
                np.frombuffer(data, dtype=np.uint8)[:: mmap.PAGESIZE].max()

    def _trim(self, txn: Any, place: Place, floor: int) -> None:
        prefix = place_key(*place)
        cursor = txn.cursor(db=self._env.db("rows"))
        found = cursor.set_range(prefix)
        while found and cursor.key().startswith(prefix):
            offset = OFFSET.unpack(cursor.key()[len(prefix) :])[0]
            if offset + chunk_rows(cursor.value()) > floor:
                break
            found = cursor.delete()
        self._forget(txn, *place, floor)

    def _trimmed(self, txn: Any) -> None:
        """Drop transactions whose rows are all trimmed; rows of removed tables count as trimmed."""

        def is_trimmed(range_: Range) -> bool:
            place = range_.table, range_.partition
            return range_.table not in self._tables or range_.last <= self._spans.get(txn, *place).floor

        self._transactions.trim(txn, is_trimmed)

    def _forget(self, txn: Any, table: str, partition: int, floor: int) -> None:
        """Drop the positions of trimmed pushes; keep each producer's numbers, with the greatest one dropped."""
        prefix, db = table_prefix(table), self._env.db("producers")
        dropped: dict[bytes, int] = {}
        cursor = txn.cursor(db=db)
        found = cursor.set_range(prefix)
        while found and cursor.key().startswith(prefix):
            key, value = cursor.key(), cursor.value()
            place = push_place_of(key, value, self._env.where) if is_push_place(value) else None
            if place is not None and place[0] == partition and place[2] <= floor:
                dropped[key[: -OFFSET.size]] = OFFSET.unpack(key[-OFFSET.size :])[0]
                found = cursor.delete()
            else:
                found = cursor.next()
        for key, sequence in dropped.items():
            txn.put(key, self._numbers(txn, key).trim(sequence).encoded(key, self._level), db=db)

    def remembered(self, positions: Mapping[Place, int]) -> dict[str, Any]:
        """Return what a log made again at these positions needs; see `dbsp.io.resuming`.

        **Cost** reads the numbers of all producers, and the places of all pushes whose rows are not trimmed.
        """
        numbers, pushes = dict[bytes, ProducerNumbers](), dict[bytes, tuple[int, int, int]]()
        with self._env.read() as txn:
            for key, value in txn.cursor(db=self._env.db("producers")):
                if is_push_place(value):
                    pushes[key] = push_place_of(key, value, self._env.where)
                else:
                    numbers[key] = decode_numbers(key, value, self._env.where)
        return resuming.remembered(numbers, pushes, positions, self.ends())

    def resume(self, positions: Mapping[Place, int], known: Mapping[str, Any]) -> None:
        """Make this new log continue at these positions, with the result of `remembered`; earlier rows are absent."""
        resuming.resume(self._env, self._spans, positions, known, _PLACE.pack)

    def _check(self, item: Incoming) -> None:
        schema = self._table(item.table).schema
        if not 0 <= item.partition < self._given[item.table]:
            raise ConfigError(
                f"no such partition: table={item.table} partition={item.partition} partitions={self._given[item.table]}"
            )
        if (
            item.push.batch.schema.to_arrow().types != schema.to_arrow().types
            or item.push.batch.schema.names != schema.names
        ):
            raise DataError(
                f"a push with another schema: table={item.table} found={item.push.batch.schema} expected={schema}"
            )
        if item.producer is not None:
            _check_name(item.producer.id, "producer")
            if not 0 <= item.producer.sequence < 1 << 63:
                raise ConfigError(f"a producer's sequence number is out of range: sequence={item.producer.sequence}")


def share(size: int, rows: int, low: int, high: int) -> int:
    """Return the bytes of the rows `low <= i < high` of a record; the shares of all its rows add up to its size.

    **Example**

    >>> [share(10, 3, row, row + 1) for row in range(3)]
    [3, 3, 4]
    """
    return size * high // rows - size * low // rows


def _check_name(name: str, what: str) -> None:
    if not name or "\0" in name or len(name.encode()) > NAME_BYTES_MAX:
        raise ConfigError(f"a {what} name must be 1 to {NAME_BYTES_MAX} bytes without NUL: name={name[:80]!r}")


def is_push_place(value: bytes) -> bool:
    """Return whether a record of the part `producers` is a push's position; its length tells it from numbers."""
    return len(value) in (_PLACE.size, _PLACE.size + CRC_BYTES)


def push_place_of(key: bytes, value: bytes, where: str) -> tuple[int, int, int]:
    """Decode partition, first and last offset of a push; raise a `DataError` with `where` if damaged."""
    return _PLACE.unpack(unsealed(key, value, _PLACE.size, f"{where} part=producers"))


def _producer_key(table: str, producer: str) -> bytes:
    return table_prefix(table) + producer.encode() + b"\0"


def _refuse_unless_taken(table: str, producer: Producer, numbers: ProducerNumbers) -> None:
    """Raise a `DataError` for an old number without a position, unless its rows were taken and trimmed."""
    where = f"table={table} producer={producer.id} sequence={producer.sequence} newest={numbers.newest}"
    taken = numbers.was_taken(producer.sequence)
    if taken is False or producer.sequence > numbers.trimmed:
        raise DataError(
            f"a producer's sequence number comes after a greater one: {where}",
            "no rows were stored under it; send them under a new number, greater than all others",
        )
    if taken is None:
        raise DataError(
            f"it is no longer known whether this push of a producer was stored: {where}",
            "look for its rows, and send them under a new number if they are missing;"
            " a producer that counts 0, 1, 2, … always gets an answer",
        )
