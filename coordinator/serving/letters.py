"""The interface for dead letters: list them, and replay those whose rows are known, after a fix.

A replay reads the text of a letter again, as its table's rows are read now, and pushes the row as new input. Letters of topics
and files become steps of their own (`letter_steps`). Law: each letter is replayed at most once, whatever is killed or repeated.
For pushes the reason is that the input log writes row and note together (`dbsp.io.replayed`). A row that still cannot be read
is not used: its letter stays, and can be replayed later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import pyarrow as pa

from dbsp.coordinator.running.letters import Letter
from dbsp.coordinator.serving.answers import LetterPage, LetterReplay, ReplayedIn
from dbsp.coordinator.serving.letter_rows import NO_STREAM, decode_text, never, unreadable
from dbsp.coordinator.serving.letter_steps import REPLAY_PIECE, ReplaysInSteps
from dbsp.coordinator.serving.replay_total import ReplayTotal
from dbsp.errors import ConfigError, DataError
from dbsp.io.connectors.messages import ReadsTopics
from dbsp.io.pushed import Incoming, Position
from dbsp.settings import similar

NOT_KNOWN = ("Starting", "Recovering", "Replaying")
"""States in which it is unknown which logged steps have finished."""
PLACES_MAX = (1 << 63) - 1
RELATION = pa.schema([
    ("position", pa.string()), ("step", pa.int64()), ("code", pa.string()), ("table_name", pa.string()),
    ("partition", pa.int32()), ("row_offset", pa.int64()), ("unplaced", pa.string()), ("node", pa.string()),
    ("reason", pa.string()), ("text", pa.large_string()), ("is_delete", pa.bool_()), ("replayed", pa.bool_()),
    ("header", pa.string()),
])  # fmt: skip
"""The columns of the relation `dead_letters`, which has a row for each of a letter's `count`."""
WEIGHED = RELATION.append(pa.field("weight", pa.int64()))


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


class DeadLetters(ReplaysInSteps):
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
        values = {
            "position": [each.at for each in letters], "step": [each.step for each in letters],
            "code": [each.code for each in letters], "table_name": [each.table for each in letters],
            "partition": [each.partition for each in letters], "row_offset": [each.offset for each in letters],
            "unplaced": [each.unplaced for each in letters], "node": [each.node for each in letters],
            "reason": [each.reason for each in letters], "text": [each.text for each in letters],
            "is_delete": [each.is_delete for each in letters], "replayed": replayed,
            "header": [each.header or None for each in letters], "weight": [each.count for each in letters],
        }  # fmt: skip
        return pa.table([pa.array(values[field.name], field.type) for field in WEIGHED], schema=WEIGHED)

    def newest_letters(self) -> list[dict[str, Any]]:
        """Return the newest unreplayed letters of different reasons, for the status."""
        return self.built.letters.newest(self._are_replayed)

    def _are_replayed(self, letters: Sequence[Letter]) -> list[bool]:
        """Return of each letter whether its row was pushed again."""
        return [place is not None for place in self._replayed(letters)]

    def _replayed(self, letters: Sequence[Letter]) -> list[Position | ReplayedIn | None]:
        """Return the position to which each letter was replayed, or the step that did it; None where it was not."""
        if self.config.input.push_elsewhere is not None:
            steps = self.built.letters.replayed([(each.step, each.number) for each in letters])
            return [None if step is None else ReplayedIn(step=step) for step in steps]
        writer, found = self._writer(), dict[str, Position | ReplayedIn | None]()
        placed = [each for each in letters if each.table is not None and each.offset is not None]
        for table, group in groupby(sorted(placed, key=lambda each: each.table or ""), lambda each: each.table or ""):
            mine = list(group)
            known = writer.replayed(table, [(each.partition or 0, each.offset or 0) for each in mine])
            found |= {each.at: position for each, position in zip(mine, known, strict=True)}
        return [found.get(each.at) for each in letters]

    def replay_letters(self, wanted: LetterFilter, *, dry_run: bool = False) -> LetterReplay:
        """Use the rows of these letters as new input; with `dry_run`, return the result without doing so.

        Rows of letters that were pushed are pushed again. Those of topics and files become steps of their own.

        **Errors** `OverloadedError` while too many rows wait; `UnavailableError` while no step can run, or a broker is away.
        Letters that were replayed before stay replayed, and a repeat continues after them.
        """
        found = self._wanted(wanted, self.finished_steps())
        total = ReplayTotal(dry_run, len(found))
        if self.config.input.push_elsewhere is not None:
            self._replay_in_steps(found, total)
            return total.answer()
        for first in range(0, len(found), REPLAY_PIECE):
            self._push_again(found[first : first + REPLAY_PIECE], total)
        return total.answer()

    def _push_again(self, piece: Sequence[Letter], total: ReplayTotal) -> None:
        """Push the rows of some letters in one transaction."""
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
        positions = [None] * len(good) if total.dry_run else self.push_many([item for _, item in good])
        for position in positions:
            total.add(position)

    def _why_not(self, letter: Letter) -> str | None:
        """Return why a letter cannot be replayed; None if it can."""
        if (why := never(letter, self._tables)) is not None:
            return why
        source = self._copied.get(letter.table or "")
        if source is not None and source[1] != "json":
            return (
                f"messages in the format {source[1]} have more than the row: send a corrected one to topic {source[0]}"
            )
        if NO_STREAM in letter.reason:
            return "only the beginning of an Arrow stream is kept: push a corrected stream"
        if (why := unreadable(letter)) is not None:
            return why
        try:
            rows = decode_text(letter, self._tables[letter.table or ""], self.config.input).rows
        except DataError as error:
            return f"its header, {letter.header}: {error}"
        return None if rows == 1 else f"its text has {rows} rows: correct it, and push it"

    @cached_property
    def _copied(self) -> dict[str, tuple[str, str]]:
        """Return topic and format of each table that is copied from a topic."""
        reads = self.config.input
        sources = reads.copied_sources(list(self._tables.values())) if isinstance(reads, ReadsTopics) else []
        return {source.table.name: (source.topic, source.format) for source in sources}

    def _incoming(self, letter: Letter) -> Incoming:
        """Return the row of a letter, decoded with the present settings, as a push; or the reason why it cannot be read."""
        table, partition, offset = self.table(letter.table or ""), letter.partition or 0, letter.offset or 0
        into = partition if partition < self.config.input.partitions else 0
        push = decode_text(letter, table, self.config.input)
        return Incoming(table=table.name, push=push, partition=into, letter=(partition, offset))
