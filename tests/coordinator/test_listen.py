"""Where a service says that it answers, when two were started (`dbsp.coordinator.listen`)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dbsp.coordinator import listen
from dbsp.coordinator.config import HttpSection
from dbsp.coordinator.http import make_app
from dbsp.coordinator.listen import Server, bind, read_address
from dbsp.coordinator.serve import announce
from dbsp.coordinator.service import Service
from tests.coordinator.shop import settings


def server_of(service: Service) -> Server:
    return Server(make_app(service), bind(HttpSection(port=0)), service.config.data_dir)


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
