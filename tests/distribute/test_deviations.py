"""Where the seeds are unsound as written: each rule of ours is taken out, and the failing case is shown.

Each case is played by hand, message by message; then the simulator is given the same planted bug, and must find it within a
stated number of seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dbsp.distribute import icadd, redistribute, rounds
from dbsp.distribute.distributor import Marks
from dbsp.distribute.messages import (
    Acquire,
    AddKeys,
    BeginMessage,
    Enter,
    FinalMessage,
    Interrogated,
    KeySetsMessage,
    Received,
    RedistributeMessage,
    RowsMessage,
    ShutdownMessage,
)
from dbsp.errors import InternalError
from dbsp.layout import initial
from tests.distribute.small import from_, h, layout, passed, rows, sent, told
from tests.distribute.world import Broken, Lockstep, interleaved, walk

SEEDS = 40
"""Within this many seeds the simulator finds every planted bug."""

OLD = layout(0, 0, 0, 0, 0, 1, 1, 2, 2)
NEW = layout(1, 0, 0, 1, 1, 1, 1, 2, 0)
"""Keys 2 and 3 go from 0 to 1, key 7 from 2 to 0."""

Plant = Callable[[pytest.MonkeyPatch], None]


def steady(worker: int) -> Any:
    return icadd.IcaddDistributor(worker=worker, old=OLD)


def collecting(worker: int, *keys: int) -> Any:
    return told(steady(worker), BeginMessage(layout=NEW), AddKeys(keys=h(*keys)), Interrogated(), Enter())[0]


def sender(worker: int) -> Any:
    return told(redistribute.RedistributeDistributor(worker=worker, old=OLD), BeginMessage(layout=NEW, pace=1))[0]


# The bugs, each a rule as first written (docs/concepts/rescale.md) or a rule left out.


def newer_always_passes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(icadd, "from_newer_passes", lambda before, _: np.ones(len(before), bool))


def old_owner_always_gave_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(icadd, "given_back", lambda before, sender, _, __: before == sender)


def nothing_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(icadd, "stays_here", lambda _, before, __: np.zeros(len(before), bool))


def repeats_are_taken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Marks, "new", lambda self, _, __, keys: (self, np.ones(len(keys), bool)))


def nobody_waits_for_sets(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(redistribute, "unknown", lambda before, _: np.zeros(len(before), bool))


def rows_before_states(patch: pytest.MonkeyPatch) -> None:
    order = {Acquire: 1, RowsMessage: 0}
    patch.setattr(rounds, "_rank", lambda arrived: order.get(type(arrived.message), 2))


def words_before_rows(patch: pytest.MonkeyPatch) -> None:
    order = {Acquire: 0, RowsMessage: 2}
    patch.setattr(rounds, "_rank", lambda arrived: order.get(type(arrived.message), 1))


# Played by hand.


@pytest.mark.parametrize("planted", [False, True])
def test_a_row_of_a_higher_version_passes_only_from_the_old_owner(
    monkeypatch: pytest.MonkeyPatch, planted: bool
) -> None:
    """Key 2 is with worker 0. Worker 2 is ahead and sends a row of it to worker 1, which is late."""
    assert told(collecting(2), rows(2))[1] == [sent(1, 1, 2)]
    if planted:
        newer_always_passes(monkeypatch)
    _, out = told(steady(1), from_(2, 1, 2))
    wrong = out == [passed(2)]  # past the state, which is with worker 0
    assert wrong if planted else out == [sent(0, 0, 2)]


@pytest.mark.parametrize("planted", [False, True])
def test_a_key_that_stays_passes_always(monkeypatch: pytest.MonkeyPatch, planted: bool) -> None:
    """Key 0 is with worker 0 before and after; worker 2 sends a row of it."""
    if planted:
        nothing_stays(monkeypatch)
    _, out = told(collecting(0), from_(2, 1, 0))
    wrong = out == [sent(0, 1, 0)]  # to itself
    assert wrong if planted else out == [passed(0)]


@pytest.mark.parametrize("planted", [False, True])
def test_a_row_of_an_older_version_was_not_given_back(monkeypatch: pytest.MonkeyPatch, planted: bool) -> None:
    """Worker 0 sent a row of key 2 in the migration before; it was under way until now. The state is still with worker 0."""
    if planted:
        old_owner_always_gave_back(monkeypatch)
    _, out = told(collecting(1), from_(0, 0, 2))
    wrong = out == [passed(2)]
    assert wrong if planted else out == [sent(0, 1, 2)]


@pytest.mark.parametrize("planted", [False, True])
def test_the_first_state_of_a_key_counts(monkeypatch: pytest.MonkeyPatch, planted: bool) -> None:
    """Senders 0 and 2 both forward the state of key 2 to worker 1, and a row was processed between."""
    if planted:
        repeats_are_taken(monkeypatch)
    acquire = Acquire(version=1, owner=0, keys=h(2), state="S")
    _, out = told(sender(1), Received(sender=0, message=acquire), from_(0, 1, 2), Received(sender=2, message=acquire))
    wrong = out[2:] == [("Take", {"keys": [2], "state": "S"})]  # the row is forgotten
    assert wrong if planted else out == [("Take", {"keys": [2], "state": "S"}), passed(2)]


@pytest.mark.parametrize("planted", [False, True])
def test_rows_wait_until_the_sets_arrive(monkeypatch: pytest.MonkeyPatch, planted: bool) -> None:
    """Key 3 is new. As the seed has it, its row goes to worker 0 after SHUTDOWN or by F': either way it is in neither set."""
    if planted:
        nobody_waits_for_sets(monkeypatch)
    worker, out = told(sender(2), rows(2))
    wrong = out == [sent(1, 1, 2)]  # the new owner has no state of key 2, and worker 0 has
    assert wrong if planted else out == []
    if not planted:
        _, out = told(worker, Received(sender=0, message=KeySetsMessage(version=1, whitelist=h(2), hold=h())))
        assert out == [sent(0, 1, 2)]


@pytest.mark.parametrize("planted", [False, True])
def test_states_come_before_the_rows_of_the_same_round(monkeypatch: pytest.MonkeyPatch, planted: bool) -> None:
    """Worker 0 sends a row that it held and its state in one round; a parcel has no order of its own."""
    if planted:
        rows_before_states(monkeypatch)
    acquire = Received(sender=0, message=Acquire(version=1, owner=0, keys=h(2), state="S"))
    _, out = told(collecting(1), *rounds.in_order([from_(0, 1, 2), acquire]))
    taken = ("Take", {"keys": [2], "state": "S"})
    assert out == ([passed(2), taken] if planted else [taken, passed(2)])


@pytest.mark.parametrize("planted", [False, True])
def test_words_come_after_the_rows_of_the_same_round(monkeypatch: pytest.MonkeyPatch, planted: bool) -> None:
    """FINAL says that no more rows come: the last of them may be in the same round."""
    if planted:
        words_before_rows(monkeypatch)
    start = redistribute.RedistributeDistributor(worker=2, old=OLD)
    shutdowns = [Received(sender=w, message=ShutdownMessage(version=1, layout=NEW)) for w in (0, 1)]
    worker, _ = told(start, BeginMessage(layout=NEW, pace=1), *shutdowns, AddKeys(keys=h(7)), Interrogated())
    final = [Received(sender=w, message=FinalMessage(version=1, keys=h(7))) for w in (0, 1)]
    _, out = told(worker, *rounds.in_order([*final, from_(0, 1, 7)]))
    collect = ("Collect", {"keys": [7]})
    assert out == ([collect, passed(7)] if planted else [passed(7), collect])


# Found by the simulator.


def first_seed(run: Callable[[int], object]) -> int | None:
    """The first seed that shows something broken."""
    for seed in range(SEEDS):
        try:
            run(seed)
        except (Broken, InternalError, KeyError):
            return seed
    return None


def interleavings(strategy: str) -> Callable[[int], object]:
    return lambda seed: interleaved(strategy, seed, initial(1, shards=16), [2, 3, 1, 4, 2], pace=1 + seed % 5)


def steps(strategy: str) -> Callable[[int], object]:
    def run(seed: int) -> None:
        world = Lockstep(strategy, seed, initial(2))
        for new in walk(world.layout, [3, 2])[1:]:
            world.rescale(new, budget=3)

    return run


def no_rule_one(patch: pytest.MonkeyPatch) -> None:
    """Keys that come during the interrogation are not written down."""
    plain = icadd.IcaddDistributor._rows

    def rows_(self: Any, *arguments: Any) -> Any:
        here, out = plain(self, *arguments)
        return replace(here, whitelist=self.whitelist), out

    patch.setattr(icadd.IcaddDistributor, "_rows", rows_)


def held_rows_are_dropped(patch: pytest.MonkeyPatch) -> None:
    for module in (icadd, redistribute):
        plain = module.routed

        def routed(*arguments: Any, plain: Any = plain) -> Any:
            out, stored = plain(*arguments)
            return out, type(stored)()

        patch.setattr(module, "routed", routed)


def done_of_one_is_enough(patch: pytest.MonkeyPatch) -> None:
    plain = icadd.IcaddDistributor._done

    def done(self: Any, version: int, worker: int) -> Any:
        here, out = plain(
            replace(self, finished_version=version, finished=frozenset(self.old.workers)), version, worker
        )
        return here, out

    patch.setattr(icadd.IcaddDistributor, "_done", done)


def final_of_one_is_enough(patch: pytest.MonkeyPatch) -> None:
    plain = redistribute.RedistributeDistributor._final

    def final(self: Any, sender: int, version: int, keys: Any) -> Any:
        if self.giving is not None and self.new is not None:
            all_but = frozenset({*self.old.workers, *self.new.workers}) - {sender}
            self = replace(self, giving=replace(self.giving, final=all_but))
        return plain(self, sender, version, keys)

    patch.setattr(redistribute.RedistributeDistributor, "_final", final)


def shutdown_of_one_is_enough(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(redistribute.RedistributeDistributor, "_senders", lambda self, _: frozenset({self.worker}))


PLANTED = [
    ("icadd", interleavings, newer_always_passes),
    ("icadd", interleavings, old_owner_always_gave_back),
    ("icadd", interleavings, nothing_stays),
    ("icadd", interleavings, repeats_are_taken),
    ("icadd", interleavings, no_rule_one),
    ("icadd", interleavings, held_rows_are_dropped),
    ("icadd", interleavings, done_of_one_is_enough),
    ("redistribute", interleavings, repeats_are_taken),
    ("redistribute", interleavings, nobody_waits_for_sets),
    ("redistribute", interleavings, held_rows_are_dropped),
    ("redistribute", interleavings, final_of_one_is_enough),
    ("redistribute", interleavings, shutdown_of_one_is_enough),
    ("icadd", steps, no_rule_one),
    ("icadd", steps, nothing_stays),
    ("icadd", steps, rows_before_states),
    ("redistribute", steps, repeats_are_taken),
    ("redistribute", steps, nobody_waits_for_sets),
]


@pytest.mark.parametrize(("strategy", "world", "plant"), PLANTED)
def test_the_simulator_finds_it(
    monkeypatch: pytest.MonkeyPatch, strategy: str, world: Callable[[str], Callable[[int], object]], plant: Plant
) -> None:
    plant(monkeypatch)
    assert first_seed(world(strategy)) is not None


def test_without_a_bug_nothing_is_found() -> None:
    for strategy in ("icadd", "redistribute"):
        assert first_seed(steps(strategy)) is None


def test_a_repeated_redistribute_of_old_times_is_ignored() -> None:
    """A sender that is done ignores what comes late."""
    done = replace(sender(2), new=None, old=NEW)
    assert (
        told(done, Received(sender=0, message=RedistributeMessage(version=1, keys=h(2), state="S", following=h())))[1]
        == []
    )
