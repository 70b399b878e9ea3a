"""An upgrade by a successor in which either process is killed at any message and command: afterwards both versions go on.

The points are generated: a run without a kill notes each word of the pair of sockets, each command of the state machine and each
act of the hand-over, before and after, in the old process and in the successor. Then one of the two is killed there, while a
client pushes rows. Each acknowledged row is in the view once, whichever version is started afterwards.

Both processes are forks. The successor is forked by the old process before it starts, waits for its command line and its sockets,
and has another version number.
"""

from __future__ import annotations

import fcntl
import functools
import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pyarrow as pa
import pytest

from dbsp.coordinator import serve
from dbsp.coordinator.address import read_address
from dbsp.coordinator.build import build
from dbsp.coordinator.checks.doctor import diagnose
from dbsp.coordinator.running.command_runner import CommandRunner
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import load_config
from dbsp.coordinator.takeover import successor, upgrades
from dbsp.coordinator.takeover.standby import OwnerLock
from dbsp.io.embedded_output import read_outputs
from dbsp.io.pushed import Producer
from dbsp.version import VERSION
from tests import plain_http
from tests.coordinator.shop import CIRCUIT, rows, settings_text
from tests.coordinator.versions import state
from tests.forked import Forked
from tests.pace import rotating
from tests.spark.waiting import until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]

OTHER = "9.9.9"
OLD, NEW = "old", "new"
SHARE = 20
"""`make test` runs one of so many points."""
MESSAGE_BYTES = 65536
ACTS: tuple[tuple[type, str], ...] = (
    (successor.Successor, "expect"),
    (successor.Successor, "go"),
    (successor.Successor, "become_its_launcher"),
    (successor._Words, "say"),
    (serve._Interfaces, "__init__"),
    (serve._Interfaces, "hand_over"),
    (serve._Interfaces, "start"),
    (serve._Interfaces, "stop"),
    (Service, "__init__"),
    (Service, "start"),
    (Service, "close_pipeline"),
    (Service, "close"),
    (upgrades.Upgrades, "leave_note"),
    (OwnerLock, "take"),
    (OwnerLock, "close"),
    (CommandRunner, "perform"),
)
"""The methods at whose beginning and end a process is killed; their names are told apart by a text argument, such as a word."""


# --- in the two processes ---------------------------------------------------------------------------------------------


class Points:
    """Notes each point at its first call, and ends this process with SIGKILL at one of them."""

    def __init__(self, folder: Path, who: str, fatal: str) -> None:
        self._folder, self._who, self._fatal = folder, who, fatal
        self._seen: set[str] = set()
        self._lock = threading.Lock()
        for owner, name in ACTS:
            self._watch(owner, name)

    def _watch(self, owner: type, name: str) -> None:
        real = getattr(owner, name)

        @functools.wraps(real)
        def watched(*given: Any, **named: Any) -> Any:
            story = f"{owner.__name__}.{name}{_told(given[1:])}"
            self._reach(f"{story} before")
            result = real(*given, **named)
            self._reach(f"{story} after")
            return result

        setattr(owner, name, watched)

    def _reach(self, story: str) -> None:
        if self._who == OLD and not (self._folder / "asked").exists():
            return
        point = f"{self._who}: {story}"
        with self._lock:
            if point in self._seen:
                return
            self._seen.add(point)
            with (self._folder / "points").open("a") as stream:
                stream.write(point + "\n")
            if point == self._fatal:
                os.kill(os.getpid(), signal.SIGKILL)


def _told(given: Sequence[Any]) -> str:
    """The first argument, if it says what is done: a word, or a command by its kind."""
    if not given or isinstance(given[0], int | float | Path):
        return ""
    if isinstance(given[0], str):
        return f" {given[0].partition(' ')[0]}"
    kind = type(given[0])
    return f" {kind.__name__}" if kind.__module__ == "dbsp.coordinator.decisions.commands" else ""


class Spare:
    """A fork of this process that waits for a command line and open files, and becomes the successor with them."""

    def __init__(self, folder: Path, fatal: str) -> None:
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            mine.close()
            os._exit(_succeed(theirs, folder, fatal))
        theirs.close()
        self.returncode: int | None = None
        self._end = mine
        (folder / "spare").write_text(str(self.pid))

    def start(self, command: Sequence[str], *, pass_fds: Sequence[int], **_: Any) -> Spare:
        """What `subprocess.Popen` does."""
        text = json.dumps([[str(each) for each in command], list(pass_fds)])
        socket.send_fds(self._end, [text.encode()], pass_fds)
        return self

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout_s: float | None = None) -> int:
        end_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while (code := self.poll()) is None:
            if time.monotonic() > end_s:
                raise subprocess.TimeoutExpired("spare", timeout_s or 0)
            threading.Event().wait(0.01)
        return code

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)


def _succeed(end: socket.socket, folder: Path, fatal: str) -> int:
    """Wait for the command line; run it as the other version."""
    text, numbers, _, _ = socket.recv_fds(end, MESSAGE_BYTES, 8)
    if not text:
        return 0  # the old process ended before it needed a successor
    command, wanted = json.loads(text)
    end.close()
    above = max(wanted) + 1
    high = [fcntl.fcntl(number, fcntl.F_DUPFD, above) for number in numbers]
    for number, at in zip(high, wanted, strict=True):
        os.dup2(number, at)
        os.close(number)
    for number in set(numbers) - set(wanted):
        os.close(number)
    become(OTHER, VERSION)
    Points(folder, NEW, fatal)
    sys.argv = ["serve", *command[3:]]
    sys.orig_argv = [*command]
    return serve.guarded(lambda: serve.command.main(standalone_mode=False, prog_name="dbsp-coordinator"))


def become(version: str, before: str) -> None:
    """From now on this process is of another version."""
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("dbsp") and getattr(module, "VERSION", None) == before:
            module.VERSION = version  # type: ignore[attr-defined]


def old_version(folder: Path, fatal: str) -> None:
    """In the child: the service that is asked for the upgrade, whose checks have passed."""
    os.chdir(folder)
    spare = Spare(folder, fatal)
    own = {"Popen": spare.start, "DEVNULL": subprocess.DEVNULL, "TimeoutExpired": subprocess.TimeoutExpired}
    successor.subprocess = SimpleNamespace(**own)  # type: ignore[assignment]
    upgrades.examine = lambda *_: upgrades.OtherVersion(version=OTHER)  # type: ignore[assignment]
    Points(folder, OLD, fatal)
    sys.argv = ["serve", "pipeline.toml", "--no-progress"]
    sys.orig_argv = [sys.executable, "-m", "dbsp.coordinator.serve", *sys.argv[1:]]
    serve.main()


# --- the client -------------------------------------------------------------------------------------------------------


def row(number: int) -> dict[str, Any]:
    return {"id": number, "customer": "abc"[number % 3], "amount": number}


class Client:
    """Pushes numbered rows, each again until it is acknowledged."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.acknowledged, self._ended = folder, 0, threading.Event()
        self._thread = threading.Thread(target=self._push_on)

    def __enter__(self) -> Client:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _push_on(self) -> None:
        while not self._ended.wait(0.02):
            with suppress(httpx.HTTPError, KeyError, ValueError):
                self._push()

    def _push(self) -> None:
        headers = {"Dbsp-Producer": "client", "Dbsp-Sequence": str(self.acknowledged)}
        with plain_http.client(read_address(self._folder / "data")["url"], timeout_s=5) as client:
            answer = client.post("/v1/tables/orders/rows", json=[row(self.acknowledged)], headers=headers)
            answer.raise_for_status()
        self.acknowledged += 1


def is_alive(pid: int) -> bool:
    """Whether the process runs: nobody may wait for one whose parent was killed."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@contextmanager
def upgraded(folder: Path, fatal: str, survives: bool) -> Iterator[int]:
    """An upgrade in which a process is killed at the point; yields how many rows were acknowledged, when all have ended.

    If the pipeline `survives` that, a process goes on and takes rows. Else the other process ends by itself.
    """
    (folder / "circuit.py").write_text(CIRCUIT)
    (folder / "pipeline.toml").write_text(settings_text("[checkpoint]\ninterval_s = 3600"))
    process = Forked(folder / "said.txt", old_version, folder, fatal)
    pids = [process.pid]
    try:
        until(lambda: "url" in read_address(folder / "data"), "the service answers")
        pids.append(int((folder / "spare").read_text()))
        with Client(folder) as client:
            until(lambda: client.acknowledged > 1 and state(folder) == "Running", "the old version takes rows")
            (folder / "asked").touch()
            with suppress(httpx.HTTPError):
                url = read_address(folder / "data")["url"]
                answer = plain_http.ask("POST", f"{url}/v1/upgrade", json={"python": sys.executable}, timeout_s=120)
                assert answer.is_success or fatal, answer.text
            until(lambda: is_over(folder, fatal), "the point is reached")
            taken = client.acknowledged
            if survives or fatal not in points(folder):
                until(lambda: client.acknowledged > taken + 1, "the pipeline goes on")
            else:
                until(lambda: not any(map(is_alive, pids)), "the other process ends by itself")
        end(process, pids)
        yield client.acknowledged
    finally:
        end(process, pids)


def end(process: Forked, pids: Sequence[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.kill()
    until(lambda: not any(map(is_alive, pids)), "all have ended")


def is_over(folder: Path, fatal: str) -> bool:
    """Whether the process was killed, or the old one waits for the new one, which takes steps."""
    found = points(folder)
    waits = any("become_its_launcher" in each for each in found)
    return fatal in found or (waits and f"{NEW}: CommandRunner.perform RunStep after" in found)


def points(folder: Path) -> list[str]:
    try:
        return (folder / "points").read_text().splitlines()
    except FileNotFoundError:
        return []


# --- the proof --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reached(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """All points of an upgrade, in the order of time."""
    folder = tmp_path_factory.mktemp("alive")
    with upgraded(folder, "", survives=True) as acknowledged:
        check_goes_on(folder, OTHER, acknowledged)
    return points(folder)


def test_killed_anywhere_either_version_goes_on_with_every_acknowledged_row(reached: list[str], tmp_path: Path) -> None:
    running = reached.index(f"{NEW}: _Words.say running after")
    assert {OLD, NEW} == {point.partition(":")[0] for point in reached}
    assert len(reached) > 60, reached
    chosen, missed = rotating(reached, SHARE), []
    for number, point in enumerate(chosen):
        folder = tmp_path / str(number)
        folder.mkdir()
        survives = point.startswith(NEW) and reached.index(point) < running
        try:
            with upgraded(folder, point, survives) as acknowledged:
                for version in (VERSION, OTHER):
                    copy = folder / version
                    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(VERSION, OTHER))
                    check_goes_on(copy, version, acknowledged)
            if point not in points(folder):
                missed.append(point)
        except AssertionError as error:
            said = (folder / "said.txt").read_text()[-3000:]
            raise AssertionError(f"killed at {point}: {error}\npoints={points(folder)[-8:]}\n{said}") from error
    assert len(missed) <= 1 + len(chosen) // 10, f"only races, such as for the end of a copy, miss a point: {missed}"


def check_goes_on(folder: Path, version: str, acknowledged: int) -> None:
    """A start of the version has each acknowledged row once, in the view and in the outputs, and takes more."""
    (folder / "data" / "coordinator.json").unlink(missing_ok=True)
    config = load_config(folder / "pipeline.toml", environment={})
    try:
        become(version, VERSION)
        with Service(config, build(config, accepting=[VERSION, OTHER])) as service:
            for number in (acknowledged, acknowledged + 1):  # the first may be there: it was sent, and not acknowledged
                producer = Producer(id="client", sequence=number)
                service.wait_until_processed(
                    service.push("orders", pa.Table.from_pylist([row(number)]), producer=producer)
                )
            expected = golden(acknowledged + 2)
            assert rows(service) == {name: (*each, 1) for name, each in expected.items()}
    finally:
        become(VERSION, version)
    written = Counter[tuple[Any, ...]]()
    for _, _, table in read_outputs(config.data_dir, "per_customer"):
        for each in table.to_pylist():
            written[each["customer"], each["orders"], each["amount"]] += each["weight"]
    assert {each: weight for each, weight in written.items() if weight} == {
        (name, *each): 1 for name, each in expected.items()
    }
    assert not diagnose(config).findings


def golden(count: int) -> dict[str, tuple[int, int]]:
    """What the view has after so many rows."""
    found: dict[str, tuple[int, int]] = {}
    for number in range(count):
        orders, amount = found.get(row(number)["customer"], (0, 0))
        found[row(number)["customer"]] = (orders + 1, amount + row(number)["amount"])
    return found
