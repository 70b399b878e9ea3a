"""What chosen seeds of the simulation meet: every event in every state it can come in, and every kind of fault.

`COVERING` meets in a few seconds what 300 seeds in a row meet in a minute, and more. The choice goes stale as the coordinator
changes; further seeds then run, up to `MORE`, until the tests' bounds hold. `python -m tests.sim --covering 700` chooses anew.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.pace import few
from tests.sim.coverage import Coverage, Pair, reachable
from tests.sim.faults import KINDS
from tests.sim.seeds import run_seed
from tests.sim.table import answered
from tools.state_diagrams import arrows

pytestmark = pytest.mark.timeout(900)

COVERING = (
    100631, 100165, 100308, 100070, 100399, 100698, 100049, 100156, 100672, 100478, 100657, 100271, 100574, 100593, 100159,
    100654, 100677, 100096, 100477, 100012, 100154, 100629, 100415, 100473, 100502, 100410, 100524, 100025, 100338, 100454,
    100443, 100259, 100395, 100226, 100284, 100468, 100659, 100167, 100303, 100351, 100531, 100568, 100538, 100354, 100409,
    100172, 100074,
)  # fmt: skip
MORE = range(100_000, 100_300)
TURNS = 250
FIRED_MIN = 10
SHARE_MET = 0.95
"""The part of all pairs that the fast tier meets; those that answer a command it meets all, the long runs meet every pair."""
counts = pytest.mark.skipif(few(), reason="it counts what many seeds meet: `make test` runs them")


@pytest.fixture(scope="module")
def met() -> tuple[Coverage, Counter[str]]:
    """Run the covering seeds, and more of them while a bound does not hold; return what they met."""
    coverage, fired = Coverage(), Counter[str]()
    wanted = reachable(answered())
    for number, seed in enumerate((*COVERING, *MORE)):
        if number >= len(COVERING) and is_enough(wanted - set(coverage.pairs), len(wanted)) and not rare(fired):
            break
        simulation = run_seed(seed, TURNS)
        coverage.add(simulation.coverage)
        fired += simulation.fired.counts
    return coverage, fired


def is_enough(missing: set[Pair], wanted: int) -> bool:
    """Return whether the pairs that were not met are few, and all of them hang on a request or on news of a copy."""
    requests = ("Asked", "Failed", "CopyEnded", "WarmEnded")
    rests = all(any(word in event for word in requests) for _, event in missing)
    return rests and len(missing) <= (1 - SHARE_MET) * wanted


def rare(fired: Counter[str]) -> set[str]:
    """Return the kinds of faults that struck fewer than `FIRED_MIN` times."""
    return {kind for kind in KINDS if fired[kind] < FIRED_MIN}


@counts
def test_what_can_happen_is_met(met: tuple[Coverage, Counter[str]]) -> None:
    coverage, _ = met
    wanted = reachable(answered())
    missing = wanted - set(coverage.pairs)
    report = coverage.report(wanted)
    print(report)
    assert is_enough(missing, len(wanted)), report
    states, events = ({pair[at] for pair in answered()} for at in (0, 1))
    found = {(state, event) for state, event in coverage.pairs if state in states and event in events}
    assert not found - answered(), "the table has what happens; warm-ups have a table of their own"
    assert {state.partition(".")[0] for state, _ in coverage.pairs} >= {"WarmingUp", "Cancelling"}


@counts
def test_every_transition_that_is_met_is_drawn(met: tuple[Coverage, Counter[str]]) -> None:
    """docs/states.md has it, which `test_states` compares with all that the tool explores; a state may lead to itself."""
    coverage, _ = met
    found = {(before.partition(".")[0], after.partition(".")[0]) for before, after in coverage.transitions}
    others = {(before, after) for before, after in found if before != after}
    assert len(others) > 30
    assert others - arrows() == set()


@counts
def test_every_kind_of_fault_strikes(met: tuple[Coverage, Counter[str]]) -> None:
    _, fired = met
    assert not rare(fired), fired


@pytest.mark.soak
def test_every_pair_that_can_happen_is_met() -> None:
    coverage = Coverage()
    wanted = reachable(answered())
    for seed in range(200_000, 203_000):
        coverage.add(run_seed(seed, TURNS).coverage)
        if wanted <= set(coverage.pairs):
            return
    raise AssertionError(coverage.report(wanted))
