"""The ledger: both background workers pass the same tests; what is on disk is checked."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dbsp.coordinator.running import control as ledgers
from dbsp.coordinator.running.control import (
    Control,
    MemoryControl,
    Saved,
    new_ledger,
)
from dbsp.coordinator.running.ledger_file import LmdbControl, decode_ledger, encode_ledger
from dbsp.distribute.migration_plan import MigrationPlan
from dbsp.errors import DataError, FencedError
from dbsp.layout import homes, initial, rescaled
from dbsp.steps.timing import Timing
from dbsp.store import CheckpointId

LAYOUT = initial(2)
FIRST = new_ledger(fingerprint="f", nodes=[("label", "token")], layout=LAYOUT, run="r")


def saved(version: int, step: int = 1, layout: int = 0) -> Saved:
    checkpoint = CheckpointId(run="r", epoch=1, step=step, layout_version=layout, fingerprint="f")
    positions = {("t", 0): 10 * step, ("t", 1): step}
    return Saved(
        version=version,
        checkpoint=checkpoint,
        positions=positions,
        timing=Timing(clock_us=step, used={1: 2}, agreed={1: 3}, due_us=4),
        wall_us=2,
        published=False,
    )


@pytest.fixture(params=["memory", "lmdb"])
def control(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Control]:
    made: Control = MemoryControl() if request.param == "memory" else LmdbControl(tmp_path)
    yield made
    made.close()


def test_the_first_ledger_stays(control: Control) -> None:
    assert control.load() is None
    assert control.begin(FIRST) == FIRST
    assert control.begin(replace(FIRST, run="other")) == FIRST
    assert control.load() == FIRST


def test_changes_need_a_ledger(control: Control) -> None:
    with pytest.raises(DataError, match="never started"):
        control.change(None, lambda ledger: ledger)


def test_an_older_epoch_is_refused(control: Control) -> None:
    control.begin(FIRST)
    control.change(3, lambda ledger: ledgers.raise_epoch(ledger, 3))
    control.change(3, lambda ledger: ledgers.request_rescale(ledger, 5))
    with pytest.raises(FencedError):
        control.change(2, lambda ledger: ledgers.request_rescale(ledger, 6))
    found = control.load()
    assert found is not None
    assert (found.rescale, found.epoch) == (5, 3)


def test_published_versions_and_the_floor(control: Control) -> None:
    control.begin(FIRST)
    for version in (1, 2, 3):
        control.change(None, lambda ledger, version=version: ledgers.intend(ledger, saved(version, version)))
        control.change(None, lambda ledger, version=version: ledgers.publish(ledger, version, ends_rescale=False))
    found = control.change(None, lambda ledger: ledgers.intend(ledger, saved(4, 4)))
    assert found.published == 3
    floor = found.floor()
    assert floor is not None
    assert floor.version == 2
    assert found.positions(saved(4, 4).checkpoint) == ({("t", 0): 40, ("t", 1): 4}, saved(4, 4).timing)
    after = control.change(None, lambda ledger: ledgers.opened(ledger, 4, LAYOUT))
    assert (after.published, set(after.saved)) == (4, {4})
    with pytest.raises(DataError, match="does not know"):
        after.positions(saved(3, 3).checkpoint)


def test_everything_comes_back(tmp_path: Path) -> None:
    control = LmdbControl(tmp_path)
    control.begin(FIRST)
    layout = rescaled(LAYOUT, 3, step=7)
    control.change(None, lambda ledger: ledgers.log_layout(ledger, layout, [0, 1, 2], [2]))
    control.change(None, lambda ledger: ledgers.intend(ledger, saved(1)))
    rows = {"t": (5, 0), "u": (1,)}
    kept = control.change(None, lambda ledger: ledgers.request_rescale(ledger, 3, rows=rows))
    assert kept.rescale_rows == rows
    control.close()
    again = LmdbControl(tmp_path, create=False)
    assert again.load() == kept
    again.close()


def test_a_rescale_that_was_reached_is_forgotten() -> None:
    requested_rescale = replace(FIRST, rescale=2)
    assert ledgers.opened(requested_rescale, 0, LAYOUT).rescale is None
    assert ledgers.opened(replace(FIRST, rescale=3), 0, LAYOUT).rescale == 3


def test_workers_that_were_opened_have_databases() -> None:
    doubted = ledgers.settle_members(FIRST, members=(0, 1, 2), forming=(1, 2))
    after = ledgers.opened(doubted, 0, LAYOUT)
    assert (after.members, after.forming) == ({0, 1, 2}, {2})
    assert ledgers.settle_members(after, (0, 1, 2), (2,)) == after, "nothing is left to be written"


def test_a_missing_or_empty_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="control"):
        LmdbControl(tmp_path, create=False)
    LmdbControl(tmp_path).close()
    (tmp_path / "control" / "data.mdb").write_bytes(b"")
    with pytest.raises(DataError, match=r"data\.mdb"):
        LmdbControl(tmp_path)


@pytest.mark.parametrize("seed", range(8))
def test_the_ledger_keeps_what_is_named_and_does_not_grow(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random rescales, cold and by key, with checkpoints between: as the whole history says, in a bounded number of layouts."""
    draw, most = random.Random(seed), 0
    ledger = whole = FIRST
    for number in range(1, 60):
        old = whole.layouts[max(whole.layouts)]
        new = rescaled(old, draw.randint(1, 5), step=number, host=draw.choice("ab"))
        migration_plan = None
        if draw.random() < 0.5:
            migration_plan = MigrationPlan.towards(new, old, strategy="icadd", first=number, budget=1)
        layout = new if migration_plan is None else migration_plan.layout
        members = {*old.workers, *new.workers}
        logged = [ledgers.log_layout(each, layout, members, (), migration_plan) for each in (ledger, whole)]
        used = draw.choice((layout.version, max(logged[1].layouts)))
        changed = []
        for each, forgets in zip(logged, (True, False), strict=True):
            with monkeypatch.context() as patch:
                if not forgets:
                    patch.setattr(ledgers, "forget_layouts", lambda ledger: ledger)
                intended = ledgers.intend(ledgers.raise_epoch(each, number), saved(number, number, used))
                changed.append(ledgers.publish(intended, number, ends_rescale=False))
        ledger, whole = changed
        assert decode_ledger(encode_ledger(ledger)) == ledger
        wanted = homes(whole.layouts.values())
        assert {worker: home for worker, home in homes(ledger.layouts.values()).items() if worker in members} == {
            worker: home for worker, home in wanted.items() if worker in members
        }
        least = min(each.checkpoint.layout_version for each in ledger.saved.values())
        assert {number for number in whole.layouts if number >= least} <= set(ledger.layouts)
        assert {
            number: whole.migration_plans[number] for number in whole.migration_plans if number >= least
        } == ledger.migration_plans
        assert max(ledger.layouts) == max(whole.layouts)
        most = max(most, len(ledger.layouts))
    assert most < 16
    assert len(whole.layouts) > 60


def test_a_new_pipeline_keeps_the_layout_of_its_empty_version() -> None:
    ledger = FIRST
    for number in range(1, 50):
        ledger = ledgers.log_layout(ledger, rescaled(ledger.layouts[number - 1], 2 + number % 2, step=0), (0, 1, 2), ())
    ledger = ledgers.raise_epoch(ledger, 2)
    assert {0, 49} <= set(ledger.layouts)
    assert len(ledger.layouts) < 4
    ledger = ledgers.publish(ledgers.intend(ledger, saved(1, 1, 49)), 1, ends_rescale=False)
    assert 0 in ledger.layouts
