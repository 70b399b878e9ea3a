"""Each durable file of a pipeline, cut at each page: doctor, start and backup name it, and nobody dies of a page that is lost."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from dbsp.coordinator.backup.making import make
from dbsp.coordinator.checks.doctor import diagnose
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import Config, load_config
from dbsp.errors import DataError
from tests.coordinator.shop import CIRCUIT, settings_text
from tests.storage.test_cut_off import used

PAGE = 4096
FILES = ("control", "steps", "input", "outputs/0", "workers/0000/durable")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped pipeline whose files have large values at their ends."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "circuit.py").write_text(CIRCUIT)
    (folder / "pipeline.toml").write_text(settings_text("[checkpoint]\ninterval_s = 1000\n", workers=1))
    with Service(load_config(folder / "pipeline.toml", environment={})) as service:
        for number in range(3):
            rows = {"id": range(500), "customer": [f"c{i}" for i in range(500)], "amount": [number + 600] * 500}
            service.wait_until_processed(service.push("orders", pa.table(rows)), 60)
            service.checkpoint(60)
    return folder


def copied(made: Path, folder: Path) -> Config:
    shutil.copytree(made, folder)
    return load_config(folder / "pipeline.toml", environment={})


@pytest.mark.parametrize("part", FILES)
def test_every_cut_file_is_named_by_doctor_start_and_backup(part: str, made: Path, tmp_path: Path) -> None:
    config = copied(made, tmp_path / "copy")
    file = config.data_dir / part / "data.mdb"
    pages = used(file)
    for page in reversed(range(min(len(pages), file.stat().st_size // PAGE))):
        os.truncate(file, page * PAGE)
        named = {finding.file for finding in diagnose(config).findings}
        assert named == ({file} if any(pages[page:]) else set()), page
    for page in (max(page for page, mark in enumerate(pages) if mark), 1, 0):
        shutil.rmtree(config.data_dir)
        shutil.copytree(made / "data", config.data_dir)
        os.truncate(file, page * PAGE)
        with pytest.raises(DataError, match=str(file)):
            make(config, tmp_path / "backups", lambda *_: None)
        with pytest.raises(DataError, match=str(file)), Service(config):
            pass
