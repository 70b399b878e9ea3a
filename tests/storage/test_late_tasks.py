"""Tasks that run late, twice, or in two places: each attempt is refused, or has no effect.

An attempt stops at one of its transactions. Meanwhile another attempt of the same task, and what follows it, is done. Then the
first goes on. What the pipeline has published since must be there: whatever the task, and wherever its first attempt stopped.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from databases import CHUNK_BYTES, Kit, checkpoint, first_id, run_step
from test_repeated_work import Attempt, filled, of_key, rows_at, steps, up_to, versions

from dbsp.errors import DbspError, UnavailableError
from dbsp.storage import WorkerDatabase
from dbsp.storage.discarding import condemn, discard_folder
from dbsp.storage.environment import MAP_SIZE_BYTES, DatabaseEnvironment
from dbsp.storage.standby import Standby
from tests.pace import few


def again(database: WorkerDatabase, standbys: tuple[Path, ...] = ()) -> WorkerDatabase:
    """What another process would use of the same folder."""
    return WorkerDatabase(database.path, chunk_bytes_max=CHUNK_BYTES, standbys=standbys)


def published(database: WorkerDatabase, epoch: int, version: int, end: int) -> None:
    """Two steps more, in the next version."""
    for step in range(end - 2, end):
        step_in(database, epoch, step)
    database.commit(version, checkpoint(epoch, end))


def step_in(database: WorkerDatabase, epoch: int, step: int) -> None:
    """Run a step."""
    run_step(database, epoch, step, rows_at(100 * step))


@contextmanager
def gated(patch: pytest.MonkeyPatch, work: Callable[[], Any], after: int) -> Iterator[Attempt]:
    """An attempt that stands before one of its write transactions, after it has done so many."""
    attempt, original = Attempt(work, after), DatabaseEnvironment.write

    def slow(*arguments: Any, **named: Any) -> Any:
        attempt.gate()
        return original(*arguments, **named)

    patch.setattr(DatabaseEnvironment, "write", slow)
    attempt.to_the_gate()
    yield attempt
    attempt.end()
    patch.setattr(DatabaseEnvironment, "write", original)


# ---- open


def test_a_second_open_in_an_epoch_does_nothing(kit: Kit) -> None:
    database = kit.create()
    assert database.open(0, 1) == first_id()
    steps(database, 0, 1)
    assert database.open(0, 1) == first_id()
    assert of_key(database) == up_to(1)
    database.commit(1, checkpoint(1, 1))
    assert database.open(0, 1) == first_id()
    assert versions(database) == [0, 1]
    steps(database, 1, 2)
    database.commit(2, checkpoint(1, 2))
    with pytest.raises(UnavailableError, match="no such version"):
        database.open(0, 1)
    with pytest.raises(UnavailableError, match="another version was opened"):
        database.open(2, 1)
    assert versions(database) == [1, 2]
    steps(database, 2, 3)
    assert of_key(database) == up_to(3)
    assert database.open(1, 2) == checkpoint(1, 1)


@pytest.mark.parametrize("after", [0, 1], ids=["before its epoch", "before its opening"])
@pytest.mark.parametrize("epoch", [2, 3], ids=["of this epoch", "of an older one"])
def test_a_late_open_keeps_what_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int, epoch: int
) -> None:
    """The first attempt goes on when the next version is out, or when a newer epoch runs steps."""
    database = filled(tmp_path / "w")
    first = again(database)
    with gated(monkeypatch, lambda: first.open(1, 2), after) as attempt:
        database.open(1, epoch)
        published(database, epoch, 2, 4)
        step_in(database, epoch, 4)
        attempt.end()
    assert versions(database) == [1, 2]
    step_in(database, epoch, 5)
    assert of_key(database) == up_to(6)
    database.commit(3, checkpoint(epoch, 6))
    database.verify()


def test_an_open_that_was_killed_is_done_by_the_next_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends after its scratch was made and before the transaction that counts."""
    database = filled(tmp_path / "w")

    class KilledError(Exception):
        """The process ends here."""

    def killed(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr("dbsp.storage.durable.Durable._mark_opened", killed)
        with pytest.raises(KilledError):
            again(database).open(1, 2)
    other = again(database)
    assert other.open(1, 2) == checkpoint(1, 2)
    published(other, 2, 2, 4)
    assert of_key(other) == up_to(4)


# ---- discard


@pytest.mark.parametrize("epoch", [1, 2], ids=["in the same epoch", "in a later one"])
@pytest.mark.parametrize("named", [True, False], ids=["amid its deletion", "before it looks"])
def test_a_late_discard_deletes_no_other_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epoch: int, named: bool
) -> None:
    """The worker is back when the first attempt goes on; in the same epoch nothing but the database's name tells them apart."""
    home = tmp_path / "w"
    filled(home).close()
    condemned = condemn(home, 1)
    with gated(monkeypatch, lambda: discard_folder(home, 1, condemned), 0) if named else _later() as attempt:
        discard_folder(home, 1, condemned)
        back = WorkerDatabase.create(home, first_id(), chunk_bytes_max=CHUNK_BYTES)
        back.open(0, epoch)
        published(back, epoch, 1, 2)
        if named:
            attempt.end()
    if not named:
        _quietly(lambda: discard_folder(home, 1, condemned))
    assert versions(back) == [0, 1]
    assert of_key(back) == up_to(2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["w"]


@contextmanager
def _later() -> Iterator[Any]:
    """The task has not begun."""
    yield None


def _quietly(task: Callable[[], object]) -> None:
    """A refusal of which nobody hears."""
    try:
        task()
    except DbspError:
        return


def test_a_late_discard_of_what_could_not_be_read_spares_what_is_made_there(tmp_path: Path) -> None:
    home = tmp_path / "w"
    (home / "durable").mkdir(parents=True)
    condemned = condemn(home, 1)
    discard_folder(home, 1, condemned)
    assert list(tmp_path.iterdir()) == []
    database = WorkerDatabase.create(home, first_id())
    discard_folder(home, 1, condemned)
    assert versions(database) == [0]


def test_a_database_of_an_earlier_version_of_dbsp_gets_a_name(tmp_path: Path) -> None:
    database = WorkerDatabase.create(tmp_path / "w", first_id())
    with database._disk().environment.reading() as txn:
        assert txn.get("meta", b"life") is not None
    database._disk().environment.write(lambda txn: txn.delete("meta", b"life"))
    condemned = condemn(tmp_path / "w", 1)
    assert condemned.life is not None
    assert condemn(tmp_path / "w", 1) == condemned
    database.close()
    discard_folder(tmp_path / "w", 1, condemned)
    assert list(tmp_path.iterdir()) == []


# ---- standbys


@pytest.mark.parametrize("after", range(4))
def test_a_late_open_takes_nothing_from_a_standby(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    copies = (tmp_path / "copies" / "w",)
    made = filled(tmp_path / "w")
    made.close()
    database, first = again(made, copies), again(made, copies)
    with gated(monkeypatch, lambda: first.open(1, 2), after) as attempt:
        database.open(1, 2)
        published(database, 2, 2, 4)
        attempt.end()
    database.close()
    first.close()
    shutil.rmtree(tmp_path / "w")
    Standby(copies[0], MAP_SIZE_BYTES).restore(tmp_path / "w", 3)
    restored = again(made)
    assert versions(restored) == [1, 2]
    restored.open(2, 3)
    assert of_key(restored) == up_to(4)


def test_a_late_restore_replaces_no_database_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another attempt has made it again, and it holds more than the standby did by then."""
    copies = (tmp_path / "copies" / "w",)
    made = filled(tmp_path / "w")
    made.close()
    database = again(made, copies)
    database.open(1, 2)
    database.close()
    shutil.rmtree(tmp_path / "w")
    standby = Standby(copies[0], MAP_SIZE_BYTES)
    with gated(monkeypatch, lambda: standby.restore(tmp_path / "w", 3), 1) as attempt:
        Standby(copies[0], MAP_SIZE_BYTES).restore(tmp_path / "w", 3)
        database = again(made)
        database.open(1, 3)
        published(database, 3, 2, 4)
        attempt.end()
    assert versions(database) == [1, 2]
    assert of_key(database) == up_to(4)


# ---- merges that wait


def test_a_late_hold_of_merges_holds_nothing(kit: Kit) -> None:
    database = kit.create()
    database.open(0, 1)
    database.hold_merges(1, 2, [])
    database.end_hold(1, 2)
    with pytest.raises(UnavailableError, match="over"):
        database.hold_merges(1, 2, [])
    database.hold_merges(1, 3, [])
    with pytest.raises(UnavailableError, match="over"):
        database.hold_merges(1, 2, [])
    database.end_hold(1, 2)
    with pytest.raises(UnavailableError, match="over"):
        database.hold_merges(1, 2, [])
    database.open(0, 2)
    database.hold_merges(2, 2, [])


# ---- every kind, stopped anywhere


@dataclass(frozen=True)
class Task:
    """A kind of task on a worker's database, made ready on a fresh one, and how often it writes at most."""

    name: str
    writes: int
    ready: Callable[[WorkerDatabase], None]
    run: Callable[[WorkerDatabase], object]


def _pinned(database: WorkerDatabase) -> None:
    database.pin(2, checkpoint(1, 4))


TASKS = (
    Task("fence", 1, lambda _: None, lambda database: database.raise_epoch(1)),
    Task("pin", 1, lambda _: None, lambda database: database.pin(2, checkpoint(1, 4))),
    Task("copy", 4, _pinned, lambda database: database.copy(2, checkpoint(1, 4))),
    Task("commit", 5, lambda _: None, lambda database: database.commit(2, checkpoint(1, 4))),
    Task("open", 2, lambda _: None, lambda database: database.open(0, 1)),
    Task("hold", 1, lambda _: None, lambda database: database.hold_merges(1, 2, [])),
    Task("cool", 2, lambda _: None, lambda database: (database.forget_warm(1, 2), database.end_hold(1, 2))),
)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
@pytest.mark.parametrize("later", ["the version", "two versions", "a rollback"])
def test_whatever_is_late_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: Task, later: str
) -> None:
    """The first attempt stops before each of its transactions; the pipeline goes on as if it had ended."""
    for after in itertools.islice(range(task.writes), 2 if few() else None):
        database = filled(tmp_path / f"w{after}")
        task.ready(database)
        first = again(database)
        first.attach(1)
        with gated(monkeypatch, lambda late=first: task.run(late), after) as attempt:  # type: ignore[misc]
            wanted, epoch, end = gone_on(database, task, later)
            attempt.end()
        assert versions(database) == wanted
        step_in(database, epoch, end)
        assert of_key(database) == up_to(end + 1)
        database.commit(wanted[-1] + 1, checkpoint(epoch, end + 1))
        database.verify()
        database.open(wanted[-1] + 1, epoch + 1)
        assert of_key(database) == up_to(end + 1)


def gone_on(database: WorkerDatabase, task: Task, later: str) -> tuple[list[int], int, int]:
    """What is done meanwhile; the versions there are then, the epoch, and the next step."""
    if later == "a rollback":
        database.open(1, 2)
        for step in (2, 3, 4):
            step_in(database, 2, step)
        database.commit(2, checkpoint(2, 5))
        return [1, 2], 2, 5
    if task.name != "open":
        task.run(database)
    database.commit(2, checkpoint(1, 4))
    if later == "the version":
        return [1, 2], 1, 4
    published(database, 1, 3, 6)
    return [2, 3], 1, 6
