"""The shop in more than one folder, for tests of backups."""

from __future__ import annotations

from pathlib import Path

from dbsp.coordinator.settings.config import Config
from tests.coordinator.shop import CIRCUIT, settings, settings_text


def pipeline(folder: Path, workers: int = 2, more: str = "") -> Config:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "circuit.py").write_text(CIRCUIT)
    (folder / "pipeline.toml").write_text(settings_text(more, workers=workers))
    return settings(folder)


def prints(folder: Path) -> dict[str, bytes]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "lock.mdb"]
    return {str(path): path.read_bytes() for path in files}
