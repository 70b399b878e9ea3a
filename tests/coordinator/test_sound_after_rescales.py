"""Rescales alone break nothing: the doctor says sound after each, and a backup restores to equal answers."""

from __future__ import annotations

import random
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dbsp.coordinator.backup.making import make
from dbsp.coordinator.backup.restoring import restore
from dbsp.coordinator.checks.doctor import diagnose
from dbsp.coordinator.decisions.strategies import STRATEGIES
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import Config, load_config
from dbsp.io import examine
from dbsp.io.output_part import OutputProgress
from tests.coordinator.shop import CIRCUIT, settings_text

ROUNDS = 2


def placed(folder: Path) -> Config:
    folder.mkdir()
    (folder / "circuit.py").write_text(CIRCUIT)
    (folder / "pipeline.toml").write_text(settings_text("[checkpoint]\ninterval_s = 1000\n", workers=1))
    return load_config(folder / "pipeline.toml", environment={})


def lived(folder: Path, seed: int) -> Config:
    """A pipeline whose workers came, went and came again, some steps and checkpoints apart; the last came just now."""
    config, draw = placed(folder), random.Random(seed)

    def push(service: Service) -> None:
        ids = [draw.randrange(300) for _ in range(60)]
        rows = {"id": ids, "customer": [f"c{i % 9}" for i in ids], "amount": [draw.randint(0, 999) for _ in ids]}
        service.wait_until_processed(service.push("orders", pa.table(rows)), 60)

    with Service(config) as service:
        for workers in draw.sample((2, 3, 4), ROUNDS):
            service.rescale(workers, 60, strategy=draw.choice(STRATEGIES))
            push(service)
            if draw.random() < 0.6:
                service.checkpoint(60)
        service.rescale(3, 60)
        push(service)
        service.rescale(1, 60, strategy="icadd")
        for _ in range(2):
            push(service)
            service.checkpoint(60)
        service.rescale(3, 60)
    return config


def answers(config: Config) -> Counter[Any]:
    with Service(config) as service:
        return Counter(
            (view, *row.values())
            for view in ("per_customer", "large")
            for row in service.read_view(view, 60).table.to_pylist()
        )


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak), pytest.param(3, marks=pytest.mark.soak)])
def test_the_doctor_says_sound_and_a_backup_restores_to_equal_answers(seed: int, tmp_path: Path) -> None:
    config = lived(tmp_path / "there", seed)
    assert diagnose(config).findings == ()
    named, _ = make(config, tmp_path / "backups", lambda *_: None)
    restored = placed(tmp_path / "restored")
    restore(named, restored)
    assert diagnose(restored).findings == ()
    found = answers(restored)
    assert found
    assert found == answers(config)


def test_judging_an_earlier_stay_of_a_worker_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def judge_all(seen: examine.Examined, log: examine.OpenedLog, progress: OutputProgress) -> None:
        steps = [int(struct.unpack(">Q", key)[0]) for key, _ in log.items("checksums")]
        if steps != list(range(progress.last - len(steps), progress.last)):
            seen.found("checksums of steps are missing")

    config = lived(tmp_path / "there", 1)
    monkeypatch.setattr(examine, "_checksums", judge_all)
    assert diagnose(config).findings
