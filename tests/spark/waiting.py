"""Waiting for something outside, with a limit."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(there: Callable[[], bool], what: str, limit_s: float = 60) -> None:
    """Look every 50 ms until it is there."""
    end = time.monotonic() + limit_s
    while not there():
        if time.monotonic() > end:
            raise AssertionError(f"waited {limit_s:g} s in vain: {what}")
        time.sleep(0.05)
