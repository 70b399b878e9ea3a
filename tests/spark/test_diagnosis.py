"""Causes named rightly: a host that is gone, a host with another version of dbsp, a worker that does not answer."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dbsp.coordinator.exits import exit_code
from dbsp.errors import CapacityError, DbspError, EngineError, InternalError, UnavailableError
from dbsp.runtime.spark import runtime as runtime_module
from dbsp.runtime.spark.diagnosis import explained, hosts_away, unfinished, unreachable, versions_on
from dbsp.runtime.spark.failures import job_failed
from dbsp.runtime.spark.jobs import JobThread
from dbsp.runtime.spark.placement import drain, ground_rdd
from dbsp.runtime.spark.session import SparkHandle
from dbsp.runtime.spark.shared import PackedWork, pack
from dbsp.runtime.spark.task_server import TaskServer
from dbsp.version import VERSION
from tests.spark.pipelines import MakeRuntime, Pipeline
from tests.spark.test_failures import JVM_TEXT
from tests.spark.waiting import until

HOMES = {0: "10.0.0.1", 1: "10.0.0.2", 3: "10.0.0.2"}


def raised(last: str) -> DbspError:
    """What the driver makes of a task that raised."""
    return job_failed("step 4", JVM_TEXT.format(detail=f"Traceback (most recent call last):\n  File\n{last}\n"))


def test_a_context_that_has_stopped_is_no_error_of_ours() -> None:
    """The watch looks at hosts while the service stops."""
    stopped: Any = SimpleNamespace(_jsc=None)
    with pytest.raises(UnavailableError, match="Spark has stopped"):
        hosts_away(stopped, ["a"])
    assert unfinished(stopped, "group", 2) == ()


def test_what_a_task_raises_on_purpose_comes_back_as_itself() -> None:
    other = raised("dbsp.errors.EngineError: a Python worker imports another version: host=b; install one version")
    assert type(other) is EngineError
    assert exit_code(other.code) == 7
    assert (other.message, other.hint) == ("a Python worker imports another version: host=b", "install one version")
    assert type(raised("dbsp.errors.UnavailableError: a worker's host had no executor")) is UnavailableError
    assert type(raised("dbsp.errors.InternalError: ours")) is InternalError
    assert type(raised("KeyError: 'dbsp.errors.EngineError: no'")) is InternalError


def test_a_host_that_is_gone_is_named_with_its_workers() -> None:
    silent = UnavailableError("no worker finished a task for too long: while=step 4", "raise `worker_silence_s`")
    found = explained(silent, "step 4", HOMES, lambda: ("10.0.0.2",), lambda: {})
    assert type(found) is UnavailableError
    assert "a host of workers does not answer: hosts=10.0.0.2 workers=[1, 3] while=step 4" in found.message
    assert "worker_silence_s" not in (found.hint or "")


def test_a_host_with_another_version_is_named() -> None:
    bug = InternalError("a Spark task failed: reason=ModuleNotFoundError: No module named 'dbsp.runtime.transfers'")
    found = explained(bug, "open", HOMES, tuple, lambda: {"a": VERSION, "b": "0.0.1", "c": "none (No module)"})
    assert type(found) is EngineError
    assert found.message.endswith(f"b has 0.0.1, c has none (No module); coordinator={VERSION}")
    assert explained(bug, "open", HOMES, tuple, lambda: {"a": VERSION}) is bug


def test_an_error_that_no_host_explains_stays() -> None:
    def never() -> Any:
        raise AssertionError("nobody asks")

    full = CapacityError("full")
    assert explained(full, "step 4", HOMES, never, never) is full
    lost = UnavailableError("a Spark job failed")
    assert explained(lost, "step 4", HOMES, tuple, never) is lost


def test_who_takes_no_connection_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as here, socket.create_server(("127.0.0.2", 0)) as gone:
        ports = [each.getsockname()[1] for each in (here, gone)]
        gone.close()
        addresses = [f"127.0.0.1:{ports[0]}", f"127.0.0.2:{ports[1]}"]
        assert unreachable(addresses) == {"127.0.0.2"}
        assert unreachable([*addresses, f"127.0.0.2:{ports[0]}"]) == {"127.0.0.2"}
        assert unreachable([addresses[0], f"127.0.0.1:{ports[1]}"]) == set(), "one of its executors answers"


def test_who_is_awaited_at_a_meeting(tmp_path: Path) -> None:
    task_server = TaskServer(tmp_path, threading.Lock())
    try:
        assert task_server.awaited() == ()
        number = task_server.stand()
        stepping = threading.Thread(target=lambda: task_server.step(number, b"", 3, 0), daemon=True)
        stepping.start()
        until(lambda: task_server._step is not None, "the step runs")
        assert task_server.awaited() == (0, 1, 2)
        step = task_server._step
        assert step is not None
        step.brought[0, 1] = []
        assert task_server.awaited() == (0, 2)
        step.brought |= {(0, 0): [], (0, 2): [], (1, 2): []}
        assert task_server.awaited() == (0, 1), "the last exchange counts"
        step.reports |= {0: b"", 1: b""}
        assert task_server.awaited() == (2,), "after the last exchange those without a report"
        with task_server._change:
            step.reports[2] = b""
            task_server._change.notify_all()
        stepping.join(10)
        task_server.over(number)
    finally:
        task_server.close()


# --- on Spark -------------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_the_task_that_hangs_is_found(spark: SparkHandle, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    jobs = JobThread(spark.context, "test-hangs", 60, spark.alive)

    def task(index: int, nothing: Iterable[int]) -> list[int]:
        drain(nothing)
        return [len(fifo.read_text()) if index == 1 else 0]

    job = ground_rdd(spark.context, ("", "")).mapPartitionsWithIndex(task)
    running = threading.Thread(target=lambda: jobs.run("hang", job.collect), daemon=True)
    running.start()
    until(lambda: unfinished(spark.context, jobs.group, 2) == (1,), "one task has ended, the other one hangs")
    fifo.write_text("go on")
    running.join(30)
    assert unfinished(spark.context, jobs.group, 2) == ()
    jobs.close()


@pytest.mark.spark
def test_versions_are_told_by_tasks_that_need_none_of_ours(spark: SparkHandle) -> None:
    assert versions_on(spark.context, ("",)) == {socket.gethostname(): VERSION}


@pytest.mark.spark
def test_a_worker_of_another_version_ends_the_service_by_its_host(
    on_spark: MakeRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 7 and the host, from the first task on; no traceback."""

    def packed(work: Any) -> PackedWork:
        return replace(pack(work), engine="0.0.1")

    monkeypatch.setattr(runtime_module, "pack", packed)
    with pytest.raises(EngineError, match=f"worker={VERSION} coordinator=0.0.1 host={socket.gethostname()}") as caught:
        Pipeline(tmp_path, on_spark)
    assert exit_code(caught.value.code) == 7
    assert "Traceback" not in str(caught.value)
