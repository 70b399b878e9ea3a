"""The letter log: the dead letters of a pipeline on the coordinator's host, bounded, for any kind of output.

Outputs keep dead letters in their own ways: in files, in topics, or in the data folder until they are dropped. The letter
log keeps the newest ones in one LMDB file, `<directory>/letters`, for queries and replays.

Invariants:

- The letters of a step are stored under its number, in one transaction that replaces what was there. A step that runs again
  therefore stores its letters once (invariant 5).
- The letters of a step are durable before the step counts as finished, so no checkpoint is above letters that are missing.
- No letters are above the newest logged step: `drop_from` removes them when the pipeline returns to a backup.
- The log notes which letters a step has replayed, in the same transaction as the letters of that step. A step that runs
  again notes them again, so the notes follow from the step log (design record 0066). A note is dropped with its letter.

The file is created with the first letter. **State** at most `LetterLimits`, and a note for each of these letters. Source:
design records 0043 and 0066.
"""

from __future__ import annotations

import json
import struct
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from dbsp.errors import DataError
from dbsp.io import forms
from dbsp.io.environment import LogEnvironment, open_environment, release_environment
from dbsp.io.output_part import DEAD_LETTER_SCHEMA, dead_letter_batch, encode_part
from dbsp.logs import DeadLetter
from dbsp.logs.replays import LetterPosition
from dbsp.stored.checksums import CRC_BYTES, sealed, unsealed
from dbsp.zset.arrow_stream import arrow_stream
from dbsp.zset.schema import STRING, Column, Schema

FORM = forms.LETTER_LOG
PARTS = ("letters", "steps")
REPLAYS = "replays"
"""The part with the notes of replayed letters, which the first replay creates."""
SCHEMA = Schema((*DEAD_LETTER_SCHEMA, Column("header", STRING, nullable=False)))
"""The columns of stored letters: those of the output, and the header of a row of CSV; older letters have none."""
KEPT_FROM = b"kept from"
READ_AGAIN = b"read again"
"""The key of the steps in which changed circuits have read the past of tables again, by table."""
ELSEWHERE = ""
"""The name in place of a table: of letters below this step it is not known whether another coordinator has replayed them."""
NODES = b"nodes"
"""The key of a map from node names to signatures, as of the circuit whose node names the letters have."""
FORMER = " (of a former circuit)"
"""The suffix of a node's name after a change of the circuit has removed the node."""
A_DAY_US = 86_400_000_000
_STEP = struct.Struct(">Q")
_PLACE = struct.Struct(">QI")
_ABOUT = struct.Struct("<qQQQ")
_CRC = struct.Struct("<I")


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterLimits:
    """The bounds of the log: rows, bytes, and days; the oldest steps go first."""

    rows_max: int = 100_000
    bytes_max: int = 256 << 20
    days_max: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LettersOfStep:
    """The size of a step's letters, and the step's clock; `left_out` letters were more than the limits allow."""

    clock_us: int
    rows: int
    bytes: int
    left_out: int = 0


class LetterLog:
    """The letter log under `<directory>/letters`; any thread may read, and the event loop's thread writes."""

    def __init__(self, directory: Path | str, limits: LetterLimits | None = None) -> None:
        """Open the log if it exists; otherwise the first letter creates it."""
        self._path, self._limits = Path(directory) / "letters", limits or LetterLimits()
        self._lock = threading.Lock()
        self._env: LogEnvironment | None = None
        self._steps: dict[int, LettersOfStep] = {}
        self._kept_from = 0
        self._changes = 0
        self._nodes: dict[str, str] = {}
        self._nodes_stored: dict[str, str] | None = None
        self._replays: dict[LetterPosition, int] = {}
        self._replaying: frozenset[int] = frozenset()
        self._read_again: dict[str, int] = {}
        if self._path.exists():
            self._open()

    def _open(self) -> LogEnvironment:
        env = open_environment(self._path, form=FORM, names=PARTS, later=(REPLAYS,), create=True)
        with env.read() as txn:
            for key, value in txn.cursor(db=env.db("steps")):
                self._steps[_STEP.unpack(key)[0]] = about_step(key, value, env.where)
            kept = txn.get(KEPT_FROM, db=env.db("meta"))
            self._kept_from = 0 if kept is None else kept_from_of(kept, env.where)
            nodes = txn.get(NODES, db=env.db("meta"))
            self._nodes_stored = (
                None if nodes is None else json.loads(unsealed(NODES, nodes, len(nodes) - CRC_BYTES, env.where))
            )
            again = txn.get(READ_AGAIN, db=env.db("meta"))
            if again is not None:
                self._read_again = json.loads(unsealed(READ_AGAIN, again, len(again) - CRC_BYTES, env.where))
            if env.has(REPLAYS):
                for key, value in txn.cursor(db=env.db(REPLAYS)):
                    self._replays[_PLACE.unpack(key)] = replay_step(key, value, env.where)
                self._replaying = frozenset(self._replays.values())
        self._env = env
        return env

    @property
    def steps(self) -> dict[int, LettersOfStep]:
        """Return the steps that have letters here, in order."""
        with self._lock:
            return dict(sorted(self._steps.items()))

    @property
    def kept_from(self) -> int:
        """Return the first step from which on no letters were dropped."""
        with self._lock:
            return self._kept_from

    def first_offsets(self) -> dict[tuple[str, int], int]:
        """Return the smallest offset of a kept letter for each table and partition that has one."""
        found: dict[tuple[str, int], int] = {}
        for _, table in self.read():
            lowest = table.group_by(["origin", "partition"]).aggregate([("offset", "min")])
            for row in lowest.to_pylist():
                place = (row["origin"], row["partition"])
                found[place] = min(row["offset_min"], found.get(place, row["offset_min"]))
        return {place: offset for place, offset in found.items() if place[1] >= 0}

    @property
    def changes(self) -> int:
        """Return how often the content has changed since the log was opened."""
        with self._lock:
            return self._changes

    def keep(
        self,
        step: int,
        clock_us: int,
        letters: Sequence[DeadLetter],
        left_out: int = 0,
        replayed: Sequence[LetterPosition] = (),
    ) -> None:
        """Store the letters of a step, summed over its workers, and note the letters that it has `replayed`.

        The oldest steps beyond the limits are dropped.

        **Cost** nothing for a step without letters, unless it had some before.
        """
        added = _summed(letters)
        with self._lock:
            notes = {each: step for each in replayed if each[0] in self._steps}
            known = step in self._steps or step in self._replaying
            if not (added or left_out or notes or known or self._is_old(clock_us)):
                return
            if notes:
                (self._env or self._open()).add(REPLAYS)
            kept, left_out = added[: self._limits.rows_max], left_out + max(0, len(added) - self._limits.rows_max)
            pieces = list(encode_part(dead_letter_batch(kept, SCHEMA))) if kept else []
            about = LettersOfStep(clock_us=clock_us, rows=len(kept), bytes=sum(map(len, pieces)), left_out=left_out)
            others = {number: each for number, each in self._steps.items() if number != step}
            found = {at: number for at, number in self._replays.items() if at[0] != step and number != step} | notes
            self._replace({**others, step: about} if kept or left_out else others, {step: pieces}, clock_us, found)

    def adopt(self, nodes: Mapping[str, str], drops: Callable[[str], bool]) -> None:
        """Rename the letters' nodes after a change of the circuit; `nodes` maps the present names to signatures.

        Letters of a node that both circuits have get its present name. Letters of other nodes whose reason `drops` accepts get
        the weight 0: so all others keep their numbers. The rest stay under a name that no node has. One transaction.
        """
        with self._lock:
            self._nodes = dict(nodes)
            before = self._nodes_stored
            if self._env is None or before == self._nodes:
                return
            names = {} if before is None else _renamed(before, self._nodes)
            moved = {before_ for before_, now in names.items() if before_ != now}
            pieces: dict[int, list[bytes]] = {}
            with self._env.read() as txn:
                for step in self._steps if moved else ():
                    found = [decode_letters(value, step, self._env.where) for _, value in _pieces(txn, self._env, step)]
                    if any(moved.intersection(table.column("origin").to_pylist()) for table in found):
                        pieces[step] = [arrow_stream(_adopted(table, names, drops)) for table in found]
            self._replace(self._steps, pieces, None, self._replays)

    def drop_from(self, step: int) -> None:
        """Drop the letters of `step` and of later steps, which the pipeline has not run yet."""
        with self._lock:
            later = {number: list[bytes]() for number in self._steps if number >= step}
            notes = {at: number for at, number in self._replays.items() if number < step and at[0] < step}
            self._put_read_again({table: number for table, number in self._read_again.items() if number < step})
            if later or len(notes) < len(self._replays):
                kept = {number: each for number, each in self._steps.items() if number < step}
                self._replace(kept, later, None, notes)

    def replayed(self, letters: Sequence[LetterPosition]) -> list[int | None]:
        """Return the step that has replayed each letter; None for a letter that no step of the log has replayed."""
        with self._lock:
            return [self._replays.get(each) for each in letters]

    def note_read_again(self, tables: Iterable[str], step: int) -> None:
        """Note that a changed circuit has read the past of these tables again in a step; do nothing without letters."""
        with self._lock:
            self._put_read_again({**self._read_again, **dict.fromkeys(tables, step)})

    def note_elsewhere(self) -> None:
        """Note that another coordinator has run steps since the newest letter here; its notes of replays are not here."""
        with self._lock:
            if self._steps:
                self._put_read_again({**self._read_again, ELSEWHERE: max(self._steps) + 1})

    def _put_read_again(self, found: dict[str, int]) -> None:
        if self._env is not None and found != self._read_again:
            env, value = self._env, json.dumps(found).encode()
            env.write(lambda txn: txn.put(READ_AGAIN, sealed(READ_AGAIN, value), db=env.db("meta")))
            self._read_again = found

    def read_again(self, table: str) -> int:
        """Return the newest step in which a changed circuit has read the past of a table again; -1 if there is none."""
        with self._lock:
            return self._read_again.get(table, -1)

    def _is_old(self, clock_us: int) -> bool:
        """Return whether the oldest step is beyond the time limit."""
        oldest = min(self._steps, default=None)
        return oldest is not None and self._steps[oldest].clock_us < clock_us - self._limits.days_max * A_DAY_US

    def _replace(
        self,
        wanted: dict[int, LettersOfStep],
        pieces: dict[int, list[bytes]],
        clock_us: int | None,
        notes: dict[LetterPosition, int],
    ) -> None:
        """Write `pieces` under their steps and the notes of replays, and drop steps beyond the limits, in one transaction."""
        dropped = self._beyond(wanted, clock_us)
        kept = {number: each for number, each in wanted.items() if number not in dropped}
        kept_from = max([self._kept_from, *(number + 1 for number in dropped)])
        notes = {at: number for at, number in notes.items() if at[0] not in dropped}
        env = self._env or self._open()

        def action(txn: Any) -> None:
            for step in {*pieces, *dropped}:
                _delete(txn, env, step)
            for step in pieces.keys() & kept.keys():
                _put(txn, env, step, kept[step], pieces[step])
            for at in self._replays.keys() - notes.keys():
                txn.delete(_PLACE.pack(*at), db=env.db(REPLAYS))
            for at, number in notes.items() - self._replays.items():
                key = _PLACE.pack(*at)
                txn.put(key, sealed(key, _STEP.pack(number)), db=env.db(REPLAYS))
            if kept_from > self._kept_from:
                txn.put(KEPT_FROM, sealed(KEPT_FROM, _STEP.pack(kept_from)), db=env.db("meta"))
            if self._nodes_stored != self._nodes:
                txn.put(NODES, sealed(NODES, json.dumps(self._nodes).encode()), db=env.db("meta"))

        env.write(action)
        self._nodes_stored = self._nodes
        self._steps, self._kept_from, self._changes, self._replays = kept, kept_from, self._changes + 1, notes
        self._replaying = frozenset(notes.values())

    def _beyond(self, steps: dict[int, LettersOfStep], clock_us: int | None) -> set[int]:
        """Return the oldest steps that the limits do not allow; the newest step with letters is one of them only by its age."""
        rows, size = sum(each.rows for each in steps.values()), sum(each.bytes for each in steps.values())
        dropped: set[int] = set()
        for number in sorted(steps):
            is_old = clock_us is not None and steps[number].clock_us < clock_us - self._limits.days_max * A_DAY_US
            is_last = len(dropped) == len(steps) - 1
            if not is_old and (is_last or (rows <= self._limits.rows_max and size <= self._limits.bytes_max)):
                break
            rows, size = rows - steps[number].rows, size - steps[number].bytes
            dropped.add(number)
        return dropped

    def read(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, pa.Table]]:
        """Yield (step, letters with weights) of the steps `first <= s < last` that have letters, in a stable order."""
        for step in self.steps:
            if step >= first and (last is None or step < last) and (table := self._table(step)) is not None:
                yield step, table

    def _table(self, step: int) -> pa.Table | None:
        """Return the letters of a step; None if they were dropped meanwhile, or all of them were left out."""
        if (env := self._env) is None:
            return None
        with env.read() as txn:
            tables = [decode_letters(value, step, env.where) for _, value in _pieces(txn, env, step)]
        return pa.concat_tables(tables).combine_chunks() if tables else None

    def close(self) -> None:
        """Release the file."""
        with self._lock:
            if self._env is not None:
                release_environment(self._env)
                self._env = None
                self._steps, self._replays = {}, {}


def _summed(letters: Sequence[DeadLetter]) -> list[DeadLetter]:
    """Return the letters of a step with their weights added up over the workers, in their stable order."""
    sums: Counter[tuple[int, str, int, int, str, str, str]] = Counter()
    for each in letters:
        sums[each.step, each.origin, each.partition, each.offset, each.reason, each.payload, each.header] += each.weight
    return [
        DeadLetter(
            step=step, origin=origin, partition=partition, offset=offset, reason=reason, payload=payload,
            header=header, weight=weight,
        )
        for (step, origin, partition, offset, reason, payload, header), weight in sorted(sums.items())
        if weight
    ]  # fmt: skip


def _renamed(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str | None]:
    """Return the present name of each former node; None for a node that was removed."""
    by_signature: dict[str, list[str]] = {}
    for name, signature in now.items():
        by_signature.setdefault(signature, []).append(name)
    found: dict[str, str | None] = {}
    for name, signature in before.items():
        names = by_signature.get(signature)
        found[name] = None if not names else names.pop(0) if len(names) > 1 else names[0]
    return found


def _adopted(table: pa.Table, names: Mapping[str, str | None], drops: Callable[[str], bool]) -> pa.Table:
    """Return letters with the present names of their nodes."""
    origins, weights = list[str](), list[int]()
    for row in table.to_pylist():
        of_node = row["partition"] < 0 and row["origin"] in names
        name = names[row["origin"]] if of_node else row["origin"]
        origins.append(f"{row['origin']}{FORMER}" if name is None else name)
        weights.append(0 if name is None and drops(row["reason"]) else row["weight"])
    for column, values in (("origin", origins), ("weight", weights)):
        at = table.schema.get_field_index(column)
        table = table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))
    return table


def _pieces(txn: Any, env: LogEnvironment, step: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield key and value of each stored piece of a step's letters."""
    cursor = txn.cursor(db=env.db("letters"))
    found = cursor.set_range(_PLACE.pack(step, 0))
    while found and _PLACE.unpack(cursor.key())[0] == step:
        yield bytes(cursor.key()), bytes(cursor.value())
        found = cursor.next()


def _delete(txn: Any, env: LogEnvironment, step: int) -> None:
    for key, _ in list(_pieces(txn, env, step)):
        txn.delete(key, db=env.db("letters"))
    txn.delete(_STEP.pack(step), db=env.db("steps"))


def _put(txn: Any, env: LogEnvironment, step: int, about: LettersOfStep, pieces: Sequence[bytes]) -> None:
    for number, data in enumerate(pieces):
        txn.put(_PLACE.pack(step, number), _CRC.pack(zlib.crc32(data)) + data, db=env.db("letters"))
    key = _STEP.pack(step)
    value = _ABOUT.pack(about.clock_us, about.rows, about.bytes, about.left_out)
    txn.put(key, sealed(key, value), db=env.db("steps"))


def about_step(key: bytes, value: bytes, where: str) -> LettersOfStep:
    """Decode the sizes of a step's letters; raise a `DataError` with `where` if they are damaged."""
    clock_us, rows, size, left_out = _ABOUT.unpack(unsealed(key, value, _ABOUT.size, f"{where} part=steps"))
    return LettersOfStep(clock_us=clock_us, rows=rows, bytes=size, left_out=left_out)


def replay_step(key: bytes, value: bytes, where: str) -> int:
    """Decode the step that has replayed a letter; raise a `DataError` with `where` if the note is damaged."""
    return int(_STEP.unpack(unsealed(key, value, _STEP.size, f"{where} part={REPLAYS}"))[0])


def decode_letters(value: bytes, step: int, where: str) -> pa.Table:
    """Decode a stored piece of a step's letters; raise a `DataError` with `where` if it is damaged."""
    data = value[_CRC.size :]
    if len(value) < _CRC.size or _CRC.unpack_from(value)[0] != zlib.crc32(data):
        raise DataError(f"a record of dead letters is damaged: {where} step={step}", REMEDY)
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        found = reader.read_all()
    if "header" in found.column_names:
        return found
    empty = pa.array([""] * found.num_rows, STRING)  # a letter of an older version
    return found.add_column(found.num_columns - 1, "header", empty)


def kept_from_of(data: bytes, where: str) -> int:
    """Decode the first step whose letters were never dropped; raise a `DataError` with `where` if damaged."""
    return int(_STEP.unpack(unsealed(KEPT_FROM, data, _STEP.size, where))[0])


REMEDY = (
    "stop the pipeline, delete the folder `letters` in `data_dir` and start it again: no view changes, and dead letters of"
    " earlier steps cannot be queried or replayed any more"
)
