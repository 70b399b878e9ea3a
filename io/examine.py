"""Examine the embedded logs for `coordinator doctor`: read every record, and continue after damage.

The caller first walks the structure of a file. LMDB trusts its pages, so LMDB must not open a file whose structure is
broken. Each function also returns the log's own bounds and positions, so that the logs can be compared with each other.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dbsp.disk import shown
from dbsp.errors import DataError
from dbsp.io import embedded_input, embedded_output, embedded_steps, file_input, imported_file, letter_log, replayed
from dbsp.io.accepted import OWED
from dbsp.io.chunk import check_chunk
from dbsp.io.environment import LOG, borrowed
from dbsp.io.output_part import OutputProgress
from dbsp.io.producer_numbers import decode_numbers
from dbsp.io.progress import checksum_of_step, progress_of
from dbsp.io.spans import OFFSET, offset_of, place_of, span_of
from dbsp.io.step_codec import Positions, advance, positions_from_json, record_from_json, unseal
from dbsp.io.transactions import PART, ranges_of
from dbsp.lmdb_environments import BROKEN_FILE, data_file, open_to_read
from dbsp.logs import StepRecord
from dbsp.store.findings import Examined
from dbsp.stored.format_numbers import check_names

_BEHIND = b"\xff" * 16
"""A key suffix that sorts after every suffix of packed numbers."""
STEPS_REMEDY = "restore the folder of the step log from a backup of the same moment as the databases"
INPUT_REMEDY = (
    "restore the folder of the input log from a backup. The pipeline can continue without rows below the oldest checkpoint;"
    " their producers have to send other lost rows again"
)
FILES_REMEDY = (
    "put the files back as they were; the pipeline can continue without rows below the oldest checkpoint. The notes about files"
    " are in the folder of the input log: restore it from a backup of the same moment as the databases"
)
LATE_ROWS_REMEDY = (
    "rows of this file are never read under this name: put them into the folder as a file of another name"
)
OUTPUT_REMEDY = (
    "restore this worker's folder of outputs from a backup. The pipeline continues without these rows, but consumers that have"
    " not read them yet miss them"
)
PROGRESS_REMEDY = (
    "restore this worker's folder of outputs from a backup: without its progress the pipeline does not start"
)


class OpenedLog:
    """A log's file, opened read only, in one read transaction."""

    def __init__(self, txn: Any, parts: dict[str, Any]) -> None:
        """Read these named databases of the file, including `meta`."""
        self._txn, self._parts = txn, parts

    @classmethod
    def of(cls, env: Any, txn: Any, names: tuple[str, ...], later: tuple[str, ...] = ()) -> OpenedLog:
        """Find the named parts in a handle of LMDB, and those of `later` that exist."""
        there = (*names, *(name for name in later if txn.get(name.encode()) is not None), "meta")
        return cls(txn, {name: env.open_db(name.encode(), txn=txn, create=False) for name in there})

    def check_form(self, file: Path, form: str | Sequence[str] | None) -> None:
        """Refuse a file of another kind; with `form` None accept every kind."""
        if form is not None:
            forms = (form,) if isinstance(form, str) else form
            check_names("the log file", f"file={file}", self.get("meta", b"format") or b"", forms)

    def get(self, part: str, key: bytes) -> bytes | None:
        """Return a value of a part, None if the key is absent."""
        found: bytes | None = self._txn.get(key, db=self._parts[part])
        return found

    def items(self, part: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield all keys and values, in order; none if the part is absent."""
        if part in self._parts:
            yield from self._txn.cursor(db=self._parts[part])

    def ends(self, part: str, prefix: bytes = b"") -> tuple[bytes, ...]:
        """Return the values of the first and the last key that begin with `prefix`; an empty tuple if none does."""
        cursor = self._txn.cursor(db=self._parts[part])
        if not cursor.set_range(prefix) or not bytes(cursor.key()).startswith(prefix):
            return ()
        first = bytes(cursor.value())
        if not cursor.set_range(prefix + _BEHIND):
            cursor.last()
        else:
            cursor.prev()
        return first, bytes(cursor.value())


@contextmanager
def reading(
    folder: Path, form: str | Sequence[str] | None, names: tuple[str, ...], later: tuple[str, ...] = ()
) -> Iterator[OpenedLog]:
    """Open a log's file in one read transaction; it has this form, or one of several; `form` None accepts any kind.

    If this process has the file open, the read uses that handle: LMDB refuses a second one.

    **Errors** `DataError` if the file is missing, empty, cut short or of another kind.
    """
    LOG.check(folder)
    file = data_file(folder)
    with borrowed(folder) as shared:
        if shared is not None:
            with shared.read() as txn:
                there = (*names, *filter(shared.has, later), "meta")
                opened = OpenedLog(txn, {name: shared.db(name) for name in there})
                opened.check_form(file, form)
                yield opened
            return
    env = open_to_read(folder, databases=len(names) + len(later) + 2)
    try:
        with env.begin() as txn:
            opened = OpenedLog.of(env, txn, names, later)
            opened.check_form(file, form)
            yield opened
    finally:
        env.close()


# --- the step log ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class StepsSeen:
    """The contents of the step log: its records, and the next step and positions that its head names."""

    records: list[StepRecord] = field(default_factory=list)
    next_step: int = 0
    positions: Positions = field(default_factory=dict)


def examine_steps(directory: Path) -> tuple[Examined, StepsSeen]:
    """Read every record of the step log: whole, in its place, without gap or overlap in steps and ranges (invariant 7).

    The head must say the same.
    """
    seen = Examined(file=directory / "steps" / "data.mdb", remedy=STEPS_REMEDY)
    steps = StepsSeen()
    with seen.guarded(also=BROKEN_FILE), reading(directory / "steps", embedded_steps.FORM, ("records",)) as log:
        for key, value in log.items("records"):
            with seen.guarded(f"record {key.hex()}", also=BROKEN_FILE):
                steps.records.append(_step_record(seen.file, key, value))
                seen.count("step records")
        head = log.get("meta", b"head")
        if head is None:
            seen.found("the step log has no head")
            return seen, steps
        with seen.guarded("head"):
            found = unseal(head, f"file={seen.file} part=head")
            steps.next_step, steps.positions = found["next_step"], positions_from_json(found["positions"])
        _contiguous(seen, steps)
    return seen, steps


def _step_record(file: Path, key: bytes, value: bytes) -> StepRecord:
    step = int(struct.unpack(">Q", key)[0])
    record = record_from_json(unseal(value, f"file={file} step={step}"))
    if record.step != step:
        raise DataError(f"a step log record is in the wrong place: step={step} found={record.step}")
    return record


def _contiguous(seen: Examined, steps: StepsSeen) -> None:
    """Check invariant 7, as far back as the log keeps records."""
    positions: Positions = {}
    following = steps.records[0].step if steps.records else steps.next_step
    for record in steps.records:
        try:
            positions = advance(record, following, positions)
        except DataError as error:
            seen.found(error.message)
            positions |= {(r.table, r.partition): r.last for r in record.ranges}
        following = record.step + 1
    if following != steps.next_step:
        seen.found(f"the step log's last records are missing: next={steps.next_step} found={following}")
    for (table, partition), offset in sorted(positions.items()):
        known = steps.positions.get((table, partition))
        if known != offset:
            seen.found(
                f"the step log's head does not follow: table={table} partition={partition} head={known} records={offset}"
            )


# --- the input log --------------------------------------------------------------------------------------------------

Spans = dict[tuple[str, int], tuple[int, int]]
"""(floor, end) of each place."""
Reached = dict[tuple[str, int], int | None]
"""The offset after the last record of each place; None after a damaged record."""


def examine_input(directory: Path) -> tuple[Examined, Spans]:
    """Read every record of the input log: whole, and with all offsets between floor and end present, once."""
    seen = Examined(file=directory / "input" / "data.mdb", remedy=INPUT_REMEDY)
    spans: Spans = {}
    names = ("rows", "spans", "producers")
    with (
        seen.guarded(also=BROKEN_FILE),
        reading(directory / "input", embedded_input.FORM, names, (PART, replayed.PART)) as log,
    ):
        for key, value in log.items("spans"):
            with seen.guarded(f"span {key!r}", also=BROKEN_FILE):
                span = span_of(key, value, f"file={seen.file}")
                spans[place_of(key)] = (span.floor, span.end)
        for key, value in log.items("producers"):
            with seen.guarded(f"producer {key!r}", also=BROKEN_FILE):
                _producer(seen, key, value)
        for key, value in log.items(PART):
            with seen.guarded(f"transaction {key.hex()}", also=BROKEN_FILE):
                _transaction(seen, key, value, spans)
        for key, value in log.items(replayed.PART):
            with seen.guarded(f"replayed letter {key!r}", also=BROKEN_FILE):
                replayed.replayed_to(offset_of(key)[0], key, value, f"file={seen.file}")
                seen.count("replayed letters")
        reached: Reached = {}
        for key, data in log.items("rows"):
            with seen.guarded(f"rows {key!r}", also=BROKEN_FILE):
                _rows(seen, key, data, spans, reached)
        for (table, partition), (floor, end) in sorted(spans.items()):
            last = reached.get((table, partition), floor)
            if last is not None and last != end:
                seen.found(f"input rows are missing: table={table} partition={partition} first={last} last={end}")
    return seen, spans


def _producer(seen: Examined, key: bytes, value: bytes) -> None:
    """Check a record of a producer: its numbers, or the place of one of its pushes."""
    where = f"file={seen.file}"
    if embedded_input.is_push_place(value):
        embedded_input.push_place_of(key, value, where)
    else:
        decode_numbers(key, value, where)
    seen.count("records of producers")


def _transaction(seen: Examined, key: bytes, value: bytes, spans: Spans) -> None:
    """Check a transaction: whole, and only of rows that the log has."""
    for each in ranges_of(value, f"file={seen.file} part={PART}"):
        if each.last > spans.get((each.table, each.partition), (0, 0))[1]:
            where = f"number={OFFSET.unpack(key)[0]} table={each.table} partition={each.partition} last={each.last}"
            seen.found(f"a transaction has rows that are not there: {where}")
    seen.count("transactions")


def _rows(seen: Examined, key: bytes, data: bytes, spans: Spans, reached: Reached) -> None:
    """Check a record of rows; after a damaged one, the offset at which the next must begin is unknown."""
    table, partition, offset = offset_of(key)
    place = (table, partition)
    where = f"table={table} partition={partition} offset={offset}"
    if place not in spans:
        seen.found(f"the input log has rows of a place it does not know: {where}")
        return
    floor, _ = spans[place]
    expected = reached.get(place, min(offset, floor))
    if expected is not None and offset != expected:
        seen.found(f"input rows are missing: table={table} partition={partition} first={expected} last={offset}")
    try:
        rows = check_chunk(data, f"file={seen.file} {where}")
    except DataError as error:
        seen.found(error.message)
        reached[place] = None
        return
    seen.count("input records")
    seen.count("input rows", rows)
    reached[place] = offset + rows


def examine_files(directory: Path, folder: Path) -> tuple[Examined, Spans]:
    """Check an input of files: all offsets between floor and end are noted, in files that did not change."""
    seen = Examined(file=directory / "input" / "data.mdb", remedy=FILES_REMEDY)
    spans: Spans = {}
    reached: dict[tuple[str, int], int] = {}
    changed: set[Path] = set()
    with seen.guarded(also=BROKEN_FILE), reading(directory / "input", file_input.FORM, file_input.PARTS) as log:
        for key, value in log.items("spans"):
            span = span_of(key, value, f"file={seen.file}")
            spans[place_of(key)] = (span.floor, span.end)
        for key, value in log.items("pieces"):
            table, partition, first = offset_of(key)
            piece = file_input.piece_of(first, value)
            expected = reached.get((table, partition), min(piece.first, spans[table, partition][0]))
            if piece.first != expected:
                seen.found(
                    f"input rows are missing: table={table} partition={partition} first={expected} last={piece.first}"
                )
            reached[table, partition] = piece.first + piece.rows
            noted = log.get("files", file_input.file_key(table, piece.name))
            path = folder / table / piece.name
            if path not in changed and (
                noted is None or not imported_file.is_as_noted(path, imported_file.unpacked(noted))
            ):
                changed.add(path)
                seen.found(f"a file of the input is gone or was changed: file={shown(path)}")
            seen.count("input rows", piece.rows)
        for place, (floor, end) in sorted(spans.items()):
            if reached.get(place, floor) != end:
                seen.found(f"input rows are missing: table={place[0]} partition={place[1]} last={end}")
        _without_rows(seen, log, folder)
    return seen, spans


def _without_rows(seen: Examined, log: OpenedLog, folder: Path) -> None:
    """Check files without rows, which have no piece; a missing one is no fault, since users may remove it at any time."""
    for key, value in log.items("files"):
        noted, path = imported_file.unpacked(value), folder.joinpath(*file_input.file_of(bytes(key)))
        if not noted.rows and path.exists() and not imported_file.is_as_noted(path, noted):
            what = f"a file of the input had no rows when they were counted, and was changed then: file={shown(path)}"
            seen.found(what, remedy=LATE_ROWS_REMEDY)


# --- dead letters ---------------------------------------------------------------------------------------------------


def examine_letters(directory: Path) -> Examined:
    """Read every record of the letter log: whole, of a step whose size the log notes."""
    seen = Examined(file=directory / "letters" / "data.mdb", remedy=letter_log.REMEDY)
    where = f"file={seen.file}"
    rows: dict[int, int] = {}
    with (
        seen.guarded(also=BROKEN_FILE),
        reading(directory / "letters", letter_log.FORM, letter_log.PARTS, (letter_log.REPLAYS,)) as log,
    ):
        if (kept := log.get("meta", letter_log.KEPT_FROM)) is not None:
            letter_log.kept_from_of(kept, where)
        for key, value in log.items("letters"):
            with seen.guarded(f"record {key.hex()}", also=BROKEN_FILE):
                step, _ = struct.unpack(">QI", key)
                rows[step] = rows.get(step, 0) + letter_log.decode_letters(value, step, where).num_rows
        for key, value in log.items("steps"):
            with seen.guarded(f"step {key.hex()}", also=BROKEN_FILE):
                about, step = letter_log.about_step(key, value, where), int(struct.unpack(">Q", key)[0])
                if (found := rows.pop(step, 0)) != about.rows:
                    seen.found(f"dead letters are missing: step={step} noted={about.rows} found={found}")
                seen.count("dead letters", about.rows)
        for key, value in log.items(letter_log.REPLAYS):
            with seen.guarded(f"replay {key.hex()}", also=BROKEN_FILE):
                letter_log.replay_step(key, value, where)
                seen.count("replayed letters")
        for step in rows:
            seen.found(f"dead letters of a step that is not noted: step={step}")
    return seen


# --- outputs --------------------------------------------------------------------------------------------------------


def examine_output(directory: Path, worker: int) -> tuple[Examined, OutputProgress | None]:
    """Read every record of a worker's embedded outputs, and its progress."""
    return examine_output_log(directory / "outputs" / str(worker), embedded_output.FORM, worker)


def examine_output_log(folder: Path, form: str | None, worker: int) -> tuple[Examined, OutputProgress | None]:
    """Read every record in the file of a worker's progress, and the progress itself, None if it is unreadable."""
    seen = Examined(file=folder / "data.mdb", remedy=PROGRESS_REMEDY, worker=worker)
    progress: OutputProgress | None = None
    with seen.guarded(also=BROKEN_FILE), reading(folder, form, ("data", "checksums")) as log:
        data = log.get("meta", b"progress")
        if data is None:
            seen.found("the output log holds no progress")
            return seen, None
        progress = progress_of(data, f"file={seen.file}")
        if progress.first > progress.last:
            seen.found(f"the progress is damaged: first={progress.first} last={progress.last}")
        if (kept := log.get("meta", embedded_output.KEPT_FROM)) is not None:
            embedded_output.kept_from_of(kept, f"file={seen.file}")
        _checksums(seen, log, progress)
        for key, value in log.items("data"):
            _part(seen, key, value, progress)
    return seen, progress


def _checksums(seen: Examined, log: OpenedLog, progress: OutputProgress) -> None:
    """Check that the checksums of the last steps have no gap; below `progress.first` some of an earlier stay may be left."""
    found = []
    for key, value in log.items("checksums"):
        found.append(int(struct.unpack(">Q", key)[0]))
        with seen.guarded(also=BROKEN_FILE):
            checksum_of_step(key, value, f"file={seen.file}")
    seen.count("checksums of steps", len(found))
    steps = [step for step in found if step >= progress.first]
    if steps and steps != list(range(progress.last - len(steps), progress.last)):
        seen.found(f"checksums of steps are missing: last={progress.last} found={len(steps)} first={steps[0]}")


def _part(seen: Examined, key: bytes, value: bytes, progress: OutputProgress) -> None:
    view, _, place = key.partition(b"\0")
    where = f"view={view.decode(errors='replace')}"
    with seen.guarded(where, also=BROKEN_FILE):
        step, number = struct.unpack(">QI", place)
        if not value or zlib.crc32(value[4:]) != int.from_bytes(value[:4], "little"):
            seen.found(f"an output record is damaged: {where} step={step} piece={number}", remedy=OUTPUT_REMEDY)
        elif step >= progress.last and not view.startswith(
            OWED
        ):  # records below `first` are of a worker that left and joined again
            seen.found(f"an output record of a step that was not written: {where} step={step} last={progress.last}")
        else:
            seen.count("output records")
