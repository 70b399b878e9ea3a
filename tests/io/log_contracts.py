"""What every input log, step log and output log must do; the embedded, file and Kafka logs run the same classes.

A subclass gives a `harness` fixture that opens the log as often as asked: a second open is what a crash and a new start see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import pytest

from dbsp.errors import DataError, FencedError
from dbsp.io.output_part import checksum_of, with_dead_letters
from dbsp.logs import DeadLetter, InputLog, OutputLog, Range, StepLog, TellsChecksums
from dbsp.logs.step_commands import defer_command
from tests.io.log_samples import make_part, make_record

LINES = [
    b'{"id": 1, "name": "a"}',
    b'{"delete": {"id": 1}}',
    b'{"id": "x"}',
    b"null",
    b'{"id": 2}',
    b"\xff\xfe",
    b'{"id": 3, "name": "c"}',
]
Seen = tuple[list[tuple[Any, ...]], list[int], list[tuple[str, str]]]


class InputHarness(Protocol):
    """Sends lines to table `t` (each takes one offset at least) and opens the log."""

    def send(self, lines: Sequence[bytes]) -> None: ...

    def open(self) -> InputLog: ...


def seen(log: InputLog, first: int, last: int, step: int = 5) -> Seen:
    """Rows, their operations, and the dead letters of a range."""
    pieces = log.read(Range(table="t", partition=0, first=first, last=last), step)
    rows = [row for piece in pieces for row, _ in piece.batch.to_rows()]
    operations = [int(op) for piece in pieces for op in piece.operations]
    dead = [(letter.reason, letter.payload) for piece in pieces for letter in piece.dead]
    return rows, operations, dead


class InputLogContract:
    """Invariants 7 and 10 on the reading side."""

    def test_rows_come_back_in_order_and_bad_rows_as_dead_letters(self, harness: InputHarness) -> None:
        harness.send(LINES)
        log = harness.open()
        rows, operations, dead = seen(log, 0, log.ends()["t", 0])
        assert rows == [(1, "a"), (1, None), (2, None), (3, "c")]
        assert operations == [0, 1, 0, 0]
        assert [payload for _, payload in dead] == ['{"id": "x"}', "null", "\\xff\\xfe"]
        assert dead[0][0] == "column id: expected int64, found a string"

    def test_reading_again_and_in_pieces_gives_the_same(self, harness: InputHarness) -> None:
        harness.send(LINES[:3])
        harness.send(LINES[3:])
        log = harness.open()
        end = log.ends()["t", 0]
        whole = seen(log, 0, end)
        again = harness.open()
        parts = [seen(again, offset, offset + 1) for offset in range(end)]
        for index in range(3):
            assert whole[index] == [item for part in parts for item in part[index]]

    def test_offsets_and_dead_letter_positions(self, harness: InputHarness) -> None:
        harness.send(LINES)
        log = harness.open()
        end = log.ends()["t", 0]
        (piece,) = log.read(Range(table="t", partition=0, first=0, last=end), 5)
        offsets = sorted([*piece.offsets.tolist(), *(letter.offset for letter in piece.dead)])
        assert len(offsets) == len(set(offsets)) == len(LINES)
        assert all(0 <= offset < end for offset in offsets)
        assert {(letter.step, letter.origin, letter.partition, letter.weight) for letter in piece.dead} == {
            (5, "t", 0, 1)
        }

    def test_empty_log_and_empty_range(self, harness: InputHarness) -> None:
        log = harness.open()
        assert log.ends()["t", 0] == 0
        assert seen(log, 0, 0) == ([], [], [])
        assert log.partitions("t") == 1
        assert log.sizes([]) == {}

    def test_what_waits_has_a_size(self, harness: InputHarness) -> None:
        harness.send(LINES)
        log = harness.open()
        end = log.ends()["t", 0]
        for first in (0, end // 2):
            sizes = log.sizes([Range(table="t", partition=0, first=first, last=end)])["t", 0]
            assert sizes.between(first, end) > 0
            assert sizes.last_within(first, 1 << 40) == end

    def test_parts_have_bytes_that_add_up(self, harness: InputHarness) -> None:
        harness.send(LINES[:4])
        harness.send(LINES[4:])
        log = harness.open()
        end = log.ends()["t", 0]

        def stored(first: int, last: int) -> int:
            pieces = log.read(Range(table="t", partition=0, first=first, last=last), 5)
            return sum(piece.stored_bytes for piece in pieces)

        assert stored(0, end) > 0
        assert stored(0, end) == sum(stored(offset, offset + 1) for offset in range(end))

    def test_a_range_behind_the_end_is_refused(self, harness: InputHarness) -> None:
        harness.send(LINES)
        log = harness.open()
        end = log.ends()["t", 0]
        with pytest.raises(DataError, match=f"last={end + 1}"):
            seen(log, 0, end + 1)


class StepLogContract:
    """Invariants 4, 6 and 7."""

    def test_claim_append_read_reopen(self, harness: Callable[[], StepLog]) -> None:
        log = harness()
        epoch = log.claim()
        assert epoch >= 1
        assert log.last() is None
        records = [make_record(step, epoch=epoch, ranges=[("t", 0, 3 * step, 3 * step + 3)]) for step in range(4)]
        for record in records:
            log.append(record)
        assert list(log.read(0)) == records
        again = harness()
        assert again.last() == records[-1]
        assert list(again.read(2)) == records[2:]
        assert list(again.read(4)) == []
        with pytest.raises(DataError, match="first=5"):
            again.read(5)

    def test_the_older_owner_is_refused(self, harness: Callable[[], StepLog]) -> None:
        old = harness()
        first = old.claim()
        old.append(make_record(0, epoch=first))
        new = harness()
        second = new.claim()
        assert second > first
        with pytest.raises(FencedError):
            old.append(make_record(1, epoch=first))
        with pytest.raises(FencedError):
            new.append(make_record(1, epoch=first))
        new.append(make_record(1, epoch=second))
        assert [record.epoch for record in new.read(0)] == [first, second]

    def test_a_decision_is_added_once_and_stays(self, harness: Callable[[], StepLog]) -> None:
        log = harness()
        epoch = log.claim()
        for step in range(3):
            log.append(make_record(step, epoch=epoch))
        for _ in range(2):
            assert log.decide(epoch, 1, "skip node=3").commands == ("skip node=3",)
        log.decide(epoch, 1, "skip node=5")
        again = harness()
        for found in (log, again):
            assert [record.commands for record in found.read(0)] == [(), ("skip node=3", "skip node=5"), ()]
        newer = again.claim()
        assert [record.commands for record in again.read(1)] == [("skip node=3", "skip node=5"), ()]
        with pytest.raises(FencedError):
            log.decide(epoch, 2, "skip node=3")
        with pytest.raises(FencedError):
            again.decide(epoch, 2, "skip node=3")
        with pytest.raises(DataError, match="not logged"):
            again.decide(newer, 3, "skip node=3")
        again.append(make_record(3, epoch=newer))
        assert again.read(2)[0].commands == ()

    def test_a_decision_leaves_rows_to_later_steps(self, harness: Callable[[], StepLog]) -> None:
        log = harness()
        epoch = log.claim()
        log.append(make_record(0, epoch=epoch, ranges=[("t", 0, 0, 5), ("t", 1, 0, 2), ("u", 0, 0, 3)]))
        log.append(make_record(1, epoch=epoch, ranges=[("t", 0, 5, 8), ("u", 0, 3, 4)]))
        command = defer_command("t", 0, 3)
        with pytest.raises(DataError, match="a later step has rows of this partition: step=0 table=t partition=0"):
            log.decide(epoch, 0, command)
        assert log.read(0)[0].commands == (), "what was refused is not written"
        for _ in range(2):
            log.decide(epoch, 1, command)
            log.decide(epoch, 0, command)
        again = harness()
        for found in (log, again):
            assert [[(r.table, r.partition, r.first, r.last) for r in record.ranges] for record in found.read(0)] == [
                [("t", 0, 0, 3), ("t", 1, 0, 2), ("u", 0, 0, 3)], [("u", 0, 3, 4)],
            ]  # fmt: skip
        epoch = again.claim()
        with pytest.raises(DataError):
            again.append(make_record(2, epoch=epoch, ranges=[("t", 0, 8, 9)]))
        again.append(make_record(2, epoch=epoch, ranges=[("t", 0, 3, 9)]))

    def test_steps_and_ranges_must_follow(self, harness: Callable[[], StepLog]) -> None:
        log = harness()
        epoch = log.claim()
        log.append(make_record(0, epoch=epoch, ranges=[("t", 0, 0, 5)]))
        with pytest.raises(DataError, match="step=2 next=1"):
            log.append(make_record(2, epoch=epoch))
        for first in (4, 6):
            with pytest.raises(DataError, match="expected_first=5"):
                log.append(make_record(1, epoch=epoch, ranges=[("t", 0, first, 9)]))
        with pytest.raises(DataError, match="backwards"):
            log.append(make_record(1, epoch=epoch, ranges=[("t", 0, 5, 4)]))
        log.append(make_record(1, epoch=epoch, ranges=[("t", 1, 0, 2)]))
        log.append(make_record(2, epoch=epoch, ranges=[("t", 0, 5, 9)]))

    def test_trim_keeps_positions_and_the_newest(self, harness: Callable[[], StepLog]) -> None:
        log = harness()
        epoch = log.claim()
        log.append(make_record(0, epoch=epoch, ranges=[("quiet", 0, 0, 7)]))
        for step in range(1, 4):
            log.append(make_record(step, epoch=epoch, ranges=[("t", 0, step, step + 1)]))
        log.trim(2)
        assert [record.step for record in log.read(2)] == [2, 3]
        with pytest.raises(DataError, match="first=1 first_kept=2") as found:
            log.read(1)
        assert "put back" in found.value.hint
        log.trim(99)
        again = harness()
        assert [record.step for record in again.read(3)] == [3]
        epoch = again.claim()
        with pytest.raises(DataError, match="expected_first=7"):
            again.append(make_record(4, epoch=epoch, ranges=[("quiet", 0, 0, 9)]))
        again.append(make_record(4, epoch=epoch, ranges=[("quiet", 0, 7, 9)]))


Rows = dict[int, list[tuple[Any, int]]]


class OutputHarness(Protocol):
    """Opens worker logs; reads what a consumer sees of a view: step to weighted rows, every record counted."""

    def open(self, worker: int = 0, first_step: int = 0) -> OutputLog: ...

    def consume(self, view: str) -> Rows: ...


DEAD = DeadLetter(step=1, origin="t", partition=0, offset=4, reason="broken", payload="{")


class OutputLogContract:
    """Invariants 5 and 6 and the rule of `write` (docs/concepts/logs.md)."""

    def test_each_step_is_seen_once(self, harness: OutputHarness) -> None:
        log = harness.open()
        assert log.bounds() == (0, 0)
        log.write(1, 0, {"v": make_part([((1, "a"), 1)]), "w": make_part([])}, [])
        log.write(1, 1, {"v": make_part([((1, "a"), -1), ((2, "b"), 3)])}, [DEAD])
        log.write(1, 2, {}, [])
        assert log.bounds() == (0, 3)
        again = harness.open()
        assert again.bounds() == (0, 3)
        again.write(2, 0, {"v": make_part([((1, "a"), 1)])}, [])
        again.write(2, 1, {"v": make_part([((2, "b"), 3), ((1, "a"), -1)])}, [DEAD])
        again.write(2, 3, {"v": make_part([((3, "c"), 1)])}, [])
        expected = {0: [((1, "a"), 1)], 1: [((1, "a"), -1), ((2, "b"), 3)], 3: [((3, "c"), 1)]}
        assert harness.consume("v") == expected
        assert harness.consume("dead_letters") == {1: [((1, "t", 0, 4, "broken", "{"), 1)]}

    def test_what_was_written_is_told_to_other_processes(self, harness: OutputHarness) -> None:
        part = {"v": make_part([((1, "a"), 1), ((2, "b"), 3)])}
        log = harness.open()
        log.write(1, 0, part, [DEAD])
        log.write(1, 1, {}, [])
        other = harness.open()
        assert isinstance(other, TellsChecksums)
        assert [other.checksum(step) for step in range(3)] == [checksum_of(with_dead_letters(part, [DEAD])), 0, None]
        other.trim_progress(1)

    def test_a_dead_letter_may_hold_any_text(self, harness: OutputHarness) -> None:
        """Names of files that are no UTF-8, and half of a pair in JSON, are surrogates: no text on a disk has them."""
        letter = replace(DEAD, step=0, reason="\udcff: bad", payload="a\ud83d")
        for log in (harness.open(), harness.open()):
            log.write(1, 0, {}, [letter])
        assert harness.consume("dead_letters") == {0: [((0, "t", 0, 4, r"\udcff: bad", r"a\ud83d"), 1)]}

    def test_out_of_turn_different_and_old(self, harness: OutputHarness) -> None:
        log = harness.open()
        log.write(2, 0, {"v": make_part([((1, "a"), 1)])}, [])
        with pytest.raises(DataError, match="step=2 next=1"):
            log.write(2, 2, {}, [])
        for parts in (
            {"v": make_part([((1, "a"), 2)])},
            {"v": make_part([((1, "b"), 1)])},
            {"u": make_part([((1, "a"), 1)])},
            {},
        ):
            with pytest.raises(DataError, match="another output than before: step=0"):
                log.write(2, 0, parts, [])
        with pytest.raises(DataError, match="step=0"):
            log.write(2, 0, {"v": make_part([((1, "a"), 1)])}, [DEAD])
        with pytest.raises(FencedError):
            harness.open().write(1, 1, {}, [])
        assert harness.open().bounds() == (0, 1)

    def test_a_newer_writer_ends_the_older(self, harness: OutputHarness) -> None:
        old, new = harness.open(), harness.open()
        old.write(1, 0, {"v": make_part([((1, "a"), 1)])}, [])
        new.write(2, 1, {"v": make_part([((2, "b"), 1)])}, [])
        with pytest.raises(FencedError):
            old.write(1, 1, {"v": make_part([((9, "z"), 1)])}, [])
        with pytest.raises(FencedError):
            old.write(1, 2, {"v": make_part([((9, "z"), 1)])}, [])
        new.write(2, 2, {}, [])
        assert harness.consume("v") == {0: [((1, "a"), 1)], 1: [((2, "b"), 1)]}

    def test_workers_are_apart_and_may_join_later(self, harness: OutputHarness) -> None:
        zero = harness.open(0)
        for step in range(3):
            zero.write(1, step, {"v": make_part([((step, "zero"), 1)])}, [])
        one = harness.open(1, first_step=2)
        assert one.bounds() == (2, 2)
        one.write(1, 1, {"v": make_part([((8, "before its time"), 1)])}, [])
        one.write(1, 2, {"v": make_part([((2, "one"), 1)])}, [])
        assert harness.open(1, first_step=2).bounds() == (2, 3)
        assert harness.consume("v")[2] == [((2, "one"), 1), ((2, "zero"), 1)]

    def test_large_part(self, harness: OutputHarness) -> None:
        rows = [((number, "x" * 200), 1) for number in range(20_000)]
        harness.open().write(1, 0, {"v": make_part(rows)}, [])
        assert harness.consume("v") == {0: rows}


def by_step(records: Iterator[tuple[int, tuple[Any, int]]]) -> Rows:
    """Weighted rows by step, sorted."""
    found: Rows = {}
    for step, row in records:
        found.setdefault(step, []).append(row)
    return {step: sorted(rows) for step, rows in sorted(found.items())}
