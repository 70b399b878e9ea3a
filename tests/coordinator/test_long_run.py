"""Thousands of steps with checkpoints and restarts: open files, threads, files on the disk and memory stay as they were."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from dbsp.coordinator.service import Service
from tests.coordinator.shop import rows, settings, settings_text

STEPS = 5_000
SETTLED = 1_000
"""Steps until buffers, caches and freed pages have the size they keep."""
SETTINGS = settings_text("[checkpoint]\ninterval_s = 0.2\n[output]\nretention_steps = 50\n")


@dataclass(frozen=True)
class Held:
    """What this process and the data folder take."""

    files_open: int
    threads: int
    files: int
    disk_bytes: int
    memory_bytes: int

    @classmethod
    def now(cls, data: Path) -> Held:
        stored = [file for file in data.rglob("*") if file.is_file() and file.name != "coordinator.log"]
        status = Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]
        return cls(
            files_open=len(list(Path("/proc/self/fd").iterdir())), threads=threading.active_count(), files=len(stored),
            disk_bytes=sum(file.stat().st_blocks * 512 for file in stored), memory_bytes=int(status) * 1024,
        )  # fmt: skip


@contextmanager
def running(folder: Path) -> Iterator[Service]:
    with Service(settings(folder)) as service:
        yield service


@pytest.mark.soak
def test_thousands_of_steps_leave_nothing_behind(folder: Path) -> None:
    (folder / "pipeline.toml").write_text(SETTINGS)
    chance, kept, seen = random.Random(3), {}, []
    for begin in range(0, STEPS, 500):
        with running(folder) as service:
            for _ in range(begin, begin + 500):
                ids = [chance.randrange(2_000) for _ in range(20)]
                kept |= dict.fromkeys(ids, 1)
                changes = pa.table({"id": ids, "customer": [f"c{i % 50}" for i in ids], "amount": [1] * len(ids)})
                service.wait_until_processed(service.push("orders", changes), 60)
            assert sum(count for count, _, _ in rows(service).values()) == len(kept)
            service.checkpoint()
            if begin + 500 >= SETTLED:
                seen.append(Held.now(folder / "data"))
    first, last = seen[0], seen[-1]
    for held in seen:
        print(held)
    assert (last.files_open, last.threads, last.files) == (first.files_open, first.threads, first.files)
    assert last.disk_bytes <= 1.5 * first.disk_bytes
    assert last.memory_bytes <= first.memory_bytes + (16 << 20)
