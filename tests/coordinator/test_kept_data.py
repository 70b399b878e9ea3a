"""What versions of dbsp have stored is opened, recovered and gone on from (docs/faults.md, row 22): a changed format is noticed.

The data are those of `keep.py`. Where this fails a format was changed: read the older number too, or say in the change log that
it is not read any more, and make the data anew.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from dbsp import lmdb_files
from dbsp.coordinator import build as building
from dbsp.coordinator.build import build
from dbsp.coordinator.checks import preflight
from dbsp.coordinator.checks.doctor import diagnose
from dbsp.coordinator.service import Service
from dbsp.errors import DataError, EngineError
from dbsp.io import chunk, embedded_input, embedded_steps, step_codec
from dbsp.io.connectors.embedded import EmbeddedOutput
from dbsp.io.connectors.files import FilesOutput
from dbsp.storage import chunkfile, records
from dbsp.stored.format_numbers import NEWER, OLDER
from dbsp.trace import manifest
from dbsp.version import VERSION
from dbsp.zset import encoding
from tests.coordinator import keep, shop

KEPT = sorted(archive for kind in keep.KINDS for archive in keep.KEPT.glob(f"*-{kind}.zip"))
BYTES_MAX = 100_000
FORMATS = {
    "step log": (embedded_steps, "FORM", "steps/data.mdb"),
    "log record": (step_codec, "FORMAT", "steps/data.mdb"),
    "input log": (embedded_input, "FORM", "input/data.mdb"),
    "input record": (chunk, "MAGIC", "input/data.mdb"),
    "output log": (EmbeddedOutput, "form", "outputs/0/data.mdb"),
    "ledger": (preflight, "FORMS", "control/data.mdb"),
    "database file (LMDB)": (lmdb_files, "FORMAT", "data.mdb"),
    "version record": (records, "FORMAT", "durable/data.mdb"),
    "trace manifest": (manifest, "FORMAT", "durable/data.mdb"),
    "chunk": (chunkfile, "FORMAT", "durable/data.mdb"),
    "batch": (encoding, "FORMAT", "durable/data.mdb"),
    "progress of file outputs": (FilesOutput, "form", "files/.progress/0/data.mdb"),
}
ELSEWHERE = {"input of files", "letter log"}
"""Kinds that the data kept here do not have: `tests/storage/test_other_formats.py` has all."""


def unpacked(archive: Path, folder: Path) -> Path:
    """A pipeline's folder with this data in it."""
    kind = archive.name.removesuffix(".zip").rpartition("-")[2]
    with zipfile.ZipFile(archive) as found:
        found.extractall(keep.prepared(folder, kind))
    return folder


def kept(kind: str) -> Path:
    return keep.KEPT / f"{VERSION}-{kind}.zip"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("data.mdb"))}


def test_data_of_this_version_are_kept_and_small() -> None:
    assert {kept(kind) for kind in keep.KINDS} <= set(KEPT), "python -m tests.coordinator.keep"
    assert sum(archive.stat().st_size for archive in KEPT) < BYTES_MAX


@pytest.mark.parametrize("archive", KEPT, ids=lambda archive: archive.name.removesuffix(".zip"))
def test_a_pipeline_goes_on_from_what_was_kept(tmp_path: Path, archive: Path) -> None:
    config = shop.settings(unpacked(archive, tmp_path))
    assert not diagnose(config).findings
    engine = archive.name.rpartition("-")[0]
    with Service(config, build(config, accepting=[engine])) as service:
        assert service.snapshot.step == 6, "the two steps above the checkpoint were run again"
        expected = {
            customer: (len(mine), sum(mine), 1)
            for number, customer in enumerate("abcd")
            if (mine := [n * 10 for n in range(60) if n % 4 == number])
        }
        assert shop.rows(service) == expected
        keep.push(service, 6)
        assert service.checkpoint() >= 3
    with Service(config) as service:
        assert sum(count for count, _, _ in shop.rows(service).values()) == 70
    assert not diagnose(config).findings


@pytest.mark.parametrize("further", [1, -1], ids=["read by an older version", "read by a newer one"])
@pytest.mark.parametrize("kind", FORMATS)
def test_another_format_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, further: int
) -> None:
    """Each number in turn is one that this version does not read: what is kept is newer, or older, than it knows."""
    module, name, file = FORMATS[kind]
    outputs = "files" if kind == "progress of file outputs" else "embedded"
    config = shop.settings(unpacked(kept(outputs), tmp_path))
    before = contents(tmp_path)
    found = getattr(module, name)
    monkeypatch.setattr(module, name, moved(found, -further))
    with pytest.raises(DataError) as refused:
        build(config)
    number, known = number_of(found), number_of(getattr(module, name))
    assert f"found={number} known={known}" in refused.value.message
    assert file in refused.value.message
    assert refused.value.hint == (NEWER if further > 0 else OLDER)
    assert contents(tmp_path) == before


def number_of(found: int | str | bytes | tuple[str, ...]) -> int:
    """The number itself, or the one that ends a name; of several the newest."""
    if isinstance(found, tuple):
        return number_of(found[-1])
    return found if isinstance(found, int) else int(found[-1:])


def moved(found: int | str | bytes | tuple[str, ...], by: int) -> int | str | bytes | tuple[str, ...]:
    """The number itself, or the one that ends a name; of several so far that the newest is not read."""
    if isinstance(found, tuple):
        return tuple(str(moved(name, by * (len(found) if by > 0 else 1))) for name in found)
    if isinstance(found, int):
        return found + by
    if isinstance(found, str):
        return f"{found[:-1]}{int(found[-1]) + by}"
    return found[:-1] + str(int(found[-1:]) + by).encode()


def test_every_kind_of_format_is_looked_at() -> None:
    assert set(preflight.formats()) == set(FORMATS) | ELSEWHERE


def test_steps_that_a_complete_version_holds_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version may start over them: whether it is published yet makes no difference."""
    config = shop.settings(unpacked(kept("embedded"), tmp_path))
    monkeypatch.setattr(building, "VERSION", "99.0")
    with pytest.raises(EngineError, match="steps 4 to 5 by"):
        build(config)
    monkeypatch.setattr(preflight, "_published_step", lambda _: 2)
    with pytest.raises(EngineError, match="steps 4 to 5 by"):
        build(config)
