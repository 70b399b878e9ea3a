"""Files that lost their tail are refused before LMDB maps them; a free tail that was never written is sound."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest
from lmdb.verify import _Verifier

from dbsp import lmdb_files
from dbsp.errors import DataError
from dbsp.lmdb_files import check_lmdb_file

PAGE = 4096
SEEDS = range(6)


def made(folder: Path, seed: int) -> Path:
    """A file with large and small values, of which transactions deleted some."""
    draw = random.Random(seed)
    env = lmdb.open(str(folder), max_dbs=4, map_size=1 << 26, lib_version=0)  # noqa: TID251 - as another program
    names = [env.open_db(name.encode()) for name in ("a", "b")]
    for _ in range(draw.randint(1, 25)):
        with env.begin(write=True) as txn:
            for _ in range(draw.randint(0, 20)):
                key, db = draw.randbytes(draw.choice((2, 8))), draw.choice(names)
                txn.put(key, draw.randbytes(draw.choice((0, 9, 900, 5000, 60_000))), db=db)
            for db in names:
                cursor = txn.cursor(db=db)
                while draw.random() < 0.9 and cursor.set_range(draw.randbytes(1)):
                    cursor.delete()
    env.close()
    return folder / "data.mdb"


def used(file: Path) -> list[bool]:
    """Whether each page is in use, as LMDB's own walk over the whole file finds."""
    with file.open("rb") as stream:
        walk = _Verifier(stream, file.stat().st_size)
        assert not walk.verify()
    return [bool(mark) for mark in walk.live]


def cuts(file: Path) -> Iterator[tuple[int, bool]]:
    """Every size to cut the file to, and whether a page in use is lost by that."""
    pages = used(file)
    for page in range(2, len(pages)):
        for size in (page * PAGE, page * PAGE + 123):
            yield size, any(pages[page:])


def refused(file: Path) -> bool:
    try:
        check_lmdb_file(file, "file")
    except DataError as error:
        return f"the file is cut short: file={file} bytes=" in error.message
    return False


def wrong(file: Path) -> list[int]:
    """The sizes about which the check is wrong."""
    whole, found = file.read_bytes(), []
    file.write_bytes(whole + bytes(max(0, len(used(file)) * PAGE - len(whole))))
    for size, lost in reversed(list(cuts(file))):
        os.truncate(file, size)
        if refused(file) != lost:
            found.append(size)
    file.write_bytes(whole)
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_every_cut_that_takes_a_page_in_use_is_refused_and_no_other(seed: int, tmp_path: Path) -> None:
    file = made(tmp_path, seed)
    assert not refused(file)
    assert not wrong(file)


def test_free_tails_and_used_tails_are_met(tmp_path: Path) -> None:
    met: set[bool] = set()
    for seed in SEEDS:
        (folder := tmp_path / str(seed)).mkdir()
        met |= {lost for _, lost in cuts(made(folder, seed))}
    assert met == {False, True}


def test_a_file_without_meta_pages_is_refused(tmp_path: Path) -> None:
    file = made(tmp_path, 1)
    for size in (0, 1, PAGE, 2 * PAGE - 1):
        os.truncate(file, size)
        assert refused(file)


def test_a_check_that_forgets_the_list_of_free_pages_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = made(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(lmdb_files, "_used_pages_lost", lambda *_: 0)
        assert wrong(file)
    monkeypatch.setattr(lmdb_files, "_free_lists", lambda *_: iter(()))
    assert any(wrong(made(folder, seed)) for seed in SEEDS if not (folder := tmp_path / str(seed)).mkdir())
