"""Data of a pipeline as today's version stores it, kept in `tests/coordinator/kept`: later versions must open it and go on.

`python -m tests.coordinator.keep` makes it anew, under this version's number, beside what other versions have left. Do that only
when a format was changed on purpose and older data is not read any more: the change log says so then.
"""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path

import pyarrow as pa

from dbsp.coordinator.service import Service
from dbsp.version import VERSION
from tests.coordinator.shop import CIRCUIT, settings, settings_text

KEPT = Path(__file__).parent / "kept"
KINDS = {"embedded": "", "files": '[output]\nkind = "files"\nformat = "json"\n'}
"""Kinds of outputs, whose progress is stored in files of different formats."""
MORE = """[checkpoint]
interval_s = 3600
"""
LEFT_OUT = ("lock.mdb", "writers", "scratch", "coordinator.log", "coordinator.json")


def prepared(folder: Path, kind: str) -> Path:
    """The pipeline's settings and circuit in a folder."""
    (folder / "circuit.py").write_text(CIRCUIT)
    (folder / "pipeline.toml").write_text(settings_text(MORE + KINDS[kind]))
    return folder


def rows(first: int, count: int) -> list[dict[str, object]]:
    """Orders of four customers."""
    return [{"id": n, "customer": "abcd"[n % 4], "amount": n * 10} for n in range(first, first + count)]


def make(kind: str) -> Path:
    """A pipeline with two checkpoints and two logged steps above the later one."""
    target = KEPT / f"{VERSION}-{kind}.zip"
    with tempfile.TemporaryDirectory() as place:
        folder = prepared(Path(place), kind)
        service = Service(settings(folder))
        service.start()
        for step in range(6):
            push(service, step)
            if step in (1, 3):
                service.checkpoint()
        service.stop(now=True)
        with zipfile.ZipFile(target, "w", zipfile.ZIP_LZMA) as archive:
            add_data(archive, folder)
    return target


def add_data(archive: zipfile.ZipFile, folder: Path) -> None:
    """Add what a pipeline in this folder has stored."""
    for file in sorted((folder / "data").rglob("*")):
        name = file.relative_to(folder)
        if file.is_file() and not any(part.startswith(LEFT_OUT) for part in name.parts):
            archive.writestr(zipfile.ZipInfo(str(name)), file.read_bytes(), zipfile.ZIP_LZMA)


def push(service: Service, step: int) -> None:
    """Ten orders, in a step that is over on return."""
    service.wait_until_processed(service.push("orders", pa.Table.from_pylist(rows(10 * step, 10))))


if __name__ == "__main__":
    KEPT.mkdir(exist_ok=True)
    for each in KINDS:
        made = make(each)
        print(f"{made}: {made.stat().st_size:,} bytes")
