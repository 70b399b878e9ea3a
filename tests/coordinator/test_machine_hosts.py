"""Hosts that are gone: a start waits for what the published version needs, and for nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dbsp.coordinator.decisions import orders as do
from dbsp.coordinator.decisions import protocol as p
from dbsp.coordinator.decisions.machine import step
from dbsp.coordinator.running.control import settle_members
from dbsp.coordinator.strategies import WARMUP
from dbsp.errors import DataError, UnavailableError
from dbsp.layout import Layout, initial, rescaled
from tests.coordinator import fake_runtime, fakes
from tests.coordinator.test_machine import facts, held, identity, names, play

TWO = initial(2, hosts=[("a", 1.0), ("b", 1.0)])
THREE = replace(rescaled(replace(TWO, offered=(("a", 1.0), ("b", 1.0), ("c", 1.0))), 3, step=5), version=1)
BACK = replace(rescaled(replace(THREE, offered=(("a", 1.0), ("b", 1.0))), 2, step=9), version=2)
OLD, NEW = identity(3), identity(5, epoch=4, layout=1)


def standing(used: int, forming: set[int], rescale: int | None = None, published: int = 3) -> p.Standing:
    """A ledger that names three workers; the third lives on host c."""
    return p.Standing(
        layouts={0: TWO, 1: THREE, 2: BACK}, courses={}, used=used, members=frozenset({0, 1, 2}),
        forming=frozenset(forming), published=published, rescale=rescale, strategy=WARMUP,
    )  # fmt: skip


def started(found: p.Standing, *events: p.Event | Callable[[p.State], p.Event]) -> tuple[p.State, list[do.Command]]:
    """A start that has claimed its epoch."""
    start = p.Starting(facts=facts(layouts=found.layouts, layout=found.layouts[found.used]))
    return play(start, p.Begin(), p.Claimed(epoch=5, standing=found), *events)


@pytest.mark.parametrize("found", [standing(0, {2}, rescale=3), standing(2, set())], ids=["joining", "emptied"])
def test_a_host_that_is_not_needed_is_not_waited_for(found: p.Standing) -> None:
    """No command but those that may leave it out names it."""
    layout: Layout = found.layouts[found.used]
    made = identity(3, layout=layout.version)
    state, commands = started(
        found, p.Fenced(), held((0, 3, made), (1, 3, made)), p.Opened(version=3, checkpoint=made, layout=layout),
        p.Discarded(left=(2,)), p.StepsRead(records=()),
    )  # fmt: skip
    assert commands[1] == do.FenceWorkers(epoch=5, workers=(0, 1), hosts=("a", "b"), others=(2,), other_hosts=("c",))
    assert commands[2] == do.ReadVersions(epoch=5, workers=(0, 1), hosts=("a", "b"))
    assert commands[4] == do.DiscardWorkers(workers=(2,), members=(0, 1), hosts=("c",))
    assert not commands[4].must
    assert state.facts.members == {0, 1, 2}
    assert state.facts.forming == {2}, "it is discarded when it is found again"


def test_a_newer_version_that_others_hold_is_opened_where_they_are_reached() -> None:
    everybody = held(*((worker, 4, NEW) for worker in (0, 1, 2)), *((worker, 3, OLD) for worker in (0, 1)))
    _, commands = started(standing(0, {2}), p.Fenced(others=(2,)), everybody)
    assert isinstance(commands[-1], do.OpenVersion)
    assert (commands[-1].version, commands[-1].layout.version, commands[-1].checkpoint) == (4, 1, NEW)
    two = held(*((worker, 4, NEW) for worker in (0, 1)), *((worker, 3, OLD) for worker in (0, 1)))
    _, commands = started(standing(0, {2}), p.Fenced(), two)
    assert isinstance(commands[-1], do.OpenVersion)
    assert (commands[-1].version, commands[-1].layout.version, commands[-1].checkpoint) == (3, 0, OLD)


def test_a_version_that_only_the_missing_may_complete_is_waited_for() -> None:
    """The workers have opened version 4 before the ledger said so, and the third is away: that is no damage."""
    state, commands = started(standing(0, {2}), p.Fenced(), held((0, 4, NEW), (1, 4, NEW)))
    assert names(commands)[-1] == "BackOff"
    for _ in range(state.facts.failures_max - 1):
        state, commands = play(
            state, p.Woken(), p.Claimed(epoch=6, standing=standing(0, {2})), p.Fenced(), held((0, 4, NEW), (1, 4, NEW))
        )
    assert isinstance(commands[-1], do.Finish)
    assert commands[-1].code == "unavailable"
    assert "hosts=['c']" in commands[-1].message


def test_what_is_left_behind_delays_no_rescale() -> None:
    """It is neither one of those that join, nor waited for after a checkpoint."""
    made = identity(3)
    state, _ = started(
        standing(0, {2}), p.Fenced(), held((0, 3, made), (1, 3, made)), p.Opened(version=3, checkpoint=made, layout=TWO),
        p.Discarded(left=(2,)), p.StepsRead(records=()), p.Recorded(record=None),
    )  # fmt: skip
    near = replace(state, facts=replace(state.facts, layout=replace(TWO, offered=(("a", 1.0),))))
    state, commands = play(near, p.RescaleAsked(workers=1))
    assert names(commands)[-1] == "LogLayout"
    assert isinstance(state, p.Rescaling)
    _, commands = play(state, p.LayoutLogged(layout=state.new))
    assert names(commands) == ["Redistribute"], "nobody joins"


def test_a_rescale_that_has_not_begun_is_taken_back_while_a_start_looks_for_hosts() -> None:
    found = standing(0, {2}, rescale=3)
    state, _ = started(found)
    state, commands = play(state, p.CancelAsked(), p.Failed(code="unavailable", message="no executor"))
    assert names(commands) == ["BackOff"]
    state, commands = play(state, p.Woken(), p.Claimed(epoch=6, standing=found))
    assert names(commands) == ["ClaimEpoch", "ForgetRescale"]
    state, commands = play(
        state, p.Forgotten(), p.Woken(), p.Claimed(epoch=7, standing=replace(found, rescale=None, strategy="cold"))
    )
    assert names(commands) == ["BackOff", "ClaimEpoch", "FenceWorkers"]
    assert state.facts.wants == p.Wants()
    assert state.facts.rescale_error == "it was cancelled"


def test_a_deletion_before_a_worker_joins_must_be_done() -> None:
    _, command = step(
        p.Rescaling(
            facts=facts(layouts={0: TWO, 1: THREE}, layout=TWO, forming=frozenset({2}), members=frozenset({0, 1, 2})),
            version=4, checkpoint=NEW, new=THREE, awaits="logged",
        ),
        p.LayoutLogged(layout=THREE),
    )  # fmt: skip
    assert command == (do.DiscardWorkers(workers=(2,), members=(0, 1, 2), forming=(2,), hosts=("c",), must=True),)


def test_the_ledger_keeps_whom_nobody_reached() -> None:
    """The hands tell the ledger, so that the next start looks for it again."""
    world, clock = fakes.World(), fakes.FakeClock()
    fakes.begin(world, 2)
    runtime = fake_runtime.FakeRuntime(world)
    hands = fake_runtime.hands(world, clock)
    hands._runtime = runtime

    def away(name: str) -> None:
        if name.endswith(" 2"):
            raise UnavailableError("the host is away")

    world.point = away
    world.control.change(None, lambda ledger: settle_members(ledger, {0, 1, 2}))
    found = hands.perform(do.DiscardWorkers(workers=(2,), members=(0, 1)))
    assert found == p.Discarded(left=(2,))
    ledger = world.control.load()
    assert ledger is not None
    assert (ledger.members, ledger.forming) == ({0, 1, 2}, {2})
    runtime.create((0, 1), identity(0, epoch=0))
    found = hands.perform(do.FenceWorkers(epoch=5, workers=(0, 1), others=(2,)))
    assert found == p.Fenced(others=())
    assert isinstance(hands.perform(do.FenceWorkers(epoch=5, workers=(0, 1, 2))), p.Failed)
    with pytest.raises(DataError):
        runtime._database(2)
