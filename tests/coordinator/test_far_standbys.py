"""Standbys on other hosts: a lost host's workers go on from them, without copies; what is not whole there is never used."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp.coordinator import build, layouts
from dbsp.coordinator.decisions import states
from dbsp.coordinator.decisions.lost_hosts import relocated, workers_on
from dbsp.coordinator.decisions.recovery import chosen
from dbsp.coordinator.running import control as ledgers
from dbsp.coordinator.running import far_standbys, watch
from dbsp.coordinator.running.far_standbys import kept, with_places
from dbsp.coordinator.running.ledger_file import decode_ledger, encode_ledger
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.layout_section import LayoutSection
from dbsp.errors import ConfigError, UnavailableError
from dbsp.layout import initial
from dbsp.runtime.standbys import StandbyRoute
from dbsp.store import CheckpointId, VersionInfo
from tests.coordinator import hosted
from tests.coordinator.hosted import events, goes_on, homes, running
from tests.coordinator.under_traffic import check_golden, make_folder, orders, settings, traffic
from tests.pace import in_turn, rotating
from tests.spark.waiting import until

HOSTS = ("a", "b", "c")
STANDBYS = (
    "layout.host_lost_s=0.3", 'layout.hosts=["a", "b", "c"]', "pipeline.workers=3", "checkpoint.interval_s=0.2",
    "layout.standbys_per_worker=1",
)  # fmt: skip

RARELY = (*(each for each in STANDBYS if "interval" not in each), "checkpoint.interval_s=600")

ZONES = 'layout.zones={ a = "north", b = "north", c = "south" }'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline whose hosts have disks of their own, and are looked at often."""
    for module in (build, layouts):
        monkeypatch.setattr(module, "shares_disk", lambda config: not config.layout.hosts)
    monkeypatch.setattr(watch, "ASK_WORKERS_S", 0.1)
    monkeypatch.setattr(watch, "LOOK_EVERY_S", 0.05)
    monkeypatch.setattr(watch, "LOOK_IDLE_S", 0.1)
    monkeypatch.setattr(far_standbys, "RETRY_S", 0.05)
    return make_folder(tmp_path)


def places(service: Service) -> dict[int, str]:
    """The host of each worker's standby."""
    found = service.status()["standbys"]["standbys"]
    assert [each["worker"] for each in found] == [0, 1, 2]
    return {each["worker"]: each["host"] for each in found}


def caught_up(service: Service) -> None:
    """Wait until every standby holds the published version, as the status says."""

    def whole() -> bool:
        found = service.status()
        return all(
            (each["lag_bytes"], each["version"]) == (0, found["version"]) for each in found["standbys"]["standbys"]
        )

    until(whole, "all standbys have caught up")


def lose(service: Service, machines: hosted.Machines, host: str) -> None:
    machines.silent.add(host)
    until(lambda: host not in homes(service).values(), f"the workers of {host} have moved")
    goes_on(service)


def test_workers_of_a_lost_host_go_on_from_their_standbys(folder: Path, tmp_path: Path) -> None:
    """Two hosts are lost one after the other with their disks; nothing is copied before steps go on, and no copies are there."""
    machines = hosted.Machines(folder / "hosts")
    with running(folder, machines, *STANDBYS) as service, traffic(service, 1):
        goes_on(service)
        at = places(service)
        assert all(at[worker] != host for worker, host in homes(service).items())
        assert sorted(at.values()) == list(HOSTS), "not balanced"
        (worker,) = [worker for worker, host in homes(service).items() if host == "b"]
        machines.silent.add("b")
        machines.wipe("b")
        lose(service, machines, "b")
        assert homes(service)[worker] == at[worker], "it is not where its standby was"
        goes_on(service)
        lose(service, machines, "a")
        assert set(homes(service).values()) == {"c"}
        assert service.status()["standbys"]["missing"] == 3, "one host is left, and none for standbys"
    took = events(folder, "took-over")
    assert took[0]["workers"] == [worker]
    assert {found for event in took for found in event["workers"]} == {0, 1}  # type: ignore[attr-defined]
    check_golden(folder, tmp_path)


@pytest.mark.skipif(not in_turn(1, 2), reason="at every second commit; `make soak` runs it")
def test_a_standby_that_lacks_the_published_version_is_not_used(folder: Path, tmp_path: Path) -> None:
    """The disk of the standby's host was replaced, too: the worker is made again from the copies, and without them not at all."""
    machines = hosted.Machines(folder / "hosts")
    with running(folder, machines, *STANDBYS, "checkpoint.copies=spare") as service, traffic(service, 1):
        goes_on(service)
        lose_with_its_standby(service, machines)
        goes_on(service)
    assert events(folder, "took-over") == []
    assert [event["workers"] for event in events(folder, "restored")] == [[1]]
    check_golden(folder, tmp_path)


def lose_with_its_standby(service: Service, machines: hosted.Machines) -> None:
    """Lose host b, and the file of the standby of its worker."""
    assert service.pause(60) is not None
    caught_up(service)
    assert homes(service)[1] == "b"
    machines.silent.add("b")
    shutil.rmtree(machines.standby(places(service)[1], 1))
    service.resume()


def test_without_standby_and_copies_one_error_names_what_is_lost(folder: Path) -> None:
    machines = hosted.Machines(folder / "hosts")

    def lose_both() -> None:
        with running(folder, machines, *STANDBYS) as service, traffic(service, 1):
            goes_on(service)
            lose_with_its_standby(service, machines)
            assert service.live_status.wait_for(lambda now: now.ended, 60)

    with pytest.raises(UnavailableError, match=r"no standby that answers .* hosts=b workers=\[1\]"):
        lose_both()


def test_after_a_crash_nothing_is_opened_that_a_standby_may_lack(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All workers hold a version that no standby has when the coordinator ends; then a host is lost at once."""
    machines = hosted.Machines(folder / "hosts")
    follow, stuck = hosted.HostedStandbys.follow_standbys, list[int]()

    def follows(self: hosted.HostedStandbys, version: int, *arguments: object) -> None:
        if stuck and version > stuck[0]:
            stuck.append(version)
            raise UnavailableError("the network is slow")
        follow(self, version, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(hosted.HostedStandbys, "follow_standbys", follows)
    monkeypatch.setattr(far_standbys, "FAILURES_MAX", 1 << 30)
    with running(folder, machines, *STANDBYS) as service, traffic(service, 1):
        goes_on(service)
        caught_up(service)
        stuck.append(service.snapshot.version)
        until(lambda: len(stuck) > 1, "workers hold a version that standbys lack")
        service.stop(now=True)
    with running(folder, machines, *STANDBYS) as service:
        assert service.snapshot.version <= stuck[0]
        machines.silent.add("b")
        machines.wipe("b")
        stuck.clear()
        service.push("orders", orders(random.Random(2), 50))
        until(lambda: "b" not in homes(service).values(), "the workers of b have moved")
        goes_on_with_rows(service)
    assert events(folder, "took-over")
    check_golden(folder, tmp_path)


def goes_on_with_rows(service: Service) -> None:
    service.wait_until_processed(service.push("orders", orders(random.Random(3), 50)), 60)


@pytest.mark.skipif(not in_turn(0, 2), reason="at every second commit; `make soak` runs it")
def test_a_lost_host_of_standbys_alone_costs_no_worker(folder: Path, tmp_path: Path) -> None:
    """Checkpoints wait for it until it counts as lost; then its standbys are made elsewhere, and here again when it is back."""
    machines = hosted.Machines(folder / "hosts")
    heavy, idle = "layout.weights={ a = 3 }", "c"  # both workers are on a, and only c is in another zone
    with running(folder, machines, *STANDBYS, "pipeline.workers=2", heavy, ZONES) as service, traffic(service, 1):
        goes_on(service)
        before = homes(service)
        assert set(before.values()) == {"a"}
        until(lambda: idle in standby_hosts(service), "a standby is on the host without workers")
        machines.silent.add(idle)
        goes_on(service)
        assert idle not in standby_hosts(service)
        assert homes(service) == before
        machines.silent.clear()
        until(lambda: idle in standby_hosts(service), "it has a standby again")
        goes_on(service)
        assert homes(service) == before
    check_golden(folder, tmp_path)


def standby_hosts(service: Service) -> list[str]:
    return [each["host"] for each in service.status()["standbys"]["standbys"]]


@pytest.mark.parametrize("strategy", [*rotating(["cold", "warmup"], 2), pytest.param("icadd", marks=pytest.mark.soak)])
def test_a_rescale_leaves_every_worker_with_a_standby(strategy: str, folder: Path, tmp_path: Path) -> None:
    """A host is lost right after it: the version of the rescale is whole in the standbys of the new workers."""
    machines = hosted.Machines(folder / "hosts")
    with running(folder, machines, *RARELY, common_disk=True) as service, traffic(service, 4):
        service.rescale(5, 60, strategy=strategy)
        victim = homes(service)[4]
        machines.silent.add(victim)
        machines.wipe(victim)
        until(lambda: victim not in homes(service).values(), "the workers of a host have moved")
        goes_on_with_rows(service)
        service.rescale(2, 60)
        assert service.checkpoint(60)
        machines.silent.clear()
        assert service.checkpoint(60)
        goes_on_with_rows(service)
        assert service.checkpoint(60)
        caught_up_of(service, machines, 2)
    check_golden(folder, tmp_path)


def caught_up_of(service: Service, machines: hosted.Machines, workers: int) -> None:
    """Wait until there are exactly the standbys of the layout's workers, on the disks of all hosts."""

    def exact() -> bool:
        found = {(each["worker"], each["host"]) for each in service.status()["standbys"]["standbys"]}
        there = {
            (int(home.name), host)
            for host in HOSTS
            for home in (machines.folder / host / "standbys").glob("[0-9]*")
            if home.name.isdigit()
        }
        service.push("orders", orders(random.Random(5), 5))
        service.checkpoint(60)
        return len(found) == workers and there == found

    until(exact, "other standbys are deleted")


@pytest.mark.soak
def test_hosts_are_lost_and_come_back_at_random(folder: Path, tmp_path: Path) -> None:
    """At most one host is silent at a time, with its disk lost or not; the service ends at any moment. There are no copies."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    draw, machines = random.Random(seed), hosted.Machines(folder / "hosts", hangs_s=1.0)
    for _ in range(15):
        with running(folder, machines, *STANDBYS) as service, traffic(service, draw.randrange(1 << 32)):
            goes_on(service)
            machines.silent.clear()
            goes_on(service)
            goes_on(service)
            caught_up(service)
            victim = draw.choice(HOSTS)
            machines.silent.add(victim)
            if draw.random() < 0.5 and (machines.folder / victim).exists():
                machines.wipe(victim)
            if draw.random() < 0.7:
                until(lambda victim=victim: victim not in homes(service).values(), "its workers have moved")  # type: ignore[misc]
                goes_on(service)
            if draw.random() < 0.5:
                service.stop(now=True)
    with running(folder, machines, *STANDBYS) as service, traffic(service, draw.randrange(1 << 32)):
        goes_on(service)  # a step that was logged when the service ended is run
        machines.silent.clear()
    check_golden(folder, tmp_path)


@given(
    homes=st.dictionaries(st.integers(0, 9), st.sampled_from("abcde"), min_size=1),
    lost=st.sets(st.sampled_from("abcde")),
    silent=st.sets(st.sampled_from("abcde")),
    offered=st.lists(st.sampled_from("abcde"), unique=True),
    standbys=st.sets(st.tuples(st.integers(0, 9), st.sampled_from("abcde"))),
)
def test_a_worker_moves_to_a_standby_that_answers_if_it_has_one(
    homes: dict[int, str], lost: set[str], silent: set[str], offered: list[str], standbys: set[tuple[int, str]]
) -> None:
    away, on_lost, weighed = lost | silent, workers_on(homes, homes, lost), [(host, 1.0) for host in offered]
    found = relocated(homes, homes, on_lost, away, weighed, standbys)
    anywhere = relocated(homes, homes, on_lost, away, weighed)
    moving = {worker for worker, host in homes.items() if host in lost}
    ready = {worker: {host for of, host in standbys if of == worker} - away for worker in moving}
    if found is None:
        assert anywhere is None
        assert not (moving and all(ready.values()))
        return
    assert set(found) == moving
    for worker, host in found.items():
        assert host not in away
        if ready[worker]:
            assert host in ready[worker]
            assert host in offered or not ready[worker] & set(offered)


def test_the_ledger_knows_every_place_until_its_standby_is_deleted() -> None:
    layout = initial(2, hosts=[("a", 1.0), ("b", 1.0)])
    ledger = ledgers.new_ledger(fingerprint="f", nodes=(), layout=layout)

    def route(worker: int, host: str) -> StandbyRoute:
        return StandbyRoute(worker=worker, home=layout.hosts[worker], host=host)

    first = with_places(ledger, [route(0, "b"), route(1, "c")])
    then = with_places(first, [route(0, "c"), route(1, "c")])
    assert kept(then) == {0: ["c"], 1: ["c"]}
    assert [(place.worker, place.host) for place in then.standbys if not place.kept] == [(0, "b")]
    assert decode_ledger(json.loads(json.dumps(encode_ledger(then)))) == then
    assert [place.host for place in with_places(then, [route(0, "c")], gone=[(0, "b")]).standbys] == ["c", "c"]
    assert kept(with_places(then, [route(0, "b")])) == {0: ["b"]}


def test_a_version_above_the_published_one_is_not_chosen_with_standbys() -> None:
    layout = initial(1, hosts=[("a", 1.0), ("b", 1.0)])
    facts = states.Facts(
        run="r",
        fingerprint="f",
        layouts={0: layout},
        layout=layout,
        members=frozenset({0}),
        forming=frozenset(),
        published=4,
    )
    held = {
        0: [
            VersionInfo(
                version=version,
                checkpoint=CheckpointId(run="r", epoch=1, step=version, layout_version=0, fingerprint="f"),
            )
            for version in (4, 5)
        ]
    }
    assert [found.version for found in (chosen(facts, held),) if found is not None] == [5]
    with_standbys = chosen(replace(facts, only_published=True), held)
    assert with_standbys is not None
    assert with_standbys.version == 4


@pytest.mark.parametrize(
    ("section", "story"),
    [
        ({"hosts": ["a", "b"], "standbys_per_worker": 2}, "too few hosts for standbys"),
        ({"hosts": ["a", "b"], "standbys_per_worker": -1}, "layout.standbys_per_worker"),
        ({"hosts": ["a", "b"], "zones": {"a": ""}}, "a zone is a name"),
    ],
)
def test_settings_that_no_standby_can_follow_are_refused(section: dict[str, object], story: str) -> None:
    with pytest.raises(ConfigError, match=story):
        LayoutSection(**section)  # type: ignore[arg-type]


def test_workers_on_one_disk_get_no_standbys_on_other_hosts(tmp_path: Path) -> None:
    config = settings(make_folder(tmp_path), *STANDBYS)
    with pytest.raises(ConfigError, match="would be on the same disk"):
        layouts.check_named(config)


def test_standbys_and_copies_that_lag_are_refused_together(tmp_path: Path) -> None:
    lagging = ("checkpoint.copies=spare", "checkpoint.copies_required=0")
    config = settings(make_folder(tmp_path), *STANDBYS, *lagging)
    with pytest.raises(ConfigError, match="do not go together with copies that lag"):
        layouts.check_named(config)
