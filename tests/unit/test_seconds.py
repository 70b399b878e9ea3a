"""The plug-in that measures test files: order, budgets, and which figures are kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import seconds
from tests.seconds import Measuring, Seconds


class Drawn:
    """As much of a test as the plug-in looks at."""

    def __init__(self, nodeid: str, *fixtures: str, marks: tuple[str, ...] = ()) -> None:
        self.nodeid = nodeid
        self.fixturenames = fixtures
        self._marks = marks

    def iter_markers(self) -> list[Any]:
        return [getattr(pytest.mark, name).mark for name in self._marks]


def order(tests: list[Drawn], walls: dict[str, float]) -> list[str]:
    figures = {file: Seconds(wall, wall) for file, wall in walls.items()}
    return [test.nodeid for test in seconds.in_order(tests, figures)]  # type: ignore[arg-type]


def test_long_files_run_first_and_new_files_before_short_ones() -> None:
    tests = [Drawn("a.py::1"), Drawn("b.py::1"), Drawn("a.py::2"), Drawn("c.py::2"), Drawn("c.py::1")]
    assert order(tests, {"a.py": 1.0, "b.py": 99.0}) == ["b.py::1", "c.py::2", "c.py::1", "a.py::1", "a.py::2"]


def test_files_that_share_a_spark_stand_together() -> None:
    tests = [Drawn("a.py::1", "spark"), Drawn("b.py::1"), Drawn("c.py::1", "spark"), Drawn("d.py::1")]
    assert order(tests, {"a.py": 2.0, "b.py": 4.0, "c.py": 3.0, "d.py": 6.0}) == [
        "d.py::1", "c.py::1", "a.py::1", "b.py::1",
    ]  # fmt: skip


def test_quick_leaves_out_the_longest_files_until_the_rest_fits() -> None:
    figures = {file: Seconds(1, processor) for file, processor in {"a.py": 5, "b.py": 9, "c.py": 2, "d.py": 7}.items()}
    assert seconds.too_long({"a.py", "b.py", "c.py", "new.py"}, figures, 16) == set()
    assert seconds.too_long({"a.py", "b.py", "c.py", "new.py"}, figures, 15) == {"b.py"}
    assert seconds.too_long({"a.py", "b.py", "c.py", "d.py"}, figures, 8) == {"b.py", "d.py"}


def test_the_run_names_an_area_over_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seconds, "BUDGETS", {"laws": 10})
    monkeypatch.setattr(seconds, "OTHERS", 10)
    figures = {"tests/laws/a.py": Seconds(4, 6), "tests/laws/b.py": Seconds(4, 5), "tests/io/c.py": Seconds(1, 9)}
    lines = seconds.report(figures, [1.0, 1.0, 2.0, 2.0], judged=True)
    assert [line for line in lines if "WARNING" in line] == ["WARNING: laws takes 11 processor seconds, budget 10"]
    assert lines[0].split() == ["1.0", "9.0", "tests/io/c.py"]
    assert not any("WARNING" in line for line in seconds.report(figures, [], judged=False))


def test_figures_of_files_that_did_not_run_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seconds, "KEPT", tmp_path / "kept.json")
    monkeypatch.setattr(seconds, "SEED", tmp_path / "seed.json")
    one, two, gone = "tests/unit/test_seconds.py", "tests/conftest.py", "tests/gone.py"
    seconds.save(seconds.SEED, {"all": {one: Seconds(1, 1), two: Seconds(2, 2)}, "few": {one: Seconds(3, 3)}})
    seconds.save(seconds.KEPT, {"all": {one: Seconds(4, 5), gone: Seconds(9, 9)}})
    assert seconds.known() == {"all": {one: Seconds(4, 5), two: Seconds(2, 2)}, "few": {one: Seconds(3, 3)}}


def test_damaged_figures_are_as_good_as_none(tmp_path: Path) -> None:
    (tmp_path / "kept.json").write_text('{"all": [1, 2]}')
    assert seconds.load(tmp_path / "kept.json") == seconds.load(tmp_path / "absent.json") == {}


def test_a_file_of_which_tests_are_left_out_keeps_its_figure(pytestconfig: pytest.Config) -> None:
    measuring = Measuring(pytestconfig)
    measuring.pytest_deselected([Drawn("a.py::1"), Drawn("b.py::1", marks=("soak",))])  # type: ignore[list-item]
    assert measuring.partial == {"a.py"}


def test_processes_below_count() -> None:

    before = seconds.processor_seconds()
    subprocess.run([sys.executable, "-c", "sum(range(8_000_000))"], check=True)  # waited for
    ended = seconds.processor_seconds() - before
    assert ended > 0.05
    lasting = subprocess.Popen(
        [sys.executable, "-c", "sum(range(8_000_000)); print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert lasting.stdout is not None
    lasting.stdout.readline()
    assert seconds.processor_seconds() - before > 1.5 * ended  # alive
    lasting.communicate(b"\n")
