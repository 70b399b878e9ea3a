"""The shop's folder, its service, and a client of its service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from dbsp.coordinator.service import Service
from tests.coordinator.shop import CIRCUIT, SETTINGS, answering, settings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "circuit.py").write_text(CIRCUIT)
    (tmp_path / "pipeline.toml").write_text(SETTINGS)
    return tmp_path


@pytest.fixture
def service(folder: Path) -> Iterator[Service]:
    made = Service(settings(folder))
    made.start(timeout_s=60)
    yield made
    made.stop(quiet=True)


@pytest.fixture
def client(service: Service) -> Iterator[httpx.Client]:
    with answering(service) as made:
        yield made
