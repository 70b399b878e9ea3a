"""Autoscale asks a command for hosts before a rescale, and gives back those that it has left."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from dbsp.coordinator import build
from dbsp.coordinator.running.host_command import HostCommand, HostOffer
from dbsp.errors import ConfigError
from tests.coordinator import hosted
from tests.coordinator.under_traffic import check_golden, make_folder, settings, traffic
from tests.spark.waiting import until

SCRIPT = """echo "$@" >> {said}
case "$1 $2" in
"offer 1") echo a;;
"offer 2") echo a,b=1;;
"offer 3") echo a; echo b; echo c;;
esac
"""


def program(folder: Path, text: str) -> str:
    file = folder / "machines"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o700)
    return str(file)


def test_hosts_are_asked_for_and_given_back_under_traffic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From one worker to three, each on a host that the command gives; then back to one, as the bounds say."""
    monkeypatch.setattr(build, "shares_disk", lambda _config: False)
    folder, said = make_folder(tmp_path), tmp_path / "said"
    machines = hosted.Machines(folder / "hosts")
    fixed = (
        'layout.hosts=["a"]', "pipeline.workers=1", "checkpoint.interval_s=0.2", "autoscale.enabled=true",
        "autoscale.step_latency_ms_max=0.001", "autoscale.window_s=0.05", "autoscale.cooldown_s=0.05",
        f'autoscale.hosts_command=["{program(tmp_path, SCRIPT.format(said=said))}"]',
    )  # fmt: skip
    with (
        hosted.running(folder, machines, *fixed, "autoscale.workers_max=3", common_disk=True) as service,
        traffic(service, 1),
    ):
        until(lambda: sorted(hosted.homes(service).values()) == ["a", "b", "c"], "three hosts")
    assert said.read_text().splitlines() == ["offer 2 a", "offer 3 a b"]
    with (
        hosted.running(folder, machines, *fixed, "autoscale.workers_max=1", common_disk=True) as service,
        traffic(service, 2),
    ):
        until(lambda: list(hosted.homes(service).values()) == ["a"], "one host")
        until(lambda: said.read_text().splitlines()[2:] == ["offer 1 a b c", "release b c"], "two are given back")
    check_golden(folder, tmp_path)


def test_without_hosts_the_workers_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "shares_disk", lambda _config: False)
    folder = make_folder(tmp_path)
    fixed = (
        'layout.hosts=["a"]', "pipeline.workers=1", "autoscale.enabled=true", "autoscale.workers_max=2",
        "autoscale.step_latency_ms_max=0.001", "autoscale.window_s=0.05", "autoscale.cooldown_s=0.05",
        f'autoscale.hosts_command=["{program(tmp_path, "echo no machine is left >&2; exit 3")}"]',
    )  # fmt: skip
    with hosted.running(folder, hosted.Machines(folder / "hosts"), *fixed, common_disk=True) as service:
        with traffic(service, 1):
            log = service.config.log_file
            until(lambda: log.read_text().count("autoscale-failed") > 1, "it is asked again after the cool-down")
        assert hosted.homes(service) == {0: "a"}
    assert "machines offer 2 a` ended with code 3: no machine is left" in log.read_text()


@pytest.fixture
def command() -> Callable[..., HostCommand]:
    """A command, and what it is after a call: nothing runs any more."""

    def made(*words: str, timeout_s: float = 60) -> HostCommand:
        ended = threading.Event()
        found = HostCommand(words, timeout_s, ended.set)
        found.offer(2, 7, ["a"])
        assert ended.wait(60)
        return found

    return made


@pytest.mark.parametrize(
    ("words", "timeout_s", "error"),
    [
        (("/no/such/program",), 60, "cannot run `/no/such/program`: No such file or directory"),
        (("sh", "-c", "exit 2"), 60, "ended with code 2"),
        (("sh", "-c", "echo a,a"), 60, "not a list of different hosts"),
        (("true",), 60, "not a list of different hosts"),
        (("echo", "no machine"), 60, "not a list of different hosts"),
        (("sh", "-c", "echo a=-1"), 60, "a host's weight must be positive"),
        (("sh", "-c", "exec sleep 600"), 0.1, "took longer than 0.1 s"),
    ],
)
def test_what_is_no_offer_is_an_error(
    command: Callable[..., HostCommand], words: tuple[str, ...], timeout_s: float, error: str
) -> None:
    found = command(*words, timeout_s=timeout_s)
    offer = found.taken()
    assert offer is not None
    assert error in (offer.error or "")
    assert (found.taken(), found.runs) == (None, False)


def test_an_offer_is_taken_once(command: Callable[..., HostCommand]) -> None:
    found = command("sh", "-c", "echo b=2, c; echo; echo d")
    assert found.runs, "until it is taken"
    assert found.taken() == HostOffer(workers=2, layout=7, hosts=(("b", 2.0), ("c", 1.0), ("d", 1.0)))
    assert not found.runs


def test_a_program_that_the_command_leaves_running_delays_nothing(
    command: Callable[..., HostCommand], tmp_path: Path
) -> None:
    """It has the command's output open: Spark's worker is such a program."""
    found = command("sh", "-c", f"sleep 600 & echo $! > {tmp_path / 'pid'}; echo b", timeout_s=30)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert found.taken() == HostOffer(workers=2, layout=7, hosts=(("b", 1.0),))


def test_the_end_of_the_service_ends_the_command() -> None:
    ended = threading.Event()
    found = HostCommand(["sh", "-c", "exec sleep 600"], 600, ended.set)
    found.release(["a"])
    until(lambda: found._process is not None, "it runs")
    found.close()
    assert ended.wait(60)
    assert "ended with code -15" in (found.failed() or "")


def test_a_command_needs_hosts_to_begin_with(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    with pytest.raises(ConfigError, match="no host is named"):
        build.build(settings(folder, 'autoscale.hosts_command=["true"]'))
