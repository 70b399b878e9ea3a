"""Describing the next step's job beside this one: what fails or hangs there costs no more than the description. No JVM."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import MagicMock

import pytest

from dbsp.logs import StepRecord
from dbsp.runtime.spark import steps_ahead
from dbsp.runtime.spark.steps_ahead import StepsAhead


class Plan:
    """One without recursions."""

    loops = ()


@dataclass
class Job:
    """Reports which description it came of."""

    number: int
    _jrdd: object = None

    def collect(self) -> list[int]:
        return [self.number]


def _steps(monkeypatch: pytest.MonkeyPatch, described: Callable[[int], None]) -> StepsAhead:
    """Steps whose n-th description, from 1, begins with `described(n)`."""
    made: list[int] = []

    def step_rdd(*_: Any) -> Job:
        made.append(len(made) + 1)
        number = made[-1]
        described(number)
        return Job(number)

    monkeypatch.setattr(steps_ahead, "step_rdd", step_rdd)
    nothing: Any = None
    plan: Any = Plan()
    return StepsAhead(MagicMock(), nothing, 1, plan)


def _run(steps: StepsAhead, step: int) -> list[Any]:
    return steps.run(StepRecord(epoch=1, step=step, layout_version=1, ranges=(), clock_us=0, engine="test"), 1)


def test_every_description_is_used_once(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = _steps(monkeypatch, lambda _: None)
    assert [_run(steps, step) for step in range(3)] == [[1], [2], [3]]
    steps.close()


def test_what_fails_ahead_is_described_again_at_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def second_fails(number: int) -> None:
        if number == 2:
            raise OSError("the bridge hiccups")

    steps = _steps(monkeypatch, second_fails)
    assert [_run(steps, step) for step in range(3)] == [[1], [3], [4]]
    steps.close()


def test_what_fails_again_at_its_step_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_but_the_first_fail(number: int) -> None:
        if number > 1:
            raise OSError(f"description {number}")

    steps = _steps(monkeypatch, all_but_the_first_fail)
    assert _run(steps, 0) == [1]
    with pytest.raises(OSError, match="description 3"):
        _run(steps, 1)
    steps.close()


def test_closing_does_not_wait_for_a_description_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    steps = _steps(monkeypatch, lambda number: None if number == 1 else _wait(go_on))
    _run(steps, 0)
    closer = threading.Thread(target=steps.close, args=(0.2,), daemon=True)
    closer.start()
    closer.join(20)
    hangs = closer.is_alive()
    go_on.set()
    assert not hangs


def _wait(event: threading.Event) -> None:
    event.wait(60)


HANGS = """
import threading
from unittest.mock import MagicMock
from dbsp.runtime.spark import steps_ahead

class Plan:
    loops = ()

class Job:
    _jrdd = None

    def collect(self):
        return []

made = []

def step_rdd(*_):
    made.append(1)
    if len(made) > 1:
        threading.Event().wait()
    return Job()

steps_ahead.step_rdd, steps_ahead.as_property = step_rdd, lambda *_: ""
steps_ahead.StepsAhead(MagicMock(), None, 1, Plan()).run(MagicMock(step=0), 1)
print("the end")
"""


def test_a_description_that_hangs_does_not_hold_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", HANGS], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "the end\n"
