"""The power goes at any moment of two commits and a rollback: an acknowledged version is there, whole (invariant 8)."""

from __future__ import annotations

import multiprocessing
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "storage")]

import recorder  # noqa: E402 (the path must be set first)
import victim  # noqa: E402
from databases import CHUNK_BYTES  # noqa: E402

from dbsp.errors import DbspError  # noqa: E402
from dbsp.storage import WorkerDatabase  # noqa: E402

pytestmark = pytest.mark.crash

SCRIPT = """
import sys
sys.path[:0] = [{crash!r}, {storage!r}]
import victim
import dbsp.storage.durable as durable_module
import dbsp.storage.environment as environment_module
from databases import checkpoint, run_step
from pathlib import Path
durable_module.COPY_BYTES = 16000
if {broken!r}:
    real = environment_module._open
    environment_module._open = lambda folder, size, sync: real(folder, size, False)
database = victim.attached(Path({home!r}))
def say(text):
    sys.stdout.write(text + chr(10))
    sys.stdout.flush()
for version in (3, 4):
    database.commit(version, checkpoint(1, version))
    say(f"acknowledged {{version}}")
    run_step(database, 1, version, victim.rows_of(version))
database.open(4, 2)
say("opened 4")
"""


def recorded(tmp_path: Path, broken: bool) -> tuple[bytes, list[recorder.Event]]:
    """The file before, and what happened to it."""
    home, log = tmp_path / "worker", tmp_path / "strace.log"
    victim.prepare(home)
    file = home / "durable" / "data.mdb"
    base = file.read_bytes()
    script = SCRIPT.format(
        crash=str(Path(__file__).parent),
        storage=str(Path(__file__).parents[1] / "storage"),
        home=str(home),
        broken=broken,
    )
    command = [*recorder.STRACE, "-o", str(log), sys.executable, "-B", "-c", script]
    subprocess.run(command, check=True, timeout=120, stdout=subprocess.DEVNULL)
    return base, recorder.events(log, file)


def judge(home: Path, file: Path, chosen: list[recorder.Image], answers: multiprocessing.Queue[str]) -> None:
    """Open each image and say what is wrong with it; in a process of its own, because a broken file may end it."""
    for image in chosen:
        answers.put(f"? {image.story}")
        file.write_bytes(image.content)
        answers.put(fault(home, image))


def fault(home: Path, image: recorder.Image) -> str:
    """What is wrong, or nothing."""
    acknowledged = max([2, *(int(text.split()[1]) for text in image.said)])
    try:
        database = WorkerDatabase(home, map_size_bytes=1 << 22, chunk_bytes_max=CHUNK_BYTES)
        try:
            report = database.verify()
        finally:
            database.close()
    except DbspError as error:
        return f"{image.story}: {error}"
    if acknowledged not in report.versions:
        return f"{image.story}: acknowledged {acknowledged}, found {report.versions}"
    if max(report.versions) > acknowledged + 1:
        return f"{image.story}: found {report.versions} after {acknowledged}"
    return ""


def judged(tmp_path: Path, broken: bool, tries: int, seed: int) -> tuple[int, list[str]]:
    """How many images there were, and the faults."""
    base, happened = recorded(tmp_path, broken)
    chosen = list(recorder.images(base, happened, tries, random.Random(seed)))
    home = tmp_path / "image"
    shutil.copytree(tmp_path / "worker", home)
    for scratch in home.glob("scratch-*"):
        shutil.rmtree(scratch)
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    child = context.Process(target=judge, args=(home, home / "durable" / "data.mdb", chosen, answers))
    child.start()
    faults = []
    for image in chosen:
        started = answers.get(timeout=60)
        assert started == f"? {image.story}"
        answer = answers.get(timeout=60)
        if answer:
            faults.append(answer)
    child.join(timeout=60)
    assert child.exitcode == 0
    return len(chosen), faults


def test_an_acknowledged_version_survives_power_loss(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    count, faults = judged(tmp_path, broken=False, tries=12, seed=seed)
    assert faults == [], f"seed={seed}"
    assert count > 300


def test_a_store_that_does_not_sync_is_caught(tmp_path: Path) -> None:
    _, faults = judged(tmp_path, broken=True, tries=0, seed=1)
    assert faults


@pytest.mark.soak
def test_many_power_losses(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    count, faults = judged(tmp_path, broken=False, tries=400, seed=seed)
    assert faults == [], f"seed={seed}"
    assert count > 10_000
