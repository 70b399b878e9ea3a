"""A rescale that chooses hosts itself leaves out lost ones and those with a broken disk. New hosts are awaited beside steps."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp.coordinator.decisions import events, rescaling
from dbsp.coordinator.decisions.recovery import learned, serves
from dbsp.coordinator.decisions.strategies import STRATEGIES
from dbsp.coordinator.running import joining_hosts
from dbsp.coordinator.running.control import exclude, new_ledger, opened, request_rescale, standing
from dbsp.coordinator.running.ledger_file import decode_ledger, encode_ledger
from dbsp.coordinator.running.unusable_hosts import LOST, UNWRITABLE, UnusableHost, excluded
from dbsp.coordinator.service import Service
from dbsp.errors import UnavailableError
from dbsp.hosts import Offered
from dbsp.layout import Layout, initial
from tests.coordinator import hosted
from tests.coordinator.hosted import events as lines
from tests.coordinator.hosted import goes_on, homes, running
from tests.coordinator.test_far_standbys import folder  # noqa: F401 - a fixture
from tests.coordinator.test_lost_hosts import COPIES
from tests.coordinator.test_machine import facts, names, play
from tests.coordinator.test_machine import running as at_work
from tests.coordinator.under_traffic import check_golden, traffic
from tests.spark.waiting import until

NAMES = "abcde"
HOSTS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True)
WEIGHTS = st.sampled_from([1.0, 1.0, 2.0, 0.5])


def of(hosts: str) -> Offered:
    return tuple((host, 1.0) for host in hosts)


@given(data=st.data())
def test_a_layout_has_no_worker_on_a_host_that_is_left_out_whatever_has_crashed(data: st.DataObject) -> None:
    """What a request leaves out is what a recovery reads, and what decides whether a layout serves the request."""
    offered = tuple((host, data.draw(WEIGHTS)) for host in data.draw(HOSTS))
    before = initial(data.draw(st.integers(1, 5)), hosts=offered)
    left_out = tuple(sorted(data.draw(st.sets(st.sampled_from(NAMES)))))
    lost = data.draw(st.sets(st.sampled_from(NAMES)))
    workers, strategy = data.draw(st.integers(1, 6)), data.draw(st.sampled_from(STRATEGIES))
    ledger = new_ledger(fingerprint="f", nodes=(), layout=before, run="run")
    ledger = exclude(request_rescale(ledger, workers, strategy, excluded=left_out), lost)
    ledger = decode_ledger(json.loads(json.dumps(encode_ledger(ledger))))
    found = learned(facts(layouts={0: before}, layout=before), standing(ledger))
    new = rescaling._target(found, workers)
    usable = {host for host, _ in offered}.difference(left_out, lost) or {host for host, _ in offered}
    after = before if new is None else new
    assert isinstance(after, Layout)
    assert after.offered == offered, "a later rescale may use all of them"
    if new is not None or {*before.hosts} <= usable:
        assert {*after.hosts} <= usable
    assert serves(after, {}, workers, offered, excluded=found.requested.excluded)
    assert opened(ledger, 0, after).rescale is None, "the ledger says so, too"
    assert new is None or rescaling._target(replace(found, layout=after, layouts={1: after}), workers) is None


def test_all_hosts_cannot_be_left_out() -> None:
    with pytest.raises(UnavailableError, match="no host on offer can get workers: a: it is lost; b: its disk cannot"):
        excluded(of("ab"), [UnusableHost(host="a", reason=LOST), UnusableHost(host="b", reason=UNWRITABLE)])
    assert excluded(of("ab"), []) == ()


def test_a_request_that_names_its_hosts_leaves_out_none() -> None:
    ledger = request_rescale(
        new_ledger(fingerprint="f", nodes=(), layout=initial(2, hosts=of("ab"))), 2, hosts=of("ac")
    )
    assert exclude(ledger, ["c"]).rescale_excluded is None
    assert exclude(request_rescale(ledger, None), ["c"]).rescale_excluded is None


def test_a_broken_disk_gets_no_worker(folder: Path, tmp_path: Path) -> None:  # noqa: F811 - the fixture
    """No worker is there that would notice: the rescale asks; autoscale asks, too."""
    machines = hosted.Machines(folder / "hosts")
    one = (*COPIES, "pipeline.workers=1")
    scaled = (
        "autoscale.enabled=true",
        "autoscale.workers_min=3",
        "autoscale.workers_max=3",
        "autoscale.cooldown_s=0.1",
    )
    with running(folder, machines, *one, common_disk=True) as service, traffic(service, 4):
        goes_on(service)
        assert {*homes(service).values()} == {"a"}
        (folder / "hosts" / "b").touch()
        assert service.plan_rescale(2).hosts_excluded == (UnusableHost(host="b", reason=UNWRITABLE),)
        service.rescale(2, 60)
        assert sorted(homes(service).values()) == ["a", "c"]
    with running(folder, machines, *one, *scaled, common_disk=True) as service, traffic(service, 5):
        until(lambda: len(service.layout().workers) == 3, "autoscale has added a worker")
        assert {*homes(service).values()} == {"a", "c"}
        assert lines(folder, "autoscale")[-1]["excluded"] == ["b"]
        until(lambda: service.snapshot.state == "Running", "it goes on")
        machines.replace_disk("b")
        service.rescale(3, 60)
        assert sorted(homes(service).values()) == ["a", "b", "c"]
    check_golden(folder, tmp_path)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_restart_leaves_out_the_same_hosts(strategy: str, folder: Path, tmp_path: Path) -> None:  # noqa: F811 - the fixture
    """They answer again by then: the request decides."""
    machines = hosted.Machines(folder / "hosts")
    with running(folder, machines, *COPIES, "pipeline.workers=1", common_disk=True) as service:
        control = service.built.parts.control
        control.change(None, lambda ledger: request_rescale(ledger, 3, strategy, excluded=("b",)))
        service.stop(now=True)
    with running(folder, machines, *COPIES, "pipeline.workers=1", common_disk=True) as service, traffic(service, 6):
        until(lambda: len(homes(service)) == 3 and service.snapshot.state == "Running", "three workers")
        assert {*homes(service).values()} == {"a", "c"}
        until(lambda: is_over(service), "the request is served")
    check_golden(folder, tmp_path)


def is_over(service: Service) -> bool:
    ledger = service.built.parts.control.load()
    return ledger is not None and (ledger.rescale, ledger.rescale_excluded) == (None, None)


def test_a_start_with_a_rescale_finds_a_host_lost(folder: Path, tmp_path: Path) -> None:  # noqa: F811 - the fixture
    """Nobody could know of it when the rescale was asked for: recovery moves the worker of b, and b gets none of the new ones."""
    machines = hosted.Machines(folder / "hosts")
    with running(folder, machines, *COPIES, common_disk=True) as service, traffic(service, 7):
        goes_on(service)
        service.built.parts.control.change(None, lambda ledger: request_rescale(ledger, 4))
        service.stop(now=True)
    machines.silent.add("b")
    with running(folder, machines, *COPIES, common_disk=True) as service, traffic(service, 8):
        until(lambda: len(homes(service)) == 4 and service.snapshot.state == "Running", "four workers")
        assert {*homes(service).values()} == {"a", "c"}
        until(lambda: is_over(service), "the request is served")
    check_golden(folder, tmp_path)


def test_steps_go_on_until_a_new_host_answers(folder: Path, tmp_path: Path) -> None:  # noqa: F811 - the fixture
    """A machine is still starting; the rescale is waiting for it, and says so."""
    machines = hosted.Machines(folder / "hosts")
    with running(folder, machines, *COPIES, common_disk=True) as service, traffic(service, 9):
        goes_on(service)
        machines.silent.add("d")
        asking = threading.Thread(target=lambda: service.rescale(3, 60, hosts=of("acd")))
        asking.start()
        until(lambda: service.snapshot.waiting is not None, "it waits")
        assert service.snapshot.waiting is not None
        assert service.snapshot.waiting.waits_for == "executors on d"
        goes_on(service)
        assert "d" not in homes(service).values()
        machines.silent.clear()
        asking.join(60)
        assert sorted(homes(service).values()) == ["a", "c", "d"]
    check_golden(folder, tmp_path)


def test_a_host_that_never_answers_ends_the_rescale(
    folder: Path,  # noqa: F811 - the fixture
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(joining_hosts, "AWAITED_S", 0.3)
    monkeypatch.setattr(joining_hosts, "LOOK_EVERY_S", 0.05)
    machines = hosted.Machines(folder / "hosts")
    with running(folder, machines, *COPIES, common_disk=True) as service, traffic(service, 10):
        goes_on(service)
        machines.silent.add("d")
        with pytest.raises(
            UnavailableError, match=r"abandoned: no executor answers on hosts of joining workers: hosts=d"
        ):
            service.rescale(3, 60, hosts=of("acd"))
        assert sorted(homes(service).values()) == ["a", "b", "c"]
        goes_on(service)
    check_golden(folder, tmp_path)


def test_news_of_an_earlier_request_counts_for_nothing() -> None:
    two = initial(2, hosts=of("ab"))
    state = at_work(layouts={0: two}, layout=two)
    state, _ = play(state, events.RescaleAsked(workers=2, hosts=of("ac")))
    assert rescaling.awaited_hosts(state.facts) == ("c",)
    state, _ = play(state, events.HostsAwaited(hosts=("d",)))
    assert rescaling.awaited_hosts(state.facts) == ("c",)
    state, issued = play(state, events.HostsAwaited(hosts=("c",)), events.Recorded(record=None))
    assert rescaling.awaited_hosts(state.facts) == ()
    assert names(issued) == ["PinVersion"], "all steps rest at a checkpoint, as the rescale is cold"
