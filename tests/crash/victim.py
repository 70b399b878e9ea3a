"""A process that forks a child per line of its input; the child does one thing to a database and is killed in the middle.

Run under `strace -f -e inject=CALLS:signal=SIGKILL:when=KILL_AT`: strace counts per process, so a child that first makes
KILL_AT - n harmless calls dies at its n-th real one. Input: one JSON object per line; output: `<wait status>` per line.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "storage"))

from databases import CHUNK_BYTES, TRACES, arranged, checkpoint, first_id, run_step

import dbsp.storage.durable as durable_module
from dbsp.storage import WorkerDatabase, redistribute
from dbsp.storage.scratch import Scratch
from dbsp.storage.standby import Standby

KILL_AT = 100
CALLS = ("pwrite64", "writev", "pwritev", "fdatasync", "fsync", "msync", "ftruncate", "rename", "renameat2", "unlinkat")
BOUNDED_COPY_BYTES = 8000
PIECE_BYTES = 2000
STANDBY_PIECE_BYTES = 20_000
BESIDE = range(3, 7)


def rows_of(step: int) -> list[tuple[tuple[int, str], int]]:
    """What a step adds: some rows of its own, and it takes back a part of the step before."""
    own = [((100 * step + key, "x" * (key % 3)), 1) for key in range(60)]
    return own + [((100 * (step - 1) + key, "x" * (key % 3)), -1) for key in range(0, 60, 4) if step]


def expected(steps: int) -> dict[tuple[int, str], int]:
    """The state after so many steps."""
    state: dict[tuple[int, str], int] = {}
    for step in range(steps):
        for row, weight in rows_of(step):
            state[row] = state.get(row, 0) + weight
    return {row: weight for row, weight in state.items() if weight}


def prepare(home: Path, *standbys: Path) -> None:
    """A database with versions 1 and 2, opened at 2 in epoch 1, and one step more in its scratch."""
    database = WorkerDatabase.create(
        home, first_id(), map_size_bytes=1 << 22, chunk_bytes_max=CHUNK_BYTES, standbys=standbys
    )
    database.open(0, 1)
    for step in range(3):
        run_step(database, 1, step, rows_of(step))
        database.put(1, "t", b"step", b"%d" % step)
        if step < 2:
            database.commit(step + 1, checkpoint(1, step + 1))
    database.close()


def prepare_with_standby(home: Path) -> None:
    """The same in `worker`, with a standby beside it."""
    prepare(home / "worker", home / "standby")


def attached(home: Path, *standbys: Path) -> WorkerDatabase:
    database = WorkerDatabase(home, map_size_bytes=1 << 22, chunk_bytes_max=CHUNK_BYTES, standbys=standbys)
    database.attach(1)
    return database


def commit(home: Path) -> None:
    attached(home).commit(3, checkpoint(1, 3))


def commit_with_standby(home: Path) -> None:
    """The standby gets its copy in pieces, as beside steps."""
    database = attached(home / "worker", home / "standby")
    database.pin(3, checkpoint(1, 3))
    while database.copy(3, checkpoint(1, 3), bytes_max=STANDBY_PIECE_BYTES) is None:
        pass


def restore(home: Path) -> None:
    Standby(home / "standby", 1 << 22).restore(home / "worker", 2)


def commit_beside_steps(home: Path) -> None:
    """Pin after step 2, then steps 3 to 6, each with a piece of the copy behind it; then the rest."""
    database = attached(home)
    database.pin(3, checkpoint(1, 3))
    for step in BESIDE:
        run_step(database, 1, step, rows_of(step))
        database.put(1, "t", b"step", b"%d" % step)
        database.copy(3, checkpoint(1, 3), bytes_max=PIECE_BYTES)
    database.copy(3, checkpoint(1, 3))


def roll_back(home: Path) -> None:
    database = WorkerDatabase(home, map_size_bytes=1 << 22, chunk_bytes_max=CHUNK_BYTES)
    database.open(1, 2)


def step_on(home: Path) -> None:
    run_step(attached(home), 1, 3, rows_of(3))


def rescale(home: Path) -> None:
    database = WorkerDatabase(home, map_size_bytes=1 << 22, chunk_bytes_max=CHUNK_BYTES)
    redistribute({0: (database, [(0, 1 << 63)])}, database, 3, checkpoint(2, 2), TRACES)


def create(home: Path) -> None:
    WorkerDatabase.create(home / "new", first_id(), map_size_bytes=1 << 22)


ACTIONS: dict[str, Callable[[Path], None]] = {
    "commit": commit,
    "commit_beside_steps": commit_beside_steps,
    "roll_back": roll_back,
    "step": step_on,
    "rescale": rescale,
    "create": create,
    "commit_with_standby": commit_with_standby,
    "restore": restore,
}


def plant_land_first() -> None:
    """The bug that the sweep must find: the version lands before its chunks are copied."""
    real_copy, real_land = durable_module.Durable.copy_in, durable_module.Durable.land
    waiting: list[Any] = []

    def late(self: Any, epoch: int, values: Iterable[tuple[int, Any]]) -> tuple[int, int]:
        kept = [(number, bytes(value)) for number, value in values]
        waiting.append((epoch, kept))
        return len(kept), sum(len(value) for _, value in kept)

    def land(self: Any, root: Any) -> Any:
        landed = real_land(self, root)
        for epoch, kept in waiting:
            real_copy(self, epoch, iter(kept))
        return landed

    durable_module.Durable.copy_in = late  # type: ignore[method-assign, assignment]
    durable_module.Durable.land = land  # type: ignore[method-assign]


def plant_forget_pins() -> None:
    """The bug that the sweep must find: a step deletes chunks that only the pin refers to."""
    Scratch.pins = lambda self, txn: []  # type: ignore[method-assign]


def shifted(call: str, times: int) -> None:
    """Make harmless calls of one kind."""
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "file").open("w+b") as file:
        number = file.fileno()
        other = Path(folder) / "other"
        harmless: dict[str, Callable[[], Any]] = {
            "pwrite64": lambda: os.pwrite(number, b"x", 0),
            "writev": lambda: os.writev(number, [b"x"]),
            "pwritev": lambda: os.pwritev(number, [b"x"], 0),
            "fdatasync": lambda: os.fdatasync(number),
            "fsync": lambda: os.fsync(number),
            "ftruncate": lambda: os.ftruncate(number, 0),
            "rename": lambda: other.rename(other),
        }
        other.touch()
        for _ in range(times):
            harmless[call]()


def lines() -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        yield json.loads(line)


def main() -> None:
    durable_module.COPY_BYTES = BOUNDED_COPY_BYTES
    if "--land-first" in sys.argv:
        plant_land_first()
    if "--forget-pins" in sys.argv:
        plant_forget_pins()
    arranged(TRACES[0], rows_of(0))
    for order in lines():
        child = os.fork()
        if child == 0:
            shifted(order["call"], KILL_AT - order["point"])
            ACTIONS[order["action"]](Path(order["home"]))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
