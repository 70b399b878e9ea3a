"""The shop's folder, its service, and a client of its service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from dbsp.coordinator.service import Service
from tests.coordinator.shop import CIRCUIT, SETTINGS, answering, settings, settings_text
from tests.coordinator.versions import NO_CHECKPOINTS, Installations


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "circuit.py").write_text(CIRCUIT)
    (tmp_path / "pipeline.toml").write_text(SETTINGS)
    return tmp_path


@pytest.fixture
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installations:
    """Installations of dbsp, of which 0.9.1 is the one that new processes run."""
    made = Installations(tmp_path_factory.mktemp("installations"))
    made.install("0.9.1")
    return made


@pytest.fixture
def shop(folder: Path) -> Path:
    """The folder of a pipeline that takes no checkpoint of its own accord."""
    (folder / "pipeline.toml").write_text(settings_text(NO_CHECKPOINTS))
    return folder


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
