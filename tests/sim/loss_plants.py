"""Rules about lost hosts taken out, one at a time, for `plants`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from dbsp.coordinator.decisions import events
from dbsp.coordinator.decisions.lost_hosts import with_hosts
from dbsp.coordinator.running import command_runner, control, fencing
from dbsp.coordinator.running.control import Ledger
from dbsp.coordinator.running.far_standbys import FarStandbys, Place
from dbsp.layout import Layout
from dbsp.runtime.runtime import Runtime
from dbsp.store import VersionInfo
from tests.coordinator.fake_standbys import FakeStandbys

Patch = pytest.MonkeyPatch


def make_published_workers_anew(patch: Patch) -> None:
    """Workers of a published layout count as workers that may have no database yet, until they are opened."""
    publish = control.publish

    def published(ledger: Ledger, version: int, *, ends_rescale: bool) -> Ledger:
        return replace(publish(ledger, version, ends_rescale=ends_rescale), forming=ledger.forming)

    patch.setattr(command_runner.ledgers, "publish", published)


def leave_strays(patch: Patch) -> None:
    """What workers left on a lost host stays there."""
    patch.setattr(fencing.relocations, "strays", lambda _ledger: ())


def move_in_the_first_layout_alone(patch: Patch) -> None:
    """A moved worker keeps its lost host in later layouts."""

    def moved(layout: Layout, places: Mapping[int, str]) -> Layout:
        return layout if layout.version else with_hosts(layout, places)

    patch.setattr(fencing.relocations, "with_hosts", moved)


def promote_a_standby_that_lags(patch: Patch) -> None:
    """Any standby takes over, whatever version it has."""

    def holding(
        _self: FarStandbys, _runtime: Runtime, ledger: Ledger, workers: Collection[int], away: Collection[str]
    ) -> tuple[Place, ...]:
        places = ((place.worker, place.host) for place in ledger.standbys)
        return tuple((worker, host) for worker, host in places if worker in workers and host not in away)

    def takes_over(self: FakeStandbys, epoch: int, worker: int, host: str, since: int, wanted: VersionInfo) -> bool:
        found = self._versions((worker, host))
        return bool(found) and take_over(self, epoch, worker, host, since, found[-1] if wanted not in found else wanted)

    take_over = FakeStandbys._takes_over
    patch.setattr(FarStandbys, "_holding", holding)
    patch.setattr(FakeStandbys, "_takes_over", takes_over)


def ask_only_what_is_silent(patch: Patch) -> None:
    """A disk that is lost while its host answers is an error as any other."""
    patch.setattr(fencing.Fencing, "_lost_disks", lambda *_: None)


def forget_what_is_left_out(patch: Patch) -> None:
    """A recovery goes on with the requested rescale, and places workers on every host on offer."""
    standing = control.standing

    def without(ledger: Ledger) -> events.LedgerState:
        return replace(standing(ledger), rescale_excluded=None)

    patch.setattr(command_runner.ledgers, "standing", without)


RULES = (
    ("a rescale leaves out the same hosts after a recovery", forget_what_is_left_out, "9", 200),
    ("the worker of a lost disk goes on where its state is", ask_only_what_is_silent, "9", 60),
    ("a standby that lags is not promoted", promote_a_standby_that_lags, "9", 200),
    ("a worker of a published layout is never made anew", make_published_workers_anew, "9", 800),
    ("what a moved worker left is deleted", leave_strays, "9", 200),
    ("a worker moves in every layout", move_in_the_first_layout_alone, "9", 200),
)
