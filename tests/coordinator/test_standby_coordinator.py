"""Fault row 63: the coordinator is killed, and a standby on the same host goes on; upgrades and older versions are no end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dbsp.coordinator import serve
from dbsp.coordinator.client import liveness
from dbsp.coordinator.takeover import standby
from dbsp.coordinator.takeover.standby import OwnerLock, PreparedStart, stand_by
from dbsp.errors import ConfigError, UnavailableError
from tests import plain_http
from tests.coordinator.shop import CIRCUIT, script, settings, settings_text
from tests.forked import Forked
from tests.spark.waiting import until


def command(folder: Path, *arguments: str) -> None:
    """Run the service's command in a forked process."""
    os.chdir(folder)
    sys.argv = ["dbsp-coordinator", "pipeline.toml", "--no-progress", *arguments]
    serve.main()


class Started:
    """A process of the service's command, and what it has said."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        self._said = folder / f"{name}.txt"
        self.process = Forked(self._said, command, folder, *arguments)

    def wait_until_it_says(self, words: str) -> None:
        def says() -> bool:
            assert self.process.poll() is None, self.said
            return words in self.said

        until(says, f"it says {words!r}")

    @property
    def said(self) -> str:
        return self._said.read_text() if self._said.exists() else ""


@pytest.fixture
def started(folder: Path) -> Iterator[Any]:
    made: list[Started] = []

    def start(name: str, *arguments: str) -> Started:
        made.append(Started(folder, name, *arguments))
        return made[-1]

    yield start
    for each in made:
        each.process.kill()


def push(folder: Path, number: int) -> None:
    url = json.loads((folder / "data" / "coordinator.json").read_text())["url"]
    answer = plain_http.ask(
        "POST", f"{url}/v1/tables/orders/rows?wait=true", json=[{"id": number, "customer": "a", "amount": 600}]
    )
    assert answer.status_code == 200, answer.text


def ids(folder: Path) -> list[int]:
    url = json.loads((folder / "data" / "coordinator.json").read_text())["url"]
    return sorted(row["id"] for row in plain_http.ask("GET", f"{url}/v1/views/large").json()["rows"])


def goes_on(first: Started, others: list[Started], folder: Path, number: int, signal_: int = signal.SIGKILL) -> Started:
    """End the coordinator by a signal; return which standby takes a row in its place."""
    killed_s = time.monotonic()
    os.kill(first.process.pid, signal_)
    first.process.wait(60)
    until(lambda: any("answering at" in each.said for each in others), "a standby answers")
    push(folder, number)
    print(f"a standby took a row {time.monotonic() - killed_s:.2f} s after the kill")
    winners = [each for each in others if "answering at" in each.said]
    assert len(winners) == 1
    return winners[0]


def survived(folder: Path, started: Any) -> None:
    first = started("first")
    first.wait_until_it_says("answering at")
    push(folder, 1)
    others = [started(name, "--standby") for name in ("second", "third")]
    for each in others:
        each.wait_until_it_says("standing by")
        assert "answering" not in each.said
    push(folder, 2)
    second = goes_on(first, others, folder, 3)
    assert ids(folder) == [1, 2, 3]
    others.remove(second)
    third = goes_on(second, others, folder, 4, signal.SIGTERM)
    assert ids(folder) == [1, 2, 3, 4]
    assert "standing by" in third.said
    fourth = started("fourth", "--standby")
    fourth.wait_until_it_says("standing by")
    assert script("cli", "stop", folder=folder).returncode == 0
    assert (third.process.wait(60), fourth.process.wait(60)) == (0, 0)
    assert "the pipeline was stopped, and so this standby ends" in fourth.said


def test_one_of_two_standbys_goes_on_after_each_kill(folder: Path, started: Any) -> None:
    survived(folder, started)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_on_spark(folder: Path, started: Any) -> None:
    text = settings_text('[spark]\nmaster = "local[2]"\n').replace('runtime = "local"', 'runtime = "spark"')
    (folder / "pipeline.toml").write_text(text)
    survived(folder, started)


def test_a_process_that_becomes_another_version_keeps_the_lock(tmp_path: Path) -> None:
    """An upgrade replaces the program of the process; a standby that waits must not take that for its end."""
    imports = "from pathlib import Path; from dbsp.coordinator.takeover.standby import OwnerLock"
    take = f"{imports}; lock = OwnerLock(Path({str(tmp_path)!r}));"
    after = f"{take} lock.take(); print('after', flush=True); input()"
    before = f"import os, sys; {take} lock.take(); print('before', flush=True); input(); lock.keep_for_next_program()"
    both = f"{before}; os.execv(sys.executable, [sys.executable, '-c', {after!r}])"
    with (
        closing(OwnerLock(tmp_path)) as own,
        subprocess.Popen([sys.executable, "-c", both], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as it,
    ):
        assert it.stdout is not None
        assert it.stdin is not None
        assert it.stdout.readline() == "before\n"
        taken = threading.Event()
        waiting = threading.Thread(target=lambda: (own.wait(), taken.set()), daemon=True)
        waiting.start()
        it.stdin.write("go on\n")
        it.stdin.flush()
        assert it.stdout.readline() == "after\n"
        assert not taken.is_set()
        it.kill()
        assert taken.wait(60)


def test_a_coordinator_that_answers_without_the_lock_is_waited_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is of an older version, or has taken over from a stopped one that still has the lock."""
    asked: list[bool] = []

    def answers(_: object) -> None:
        asked.append(lock_is_free(folder / "data"))
        if len(asked) < 3:
            raise UnavailableError("a service of this pipeline answers already")

    monkeypatch.setattr(liveness, "refuse_running", answers)
    monkeypatch.setattr(standby, "LOOK_S", 0)
    prepared = stand_by(settings(folder))
    assert asked == [False] * 3
    assert not lock_is_free(folder / "data")
    prepared.lock.close()
    assert lock_is_free(folder / "data")


def lock_is_free(data_dir: Path) -> bool:
    """Whether another process can take the lock."""
    code = (
        f"import fcntl; fcntl.lockf(open({str(data_dir / standby.LOCK_FILE)!r}, 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


class Runtime:
    closed = False

    def close(self) -> None:
        self.closed = True


@dataclass
class Parts:
    runtime: Callable[[], Any]


@dataclass
class Built:
    run: str
    fingerprint: str
    parts: Parts

    @property
    def facts(self) -> SimpleNamespace:
        return SimpleNamespace(run=self.run)

    @property
    def plan(self) -> SimpleNamespace:
        return SimpleNamespace(fingerprint=self.fingerprint)


def test_a_prepared_runtime_is_used_once_and_for_its_circuit_alone(tmp_path: Path) -> None:
    with closing(OwnerLock(tmp_path)) as lock:
        ready, usual = Runtime(), Runtime()
        for run, fingerprint in (("r", "other"), ("other", "f"), ("r", "f")):
            prepared = PreparedStart(lock, ("r", "f"), ready)  # type: ignore[arg-type]
            parts = prepared.equip(Built(run, fingerprint, Parts(lambda: usual))).parts  # type: ignore[arg-type]
            is_same = (run, fingerprint) == ("r", "f")
            assert ready.closed != is_same
            assert parts.runtime() is (ready if is_same else usual)
            assert parts.runtime() is usual, "a rollback makes a new one"
            ready.closed = False
            prepared.close()
            assert not ready.closed


def test_what_a_standby_refuses(folder: Path) -> None:
    with pytest.raises(ConfigError, match="without HTTP"):
        stand_by(settings(folder, "http.enabled=false"))
    found = script("serve", "pipeline.toml", "--standby", "--take-over", folder=folder)
    assert found.returncode == 2
    assert "--standby cannot be combined with" in found.stderr
    (folder / "circuit.py").write_text(CIRCUIT.replace('"amount") > 500', '"amounts") > 500'))
    found = script("serve", "pipeline.toml", "--standby", folder=folder)
    assert found.returncode == 2
    assert "amounts" in found.stderr
