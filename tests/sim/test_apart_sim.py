"""Seeds of the simulation on several hosts with standbys (`tests.sim.apart`), and a planted bug that they find."""

from __future__ import annotations

from collections import Counter

import pytest

from dbsp.storage import standby
from tests.pace import rotating
from tests.sim.__main__ import with_hosts_apart
from tests.sim.apart import ApartSimulation
from tests.sim.late_tasks import APART_KINDS
from tests.sim.seeds import run_seed
from tests.sim.simulation import first_failure

pytestmark = pytest.mark.timeout(900)

TURNS = 80


@pytest.mark.parametrize("seed", rotating(range(300, 312), 6))
def test_late_tasks_of_hosts_apart_change_nothing(seed: int) -> None:
    run_seed(seed, TURNS, with_hosts_apart, " --apart")


def test_a_standby_that_does_not_follow_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    follow = standby.Standby.follow

    def once(self: standby.Standby, *arguments: object) -> bool:
        return self.exists or follow(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(standby.Standby, "follow", once)
    assert first_failure(range(303, 306), TURNS, with_hosts_apart) is not None


@pytest.mark.soak
def test_every_kind_of_task_runs_late() -> None:
    ran, lost = Counter[str](), 0
    for seed in range(320, 380):
        found = run_seed(seed, TURNS, with_hosts_apart, " --apart")
        assert isinstance(found, ApartSimulation)
        ran += found.late.counts
        lost += found.fired.counts["lost-disk"]
        if lost and all(ran[kind] for kind in APART_KINDS):
            return
    raise AssertionError(f"not met: {[kind for kind in APART_KINDS if not ran[kind]]}; lost disks: {lost}")
