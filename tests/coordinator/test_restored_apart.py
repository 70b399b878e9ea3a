"""All hosts lose their disks, and so does the coordinator: what is restored from the copies goes on, on any hosts."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dbsp.coordinator import build
from dbsp.coordinator.backup.from_copies import FromCopies, restore_from_copies
from dbsp.coordinator.service import Service
from dbsp.io.pushed import Producer
from tests.coordinator import hosted
from tests.coordinator.hosted import homes, running
from tests.coordinator.under_traffic import VIEWS, make_folder, names, orders, outputs, settings
from tests.spark.waiting import until

HOSTS = ("a", "b", "c")
PUSHES = 12


def there(*hosts: str) -> tuple[str, ...]:
    """The settings of a pipeline on these hosts."""
    listed = ", ".join(f'"{host}"' for host in hosts)
    return (
        f"layout.hosts=[{listed}]", "pipeline.workers=3", "layout.host_lost_s=600", "checkpoint.interval_s=1000",
        "checkpoint.copies=spare",
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline whose hosts have disks of their own."""
    monkeypatch.setattr(build, "shares_disk", lambda _config: False)
    (tmp_path / "one").mkdir()
    return make_folder(tmp_path / "one")


def pushed() -> list[tuple[str, pa.Table, bool]]:
    """The pushes of one producer, always the same."""
    draw = random.Random(3)
    rest = [("orders", orders(draw, 60), draw.random() < 0.2) for _ in range(PUSHES)]
    return [("names", names(draw, 200), False), *rest]


def push(service: Service, numbers: Sequence[int]) -> None:
    every = pushed()
    for number in numbers:
        table, rows, delete = every[number]
        position = service.push(table, rows, delete=delete, producer=Producer(id="till", sequence=number))
        service.wait_until_processed(position, 60)


def views(service: Service) -> dict[str, Counter[tuple[Any, ...]]]:
    return {view: Counter(tuple(row.values()) for row in service.read_view(view).table.to_pylist()) for view in VIEWS}


def restored(folder: Path, *overrides: str, **more: int | None) -> FromCopies:
    config = settings(folder, *overrides)
    assert config.copies is not None
    return restore_from_copies(config.copies, config, **more)


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Counter[tuple[Any, ...]]]]:
    """A run by one worker that lost nothing: its folder, and its views at the end."""
    folder = make_folder(tmp_path_factory.mktemp("golden"))
    with Service(settings(folder)) as service:
        push(service, range(PUSHES))
        return folder, views(service)


@pytest.mark.parametrize(
    ("hosts", "workers"),
    [(HOSTS, None), (("d", "e"), None), (("c", "d"), 2), (("d", "e"), 5)],
    ids=["the-same-hosts", "other-hosts", "fewer-workers", "more-workers"],
)
def test_a_pipeline_whose_hosts_lost_every_disk_goes_on(
    folder: Path, golden: tuple[Path, dict[str, Counter[tuple[Any, ...]]]], hosts: tuple[str, ...], workers: int | None
) -> None:
    """Repeated pushes are taken once; views and every step's outputs are those of a run that lost nothing."""
    machines, (golden_folder, expected) = hosted.Machines(folder / "hosts"), golden
    with running(folder, machines, *there(*HOSTS)) as service:
        push(service, range(6))
        service.checkpoint(60)
        push(service, range(6, 9))
        service.stop(now=True)
    shutil.rmtree(folder / "data")
    for host in HOSTS:
        machines.wipe(host)
    found = restored(folder, *there(*hosts), workers=workers)
    # nothing ships the state of workers that are rescaled here: the new ones read it where it is
    with running(folder, machines, *there(*hosts), common_disk=workers is not None) as service:
        until(lambda: len(homes(service)) == (workers or 3), "the wanted number of workers")
        push(service, range(PUSHES))
        assert views(service) == expected
        assert set(homes(service).values()) == set(hosts)
        service.checkpoint(60)
    for view, every in outputs(golden_folder).items():
        assert outputs(folder)[view] == Counter({key: n for key, n in every.items() if key[0] >= found.step})
    with running(folder, machines, *there(*hosts)) as service:
        assert views(service) == expected
    assert {host for host in (*HOSTS, "d", "e") if any((machines.folder / host).glob("workers/*"))} == set(hosts)


def test_a_disk_that_was_not_lost_has_nothing_of_its_past_after_the_restore(
    folder: Path, golden: tuple[Path, dict[str, Counter[tuple[Any, ...]]]]
) -> None:
    """Its database has newer versions than the one that is restored: it is deleted, and made again from the copies."""
    machines = hosted.Machines(folder / "hosts")
    with running(folder, machines, *there(*HOSTS), "checkpoint.copies_kept=3") as service:
        for first in (0, 3, 6):
            push(service, range(first, first + 3))
            service.checkpoint(60)
        service.stop(now=True)
    shutil.rmtree(folder / "data")
    machines.wipe("b")
    assert restored(folder, *there(*HOSTS), version=1).step == 3
    with running(folder, machines, *there(*HOSTS)) as service:
        push(service, range(PUSHES))
        assert views(service) == golden[1]
