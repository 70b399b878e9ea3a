"""A crash at every point of one scripted life, and again while it recovers: start, steps, a checkpoint, rescales, a skip, a stop.

Without other faults, so that what is found is what the crash did. The long runs try all points, and pairs of points.
"""

from __future__ import annotations

import random

import pytest

from tests.coordinator import fakes
from tests.sim.simulation import Simulation, without_faults

pytestmark = pytest.mark.timeout(900)

LIFE = {"seed": 2, "rescale": 0.1, "ask": 0.12, "copy_speed": 0.5}
TURNS = 70


def life(*strikes: int) -> Simulation:
    """The life, with crashes at these points."""
    simulation = without_faults(**LIFE, strikes=frozenset(strikes))
    try:
        simulation.live(TURNS)
    except (Exception, fakes.ViolationError) as error:
        raise AssertionError(f"strikes={strikes}: {error!r}; last: {simulation.trace[-30:]}") from error
    return simulation


def points() -> list[str]:
    """What the life meets, in order."""
    simulation = life()
    wanted = (
        "before redistribute", "pin ", "before copy", "before decide", "discard", "create", "fence", "open ",
        "hold merges", "before warm",
    )  # fmt: skip
    names = [name for name in simulation.trace if not name[0].isupper()]
    assert not {each for each in wanted if not any(name.startswith(each) for name in names)}, (
        "the life meets everything"
    )
    return names


def chosen(names: list[str], few: int) -> list[int]:
    """The first `few` places of every kind of point."""
    seen: dict[str, int] = {}
    found = []
    for number, name in enumerate(names):
        kind = " ".join(word for word in name.split() if not word.isdigit())
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= few:
            found.append(number)
    return found


def test_a_crash_at_every_point() -> None:
    """At the first places of every kind of point."""
    for number in chosen(points(), 6):
        assert life(number).fired.counts["crash"] == 1


def test_two_crashes() -> None:
    """The second one while it recovers from the first."""
    generator = random.Random(1)
    for number in chosen(points(), 2):
        assert life(number, number + generator.randint(1, 14)).fired.counts["crash"] == 2


@pytest.mark.soak
def test_crashes_at_all_points_and_pairs() -> None:
    for number in range(len(points())):
        life(number)
        for later in range(1, 14):
            life(number, number + later)
