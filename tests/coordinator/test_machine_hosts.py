"""Hosts that are gone: a start waits for what the published version needs, and for nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dbsp.coordinator.decisions import commands, events, states
from dbsp.coordinator.decisions.machine import step
from dbsp.coordinator.decisions.strategies import WARMUP
from dbsp.coordinator.running.control import settle_members
from dbsp.errors import DataError, UnavailableError
from dbsp.layout import Layout, initial, rescaled
from tests.coordinator import fake_runtime, fakes
from tests.coordinator.test_machine import facts, held, identity, names, play

TWO = initial(2, hosts=[("a", 1.0), ("b", 1.0)])
THREE = replace(rescaled(replace(TWO, offered=(("a", 1.0), ("b", 1.0), ("c", 1.0))), 3, step=5), version=1)
BACK = replace(rescaled(replace(THREE, offered=(("a", 1.0), ("b", 1.0))), 2, step=9), version=2)
OLD, NEW = identity(3), identity(5, epoch=4, layout=1)


def standing(used: int, forming: set[int], rescale: int | None = None, published: int = 3) -> events.LedgerState:
    """A ledger that names three workers; the third lives on host c."""
    return events.LedgerState(
        layouts={0: TWO, 1: THREE, 2: BACK}, migration_plans={}, used=used, members=frozenset({0, 1, 2}),
        forming=frozenset(forming), published=published, rescale=rescale, strategy=WARMUP,
    )  # fmt: skip


def started(
    found: events.LedgerState, *arrived: events.Event | Callable[[states.State], events.Event]
) -> tuple[states.State, list[commands.Command]]:
    """A start that has claimed its epoch."""
    start = states.Starting(facts=facts(layouts=found.layouts, layout=found.layouts[found.used]))
    return play(start, events.LoopReady(), events.Claimed(epoch=5, standing=found), *arrived)


@pytest.mark.parametrize("found", [standing(0, {2}, rescale=3), standing(2, set())], ids=["joining", "emptied"])
def test_a_host_that_is_not_needed_is_not_waited_for(found: events.LedgerState) -> None:
    """No command but those that may leave it out names it."""
    layout: Layout = found.layouts[found.used]
    made = identity(3, layout=layout.version)
    state, issued = started(
        found, events.Fenced(), held((0, 3, made), (1, 3, made)), events.VersionOpened(version=3, checkpoint=made, layout=layout),
        events.Discarded(left=(2,)), events.StepsRead(records=()),
    )  # fmt: skip
    assert issued[1] == commands.FenceWorkers(
        epoch=5, workers=(0, 1), hosts=("a", "b"), others=(2,), other_hosts=("c",), offered=("a", "b")
    )
    assert issued[2] == commands.ReadVersions(epoch=5, workers=(0, 1), hosts=("a", "b"))
    assert issued[4] == commands.DiscardWorkers(workers=(2,), members=(0, 1), hosts=("c",))
    assert not issued[4].must
    assert state.facts.members == {0, 1, 2}
    assert state.facts.forming == {2}, "it is discarded when it is found again"


def test_a_newer_version_that_others_hold_is_opened_where_they_are_reached() -> None:
    everybody = held(*((worker, 4, NEW) for worker in (0, 1, 2)), *((worker, 3, OLD) for worker in (0, 1)))
    _, issued = started(standing(0, {2}), events.Fenced(others=(2,)), everybody)
    assert isinstance(issued[-1], commands.OpenVersion)
    assert (issued[-1].version, issued[-1].layout.version, issued[-1].checkpoint) == (4, 1, NEW)
    two = held(*((worker, 4, NEW) for worker in (0, 1)), *((worker, 3, OLD) for worker in (0, 1)))
    _, issued = started(standing(0, {2}), events.Fenced(), two)
    assert isinstance(issued[-1], commands.OpenVersion)
    assert (issued[-1].version, issued[-1].layout.version, issued[-1].checkpoint) == (3, 0, OLD)


def test_a_version_that_only_the_missing_may_complete_is_waited_for() -> None:
    """The workers have opened version 4 before the ledger said so, and the third is away: that is no damage."""
    state, issued = started(standing(0, {2}), events.Fenced(), held((0, 4, NEW), (1, 4, NEW)))
    assert names(issued)[-1] == "BackOff"
    for _ in range(state.facts.failures_max - 1):
        state, issued = play(
            state,
            events.Woken(),
            events.Claimed(epoch=6, standing=standing(0, {2})),
            events.Fenced(),
            held((0, 4, NEW), (1, 4, NEW)),
        )
    assert isinstance(issued[-1], commands.Shutdown)
    assert issued[-1].code == "unavailable"
    assert "hosts=['c']" in issued[-1].message


def test_what_is_left_behind_delays_no_rescale() -> None:
    """It is neither one of those that join, nor waited for after a checkpoint."""
    made = identity(3)
    state, _ = started(
        standing(0, {2}), events.Fenced(), held((0, 3, made), (1, 3, made)),
        events.VersionOpened(version=3, checkpoint=made, layout=TWO),
        events.Discarded(left=(2,)), events.StepsRead(records=()), events.Recorded(record=None),
    )  # fmt: skip
    near = replace(state, facts=replace(state.facts, layout=replace(TWO, offered=(("a", 1.0),))))
    state, issued = play(near, events.RescaleAsked(workers=1))
    assert names(issued)[-1] == "LogLayout"
    assert isinstance(state, states.Rescaling)
    _, issued = play(state, events.LayoutLogged(layout=state.new))
    assert names(issued) == ["RedistributeShards"], "nobody joins"


def test_a_rescale_that_has_not_begun_is_taken_back_while_a_start_looks_for_hosts() -> None:
    found = standing(0, {2}, rescale=3)
    state, _ = started(found)
    state, issued = play(state, events.CancelAsked(), events.Failed(code="unavailable", message="no executor"))
    assert names(issued) == ["BackOff"]
    state, issued = play(state, events.Woken(), events.Claimed(epoch=6, standing=found))
    assert names(issued) == ["ClaimEpoch", "ForgetRescale"]
    state, issued = play(
        state,
        events.Forgotten(),
        events.Woken(),
        events.Claimed(epoch=7, standing=replace(found, rescale=None, strategy="cold")),
    )
    assert names(issued) == ["BackOff", "ClaimEpoch", "FenceWorkers"]
    assert state.facts.requested == states.Requested()
    assert state.facts.rescale_error == "it was cancelled"


def test_a_deletion_before_a_worker_joins_must_be_done() -> None:
    _, command = step(
        states.Rescaling(
            facts=facts(layouts={0: TWO, 1: THREE}, layout=TWO, forming=frozenset({2}), members=frozenset({0, 1, 2})),
            version=4, checkpoint=NEW, new=THREE, awaits="logged",
        ),
        events.LayoutLogged(layout=THREE),
    )  # fmt: skip
    assert command == (commands.DiscardWorkers(workers=(2,), members=(0, 1, 2), forming=(2,), hosts=("c",), must=True),)


def test_the_ledger_keeps_whom_nobody_reached() -> None:
    """The command runner tells the ledger, so that the next start looks for it again."""
    world, clock = fakes.World(), fakes.FakeClock()
    fakes.begin(world, 2)
    runtime = fake_runtime.FakeRuntime(world)
    runner = fake_runtime.command_runner(world, clock)
    runner._runtime = runtime

    def away(name: str) -> None:
        if name.endswith(" 2"):
            raise UnavailableError("the host is away")

    world.point = away
    world.control.change(None, lambda ledger: settle_members(ledger, {0, 1, 2}))
    found = runner.perform(commands.DiscardWorkers(workers=(2,), members=(0, 1)))
    assert found == events.Discarded(left=(2,))
    ledger = world.control.load()
    assert ledger is not None
    assert (ledger.members, ledger.forming) == ({0, 1, 2}, {2})
    runtime.create((0, 1), identity(0, epoch=0))
    found = runner.perform(commands.FenceWorkers(epoch=5, workers=(0, 1), others=(2,)))
    assert found == events.Fenced(others=())
    assert isinstance(runner.perform(commands.FenceWorkers(epoch=5, workers=(0, 1, 2))), events.Failed)
    with pytest.raises(DataError):
        runtime._database(2)
