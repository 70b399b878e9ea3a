"""Outputs as files pass the contract of the output logs, in every format; a consumer never sees half a file."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbsp.errors import ConfigError, DataError, FencedError
from dbsp.io import file_output
from dbsp.io.environment import LogEnvironment
from dbsp.io.file_output import FileOutputLog
from tests.io.log_contracts import OutputLogContract, Rows, by_step
from tests.io.log_samples import make_part


def read_file(path: Path) -> list[tuple[Any, int]]:
    """Weighted rows of one file, as a consumer without dbsp reads it."""
    if path.suffix == ".jsonl":
        values = [json.loads(line) for line in path.read_text().splitlines()]
        pairs = [(value, "insert" if "insert" in value else "delete") for value in values]
        return [(tuple(v[op].values()), v.get("weight", 1) * (1 if op == "insert" else -1)) for v, op in pairs]
    if path.suffix == ".arrow":
        with pa.ipc.open_stream(path.read_bytes()) as reader:
            table = reader.read_all()
    else:
        table = pq.read_table(path)
    return [(tuple(row.values())[:-1], row["weight"]) for row in table.to_pylist()]


class FileOutputHarness:
    def __init__(self, folder: Path, form: str) -> None:
        self.folder, self.form = folder, form
        self.opened: list[FileOutputLog] = []

    def open(self, worker: int = 0, first_step: int = 0) -> FileOutputLog:
        self.opened.append(FileOutputLog(self.folder, worker, format=self.form, first_step=first_step, create=True))
        return self.opened[-1]

    def consume(self, view: str) -> Rows:
        files = sorted((self.folder / view).glob("*")) if (self.folder / view).exists() else []
        return by_step((int(path.name.split("-")[1]), row) for path in files for row in read_file(path))


class TestFileOutputLog(OutputLogContract):
    @pytest.fixture(params=["parquet", "arrow", "json"])
    def harness(self, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[FileOutputHarness]:
        made = FileOutputHarness(tmp_path, request.param)
        yield made
        for log in made.opened:
            log.close()


def test_no_step_is_noted_whose_files_were_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is not next is refused, also where another process of the worker notes the one before it in this moment."""
    log, other = FileOutputLog(tmp_path, 0, create=True), FileOutputLog(tmp_path, 0)
    log.fence(1)

    def late(_: LogEnvironment, action: Callable[[Any], Any]) -> Any:
        monkeypatch.undo()
        other.write(1, 0, {"v": make_part([((1, "a"), 1)])}, [])
        return log._env.write(action)

    monkeypatch.setattr(LogEnvironment, "write", late)
    with pytest.raises(DataError, match="step=1 next=0"):
        log.write(1, 1, {"v": make_part([((2, "b"), 1)])}, [])
    monkeypatch.undo()
    assert other.bounds() == (0, 0)
    for opened in (log, other):
        opened.close()


def test_a_crash_between_file_and_progress_writes_the_step_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = FileOutputLog(tmp_path, 0, create=True)
    part = {"v": make_part([((1, "a"), 1)])}

    def crash(*_: Any) -> None:
        raise KeyboardInterrupt

    log.fence(1)
    with monkeypatch.context() as patch:
        patch.setattr(log._store, "fence", lambda _: None)
        patch.setattr(LogEnvironment, "write", crash)
        with pytest.raises(KeyboardInterrupt):
            log.write(1, 0, part, [])
    assert log.path_of("v", 0).exists()
    assert log.bounds() == (0, 0)
    log.write(2, 0, part, [])
    assert [path.name for path in (tmp_path / "v").iterdir()] == [log.path_of("v", 0).name]
    assert read_file(log.path_of("v", 0)) == [((1, "a"), 1)]
    log.trim(1)
    assert list((tmp_path / "v").iterdir()) == []
    log.write(3, 0, part, [])
    assert list((tmp_path / "v").iterdir()) == []
    log.close()


def test_nothing_is_left_of_a_file_that_could_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor, at the next start, of one whose writer is no more; what others write now is left alone."""
    log = FileOutputLog(tmp_path, 0, create=True)

    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(file_output, "sync_path", full)
        with pytest.raises(OSError, match="No space left"):
            log.write(1, 0, {"v": make_part([((1, "a"), 1)])}, [])
    assert list((tmp_path / "v").iterdir()) == []
    log.close()
    dead, alive = subprocess.Popen(["true"]), os.getppid()
    dead.wait()
    left = [f".step-{0:012d}-worker-{w}.parquet.{pid}" for w, pid in ((0, dead.pid), (0, alive), (1, dead.pid))]
    for name in left:
        (tmp_path / "v" / name).write_bytes(b"PAR1")
    FileOutputLog(tmp_path, 0).close()
    assert sorted(path.name for path in (tmp_path / "v").iterdir()) == sorted(left[1:])


def test_a_step_is_noted_in_one_synced_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = FileOutputLog(tmp_path, 0, create=True)
    log.write(1, 0, {"v": make_part([((1, "a"), 1)])}, [])
    writes: list[Any] = []
    real = LogEnvironment.write

    def counted(env: LogEnvironment, action: Any) -> Any:
        writes.append(action)
        return real(env, action)

    monkeypatch.setattr(LogEnvironment, "write", counted)
    log.write(1, 1, {"v": make_part([((2, "a"), 1)])}, [])
    assert len(writes) == 1
    log.write(2, 2, {"v": make_part([((3, "a"), 1)])}, [])
    assert len(writes) == 3  # a new epoch is noted before its first file is written
    with pytest.raises(FencedError):
        log.write(1, 3, {"v": make_part([((4, "a"), 1)])}, [])
    assert not log.path_of("v", 3).exists()
    log.close()


def test_names_and_formats(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="format=csv"):
        FileOutputLog(tmp_path, 0, format="csv", create=True)
    log = FileOutputLog(tmp_path, 0, create=True)
    with pytest.raises(ConfigError, match="view"):
        log.write(1, 0, {"../x": make_part([((1, "a"), 1)])}, [])
    log.close()
