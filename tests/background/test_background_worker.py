"""Background workers: the same answers from a thread and from a process; what a process leaves when it, or its
owner, is killed."""

from __future__ import annotations

import os
import pickle
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from dbsp.errors import DataError, FencedError, InternalError, UnavailableError
from dbsp.processes import Process, find_process
from dbsp.runtime.background import (
    BackgroundLostError,
    BackgroundProcess,
    BackgroundProcesses,
    BackgroundThread,
    BackgroundWorker,
    Job,
    finish,
)
from dbsp.runtime.background.place import place_of, sweep
from tests.background.kinds import KINDS

READY_S = 60.0


@pytest.fixture
def owner() -> Iterator[Process]:
    """A process for background workers to end with."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    found = find_process(child.pid)
    assert found is not None
    yield found
    child.kill()
    child.wait()
    assert child.stdin is not None
    child.stdin.close()


@pytest.fixture
def process(owner: Process, tmp_path: Path) -> Iterator[BackgroundProcess]:
    background_worker = BackgroundProcesses(str(tmp_path), KINDS, owner).of(3)
    assert background_worker is not None
    background_worker.ready(READY_S)
    yield background_worker
    background_worker.close()


@pytest.fixture(params=["thread", "process"])
def background_worker(request: pytest.FixtureRequest) -> Iterator[BackgroundWorker]:
    if request.param == "process":
        yield request.getfixturevalue("process")
        return
    thread = BackgroundThread(3, KINDS)
    yield thread
    thread.close()


def job(kind: str, *arguments: object, key: str = "k", epoch: int = 1) -> Job:
    return Job(kind=kind, key=key, epoch=epoch, arguments=arguments)


def run(background_worker: BackgroundWorker, wanted: Job) -> object:
    background_worker.start(wanted)
    return finish(background_worker, wanted, 30.0)


def until(true: Callable[[], bool], limit_s: float = 20.0) -> None:
    deadline, pause = time.monotonic() + limit_s, threading.Event()
    while not true():
        assert time.monotonic() < deadline
        pause.wait(0.01)


@pytest.mark.parametrize("size", [0, 1, 7, 300_000])
def test_results_come_back_once(background_worker: BackgroundWorker, size: int) -> None:
    numbers = np.arange(size)
    wanted = job("double", numbers)
    np.testing.assert_array_equal(run(background_worker, wanted), numbers * 2)
    assert background_worker.wait(wanted).state == "absent"
    with pytest.raises(BackgroundLostError):
        background_worker.take(wanted)


def test_errors_come_back_as_they_are(background_worker: BackgroundWorker) -> None:
    with pytest.raises(DataError) as caught:
        run(background_worker, job("fail", "what is wrong"))
    assert (caught.value.message, caught.value.hint) == ("what is wrong", "a hint")
    with pytest.raises(InternalError, match="ZeroDivisionError"):
        run(background_worker, job("crash"))
    with pytest.raises(InternalError, match="does not do this"):
        background_worker.start(job("os:system"))


def test_progress_and_cancel(background_worker: BackgroundWorker, tmp_path: Path) -> None:
    wanted = job("long", 5, str(tmp_path / "trace"))
    background_worker.start(wanted)
    background_worker.start(wanted)
    until(lambda: background_worker.wait(wanted).done == 5)
    assert background_worker.wait(wanted).state == "running"
    with pytest.raises(BackgroundLostError):
        finish(background_worker, wanted, 0.0)
    background_worker.cancel(wanted)
    assert background_worker.wait(wanted).state == "absent"
    until((tmp_path / "trace").exists)


def test_an_older_epoch_is_refused_and_a_newer_one_begins_from_nothing(
    background_worker: BackgroundWorker, tmp_path: Path
) -> None:
    trace, thing = tmp_path / "trace", str(tmp_path / "thing")
    assert [run(background_worker, job("use", thing))[1] for _ in range(3)] == [1, 2, 3]  # type: ignore[index]
    old = job("long", 1, str(trace))
    background_worker.start(old)
    kept = job("double", np.arange(3))
    background_worker.start(kept)
    until(lambda: background_worker.wait(kept).state == "done")
    assert background_worker.wait(job("double", epoch=2)).state == "absent"
    until(trace.exists)
    until(lambda: Path(thing).exists() and Path(thing).read_text() == "closed\n")
    for call in (background_worker.start, background_worker.wait, background_worker.take, background_worker.cancel):
        with pytest.raises(FencedError):
            call(old)
    assert run(background_worker, job("use", thing, epoch=2))[1] == 1  # type: ignore[index]


def test_of_one_kind_the_oldest_goes(background_worker: BackgroundWorker, tmp_path: Path) -> None:
    old = job("long", 1, str(tmp_path / "trace"), key="old")
    background_worker.start(old)
    background_worker.start(job("long", 1, str(tmp_path / "other"), key="new"))
    until((tmp_path / "trace").exists)
    assert background_worker.wait(old).state == "absent"


def test_a_process_is_found_again_and_is_one(process: BackgroundProcess, owner: Process, tmp_path: Path) -> None:
    pid = process.ready(READY_S)
    again = pickle.loads(pickle.dumps(BackgroundProcesses(str(tmp_path), KINDS, owner))).of(3)
    again.prepare()
    assert again.ready(READY_S) == pid
    assert stat.S_IMODE(Path(process._place.socket).stat().st_mode) == 0o600
    assert stat.S_IMODE(process._place.folder.stat().st_mode) == 0o700
    assert find_process(pid) is not None


def test_large_results_lie_in_shared_memory(process: BackgroundProcess) -> None:
    result = run(process, job("double", np.arange(1_000_000)))
    assert isinstance(result, np.ndarray)
    assert not result.flags.writeable
    assert result.ctypes.data % 64 == 0


def test_a_killed_process_is_lost_and_another_takes_its_place(process: BackgroundProcess) -> None:
    pid = process.ready(READY_S)
    wanted = job("hang")
    process.start(wanted)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(BackgroundLostError):
        finish(process, wanted, 30.0)
    assert process.ready(READY_S) != pid
    assert process.wait(wanted).state == "absent"


def test_a_stopped_process_is_given_up_and_killed(process: BackgroundProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dbsp.runtime.background.process.ANSWER_S", 0.5)
    pid = process.ready(READY_S)
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(UnavailableError, match="does not answer"):
        process.wait(job("double"))
    until(lambda: find_process(pid) is None)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_its_owner_and_leaves_nothing(process: BackgroundProcess, owner: Process, how: int) -> None:
    pid = process.ready(READY_S)
    process.start(job("hang"))
    os.kill(owner.pid, how)
    until(lambda: find_process(pid) is None)
    assert not process._place.folder.exists()


def test_an_owner_that_is_gone_has_no_keeper(owner: Process, tmp_path: Path) -> None:
    gone = Process(pid=owner.pid, started=owner.started + 1, state="S")
    background_worker = BackgroundProcesses(str(tmp_path), KINDS, gone).of(0)
    assert background_worker is not None
    background_worker.prepare()
    until(lambda: not background_worker._place.folder.exists())


def test_what_a_killed_process_left_is_swept(process: BackgroundProcess, owner: Process) -> None:
    left, running = place_of("left", 0, owner), process._place
    left.folder.mkdir()
    Path(left.socket).touch()
    sweep()
    assert not left.folder.exists()
    assert running.folder.exists()
