"""A change of the circuit that is killed at every durable point: the old circuit goes on, or the new one; nothing is lost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dbsp.coordinator.build import build
from dbsp.coordinator.checks.doctor import diagnose
from dbsp.coordinator.service import Service
from dbsp.errors import CircuitError
from tests.coordinator import test_edited_views as edits
from tests.coordinator import test_evolving_logs as logs
from tests.coordinator.copies import prints
from tests.coordinator.shop import CIRCUIT, ORDERS
from tests.coordinator.test_evolving import CHANGED, EXPECTED, MORE, changed, content, folded, pushed, ran, write
from tests.crash.coordinator_child import changed_by_who_dies
from tests.pace import rotating

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

OFTEN = "interval_s = 0.1"
BEFORE = [
    *(f"steps.claim:{when}:1" for when in ("before", "after")),
    "control.change:after:1",
    "resources.database:after:1",
    "resources.database:before:2",
    "resources.database:after:2",
    "control.change:before:2",
]
"""The ledger does not have the new circuit: no worker holds it, one does, both do."""
AFTER = [
    "control.change:after:2",
    *(f"runtime.fence:{when}:1" for when in ("before", "after")),
    *(f"runtime.open:{when}:1" for when in ("before", "after")),
    *(f"steps.append:{when}:1" for when in ("before", "after")),
    *(f"runtime.run_step:{when}:1" for when in ("before", "after")),
    *(f"runtime.pin:{when}:1" for when in ("before", "after")),
    "runtime.copy:after:1",
    *(f"control.change:after:{number}" for number in (3, 4, 5, 6)),
]


@dataclass(frozen=True, kw_only=True)
class Story:
    """A pipeline before and after the change, what came to it, and what its views are then."""

    old: str
    new: str
    first: tuple[pa.Table, str]
    later: tuple[pa.Table, str]
    expected: dict[str, dict[tuple[Any, ...], int]]
    keep: str = ""
    edited: tuple[str, ...] = ()
    output: str = ""

    def sections(self, checkpoint: str = "") -> str:
        return f"[checkpoint]\n{checkpoint}\n{self.keep}\n{self.output}"


STATE = Story(
    old=CIRCUIT, new=CHANGED, first=(ORDERS, "orders"), later=(MORE, "orders"),
    expected=EXPECTED | {"large": {(2, "b", 600): 1}},
)  # fmt: skip
LOG = Story(
    old=logs.BEFORE, new=logs.AFTER, first=(logs.VISITS, "visits"), later=(logs.LATER, "visits"), expected=logs.LAST,
    keep="retention_s = 3600",
)  # fmt: skip
EDITED = Story(
    old=CIRCUIT, new=edits.EDITED, first=(ORDERS, "orders"), later=(MORE, "orders"), edited=("large",),
    expected={"per_customer": EXPECTED["per_customer"], "large": dict(edits.LATER)},
)  # fmt: skip
FILES = replace(EDITED, output=edits.FILES)
"""New views are filled from what state keeps, or from the rows in the input log; a view is edited under its name."""
STORIES = pytest.mark.parametrize("story", [STATE, LOG, EDITED, FILES], ids=["state", "log", "edited", "files"])


def killed(folder: Path, point: str, story: Story = STATE) -> None:
    """A pipeline with some rows whose circuit is changed by a process that dies."""
    ran(write(folder, story.old, more=story.sections()), *story.first)
    write(folder, story.new, more=story.sections(OFTEN))
    changed_by_who_dies(folder, point)


def check(service: Service, story: Story = STATE) -> None:
    """The new circuit's views, and each change of them once."""
    with service:
        pushed(service, *story.later)
        for view in service.built.plan.views:
            assert content(service, view.name) == story.expected[view.name]
        for view in () if story.output else story.edited:
            assert edits.told(service, view) == edits.told(service, view, 1) == story.expected[view]
    if story.output:
        assert {view: edits.from_files(service.config, view) for view in story.expected} == story.expected
        assert not diagnose(service.config).findings
        return
    others = story.expected.keys() - set(story.edited)
    assert {view: folded(service.config, view) for view in others} == {view: story.expected[view] for view in others}
    assert not diagnose(service.config).findings


@pytest.mark.parametrize("point", rotating(BEFORE, 3))
def test_before_the_switch_the_change_is_made_again(tmp_path: Path, point: str) -> None:
    killed(tmp_path, point)
    check(changed(write(tmp_path, CHANGED)))


@pytest.mark.parametrize("point", rotating(BEFORE, 3))
def test_before_the_switch_the_old_circuit_goes_on(tmp_path: Path, point: str) -> None:
    killed(tmp_path, point)
    with pytest.raises(CircuitError, match="not the one this state belongs to"):
        build(write(tmp_path, CHANGED))
    with Service(write(tmp_path, CIRCUIT)) as service:
        assert content(service, "per_customer") == {("a", 1, 10): 1, ("b", 2, 601): 1}
        assert content(service, "large") == {(2, "b", 600): 1}
    check(changed(write(tmp_path, CHANGED)))


@STORIES
@pytest.mark.parametrize("point", rotating(AFTER, 3))
def test_behind_the_switch_the_new_circuit_goes_on(tmp_path: Path, point: str, story: Story) -> None:
    killed(tmp_path, point, story)
    before = prints(tmp_path / "data" / "workers")
    with pytest.raises(CircuitError, match="not the one this state belongs to"):
        build(write(tmp_path, story.old, more=story.output))
    assert prints(tmp_path / "data" / "workers") == before
    check(Service(write(tmp_path, story.new, more=story.output)), story)
