"""The runbook names every alarm, every state and every exit code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from dbsp.coordinator.decisions import states
from dbsp.coordinator.decisions.alarms import KINDS
from dbsp.coordinator.exits import __doc__ as exits

TEXT = (Path(__file__).parents[2] / "docs" / "runbook.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS)
def test_every_alarm_has_a_line(kind: str) -> None:
    assert f"| `{kind}` |" in TEXT


def test_every_state_has_a_line() -> None:
    names = [state.__name__ for state in get_args(states.State)]
    assert len(names) > 8
    assert [name for name in names if f"`{name}`" not in TEXT] == []


def test_every_exit_code_has_a_line() -> None:
    codes = set(re.findall(r"^    (\d+) ", exits or "", re.MULTILINE)) - {"1"}
    assert codes == set(re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE))
