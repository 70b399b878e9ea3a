"""Fault row 67: an upgrade by a successor of another version, there and back; what it does wrong leaves the old one running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from dbsp.coordinator.address import NOTE_FILE, read_address
from tests import plain_http
from tests.coordinator.shop import ORDERS, settings_text
from tests.coordinator.test_upgrade import ask, indented, logged, per_customer, push
from tests.coordinator.versions import NO_CHECKPOINTS, Installations
from tests.pace import in_turn, rotating
from tests.spark.waiting import until

pytestmark = pytest.mark.timeout(300)
PACE_S = 0.1
"""Between two rows that others push during an upgrade: each makes a step, on connections of its own."""
SERVING = "import sys\nif 'dbsp.coordinator.serve' in ' '.join(sys.orig_argv) and '--succeed' in ' '.join(sys.argv):\n"
FAILURES = {
    "is not ready": (
        "import dbsp.coordinator.takeover.standby as standby\nfrom dbsp.errors import UnavailableError\n"
        "def no(*_, **__):\n    raise UnavailableError('no room on the cluster')\nstandby.prepare_start = no\n",
        "no room on the cluster",
    ),
    "dies before it is ready": (
        "import os\nfrom dbsp.coordinator.takeover import standby\n"
        "standby.prepare_start = lambda *_, **__: os.kill(os.getpid(), 9)\n",
        "ended before it was ready: exit_code=-9",
    ),
    "does not start": (
        "import dbsp.coordinator.build as build\nfrom dbsp.errors import UnavailableError\n"
        "def no(*_, **__):\n    raise UnavailableError('the disk is on strike')\nbuild.build = no\n",
        "the disk is on strike",
    ),
    "dies when it owns the pipeline": (
        "import os, dbsp.io.embedded_steps as log\nclaim = log.EmbeddedStepLog.claim\n"
        "log.EmbeddedStepLog.claim = lambda self, above=0: (claim(self, above), os.kill(os.getpid(), 9))\n",
        "ended before it was running: exit_code=-9",
    ),
}


def upgrade(installed: Installations, shop: Path, python: Path) -> subprocess.CompletedProcess[str]:
    return installed.run("cli", "upgrade", "--python", str(python), folder=shop)


def family(pid: int) -> set[int]:
    """A process and all below it."""
    found = {pid}
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            found |= family(int(child))
    return found


@contextmanager
def asking_all_the_while(url: str) -> Iterator[list[Any]]:
    """Push a row and read the view without end; what was wrong with an answer, or the longest time one took."""
    wrong: list[Any] = []
    ended = threading.Event()

    def ask_on() -> None:
        number, longest = 1000, 0.0
        while not ended.wait(PACE_S):
            begun = time.monotonic()
            row = {"id": number, "customer": "z", "amount": 1}
            try:
                with plain_http.client(url, timeout_s=30) as client:
                    headers = {"Dbsp-Producer": "outside", "Dbsp-Sequence": str(number)}
                    answer = client.post("/v1/tables/orders/rows?wait=true", json=[row], headers=headers)
                    if answer.is_success:
                        number += 1
                    elif answer.status_code != 503:
                        wrong.append(answer.text)
            except httpx.RemoteProtocolError:  # a connection that the old one closed beneath the request: ask again
                pass
            except httpx.HTTPError as error:
                wrong.append(repr(error))
            longest = max(longest, time.monotonic() - begun)
        wrong.append((number - 1000, longest))

    thread = threading.Thread(target=ask_on)
    thread.start()
    try:
        yield wrong
    finally:
        ended.set()
        thread.join()


@pytest.mark.spark
@pytest.mark.soak
def test_there_and_back_on_spark(shop: Path, installed: Installations) -> None:
    text = settings_text(f'[spark]\nmaster = "local[2]"\n{NO_CHECKPOINTS}')
    (shop / "pipeline.toml").write_text(text.replace('runtime = "local"', 'runtime = "spark"'))
    test_there_and_back_while_others_push(shop, installed)


@pytest.mark.skipif(not in_turn(1, 3), reason="at every third commit; `make soak` runs it")
def test_there_and_back_while_others_push(shop: Path, installed: Installations) -> None:
    other, before = installed.python("0.9.2"), installed.python("0.9.1")
    with installed.serving(shop) as process:
        push(shop, *ORDERS.to_pylist())
        url = read_address(shop / "data")["url"]
        with asking_all_the_while(url) as wrong:
            for python, engine, old in ((other, "0.9.2", "0.9.1"), (before, "0.9.1", "0.9.2")):
                done = upgrade(installed, shop, python)
                assert done.returncode == 0, done.stderr
                assert f"upgraded from dbsp {old} to {engine}" in done.stdout
                assert "gave the same outputs again" in done.stdout
                print(done.stdout)
                assert ask(shop, "GET", "/v1/status")["engine"] == engine
                assert read_address(shop / "data")["url"] == url, "the socket was handed over"
                assert process.poll() is None, "a supervisor has seen no end"
        *failures, (pushed, longest) = wrong
        print(f"{pushed} rows pushed, the longest answer took {longest:.2f} s")
        assert not failures
        rows = {row[0]: row[1:] for row in per_customer(shop)}
        assert rows["z"] == [pushed, pushed], "each row once"
        assert [event["to"] for event in logged(shop, "upgraded")] == ["0.9.2", "0.9.1"]
        assert not (shop / "data" / NOTE_FILE).exists()
        members = family(process.pid)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(60) == 0, "a signal to the process that was started ends the service"
    until(lambda: not any(Path(f"/proc/{each}").exists() for each in members), "nothing of it is left")


@pytest.mark.skipif(not in_turn(0, 3), reason="at every third commit; `make soak` runs it")
def test_the_end_of_the_launcher_ends_the_service_gracefully(shop: Path, installed: Installations) -> None:
    """A supervisor whose patience is over kills the process that it knows."""
    with installed.serving(shop) as process:
        push(shop, *ORDERS.to_pylist())
        assert upgrade(installed, shop, installed.python("0.9.2")).returncode == 0
        successor = read_address(shop / "data")["pid"]
        assert successor != process.pid
        until(lambda: b"launcher" in Path(f"/proc/{process.pid}/cmdline").read_bytes(), "the launcher is there")
        os.kill(process.pid, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{successor}").exists(), "the service has ended")
    assert not (shop / "data" / "coordinator.json").exists(), "it ended by itself"


@pytest.mark.skipif(not in_turn(2, 3), reason="at every third commit; `make soak` runs it")
@pytest.mark.parametrize("failure", rotating(tuple(FAILURES), 4))
def test_a_successor_that_fails_leaves_the_old_version_running(
    shop: Path, installed: Installations, failure: str
) -> None:
    how, words = FAILURES[failure]
    with installed.serving(shop) as process:
        push(shop, *ORDERS.to_pylist())
        done = upgrade(installed, shop, installed.python("0.9.2", SERVING + indented(how)))
        assert (done.returncode, words in done.stderr) == (7, True), done.stderr
        until(lambda: "url" in read_address(shop / "data"), "the old version answers")
        until(lambda: can_push(shop), "the old version takes a row")
        assert ask(shop, "GET", "/v1/status")["engine"] == "0.9.1"
        assert per_customer(shop) == [["a", 1, 10], ["b", 2, 601], ["c", 1, 7]]
        assert read_address(shop / "data")["pid"] == process.pid
        commands = [Path(f"/proc/{each}/cmdline").read_bytes() for each in family(process.pid)]
        assert not [each for each in commands if b"--succeed" in each], "the successor has ended"


def can_push(shop: Path) -> bool:
    try:
        push(shop, {"id": 9, "customer": "c", "amount": 7})
    except (httpx.HTTPError, KeyError, json.JSONDecodeError):
        return False
    return True


def test_no_interpreter_is_refused(shop: Path, installed: Installations) -> None:
    with installed.serving(shop):
        for python in ("relative/python", str(shop), str(shop / "nothing")):
            with pytest.raises(httpx.HTTPStatusError) as refused:
                ask(shop, "POST", "/v1/upgrade", json={"python": python})
            assert refused.value.response.status_code == 400
            assert "not an interpreter" in refused.value.response.text
        same = upgrade(installed, shop, installed.python("0.9.1"))
        assert (same.returncode, "nothing to upgrade" in same.stdout) == (0, True), same.stderr
