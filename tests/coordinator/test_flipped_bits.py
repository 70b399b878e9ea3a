"""A bit is flipped anywhere in a durable file: the doctor names the file, or the byte is one that nothing reads."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from lmdb.verify import _Verifier

from dbsp.coordinator.checks.doctor import diagnose
from dbsp.coordinator.settings.config import load_config
from tests.coordinator import keep
from tests.coordinator.test_kept_data import unpacked

PAGE = 4096
META_READ = frozenset({10, 11, *range(16, 24), *range(32, 152)})
"""Of a meta page: flags; magic, version and all fields but the address, which stands there for fixed maps alone."""
FLIPS = 40
BRANCH, LEAF = 1, 2


def in_use(data: bytes, file: Path) -> list[int]:
    """The pages in use, with both meta pages."""
    with file.open("rb") as stream:
        walk = _Verifier(stream, len(data))
        assert not walk.verify()
    return [0, 1, *(number for number, mark in enumerate(walk.live) if mark)]


def is_read(data: bytes, at: int) -> bool:
    """Whether LMDB reads the byte: of the newest meta its flags and fields alone, none between a page's places and its nodes."""
    page = at // PAGE
    if page < 2:
        newest = max((0, 1), key=lambda number: struct.unpack_from("<Q", data, number * PAGE + 144)[0])
        return page == newest and at % PAGE in META_READ
    _, _, flags, lower, upper = struct.unpack_from("<QHHHH", data, page * PAGE)
    return not (flags in (BRANCH, LEAF) and lower <= at % PAGE < upper)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak), pytest.param(3, marks=pytest.mark.soak)])
def test_a_flip_is_named_or_in_a_byte_that_nothing_reads(seed: int, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    (archive,) = keep.KEPT.glob("0.1.0-embedded.zip")
    config = load_config(unpacked(archive, folder) / "pipeline.toml", environment={})
    assert not diagnose(config).findings
    draw, named = random.Random(seed), 0
    files = sorted(config.data_dir.rglob("data.mdb"))
    for _ in range(FLIPS):
        file = draw.choice(files)
        sound = file.read_bytes()
        at = draw.choice(in_use(sound, file)) * PAGE + draw.randrange(PAGE)
        changed = bytearray(sound)
        changed[at] ^= 1 << draw.randrange(8)
        file.write_bytes(changed)
        findings = diagnose(config).findings
        named += bool(findings)
        assert findings or not is_read(sound, at), f"{file} page={at // PAGE} at={at % PAGE}"
        file.write_bytes(sound)
    assert named, "flips of bytes that are read were drawn, too"
