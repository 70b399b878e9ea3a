"""Copies of checkpoints in a whole service: databases are lost, and the pipeline goes on as if they had not been."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import Config
from dbsp.errors import AwayError, ConfigError, DataError
from dbsp.object_places import FolderPlace
from tests.coordinator.under_traffic import check_golden, make_folder, settings, traffic
from tests.pace import rotating
from tests.spark.waiting import until

COPIES = "checkpoint.copies=spare"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path)


def events(folder: Path, name: str) -> list[str]:
    lines = (folder / "data" / "coordinator.log").read_text().splitlines()
    return [line for line in lines if json.loads(line)["event"] == name]


@pytest.mark.parametrize("strategy", rotating(["cold", "warmup", "icadd", "redistribute"], 4))
def test_lost_databases_are_made_again_after_a_rescale(strategy: str, folder: Path, tmp_path: Path) -> None:
    """One of them, or all; every step's outputs are those of one worker."""
    draw, workers = random.Random(5), 2
    for count in (3, 1):
        with Service(settings(folder, COPIES, "checkpoint.interval_s=0.2")) as service, traffic(service, count):
            service.rescale(count, 120, strategy=strategy)
            workers = count
            before = service.snapshot.version
            assert service.live_status.wait_for(lambda now, before=before: now.version > before, 60)
            assert service.snapshot.rollbacks == 0
            service.stop(now=draw.random() < 0.5)
        homes = sorted((folder / "data" / "workers").glob("0*"))
        for home in homes if draw.random() < 0.5 else homes[:1]:
            shutil.rmtree(home)
    with Service(settings(folder, COPIES)) as service:
        assert len(service.layout().workers) == workers
    assert len(events(folder, "restored")) == 2
    kept = [home.name for home in (folder / "spare" / "shop").glob("0*") if any((home / "versions").iterdir())]
    assert kept == ["0000"], "workers that have left leave nothing"
    check_golden(folder, tmp_path)


def test_an_old_disk_that_is_put_back_counts_as_lost(folder: Path, tmp_path: Path) -> None:
    """Its database is sound, and older than the published version: the copies have that one."""
    home, old = folder / "data" / "workers" / "0000", folder / "old"
    for number in range(3):
        with Service(settings(folder, COPIES, "checkpoint.interval_s=0.2")) as service, traffic(service, number + 1):
            before = service.snapshot.version
            assert service.live_status.wait_for(lambda now, before=before: now.version > before, 60)
        if number == 0:
            shutil.copytree(home, old)
        if number == 1:
            shutil.rmtree(home)
            old.rename(home)
    assert len(events(folder, "restored")) == 1
    check_golden(folder, tmp_path)


def test_a_place_that_does_not_answer_delays_checkpoints_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps go on, and the alarm says why no checkpoint is published; it ends when the place answers again."""
    away = list[bool]()

    class Place(FolderPlace):
        def put(self, name: str, data: bytes | memoryview) -> None:
            if away:
                raise AwayError("the place for copies does not answer: place=bucket")
            super().put(name, data)

    monkeypatch.setattr(Config, "copies", property(lambda _self: Place(folder / "spare")))
    with Service(settings(folder, "checkpoint.interval_s=0.2")) as service, traffic(service, 1):
        assert service.live_status.wait_for(lambda now: now.version > 1, 60)
        away.append(True)
        until(lambda: "copies-away" in {alarm["kind"] for alarm in service.status()["alarms"]}, "the alarm")
        step, version = service.snapshot.step, service.snapshot.version
        assert service.live_status.wait_for(lambda now: now.step > step + 3, 60)
        assert service.snapshot.version == version
        away.clear()
        assert service.live_status.wait_for(lambda now: now.version > version + 1, 60)
        until(lambda: not service.status()["alarms"], "the alarm ends")
        assert service.snapshot.rollbacks == 0


def test_copies_of_another_pipeline_are_not_taken_over(folder: Path) -> None:
    with Service(settings(folder, COPIES)) as service, traffic(service, 1):
        service.checkpoint()
    shutil.rmtree(folder / "data")
    with pytest.raises(DataError, match="copies of checkpoints"), Service(settings(folder, COPIES)):
        pass


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("checkpoint.copies=ftp://host/path", "not a place for copies"),
        ("checkpoint.copies=pipeline.toml", "the place for copies cannot be used"),
    ],
)
def test_a_place_that_cannot_be_used_is_one_clear_error(setting: str, message: str, folder: Path) -> None:
    with pytest.raises(ConfigError, match=message), Service(settings(folder, setting)):
        pass
