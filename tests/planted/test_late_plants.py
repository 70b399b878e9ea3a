"""Planted bugs about late tasks: each rule that tells a late attempt apart is switched off, and a test must turn red."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dbsp.errors import DbspError
from dbsp.storage import committing, scratch, standby
from dbsp.storage.durable import Durable
from dbsp.storage.scratch import Scratch
from dbsp.storage.tables import Txn

sys.path[:0] = [str(Path(__file__).parents[1] / "storage")]

import test_late_tasks as late  # noqa: E402 (the path must be set first)
from databases import WorkerKit  # noqa: E402

Patch = pytest.MonkeyPatch


def open_again(patch: Patch) -> None:
    patch.setattr(Durable, "_was_opened", lambda *_: False)


def write_into_a_file_that_was_replaced(patch: Patch) -> None:
    patch.setattr(Durable, "check_place", lambda _: None)


def delete_whatever_is_there(patch: Patch) -> None:
    patch.setattr(Durable, "is_called", lambda *_: True)


def overwrite_chunks(patch: Patch) -> None:
    def copy_group(self: Durable, epoch: int, group: list[tuple[int, Any]]) -> None:
        def copied(txn: Txn) -> None:
            for number, value in group:
                txn.put("chunks", number.to_bytes(8, "big"), value)
                txn.put("loose", number.to_bytes(8, "big"), b"")

        self.write(epoch, copied)

    patch.setattr(Durable, "_copy_group", copy_group)
    patch.setattr(committing, "chunk_values", read_and_let_go)


@contextmanager
def read_and_let_go(side: Scratch | Durable, numbers: list[int]) -> Iterator[Iterator[tuple[int, Any]]]:
    """The chunks out of a reading that ends with the last of them, not with their writing."""

    def values() -> Iterator[tuple[int, Any]]:
        with side.environment.reading() as txn:
            yield from committing._values(side, txn, numbers)

    yield values()


def let_a_standby_go_back(patch: Patch) -> None:
    patch.setattr(standby, "_refuse_late", lambda *_: None)
    patch.setattr(Durable, "_was_opened", lambda *_: False)


def restore_over_a_sound_database(patch: Patch) -> None:
    patch.setattr(standby, "is_sound", lambda _: False)


def hold_merges_again(patch: Patch) -> None:
    patch.setattr(Scratch, "_hold_try", lambda *_: (-1, False))


def release_again(patch: Patch) -> None:
    """A copy that is late takes the opened version of the scratch back."""
    original = Scratch.opened

    def opened(self: Scratch, txn: Txn) -> int:
        caller = sys._getframe(1).f_code.co_name
        return -1 if caller == "released" else original(self, txn)

    patch.setattr(scratch.Scratch, "opened", opened)


def detect_open(folder: Path, patch: Patch) -> None:
    late.test_a_late_open_keeps_what_followed(folder, patch, after=1, epoch=2)


def detect_discard_amid(folder: Path, patch: Patch) -> None:
    late.test_a_late_discard_deletes_no_other_database(folder, patch, epoch=1, named=True)


def detect_discard_before(folder: Path, patch: Patch) -> None:
    late.test_a_late_discard_deletes_no_other_database(folder, patch, epoch=1, named=False)


def detect_copy(folder: Path, patch: Patch) -> None:
    copy = next(task for task in late.TASKS if task.name == "copy")
    late.test_whatever_is_late_changes_nothing(folder, patch, copy, "two versions")


def detect_standby(folder: Path, patch: Patch) -> None:
    for after in range(4):
        (folder / str(after)).mkdir(parents=True)
        late.test_a_late_open_takes_nothing_from_a_standby(folder / str(after), patch, after)


def detect_restore(folder: Path, patch: Patch) -> None:
    late.test_a_late_restore_replaces_no_database_that_is_there(folder, patch)


def detect_hold(folder: Path, patch: Patch) -> None:
    late.test_a_late_hold_of_merges_holds_nothing(WorkerKit(folder))


@dataclass(frozen=True, slots=True)
class LatePlant:
    """A rule, how it is broken, and what must notice it."""

    rule: str
    breaks: Callable[[Patch], None]
    detector: Callable[[Path, Patch], None]


PLANTS = (
    LatePlant("a version is opened once per epoch", open_again, detect_open),
    LatePlant(
        "a write changes the file that is in its place", write_into_a_file_that_was_replaced, detect_discard_amid
    ),
    LatePlant("a deletion takes the database that was named", delete_whatever_is_there, detect_discard_before),
    LatePlant("a chunk that is there stays, and is read until it is written", overwrite_chunks, detect_copy),
    LatePlant("the base of a scratch never goes back", release_again, detect_copy),
    LatePlant("a standby never goes back within an epoch", let_a_standby_go_back, detect_standby),
    LatePlant("a database that is there is not restored again", restore_over_a_sound_database, detect_restore),
    LatePlant("a warm-up that was ended holds no merges", hold_merges_again, detect_hold),
)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.breaks.__name__)
def test_a_broken_rule_is_noticed(plant: LatePlant, tmp_path: Path) -> None:
    (tmp_path / "sound").mkdir()
    with Patch.context() as patch:
        plant.detector(tmp_path / "sound", patch)
    (tmp_path / "broken").mkdir()
    with Patch.context() as patch:
        plant.breaks(patch)
        with pytest.raises((AssertionError, DbspError, pytest.fail.Exception, OSError)):
            plant.detector(tmp_path / "broken", patch)
