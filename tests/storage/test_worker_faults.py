"""What can go wrong with files, processes and space: rows 11, 12, 16-19, 31, 32 of docs/faults.md."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from databases import (
    BY_KEY,
    CHUNK_BYTES,
    TRACES,
    arranged,
    checkpoint,
    content,
    first_id,
    run_step,
)

import dbsp
from dbsp.errors import (
    CapacityError,
    ConfigError,
    DataError,
    DbspError,
    FencedError,
    InternalError,
    UnavailableError,
)
from dbsp.layout import initial
from dbsp.lmdb_environments import data_file
from dbsp.plan.planner import plan as make_plan
from dbsp.runtime import inprocess
from dbsp.runtime.work import Work
from dbsp.storage import WorkerDatabase
from dbsp.storage.chunkfile import HEADER_BYTES, pack_chunk, payload_of
from dbsp.storage.discarding import discard_folder
from dbsp.storage.durable import ids_of
from dbsp.storage.examine import examine_database
from dbsp.storage.records import number_of
from dbsp.store import TraceSpec
from dbsp.trace.chunks import ChunkRef
from dbsp.zset.batch import Batch
from dbsp.zset.narrow import NarrowWeights
from dbsp.zset.schema import INT64

HERE = Path(__file__).parent
ROWS = [((key, "x" * (key % 4)), 1) for key in range(300)]


def filled(home: Path, steps: int = 1, **settings: int) -> WorkerDatabase:
    """A database with version 1 committed after some steps, still open in epoch 1."""
    database = WorkerDatabase.create(home, first_id(), chunk_bytes_max=CHUNK_BYTES, **settings)
    database.open(0, 1)
    for step in range(steps):
        run_step(database, 1, step, ROWS)
    database.commit(1, checkpoint(1, steps))
    return database


def newest(database: WorkerDatabase, trace: TraceSpec) -> Counter[tuple[int, str]]:
    with database.read_trace(trace) as spine:
        return content(spine)


def child(code: str, *args: str, under: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """A Python process that runs `code` with the test's helpers at hand."""
    head = f"import sys; sys.path.insert(0, {str(HERE)!r}); from databases import *; args = sys.argv[1:]\n"
    command = [*under, sys.executable, "-B", "-c", head + textwrap.dedent(code), *args]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> str:
    """The next line a child prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> tuple[str, str]:
    return process.communicate(timeout=60)


# ---- files


def damaged(home: Path, harm: Callable[[Path], None]) -> Path:
    database = filled(home)
    file = data_file(database.path / "durable")
    database.close()
    harm(file)
    return file


def flip(file: Path, needle: bytes, offset: int = 0) -> None:
    """Flip one bit wherever `needle` stands, in pages that are in use and in others."""
    raw = bytearray(file.read_bytes())
    for found in re.finditer(re.escape(needle), bytes(raw)):
        raw[found.start() + offset] ^= 1
    file.write_bytes(raw)


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def zero_meta(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.write(bytes(4096))


@pytest.mark.parametrize(
    "harm", [Path.unlink, lambda file: os.truncate(file, 0), cut, zero_meta], ids=["absent", "empty", "cut", "meta"]
)
def test_a_broken_file_is_refused_by_name(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    file = damaged(tmp_path / "w", harm)
    with pytest.raises(DataError, match=re.escape(str(file))):
        WorkerDatabase(tmp_path / "w")


def test_no_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no database here"):
        WorkerDatabase(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_a_flipped_bit_in_a_chunk_is_found_when_it_is_read(tmp_path: Path) -> None:
    file = damaged(tmp_path / "w", lambda file: flip(file, b"DBSPBAT", 300))
    database = WorkerDatabase(tmp_path / "w", chunk_bytes_max=CHUNK_BYTES)
    with pytest.raises(DataError, match=re.escape(f"{file} chunk=")):
        database.verify()
    database.open(1, 2)
    with pytest.raises(DataError, match=re.escape(f"{file} chunk=")):
        _ = [newest(database, trace) for trace in TRACES]
    database.close()


def rows_from(first: int, count: int) -> Batch:
    return arranged(BY_KEY, [((key, "x"), 1) for key in range(first, first + count)])


def test_chunks_of_other_rows_have_other_checksums() -> None:
    """Equal numbers, row counts and sizes: what differs is the rows alone."""
    chunks = [pack_chunk(1, rows_from(first, 40)) for first in range(0, 400, 40)]
    assert len({len(value) for value, _ in chunks}) == 1
    assert len({checksum for _, checksum in chunks}) == len(chunks)


@pytest.mark.parametrize("other", [rows_from(5000, 40), rows_from(5000, 39)], ids=["as many", "fewer"])
def test_a_chunk_of_other_rows_under_its_number_is_found(tmp_path: Path, other: Batch) -> None:
    """An older file restored, a lost write, a number used twice: each checksum inside the chunk is right."""
    database = WorkerDatabase.create(tmp_path / "w", first_id())
    database.open(0, 1)
    with database.begin(1, 0, 0, [BY_KEY]) as step:
        step.append(BY_KEY, rows_from(0, 40))
        step.finish()
    database.commit(1, checkpoint(1, 1))
    durable = database._disk()
    with durable.environment.reading() as txn:
        (key,) = txn.keys("chunks")
    swapped, _ = pack_chunk(number_of(key), other)
    durable.write(1, lambda txn: txn.put("chunks", key, swapped))
    with pytest.raises(DataError, match="not the one its manifest names"):
        database.verify()
    with pytest.raises(DataError, match="not the one its manifest names"):
        newest(database, BY_KEY)
    assert len(examine_database(tmp_path / "w", 0).findings) == 1
    database.close()


def test_a_manifest_of_other_rows_is_found(tmp_path: Path) -> None:
    """Rows and fences are compared too, where nothing else of a chunk is read."""
    value, checksum = pack_chunk(1, rows_from(0, 40))
    right = ChunkRef.of(1, rows_from(0, 40), len(value) - HEADER_BYTES, checksum)
    payload_of(value, right, tmp_path)
    for wrong in (replace(right, rows=39), replace(right, first=1), replace(right, last=1)):
        with pytest.raises(DataError, match="other rows than its manifest tells"):
            payload_of(value, wrong, tmp_path, verify=False)


def test_a_flipped_bit_in_a_version_record_is_found(tmp_path: Path) -> None:
    damaged(tmp_path / "w", lambda file: flip(file, b"fingerprint", 2))
    with pytest.raises(DbspError):
        WorkerDatabase(tmp_path / "w").versions()


def test_verify_reads_everything(tmp_path: Path) -> None:
    database = filled(tmp_path / "w", steps=3)
    report = database.verify()
    assert report.versions == (0, 1)
    assert report.chunks > 10
    assert report.bytes_read == database.state_bytes()


def test_a_database_is_not_made_over_another(tmp_path: Path) -> None:
    filled(tmp_path / "w").close()
    with pytest.raises(ConfigError, match="not empty"):
        WorkerDatabase.create(tmp_path / "w", first_id())
    assert [info.version for info in WorkerDatabase(tmp_path / "w").versions()] == [0, 1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["w"]


# ---- space


def test_a_full_map_grows_and_the_transaction_runs_again(tmp_path: Path) -> None:
    database = WorkerDatabase.create(tmp_path / "w", first_id(), map_size_bytes=160 << 10, chunk_bytes_max=CHUNK_BYTES)
    database.open(0, 1)
    state: Counter[tuple[int, str]] = Counter()
    for step in range(12):
        rows = [((1000 * step + key, "y" * 20), 1) for key in range(300)]
        state.update(dict(rows))
        run_step(database, 1, step, rows)
        database.commit(step + 1, checkpoint(1, step + 1))
    assert min(database.file_bytes().values()) > 160 << 10
    with database.read_trace(BY_KEY) as spine:
        assert content(spine) == state
    database.close()


def test_a_map_that_cannot_grow_is_a_named_limit(tmp_path: Path) -> None:
    database = WorkerDatabase.create(tmp_path / "w", first_id(), map_size_bytes=160 << 10, chunk_bytes_max=CHUNK_BYTES)
    database.open(0, 1)
    with database.read_trace(BY_KEY), pytest.raises(CapacityError, match="map_size_bytes"):
        run_step(database, 1, 0, [((key, "y" * 50), 1) for key in range(3000)])
    run_step(database, 1, 0, [((key, "y" * 50), 1) for key in range(3000)])


def test_another_process_takes_over_a_map_that_grew(tmp_path: Path) -> None:
    database = WorkerDatabase.create(tmp_path / "w", first_id(), map_size_bytes=160 << 10, chunk_bytes_max=CHUNK_BYTES)
    database.open(0, 1)
    code = """
        database = WorkerDatabase(args[0], map_size_bytes=160 << 10, chunk_bytes_max=CHUNK_BYTES)
        database.attach(1)
        run_step(database, 1, 0, [((key, "y" * 50), 1) for key in range(3000)])
        """
    out, errors = end(child(code, str(tmp_path / "w")))
    assert (out, errors) == ("", "")
    run_step(database, 1, 1, [((key, "z"), 1) for key in range(10)])
    with database.read_trace(BY_KEY) as spine:
        assert len(content(spine)) == 3010


@pytest.mark.crash
@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
def test_a_failed_write_stops_the_process_and_harms_nothing(tmp_path: Path, error: str) -> None:
    filled(tmp_path / "w").close()
    code = """
        import os
        from dbsp.errors import UnavailableError
        database = WorkerDatabase(args[0], chunk_bytes_max=CHUNK_BYTES)
        database.attach(1)
        run_step(database, 1, 1, [((7, "late"), 1)])
        for _ in range(2):
            try:
                database.commit(2, checkpoint(1, 2))
                print("committed")
            except UnavailableError as failure:
                print(failure.message)
        """
    strace = ("strace", "-f", "-qqq", "-o", "/dev/null", "-e", "trace=fdatasync")
    out, errors = end(child(code, str(tmp_path / "w"), under=(*strace, "-e", f"inject=fdatasync:error={error}:when=1")))
    first, second = out.splitlines()
    assert "cannot be used" in first, errors
    assert "an earlier write failed" in second
    database = WorkerDatabase(tmp_path / "w", chunk_bytes_max=CHUNK_BYTES)
    assert [info.version for info in database.versions()] == [0, 1]
    database.attach(1)
    assert database.commit(2, checkpoint(1, 2)).version == 2
    database.close()


# ---- processes


def test_many_processes_use_one_database(tmp_path: Path) -> None:
    """One opens; others attach, run the steps, commit; the first reads."""
    database = WorkerDatabase.create(tmp_path / "w", first_id(), chunk_bytes_max=CHUNK_BYTES)
    database.open(0, 1)
    code = """
        database = WorkerDatabase(args[0], chunk_bytes_max=CHUNK_BYTES)
        database.attach(1)
        step = int(args[1])
        run_step(database, 1, step, [((step, "x"), 1)])
        if args[2] == "commit":
            database.commit(step + 1, checkpoint(1, step + 1))
        """
    for step in range(2):
        assert end(child(code, str(tmp_path / "w"), str(step), "commit")) == ("", "")
    assert [info.version for info in database.versions()] == [1, 2]
    with database.read_trace(BY_KEY) as spine:
        assert content(spine) == {(0, "x"): 1, (1, "x"): 1}
    run_step(database, 1, 2, [((2, "x"), 1)])
    database.open(1, 2)
    _, errors = end(child(code, str(tmp_path / "w"), "1", "no"))
    assert "no scratch of this epoch" in errors


def test_use_after_a_fork_is_refused(tmp_path: Path) -> None:
    code = """
        import os, warnings
        warnings.simplefilter("ignore")
        database = WorkerDatabase.create(args[0], first_id())
        if os.fork() == 0:
            try:
                database.versions()
            except Exception as error:
                print(type(error).__name__, flush=True)
            os._exit(0)
        os.wait()
        print(len(database.versions()))
        """
    out, _ = end(child(code, str(tmp_path / "w")))
    assert out.split() == [InternalError.__name__, "1"]


STOPPED_WRITER = """
    import os, signal
    database = WorkerDatabase(args[0], chunk_bytes_max=CHUNK_BYTES)
    database.attach(1)
    def stop(*more):
        print("inside", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    if args[1] == "durable":
        type(database._both()[1])._land = stop
        run_step(database, 1, 1, [((7, "zombie"), 1)])
        database.commit(2, checkpoint(1, 2))
    else:
        type(database._both()[0]).hold = stop
        run_step(database, 1, int(args[2]), [((7, "zombie"), 1)])
    """


@pytest.mark.crash
@pytest.mark.parametrize("side", ["durable", "scratch"])
def test_a_writer_stopped_inside_a_transaction_is_ended(tmp_path: Path, side: str) -> None:
    """Without the kill, raising the epoch would wait for LMDB's lock for ever."""
    filled(tmp_path / "w").close()
    zombie = child(STOPPED_WRITER, str(tmp_path / "w"), side, "1")
    assert said(zombie) == "inside"
    database = WorkerDatabase(tmp_path / "w", chunk_bytes_max=CHUNK_BYTES)
    database.raise_epoch(2)
    assert zombie.wait(timeout=10) == -signal.SIGKILL
    end(zombie)
    assert database.open(1, 2) == checkpoint(1, 1)
    run_step(database, 2, 1, [((8, "new"), 1)])
    database.close()


@dataclass(frozen=True)
class OneDatabase:
    """As much of a site as fencing and copying take."""

    home: WorkerDatabase

    def database(self, _: int) -> WorkerDatabase:
        return self.home

    def restore_database(self, _worker: int, _epoch: int, _since: int) -> bool:
        return False


@pytest.mark.crash
@pytest.mark.timeout(60)
def test_a_copy_that_waits_for_a_stopped_step_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit to its patience, the fence would wait for the copy, and the copy for the lock, for ever."""
    monkeypatch.setattr(inprocess, "COPY_WAIT_S", 0.2)
    database = filled(tmp_path / "w")
    run_step(database, 1, 1, [((8, "new"), 1)])
    database.pin(2, checkpoint(1, 2))
    zombie = child(STOPPED_WRITER, str(tmp_path / "w"), "scratch", "2")
    assert said(zombie) == "inside"
    resources: Any = OneDatabase(database)
    runtime = inprocess.InProcessRuntime(Work(resources=resources, plan=make_plan(plain_circuit()), run="run"))
    copied = runtime.copy(2, checkpoint(1, 2), initial(1))
    assert runtime.fence(2, (0,)) == ()
    assert zombie.wait(timeout=10) == -signal.SIGKILL
    end(zombie)
    assert copied.done()
    assert database.open(2, 2) == checkpoint(1, 2)
    database.close()


def plain_circuit() -> dbsp.Circuit:
    return dbsp.circuit("plain", {"v": dbsp.table("t", {"k": INT64})})


@pytest.mark.crash
def test_a_zombie_outside_a_transaction_is_fenced(tmp_path: Path) -> None:
    filled(tmp_path / "w").close()
    code = """
        import sys
        from dbsp.errors import FencedError
        database = WorkerDatabase(args[0], chunk_bytes_max=CHUNK_BYTES)
        database.attach(1)
        with database.begin(1, 1, 0, SEGMENTS[0]) as step:
            step.append(BY_KEY, arranged(BY_KEY, [((7, "zombie"), 1)]))
            print("ready", flush=True)
            sys.stdin.readline()
            for write in (step.finish, lambda: database.commit(2, checkpoint(1, 1)), lambda: database.set_step(1, 3)):
                try:
                    write()
                    print("written")
                except FencedError:
                    print("fenced")
        """
    zombie = child(code, str(tmp_path / "w"))
    assert said(zombie) == "ready"
    os.kill(zombie.pid, signal.SIGSTOP)
    database = WorkerDatabase(tmp_path / "w", chunk_bytes_max=CHUNK_BYTES)
    database.raise_epoch(2)
    database.open(1, 2)
    run_step(database, 2, 1, [((8, "new"), 1)])
    database.commit(2, checkpoint(2, 2))
    os.kill(zombie.pid, signal.SIGCONT)
    out, _ = zombie.communicate("go\n", timeout=60)
    assert out.split() == ["fenced"] * 3
    with database.read_trace(BY_KEY) as spine:
        assert content(spine) == Counter(dict(ROWS)) + Counter({(8, "new"): 1})
    database.close()


def test_a_living_process_with_another_start_time_is_spared(tmp_path: Path) -> None:
    database = filled(tmp_path / "w")
    innocent = child("sys.stdin.readline()")
    note = tmp_path / "w" / "writers" / f"{innocent.pid}.1.1.0"
    note.touch()
    database.raise_epoch(2)
    assert innocent.poll() is None
    assert not note.exists()
    innocent.communicate("\n", timeout=30)
    assert innocent.returncode == 0


def test_readers_of_dead_processes_are_forgotten(tmp_path: Path) -> None:
    filled(tmp_path / "w").close()
    code = """
        import os, signal
        database = WorkerDatabase(args[0])
        database.attach(1)
        with database.read_trace(BY_KEY):
            os.kill(os.getpid(), signal.SIGKILL)
        """
    end(child(code, str(tmp_path / "w")))
    database = WorkerDatabase(tmp_path / "w", chunk_bytes_max=CHUNK_BYTES)
    environment = database._disk().environment
    assert "no active readers" in environment._env.readers()
    database.close()


# ---- cost


def test_a_commit_costs_what_changed(tmp_path: Path) -> None:
    """Bytes written, not time: 1 % of the rows changed may cost 5 % of the first commit."""
    kit_chunks = 64 << 10
    database = WorkerDatabase.create(tmp_path / "w", first_id(), chunk_bytes_max=kit_chunks)
    database.open(0, 1)
    for step in range(4):
        run_step(database, 1, step, [((key, "x" * 8), 1) for key in range(step, 40_000, 4)])
    first = database.commit(1, checkpoint(1, 4))
    run_step(database, 1, 4, [((key, "changed"), 1) for key in range(400)])
    second = database.commit(2, checkpoint(1, 5))
    assert first.bytes_written >= first.state_bytes
    assert 0 < second.bytes_written <= first.bytes_written * 5 // 100
    database.close()


def test_a_held_reader_keeps_pages_and_the_file_size_shows_it(tmp_path: Path) -> None:
    database = filled(tmp_path / "w")
    before = database.file_bytes()["scratch"]
    with database.read_trace(BY_KEY):
        for step in range(1, 30):
            run_step(database, 1, step, [(row, (-1) ** step) for row, _ in ROWS])
    assert database.file_bytes()["scratch"] > before
    database.close()


def test_chunks_that_nobody_refers_to_are_deleted(tmp_path: Path) -> None:
    """Invariant 12, the other way round: nothing else stays."""
    database = filled(tmp_path / "w")
    for step in range(1, 12):
        run_step(database, 1, step, [((step * 1000 + key, "x"), 1) for key in range(100)])
        if step % 3 == 0:
            database.commit(step // 3 + 1, checkpoint(1, step + 1))
    scratch, durable = database._both()
    with durable.environment.reading() as txn:
        records = [durable.record(txn, info.version) for info in durable.versions(txn)]
        found = {int.from_bytes(key, "big") for key in txn.keys("chunks")}
    assert found == set(ids_of(records).tolist())
    with scratch.environment.reading() as txn:
        kept = set(ids_of(scratch.all_records(txn)).tolist())
        here = {int.from_bytes(key, "big") for key in txn.keys("chunks")}
    assert here <= kept
    database.close()


def test_columns_lie_on_64_byte_boundaries_of_the_map(tmp_path: Path) -> None:
    database = WorkerDatabase.create(tmp_path / "w", first_id())
    database.open(0, 1)
    run_step(database, 1, 0, [*ROWS, ((-1, "twice"), 2)])  # weights that are all 1 are not stored
    database.commit(1, checkpoint(1, 1))
    with database.read_trace(BY_KEY) as spine:
        (part,) = spine.parts()
        assert isinstance(part.held_weights, NarrowWeights)
        assert part.held_weights.columns[0].ctypes.data % 64 == 0
        assert part.words[0].ctypes.data % 64 == 0
        assert all(column.buffers()[1].address % 64 == 0 for column in part.columns)
    with pytest.raises(InternalError, match="ended"):
        list(spine.parts())
    database.close()


def test_an_older_copy_swapped_in_has_another_id(tmp_path: Path) -> None:
    database = filled(tmp_path / "w")
    database.close()
    shutil.copytree(tmp_path / "w", tmp_path / "old")
    database = WorkerDatabase(tmp_path / "w", chunk_bytes_max=CHUNK_BYTES)
    database.open(1, 5)
    database.commit(2, replace(checkpoint(5, 1), layout_version=2))
    database.close()
    old = WorkerDatabase(tmp_path / "old", chunk_bytes_max=CHUNK_BYTES)
    assert {info.checkpoint for info in old.versions()}.isdisjoint({replace(checkpoint(5, 1), layout_version=2)})
    with pytest.raises(UnavailableError):
        old.open(2, 6)


def test_a_scratch_that_was_replaced_is_found_again(tmp_path: Path) -> None:
    first = filled(tmp_path / "w")
    second = WorkerDatabase(tmp_path / "w", chunk_bytes_max=CHUNK_BYTES)
    second.open(1, 2)
    run_step(first, 2, 1, [((7, "x"), 1)])
    with pytest.raises(FencedError):
        second.raise_epoch(0)
    with second.read_trace(BY_KEY) as spine:
        assert content(spine)[(7, "x")] == 1


def test_a_worker_that_came_back_is_read_through_an_older_handle(tmp_path: Path) -> None:
    first = filled(tmp_path / "w")
    keeps_the_inode = data_file(tmp_path / "w" / "durable").open("rb")
    discard_folder(tmp_path / "w", 1)
    second = WorkerDatabase.create(tmp_path / "w", checkpoint(2, 1), 1)
    second.open(1, 2)
    run_step(second, 2, 1, [((7, "x"), 1)])
    second.close()
    first.attach(2)
    with first.read_trace(BY_KEY) as spine:
        assert content(spine) == {(7, "x"): 1}
    keeps_the_inode.close()


def test_old_scratches_are_gone_at_once_and_deleted_while_steps_go_on(tmp_path: Path) -> None:
    """Their names are free when `open` returns; their files go at the second step, and a new scratch is none of them."""
    database = filled(tmp_path / "worker", steps=3)
    old = {folder.name for folder in database.path.iterdir() if folder.name.startswith("scratch-")}
    database.open(1, 2)

    def folders(prefix: str) -> list[str]:
        return [folder.name for folder in database.path.iterdir() if folder.name.startswith(prefix)]

    assert len(folders("scratch-")) == 1
    assert not old & set(folders("scratch-"))
    assert len(folders("rubbish-")) == 1
    run_step(database, 2, 3, ROWS)
    assert len(folders("rubbish-")) == 1
    run_step(database, 2, 4, ROWS)
    database.open(1, 3)
    assert len(folders("rubbish-")) == 1, "that of epoch 2; the other one was deleted"
    database.close()
    assert not folders("rubbish-")
    assert WorkerDatabase(database.path).versions()
