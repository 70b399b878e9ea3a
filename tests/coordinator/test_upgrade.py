"""Another version of dbsp under a pipeline: by an upgrade, and by a start over what a killed one has left."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dbsp.coordinator.address import NOTE_FILE, read_address
from dbsp.coordinator.checks.preflight import formats
from dbsp.coordinator.decisions import events, states
from dbsp.coordinator.running.status import Snapshot
from dbsp.coordinator.service import Service
from dbsp.coordinator.takeover import upgrades
from dbsp.coordinator.takeover.upgrades import own_interpreter, unread, used
from dbsp.errors import ConfigError, UnavailableError
from dbsp.version import VERSION
from tests import plain_http
from tests.coordinator.fakes import FakeClock
from tests.coordinator.shop import CIRCUIT, ORDERS, settings, settings_text
from tests.coordinator.test_machine import running
from tests.coordinator.versions import NO_CHECKPOINTS, Installations
from tests.pace import in_turn, rotating
from tests.spark.waiting import until

pytestmark = pytest.mark.timeout(300)
QUERY = "SELECT customer, orders, amount FROM per_customer ORDER BY customer"


def ask(folder: Path, method: str, path: str, **options: Any) -> Any:
    url = read_address(folder / "data")["url"]
    answer = plain_http.ask(method, url + path, timeout_s=120, **options)
    return answer.raise_for_status().json()


def push(folder: Path, *rows: dict[str, Any]) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    ask(folder, "POST", "/v1/tables/orders/rows", params={"wait": "true"}, content=lines)


def per_customer(folder: Path) -> list[list[Any]]:
    return list(ask(folder, "POST", "/v1/query", json={"sql": QUERY})["rows"])


def contents(folder: Path) -> dict[str, bytes]:
    """All that is stored: not locks, nor who holds one."""
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("data.mdb"))}


def logged(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = (folder / "data" / "coordinator.log").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


@pytest.fixture(scope="module")
def killed_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a service of 0.9.1 that ended by kill -9, two steps above its checkpoint."""
    installed, folder = Installations(tmp_path_factory.mktemp("installations")), tmp_path_factory.mktemp("killed")
    installed.install("0.9.1")
    (folder / "circuit.py").write_text(CIRCUIT)
    (folder / "pipeline.toml").write_text(settings_text(NO_CHECKPOINTS))
    with installed.serving(folder) as process:
        push(folder, *ORDERS.to_pylist())
        push(folder, {"id": 4, "customer": "a", "amount": 5})
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    (folder / "data" / "coordinator.json").unlink()
    return folder


@pytest.fixture
def killed(killed_once: Path, shop: Path) -> Path:
    """A copy of that folder."""
    shutil.copytree(killed_once, shop, dirs_exist_ok=True)
    return shop


# --- a start over steps of another version --------------------------------------------------------------------------


def test_steps_of_another_version_are_refused_and_nothing_is_changed(killed: Path, installed: Installations) -> None:
    shop = killed
    before = contents(shop / "data")
    installed.install("0.9.2")
    done = installed.run("serve", "pipeline.toml", "--no-progress", folder=shop)
    assert done.returncode == 7, done.stderr
    assert "steps 0 to 1 by 0.9.1; this is 0.9.2" in done.stderr
    assert "--accept-engine 0.9.1" in done.stderr
    assert "Traceback" not in done.stderr
    assert contents(shop / "data") == before
    assert installed.run("serve", "pipeline.toml", "--no-progress", "--accept-engine=0.9", folder=shop).returncode == 7
    assert contents(shop / "data") == before, "another one was accepted"


def test_the_old_version_stops_and_the_new_one_goes_on(killed: Path, installed: Installations) -> None:
    """What the refusal tells a user to do."""
    shop = killed
    with installed.serving(shop) as process:
        assert installed.run("cli", "stop", folder=shop).returncode == 0
        assert process.wait(60) == 0
    installed.install("0.9.2")
    with installed.serving(shop):
        push(shop, {"id": 9, "customer": "c", "amount": 1})
        assert per_customer(shop) == [["a", 2, 15], ["b", 2, 601], ["c", 1, 1]]


def test_an_acceptance_outlives_a_crash_amid_the_replay(killed: Path, installed: Installations) -> None:
    shop = killed
    installed.install("0.9.2")
    with installed.serving(shop, "--accept-engine", "0.9.1") as process:
        push(shop, {"id": 9, "customer": "c", "amount": 1})  # it has replayed
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert [event["last"] for event in logged(shop, "engine-accepted")] == [1]
    with installed.serving(shop):
        assert per_customer(shop) == [["a", 2, 15], ["b", 2, 601], ["c", 1, 1]]
    assert len(logged(shop, "engine-accepted")) == 1, "it was noted before"


def test_another_result_of_an_accepted_step_halts(killed: Path, installed: Installations) -> None:
    shop = killed
    other = """
import dbsp.io.embedded_input as log
decode = log.EmbeddedInputLog.read
log.EmbeddedInputLog.read = lambda self, range_, step, *more: [] if step == 1 else decode(self, range_, step, *more)
"""
    installed.install(
        "0.9.2", f"import sys\nif 'dbsp.coordinator.serve' in ' '.join(sys.orig_argv):\n{indented(other)}"
    )
    with installed.serving(shop, "--accept-engine", "0.9.1"):
        until(lambda: ask(shop, "GET", "/v1/status")["halt"] is not None, "the halt")
        halt = ask(shop, "GET", "/v1/status")["halt"]
    assert (halt["step"], halt["command"]) == (1, "accept-output")
    assert "differ" in halt["message"] or "another" in halt["message"], halt


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.strip().splitlines())


# --- coordinator upgrade --------------------------------------------------------------------------------------------


def test_a_running_service_goes_on_as_the_version_that_is_installed(shop: Path, installed: Installations) -> None:
    with installed.serving(shop, "--set", "checkpoint.interval_s=1800") as process:
        push(shop, *ORDERS.to_pylist())
        assert ask(shop, "GET", "/v1/status")["engine"] == "0.9.1"
        same = installed.run("cli", "upgrade", folder=shop)
        assert (same.returncode, "nothing to upgrade" in same.stdout) == (0, True), same.stderr
        installed.install("0.9.2")
        begun = time.time()
        done = installed.run("cli", "upgrade", folder=shop)
        took = time.time() - begun
        assert done.returncode == 0, done.stderr
        assert "upgraded from dbsp 0.9.1 to 0.9.2 before step 1" in done.stdout
        found = ask(shop, "GET", "/v1/status")
        assert (found["engine"], found["epoch"], found["step"], found["checkpoint_step"]) == ("0.9.2", 2, 1, 1)
        assert 0 < found["upgrade"]["pause_seconds"] < took
        assert process.poll() is None, "a supervisor has seen no end"
        assert read_address(shop / "data")["pid"] == process.pid
        push(shop, {"id": 9, "customer": "c", "amount": 1})
        assert per_customer(shop) == [["a", 1, 10], ["b", 2, 601], ["c", 1, 1]]
        url = read_address(shop / "data")["url"]
        metrics = plain_http.ask("GET", f"{url}/metrics").text
        assert f"dbsp_upgrade_pause_seconds {found['upgrade']['pause_seconds']}" in metrics
        assert not (shop / "data" / NOTE_FILE).exists()
    (told,) = logged(shop, "upgraded")
    assert (told["before"], told["to"], told["step"]) == ("0.9.1", "0.9.2", 1)


@pytest.mark.skipif(
    not in_turn(0, 2),
    reason="the turn of `test_a_version_that_fails_when_it_starts_is_told_with_its_words` at this commit; `make soak` runs both",
)
def test_what_counts_for_one_start_is_not_done_again_and_who_was_paused_stays_so(
    shop: Path, installed: Installations
) -> None:
    with installed.serving(shop, "--rescale", "3"):
        push(shop, *ORDERS.to_pylist())
        ask(shop, "POST", "/v1/rescale", json={"workers": 1})
        ask(shop, "POST", "/v1/pause")
        installed.install("0.9.2")
        assert installed.run("cli", "upgrade", folder=shop).returncode == 0
        found = ask(shop, "GET", "/v1/status")
        assert (found["workers"], found["state"], found["engine"]) == (1, "Paused", "0.9.2")


BROKEN = {
    "does not import": ("raise ImportError('libmissing.so is not there')", "libmissing.so is not there"),
    "other formats": (
        "import dbsp.io.forms as forms\nforms.STEP_LOG = 'dbsp step log 2'",
        "step log: written=1 read=[2]",
    ),
    "other settings": (
        "import dbsp.coordinator.settings.config as c\nc.MARK = 1\n"
        "def no(*_, **__):\n    from dbsp.errors import ConfigError\n    raise ConfigError('no such setting: step.old')\n"
        "c.load_config = no",
        "no such setting: step.old",
    ),
}


def test_a_version_that_cannot_start_is_refused_and_the_old_one_goes_on(shop: Path, installed: Installations) -> None:
    with installed.serving(shop) as process:
        push(shop, *ORDERS.to_pylist())
        guard = "import sys\nif 'dbsp.coordinator.serve' in ' '.join(sys.orig_argv):\n"
        for number, (kind, (more, words)) in enumerate(rotating(list(BROKEN.items()), 2)):
            installed.install("0.9.2", guard + indented(more))
            done = installed.run("cli", "upgrade", folder=shop)
            assert done.returncode == 7, (kind, done.stderr)
            assert words in done.stderr, kind
            assert "goes on" in done.stderr, kind
            push(shop, {"id": 9 + number, "customer": "c", "amount": 1})
            found = ask(shop, "GET", "/v1/status")
            assert (found["engine"], found["epoch"], found["state"]) == ("0.9.1", 1, "Running"), kind
            assert process.poll() is None, kind


@pytest.mark.skipif(
    not in_turn(1, 2),
    reason="the turn of `test_what_counts_for_one_start_…` at this commit; `make soak` runs both",
)
def test_a_version_that_fails_when_it_starts_is_told_with_its_words(shop: Path, installed: Installations) -> None:
    """It passed all that can be asked before."""
    late = """
import sys
if "dbsp.coordinator.serve" in " ".join(sys.orig_argv) and not {"--check", "--formats"} & set(sys.argv):
    import dbsp.coordinator.build as build
    from dbsp.errors import UnavailableError
    def refuse(*_, **__):
        raise UnavailableError("the disk is on strike")
    build.make_plan = refuse
"""
    with installed.serving(shop) as process:
        push(shop, *ORDERS.to_pylist())
        installed.install("0.9.2", late)
        done = installed.run("cli", "upgrade", folder=shop)
        assert process.wait(60) == 4
        assert (done.returncode, "the disk is on strike" in done.stderr) == (7, True), done.stderr
    installed.install("0.9.1")
    with installed.serving(shop):
        assert per_customer(shop) == [["a", 1, 10], ["b", 2, 601]], "the old version continues"
    assert not logged(shop, "upgraded")


def test_a_service_inside_another_program_does_not_start_anew(service: Service) -> None:
    with pytest.raises(ConfigError, match="inside another program"):
        service.upgrade()


def test_of_an_upgrade_that_was_given_up_nothing_is_left(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old version is installed again: whoever asks then must not wait for the other one."""
    leaver = upgrades.Upgrades(settings(shop), FakeClock(), lambda *_: None)
    leaver.restart = upgrades.Restart(interpreter=("python",), arguments=())
    now = Snapshot(state="Running")

    def give_up(_: events.Request, met: Callable[[states.State], Any]) -> None:
        met(running(upgrade_error="no disk"))

    monkeypatch.setattr(upgrades, "examine", lambda *_: upgrades.OtherVersion(version="0.9.2"))
    with pytest.raises(UnavailableError, match="abandoned: no disk"):
        leaver.leave(lambda: now, lambda: None, give_up)
    leaver.become(now)
    monkeypatch.setattr(upgrades, "examine", lambda *_: upgrades.OtherVersion(version=VERSION))
    assert leaver.leave(lambda: now, lambda: None, give_up).to == VERSION


def test_a_note_that_cannot_be_written_keeps_no_version_from_starting(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaver = upgrades.Upgrades(settings(shop), FakeClock(), lambda *_: None)
    leaver.restart = upgrades.Restart(interpreter=("python",), arguments=())
    became: list[str] = []

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(upgrades, "examine", lambda *_: upgrades.OtherVersion(version="0.9.2"))
    monkeypatch.setattr(upgrades, "write_whole", full)
    monkeypatch.setattr(upgrades.Restart, "become", lambda _: became.append("0.9.2"))
    now = Snapshot(state="Running")
    leaver.leave(lambda: now, lambda: None, lambda _, met: met(running(requested=states.Requested(upgrade=True))))
    leaver.become(now)
    assert became == ["0.9.2"]


# --- what is compared -----------------------------------------------------------------------------------------------


def test_the_formats_are_told(shop: Path, installed: Installations) -> None:
    done = installed.run("serve", "--formats", folder=shop)
    told = json.loads(done.stdout)
    assert told["engine"] == "0.9.1"
    assert told["formats"] == {kind: [number] for kind, number in formats().items()} | {"ledger": [2, 3]}


def test_only_formats_that_are_written_count(shop: Path) -> None:
    written = used(settings(shop, "input.kind=kafka", "input.bootstrap=x", "output.kind=files"))
    assert "step log" not in written
    assert "output log" not in written
    assert {"ledger", "chunk", "progress of file outputs"} <= set(written)
    assert unread(written, {kind: [0, number] for kind, number in written.items()}) == ""
    assert unread({"chunk": 2}, {}) == "chunk: written=2 read=[]"


def test_the_own_command_line_is_told_apart_from_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrades.sys, "executable", "/venv/bin/python")
    for given, expected in (
        (["python", "-X", "dev", "/venv/bin/dbsp-coordinator"], ("-X", "dev", "/venv/bin/dbsp-coordinator")),
        (["python", "-m", "dbsp.coordinator.serve"], ("-m", "dbsp.coordinator.serve")),
    ):
        monkeypatch.setattr(upgrades.sys, "orig_argv", [*given, "pipeline.toml", "--rescale", "2"])
        monkeypatch.setattr(upgrades.sys, "argv", [given[-1], "pipeline.toml", "--rescale", "2"])
        assert own_interpreter() == ("/venv/bin/python", *expected)
