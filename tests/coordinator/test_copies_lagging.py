"""Copies that may lag: a lost disk takes all workers back to the newest whole version, and outputs are as if nothing was lost."""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, event, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import dbsp
from dbsp.coordinator.backup.from_copies import restore_from_copies
from dbsp.coordinator.running import copies_behind, lagging
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import Config
from dbsp.errors import AwayError, DataError, DbspError
from dbsp.object_places import FolderPlace
from dbsp.plan.planner import plan as make_plan
from dbsp.runtime import copying
from dbsp.storage.copies import WorkerCopies
from dbsp.storage.copy_manifests import ManifestName, VersionManifest
from tests.coordinator.copies import pipeline
from tests.coordinator.shop import rows, settings
from tests.coordinator.test_backups import Run, Step, histories
from tests.coordinator.test_copies import COPIES, events
from tests.coordinator.under_traffic import check_golden, make_folder, traffic
from tests.coordinator.under_traffic import settings as traffic_settings
from tests.laws.circuits import relations
from tests.laws.relation import Relation, p, t, u
from tests.pace import examples, rotating
from tests.spark.waiting import until
from tests.storage import test_object_places
from tests.storage.test_object_places import KEYS

bucket_server = test_object_places.server
LAGGING = '[checkpoint]\ninterval_s = 1000\ncopies = "../spare"\ncopies_required = 0'
FAULTS = ("lost", "late", "torn", "torn late", "away")


class Troubles:
    """The faults of a place: what happens to the objects that are put."""

    def __init__(self, seed: int = 0) -> None:
        self.draw = random.Random(seed)
        self.mode = "well"
        self.lock = threading.Lock()

    def fault(self) -> str:
        """The fault of the next put: "" is none."""
        with self.lock:
            if self.mode == "troubled":
                return self.draw.choice(FAULTS) if self.draw.random() < 0.3 else ""
            return "" if self.mode == "well" else self.mode


class TroubledPlace(FolderPlace):
    """A folder in which puts are lost, late or torn; late: the caller gets an error, and the object arrives."""

    troubles: Troubles

    def put(self, name: str, data: bytes | memoryview) -> None:
        fault = self.troubles.fault()
        if fault == "without objects":
            fault = "away" if "/checkpoints/" in name else ""
        if fault not in ("lost", "away"):
            super().put(name, bytes(data)[: len(data) // 2] if fault.startswith("torn") else data)
        if fault in ("late", "torn late", "away"):
            raise AwayError(f"the place for copies does not answer: fault={fault}")


@contextmanager
def troubled(folder: Path, seed: int = 0) -> Iterator[Troubles]:
    """The place for copies of all pipelines is one with faults; what waits for it asks again at once."""

    class Place(TroubledPlace):
        troubles = Troubles(seed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Config, "copies", property(lambda self: Place(folder) if self.checkpoint.copies else None))
        for module in (copying, copies_behind):
            patch.setattr(module, "AWAY_RETRY_S", 0.01)
        yield Place.troubles


def lag(service: Service) -> dict[str, Any]:
    found = service.status()["checkpoint_copies"]
    assert found is not None
    return dict(found)


def caught_up(service: Service) -> None:
    """Wait until the newest version is whole in the place."""
    until(lambda: lag(service)["lag_versions"] == 0, "the copies catch up")


def lose(config: Config, *workers: int) -> None:
    for worker in workers:
        shutil.rmtree(config.data_dir / "workers" / f"{worker:04}")


@hypothesis_settings(max_examples=examples(8), deadline=None, suppress_health_check=list(HealthCheck))
@given(relations(), histories, st.data(), st.integers(1, 3), st.integers(0, 1 << 30))
@pytest.mark.timeout(600)
def test_outputs_are_those_of_a_run_that_lost_nothing(
    relation: Relation, steps: list[Step], data: st.DataObject, workers: int, seed: int
) -> None:
    """Disks of any workers are lost after any step, while the place loses, cuts and delays objects, or is away."""
    plan = make_plan(dbsp.circuit("generated", {"v": relation.stream, "t": t, "u": u, "p": p}))
    with tempfile.TemporaryDirectory() as folder:
        golden = Run(pipeline(Path(folder) / "golden", workers), plan)
        golden.push(steps, 0)
        expected, outputs = golden.view(), golden.outputs()
        golden.service.stop()
        config = pipeline(Path(folder) / "one", workers, LAGGING)
        with troubled(Path(folder) / "spare", seed) as troubles:
            run = Run(config, plan)
            try:
                for number, step in enumerate(steps):
                    troubles.mode = data.draw(st.sampled_from(["well", "troubled", "away"]))
                    run.push([step], number)
                    if data.draw(st.booleans()):
                        run.service.checkpoint(60)
                    if data.draw(st.booleans()) and troubles.mode != "away":
                        caught_up(run.service)
                    if lost := data.draw(st.sets(st.integers(0, workers - 1))):
                        run.service.stop(now=data.draw(st.booleans()))
                        lose(config, *lost)
                        troubles.mode = data.draw(st.sampled_from(["well", "troubled"]))
                        run = Run(config, plan)
                assert run.view() == expected
                assert run.outputs() == outputs
                event(f"returns to the copies: {len(events(config.folder, 'returned-to-copies'))}")
            finally:
                run.service.stop(now=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pipeline(tmp_path / "one", 2, LAGGING)
    return tmp_path / "one"


def push(service: Service, first: int, count: int = 40) -> None:
    ids = list(range(first, first + count))
    table = pa.table({"id": ids, "customer": ["a"] * count, "amount": [1] * count})
    service.wait_until_processed(service.push("orders", table), 60)


def lag_and_lose(folder: Path, lost: tuple[int, ...] = (1,)) -> tuple[int, int]:
    """Three versions are published and one of them is whole in the place; a disk is lost.

    Return the version and the step to which all workers went back.
    """
    with troubled(folder.parent / "spare") as troubles:
        with Service(settings(folder)) as service:
            push(service, 0)
            service.checkpoint(60)
            caught_up(service)
            whole = lag(service)
            troubles.mode = "away"
            for number in range(1, 4):
                push(service, 100 * number)
                service.checkpoint(60)
            found = lag(service)
            assert (found["version"], found["lag_versions"]) == (whole["version"], 3)
            push(service, 400)
            service.stop(now=True)
        lose(settings(folder), *lost)
        troubles.mode = "well"
        with Service(settings(folder)) as service:
            assert rows(service) == {"a": (200, 200, 1)}
            push(service, 500)
            assert rows(service) == {"a": (240, 240, 1)}
            service.checkpoint(60)
            caught_up(service)
    return whole["version"], whole["step"]


def test_all_workers_go_back_to_the_newest_whole_version(folder: Path) -> None:
    """Though logs have no retention: they are kept from that version on."""
    version, step = lag_and_lose(folder)
    (line,) = events(folder, "returned-to-copies")
    assert f'"version": {version}' in line
    assert f'"step": {step}' in line
    assert '"lost": [1]' in line


def test_a_lost_disk_needs_no_return_while_the_copies_are_whole(folder: Path) -> None:
    with Service(settings(folder)) as service:
        push(service, 0)
        service.checkpoint(60)
        caught_up(service)
        push(service, 100)
        service.stop(now=True)
    lose(settings(folder), 0, 1)
    with Service(settings(folder)) as service:
        assert rows(service) == {"a": (80, 80, 1)}
    assert not events(folder, "returned-to-copies")
    assert len(events(folder, "restored")) == 1


def test_logs_go_when_a_newer_version_is_whole(folder: Path) -> None:
    """And not before: inputs are kept from the newest whole version."""
    with troubled(folder.parent / "spare") as troubles, Service(settings(folder)) as service:
        floors = service.built.parts.inputs.floors

        def published(first: int) -> int:
            push(service, first)
            service.checkpoint(60)
            return floors().get(("orders", 0), 0)

        published(0)
        caught_up(service)
        published(100)
        caught_up(service)
        troubles.mode = "away"
        assert [published(200), published(300), published(400)] == [80, 80, 80]
        until(lambda: "copies-away" in {alarm["kind"] for alarm in service.status()["alarms"]}, "the alarm")
        troubles.mode = "well"
        caught_up(service)
        assert published(500) == 200
        assert lag(service)["error"] is None


def test_the_status_tells_of_a_checkpoint_object_that_cannot_be_put(folder: Path) -> None:
    """All chunks and manifests are there: no worker waits."""
    with troubled(folder.parent / "spare") as troubles, Service(settings(folder)) as service:
        push(service, 0)
        service.checkpoint(60)
        caught_up(service)
        troubles.mode = "without objects"
        push(service, 100)
        service.checkpoint(60)
        until(lambda: "fault=away" in str(lag(service)["error"]), "the status names the trouble")
        troubles.mode = "well"
        caught_up(service)
        assert lag(service)["error"] is None


def test_what_is_lost_without_a_whole_copy_is_named_in_one_error(folder: Path) -> None:
    with troubled(folder.parent / "spare"):
        with Service(settings(folder)) as service:
            push(service, 0)
            service.checkpoint(60)
            caught_up(service)
            service.stop(now=True)
        lose(settings(folder), 1)
        shutil.rmtree(folder.parent / "spare")
        with pytest.raises(DataError, match=r"no version is whole among the copies: workers=\[1\] published=1 step=1"):
            Service(settings(folder)).start(timeout_s=60)


def damage_the_newest(folder: Path, damaged: str, later: tuple[int, ...]) -> None:
    """Two copies are whole and kept; the newest object of a kind is cut after the fact, and a disk is lost."""
    with troubled(folder.parent / "spare") as troubles:
        with Service(settings(folder, "checkpoint.copies_kept=2")) as service:
            for first in (0, 100):
                push(service, first)
                service.checkpoint(60)
                caught_up(service)
            troubles.mode = "away"
            for first in later:
                push(service, first)
                service.checkpoint(60)
            service.stop(now=True)
        newest = max(path for path in (folder.parent / "spare" / "shop" / damaged).rglob("*") if path.is_file())
        newest.write_bytes(newest.read_bytes()[:-9])
        lose(settings(folder), 0)
        troubles.mode = "well"
        with Service(settings(folder)) as service:
            count = 80 + 40 * len(later)
            assert rows(service) == {"a": (count, count, 1)}


def test_a_damaged_copy_is_passed_over_for_an_older_one(folder: Path) -> None:
    """The newest copy was not noted yet: logs are kept from the one before."""
    damage_the_newest(folder, "0000/versions", ())
    (line,) = events(folder, "returned-to-copies")
    assert '"version": 1' in line


@pytest.mark.parametrize("damaged", ["checkpoints", "0001/versions", "0001/chunks"])
def test_a_damaged_copy_that_is_needed_is_named(damaged: str, folder: Path) -> None:
    with pytest.raises(DataError, match=r"no version is whole .* \(version 2: .*; version 1: the logs were not kept"):
        damage_the_newest(folder, damaged, (200, 300))


def early(ledger: Any, version: int, **more: Any) -> Any:
    """Keep logs from the published version on, whether or not its copies are whole: a planted bug."""
    found = PUBLISH(ledger, version, **more)
    return lagging.note_copied(found, copies_behind._newest(found))


PUBLISH = lagging.ledgers.publish


def test_logs_that_go_too_early_are_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug is planted: the older version is dropped before the newer one is whole."""
    monkeypatch.setattr(lagging.ledgers, "publish", early)
    with pytest.raises(DbspError, match="no version is whole among the copies"):
        lag_and_lose(folder)


def torn_and_lost(folder: Path, mode: str) -> None:
    """An object of the second copy is torn or lost; then the disk is lost."""
    with troubled(folder.parent / "spare") as troubles:
        with Service(settings(folder)) as service:
            push(service, 0)
            service.checkpoint(60)
            caught_up(service)
            troubles.mode = mode
            push(service, 100)
            service.checkpoint(60)
            until(lambda: lag(service)["error"] is not None or lag(service)["lag_versions"] == 0, "an object is put")
            service.stop(now=True)
        lose(settings(folder), 1)
        troubles.mode = "well"
        with Service(settings(folder)) as service:
            assert rows(service) == {"a": (80, 80, 1)}


@pytest.mark.parametrize("mode", ["torn", "lost"])
def test_a_torn_copy_is_not_whole(mode: str, folder: Path) -> None:
    torn_and_lost(folder, mode)
    assert len(events(folder, "returned-to-copies")) == 1


def test_a_torn_copy_that_counts_as_whole_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug is planted: what was put is not compared with what is there, and the manifest is not read again."""

    def put_manifest(copies: WorkerCopies, name: ManifestName, manifest: VersionManifest) -> None:
        copies.place.put(f"{copies.prefix}/{name}", manifest.encoded())
        copies._known[name] = manifest

    monkeypatch.setattr(WorkerCopies, "_put_manifest", put_manifest)
    monkeypatch.setattr(WorkerCopies, "_compare", lambda *_: None)
    monkeypatch.setattr(WorkerCopies, "_is_readable", lambda *_: True)
    monkeypatch.setattr("dbsp.coordinator.running.published_copies.read_back", lambda *_: None)
    with pytest.raises(DbspError):
        torn_and_lost(folder, "torn")


def test_copies_are_required_again(folder: Path) -> None:
    """From 0 to 1 and back: each start goes on where the other left, and no database is lost with its disk."""
    for number, required in enumerate((0, 1, 0, 1)):
        with Service(settings(folder, f"checkpoint.copies_required={required}")) as service:
            assert rows(service) == ({"a": (40 * number, 40 * number, 1)} if number else {})
            push(service, 100 * number)
            service.checkpoint(60)
            if not required:
                caught_up(service)
            service.stop(now=True)
        lose(settings(folder), 0, 1)


@pytest.mark.parametrize("strategy", rotating(["cold", "warmup", "icadd", "redistribute"], 4))
def test_workers_return_after_a_rescale(strategy: str, tmp_path: Path) -> None:
    """A rescale waits for a whole copy; what is lost later goes back to it or to a newer one, in the new layout."""
    folder, draw, lagging_copies = make_folder(tmp_path), random.Random(7), "checkpoint.copies_required=0"
    more = (COPIES, lagging_copies, "checkpoint.interval_s=0.2")
    with troubled(folder / "spare") as troubles:
        for count in (3, 1):
            with Service(traffic_settings(folder, *more)) as service, traffic(service, count):
                service.rescale(count, 120, strategy=strategy)
                troubles.mode = draw.choice(["well", "troubled"])
                version = service.snapshot.version
                assert service.live_status.wait_for(lambda now, before=version: now.version > before, 60)
                troubles.mode = "away"
                version = service.snapshot.version
                assert service.live_status.wait_for(lambda now, before=version: now.version > before + 1, 60)
                assert service.snapshot.rollbacks == 0
                service.stop(now=draw.random() < 0.5)
            homes = sorted((folder / "data" / "workers").glob("0*"))
            for home in homes[:1]:
                shutil.rmtree(home)
            troubles.mode = "well"
        with Service(traffic_settings(folder, *more)) as service:
            assert len(service.layout().workers) == 1
            caught_up(service)
            until(lambda: kept_workers(folder) == ["0000"], "workers that have left leave nothing")
    assert len(events(folder, "returned-to-copies")) == 2
    check_golden(folder, tmp_path)


def kept_workers(folder: Path) -> list[str]:
    return [home.name for home in (folder / "spare" / "shop").glob("0*") if any((home / "versions").iterdir())]


@pytest.mark.soak
def test_copies_in_a_bucket_may_lag(bucket_server: str, tmp_path: Path) -> None:
    """All disks are lost, then the data folder: both are made again from an S3 server that others wrote."""
    folder = tmp_path / "one"
    options = "\n".join(f'{name} = "{value}"' for name, value in {**KEYS, "endpoint": bucket_server}.items())
    place = LAGGING.replace("../spare", "s3://bucket/lag")
    pipeline(folder, 2, f"{place}\n[checkpoint.copies_options]\n{options}")
    for number, lost in enumerate((False, True, False)):
        with Service(settings(folder)) as service:
            assert rows(service) == ({"a": (40 * number, 40 * number, 1)} if number else {})
            push(service, 100 * number)
            service.checkpoint(60)
            caught_up(service)
            service.stop(now=True)
        config = settings(folder)
        if lost:
            shutil.rmtree(config.data_dir)
            assert config.copies is not None
            restore_from_copies(config.copies, config)
        else:
            lose(config, 0, 1)
