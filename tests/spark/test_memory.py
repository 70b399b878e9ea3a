"""Fault 8: a Python worker that gets no more memory in the midst of a step, from the system or from its own limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dbsp.errors import CapacityError, UnavailableError
from tests.spark import memory
from tests.spark.pipelines import MakeRuntime, Open, Pipeline, play
from tests.spark.wrapped_resources import HoardingResources

pytestmark = pytest.mark.spark

POINT = "segment 1 begins"


def golden(opened: Open, folder: Path) -> Pipeline:
    one = opened(folder)
    play(one, 3)
    return one


@pytest.mark.parametrize("by_group", [True, False], ids=["the kernel if it may", "from outside"])
def test_a_worker_that_is_ended_for_want_of_memory_changes_nothing(
    by_group: bool, on_spark: MakeRuntime, opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not by_group:
        monkeypatch.setattr(memory, "_cgroup", lambda: None)
    one = golden(opened, tmp_path / "a")
    with memory.limited(tmp_path / "limit"):
        resources = HoardingResources(None, tmp_path / "limit", POINT, worker=1, step=1, times=1)
        other = opened(tmp_path / "b", on_spark, wrap_resources=resources.around)
        play(other, 3)
    assert resources.struck() == 1
    assert other.outputs() == one.outputs()
    assert other.views() == one.views()


@pytest.mark.parametrize(
    ("ended", "kind", "says"),
    [(True, UnavailableError, "a Python worker died in every try"), (False, CapacityError, "ran out of memory")],
    ids=["ended by the system", "refused by its own limit"],
)
def test_a_step_that_never_gets_its_memory_fails_and_says_what_to_do(
    ended: bool, kind: type[Any], says: str, on_spark: MakeRuntime, opened: Open, tmp_path: Path
) -> None:
    one = golden(opened, tmp_path / "a")
    with memory.limited(tmp_path / "limit"):
        resources = HoardingResources(None, tmp_path / "limit", POINT, worker=1, step=1, times=4, ended=ended)
        other = opened(tmp_path / "b", on_spark, wrap_resources=resources.around)
        play(other, 1)
        with pytest.raises(kind, match=says) as caught:
            play(other, 1)
    assert "max_rows_per_step" in (caught.value.hint or "")
    assert len(str(caught.value)) < 1000
    assert resources.struck() == 4
    assert other.step == 1
    assert other.outputs() == {view: {0: parts[0]} for view, parts in one.outputs().items()}
    other.new_epoch()  # it has been given more memory: the logged step runs again
    play(other, 1)
    assert other.outputs() == one.outputs()
    assert other.views() == one.views()
