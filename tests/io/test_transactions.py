"""Rows of the embedded input that belong together: noted with them, asked for while some are not done, trimmed with all."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp.errors import DataError
from dbsp.io.embedded_input import EmbeddedInputLog
from dbsp.io.examine import examine_input
from dbsp.io.pushed import Incoming, Producer
from dbsp.io.transactions import PART
from dbsp.logs import Range
from dbsp.store.findings import Examined
from tests.io.log_samples import OTHER, TABLE, make_push


def open_log(folder: Path) -> EmbeddedInputLog:
    return EmbeddedInputLog(folder, [TABLE, OTHER], partitions=2, create=True, map_bytes=1 << 16)


def incoming(table: str, rows: int, *, partition: int = 0, number: int | None = None) -> Incoming:
    producer = None if number is None else Producer(id="p", sequence=number)
    return Incoming(table=table, push=make_push(range(rows)), partition=partition, producer=producer)


def test_a_log_without_any_is_as_it_always_was_and_takes_the_first_later(tmp_path: Path) -> None:
    with closing(open_log(tmp_path)) as log:
        log.append("t", make_push([1]))
        assert log.transactions({}) == []
        assert not log._env.has(PART)
    with closing(open_log(tmp_path)) as log:
        log.append_many([incoming("t", 2), incoming("other", 3)], together=True)
        pair = (Range(table="t", partition=0, first=1, last=3), Range(table="other", partition=0, first=0, last=3))
        assert log.transactions({}) == [pair]
    with closing(open_log(tmp_path)) as log:
        assert log.transactions({("t", 0): 3, ("other", 0): 2}) == [pair]
        assert log.transactions({("t", 0): 3, ("other", 0): 3}) == []


def test_those_of_tables_that_are_gone_are_trimmed_with_the_others(tmp_path: Path) -> None:
    with closing(open_log(tmp_path)) as log:
        log.append_many([incoming("t", 2), incoming("other", 3)], together=True)
    with closing(EmbeddedInputLog(tmp_path, [TABLE], partitions=2)) as log:
        log.trim({("t", 0): 1})
        assert len(log.transactions({})) == 1
        log.trim({("t", 0): 2})
        assert log.transactions({}) == []


def test_they_are_examined(tmp_path: Path) -> None:
    def examined(action: Callable[[EmbeddedInputLog, Any], Any]) -> Examined:
        with closing(open_log(tmp_path)) as log:
            log._env.write(lambda txn: action(log, txn))
        return examine_input(tmp_path)[0]

    with closing(open_log(tmp_path)) as log:
        log.append_many([incoming("t", 2), incoming("other", 3)], together=True)
    sound = examine_input(tmp_path)[0]
    assert (sound.findings, sound.counts["transactions"]) == ([], 1)
    beyond = Range(table="t", partition=0, first=2, last=9)
    assert [each.what for each in examined(lambda log, txn: log._transactions.add(txn, [beyond])).findings] == [
        "a transaction has rows that are not there: number=1 table=t partition=0 last=9"
    ]
    broken = examined(lambda log, txn: txn.put(b"\0" * 8, b"?", db=log._env.db(PART)))
    assert "damaged" in broken.findings[0].what
    with (
        closing(open_log(tmp_path)) as log,
        pytest.raises(DataError, match=f"file={tmp_path / 'input' / 'data.mdb'} part=transactions"),
    ):
        log.transactions({})


def test_a_repeat_is_one_only_as_a_whole(tmp_path: Path) -> None:
    with closing(open_log(tmp_path)) as log:
        log.append_many([incoming("t", 2, number=1)])
        with pytest.raises(DataError, match="a part of this transaction was pushed before: tables=t"):
            log.append_many([incoming("t", 2, number=1), incoming("other", 1, number=1)], together=True)
        assert log.ends()["other", 0] == 0
        for _ in range(2):
            found = log.append_many([incoming("t", 2, number=2), incoming("other", 1, number=2)], together=True)
        assert all(position.repeated for position in found)
        assert len(log.transactions({})) == 1


def test_an_empty_one_is_not_noted(tmp_path: Path) -> None:
    with closing(open_log(tmp_path)) as log:
        log.append_many([incoming("t", 0), incoming("other", 0)], together=True)
        assert log.transactions({}) == []


@given(seed=st.integers(0, 1 << 32))
def test_those_that_wait_are_asked_for_and_those_that_are_trimmed_gone(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Beside a list in memory, whatever is appended, done and trimmed in between, across openings."""
    draw, folder = random.Random(seed), tmp_path_factory.mktemp("log")
    places = list(itertools.product(("t", "other"), (0, 1)))
    kept: list[tuple[Range, ...]] = []
    done = dict.fromkeys(places, 0)
    log = open_log(folder)
    for _ in range(30):
        match draw.choice(["append", "append", "done", "trim", "open"]):
            case "append":
                chosen = draw.sample(places, draw.randint(1, 4))
                together = draw.random() < 0.7
                items = [incoming(table, draw.randrange(3), partition=p) for table, p in chosen]
                positions = log.append_many(items, together=together)
                ranges = tuple(each.range() for each in positions if each.last > each.first)
                kept += [ranges] if together and ranges else []
            case "done":
                ends = log.ends()
                done = {place: draw.randint(at, ends[place]) for place, at in done.items()}
            case "trim":
                log.trim(done)
                floors = log.floors()
                while kept and all(r.last <= floors[r.table, r.partition] for r in kept[0]):
                    del kept[0]
            case "open":
                log.close()
                log = open_log(folder)
        waiting = [each for each in kept if any(r.last > done[r.table, r.partition] for r in each)]
        assert log.transactions(done) == waiting
    log.close()
