"""Where a service says that it answers, when two were started (`dbsp.coordinator.http.listen`)."""

from __future__ import annotations

import errno
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from dbsp.coordinator.address import ADDRESS_FILE, read_address, write_whole
from dbsp.coordinator.http import listen
from dbsp.coordinator.http.app import make_app
from dbsp.coordinator.http.listen import HttpServer, bind
from dbsp.coordinator.running.control import raise_epoch
from dbsp.coordinator.running.ledger_file import LmdbControl
from dbsp.coordinator.running.notices import EpochClaimed, Notice
from dbsp.coordinator.serve import announce
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import HttpSection
from tests.certificates import certificate
from tests.coordinator.shop import settings
from tests.open_sockets import none_left_open


def server_of(service: Service) -> HttpServer:
    return HttpServer(make_app(service), bind(HttpSection(port=0)), service.config.data_dir)


def test_the_one_that_claims_last_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second one writes its address after the first did, and before the first claims; the first owns the pipeline."""
    service = Service(settings(folder))
    mine, other = server_of(service), server_of(service)
    announce(mine, service)
    other_pid = os.getpid() + 1
    with monkeypatch.context() as patch:
        patch.setattr(listen.os, "getpid", lambda: other_pid)
        other.announce()
    assert read_address(service.config.data_dir)["url"] == other.url
    service.start()
    try:
        assert read_address(service.config.data_dir)["url"] == mine.url
        with monkeypatch.context() as patch:
            patch.setattr(listen.os, "getpid", lambda: other_pid)
            other.stop()
        assert read_address(service.config.data_dir)["url"] == mine.url, "who ends forgets its own address alone"
    finally:
        service.stop()
    mine.stop()
    assert read_address(service.config.data_dir) == {}


@pytest.mark.parametrize("call", ["write_text", "rename"])
def test_an_address_that_cannot_be_written_leaves_the_one_before_and_nothing_else(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / ADDRESS_FILE
    write_whole(file, "{}")

    def full(_path: Path, *_args: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, call, full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(file, '{"pid": 1}')
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(ADDRESS_FILE, "{}")]


class Rival:
    """An observer: at each claim it begins to raise the epoch itself, and looks whether it can while the claim is told."""

    def __init__(self, service: Service) -> None:
        self.done, self.early = threading.Event(), False
        self._folder = service.config.data_dir

    def stepped(self, *_parts: Any, **_more: Any) -> None:
        """Not looked at."""

    def noted(self, notice: Notice) -> None:
        if isinstance(notice, EpochClaimed) and not self.done.is_set():
            threading.Thread(target=self._raise, args=(notice.epoch + 1,)).start()
            self.early = self.done.wait(0.3)

    def _raise(self, epoch: int) -> None:
        control = LmdbControl(self._folder)
        control.change(epoch, lambda ledger: raise_epoch(ledger, epoch))
        control.close()
        self.done.set()


def test_nobody_claims_while_a_claim_is_told(folder: Path) -> None:
    """Else the address that the older one writes could come after the newer one's."""
    service = Service(settings(folder))
    rival = Rival(service)
    service.tell(rival)
    service.start(wait=False)
    assert rival.done.wait(60)
    assert not rival.early
    service.stop(now=True, quiet=True)


async def endless(_scope: Any, _receive: Any, send: Any) -> None:
    """An application whose responses have no end."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})


@pytest.mark.parametrize("has_tls", [False, True])
def test_no_socket_stays_open_when_it_stops(tmp_path: Path, has_tls: bool) -> None:
    """With clients that have sent nothing (in TLS: that are in their handshake), and one that does not read."""
    certificate(tmp_path, "here", x509.DNSName("localhost"))
    pem = {"certificate": "here.pem", "key": "here.key"} if has_tls else {}
    with none_left_open():
        server = HttpServer(endless, bind(HttpSection(port=0, **pem)), tmp_path, folder=tmp_path)
        server.start()
        with socket.create_connection(server.address), socket.create_connection(server.address) as stalled:
            stalled.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            if not has_tls:
                assert stalled.recv(1, socket.MSG_PEEK)
            server.stop()
