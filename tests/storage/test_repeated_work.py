"""Work that is done twice at once in one epoch: a task that runs again while its first attempt goes on.

The epoch tells such attempts not apart, so every transaction that decides looks again. Each test stops one attempt right
before its last transaction, lets another one do the same work (and more), and lets the first go on.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from databases import (
    BY_KEY,
    CHUNK_BYTES,
    SEGMENTS,
    TRACES,
    Kit,
    Rows,
    append_all,
    arranged,
    checkpoint,
    content,
    first_id,
    run_step,
)

from dbsp.errors import DataError, DbspError, UnavailableError
from dbsp.storage import WorkerDatabase, adopting, warm_chunks
from dbsp.storage.discarding import discard_folder
from dbsp.storage.durable import Durable
from dbsp.store import Database
from dbsp.trace.redistribute import redistribute, warm_up

EVERYTHING = [(0, 1 << 64)]
KEY, OTHER_KEY = b"a" * 16, b"b" * 16


def rows_at(first: int, count: int = 30) -> Rows:
    return [((key, "x"), 1) for key in range(first, first + count)]


def of_key(database: Database) -> Counter[tuple[int, str]]:
    with database.read_trace(BY_KEY) as spine:
        return content(spine)


def versions(database: Database) -> list[int]:
    return [info.version for info in database.versions()]


def filled(home: Path) -> WorkerDatabase:
    """Version 1 after two steps, and two steps more."""
    database = WorkerDatabase.create(home, first_id(), chunk_bytes_max=CHUNK_BYTES)
    database.open(0, 1)
    steps(database, 0, 2)
    database.commit(1, checkpoint(1, 2))
    steps(database, 2, 4)
    return database


def steps(database: Database, first: int, end: int) -> None:
    for step in range(first, end):
        run_step(database, 1, step, rows_at(100 * step))


def up_to(end: int) -> Counter[tuple[int, str]]:
    return Counter({row: 1 for step in range(end) for row, _ in rows_at(100 * step)})


def attached(database: WorkerDatabase) -> WorkerDatabase:
    """What another process would use of the same folder."""
    again = WorkerDatabase(database.path, chunk_bytes_max=CHUNK_BYTES)
    again.attach(1)
    return again


class Attempt:
    """Work in a thread of its own, which stops where `gate` is called there."""

    def __init__(self, work: Callable[[], Any], after: int) -> None:
        self.result: Any = None
        self._after = after
        self._arrived, self._go_on = threading.Event(), threading.Event()
        self._work = work
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.result = self._work()
        except DbspError as error:
            self.result = error
        finally:
            self._arrived.set()

    def gate(self) -> None:
        """Wait, in this attempt's thread alone, the first times not."""
        if threading.current_thread() is not self._thread:
            return
        self._after -= 1
        if self._after == -1:
            self._arrived.set()
            assert self._go_on.wait(30)

    def to_the_gate(self) -> None:
        self._thread.start()
        assert self._arrived.wait(30)

    def end(self) -> Any:
        """Go on, to the end."""
        self._go_on.set()
        self._thread.join(30)
        return self.result


@contextmanager
def stopped(patch: pytest.MonkeyPatch, name: str, work: Callable[[], Any], after: int = 0) -> Iterator[Attempt]:
    """An attempt that stands before it calls this method of `Durable`, after it has called it so many times."""
    attempt, original = Attempt(work, after), getattr(Durable, name)

    def slow(*arguments: Any, **named: Any) -> Any:
        attempt.gate()
        return original(*arguments, **named)

    patch.setattr(Durable, name, slow)
    attempt.to_the_gate()
    yield attempt
    attempt.end()
    patch.setattr(Durable, name, original)


# ---- commits


@pytest.mark.parametrize("more", [0, 1, 2], ids=["at once", "a checkpoint later", "two checkpoints later"])
def test_a_version_lands_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int) -> None:
    database = filled(tmp_path / "w")
    database.pin(2, checkpoint(1, 4))
    first = attached(database)
    with stopped(monkeypatch, "land", lambda: first.copy(2, checkpoint(1, 4))) as attempt:
        report = database.copy(2, checkpoint(1, 4))
        for number in range(3, 3 + more):
            steps(database, 2 * number - 2, 2 * number)
            database.commit(number, checkpoint(1, 2 * number))
        result = attempt.end()
        assert isinstance(result, UnavailableError) if more > 1 else result == report
    assert versions(database) == [1 + more, 2 + more]
    end = 4 + 2 * more
    assert of_key(database) == up_to(end)
    steps(database, end, end + 1)
    database.commit(3 + more, checkpoint(1, end + 1))
    database.open(3 + more, 2)
    assert of_key(database) == up_to(end + 1)
    database.verify()


def test_a_late_copy_does_not_take_the_base_back(kit: Kit) -> None:
    """The version is held beside a later one: the report again, and nothing else."""
    database = kit.create()
    database.open(0, 1)
    steps(database, 0, 1)
    database.commit(1, checkpoint(1, 1))
    steps(database, 1, 2)
    report = database.commit(2, checkpoint(1, 2))
    steps(database, 2, 3)
    later = database.commit(3, checkpoint(1, 3))
    assert database.copy(2, checkpoint(1, 2)) == report
    steps(database, 3, 4)
    assert database.commit(4, checkpoint(1, 4)).version == later.version + 1
    with pytest.raises(UnavailableError):
        database.copy(2, checkpoint(1, 2))
    assert of_key(database) == up_to(4)


def test_a_step_that_is_late_by_two_writes_nothing(kit: Kit) -> None:
    database = kit.create()
    database.open(0, 1)
    steps(database, 0, 2)
    late = database.begin(1, 2, 0, SEGMENTS[0])
    with late:
        append_all(late, SEGMENTS[0], rows_at(200))
        steps(database, 2, 5)
        with pytest.raises(UnavailableError, match="not held"):
            late.finish()
    steps(database, 5, 6)
    database.commit(1, checkpoint(1, 6))
    assert of_key(database) == up_to(6)


# ---- rescale


def test_attempts_of_a_take_over_number_their_chunks_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One attempt stops in the middle; what it copies in afterwards replaces no chunk of the version."""
    monkeypatch.setattr(adopting, "COPY_BYTES", 2 * CHUNK_BYTES)
    source = filled(tmp_path / "source")
    WorkerDatabase.create(tmp_path / "new", first_id(), version=None).close()
    first, second = (WorkerDatabase(tmp_path / "new", chunk_bytes_max=CHUNK_BYTES) for _ in range(2))
    made = replace(checkpoint(1, 2), layout_version=2)

    def take_over(target: WorkerDatabase) -> Any:
        return redistribute({0: (source, EVERYTHING)}, target, 2, made, TRACES)

    with stopped(monkeypatch, "_copy_group", lambda: take_over(first)) as attempt:
        report = take_over(second)
        second.verify()
        assert attempt.end() == report
    assert versions(second) == [2]
    second.open(2, 2)
    second.verify()
    assert of_key(second) == up_to(2)
    with second._disk().environment.reading() as txn:
        assert not txn.keys("loose")


def test_a_take_over_below_a_later_version_is_refused(kit: Kit) -> None:
    database = kit.create()
    database.open(0, 1)
    steps(database, 0, 1)
    database.commit(1, checkpoint(1, 1))
    steps(database, 1, 2)
    database.commit(2, checkpoint(1, 2))
    with pytest.raises(UnavailableError, match="a later version is held"):
        database.adopt(1, replace(checkpoint(1, 1), layout_version=2), lambda _: {})  # type: ignore[attr-defined]
    assert versions(database) == [1, 2]
    database.open(2, 2)
    assert of_key(database) == up_to(2)


def test_a_take_over_of_swept_chunks_does_not_land(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was warm is forgotten between the planning of a version and its landing."""
    source = filled(tmp_path / "source")
    target = WorkerDatabase.create(tmp_path / "new", first_id(), version=None, chunk_bytes_max=CHUNK_BYTES)
    source_workers = {0: (source, EVERYTHING)}
    warm_up(source_workers, target, 1, 1, 2, TRACES, bytes_max=1 << 24, opened=False)
    made = replace(checkpoint(1, 2), layout_version=2)
    with stopped(monkeypatch, "land", lambda: redistribute(source_workers, target, 2, made, TRACES)) as attempt:
        target.forget_warm(1, 2)
        assert isinstance(attempt.end(), UnavailableError)
    assert redistribute(source_workers, target, 2, made, TRACES).chunks_written > 0
    target.open(2, 2)
    target.verify()
    assert of_key(target) == up_to(2)


# ---- warm-up


@pytest.mark.parametrize("after", [0, 1], ids=["before its numbers", "before its chunks"])
def test_a_piece_of_a_warm_up_that_was_ended_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    database = filled(tmp_path / "w")
    database.take_warm(1, 2, True, [(KEY, arranged(BY_KEY, rows_at(5000)))])
    late = attached(database)
    parts = [(OTHER_KEY, arranged(BY_KEY, rows_at(6000)))]
    with stopped(monkeypatch, "write", lambda: late.take_warm(1, 2, True, parts), after) as attempt:
        database.forget_warm(1, 2)
        steps(database, 4, 5)
        assert isinstance(attempt.end(), UnavailableError)
    assert not database.warm_chunks()
    with database._disk().environment.reading() as txn:
        assert not txn.keys("loose")
    database.commit(2, checkpoint(1, 5))
    database.verify()
    assert of_key(database) == up_to(5)


def test_a_warm_up_that_was_ended_is_not_begun_again(kit: Kit) -> None:
    database = kit.create()
    database.open(0, 1)
    steps(database, 0, 1)
    parts = [(KEY, arranged(BY_KEY, rows_at(5000)))]
    database.take_warm(1, 2, True, parts)
    database.forget_warm(1, 2)
    with pytest.raises(UnavailableError, match="over"):
        database.take_warm(1, 2, True, parts)
    assert not database.warm_chunks()
    database.take_warm(1, 3, True, parts)
    database.commit(1, checkpoint(1, 1))
    database.open(1, 2)
    assert database.take_warm(2, 2, True, parts) > 0


def test_a_warm_up_that_was_ended_before_its_first_piece_is_not_begun(kit: Kit) -> None:
    database = kit.create()
    database.open(0, 1)
    database.forget_warm(1, 2)
    with pytest.raises(UnavailableError, match="over"):
        database.take_warm(1, 2, True, [(KEY, arranged(BY_KEY, rows_at(5000)))])
    assert not database.warm_chunks()


def test_an_end_that_comes_late_ends_no_later_warm_up(kit: Kit) -> None:
    database = kit.create()
    database.open(0, 1)
    database.take_warm(1, 2, True, [(KEY, arranged(BY_KEY, rows_at(5000)))])
    database.forget_warm(1, 2)
    database.take_warm(1, 3, True, [(OTHER_KEY, arranged(BY_KEY, rows_at(6000)))])
    database.forget_warm(1, 2)
    assert set(database.warm_chunks()) == {OTHER_KEY}
    assert database.take_warm(1, 3, True, [(KEY, arranged(BY_KEY, rows_at(5000)))]) > 0


def test_a_later_warm_up_sweeps_an_earlier_one(kit: Kit) -> None:
    """Also where nobody ended it; its pieces are refused from then on."""
    database = kit.create()
    database.open(0, 1)
    steps(database, 0, 1)
    database.take_warm(1, 2, True, [(KEY, arranged(BY_KEY, rows_at(5000)))])
    database.take_warm(1, 3, True, [(OTHER_KEY, arranged(BY_KEY, rows_at(6000)))])
    assert list(database.warm_chunks()) == [OTHER_KEY]
    with pytest.raises(UnavailableError, match="over"):
        database.take_warm(1, 2, True, [(KEY, arranged(BY_KEY, rows_at(5000)))])
    assert list(database.warm_chunks()) == [OTHER_KEY]
    if isinstance(database, WorkerDatabase):
        with database._disk().environment.reading() as txn:
            assert len(txn.keys("loose")) == len(warm_chunks.numbers(txn))


def test_a_piece_that_runs_twice_is_stored_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = filled(tmp_path / "w")
    parts = [(KEY, arranged(BY_KEY, rows_at(5000)))]
    again = attached(database)
    with stopped(monkeypatch, "write", lambda: again.take_warm(1, 2, True, parts), after=2) as attempt:
        assert database.take_warm(1, 2, True, parts) > 0
        held = database.warm_chunks()
        assert attempt.end() == 0
    assert database.warm_chunks() == held
    with database._disk().environment.reading() as txn:
        assert len(txn.keys("loose")) == len(warm_chunks.numbers(txn))


def test_parts_of_another_try_are_not_taken(kit: Kit) -> None:
    """Workers 0 and 2 give in the first try, all three in the second: the same place in the list is another source worker.

    The parts of the first try stay where nobody ended it; then a cold rescale comes.
    """
    hashes = np.sort(arranged(BY_KEY, rows_at(0, 300)).words[0])
    bounds = [0, int(hashes[100]), int(hashes[200]), 1 << 64]
    workers = []
    for low, high in pairwise(bounds):
        worker = kit.create()
        worker.open(0, 1)
        whole = arranged(BY_KEY, rows_at(0, 300))
        start, stop = (
            int(np.searchsorted(whole.words[0], np.uint64(end))) if end < 1 << 64 else 300 for end in (low, high)
        )
        with worker.begin(1, 0, 0, [BY_KEY]) as step:
            step.append(BY_KEY, whole.slice(start, stop))
            step.finish()
        worker.commit(1, checkpoint(1, 1))
        workers.append((worker, [(low, high)]))
    target = workers[0][0]
    warm_up({0: workers[0], 2: workers[2]}, target, 1, 1, 2, [BY_KEY], bytes_max=1 << 24, opened=True)
    assert target.warm_chunks()
    redistribute(dict(enumerate(workers)), target, 2, replace(checkpoint(1, 1), layout_version=3), [BY_KEY])
    target.open(2, 2)
    assert of_key(target) == Counter(dict(rows_at(0, 300)))


# ---- folders that go and come


def test_a_folder_that_comes_back_is_opened_again(tmp_path: Path) -> None:
    """A worker left, and its folder was deleted by another process; later it joins again."""
    home = tmp_path / "w"
    database = filled(home)
    discard_folder(home, 1)
    for _ in range(2):
        with pytest.raises(DataError, match="data"):
            database.versions()
    WorkerDatabase.create(home, first_id()).close()
    assert versions(database) == [0]
    database.open(0, 2)
    database.close()
    with pytest.raises(UnavailableError, match="the database is closed"):
        database.versions()
