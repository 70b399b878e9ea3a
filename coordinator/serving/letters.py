"""The interface for dead letters: list them, and replay those whose text is known, after a fix.

A replay reads the text of a letter again, as its table's rows are read now, and pushes the row as new input. Law: each letter
is replayed at most once, whatever is killed or repeated, because the input log writes row and note together
(`dbsp.io.replayed`). A row that still cannot be read is not pushed: its letter stays, and can be replayed later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import pyarrow as pa

from dbsp.algebra.table import Table
from dbsp.coordinator.running.letters import Letter
from dbsp.coordinator.serving.answers import LetterPage, LetterRefused, LetterReplay
from dbsp.coordinator.serving.ingest import Ingest
from dbsp.coordinator.serving.letter_codes import Code
from dbsp.errors import ConfigError, DataError
from dbsp.io.connectors.messages import ReadsTopics
from dbsp.io.formats import decode_json
from dbsp.io.pushed import PAYLOAD_CHARS_MAX, Incoming, Position, Push
from dbsp.io.texts import decode_record
from dbsp.settings import similar

REPLAY_PIECE = 1_000
"""The most letters that one transaction replays."""
SHOWN_MAX = 20
NOT_KNOWN = ("Starting", "Recovering", "Replaying")
"""States in which it is unknown which logged steps have finished."""
NO_STREAM = "not an Arrow stream of this table"
NO_ROW = (
    "its text is no JSON object: correct the row, and push it (a row of CSV can be replayed if its header is kept with the"
    " letter, as this version does)"
)
REPLACED = "\ufffd"
"""The character in place of bytes that are not UTF-8."""
PLACES_MAX = (1 << 63) - 1
NOT_REPLAYED: Mapping[Code, str] = {
    "late": "it was late for a watermark, and would be late again",
    "second-row": "the first row of its key stays in an append-only table",
    "taken-back": "a lookup join takes no row back",
    "skipped": "it ended the process of its step, and would end it again",
    "failed": "a node failed on it, and its table has the row: correct the row there, or change the circuit",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """A filter of dead letters; a letter passes if it fits all fields. `reason` is a part of the letter's reason.

    `first` and `last` are positions of letters, "7-2", or steps, "7", both included.
    """

    table: str | None = None
    code: str | None = None
    reason: str | None = None
    first: str | None = None
    last: str | None = None

    def of(self, letters: Sequence[Letter]) -> list[Letter]:
        """Return the letters that pass."""
        first = position_of(self.first, 0) if self.first is not None else (0, 0)
        last = position_of(self.last, PLACES_MAX) if self.last is not None else (PLACES_MAX, PLACES_MAX)
        return [each for each in letters if first <= (each.step, each.number) <= last and self._passes(each)]

    def _passes(self, letter: Letter) -> bool:
        return (
            (self.table is None or letter.table == self.table)
            and (self.code is None or letter.code == self.code)
            and (self.reason is None or self.reason in letter.reason)
        )


def position_of(text: str, number: int) -> tuple[int, int]:
    """Decode the position of a letter, or a step, which gets `number`.

    >>> position_of("7-2", 0), position_of("7", 0)
    ((7, 2), (7, 0))
    """
    step, dash, rest = text.partition("-")
    parts = [step, rest] if dash else [step]
    if not all(part.isascii() and part.isdigit() and len(part) <= len(str(PLACES_MAX)) for part in parts):
        raise ConfigError(f"not a position of a dead letter: {text[:40]!r}", 'give a step, "7", or a letter, "7-2"')
    return int(step), int(rest) if dash else number


class DeadLetters(Ingest):
    """The methods for dead letters of a service."""

    def dead_letters(
        self,
        wanted: LetterFilter,
        *,
        limit: int = 100,
        cursor: str | None = None,
        newest: bool = False,
        replayed: bool | None = None,
    ) -> LetterPage:
        """Return a page of the kept letters of finished steps, in the order of their positions, or the `newest` first.

        `cursor` is the last position of the page before. With `replayed`, only letters that were replayed, or only the others.
        """
        step, log = self.finished_steps(), self.built.letters.log
        matched = found = self._wanted(wanted, step)
        if replayed is not None:
            found = [each for each, was in zip(matched, self._are_replayed(matched), strict=True) if was is replayed]
        total = len(found)
        if newest:
            found.reverse()
        if cursor is not None:
            seen = position_of(cursor, 0)
            found = [e for e in found if ((e.step, e.number) < seen if newest else (e.step, e.number) > seen)]
        page = found[:limit]
        return LetterPage(
            step=step, total=total, hidden=len(matched) - total,
            next=page[-1].at if len(found) > limit and page else None, kept_from=log.kept_from,
            left_out=sum(each.left_out for each in log.steps.values()),
            letters=tuple(zip(page, self._replayed(page), strict=True)),
        )  # fmt: skip

    def finished_steps(self) -> int:
        """Return the step below which all steps are finished; wait until a recovery is over, because before it is not known."""
        self.live_status.wait_for(lambda now: now.state not in NOT_KNOWN, None)
        self._refuse_ended()
        return self.snapshot.step

    def _wanted(self, wanted: LetterFilter, step: int) -> list[Letter]:
        """Return the letters of finished steps that pass; raise `ConfigError` for a table that no letter and no circuit has."""
        letters = self.built.letters.below(step)
        found = wanted.of(letters)
        if not found and wanted.table is not None:
            known = self._tables.keys() | {each.table for each in letters if each.table is not None}
            if wanted.table not in known:
                raise ConfigError(
                    f"no such table: table={wanted.table} tables={sorted(known)}", similar(wanted.table, known)
                )
        return found

    def letters_table(self, step: int) -> pa.Table:
        """Return the letters of the steps below `step` as the relation `dead_letters` of queries."""
        letters = self.built.letters.below(step)
        replayed = self._are_replayed(letters)
        columns = {
            "position": pa.array([each.at for each in letters], pa.string()),
            "step": pa.array([each.step for each in letters], pa.int64()),
            "code": pa.array([each.code for each in letters], pa.string()),
            "table_name": pa.array([each.table for each in letters], pa.string()),
            "partition": pa.array([each.partition for each in letters], pa.int32()),
            "row_offset": pa.array([each.offset for each in letters], pa.int64()),
            "unplaced": pa.array([each.unplaced for each in letters], pa.string()),
            "node": pa.array([each.node for each in letters], pa.string()),
            "reason": pa.array([each.reason for each in letters], pa.string()),
            "text": pa.array([each.text for each in letters], pa.large_string()),
            "is_delete": pa.array([each.is_delete for each in letters], pa.bool_()),
            "replayed": pa.array(replayed, pa.bool_()),
            "header": pa.array([each.header or None for each in letters], pa.string()),
            "weight": pa.array([each.count for each in letters], pa.int64()),
        }
        return pa.table(columns)

    def newest_letters(self) -> list[dict[str, Any]]:
        """Return the newest unreplayed letters of different reasons, for the status."""
        return self.built.letters.newest(self._are_replayed)

    def _are_replayed(self, letters: Sequence[Letter]) -> list[bool]:
        """Return of each letter whether its row was pushed again."""
        return [place is not None for place in self._replayed(letters)]

    def _replayed(self, letters: Sequence[Letter]) -> list[Position | None]:
        """Return the position to which each letter was replayed; None where it was not."""
        if self.config.input.push_elsewhere is not None:
            return [None] * len(letters)
        writer, found = self._writer(), dict[str, Position | None]()
        placed = [each for each in letters if each.table is not None and each.offset is not None]
        for table, group in groupby(sorted(placed, key=lambda each: each.table or ""), lambda each: each.table or ""):
            mine = list(group)
            known = writer.replayed(table, [(each.partition or 0, each.offset or 0) for each in mine])
            found |= {each.at: position for each, position in zip(mine, known, strict=True)}
        return [found.get(each.at) for each in letters]

    def replay_letters(self, wanted: LetterFilter, *, dry_run: bool = False) -> LetterReplay:
        """Push the rows of these letters again; with `dry_run`, return the result without pushing.

        **Errors** `ConfigError` if rows cannot be pushed; `OverloadedError` while too many rows wait. Letters that were
        replayed before stay replayed, and a repeat continues after them.
        """
        source = self.config.input
        if source.push_elsewhere is not None:
            raise ConfigError(
                f"letters of this input cannot be replayed: input.kind={source.kind}", source.push_elsewhere
            )
        found = self._wanted(wanted, self.finished_steps())
        total = _Total(dry_run, len(found))
        for first in range(0, len(found), REPLAY_PIECE):
            piece = found[first : first + REPLAY_PIECE]
            fresh = []
            for letter, known in zip(piece, self._replayed(piece), strict=True):
                if known is not None:
                    total.before += 1
                elif (why := self._why_not(letter)) is not None:
                    total.refuse(letter, why)
                else:
                    fresh.append(letter)
            read = [(letter, self._incoming(letter)) for letter in fresh]
            for letter, item in read:
                if item.push.bad:
                    total.keep(letter, item.push.bad[0].reason)
            good = [(letter, item) for letter, item in read if not item.push.bad]
            positions = [None] * len(good) if dry_run else self.push_many([item for _, item in good])
            for position in positions:
                total.add(position)
        return total.answer()

    def _why_not(self, letter: Letter) -> str | None:
        """Return why a letter cannot be replayed; None if it can."""
        if letter.code != "unreadable":
            return NOT_REPLAYED[letter.code]
        if letter.table not in self._tables:
            return "the circuit has no table of this name any more"
        source = self._copied.get(letter.table)
        if source is not None and source[1] != "json":
            return (
                f"messages in the format {source[1]} have more than the row: send a corrected one to topic {source[0]}"
            )
        if NO_STREAM in letter.reason:
            return "only the beginning of an Arrow stream is kept: push a corrected stream"
        if (why := unreadable(letter)) is not None:
            return why
        try:
            rows = self._decoded(letter, self._tables[letter.table]).rows
        except DataError as error:
            return f"its header, {letter.header}: {error}"
        return None if rows == 1 else f"its text has {rows} rows: correct it, and push it"

    @cached_property
    def _copied(self) -> dict[str, tuple[str, str]]:
        """Return topic and format of each table that is copied from a topic."""
        reads = self.config.input
        sources = reads.copied_sources(list(self._tables.values())) if isinstance(reads, ReadsTopics) else []
        return {source.table.name: (source.topic, source.format) for source in sources}

    def _decoded(self, letter: Letter, table: Table) -> Push:
        if letter.header:
            return decode_record(letter.text, letter.header, table)
        return decode_json(letter.text.encode(), table, extras=self.config.input.ignores_unknown)

    def _incoming(self, letter: Letter) -> Incoming:
        """Return the row of a letter, decoded with the present settings, as a push; or the reason why it cannot be read."""
        table, partition, offset = self.table(letter.table or ""), letter.partition or 0, letter.offset or 0
        into = partition if partition < self.config.input.partitions else 0
        push = self._decoded(letter, table)
        return Incoming(table=table.name, push=push, partition=into, letter=(partition, offset))


def unreadable(letter: Letter) -> str | None:
    """Return why the text of a letter does not say what its row was; None if it does."""
    if not letter.header:
        return None if letter.text.lstrip().startswith("{") else NO_ROW
    if len(letter.text) >= PAYLOAD_CHARS_MAX:
        return "only the beginning of its text is kept: correct the row, and push it"
    if REPLACED in letter.text:
        return "its text was not UTF-8, and is not kept as it was: correct the row, and push it"
    has_delimiter = any(sign in letter.header for sign in ",\t")
    if not has_delimiter and any(sign in letter.text for sign in ",\t"):
        return "its header has one column, so its delimiter is not known: correct the row, and push it"
    return None


class _Total:
    """The results of a replay so far."""

    def __init__(self, dry_run: bool, matched: int) -> None:
        self._dry_run, self._matched = dry_run, matched
        self.before = self._good = self._bad = 0
        self._reasons: Counter[str] = Counter()
        self._refused: list[LetterRefused] = []
        self._again: list[LetterRefused] = []
        self._positions: list[Position] = []

    def refuse(self, letter: Letter, why: str) -> None:
        """Note a letter that cannot be replayed."""
        self._reasons[why] += 1
        self._show(self._refused, letter, why)

    def keep(self, letter: Letter, why: str) -> None:
        """Note a letter whose row still cannot be read."""
        self._bad += 1
        self._show(self._again, letter, why)

    def add(self, position: Position | None) -> None:
        """Note a letter that was replayed to a position; None for a dry run."""
        if position is not None and position.repeated:  # another request has replayed the letter meanwhile
            self.before += 1
            return
        self._good += 1
        if position is not None:
            self._positions.append(position)

    def _show(self, where: list[LetterRefused], letter: Letter, why: str) -> None:
        if len(where) < SHOWN_MAX:
            where.append(LetterRefused(position=letter.at, reason=why))

    def answer(self) -> LetterReplay:
        """Return the results."""
        return LetterReplay(
            dry_run=self._dry_run, matched=self._matched, replayed=self._good, failed_again=self._bad,
            replayed_before=self.before, not_replayable=dict(self._reasons), again=tuple(self._again),
            refused=tuple(self._refused), positions=tuple(_merged(self._positions)),
        )  # fmt: skip


def _merged(positions: Sequence[Position]) -> Iterator[Position]:
    """Yield the positions of replayed rows, with neighbours joined."""
    found: dict[tuple[str, int], list[Position]] = {}
    for each in positions:
        held = found.setdefault((each.table, each.partition), [])
        if held and held[-1].last == each.first:
            held[-1] = replace(held[-1], last=each.last)
        else:
            held.append(each)
    for held in found.values():
        yield from held
