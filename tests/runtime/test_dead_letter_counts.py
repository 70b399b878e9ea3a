"""Reports count rows that could not be used: equal ones each, and none that is taken back."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

import dbsp
from dbsp.logs import DeadLetter
from dbsp.runtime import dead_rows
from dbsp.runtime.session import Run

NOON = dt.datetime(2024, 1, 1, 12)


def counted(run: Run) -> tuple[int, int]:
    """Rows that could not be used, and those of them that came too late, as a service adds them up."""
    workers = [worker for report in run.reports for worker in report.workers]
    return sum(worker.dead for worker in workers), sum(worker.late for worker in workers)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_letter_taken_back_is_none_and_equal_ones_are_many(workers: int) -> None:
    keyed = dbsp.table("t", {"a": dbsp.INT64, "b": dbsp.INT64}, primary_key="a")
    bare = dbsp.table("u", {"b": dbsp.INT64})
    views = {"v": keyed.select("a", h=10 // dbsp.col("b")), "w": bare.select(h=10 // dbsp.col("b"))}
    with dbsp.open(dbsp.circuit("c", views), workers=workers) as run:

        def after(table: str, *rows: dict[str, Any]) -> int:
            run.push(table, list(rows))
            run.step()
            return counted(run)[0]

        assert after("t", {"a": 1, "b": 0}, {"a": 2, "b": 3}) == 1
        assert after("t", {"a": 1, "b": 5}) == 1
        assert after("u", {"b": 0}, {"b": 0}, {"b": 0}) == 4
        run.delete("u", [{"b": 0}])
        assert after("t", {"a": 1, "b": 0}) == 5
        assert sum(letter.weight for letter in run.dead_letters()) == 3
        assert counted(run) == (5, 0)


def test_late_rows_are_counted_each_a_late_delete_too() -> None:
    t = dbsp.table("t", {"at": dbsp.TIMESTAMP})
    with dbsp.open(dbsp.circuit("c", {"v": t.with_watermark("at", dbsp.hours(1))})) as run:
        run.push("t", [{"at": NOON}])
        run.step()
        run.push("t", [{"at": NOON - dt.timedelta(hours=5)}] * 3)
        run.delete("t", [{"at": NOON - dt.timedelta(hours=6)}])
        run.step()
        assert counted(run) == (4, 4)


@pytest.mark.parametrize(("most", "chars", "kept"), [(9, 99, [0, 1, 2]), (2, 99, [0, 1]), (9, 5, [0, 1]), (9, 1, [])])
def test_a_report_has_the_first_letters_where_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch, most: int, chars: int, kept: list[int]
) -> None:
    """In whatever order the letters come."""
    monkeypatch.setattr(dead_rows, "LETTERS_MAX", most)
    monkeypatch.setattr(dead_rows, "LETTER_CHARS_MAX", chars)
    letters = [
        DeadLetter(step=0, origin="t", partition=0, offset=offset, reason="bad", payload="{}") for offset in (2, 0, 1)
    ]
    assert sorted(letter.offset for letter in dead_rows.sendable(letters)) == kept
