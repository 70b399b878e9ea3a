"""The dead letters of a pipeline as they are now: kept with every step, each with its table, place and reason.

The reports of a finished step bring the letters of its workers. They are stored in the letter log (`dbsp.io.letter_log`) before
the step counts as finished. A letter of the input, or of a late row, says what happened, and stays. The letters of other
nodes are a Z-set: one that was taken back is not shown.

Operators know rows by their content, so their letters have no offset. `Letter.unplaced` then says why.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from dbsp.coordinator.serving.letter_codes import Code
from dbsp.io.letter_log import LetterLog
from dbsp.logs import StepRecord
from dbsp.logs.replays import LetterPosition, replayed_letters
from dbsp.logs.step_commands import DEADLY
from dbsp.operators.joins.lookup_join import REASON as TAKEN_BACK
from dbsp.operators.keep_first import REASON as SECOND_ROW
from dbsp.plan.backfill import backfill_of
from dbsp.plan.nodes import PlanNode
from dbsp.plan.plan import Plan
from dbsp.plan.signatures import meanings
from dbsp.runtime.runtime import StepReport
from dbsp.steps.timing import LATE

BY_CONTENT = "operators know rows by their content, without their place in the input"
NO_NODE = "the circuit has no such node any more"
IN_STATUS = ("position", "step", "code", "table_name", "partition", "row_offset", "unplaced", "node", "reason")
"""The columns of the letters in the status."""
CHANGED = pa.schema([
    ("code", pa.string()), ("table_name", pa.string()), ("partition", pa.int32()), ("row_offset", pa.int64()),
    ("unplaced", pa.string()), ("node", pa.string()), ("reason", pa.string()), ("text", pa.string()),
])  # fmt: skip
"""The columns of the letters in changes."""
CHANGED_ROWS = CHANGED.append(pa.field("weight", pa.int64()))
NEWEST = 3
"""The most reasons in the status, the most steps in which they are looked up, and the most letters of each step."""
STEPS_LOOKED_AT, LETTERS_LOOKED_AT = 5, 1_000
HELD_BYTES_MAX = 32 << 20
"""Letters of at most this size stay in memory between two queries."""


class KeepsLetters(Protocol):
    """Something that keeps the dead letters of finished steps."""

    def keep(self, record: StepRecord, report: StepReport) -> StepReport:
        """Keep the letters of a step durably, once however often the step runs; return the report without them."""
        ...

    def drop_from(self, step: int) -> None:
        """Drop what is kept of `step` and later steps, which are not logged."""
        ...

    def replayed(self, letters: Sequence[LetterPosition]) -> Sequence[int | None]:
        """Return the finished step that has replayed each letter; None for the others."""
        ...

    @property
    def kept_from(self) -> int:
        """Return the first step from which on no letters were dropped."""
        ...

    def first_offsets(self) -> Mapping[tuple[str, int], int]:
        """Return the smallest offset of a kept letter for each table and partition that has one."""
        ...


class NoLetters:
    """A store without letters, for tests and simulations whose outputs have them."""

    def keep(self, record: StepRecord, report: StepReport) -> StepReport:  # noqa: ARG002 - as the protocol
        """Return the report."""
        return report

    def drop_from(self, step: int) -> None:
        """Do nothing."""

    def replayed(self, letters: Sequence[LetterPosition]) -> Sequence[int | None]:
        """Return None for each letter."""
        return [None] * len(letters)

    @property
    def kept_from(self) -> int:
        """Return 0."""
        return 0

    def first_offsets(self) -> Mapping[tuple[str, int], int]:
        """Return nothing."""
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A dead letter: its step and its number there, its table, its place in the table's input, and the reason.

    `partition` and `offset` are None for a row that failed at a node, and `unplaced` then says why. `table` is None where the
    row was made of rows of several tables. `count` equal rows have failed; with `is_delete` they were deletes. `header` is the
    first line of the CSV that had the row.
    """

    step: int
    number: int
    code: Code
    node: str | None
    table: str | None
    partition: int | None
    offset: int | None
    unplaced: str | None
    reason: str
    text: str
    count: int = 1
    is_delete: bool = False
    header: str = ""

    @property
    def at(self) -> str:
        """Return the position of the letter among all letters.

        >>> Letter(step=7, number=2, code="late", node=None, table=None, partition=None, offset=None, unplaced="",
        ...        reason="", text="").at
        '7-2'
        """
        return f"{self.step}-{self.number}"

    def values(self) -> dict[str, Any]:
        """Return the columns of `dbsp.coordinator.serving.letter_codes`, but for `replayed`, which the log does not know."""
        return {
            "position": self.at, "step": self.step, "code": self.code, "table_name": self.table,
            "partition": self.partition, "row_offset": self.offset, "unplaced": self.unplaced, "node": self.node,
            "reason": self.reason, "count": self.count, "is_delete": self.is_delete, "header": self.header or None,
            "text": self.text,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Origin:
    """The origin of letters: its table, its node, and why there is no table or place."""

    table: str | None
    node: str | None
    unplaced: str | None


class Letters:
    """The letters of one pipeline; any thread may read them."""

    def __init__(self, log: LetterLog, plan: Plan) -> None:
        """Store the parts; read no letter yet."""
        self.log, self._plan = log, plan
        self._origins: dict[str, _Origin] = {table.name: _Origin(table.name, None, None) for table in plan.tables}
        self._lock = threading.Lock()
        self._read: tuple[int, tuple[Letter, ...]] = (-1, ())

    def keep(self, record: StepRecord, report: StepReport) -> StepReport:
        """Keep the letters of a step; see `KeepsLetters`."""
        workers = report.workers
        letters = [letter for worker in workers for letter in worker.letters]
        replayed = [letter.position for letter in replayed_letters(record.commands)]
        self.log.keep(record.step, record.clock_us, letters, sum(worker.letters_left for worker in workers), replayed)
        backfill = backfill_of(record.commands)
        if backfill is not None:
            self.log.note_read_again(backfill.read_again, record.step)
        if not letters:
            return report
        return replace(report, workers=tuple(replace(worker, letters=()) for worker in workers))

    def drop_from(self, step: int) -> None:
        """Drop what is kept of `step` and later steps; after a change of the circuit, also letters of nodes that it dropped."""
        self.log.adopt(node_signatures(self._plan), lambda reason: _code(False, reason) == "failed")
        self.log.drop_from(step)

    def replayed(self, letters: Sequence[LetterPosition]) -> Sequence[int | None]:
        """Return the finished step that has replayed each letter; None for the others."""
        return self.log.replayed(letters)

    @property
    def kept_from(self) -> int:
        """Return the first step from which on no letters were dropped."""
        return self.log.kept_from

    def first_offsets(self) -> Mapping[tuple[str, int], int]:
        """Return the smallest offset of a kept letter for each table and partition that has one."""
        return self.log.first_offsets()

    def below(self, step: int) -> Sequence[Letter]:
        """Return the letters of the steps below `step` that are not taken back, in order.

        **Cost** reads all letters after every change of the log, a Python loop over them.
        """
        with self._lock:
            changes, found = self._read
            if changes != (newest := self.log.changes):
                found = tuple(_standing(self._all()))
                is_small = sum(each.bytes for each in self.log.steps.values()) <= HELD_BYTES_MAX
                self._read = (newest, found) if is_small else (-1, ())
        return found if not found or found[-1].step < step else [each for each in found if each.step < step]

    def changed(self, step: int, rows: pa.Table) -> pa.Table:
        """Return the letters that a step adds and takes back, which outputs have, with the columns of `CHANGED` and a weight."""
        shown = [self._letter(step, number, row).values() for number, row in enumerate(rows.to_pylist())]
        columns = [pa.array([each[field.name] for each in shown], field.type) for field in CHANGED]
        return pa.table([*columns, rows.column("weight")], schema=CHANGED_ROWS)

    def _all(self) -> Iterator[tuple[Letter, int]]:
        """Yield all stored letters with their weights."""
        for step, table in self.log.read():
            yield from self._of_step(step, table)

    def _of_step(self, step: int, table: pa.Table) -> Iterator[tuple[Letter, int]]:
        """Yield the letters of a step with their weights."""
        for number, row in enumerate(table.to_pylist()):
            if not row["weight"]:  # a former circuit had its node
                continue
            yield self._letter(step, number, row), row["weight"]

    def _letter(self, step: int, number: int, row: Mapping[str, Any]) -> Letter:
        is_placed, reason = row["partition"] >= 0, row["reason"]
        origin = _Origin(row["origin"], None, None) if is_placed else self._origin(row["origin"])
        return Letter(
            step=step, number=number, code=_code(is_placed, reason), node=origin.node, table=origin.table,
            partition=row["partition"] if is_placed else None, offset=row["offset"] if is_placed else None,
            unplaced=None if is_placed else origin.unplaced, reason=reason, text=row["payload"],
            count=abs(row["weight"]), is_delete=row["weight"] < 0, header=row.get("header", ""),
        )  # fmt: skip

    def _origin(self, name: str) -> _Origin:
        """Return the origin of a node's letters: its table, if all its rows are those of one table."""
        if name not in self._origins:
            nodes = [node for node in self._plan.nodes if node.name == name]
            tables = sorted({table for node in nodes for table in self._tables(node)})
            if not nodes and any(node.name == name for loop in self._plan.loops for node in loop.body.nodes):
                self._origins[name] = _Origin(None, name, f"made in a recursion; {BY_CONTENT}")
            elif not nodes:
                self._origins[name] = _Origin(None, name, NO_NODE)
            elif len(tables) == 1:
                self._origins[name] = _Origin(tables[0], name, BY_CONTENT)
            else:
                self._origins[name] = _Origin(None, name, f"made of rows of {', '.join(tables)}; {BY_CONTENT}")
        return self._origins[name]

    def _tables(self, node: PlanNode) -> set[str]:
        """Return the tables that the node's rows come from."""
        found, seen, waiting = set[str](), set[int](), [node.id]
        while waiting:
            number = waiting.pop()
            if number in seen:
                continue
            seen.add(number)
            each = self._plan.nodes[number]
            if (table := each.operator.reads_table()) is not None:
                found.add(table)
            arrived = self._plan.arrivals.get(number)
            waiting += [*each.inputs, *([] if arrived is None else [arrived.sender])]
        return found

    def newest(self, is_replayed: Callable[[Sequence[Letter]], Sequence[bool]]) -> list[dict[str, Any]]:
        """Return the newest letters of different reasons, the newest first, that were neither taken back nor replayed."""
        looked_at = (
            each
            for step in list(self.log.steps)[-STEPS_LOOKED_AT:]
            for _, table in self.log.read(step, step + 1)
            for each in self._of_step(step, table.slice(0, LETTERS_LOOKED_AT))
        )
        letters = sorted(_standing(looked_at), key=lambda letter: (-letter.step, letter.number))
        found: dict[tuple[str | None, str], Letter] = {}
        for letter, replayed in zip(letters, is_replayed(letters), strict=True):
            if not replayed and letter.unplaced != NO_NODE and len(found) < NEWEST:
                found.setdefault((letter.table, letter.reason), letter)
        return [{name: each.values()[name] for name in IN_STATUS} for each in found.values()]


def node_signatures(plan: Plan) -> dict[str, str]:
    """Return the signature of each node by its name, those of loops too, by which a changed circuit is compared."""
    meaning = meanings(plan)
    found = {node.name: meaning.nodes[node.id] for node in plan.nodes}
    arrivals = {spec.id: spec.receiver for spec in plan.exchanges}
    for loop in plan.loops:
        place = meaning.nodes[arrivals[loop.leaves[0][1]]]
        found |= {node.name: f"{place} {node.id}" for node in loop.body.nodes}
    return found


def _code(is_placed: bool, reason: str) -> Code:
    """Return the kind of a letter."""
    if is_placed:
        return "skipped" if reason.startswith(DEADLY) else "unreadable"
    if reason.startswith(LATE):
        return "late"
    codes: Mapping[str, Code] = {SECOND_ROW: "second-row", TAKEN_BACK: "taken-back"}
    return codes.get(reason, "failed")


def _standing(letters: Iterator[tuple[Letter, int]]) -> list[Letter]:
    """Return the letters in order, without those that were taken back.

    A letter that is taken back after its arrival was dropped is not known, and changes nothing.
    """
    sums: dict[tuple[str | None, str, str], list[Letter]] = {}
    found: list[Letter] = []
    for letter, weight in letters:
        if letter.code != "failed":
            found.append(letter)
            continue
        held = sums.setdefault((letter.node, letter.reason, letter.text), [])
        total = sum(each.count for each in held) + weight
        if weight < 0:
            held[:] = [replace(held[0], count=total)] if held and total > 0 else []
        else:
            held.append(letter)
    found += [letter for held in sums.values() for letter in held]
    return sorted(found, key=lambda letter: (letter.step, letter.number))
