"""Which version recovery goes back to (`dbsp.coordinator.decisions.recovery`), against a search over everything that is held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp.coordinator.decisions import recovery, states
from dbsp.coordinator.decisions.recovery import hosts_of
from dbsp.layout import Layout, initial
from dbsp.store import CheckpointId, VersionInfo

LAYOUTS = {n: replace(initial(n + 1, shards=8), version=n) for n in range(3)}
ID = CheckpointId(run="r", epoch=1, step=3, layout_version=1, fingerprint="f")
OTHER_ID = CheckpointId(run="r", epoch=2, step=3, layout_version=1, fingerprint="f")

ids = st.builds(
    CheckpointId,
    run=st.sampled_from(["r", "r", "r", "another"]),
    epoch=st.integers(1, 3),
    step=st.just(3),
    layout_version=st.integers(0, 3),
    fingerprint=st.sampled_from(["f", "f", "f", "another"]),
)
infos = st.lists(st.builds(VersionInfo, version=st.integers(0, 3), checkpoint=ids), max_size=4)
held_by_workers = st.dictionaries(st.integers(0, 3), infos, max_size=4)


def chosen(held: Mapping[int, Sequence[VersionInfo]]) -> recovery.Choice | None:
    return recovery.choose(held, LAYOUTS, run="r", fingerprint="f")


@given(held_by_workers)
def test_the_greatest_version_that_its_own_layout_holds_under_one_id(held: Mapping[int, list[VersionInfo]]) -> None:
    complete = {
        (info.version, info.checkpoint.epoch, info.checkpoint)
        for found in held.values()
        for info in found
        if (info.checkpoint.run, info.checkpoint.fingerprint) == ("r", "f")
        if info.checkpoint.layout_version in LAYOUTS
        if all(info in held.get(worker, []) for worker in LAYOUTS[info.checkpoint.layout_version].workers)
    }
    choice = chosen(held)
    assert (choice is None) == (not complete)
    if choice is not None:
        assert (choice.version, choice.checkpoint.epoch, choice.checkpoint) in complete
        assert (choice.version, choice.checkpoint.epoch) == max(each[:2] for each in complete)
        assert choice.layout == LAYOUTS[choice.checkpoint.layout_version]


def test_one_number_under_two_ids_is_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """No run of the simulator gets here: databases outside a layout are discarded before it runs. The rule holds without that."""
    held = {0: [VersionInfo(version=4, checkpoint=ID)], 1: [VersionInfo(version=4, checkpoint=OTHER_ID)]}
    assert chosen(held) is None

    def any_checkpoint_id(
        held: Mapping[int, Sequence[VersionInfo]], layout: Layout, version: int, checkpoint: CheckpointId
    ) -> bool:
        return all(any(info.version == version for info in held.get(worker, ())) for worker in layout.workers)

    monkeypatch.setattr(recovery, "_is_held", any_checkpoint_id)
    assert chosen(held) is not None


def test_a_worker_lives_where_the_newest_layout_that_has_it_says() -> None:
    first = initial(3, shards=2 * 2, hosts=[("a", 1.0), ("b", 1.0)])
    second = replace(first, version=1, workers=(0, 1), owners=(0, 1), hosts=("a", "b"), first_steps=(0, 0))
    third = replace(first, version=2, hosts=("a", "b", "c"))
    facts = states.Facts(
        run="r",
        fingerprint="f",
        layouts={2: third, 0: first, 1: second},
        layout=third,
        members=frozenset({0, 1, 2}),
        forming=frozenset(),
    )
    assert hosts_of(facts, (2, 0, 1)) == ("c", "a", "b")
    assert hosts_of(replace(facts, layouts={1: second, 0: first}), (0, 2)) == ("a", "a")
    assert hosts_of(replace(facts, layouts={0: initial(2)}), (0, 1)) == (), "nobody has named a host"
