"""Hosts that are lost for ever: their workers move to other hosts without a command, and what was left there is never used."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp.coordinator import build
from dbsp.coordinator.decisions.lost_hosts import relocated, workers_on
from dbsp.coordinator.running import control as ledgers
from dbsp.coordinator.running import relocations, watch
from dbsp.coordinator.running.ledger_file import decode_ledger, encode_ledger
from dbsp.coordinator.running.lost_hosts import HostLoss, SilentHosts
from dbsp.coordinator.running.unusable_hosts import LOST as LOST_HOST
from dbsp.coordinator.running.unusable_hosts import UnusableHost
from dbsp.coordinator.service import Service
from dbsp.coordinator.worker_resources import ConfiguredResources
from dbsp.errors import AwayError, DbspError, UnavailableError
from dbsp.layout import initial
from tests.coordinator import fakes, hosted
from tests.coordinator.hosted import events, goes_on, homes, running
from tests.coordinator.test_copies_lagging import troubled
from tests.coordinator.under_traffic import check_golden, make_folder, orders, traffic
from tests.pace import in_turn
from tests.spark.waiting import until

HOSTS = ("a", "b", "c")
LOST = ("layout.host_lost_s=0.3", 'layout.hosts=["a", "b", "c"]', "pipeline.workers=3", "checkpoint.interval_s=0.2")
COPIES = (*LOST, "checkpoint.copies=spare")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline whose hosts have disks of their own, and are looked at often."""
    monkeypatch.setattr(build, "shares_disk", lambda _config: False)
    monkeypatch.setattr(watch, "ASK_WORKERS_S", 0.1)
    monkeypatch.setattr(watch, "LOOK_EVERY_S", 0.05)
    monkeypatch.setattr(watch, "LOOK_IDLE_S", 0.1)
    return make_folder(tmp_path)


def lose(service: Service, machines: hosted.Machines, host: str) -> None:
    """Power a host off, and wait until its workers are elsewhere and a checkpoint was published."""
    machines.silent.add(host)
    until(lambda: host not in homes(service).values(), f"the workers of {host} have moved")
    goes_on(service)


def test_the_workers_of_a_lost_host_move_and_its_old_databases_are_never_used(folder: Path, tmp_path: Path) -> None:
    """Host b is lost; later a and c, so that all workers come to b, where databases of the past are."""
    machines = hosted.Machines(folder / "hosts")
    with running(folder, machines, *COPIES) as service, traffic(service, 1):
        goes_on(service)
        moved = [worker for worker, host in homes(service).items() if host == "b"]
        lose(service, machines, "b")
        (told,) = service.status()["moved_workers"]
        assert (told["worker"], told["lost_host"], told["host"]) == (moved[0], "b", homes(service)[moved[0]])
        lose(service, machines, "a")
        machines.silent.remove("b")
        lose(service, machines, "c")
        assert set(homes(service).values()) == {"b"}
        assert len(service.layout().workers) == 3
    assert {event["worker"] for event in events(folder, "worker-moved")} == {0, 1, 2}
    check_golden(folder, tmp_path)


def test_a_rescale_places_no_worker_on_a_lost_host(folder: Path, tmp_path: Path) -> None:
    """It leaves the host out, and says so; all hosts are used again when it is back. A host that is named is awaited."""
    machines = hosted.Machines(folder / "hosts")
    with running(folder, machines, *COPIES, common_disk=True) as service, traffic(service, 4):
        goes_on(service)
        lose(service, machines, "b")
        assert service.plan_rescale(4).hosts_excluded == (UnusableHost(host="b", reason=LOST_HOST),)
        service.rescale(4, 60)
        assert sorted(homes(service).values()) == ["a", "a", "c", "c"]
        machines.silent.clear()
        assert service.plan_rescale(3).hosts_excluded == ()
        service.rescale(3, 60)
        assert sorted(homes(service).values()) == ["a", "b", "c"]
        lose(service, machines, "c")
        service.rescale(2, 60, hosts=(("a", 1.0), ("b", 1.0)))
        machines.silent.add("a")
        until(lambda: {*homes(service).values()} == {"b"}, "the workers of a have moved")
    check_golden(folder, tmp_path)


def test_an_idle_pipeline_notices_a_lost_host(folder: Path) -> None:
    """No step runs and none is wanted: the worker moves all the same, and the next rows find it."""
    machines = hosted.Machines(folder / "hosts")
    with running(folder, machines, *COPIES) as service:
        draw = random.Random(1)
        service.wait_until_processed(service.push("orders", orders(draw, 50)), 60)
        assert service.checkpoint(60)
        machines.silent.add("b")
        until(lambda: "b" not in homes(service).values(), "the worker of b has moved")
        service.wait_until_processed(service.push("orders", orders(draw, 50)), 60)


@pytest.mark.skipif(not in_turn(0, 2), reason="at every second commit; `make soak` runs it")
@pytest.mark.parametrize("seed", [1, pytest.param(None, marks=pytest.mark.soak)])
def test_hosts_are_lost_and_come_back_at_random(seed: int | None, folder: Path, tmp_path: Path) -> None:
    """At most one host is silent at a time; the service is restarted in the midst of it, and ends at any moment."""
    rounds, seed = (4, seed) if seed is not None else (20, random.SystemRandom().randrange(1 << 32))
    print(f"seed {seed}")
    draw, machines = random.Random(seed), hosted.Machines(folder / "hosts", hangs_s=1.0)
    for number in range(rounds):
        with running(folder, machines, *COPIES) as service, traffic(service, draw.randrange(1 << 32)):
            goes_on(service)
            machines.silent.clear()
            if draw.random() < 0.3:
                goes_on(service)
            victim = draw.choice(HOSTS)
            if draw.random() < 0.7:
                lose(service, machines, victim)
            else:
                machines.silent.add(victim)
            if draw.random() < 0.5:
                service.stop(now=True)
        if number == rounds - 1 or draw.random() < 0.5:
            machines.silent.clear()
    with running(folder, machines, *COPIES) as service:
        left = [(worker, host) for worker, home in homes(service).items() for host in HOSTS if host != home]
        assert not [place for place in left if machines.home(place[1], place[0]).exists()], "databases that nobody uses"
    check_golden(folder, tmp_path)


def test_a_host_that_comes_back_late_loses_what_workers_left_there(folder: Path, tmp_path: Path) -> None:
    machines = hosted.Machines(folder / "hosts")
    with running(folder, machines, *COPIES) as service, traffic(service, 2):
        goes_on(service)
        (worker,) = [worker for worker, host in homes(service).items() if host == "b"]
        received = machines.visits("b", worker) / "0000-1"
        shutil.copytree(machines.home("a", 0) / "durable", received / "durable")  # a rescale was cut off by the loss
        lose(service, machines, "b")
        assert machines.home("b", worker).is_dir()
    machines.silent.clear()
    with running(folder, machines, *COPIES) as service, traffic(service, 3):
        goes_on(service)
        assert not machines.home("b", worker).exists()
        assert not received.exists()
        assert not service.status()["moved_workers"][0]["left_database"]
        assert "b" not in homes(service).values()
    assert [event["workers"] for event in events(folder, "strays-discarded")] == [[worker]]
    check_golden(folder, tmp_path)


@pytest.mark.parametrize("error", [AwayError, UnavailableError])
def test_a_moved_worker_waits_for_its_copies(
    error: type[DbspError], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no database where it came to, and the place does not answer: its disk there is not lost, and no try is the last."""
    machines, tries, restore = (
        hosted.Machines(folder / "hosts"),
        itertools.count(1),
        ConfiguredResources.restore_database,
    )

    def away_at_first(resources: ConfiguredResources, worker: int, epoch: int, since: int = 0) -> bool:
        if since and next(tries) <= 3:
            raise error("the place for copies does not answer")
        return restore(resources, worker, epoch, since)

    monkeypatch.setattr(ConfiguredResources, "restore_database", away_at_first)
    with running(folder, machines, *COPIES) as service, traffic(service, 1):
        goes_on(service)
        lose(service, machines, "b")
    assert events(folder, "disk-lost") == []
    assert next(tries) > 4
    check_golden(folder, tmp_path)


def test_without_copies_one_error_names_what_is_lost(folder: Path) -> None:
    machines = hosted.Machines(folder / "hosts")

    def lose_b() -> None:
        with running(folder, machines, *LOST) as service:
            assert homes(service)[1] == "b"
            service.wait_until_processed(service.push("orders", orders(random.Random(1), 5)), 60)
            assert service.checkpoint(60)
            machines.silent.add("b")
            service.push("orders", orders(random.Random(2), 5))
            assert service.live_status.wait_for(lambda now: now.ended, 60)

    with pytest.raises(UnavailableError, match=r"there are no copies of it: hosts=b workers=\[1\]"):
        lose_b()


@given(
    homes=st.dictionaries(st.integers(0, 9), st.sampled_from("abcde"), min_size=1),
    lost=st.sets(st.sampled_from("abcde")),
    silent=st.sets(st.sampled_from("abcde")),
    offered=st.lists(st.sampled_from("abcde"), unique=True),
    zones=st.dictionaries(st.sampled_from("abcde"), st.sampled_from(["north", "south"])),
)
def test_only_workers_of_lost_hosts_move_and_they_are_spread(
    homes: dict[int, str], lost: set[str], silent: set[str], offered: list[str], zones: dict[str, str]
) -> None:
    weighed = [(host, 1.0) for host in offered]
    away = lost | silent
    found = relocated(homes, homes, workers_on(homes, homes, lost), away, weighed, zones=tuple(sorted(zones.items())))
    left = [host for host in offered if host not in away] or sorted(set(homes.values()) - away)
    if not left:
        assert found is None
        return
    assert found is not None
    assert set(found) == {worker for worker, host in homes.items() if host in lost}
    assert set(found.values()) <= set(left)
    after = Counter(dict.fromkeys(left, 0))
    after.update(host for worker, host in {**homes, **found}.items() if host in left)
    for host in set(found.values()):
        assert after[host] <= min(after.values()) + 1, "a moved worker went to a host with more workers"
    if len(found) == 1 and found.keys() < homes.keys():
        (worker, chosen), before = *found.items(), Counter(dict.fromkeys(left, 0))
        before.update(host for other, host in homes.items() if other != worker)
        near = Counter(zones.get(host, host) for other, host in homes.items() if other != worker)
        equal = [host for host in left if before[host] == before[chosen]]
        assert near[zones.get(chosen, chosen)] == min(near[zones.get(host, host)] for host in equal)


def test_a_host_counts_as_lost_only_after_it_was_silent_at_every_look() -> None:
    clock, silent = fakes.FakeClock(), set[str]()

    class Runtime:
        first_answer_s = 0.0

        def silent(self, hosts: list[str]) -> list[str]:
            return [host for host in hosts if host in silent]

        def cancel(self) -> None: ...

        def discard_strays(self, epoch: int, strays: list[object]) -> list[object]: ...  # type: ignore[empty-body]

    hosts = SilentHosts(clock, HostLoss(after_s=30.0, movable=True))
    runtime: object = Runtime()
    silent.add("b")
    assert hosts.look(runtime, HOSTS) == ()  # type: ignore[arg-type]
    clock.now_s += 29.0
    assert hosts.look(runtime, HOSTS) == ()  # type: ignore[arg-type]
    silent.clear()
    assert hosts.look(runtime, HOSTS) == ()  # type: ignore[arg-type]
    silent.add("b")
    clock.now_s += 29.0
    assert hosts.look(runtime, HOSTS) == ()  # type: ignore[arg-type]
    with pytest.raises(AwayError, match="b for"):
        hosts.await_all(runtime, HOSTS, HOSTS)  # type: ignore[arg-type]
    clock.now_s += 31.0
    assert hosts.look(runtime, HOSTS) == ("b",)  # type: ignore[arg-type]


class Starting:
    """A runtime whose hosts may take 30 s until they answer for the first time."""

    first_answer_s = 30.0

    def __init__(self) -> None:
        self.away = {*HOSTS}

    def silent(self, hosts: list[str]) -> list[str]:
        return [host for host in hosts if host in self.away]

    def cancel(self) -> None: ...

    def discard_strays(self, epoch: int, strays: list[object]) -> list[object]: ...  # type: ignore[empty-body]


def test_a_host_that_still_starts_is_not_lost() -> None:
    """It has not answered to this runtime, which is young. One that has answered counts by `host_lost_s` alone."""
    clock, runtime = fakes.FakeClock(), Starting()
    hosts = SilentHosts(clock, HostLoss(after_s=5.0, movable=True))
    look = lambda: hosts.look(runtime, HOSTS)  # type: ignore[arg-type]  # noqa: E731 - it is asked often
    assert look() == ()
    clock.now_s += 10.0
    runtime.away = {"b", "c"}
    assert (look(), hosts.long_silent(HOSTS)) == ((), ())
    runtime.away = {"a", "b"}
    assert look() == (), "a was silent at one look"
    clock.now_s += 5.0
    assert (look(), hosts.long_silent(HOSTS)) == (("a",), ("a",))
    clock.now_s += 15.0
    assert (look(), hosts.long_silent(HOSTS)) == (("a", "b"), ("a", "b"))
    runtime = Starting()
    assert (look(), hosts.long_silent(HOSTS)) == ((), ()), "all executors of another application are new"
    clock.now_s += 29.0
    assert look() == ()
    with pytest.raises(AwayError, match="not before the application is 30 s old"):
        hosts.await_all(runtime, HOSTS, HOSTS)  # type: ignore[arg-type]
    clock.now_s += 1.0
    assert look() == HOSTS


def test_workers_stay_where_hosts_start_slowly(folder: Path, tmp_path: Path) -> None:
    """A pipeline is started again, and a host answers some seconds later than `host_lost_s` allows."""
    machines = hosted.Machines(folder / "hosts", first_answer_s=600.0)
    with running(folder, machines, *COPIES) as service, traffic(service, 1):
        goes_on(service)
        before = homes(service)
    machines.silent.add("b")
    threading.Timer(1.5, machines.silent.discard, ["b"]).start()  # its executors register as late as that
    with running(folder, machines, *COPIES) as service, traffic(service, 2):
        goes_on(service)
        assert homes(service) == before
    assert not events(folder, "worker-moved")
    check_golden(folder, tmp_path)


def test_a_worker_that_leaves_the_pipeline_and_joins_again_is_not_stale() -> None:
    """Its database is made anew, with an epoch below that of the move."""
    layout = initial(2, hosts=[("a", 1.0), ("b", 1.0)])
    ledger = ledgers.new_ledger(fingerprint="f", nodes=(), layout=layout)
    ledger = replace(ledger, forming=frozenset())
    lost = relocations.move_workers(ledger, {1: "a"}, 7, 0, common_disk=False)
    assert lost.layouts[0].hosts == ("a", "a")
    assert lost.layouts[0].owners == layout.owners
    assert relocations.moved_since(lost) == {1: 7}
    assert [(stray.worker, stray.host, stray.since) for stray in relocations.strays(lost)] == [(1, "b", 7)]
    assert relocations.moved_since(ledgers.settle_members(lost, {0})) == {}
    assert relocations.counts_since(lost) == {1: 7}, "nothing is published yet"
    assert relocations.moved_since(replace(lost, forming=frozenset({1}))) == {}
    assert decode_ledger(json.loads(json.dumps(encode_ledger(lost)))) == lost
    back = relocations.move_workers(lost, {1: "b"}, 9, 0, common_disk=False)
    assert relocations.moved_since(back) == {1: 9}
    assert [stray.host for stray in relocations.strays(back)] == ["a"], "not where it is now"
    shared = relocations.move_workers(ledger, {1: "a"}, 7, 0, common_disk=True)
    assert (relocations.moved_since(shared), relocations.strays(shared)) == ({}, ())


@pytest.mark.skipif(not in_turn(1, 2), reason="at every second commit; `make soak` runs it")
def test_all_workers_return_to_copies_that_lag_when_a_host_is_lost(folder: Path, tmp_path: Path) -> None:
    """While the place was away no copy became whole: the workers on other hosts go back, too, as their state is newer."""
    machines = hosted.Machines(folder / "hosts")
    lag = (*COPIES, "checkpoint.copies_required=0")
    with (
        troubled(folder / "spare") as troubles,
        running(folder, machines, *lag) as service,
        traffic(service, 1),
    ):
        goes_on(service)
        troubles.mode = "away"
        for _ in range(2):
            goes_on(service)
        machines.silent.add("b")
        until(lambda: "b" not in homes(service).values(), "the workers of b are to move")
        troubles.mode = "troubled"
        goes_on(service)
    (returned,) = events(folder, "returned-to-copies")
    assert returned["lost"] == [worker["worker"] for worker in events(folder, "worker-moved")]
    check_golden(folder, tmp_path)
