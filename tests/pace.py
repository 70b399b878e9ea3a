"""Which generated examples a test draws, and how many of many like cases run: see `tests/conftest.py`."""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Container, Sequence
from pathlib import Path
from typing import TypeVar

PART = "DBSP_TEST_PART"
"""The variable with the number from which the part of the rotating cases is chosen."""

FEWEST = 8
"""`make quick` draws one of so many examples."""
FEWER = 4
"""`make test` draws one of so many examples: docs/testing.md says what the others found."""
SHARE = 4
"""`make quick` runs one of so many like cases."""
TIMES = 3
"""`make soak` draws so many for one."""

Case = TypeVar("Case")


def few() -> bool:
    """Whether a share of the examples is wanted, not all of them."""
    return _chosen() == "few"


def anew() -> bool:
    """Whether other examples are drawn at every run."""
    return _chosen() == "new"


def _chosen() -> str:
    chosen = os.environ.get("DBSP_TEST_EXAMPLES", "all")
    if chosen not in ("few", "all", "new"):
        raise ValueError(f"DBSP_TEST_EXAMPLES is few, all or new: got={chosen}")
    return chosen


def examples(number: int) -> int:
    """Return how many examples a test draws of the number it names: a share, two at least, or `TIMES` as many.

    Hypothesis begins with the simplest example, so that one alone would find little.
    """
    if anew():
        return number * TIMES
    return max(min(number, 2), number // FEWEST if few() else math.ceil(number / FEWER))


def turn() -> int:
    """Return the number from which the parts of rotating cases are chosen: of the commit, or as `DBSP_TEST_PART` says.

    The first process notes it for those that it starts, so that all of them choose alike.
    """
    if PART not in os.environ:
        git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
        try:
            commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):  # a copy without its history
            commit = "0"
        os.environ[PART] = str(int(commit.strip()[:8], 16))
    return int(os.environ[PART])


def start(parts: int) -> int:
    """Return the place of the first of every `parts` like cases that runs; 0 where all run."""
    return 0 if anew() else turn() % parts


def stride(parts: int) -> int:
    """Return how many places lie between two cases that run."""
    return 1 if anew() else parts


def rotating(cases: Sequence[Case], parts: int) -> Sequence[Case]:
    """Return one of so many parts of the cases: another one at another commit; `make soak` runs all of them."""
    return cases[start(parts) :: stride(parts)]


def in_turn(place: int | Container[int], parts: int) -> bool:
    """Return whether a test runs in this turn, of so many; it has one, or several of them. `make soak` runs all."""
    return anew() or turn() % parts in ((place,) if isinstance(place, int) else place)


def some(cases: Sequence[Case], parts: int = 1) -> Sequence[Case]:
    """Return the cases of a test that has many like ones: every fourth one in `make quick`, else one of so many parts."""
    return cases[::SHARE] if few() else rotating(cases, parts)
