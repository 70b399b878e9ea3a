"""What systemd hears of a service: that it is ready, and that it stops, each once."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from dbsp.coordinator import serve
from dbsp.coordinator.systemd import notify
from tests.coordinator.shop import script
from tests.forked import Forked


def serving(folder: Path, address: str) -> None:
    """Run the service's command in a forked process, under a supervisor that listens at the address."""
    os.chdir(folder)
    os.environ["NOTIFY_SOCKET"] = address
    sys.argv = ["dbsp-coordinator", "pipeline.toml", "--no-progress"]
    serve.main()


@pytest.mark.parametrize("abstract", [False, True])
def test_a_service_says_when_it_is_ready_and_when_it_stops(folder: Path, abstract: bool) -> None:
    address = f"@dbsp-test-{os.getpid()}" if abstract else str(folder / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind("\0" + address[1:] if abstract else address)
        heard.settimeout(60)
        service = Forked(folder / "said.txt", serving, folder, address)
        try:
            assert heard.recv(100) == b"READY=1"
            assert script("cli", "pause", folder=folder).returncode == 0, "it answers"
            assert script("cli", "stop", folder=folder).returncode == 0
            assert heard.recv(100) == b"STOPPING=1"
            assert service.wait(60) == 0
            heard.setblocking(False)
            with pytest.raises(BlockingIOError):
                heard.recv(100)
        finally:
            service.kill()


def test_a_supervisor_that_is_gone_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    notify("READY=1")
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify("READY=1")
