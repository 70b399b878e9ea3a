"""Which generated examples a test draws, and how many of many like cases run: see `tests/conftest.py`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

SHARE = 4
"""`make quick` draws one of so many examples."""
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
    """The examples of a test: `number`, a share of it, two at least (Hypothesis begins with the simplest), or `TIMES` as many."""
    if few():
        return max(min(number, 2), number // SHARE)
    return number * TIMES if anew() else number


def some(cases: Sequence[Case]) -> Sequence[Case]:
    """The cases of a test that has many like ones: all, or every fourth one."""
    return cases[::SHARE] if few() else cases
