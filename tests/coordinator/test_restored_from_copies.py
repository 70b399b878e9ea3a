"""The data folder is lost with all databases; what is restored from copies of checkpoints goes on as if it had not been."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import dbsp
from dbsp.circuit.load import load_circuit
from dbsp.coordinator.backup.from_copies import FromCopies, restore_from_copies, rewound
from dbsp.coordinator.running.control import new_ledger
from dbsp.coordinator.running.relocations import moved_since
from dbsp.coordinator.service import Service
from dbsp.errors import CircuitError, ConfigError, DataError, FencedError, UnavailableError
from dbsp.io.embedded_input import EmbeddedInputLog
from dbsp.io.producer_numbers import ProducerNumbers
from dbsp.io.pushed import Producer, Push
from dbsp.layout import initial
from dbsp.object_places import FolderPlace
from dbsp.plan.planner import plan as make_plan
from dbsp.storage.copied_checkpoints import CheckpointName, CopiedCheckpoints
from dbsp.storage.copies import WorkerCopies
from dbsp.zset.batch import Batch
from tests.coordinator.copies import pipeline
from tests.coordinator.shop import CIRCUIT, rows, settings
from tests.coordinator.test_backups import Run, Step, histories
from tests.laws.circuits import relations
from tests.laws.relation import Relation, p, t, u
from tests.pace import examples

COPIES = '[checkpoint]\ninterval_s = 1000\ncopies = "../spare"'


@hypothesis_settings(max_examples=examples(6), deadline=None, suppress_health_check=list(HealthCheck))
@given(relations(), histories, st.data(), st.integers(1, 3), st.sampled_from([None, 1, 2, 3]))
@pytest.mark.timeout(600)
def test_a_run_that_lost_every_disk_ends_as_one_that_did_not(
    relation: Relation, steps: list[Step], data: st.DataObject, workers: int, after: int | None
) -> None:
    """All pushes are repeated: views, and every part of every output since the checkpoint, are those of the other run."""
    plan = make_plan(dbsp.circuit("generated", {"v": relation.stream, "t": t, "u": u, "p": p}))
    cut = data.draw(st.integers(0, len(steps) - 1))
    lost = data.draw(st.integers(cut, len(steps)))
    with tempfile.TemporaryDirectory() as place:
        golden = Run(pipeline(Path(place) / "golden", workers), plan)
        golden.push(steps, 0)
        expected, outputs = golden.view(), golden.outputs()
        golden.service.stop()

        config = pipeline(Path(place) / "one", workers, COPIES)
        run = Run(config, plan)
        run.push(steps[:cut], 0)
        run.service.checkpoint(60)
        at_cut = run.view()
        run.push(steps[cut:lost], cut)
        run.service.stop(now=True)
        shutil.rmtree(config.data_dir)
        assert config.copies is not None
        found = restore_from_copies(config.copies, config, workers=after, plan=plan)
        run = Run(config, plan)
        try:
            assert len(run.service.layout().workers) == (after or workers)
            assert run.view() == at_cut
            run.push(steps, 0)
            assert run.view() == expected
            if len(run.service.layout().workers) == workers:
                assert run.outputs() == [part for part in outputs if part[0] >= found.step]
        finally:
            run.service.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pipeline(tmp_path / "one", 2, COPIES)
    return tmp_path / "one"


def push(service: Service, sequence: int, count: int = 1, *, wait: bool = True) -> None:
    """Push so many rows of customer "a" under a number."""
    ids = [100 * sequence + number for number in range(count)]
    table = pa.table({"id": ids, "customer": ["a"] * count, "amount": [1] * count})
    position = service.push("orders", table, producer=Producer(id="till", sequence=sequence))
    if wait:
        service.wait_until_processed(position, 60)


def restored(folder: Path, **more: Any) -> FromCopies:
    """Restore the pipeline of this folder."""
    config = settings(folder)
    assert config.copies is not None
    return restore_from_copies(config.copies, config, **more)


def checkpoints(folder: Path) -> CopiedCheckpoints:
    return CopiedCheckpoints(FolderPlace((folder / "../spare").absolute()), "shop")


def versions(folder: Path) -> list[int]:
    """The versions that the place lists, each whole at both workers, and no manifest more than these and the last two."""
    names = [*checkpoints(folder).kept(), *checkpoints(folder).names()]
    for worker in ("0000", "0001"):
        there = {int(path.name.split("-")[0]) for path in (folder / "../spare/shop" / worker / "versions").iterdir()}
        assert {name.version for name in names} <= there
        assert len(there - {name.version for name in names}) <= 2, "the version before, and one that goes with the next"
        copies = WorkerCopies(FolderPlace((folder / "../spare").absolute()), f"shop/{worker}")
        named = {chunk for name in copies._all() for chunk in copies._manifest(name).chunks.values()}
        assert named == set(copies._names("chunks")), "the chunks that manifests name are there, and no others"
    return [name.version for name in names]


def test_what_is_lost_is_named_and_only_that(folder: Path) -> None:
    """Rows that had arrived when the checkpoint was copied are named with both ends; all pushes may be repeated."""
    with Service(settings(folder)) as service:
        push(service, 0, 3)
        service.pause()
        push(service, 1, 3, wait=False)
        service.checkpoint(60)
        service.stop(now=True)
    shutil.rmtree(folder / "data")
    found = restored(folder)
    assert found.positions == {("orders", 0): 3}
    assert [(each.first, each.known_end) for each in found.lost] == [(3, 6)]
    assert found.torn == ()
    with Service(settings(folder)) as service:
        assert rows(service) == {"a": (3, 3, 1)}
        push(service, 0, 3)
        assert rows(service) == {"a": (3, 3, 1)}
        push(service, 1, 3)
        assert rows(service) == {"a": (6, 6, 1)}


def test_an_owner_that_goes_on_is_refused_and_changes_nothing(folder: Path) -> None:
    """The pipeline is restored in another folder while the old service runs; then both take checkpoints."""
    other = folder.with_name("two")
    pipeline(other, 2, COPIES)
    with Service(settings(folder)) as service:
        push(service, 0, 3)
        service.checkpoint(60)
        found = restored(other)
        push(service, 1, 3)
        with pytest.raises((FencedError, UnavailableError)):
            service.checkpoint(60)
        assert service.wait_for_end(60) is not None
        with pytest.raises(FencedError, match="newer epoch owns these copies"):
            service.stop()
        service._finish = None  # the end was looked at
    with Service(settings(other)) as service:
        assert rows(service) == {"a": (3, 3, 1)}
        push(service, 2)
        assert service.checkpoint(60) == found.version + 1
    assert versions(folder) == [found.version + 1]


def test_retention_keeps_so_many_and_a_restore_chooses_among_them(folder: Path) -> None:
    """A version goes with all that only it named; one that was restored goes on under new numbers."""
    with Service(settings(folder, "checkpoint.copies_kept=3")) as service:
        for number in range(5):
            push(service, number, 40)
            service.checkpoint(60)
        service.stop(now=True)
    assert versions(folder) == [3, 4, 5]
    shutil.rmtree(folder / "data")
    with pytest.raises(DataError, match=r"no such checkpoint among the copies.*version=2"):
        restored(folder, version=2)
    assert restored(folder, version=3).step == 3
    with Service(settings(folder)) as service:
        assert rows(service) == {"a": (120, 120, 1)}
        push(service, 7)
        assert service.checkpoint(60) == 4
    with Service(settings(folder)) as service:
        assert rows(service) == {"a": (121, 121, 1)}
    assert versions(folder) == [4]


def test_an_older_checkpoint_stays_for_its_time(folder: Path) -> None:
    with Service(settings(folder, "checkpoint.copies_kept_s=1000")) as service:
        for number in range(3):
            push(service, number)
            service.checkpoint(60)
        service.stop(now=True)
    assert versions(folder) == [0, 1, 2, 3]
    with Service(settings(folder)) as service:
        push(service, 3)
        service.checkpoint(60)
        push(service, 4)
        service.checkpoint(60)
    assert versions(folder) == [5]


def test_a_kept_version_stays_until_it_is_deleted(folder: Path) -> None:
    """Also when the pipeline was restored from it, and has gone on."""
    with Service(settings(folder)) as service:
        push(service, 0, 40)
        assert service.keep_version(60)["version"] == 1
        for number in range(1, 4):
            push(service, number, 40)
            service.checkpoint(60)
        service.stop(now=True)
    assert versions(folder) == [1, 4]
    for _ in range(2):
        shutil.rmtree(folder / "data")
        assert restored(folder, version=1).step == 1
        with Service(settings(folder)) as service:
            assert rows(service) == {"a": (40, 40, 1)}
            for number in range(1, 4):
                push(service, number)
                service.checkpoint(60)
            assert rows(service) == {"a": (43, 43, 1)}
        assert versions(folder) == [1, 4]
    checkpoints(folder).delete(checkpoints(folder).kept(), kept=True)
    with Service(settings(folder)) as service:
        push(service, 5)
        service.checkpoint(60)
    assert versions(folder) == [5]


def test_a_checkpoint_that_is_not_whole_or_damaged_is_refused_by_name(folder: Path) -> None:
    with Service(settings(folder, "checkpoint.copies_kept=2")) as service:
        for number in range(2):
            push(service, number)
            service.checkpoint(60)
        service.stop(now=True)
    shutil.rmtree(folder / "data")
    (manifest,) = (folder / "../spare/shop/0001/versions").glob(f"{1:020}-*")
    aside = manifest.with_name(".new-aside")
    manifest.rename(aside)
    with pytest.raises(DataError, match=r"not whole among the copies.*0001 version=1"):
        restored(folder, version=1)
    assert not (folder / "data").exists()
    aside.rename(manifest)
    newest = max((folder / "../spare/shop/checkpoints").iterdir())
    text = newest.read_bytes()
    newest.write_bytes(text.replace(b'"step":', b'"stop":'))
    with pytest.raises(DataError, match=f"checkpoint among the copies is damaged.*{newest.name}"):
        restored(folder)
    newest.write_bytes(text)
    restored(folder)


def test_what_cannot_go_on_is_refused_before_anything_is_changed(folder: Path) -> None:
    with Service(settings(folder)) as service:
        push(service, 0)
    before = checkpoints(folder).names()
    with pytest.raises(ConfigError, match="data folder is not empty"):
        restored(folder)
    shutil.rmtree(folder / "data")
    with pytest.raises(ConfigError, match="settings name another place"):
        restore_from_copies(FolderPlace(folder / "elsewhere"), settings(folder))
    other = folder.with_name("two")
    pipeline(other, 2, COPIES)
    (other / "circuit.py").write_text(CIRCUIT.replace("> 500", "> 501"))
    with pytest.raises(CircuitError, match=r"amount > 500.* -> .*amount > 501"):
        restored(other)
    (folder / "landing").mkdir()
    with pytest.raises(ConfigError, match="reads files cannot go on"):
        restore_from_copies(
            FolderPlace((folder / "../spare").absolute()),
            settings(folder, "input.kind=files", "input.directory=landing"),
        )
    assert checkpoints(folder).names() == before
    assert not (folder / "data").exists()


def test_a_push_that_a_checkpoint_cut_is_named_and_its_repeat_is_refused(tmp_path: Path) -> None:
    """A push to another partition with a later number is known; one before, whose rows are lost, is not taken for a repeat."""
    (tmp_path / "circuit.py").write_text(CIRCUIT)
    (table,) = load_circuit("circuit.py:pipeline", tmp_path).tables
    batch = Batch.from_rows(table.schema, [((number, "a", 1), 1) for number in range(4)])
    push_of_four = Push(batch=batch, operations=np.zeros(4, np.int8))
    log = EmbeddedInputLog(tmp_path / "old", [table], partitions=3, create=True)
    for sequence, partition in ((0, 0), (1, 1), (2, 2), (3, 0)):
        log.append("orders", push_of_four, Producer(id="till", sequence=sequence), partition)
    positions = {("orders", 0): 4, ("orders", 1): 3, ("orders", 2): 0}
    known = json.loads(json.dumps(log.remembered(positions)))
    assert known["torn"] == [["orders", "till", 1, 3, 4]]
    log.close()
    new = EmbeddedInputLog(tmp_path / "new", [table], partitions=3, create=True)
    new.resume(positions, known)
    assert dict(new.ends()) == positions == dict(new.floors())
    assert new.last_sequence("orders", "till") == 1
    repeat = new.append("orders", push_of_four, Producer(id="till", sequence=0), 0)
    assert (repeat.first, repeat.last, repeat.repeated) == (0, 4, True)
    with pytest.raises(DataError, match="repeats a sequence number with other rows"):
        new.append("orders", push_of_four, Producer(id="till", sequence=1), 1)
    taken = new.append("orders", push_of_four, Producer(id="till", sequence=2), 2)
    assert (taken.first, taken.last, taken.repeated) == (0, 4, False)
    new.close()
    again = EmbeddedInputLog(tmp_path / "again", [table], partitions=3, create=True)
    again.resume(positions, log_of(known, 2))
    with pytest.raises(DataError, match="comes after a greater one"):
        again.append("orders", push_of_four, Producer(id="till", sequence=2), 2)
    again.close()


def log_of(known: dict[str, Any], lost: int) -> dict[str, Any]:
    """What would be known if a later number than a lost one were in the checkpoint."""
    (found,) = known["producers"]
    numbers = ProducerNumbers(newest=3, known=0).without({lost}, 3)
    return {**known, "producers": [[found[0], 3, -1, 0, [list(gap) for gap in numbers.gaps]]]}


def test_workers_get_the_hosts_of_the_settings(tmp_path: Path) -> None:
    """Those whose host is named stay; a database of before the restore on any host is stale."""
    plan = make_plan(dbsp.circuit("made", {"t": t}))
    layout = initial(4, shards=8, dynamic_k=0.1, hosts=(("a", 1.0), ("b", 1.0)))
    ledger = new_ledger(fingerprint=plan.fingerprint, nodes=(), layout=layout)
    config = pipeline(tmp_path)
    config = replace(config, layout=replace(config.layout, hosts=["b", "c"]))
    name = CheckpointName(made=1, version=0, epoch=0, second=0)
    found = rewound(ledger, config, name, layout.workers, 1007)
    assert set(layout.hosts) == {"a", "b"}
    (now,) = found.layouts.values()
    assert [new for new, old in zip(now.hosts, layout.hosts, strict=True) if old == "b"] == ["b", "b"]
    assert [new for new, old in zip(now.hosts, layout.hosts, strict=True) if old == "a"] == ["c", "c"]
    assert moved_since(found) == dict.fromkeys(now.workers, 1007)
    alone = rewound(ledger, pipeline(tmp_path), name, layout.workers, 1007)
    assert set(alone.layouts[layout.version].hosts) == {""}
