"""kill -9 at every system call by which LMDB writes: what is found afterwards is v, or v and v + 1, whole (invariants 3, 8)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "storage")]

import victim  # noqa: E402 (the path must be set first)
from databases import CHUNK_BYTES, TRACES, checkpoint, content, run_step  # noqa: E402

from dbsp.errors import DbspError, UnavailableError  # noqa: E402
from dbsp.storage import WorkerDatabase  # noqa: E402
from dbsp.storage.standby import Standby  # noqa: E402
from tests.pace import start, stride  # noqa: E402

pytestmark = pytest.mark.crash

SWEPT = ("pwrite64", "writev", "fdatasync", "fsync", "rename")
POINTS_MAX = 90
WRITES_PARTS = 3
"""One of so many writes is a point at which a process is killed in `make test`; all of them in `make soak`."""
KILLED = 9


class Victims:
    """The forking process under strace."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, action: str, call: str, point: int, home: Path) -> bool:
        """Let a child do the action; whether it was killed at that point (it may end before)."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"action": action, "call": call, "point": point, "home": str(home)}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        assert status in (0, KILLED), f"the child failed by itself: status={status}"
        return status == KILLED


@contextmanager
def victims(*flags: str) -> Iterator[Victims]:
    calls = ",".join(victim.CALLS)
    strace = ["strace", "-f", "-qqq", "-o", "/dev/null", "-e", f"trace={calls}"]
    strace += ["-e", f"inject={calls}:signal=SIGKILL:when={victim.KILL_AT}"]
    command = [*strace, sys.executable, "-B", str(Path(victim.__file__)), *flags]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Victims(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=60)


@pytest.fixture(scope="module")
def under() -> Iterator[Victims]:
    """One for all tests: it loads the engine under strace, which takes longer than most sweeps."""
    with victims() as made:
        yield made


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("prepared") / "worker"
    victim.prepare(home)
    return home


def sweep(
    under: Victims, action: str, prepared: Path, tmp_path: Path, check: Callable[[Path], None], writes_apart: int = 1
) -> dict[str, int]:
    """Kill the action at each call in turn until it ends by itself; the last that killed, per call.

    Of writes, which are many and alike, one in so many; at each commit of the repository others of them (`tests.pace`).
    """
    killed: dict[str, int] = {}
    for call in SWEPT:
        parts = WRITES_PARTS * writes_apart if call == "pwrite64" else 1
        for point in range(1 + start(parts), POINTS_MAX, stride(parts)):
            home = tmp_path / "killed"
            shutil.rmtree(home, ignore_errors=True)
            shutil.copytree(prepared, home)
            if not under.run(action, call, point, home):
                break
            killed[call] = point
            check(home)
        else:
            raise AssertionError(f"more calls than expected: call={call}")
    return killed


def reopened(home: Path) -> WorkerDatabase:
    return WorkerDatabase(home, map_size_bytes=1 << 22, chunk_bytes_max=CHUNK_BYTES)


def check_version(database: WorkerDatabase, version: int, epoch: int) -> None:
    """The version is whole: all its chunks, its values, its step; and steps go on from it."""
    database.open(version, epoch)
    database.verify()
    for trace in TRACES:
        with database.read_trace(trace) as spine:
            assert content(spine) == Counter(victim.expected(version))
    assert database.get("t", b"step") == b"%d" % (version - 1)
    run_step(database, epoch, version, victim.rows_of(version))


def check_commit(home: Path) -> None:
    """Version 2, or 2 and 3; the newest is whole, and the older one beside it too."""
    copy = home.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(home, copy)
    for folder, pick in ((home, max), (copy, min)):
        database = reopened(folder)
        found = [info.version for info in database.versions()]
        assert found in ([1, 2], [2, 3])
        check_version(database, pick(found), 2)
        database.close()


def aside(home: Path) -> Path:
    """A copy of what the killed process left, for a check of its own."""
    copied = home.with_name("aside")
    shutil.rmtree(copied, ignore_errors=True)
    shutil.copytree(home, copied)
    return copied


def test_commit_killed_anywhere(under: Victims, prepared: Path, tmp_path: Path) -> None:
    """The versions are whole; and another process of the same epoch repeats the commit: it ends as if nothing had happened."""

    def check(home: Path) -> None:
        check_commit(aside(home))
        database = reopened(home)
        database.attach(1)
        report = database.commit(3, checkpoint(1, 3))
        assert report == database.commit(3, checkpoint(1, 3))
        assert [info.version for info in database.versions()] == [2, 3]
        run_step(database, 1, 3, victim.rows_of(3))
        database.commit(4, checkpoint(1, 4))
        check_version(database, 3, 2)
        database.close()

    killed = sweep(under, "commit", prepared, tmp_path, check)
    assert killed["fdatasync"] >= 3
    assert killed["pwrite64"] >= 5


@pytest.fixture(scope="module")
def with_standby(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("with standby") / "both"
    victim.prepare_with_standby(home)
    return home


def restored(home: Path) -> WorkerDatabase:
    """The database, made again from its standby."""
    shutil.rmtree(home / "worker", ignore_errors=True)
    Standby(home / "standby", 1 << 22).restore(home / "worker", 2)
    return reopened(home / "worker")


def test_a_standby_killed_anywhere_holds_what_was_told(under: Victims, with_standby: Path, tmp_path: Path) -> None:
    """The database is lost with the process: the version before the commit is there, or the new one, whole."""

    def check(home: Path) -> None:
        copy = home.with_name("copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(home, copy)
        database = restored(copy)
        found = [info.version for info in database.versions()]
        assert found in ([1, 2], [2], [2, 3])
        check_version(database, max(found), 3)
        database.close()
        check_commit(home / "worker")

    killed = sweep(under, "commit_with_standby", with_standby, tmp_path, check, writes_apart=4)
    assert killed["fdatasync"] >= 6


def test_restoring_killed_anywhere_is_done_again(under: Victims, with_standby: Path, tmp_path: Path) -> None:
    lost = tmp_path / "lost"
    shutil.copytree(with_standby, lost)
    shutil.rmtree(lost / "worker")

    def check(home: Path) -> None:
        if (home / "worker").exists():
            check_commit(home / "worker")
        database = restored(home)
        assert [info.version for info in database.versions()] == [1, 2]
        check_version(database, 2, 3)
        database.close()

    assert sweep(under, "restore", lost, tmp_path, check, writes_apart=4)


def test_commit_beside_steps_killed_anywhere(under: Victims, prepared: Path, tmp_path: Path) -> None:
    """Steps run between the pieces of the copy; version 3 is the cut, whatever they did since.

    And another process of the same epoch goes on with the copy and the steps: it ends as if nothing had happened.
    """

    def check(home: Path) -> None:
        check_commit(aside(home))
        database = reopened(home)
        database.attach(1)
        report = database.commit(3, checkpoint(1, 3))
        assert report == database.copy(3, checkpoint(1, 3))
        for step in victim.BESIDE:
            with suppress(UnavailableError):  # this step is done, and the one behind it too
                run_step(database, 1, step, victim.rows_of(step))
        for trace in TRACES:
            with database.read_trace(trace) as spine:
                assert content(spine) == Counter(victim.expected(victim.BESIDE.stop))
        check_version(database, 3, 2)
        database.close()

    killed = sweep(under, "commit_beside_steps", prepared, tmp_path, check, writes_apart=2)
    assert killed["fdatasync"] >= 4
    assert killed["pwrite64"] >= 8


def test_rollback_killed_anywhere(under: Victims, prepared: Path, tmp_path: Path) -> None:
    def check(home: Path) -> None:
        database = reopened(home)
        assert [info.version for info in database.versions()] in ([1, 2], [1])
        check_version(database, 1, 3)
        database.close()

    assert sweep(under, "roll_back", prepared, tmp_path, check)["rename"] >= 1


def test_step_killed_anywhere(under: Victims, prepared: Path, tmp_path: Path) -> None:
    """The step runs again in the same epoch, and appears once."""

    def check(home: Path) -> None:
        database = reopened(home)
        database.attach(1)
        run_step(database, 1, 3, victim.rows_of(3))
        for trace in TRACES:
            with database.read_trace(trace) as spine:
                assert content(spine) == Counter(victim.expected(4))
        database.close()

    assert sweep(under, "step", prepared, tmp_path, check)


def test_rescale_killed_anywhere(under: Victims, prepared: Path, tmp_path: Path) -> None:
    """The target holds the old version, or the new one beside it, which has exactly its half of the hashes."""

    def check(home: Path) -> None:
        database = reopened(home)
        found = [info.version for info in database.versions()]
        assert found in ([1, 2], [2, 3])
        if 3 not in found:
            check_version(database, 2, 3)
        else:
            database.open(3, 3)
            database.verify()
            with database.read_trace(TRACES[0]) as spine:
                half = content(spine)
                assert all((part.words[0] >> 63 == 0).all() for part in spine.parts())
            assert half.items() <= victim.expected(2).items()
        database.close()

    assert sweep(under, "rescale", prepared, tmp_path, check)


def test_creation_killed_anywhere(under: Victims, prepared: Path, tmp_path: Path) -> None:
    def check(home: Path) -> None:
        if (home / "new").exists():
            database = WorkerDatabase(home / "new")
        else:
            database = WorkerDatabase.create(home / "new", checkpoint(1, 0))
        assert [info.version for info in database.versions()] == [0]
        database.close()

    assert sweep(under, "create", prepared, tmp_path, check)["rename"] == 1


def test_the_sweep_finds_a_planted_bug(prepared: Path, tmp_path: Path) -> None:
    """A commit that lands before it copies must not pass."""

    class FoundError(Exception):
        """The sweep has seen it."""

    def check(home: Path) -> None:
        try:
            check_commit(home)
        except (AssertionError, DbspError) as error:
            raise FoundError from error

    with victims("--land-first") as under, pytest.raises(FoundError):
        sweep(under, "commit", prepared, tmp_path, check)


def test_the_sweep_finds_a_deleted_pin(prepared: Path, tmp_path: Path) -> None:
    """Steps that delete what only the pin refers to must not pass."""
    with victims("--forget-pins") as under, pytest.raises(AssertionError, match="failed by itself"):
        sweep(under, "commit_beside_steps", prepared, tmp_path, check_commit)
