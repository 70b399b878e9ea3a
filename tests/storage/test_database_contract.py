"""The contract of `dbsp.store`, which both databases keep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from databases import (
    BY_KEY,
    BY_ROW,
    ORDERED,
    SEGMENTS,
    TRACES,
    Kit,
    WorkerKit,
    arranged,
    checkpoint,
    content,
    first_id,
    run_step,
)

from dbsp.errors import DataError, FencedError, InternalError, UnavailableError
from dbsp.storage.durable import Durable
from dbsp.storage.scratch import Scratch
from dbsp.store import CheckpointId, Database, TraceSpec, VersionInfo

ANN, BOB = (1, "ann"), (2, "bob")


def newest(database: Database, trace: TraceSpec) -> Counter[tuple[int, str]]:
    with database.read_trace(trace) as spine:  # type: ignore[attr-defined]
        return content(spine)


def opened(kit: Kit) -> Database:
    database = kit.create()
    database.open(0, 1)
    return database


def test_a_new_database_holds_one_empty_version(kit: Kit) -> None:
    database = kit.create()
    assert database.versions() == (VersionInfo(version=0, checkpoint=first_id()),)
    assert database.open(0, 1) == first_id()
    assert database.get_step() == 0
    assert all(newest(database, trace) == Counter() for trace in TRACES)
    assert database.state_bytes() == 0


def test_reads_see_the_step_before(kit: Kit) -> None:
    database = opened(kit)
    run_step(database, 1, 0, [(ANN, 1)])
    with database.begin(1, 1, 0, SEGMENTS[0]) as step:
        step.append(BY_KEY, arranged(BY_KEY, [(BOB, 5)]))
        assert content(step.spine(BY_KEY)) == {ANN: 1}
        step.finish()
        assert content(step.spine(BY_KEY)) == {ANN: 1}
    assert newest(database, BY_KEY) == {ANN: 1, BOB: 5}
    assert newest(database, BY_ROW) == {ANN: 1}


def test_traces_of_other_segments_are_read_as_of_the_step_before(kit: Kit) -> None:
    """Whether the other segment has run this step, was opened anew, or ran long ago; what is read is never written."""
    database = opened(kit)
    run_step(database, 1, 0, [(ANN, 1)])
    shared = {0: (BY_KEY,)}
    for begun in (False, True):
        if begun:
            with database.begin(1, 1, 0, SEGMENTS[0]) as step:
                step.append(BY_KEY, arranged(BY_KEY, [(BOB, 5)]))
                step.finish()
        with database.begin(1, 1, 1, SEGMENTS[1], shared) as later:
            assert content(later.spine(BY_KEY)) == {ANN: 1}
            with pytest.raises(InternalError):
                later.append(BY_KEY, arranged(BY_KEY, [(BOB, 1)]))
    with database.begin(1, 1, 1, SEGMENTS[1], shared) as later:
        later.finish()
    assert newest(database, BY_KEY) == {ANN: 1, BOB: 5}
    database.commit(1, checkpoint(1, 2))
    database.open(1, 2)
    with database.begin(2, 2, 1, SEGMENTS[1], shared) as later:
        assert content(later.spine(BY_KEY)) == {ANN: 1, BOB: 5}


def test_what_is_not_finished_is_dropped(kit: Kit) -> None:
    database = opened(kit)
    with database.begin(1, 0, 0, SEGMENTS[0]) as step:
        step.append(BY_KEY, arranged(BY_KEY, [(ANN, 1)]))
    assert newest(database, BY_KEY) == {}


def test_a_step_is_written_once_and_runs_again_on_the_same_state(kit: Kit) -> None:
    database = opened(kit)
    run_step(database, 1, 0, [(ANN, 1)])
    run_step(database, 1, 1, [(BOB, 1)])
    with database.begin(1, 1, 0, SEGMENTS[0]) as step:
        assert step.done
        assert content(step.spine(BY_KEY)) == {ANN: 1}
        step.append(BY_KEY, arranged(BY_KEY, [(BOB, 1)]))
        step.finish()
    assert newest(database, BY_KEY) == {ANN: 1, BOB: 1}


def test_the_state_before_the_last_two_steps_is_let_go(kit: Kit) -> None:
    database = opened(kit)
    for step in range(4):
        run_step(database, 1, step, [(ANN, 1)])
    for step in (5, 2, 0):
        with pytest.raises(UnavailableError), database.begin(1, step, 0, SEGMENTS[0]):
            pass


def test_segments_go_on_by_themselves(kit: Kit) -> None:
    database = opened(kit)
    for step in range(3):
        with database.begin(1, step, 0, SEGMENTS[0]) as transaction:
            transaction.append(BY_KEY, arranged(BY_KEY, [(ANN, 1)]))
            transaction.finish()
    with database.begin(1, 0, 1, SEGMENTS[1]) as transaction:
        transaction.append(ORDERED, arranged(ORDERED, [(BOB, 1)]))
        transaction.finish()
    assert newest(database, BY_KEY) == {ANN: 3}
    assert newest(database, ORDERED) == {BOB: 1}
    with pytest.raises(UnavailableError):
        database.commit(1, checkpoint(1, 3))


def test_commit_and_go_on(kit: Kit) -> None:
    database = opened(kit)
    run_step(database, 1, 0, [(ANN, 1)])
    report = database.commit(1, checkpoint(1, 1))
    assert report.version == 1
    assert report.chunks_written == 3
    assert report.state_bytes <= report.bytes_written <= report.state_bytes + 48 * 3
    assert [info.version for info in database.versions()] == [0, 1]
    assert database.get_step() == 1
    run_step(database, 1, 1, [(ANN, -1), (BOB, 1)])
    database = kit.reopen(database)
    assert database.open(1, 2) == checkpoint(1, 1)
    assert [info.version for info in database.versions()] == [1]
    assert all(newest(database, trace) == {ANN: 1} for trace in TRACES)


def test_commit_repeated_does_nothing(kit: Kit) -> None:
    database = opened(kit)
    run_step(database, 1, 0, [(ANN, 1)])
    report = database.commit(1, checkpoint(1, 1))
    assert database.commit(1, checkpoint(1, 1)) == report
    run_step(database, 1, 1, [(BOB, 1)])
    assert database.commit(1, checkpoint(1, 1)) == report
    assert newest(database, BY_KEY) == {ANN: 1, BOB: 1}
    database.commit(2, checkpoint(1, 2))
    assert [info.version for info in database.versions()] == [1, 2]


def test_steps_go_on_while_a_pinned_cut_is_committed(kit: Kit) -> None:
    database = opened(kit)
    run_step(database, 1, 0, [(ANN, 1)])
    database.put(1, "t", b"k", b"cut")
    database.put(1, "t", b"same", b"same")
    database.pin(1, checkpoint(1, 1))
    for step in range(1, 5):
        run_step(database, 1, step, [((step, "later"), 1), ((step - 1, "later"), -1)])
    database.put(1, "t", b"k", b"later")
    database.commit(1, checkpoint(1, 1))
    assert database.get("t", b"k") == b"later"
    assert newest(database, BY_ROW) == {ANN: 1, (4, "later"): 1, (0, "later"): -1}
    run_step(database, 1, 5, [])
    database.commit(2, checkpoint(1, 6))
    database.open(1, 2)
    assert newest(database, BY_ROW) == {ANN: 1}
    assert (database.get("t", b"k"), database.get("t", b"same")) == (b"cut", b"same")


def copied_beside_steps(database: Database, bytes_max: int | None) -> None:
    """Pin, then a step before each piece of the copy; the version is the cut, and steps stand where they were."""
    rows = [((key, "x" * (key % 5)), 1) for key in range(200)]
    for step in range(3):
        run_step(database, 1, step, rows[step::3])
    database.pin(1, checkpoint(1, 3))
    report, step = None, 3
    while report is None:
        run_step(database, 1, step, [(row, -1 if step % 2 else 1) for row, _ in rows[::2]])
        step += 1
        report = database.copy(1, checkpoint(1, 3), bytes_max)
        assert [info.version for info in database.versions()] == ([0] if report is None else [0, 1])
    assert database.copy(1, checkpoint(1, 3), bytes_max) == report == database.commit(1, checkpoint(1, 3))
    assert report.state_bytes <= report.bytes_written <= report.state_bytes + 48 * report.chunks_written
    now = dict(
        rows[1::2] if step % 2 == 0 else rows
    )  # never nothing: then no chunk would be that of running steps alone
    assert newest(database, BY_ROW) == now
    run_step(database, 1, step, [(ANN, 1)])
    assert newest(database, BY_ROW) == now | {ANN: 1}
    database.open(1, 2)
    assert all(newest(database, trace) == dict(rows) for trace in TRACES)


@pytest.mark.parametrize("bytes_max", [1, 700, None])
def test_a_pinned_cut_is_copied_in_pieces_beside_steps(kit: Kit, bytes_max: int | None) -> None:
    copied_beside_steps(opened(kit), bytes_max)


def forget_the_pin(patch: pytest.MonkeyPatch) -> None:
    """A step deletes chunks that only the pin refers to."""
    patch.setattr(Scratch, "pins", lambda self, txn: [])


def land_a_piece(patch: pytest.MonkeyPatch) -> None:
    """The version lands when its first piece is copied."""
    original = Durable.lacking
    patch.setattr(Durable, "lacking", lambda *arguments: (original(*arguments)[0], True))


def forget_the_steps(patch: pytest.MonkeyPatch) -> None:
    """When a version lands, chunks that only running steps refer to are deleted."""
    patch.setattr(Scratch, "held_records", lambda self, txn: [])


@pytest.mark.parametrize("plant", [forget_the_pin, land_a_piece, forget_the_steps])
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Invariant 12: of the pin, of the pieces, of the steps in flight."""
    plant(monkeypatch)
    with pytest.raises((AssertionError, DataError)):
        copied_beside_steps(opened(WorkerKit(tmp_path)), 1)


def test_a_copy_needs_its_pin(kit: Kit) -> None:
    database = opened(kit)
    run_step(database, 1, 0, [(ANN, 1)])
    with pytest.raises(UnavailableError, match="no cut is pinned"):
        database.copy(1, checkpoint(1, 1))
    database.pin(1, checkpoint(1, 1))
    with pytest.raises(UnavailableError, match="no cut is pinned"):
        database.copy(1, checkpoint(1, 2))
    assert [info.version for info in database.versions()] == [0]


def test_a_rollback_lets_go_of_the_pin(kit: Kit) -> None:
    database = opened(kit)
    run_step(database, 1, 0, [(ANN, 1)])
    database.pin(1, checkpoint(1, 1))
    database.raise_epoch(2)
    with pytest.raises(FencedError):
        database.copy(1, checkpoint(1, 1))
    database.open(0, 2)
    run_step(database, 2, 0, [(BOB, 1)])
    with pytest.raises(UnavailableError, match="no cut is pinned"):
        database.copy(1, checkpoint(2, 1))
    database.commit(1, checkpoint(2, 1))
    database.open(1, 3)
    assert newest(database, BY_ROW) == {BOB: 1}


def test_only_the_next_version_can_be_committed(kit: Kit) -> None:
    database = opened(kit)
    run_step(database, 1, 0, [(ANN, 1)])
    for version in (0, 2):
        with pytest.raises(UnavailableError):
            database.commit(version, checkpoint(1, 1))
    assert [info.version for info in database.versions()] == [0]


def test_a_commit_without_steps(kit: Kit) -> None:
    database = opened(kit)
    run_step(database, 1, 0, [(ANN, 1)])
    database.commit(1, checkpoint(1, 1))
    report = database.commit(2, checkpoint(1, 1))
    assert report.chunks_written == 0
    database.commit(3, checkpoint(1, 1))
    run_step(database, 1, 1, [(BOB, 1)])
    database.open(3, 2)
    assert newest(database, BY_KEY) == {ANN: 1}


@pytest.mark.parametrize("back_to", [1, 2])
def test_open_discards_the_other_version_and_the_steps_since(kit: Kit, back_to: int) -> None:
    database = opened(kit)
    for step in range(2):
        run_step(database, 1, step, [((step, "x"), 1)])
        database.put(1, "t", b"step", b"%d" % step)
        database.commit(step + 1, checkpoint(1, step + 1))
    run_step(database, 1, 2, [((2, "x"), 1)])
    database.put(1, "t", b"step", b"2")
    database = kit.reopen(database)
    database.raise_epoch(2)
    assert database.open(back_to, 2).step == back_to
    assert [info.version for info in database.versions()] == [back_to]
    assert newest(database, BY_ROW) == {(step, "x"): 1 for step in range(back_to)}
    assert database.get("t", b"step") == b"%d" % (back_to - 1)
    with pytest.raises(UnavailableError):
        database.open(3 - back_to, 3)


def test_an_older_epoch_is_refused_wherever_it_writes(kit: Kit) -> None:
    database = opened(kit)
    run_step(database, 1, 0, [(ANN, 1)])
    with database.begin(1, 1, 0, SEGMENTS[0]) as step:
        step.append(BY_KEY, arranged(BY_KEY, [(BOB, 1)]))
        database.raise_epoch(2)
        with pytest.raises(FencedError):
            step.finish()
    with pytest.raises(FencedError):
        database.begin(1, 1, 0, SEGMENTS[0])
    with pytest.raises(FencedError):
        database.commit(1, checkpoint(1, 1))
    with pytest.raises(FencedError):
        database.put(1, "t", b"k", b"v")
    with pytest.raises(FencedError):
        database.set_step(1, 7)
    with pytest.raises(FencedError):
        database.raise_epoch(1)
    with pytest.raises(FencedError):
        database.open(0, 1)
    database.open(0, 2)
    assert newest(database, BY_KEY) == {}


def test_small_values_are_part_of_the_version(kit: Kit) -> None:
    database = opened(kit)
    database.put(1, "t", b"a", b"1")
    database.put(1, "t", b"b", b"")
    database.put(1, "u", b"a", b"other")
    assert database.get("t", b"a") == b"1"
    database.commit(1, checkpoint(1, 0))
    database.put(1, "t", b"a", None)
    database.put(1, "t", b"ab", b"2")
    assert (database.get("t", b"a"), database.get("t", b"ab"), database.get("t", b"b")) == (None, b"2", b"")
    database.commit(2, checkpoint(1, 0))
    database.put(1, "t", b"a", b"3")
    database.commit(3, checkpoint(1, 0))
    assert database.get("t", b"a") == b"3"
    database = kit.reopen(database)
    database.open(2, 2)
    assert (database.get("t", b"a"), database.get("t", b"ab"), database.get("u", b"a")) == (None, b"2", b"other")


def test_the_next_step_is_part_of_the_version(kit: Kit) -> None:
    database = opened(kit)
    run_step(database, 1, 0, [(ANN, 1)])
    database.set_step(1, 1)
    assert database.get_step() == 1
    database.commit(1, checkpoint(1, 1))
    run_step(database, 1, 1, [])
    database.set_step(1, 2)
    database = kit.reopen(database)
    database.open(1, 2)
    assert database.get_step() == 1


def test_a_wrong_append_is_refused(kit: Kit) -> None:
    database = opened(kit)
    with database.begin(1, 0, 0, SEGMENTS[0]) as step:
        with pytest.raises(InternalError):
            step.append(ORDERED, arranged(ORDERED, []))
        with pytest.raises(InternalError):
            step.append(BY_ROW, arranged(BY_KEY, []))
        step.append(BY_KEY, arranged(BY_KEY, []))
        with pytest.raises(InternalError):
            step.append(BY_KEY, arranged(BY_KEY, []))


def test_before_a_version_is_open_nothing_is_read(kit: Kit) -> None:
    database = kit.create()
    with pytest.raises(UnavailableError):
        database.begin(1, 0, 0, SEGMENTS[0])
    with pytest.raises(UnavailableError):
        database.commit(1, CheckpointId(run="run", epoch=1, step=0, layout_version=1, fingerprint="f"))


def test_a_retracted_row_leaves_the_state(kit: Kit) -> None:
    database = opened(kit)
    for step in range(20):
        run_step(database, 1, step, [((key, "x"), 1 if step % 2 == 0 else -1) for key in range(200)])
    assert newest(database, BY_ROW) == {}
    assert database.state_bytes() == 0
