"""A ledger that is lost: what is left of its pipeline is named, and no new one is begun over it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dbsp.coordinator.build import build, check_start, load_plan
from dbsp.coordinator.checks.remains import refuse_logged, refuse_remains
from dbsp.coordinator.running.ledger_file import LmdbControl
from dbsp.coordinator.settings.config import Config
from dbsp.errors import DataError
from dbsp.logs import StepRecord
from tests.coordinator import fakes
from tests.coordinator.shop import CIRCUIT, settings, settings_text

REST = ("workers", "input", "steps", "outputs")


def shop(folder: Path, more: str = "") -> Config:
    """The settings of a pipeline that is not there yet."""
    (folder / "circuit.py").write_text(CIRCUIT)
    (folder / "pipeline.toml").write_text(settings_text(more))
    return settings(folder)


def ended(folder: Path) -> Config:
    """A pipeline that was built and has made all its folders, without its ledger."""
    config = shop(folder)
    built = build(config)
    for part in (built.parts.inputs, built.parts.steps, built.parts.control):
        part.close()
    for name in REST[:1]:
        (config.data_dir / name / "0001").mkdir(parents=True)
    (config.data_dir / "outputs" / "1").mkdir(parents=True)
    shutil.rmtree(config.data_dir / "control")
    return config


def left(config: Config, *kept: str) -> None:
    """All but these are gone."""
    for name in set(REST) - set(kept):
        shutil.rmtree(config.data_dir / name, ignore_errors=True)


@pytest.mark.parametrize("name", REST)
def test_whatever_is_left_is_named_and_no_pipeline_is_begun(tmp_path: Path, name: str) -> None:
    config = ended(tmp_path)
    left(config, name)
    words = {"workers": "databases of workers 1", "outputs": "outputs of workers 1"}
    for start in (lambda: build(config), lambda: check_start(config, load_plan(config))):
        with pytest.raises(DataError, match="the ledger of a pipeline is missing") as caught:
            start()
        assert words.get(name, f"the {name.removesuffix('s')} log") in caught.value.message
        assert str(config.data_dir / name) in caught.value.message
        assert "coordinator restore" in str(caught.value.hint)
        assert caught.value.exit_code == 3
    assert not (config.data_dir / "control").exists()


def test_standbys_alone_are_a_pipeline_too(tmp_path: Path) -> None:
    config = shop(tmp_path, f'[layout]\nstandbys = ["{tmp_path}/other"]')
    (config.standbys[0] / "0000").mkdir(parents=True)
    with pytest.raises(DataError, match="standbys of workers 0"):
        refuse_remains(config)


def test_an_empty_ledger_is_none_and_a_damaged_one_is_not_taken_for_none(tmp_path: Path) -> None:
    config = ended(tmp_path)
    LmdbControl(config.data_dir).close()
    with pytest.raises(DataError, match="the ledger of a pipeline is missing"):
        refuse_remains(config)
    (config.data_dir / "control" / "data.mdb").write_bytes(b"")
    refuse_remains(config)
    with pytest.raises(DataError, match="control"):
        build(config)


def test_where_nothing_of_a_pipeline_is_one_is_begun(tmp_path: Path) -> None:
    config = ended(tmp_path)
    left(config)
    (config.data_dir / "coordinator.log").write_text("")
    built = build(config)
    for part in (built.parts.inputs, built.parts.steps, built.parts.control):
        part.close()


def test_a_step_log_that_is_elsewhere_is_seen_when_it_is_opened(tmp_path: Path) -> None:
    world = fakes.World()
    steps = fakes.FakeSteps(world)
    config = shop(tmp_path)
    refuse_logged(config, steps)
    world.epoch = 1
    steps.append(StepRecord(epoch=1, step=0, layout_version=0, ranges=(), clock_us=0, engine="1"))
    with pytest.raises(DataError, match="a step log up to step 0"):
        refuse_logged(config, steps)
