"""`coordinator doctor`: sound files are sound, and every kind of damage is found, named, and never repaired."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import lmdb
import pyarrow as pa
import pytest

from dbsp.coordinator.checks import doctor
from dbsp.coordinator.checks.doctor import Diagnosis, diagnose
from dbsp.coordinator.running.control import Saved, new_ledger
from dbsp.coordinator.running.ledger_file import LmdbControl
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import load_config
from dbsp.errors import UnavailableError
from dbsp.layout import initial, rescaled
from dbsp.steps.timing import Timing
from dbsp.store import CheckpointId
from dbsp.stored.checksums import sealed
from tests.coordinator.shop import script, settings_text

CIRCUIT = """
import dbsp
orders = dbsp.table("orders", {"id": dbsp.INT64, "customer": dbsp.STRING, "amount": dbsp.INT64}, primary_key=["id"])
per_customer = orders.group_by("customer").aggregate(orders=dbsp.count(), amount=dbsp.sum("amount"))
pipeline = dbsp.circuit("shop", {"per_customer": per_customer})
"""
SETTINGS = settings_text("[checkpoint]\ninterval_s = 1000\n")
DURABLE = "workers/0001/durable/data.mdb"
FILES = ["control/data.mdb", "steps/data.mdb", "input/data.mdb", "outputs/0/data.mdb", DURABLE]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped pipeline with two versions and two steps behind the newest one."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "circuit.py").write_text(CIRCUIT)
    (folder / "pipeline.toml").write_text(SETTINGS)
    service = Service(load_config(folder / "pipeline.toml", environment={}))
    service.start(timeout_s=60)
    for number in range(6):
        ids = range(300 * number, 300 * number + 300)
        rows = {"id": ids, "customer": [f"c{i % 50}" for i in ids], "amount": [i % 7 for i in ids]}
        service.wait_until_processed(service.push("orders", pa.table(rows)), 60)
        if number in (1, 3):
            service.checkpoint(60)
    service.stop(now=True)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


def look(folder: Path, *overrides: str) -> Diagnosis:
    return diagnose(load_config(folder / "pipeline.toml", overrides=overrides, environment={}))


def said(found: Diagnosis) -> str:
    return "\n".join(f"{f.what} worker={f.worker} chunk={f.chunk} {f.file}" for f in found.findings)


def raw(file: Path, names: int = 8) -> lmdb.Environment:
    return lmdb.open(str(file.parent), max_dbs=names, map_size=1 << 28, lib_version=0)  # noqa: TID251 - as another program


def prints(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock.mdb"
    }


def test_sound_files_are_sound_and_stay_as_they_are(folder: Path) -> None:
    before = prints(folder)
    found = look(folder)
    assert found.findings == ()
    assert prints(folder) == before
    files = {str(seen.file.relative_to(folder / "data")): seen.counts for seen in found.examined}
    assert set(FILES) <= set(files)
    assert files[DURABLE]["versions"] == 2
    assert files[DURABLE]["chunks"] > 0
    assert files["steps/data.mdb"] == {"step records": 6 - 2}
    assert files["input/data.mdb"]["input rows"] == 300 * 4
    assert "everything that was read is sound" in found.as_text()


def test_a_worker_that_joins_before_the_first_step_may_have_no_outputs() -> None:
    """The version before the one by which it joined is the empty one, which is saved nowhere."""
    two = initial(2)
    three = rescaled(two, 3, step=0)
    checkpoint = CheckpointId(run="r", epoch=2, step=0, layout_version=three.version, fingerprint="f")
    saved = Saved(version=1, checkpoint=checkpoint, positions={}, timing=Timing(), wall_us=0, published=True)
    ledger = replace(
        new_ledger(fingerprint="f", nodes=(), layout=two), layouts={0: two, three.version: three}, saved={1: saved},
        members=frozenset(three.workers), forming=frozenset(),
    )  # fmt: skip
    assert [doctor._joins(ledger, worker) for worker in three.workers] == [False, False, True]
    later = replace(ledger, saved={2: replace(saved, version=2)})
    assert not any(doctor._joins(later, worker) for worker in three.workers), "the version before cannot be opened"


def test_a_worker_that_left_and_joined_again_is_sound(folder: Path) -> None:
    """Its outputs have a gap where others had its keys."""
    with Service(load_config(folder / "pipeline.toml", environment={})) as service:
        for workers in (1, 2):
            service.rescale(workers, 60)
            rows = pa.table({"id": range(300), "customer": ["c"] * 300, "amount": [workers] * 300})
            service.wait_until_processed(service.push("orders", rows), 60)
    assert look(folder).findings == ()


def test_what_a_worker_has_put_out_that_left_is_read_too(folder: Path) -> None:
    with Service(load_config(folder / "pipeline.toml", environment={})) as service:
        service.rescale(1, 60)
    assert look(folder).findings == ()
    left = folder / "data" / "outputs" / "1" / "data.mdb"
    garbage(left)
    assert [finding.file for finding in look(folder).findings] == [left]


def missing(file: Path) -> None:
    file.unlink()


def empty(file: Path) -> None:
    os.truncate(file, 0)


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2 // 4096 * 4096)


def garbage(file: Path) -> None:
    file.write_bytes(b"x" * file.stat().st_size)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("harm", [missing, empty, cut, garbage])
def test_a_damaged_file_is_named(folder: Path, file: str, harm: Callable[[Path], None]) -> None:
    harm(folder / "data" / file)
    before = prints(folder)
    found = look(folder)
    assert {str(finding.file) for finding in found.findings} == {str(folder / "data" / file)}
    assert all(finding.remedy for finding in found.findings)
    assert prints(folder) == before
    if file == DURABLE:
        assert {finding.worker for finding in found.findings} == {1}


def flipped(file: Path, find: Callable[[lmdb.Environment], bytes], at: float = 0.7) -> None:
    """Flip one bit inside a value of an LMDB file, wherever the value stands (old pages may hold it too)."""
    with raw(file) as env:
        value = find(env)
    data = bytearray(file.read_bytes())
    places = [found.start() for found in re.finditer(re.escape(value), bytes(data))]
    assert places
    for place in places:
        data[place + int(len(value) * at)] ^= 4
    file.write_bytes(data)


def first_of(name: str | None, prefix: bytes = b"") -> Callable[[lmdb.Environment], bytes]:
    def find(env: lmdb.Environment) -> bytes:
        db = env.open_db(name.encode(), create=False) if name else None
        with env.begin(db=db) as txn:
            cursor = txn.cursor()
            assert cursor.set_range(prefix)
            return bytes(cursor.value())

    return find


@pytest.mark.parametrize(
    ("file", "find", "story"),
    [
        (DURABLE, first_of(None, b"c"), "chunk"),
        (DURABLE, first_of(None, b"v"), "version=1: a record fails its checksum"),
        ("steps/data.mdb", first_of("records"), "a step log record is damaged"),
        ("input/data.mdb", first_of("rows"), "an input record is damaged"),
        ("outputs/0/data.mdb", first_of("data"), "an output record is damaged"),
        ("control/data.mdb", first_of("ledger"), "checksum"),
    ],
)
def test_a_flipped_bit_is_found(folder: Path, file: str, find: Callable[[lmdb.Environment], bytes], story: str) -> None:
    flipped(folder / "data" / file, find)
    found = look(folder)
    assert story in said(found)
    assert {str(finding.file) for finding in found.findings} == {str(folder / "data" / file)}


def test_every_flipped_bit_of_a_chunk_is_found(folder: Path) -> None:
    """Header, body and padding: each eighth part of a chunk."""
    file = folder / "data" / DURABLE
    sound = file.read_bytes()
    for eighth in range(8):
        file.write_bytes(sound)
        flipped(file, first_of(None, b"c"), eighth / 8)
        (finding,) = look(folder).findings
        assert (finding.worker, finding.chunk is not None) == (1, True)
        assert "versions=[" in finding.what


def deleted(file: Path, name: str | None, prefix: bytes, number: int = 0) -> None:
    """Delete a record as a bug of ours could, leaving a sound file."""
    with raw(file) as env:
        db = env.open_db(name.encode(), create=False) if name else None
        with env.begin(write=True, db=db) as txn:
            keys = [key for key, _ in txn.cursor() if bytes(key).startswith(prefix)]
            txn.delete(keys[number])


@pytest.mark.parametrize(
    ("file", "name", "prefix", "number", "story"),
    [
        (DURABLE, None, b"c", 0, "a chunk is missing"),
        (DURABLE, None, b"v", -1, "no version that every worker of its layout holds"),
        (DURABLE, None, b"m", 0, "has no epoch"),
        ("steps/data.mdb", "records", b"", 1, "out of order"),
        ("steps/data.mdb", "records", b"", -1, "last records are missing"),
        ("steps/data.mdb", "meta", b"head", 0, "has no head"),
        ("input/data.mdb", "rows", b"", 1, "input rows are missing"),
        ("input/data.mdb", "rows", b"", -1, "input rows are missing"),
        ("outputs/0/data.mdb", "meta", b"progress", 0, "holds no progress"),
        ("outputs/0/data.mdb", "checksums", b"", -1, "checksums of steps are missing"),
        ("control/data.mdb", "ledger", b"", 0, "the ledger is empty"),
    ],
)
def test_a_missing_record_is_found(
    folder: Path, file: str, name: str | None, prefix: bytes, number: int, story: str
) -> None:
    deleted(folder / "data" / file, name, prefix, number)
    assert story in said(look(folder))


@pytest.mark.parametrize(
    ("part", "story"),
    [
        ("steps", "the step log does not reach from the checkpoint"),
        ("input", "the input log ends below what steps have read"),
        ("outputs/1", "outputs end below the checkpoint"),
        ("workers/0000", "no version that every worker of its layout holds"),
    ],
)
def test_parts_of_another_moment_are_found(folder: Path, tmp_path: Path, part: str, story: str) -> None:
    """A part restored from an older backup than the rest: each file is sound, together they are not."""
    older = tmp_path / "older"
    older.mkdir()
    for name in ("circuit.py", "pipeline.toml"):
        shutil.copy(folder / name, older / name)
    with Service(load_config(older / "pipeline.toml", environment={})) as service:
        rows = {"id": [1], "customer": ["a"], "amount": [1]}
        service.wait_until_processed(service.push("orders", pa.table(rows)), 60)
    shutil.rmtree(folder / "data" / part)
    shutil.copytree(older / "data" / part, folder / "data" / part)
    assert story in said(look(folder))


@pytest.mark.parametrize(
    ("file", "name", "key", "change"),
    [
        (DURABLE, None, b"mepoch", lambda value: bytes([value[0] ^ 4]) + value[1:]),
        (
            "outputs/0/data.mdb",
            "meta",
            b"progress",
            lambda value: sealed(b"progress", value[:23] + bytes([value[23] ^ 4])),
        ),
    ],
)
def test_an_epoch_that_nobody_had_is_found(
    folder: Path, file: str, name: str | None, key: bytes, change: Callable[[bytes], bytes]
) -> None:
    """Its checksum is right, or it has none; a service that met it would be refused as an older one, for ever."""
    with raw(folder / "data" / file) as env:
        db = env.open_db(name.encode(), create=False) if name else None
        with env.begin(write=True, db=db) as txn:
            found = txn.get(key)
            assert found is not None
            txn.put(key, change(bytes(found)))
    assert "has met an epoch that the ledger does not know" in said(look(folder))


def test_nothing_to_look_at(folder: Path) -> None:
    shutil.rmtree(folder / "data")
    with pytest.raises(UnavailableError, match="nothing to examine"):
        look(folder)


def test_the_command_tells_scripts_and_people(folder: Path) -> None:
    done = script("cli", "doctor", folder=folder)
    assert (done.returncode, "sound" in done.stdout) == (0, True), done.stderr
    flipped(folder / "data" / DURABLE, first_of(None, b"c"))
    done = script("cli", "doctor", "pipeline.toml", folder=folder)
    assert done.returncode == 3
    assert "broken: a chunk" in done.stdout
    assert "to do: stop the pipeline and restore this worker's folder" in done.stdout
    done = script("cli", "--json", "doctor", folder=folder)
    (finding,) = json.loads(done.stdout)["findings"]
    assert (done.returncode, finding["worker"]) == (3, 1)


def test_it_reads_beside_a_running_service(folder: Path) -> None:
    with Service(load_config(folder / "pipeline.toml", overrides=["checkpoint.interval_s=0.05"], environment={})) as it:
        for number in range(3):
            rows = {"id": range(5000), "customer": ["z"] * 5000, "amount": [number] * 5000}
            it.push("orders", pa.table(rows))
            done = script("cli", "doctor", folder=folder)
            assert done.returncode == 0, done.stdout


CLUSTER = ("pipeline.runtime=spark", "spark.master=spark://a:1", "layout.hosts=['192.0.2.1', '127.0.0.1']")
"""Of the first host it is known that nobody has its address."""


def test_workers_on_other_hosts_are_not_said_to_be_broken(folder: Path) -> None:
    shutil.move(folder / "data" / "workers" / "0000", folder / "far")
    control = LmdbControl(folder / "data")
    found = control.load()
    assert found is not None
    layouts = {number: replace(layout, hosts=("192.0.2.1", "127.0.0.1")) for number, layout in found.layouts.items()}
    control.change(found.epoch, lambda ledger: replace(ledger, layouts=layouts))
    control.close()
    seen = look(folder, *CLUSTER)
    assert not seen.findings, seen.findings
    assert "worker 0 lives on 192.0.2.1: run this there" in seen.left_out
    shutil.rmtree(folder / "data" / "workers" / "0001")
    (finding,) = look(folder, *CLUSTER).findings
    assert (finding.worker, finding.what) == (1, "the file is missing")


def test_a_host_without_the_coordinator_has_databases_alone(folder: Path) -> None:
    for part in ("control", "steps", "input", "outputs"):
        shutil.rmtree(folder / "data" / part)
    seen = look(folder, *CLUSTER)
    assert not seen.findings
    assert [each.worker for each in seen.examined] == [0, 1]
    with (folder / "data" / DURABLE).open("r+b") as file:
        file.truncate(100)
    (finding,) = look(folder, *CLUSTER).findings
    assert finding.worker == 1
