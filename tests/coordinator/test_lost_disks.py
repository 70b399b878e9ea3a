"""Disks that are lost while their hosts answer: workers go on without a command, from standbys, copies or the logs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dbsp.coordinator.service import Service
from dbsp.errors import DataError
from tests.coordinator import hosted
from tests.coordinator.hosted import events, goes_on, homes, running
from tests.coordinator.test_far_standbys import (
    HOSTS,
    STANDBYS,
    caught_up,
    folder,  # noqa: F401 - a fixture
    places,
    standby_hosts,
)
from tests.coordinator.test_lost_hosts import COPIES, LOST
from tests.coordinator.under_traffic import check_golden, names, orders, traffic
from tests.spark.waiting import until

NEVER = (*(each for each in LOST if "interval" not in each), "checkpoint.interval_s=600")
"""Without a checkpoint, copies and standbys."""


def worker_on(service: Service, host: str) -> int:
    (worker,) = [worker for worker, home in homes(service).items() if home == host]
    return worker


def push_rows(service: Service, seed: int) -> None:
    """Wait until orders and names are processed."""
    draw = random.Random(seed)
    service.push("names", names(draw, 200))
    service.wait_until_processed(service.push("orders", orders(draw, 50)), 60)


def test_a_worker_whose_disk_is_lost_goes_on_from_its_standby(folder: Path, tmp_path: Path) -> None:  # noqa: F811 - the fixture
    """One disk is empty, another one cannot be written: both workers move to their standbys; the latter has none then."""
    machines = hosted.Machines(folder / "hosts")
    with running(folder, machines, *STANDBYS) as service, traffic(service, 1):
        goes_on(service)
        caught_up(service)
        at, first = places(service), worker_on(service, "b")
        machines.wipe("b")
        until(lambda: homes(service)[first] == at[first], "its worker is where its standby was")
        goes_on(service)
        caught_up(service)
        at = places(service)
        (victim,) = {"a", "c"} - {homes(service)[first]}
        second = worker_on(service, victim)
        machines.break_disk(victim)
        until(lambda: homes(service)[second] == at[second], "its worker is where its standby was")
        goes_on(service)
        assert victim not in standby_hosts(service)
        assert len(standby_hosts(service)) == 3
        machines.replace_disk(victim)
        until(lambda: victim in standby_hosts(service), "it has standbys again")
        goes_on(service)
    lost = events(folder, "disk-lost")
    assert [event["hosts"] for event in lost] == [["b"], [victim]]
    assert [found for event in events(folder, "took-over") for found in event["workers"]] == [first, second]  # type: ignore[attr-defined]
    check_golden(folder, tmp_path)


@pytest.mark.parametrize("how", ["empty", "broken"])
def test_an_idle_pipeline_notices_a_lost_disk(how: str, folder: Path) -> None:  # noqa: F811 - the fixture
    """No row arrives: the worker's database is made again where it can be, and the next rows find it."""
    machines = hosted.Machines(folder / "hosts")
    with running(folder, machines, *COPIES) as service:
        push_rows(service, 1)
        assert service.checkpoint(60)
        before = service.snapshot.step
        if how == "empty":
            machines.wipe("b")
            until(lambda: machines.home("b", 1).exists(), "the database is there again")
        else:
            machines.break_disk("b")
            until(lambda: "b" not in homes(service).values(), "the worker of b has moved")
        until(lambda: service.snapshot.state == "Running", "it goes on")
        assert service.snapshot.step == before
        push_rows(service, 2)


@pytest.mark.parametrize("required", ["1", "0"])
def test_a_lost_disk_is_made_again_from_the_copies(required: str, folder: Path, tmp_path: Path) -> None:  # noqa: F811 - the fixture
    """On the same host where its disk is empty; on another one where it cannot be written."""
    machines = hosted.Machines(folder / "hosts")
    with (
        running(folder, machines, *COPIES, f"checkpoint.copies_required={required}") as service,
        traffic(service, 1),
    ):
        goes_on(service)
        before = homes(service)
        machines.wipe("b")
        until(lambda: machines.home("b", 1).exists(), "the database is there again")
        goes_on(service)
        assert homes(service) == before
        machines.break_disk("c")
        until(lambda: "c" not in homes(service).values(), "the worker of c has moved")
        goes_on(service)
        moved = events(folder, "worker-moved")
        assert [event["lost"] for event in moved] == ["c"]
    check_golden(folder, tmp_path)


@pytest.mark.parametrize("more", [(), ("checkpoint.copies=spare",)], ids=["nothing", "copies"])
def test_before_the_first_checkpoint_workers_begin_again_from_the_logs(
    more: tuple[str, ...],
    folder: Path,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    """Without checkpoint and standbys: disks and hosts are lost, and every step runs again elsewhere."""
    machines = hosted.Machines(folder / "hosts")
    with running(folder, machines, *NEVER, *more) as service:
        push_rows(service, 1)
        machines.wipe("a")
        push_rows(service, 2)
        assert set(homes(service).values()) == {*HOSTS}, "an empty disk can be written"
        machines.break_disk("b")
        push_rows(service, 3)
        assert set(homes(service).values()) == {"a", "c"}
        machines.silent.add("c")
        push_rows(service, 4)
        assert set(homes(service).values()) == {"a"}
        assert service.snapshot.version == 0
    check_golden(folder, tmp_path)


def test_a_host_that_is_lost_before_the_first_start_costs_nothing(folder: Path, tmp_path: Path) -> None:  # noqa: F811 - the fixture
    machines = hosted.Machines(folder / "hosts")
    machines.silent.add("b")
    with running(folder, machines, *NEVER) as service:
        push_rows(service, 5)
        assert set(homes(service).values()) == {"a", "c"}
    check_golden(folder, tmp_path)


def test_without_standby_and_copies_one_error_names_what_is_lost(folder: Path) -> None:  # noqa: F811 - the fixture
    machines = hosted.Machines(folder / "hosts")

    def lose_b() -> None:
        with running(folder, machines, *LOST) as service, traffic(service, 1):
            goes_on(service)
            machines.wipe("b")
            assert service.live_status.wait_for(lambda now: now.ended, 60)

    with pytest.raises(DataError, match=r"disks of workers are lost, .* workers=\[1\] hosts=b published="):
        lose_b()


@pytest.mark.soak
@pytest.mark.parametrize("settings", [STANDBYS, COPIES], ids=["standbys", "copies"])
def test_disks_are_lost_at_random(settings: tuple[str, ...], folder: Path, tmp_path: Path) -> None:  # noqa: F811 - the fixture
    """One after the other, empty or broken, with the host silent for a while or not; the service ends at any moment."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    draw, machines = random.Random(seed), hosted.Machines(folder / "hosts", hangs_s=1.0)
    broken = ""
    for _ in range(15):
        with running(folder, machines, *settings) as service, traffic(service, draw.randrange(1 << 32)):
            goes_on(service)
            if broken:
                machines.replace_disk(broken)
                broken = ""
            goes_on(service)
            goes_on(service)
            if settings is STANDBYS:
                caught_up(service)
            victim = draw.choice([host for host in HOSTS if (machines.folder / host).exists()])
            if silent := draw.random() < 0.3:
                machines.silent.add(victim)
            if draw.random() < 0.5:
                machines.wipe(victim)
            else:
                machines.break_disk(victim)
                broken = victim
            if silent:
                machines.silent.clear()
            if draw.random() < 0.7:
                goes_on(service)
            if draw.random() < 0.5:
                service.stop(now=True)
    with running(folder, machines, *settings) as service:
        push_rows(service, 7)
    check_golden(folder, tmp_path)
