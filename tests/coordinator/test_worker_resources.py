"""What a process keeps open of the workers whose tasks it ran, when other processes delete and make their databases."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dbsp
from dbsp.coordinator import worker_resources as resources_module
from dbsp.coordinator.worker_resources import ConfiguredResources, close_resources
from dbsp.errors import FencedError
from dbsp.storage import WorkerDatabase
from dbsp.storage.durable import Durable
from dbsp.store import CheckpointId

FIRST = CheckpointId(run="r", epoch=1, step=0, layout_version=0, fingerprint="f")
orders = dbsp.table("orders", {"id": dbsp.INT64})

OTHER = """
import sys
from pathlib import Path
from dbsp.coordinator.worker_resources import ConfiguredResources, close_resources
from dbsp.store import CheckpointId

resources = ConfiguredResources(data_dir=Path(sys.argv[1]), pipeline="p", tables=())
first = CheckpointId(run="r", epoch=2, step=0, layout_version=0, fingerprint="f")
for what in sys.argv[2:]:
    if what == "discard":
        resources.discard_database(2, 2, resources.condemn_database(2, 2))
    elif what == "open":
        resources.database(2).open(0, 2)
    else:
        resources.database(2, first)
close_resources(Path(sys.argv[1]))  # old files are deleted beside the steps, or at the end
"""

needs_proc = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="open files are looked up in /proc")


def _resources(data_dir: Path) -> ConfiguredResources:
    return ConfiguredResources(data_dir=data_dir, pipeline="p", tables=(orders,))


def _other(data_dir: Path, *what: str) -> None:
    """Another process does this with worker 2."""
    subprocess.run([sys.executable, "-c", OTHER, str(data_dir), *what], check=True, timeout=60)


def _deleted(data_dir: Path) -> list[str]:
    """The files below the folder that this process has open or mapped although they are deleted."""
    found = [line for line in Path("/proc/self/maps").read_text().splitlines() if "(deleted)" in line]
    for handle in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(str(handle.readlink()))
    return [line for line in found if str(data_dir) in line and "(deleted)" in line]


def _names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


@needs_proc
@pytest.mark.parametrize("what", [("discard",), ("discard", "create"), ("open",)])
def test_what_another_process_deletes_is_let_go_at_any_other_task(
    tmp_path: Path, what: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dbsp.coordinator.worker_resources.LOOK_EVERY_S", 0.0)
    resources = _resources(tmp_path)
    for worker in (1, 2):
        resources.database(worker, FIRST).open(0, 1)
    _other(tmp_path, *what)
    assert _deleted(tmp_path)
    resources.database(1).versions()
    assert _deleted(tmp_path) == []
    assert resources.database(1).get_step() == 0
    close_resources(tmp_path)


@needs_proc
def test_what_is_read_is_not_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dbsp.coordinator.worker_resources.LOOK_EVERY_S", 0.0)
    resources = _resources(tmp_path)
    for worker in (1, 2):
        resources.database(worker, FIRST)
    with resources.database(2).read_version(0) as view:
        _other(tmp_path, "discard")
        resources.database(1)
        assert _deleted(tmp_path)
        assert view.checkpoint == FIRST
    resources.database(1)
    assert _deleted(tmp_path) == []
    close_resources(tmp_path)


@needs_proc
def test_what_was_just_given_is_not_closed_under_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resources = _resources(tmp_path)
    resources.database(1, FIRST)
    resources.database(2, FIRST).open(0, 1)
    monkeypatch.setattr("dbsp.coordinator.worker_resources.LOOK_EVERY_S", 1000.0)
    _other(tmp_path, "open")
    given = resources.database(2)
    assert _deleted(tmp_path) == []
    monkeypatch.setattr("dbsp.coordinator.worker_resources.LOOK_EVERY_S", 0.0)
    resources.database(1)
    assert given.open(0, 3).step == 0
    close_resources(tmp_path)


def test_a_worker_that_joins_again_has_one_output_log_open(tmp_path: Path) -> None:
    resources = _resources(tmp_path)
    other = resources.output_log(1, 0, create=True)
    log = resources.output_log(2, 0, create=True)
    assert resources.output_log(2, 0) is log
    again = resources.output_log(2, 7, create=True)
    assert again.bounds() == (7, 7)
    assert resources.output_log(2, 7) is again
    assert resources.output_log(1, 0) is other
    assert other.bounds() == (0, 0)
    assert resources.output_log(2, 0) is not log
    close_resources(tmp_path)


def test_what_was_left_of_earlier_databases_goes_when_the_worker_joins(tmp_path: Path) -> None:
    resources, workers = _resources(tmp_path), tmp_path / "workers"
    for name in (".0002.gone-77", f"0002.new-{'a' * 32}", f"0002.old-{'b' * 32}", ".0003.gone-77"):
        (workers / name).mkdir(parents=True)
    resources.database(2, FIRST)
    assert _names(workers) == [".0003.gone-77", "0002"]
    (workers / ".0002.gone-78").mkdir()
    resources.discard_database(2, 1, resources.condemn_database(2, 1))
    assert _names(workers) == [".0003.gone-77"]
    (workers / ".0002.gone-79").mkdir()
    resources.discard_database(2, 1, resources.condemn_database(2, 1))
    assert _names(workers) == [".0003.gone-77"]
    close_resources(tmp_path)


@pytest.mark.parametrize("when", ["before it looks", "before it renames"])
def test_a_database_that_another_coordinator_makes_meanwhile_stays_and_its_epoch_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    home = tmp_path / "workers" / "0000"
    theirs = replace(FIRST, epoch=2)
    make = Durable.create

    def made_meanwhile(*_arguments: Any) -> None:
        monkeypatch.setattr(Durable, "create", make)
        WorkerDatabase.create(home, theirs).close()

    def late(*arguments: Any) -> None:
        made_meanwhile()
        make(*arguments)

    if when == "before it looks":
        monkeypatch.setattr(resources_module, "discard_leftovers", made_meanwhile)
    else:
        monkeypatch.setattr(Durable, "create", late)
    database = _resources(tmp_path).database(0, FIRST)
    assert [info.checkpoint for info in database.versions()] == [theirs]
    with pytest.raises(FencedError):
        database.open(0, 1)
    close_resources(tmp_path)
    assert _names(home.parent) == ["0000"]
