"""Planted bugs in what waits and what is told: each must turn a test of `tests/coordinator` or `tests/spark` red."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dbsp.coordinator.decisions import alarms, machine
from dbsp.coordinator.running import intake
from dbsp.coordinator.running.status import NewSteps
from dbsp.coordinator.running.watch import Watch
from dbsp.runtime.spark import diagnosis, failures
from tests.coordinator import test_machine_away, test_watch
from tests.planted.test_planted_bugs import Patch, Plant, generated, red
from tests.spark import test_diagnosis


def run(test: Callable[[], None]) -> Callable[[Path, int], None]:
    """A test without arguments."""
    return lambda _folder, _number: test()


def what_waits_is_read(patch: Patch) -> None:
    """A log that is shorter than it was is read as if it were the same."""
    patch.setattr(intake, "_hold_shorter", lambda *_: None)


def what_begins_late_begins_at_zero(patch: Patch) -> None:
    original = intake.readable
    patch.setattr(test_watch, "readable", lambda inputs, taken: (original(inputs, taken)[0], {}))


def what_is_away_is_a_failure(patch: Patch) -> None:
    original = machine._failed

    def failed(state: Any, event: Any) -> Any:
        return original(state, machine.replace(event, code="unavailable") if event.code == "away" else event)

    patch.setattr(machine, "_failed", failed)


def what_lasts_is_tried_again(patch: Patch) -> None:
    patch.setattr(machine, "lasting_story", lambda _: None)


def an_alarm_comes_late(patch: Patch) -> None:
    patch.setattr(alarms, "STEP_SLOW_S", 60.0)


def a_watch_that_waits_for_the_step(patch: Patch) -> None:
    """It shows what was known when the step began."""
    patch.setattr(Watch, "_look_at_inputs", lambda _: None)


def a_replay_counts(patch: Patch) -> None:
    patch.setattr(NewSteps, "takes", lambda _self, _step: True)


def a_host_is_not_asked(patch: Patch) -> None:
    patch.setattr(test_diagnosis, "unreachable", lambda _: set())


def an_error_of_ours_is_a_bug(patch: Patch) -> None:
    patch.setattr(failures, "_error_of", lambda _: None)


def versions_are_not_compared(patch: Patch) -> None:
    patch.setattr(diagnosis, "other_version", lambda _: None)


LOGS = generated(test_watch.test_steps_cover_every_log_from_its_floor_whoever_waits_when, test_watch.LOGS, 50)
PLANTS = [
    Plant(
        rule="a log that ends below what was processed waits",
        breaks=what_waits_is_read,
        detector=run(test_watch.test_a_log_that_ends_below_what_was_processed_waits_by_name),
    ),
    Plant(rule="a place begins where its log begins", breaks=what_begins_late_begins_at_zero, detector=LOGS, seeds=3),
    Plant(
        rule="what is away is no failure of the pipeline",
        breaks=what_is_away_is_a_failure,
        detector=run(test_machine_away.test_a_system_of_others_that_is_away_is_waited_for_without_a_bound),
    ),
    Plant(
        rule="what waiting does not cure is not tried again and again",
        breaks=what_lasts_is_tried_again,
        detector=run(
            lambda: test_machine_away.test_an_error_that_waiting_does_not_cure_ends_the_service_when_it_comes_back(
                "data"
            )
        ),
    ),
    Plant(
        rule="an alarm comes within 15 s",
        breaks=an_alarm_comes_late,
        detector=run(test_watch.test_an_alarm_comes_within_fifteen_seconds),
    ),
    Plant(
        rule="what waits is told by the inputs",
        breaks=a_watch_that_waits_for_the_step,
        detector=run(test_watch.test_a_hanging_step_shows_while_it_hangs),
    ),
    Plant(
        rule="a row counts once",
        breaks=a_replay_counts,
        detector=run(test_watch.test_a_step_that_is_run_again_counts_once),
    ),
    Plant(
        rule="a host that takes no connection is gone",
        breaks=a_host_is_not_asked,
        detector=run(test_diagnosis.test_who_takes_no_connection_is_found),
    ),
    Plant(
        rule="what a task raises on purpose comes back as itself",
        breaks=an_error_of_ours_is_a_bug,
        detector=run(test_diagnosis.test_what_a_task_raises_on_purpose_comes_back_as_itself),
    ),
    Plant(
        rule="a host with another version is named",
        breaks=versions_are_not_compared,
        detector=run(test_diagnosis.test_a_host_with_another_version_is_named),
    ),
]
CASES = [pytest.param(each, id=each.rule) for each in PLANTS]


@pytest.mark.parametrize("plant", CASES)
def test_a_broken_rule_is_noticed(plant: Plant, tmp_path: Path) -> None:
    with Patch.context() as patch:
        plant.breaks(patch)
        found = red(plant, tmp_path / "broken")
    assert found is not None, f"nothing noticed that this is broken: {plant.rule}"
    assert red(plant, tmp_path / "whole") is None, "the detector is red without a bug"
