"""What some hundred seeds of the simulation meet: every event in every state it can come in, and every kind of fault."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.pace import few
from tests.sim.coverage import Coverage, reachable
from tests.sim.faults import KINDS
from tests.sim.seeds import run_seed
from tests.sim.table import answered

pytestmark = pytest.mark.timeout(900)

COVERAGE_SEEDS = range(100_000, 100_300)
SHARE_MET = 0.95
"""The part of all pairs that the fast tier meets; those that answer a command it meets all, the long runs meet every pair."""
counts = pytest.mark.skipif(few(), reason="it counts what many seeds meet: `make test` runs them")


@pytest.fixture(scope="module")
def met() -> tuple[Coverage, Counter[str]]:
    """What some hundred seeds meet."""
    coverage, fired = Coverage(), Counter[str]()
    for seed in COVERAGE_SEEDS:
        simulation = run_seed(seed, 250)
        coverage.add(simulation.coverage)
        fired += simulation.fired.counts
    return coverage, fired


@counts
def test_what_can_happen_is_met(met: tuple[Coverage, Counter[str]]) -> None:
    coverage, _ = met
    wanted = reachable(answered())
    missing = wanted - set(coverage.pairs)
    report = coverage.report(wanted)
    print(report)
    requests = ("Asked", "Failed", "CopyEnded", "WarmEnded")
    assert not {(s, e) for s, e in missing if not any(word in e for word in requests)}, report
    assert len(missing) <= (1 - SHARE_MET) * len(wanted), report
    states, events = ({pair[at] for pair in answered()} for at in (0, 1))
    found = {(state, event) for state, event in coverage.pairs if state in states and event in events}
    assert not found - answered(), "the table has what happens; warm-ups have a table of their own"
    assert {state.partition(".")[0] for state, _ in coverage.pairs} >= {"WarmingUp", "Cancelling"}


@counts
def test_every_kind_of_fault_strikes(met: tuple[Coverage, Counter[str]]) -> None:
    _, fired = met
    assert not {kind for kind in KINDS if fired[kind] < 10}, fired


@pytest.mark.soak
def test_every_pair_that_can_happen_is_met() -> None:
    coverage = Coverage()
    wanted = reachable(answered())
    for seed in range(200_000, 203_000):
        coverage.add(run_seed(seed, 250).coverage)
        if wanted <= set(coverage.pairs):
            return
    raise AssertionError(coverage.report(wanted))
