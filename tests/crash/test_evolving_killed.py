"""A change of the circuit that is killed at every durable point: the old circuit goes on, or the new one; nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from dbsp.coordinator.build import build
from dbsp.coordinator.doctor import diagnose
from dbsp.coordinator.service import Service
from dbsp.errors import CircuitError
from tests.coordinator.copies import prints
from tests.coordinator.shop import CIRCUIT
from tests.coordinator.test_evolving import CHANGED, EXPECTED, MORE, changed, content, folded, pushed, ran, write
from tests.crash.coordinator_child import Child

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

OFTEN = "[checkpoint]\ninterval_s = 0.1"
BEFORE = [
    *(f"steps.claim:{when}:1" for when in ("before", "after")),
    "control.change:after:1",
    "site.database:after:1",
    "site.database:before:2",
    "site.database:after:2",
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


def killed(folder: Path, point: str) -> None:
    """A pipeline with some rows whose circuit is changed by a process that dies."""
    ran(write(folder, CIRCUIT))
    write(folder, CHANGED, more=OFTEN)
    child = Child(folder / "pipeline.toml", point, folder / "said.txt", evolve=True)
    try:
        assert child.wait(120) == -9, (folder / "said.txt").read_text()
    finally:
        child.kill()
    (folder / "data" / "coordinator.json").unlink(missing_ok=True)


def check(folder: Path, service: Service) -> None:
    """The new circuit's views, and each change of them once."""
    with service:
        pushed(service, MORE)
        for view, expected in EXPECTED.items():
            assert content(service, view) == expected
    for view, expected in EXPECTED.items():
        assert folded(service.config, view) == expected
    assert folded(service.config, "large") == {(2, "b", 600): 1}
    assert not diagnose(service.config).findings


@pytest.mark.parametrize("point", BEFORE)
def test_before_the_switch_the_change_is_made_again(tmp_path: Path, point: str) -> None:
    killed(tmp_path, point)
    check(tmp_path, changed(write(tmp_path, CHANGED)))


@pytest.mark.parametrize("point", BEFORE)
def test_before_the_switch_the_old_circuit_goes_on(tmp_path: Path, point: str) -> None:
    killed(tmp_path, point)
    with pytest.raises(CircuitError, match="not the one this state belongs to"):
        build(write(tmp_path, CHANGED))
    with Service(write(tmp_path, CIRCUIT)) as service:
        assert content(service, "per_customer") == {("a", 1, 10): 1, ("b", 2, 601): 1}
        assert content(service, "large") == {(2, "b", 600): 1}
    check(tmp_path, changed(write(tmp_path, CHANGED)))


@pytest.mark.parametrize("point", AFTER)
def test_behind_the_switch_the_new_circuit_goes_on(tmp_path: Path, point: str) -> None:
    killed(tmp_path, point)
    before = prints(tmp_path / "data" / "workers")
    with pytest.raises(CircuitError, match="not the one this state belongs to"):
        build(write(tmp_path, CIRCUIT))
    assert prints(tmp_path / "data" / "workers") == before
    check(tmp_path, Service(write(tmp_path, CHANGED)))
