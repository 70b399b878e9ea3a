"""Notes of writers: who is ended, who is spared, what is forgotten."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dbsp import processes
from dbsp.processes import STOPPED, Writers, end_older, find_process, leave_note, noted, notes_of_others


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits."""
    made = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    yield made
    made.kill()
    made.communicate()


def note_of(folder: Path, process: subprocess.Popen[bytes], epoch: int, late: int = 0) -> Path:
    found = find_process(process.pid)
    assert found is not None
    file = folder / f"{process.pid}.{found.started + late}.{epoch}.0"
    file.touch()
    return file


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGSTOP)
    assert os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT) is not None
    found = find_process(process.pid)
    assert found is not None
    assert found.state == STOPPED


def test_a_process_that_has_ended_is_nobody(other: subprocess.Popen[bytes]) -> None:
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert find_process(other.pid) is None, "not even while its parent has not asked for it"
    other.wait()
    assert find_process(other.pid) is None


def test_a_note_lasts_as_long_as_its_block(tmp_path: Path) -> None:
    with noted(tmp_path, 3), noted(tmp_path, 3):
        assert len(list(tmp_path.iterdir())) == 2
        assert notes_of_others(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_raising_an_epoch_ends_older_writers_only(tmp_path: Path, other: subprocess.Popen[bytes]) -> None:
    leave_note(tmp_path, 1)
    (tmp_path / "notes.txt").touch()
    kept = note_of(tmp_path, other, epoch=2)
    assert end_older(tmp_path, 2) == []
    assert kept.exists()
    assert end_older(tmp_path, 3) == [other.pid]
    assert other.wait(30) == -signal.SIGKILL
    assert {file.name.split(".")[0] for file in tmp_path.iterdir()} == {"notes", str(os.getpid())}


def test_a_number_that_was_given_again_is_spared(tmp_path: Path, other: subprocess.Popen[bytes]) -> None:
    note = note_of(tmp_path, other, epoch=1, late=1)
    assert end_older(tmp_path, 2) == []
    assert not note.exists()
    assert other.poll() is None


def test_waiting_ends_the_stopped_and_spares_the_running(
    tmp_path: Path, other: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "STALL_S", 0.02)
    (tmp_path / "writers").mkdir()
    note_of(tmp_path / "writers", other, epoch=0)
    looked = threading.Event()
    find = processes.find_process

    def watched(pid: int) -> processes.Process | None:
        if pid == other.pid and threading.current_thread() is not threading.main_thread():
            looked.set()
        return find(pid)

    monkeypatch.setattr(processes, "find_process", watched)
    writers = Writers(tmp_path)
    with writers.waiting():
        assert looked.wait(30)
    for thread in threading.enumerate():
        if thread.name == "dbsp-writers":
            thread.join(30)
    assert other.poll() is None
    stop(other)
    with writers.waiting():
        assert other.wait(30) == -signal.SIGKILL
    writers.forget()
    assert [file.name.split(".")[0] for file in (tmp_path / "writers").iterdir()] == [str(other.pid)]
    with Writers(tmp_path).waiting():
        assert [file.name.split(".")[0] for file in (tmp_path / "writers").iterdir()] == [str(os.getpid())]
