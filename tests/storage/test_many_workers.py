"""One process opens the databases of hundreds of workers, and a database that outgrows its first map goes on."""

from __future__ import annotations

import mmap
from contextlib import ExitStack
from pathlib import Path

from dbsp.storage import MAP_SIZE_BYTES, WorkerDatabase
from dbsp.storage.environment import DatabaseEnvironment, create_environment
from tests.storage.databases import first_id

WORKERS, SIDES = 256, 3
"""A worker has its database, the steps since its version, and a standby that is written."""


def test_256_workers_with_standbys_fit_into_the_address_space() -> None:
    with ExitStack() as stack:
        for _ in range(WORKERS * SIDES):
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            stack.enter_context(mmap.mmap(-1, MAP_SIZE_BYTES, flags, mmap.PROT_READ))


def test_a_database_opens_with_maps_of_that_size(tmp_path: Path) -> None:
    database = WorkerDatabase.create(tmp_path / "w", first_id())
    try:
        database.open(0, 1)
        environments = (database._disk().environment, database._of_epoch(1)[0].environment)
        assert [environment._env.info()["map_size"] for environment in environments] == [MAP_SIZE_BYTES] * 2
    finally:
        database.close()


def test_room_is_made_before_a_map_is_full_unless_somebody_reads(tmp_path: Path) -> None:
    size = 1 << 20
    create_environment(tmp_path / "e", size, sync=False, fill=lambda txn: txn.put("values", b"a", b""))
    environment = DatabaseEnvironment(tmp_path / "e", size, sync=False)
    try:
        environment.make_room()
        assert environment._env.info()["map_size"] == size
        environment.write(lambda txn: txn.put("values", b"a", bytes(size * 6 // 10)))
        with environment.reading():
            environment.make_room()
            assert environment._env.info()["map_size"] == size
        environment.make_room()
        assert environment._env.info()["map_size"] == 2 * size
    finally:
        environment.close()
