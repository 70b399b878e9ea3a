"""What a worker keeps of a migration: enough for the last two steps, no more, and the same if a task comes twice or late."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dbsp.distribute.keys import Keys, keys_of
from dbsp.errors import DataError
from dbsp.runtime import migration_state as module
from dbsp.runtime.migration_state import TABLE, MigrationState, keep, kept_after, keys_kept
from dbsp.storage import WorkerDatabase
from dbsp.store import CheckpointId, Database
from dbsp.trace.memory import MemoryDatabase

FIRST = CheckpointId(run="r", epoch=1, step=0, layout_version=0, fingerprint="f")
KEYS = keys_of(np.arange(1, 11) << 50)


@pytest.fixture(params=["memory", "lmdb"])
def database(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    monkeypatch.setattr(module, "PIECE_KEYS", 4)
    made: Database = (
        MemoryDatabase(FIRST)
        if request.param == "memory"
        else WorkerDatabase.create(tmp_path, FIRST, map_size_bytes=1 << 24)
    )
    made.open(0, 1)
    yield made
    made.close()


def kept(gone: int, found: int = 5, keys: int = len(KEYS)) -> MigrationState:
    return MigrationState(distributor=b"as of %d" % gone, found=found, keys=keys, gone=gone)


def pieces(database: Database, found: int = 5) -> list[int]:
    return [n for n in range(4) if database.get(TABLE, module._PIECE.pack(found, n)) is not None]


def left(database: Database, step: int, count: int | None = None) -> Keys:
    return keys_kept(database, kept_after(database, step), count)


def test_keys_are_written_once_and_go_piece_by_piece(database: Database) -> None:
    keep(database, 1, 5, kept(0), True, KEYS)
    assert left(database, 5).tolist() == KEYS.tolist()
    assert left(database, 5, 5).tolist() == KEYS[:5].tolist()
    assert pieces(database) == [0, 1, 2]
    for step, gone in ((6, 3), (7, 4), (8, 9), (9, 10)):
        keep(database, 1, step, kept(gone), False)
        assert left(database, step).tolist() == KEYS[gone:].tolist()
        assert left(database, step, 2).tolist() == KEYS[gone : gone + 2].tolist()
        assert left(database, step - 1).size > 0, "the step before can be run again"
    assert pieces(database) == [2]
    with pytest.raises(DataError, match="no distributor for a migration under way: step=7 kept=\\[8, 9\\]"):
        kept_after(database, 7)


def test_again_and_late_change_nothing(database: Database) -> None:
    keep(database, 1, 5, kept(0), True, KEYS)
    keep(database, 1, 6, kept(4), False)
    keep(database, 1, 6, kept(4), False)
    keep(database, 1, 7, kept(6), False)
    for step, gone in ((6, 4), (5, 0)):
        keep(database, 1, step, kept(gone), step == 5, KEYS if step == 5 else KEYS[:0])
    assert left(database, 7).tolist() == KEYS[6:].tolist()
    assert left(database, 6).tolist() == KEYS[4:].tolist()
    assert pieces(database) == [1, 2]


def test_what_is_found_anew_takes_the_place_of_what_was_found_before(database: Database) -> None:
    keep(database, 1, 5, kept(0), True, KEYS)
    keep(database, 1, 6, kept(0, found=6, keys=3), False, KEYS[:3])
    assert left(database, 5).tolist() == KEYS.tolist()
    assert left(database, 6).tolist() == KEYS[:3].tolist()
    keep(database, 1, 7, kept(1, found=6, keys=3), False)
    assert (pieces(database, 5), pieces(database, 6)) == ([], [0])


def test_the_next_migration_leaves_nothing_of_the_last_one(database: Database) -> None:
    keep(database, 1, 5, kept(0), True, KEYS)
    keep(database, 1, 6, kept(9), False)
    keep(database, 1, 9, kept(0, found=9, keys=1), True, KEYS[:1])
    assert (pieces(database, 5), pieces(database, 9)) == ([], [0])
    with pytest.raises(DataError, match="step=6 kept=\\[9\\]"):
        kept_after(database, 6)


def test_damage_is_told(database: Database) -> None:
    keep(database, 1, 5, kept(0), True, KEYS)
    name = module._PIECE.pack(5, 0)
    piece = database.get(TABLE, name)
    assert piece is not None
    database.put(1, TABLE, name, piece[:-1] + b"\x07")
    with pytest.raises(DataError, match="damaged: found=5 piece=0"):
        left(database, 5)
    database.put(1, TABLE, name, None)
    with pytest.raises(DataError, match="missing: found=5 piece=0"):
        left(database, 5)
    entry = database.get(TABLE, b"odd")
    assert entry is not None
    database.put(1, TABLE, b"odd", entry[:-1] + b"\x07")
    with pytest.raises(DataError, match="a worker keeps of a migration is damaged"):
        kept_after(database, 5)
