"""Standbys in a whole service: a worker's database is lost, and the pipeline goes on as if it had not been."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from dbsp.coordinator.checks.doctor import diagnose
from dbsp.coordinator.decisions.strategies import STRATEGIES
from dbsp.coordinator.service import Service
from dbsp.errors import DbspError
from dbsp.lmdb_environments import data_file
from tests.coordinator.under_traffic import check_golden, make_folder, settings, traffic
from tests.pace import rotating

STANDBYS = 'layout.standbys=["spare"]'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path)


def spares(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "spare" / "shop").iterdir())


def notes(folder: Path) -> str:
    return (folder / "data" / "coordinator.log").read_text()


def lost(folder: Path, draw: random.Random, workers: int) -> None:
    """One worker's database is gone, or cut short."""
    home = folder / "data" / "workers" / f"{draw.randrange(workers):04d}"
    if draw.random() < 0.5:
        shutil.rmtree(home)
    else:
        data_file(home / "durable").write_bytes(b"")


def test_a_lost_database_is_made_again_after_every_kind_of_rescale(folder: Path, tmp_path: Path) -> None:
    """Nothing but the steps since the last checkpoint is replayed; every step's outputs are those of one worker."""
    draw, workers = random.Random(3), 1
    strategies = rotating(STRATEGIES, 2)
    for strategy in strategies:
        with (
            Service(settings(folder, STANDBYS, "checkpoint.interval_s=0.2")) as service,
            traffic(service, draw.randrange(1000)),
        ):
            assert len(service.layout().workers) == workers
            before = service.snapshot.version
            assert service.live_status.wait_for(lambda now, before=before: now.version > before, 60)
            workers = draw.choice([n for n in (1, 2, 3) if n != workers])
            service.rescale(workers, 120, strategy=strategy)
            assert spares(folder) == [f"{worker:04d}" for worker in range(workers)]
            assert service.snapshot.rollbacks == 0
            service.checkpoint()
        assert diagnose(settings(folder, STANDBYS)).findings == ()
        lost(folder, draw, workers)
    with Service(settings(folder, STANDBYS)) as service:
        assert len(service.layout().workers) == workers
    assert notes(folder).count('"restored"') == len(strategies)
    check_golden(folder, tmp_path)


def test_the_database_is_lost_between_a_crash_and_the_next_start(folder: Path, tmp_path: Path) -> None:
    """Steps were run since the checkpoint: they are replayed on what the standby has."""
    with Service(settings(folder, STANDBYS)) as service, traffic(service, 1):
        service.rescale(2, 60)
        checkpointed = service.snapshot.step
        assert service.live_status.wait_for(lambda now: now.step > checkpointed + 3, 60)
        service.stop(now=True)
    shutil.rmtree(folder / "data" / "workers" / "0001")
    with Service(settings(folder, STANDBYS)) as service:
        assert service.status()["workers"] == 2
    check_golden(folder, tmp_path)


def test_without_standbys_a_lost_database_ends_the_service(folder: Path) -> None:
    with Service(settings(folder)) as service, traffic(service, 1):
        service.checkpoint()
    shutil.rmtree(folder / "data" / "workers" / "0000")
    with pytest.raises(DbspError, match="there is no database here"), Service(settings(folder)):
        pass


def test_doctor_says_that_a_standby_mends_it(folder: Path) -> None:
    with Service(settings(folder, STANDBYS)) as service, traffic(service, 1):
        service.checkpoint()
    data_file(folder / "data" / "workers" / "0000" / "durable").write_bytes(b"")
    (finding,) = diagnose(settings(folder, STANDBYS)).findings
    assert "made anew from its standby" in finding.remedy
    data_file(folder / "spare" / "shop" / "0000" / "durable").write_bytes(b"")
    remedies = [finding.remedy for finding in diagnose(settings(folder, STANDBYS)).findings]
    assert len(remedies) == 2
    assert not any("made anew from its standby" in remedy for remedy in remedies)


def test_a_standby_that_cannot_be_made_is_one_clear_error(folder: Path) -> None:
    (folder / "spare").write_text("a file, not a folder")
    with pytest.raises(DbspError, match="a standby cannot be made") as caught, Service(settings(folder, STANDBYS)):
        pass
    assert "take its folder out of `standbys`" in str(caught.value)
