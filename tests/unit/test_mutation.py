"""The mutation score: which changes are made, that the sample stays, that tests find a planted mutant and miss another."""

from __future__ import annotations

import ast
import shutil
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tools.mutation import __main__ as command
from tools.mutation import bounded, mutants, score
from tools.mutation.__main__ import Measuring, chosen
from tools.mutation.bounded import run_bounded
from tools.mutation.score import Outcome, Score

ROOT = Path(__file__).parents[2]

PLANTED = '''
"""A module to mutate."""


def grown(value):
    """Return the next number."""
    return value + 1


def capped(value):
    """Return at most ten."""
    return 10 if value > 10 else value


def apart(value):
    """Return the number before, in another process."""
    return value - 1


def unused(value):
    """Return twice the number."""
    return value * 2
'''

TESTS = """
import subprocess
import sys

from planted.numbers import capped, grown


def test_grown():
    assert grown(1) == 2


def test_capped():
    assert (capped(3), capped(11)) == (3, 10)


def test_apart():
    code = "from planted.numbers import apart; print(apart(3))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "2\\n"


def test_red():
    assert grown(1) == 3
"""

PROJECT = "[tool.pytest.ini_options]\npythonpath = ['.']\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a small tree with one module and its tests, as the copy of a run."""
    tree = tmp_path / ".mutation" / "tree"
    shutil.copytree(
        ROOT / "tools" / "mutation", tree / "tools" / "mutation", ignore=shutil.ignore_patterns("__pycache__")
    )
    texts = {
        "pyproject.toml": PROJECT,
        "planted/__init__.py": "",
        "planted/numbers.py": PLANTED.lstrip(),
        "tests/test_numbers.py": TESTS,
    }
    for name, text in texts.items():
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_text(text)
    (tree.parent / "commit").write_text("planted")
    return tree


def test_tests_find_a_planted_mutant_and_miss_another(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measuring = Measuring(root=tree.parents[1], jobs=1, count=100, folders=("planted",), tests=("",))
    measuring.begin(fresh=False)
    measuring.mutants = [each for each in measuring.mutants if each.kind in ("arithmetic", "comparison")]
    measuring.record()
    now = measuring.try_all(lambda _: None)
    assert {each.function: (each.after, each.outcome) for each in now.outcomes} == {
        "grown": ("(value - 1)", "killed"),
        "capped": ("(value >= 10)", "survived"),  # as good as the other
        "apart": ("(value + 1)", "killed"),
        "unused": ("(value // 2)", "not reached"),
    }
    by = {
        each.function: each.by.partition(":")[0] + each.by.partition("::")[2].partition(":")[0] for each in now.outcomes
    }
    assert by["grown"] == "tests/test_numbers.pytest_grown", "a test that is red without a mutant finds nothing"
    assert by["apart"] == "tests/test_numbers.pytest_apart", "child processes run the mutant too"
    assert now.share == 0.5
    monkeypatch.setattr(Measuring, "attempt", None)  # a second run tries nothing again
    assert measuring.try_all(print) == now
    now.write(tree / "score.json")
    kept = tuple(replace(each, by=each.by.partition(": ")[0]) for each in now.outcomes)
    assert score.read(tree / "score.json") == replace(now, outcomes=kept), "words of tests have paths in them"


def test_a_mutant_that_does_not_end_is_stopped_by_its_processor_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "LIMIT_S", 1)
    monkeypatch.setattr(bounded, "POLL_S", 0.1)
    with (tmp_path / "log").open("w") as log:

        def ended(*text: str) -> int:
            return run_bounded([sys.executable, "-S", "-c", "; ".join(text)], tmp_path, {}, log)

        assert ended("while True: pass") in (-signal.SIGXCPU, -signal.SIGKILL)
        child = "subprocess.Popen([sys.executable, '-S', '-c', 'while True: pass'], start_new_session=True)"
        children = ("import subprocess, sys, pathlib", f"all = [{child} for _ in range(3)]")
        noted = "pathlib.Path('pids').write_text(' '.join(str(each.pid) for each in all))"
        assert ended(*children, noted, "[each.wait() for each in all]") == -signal.SIGKILL
        for pid in (tmp_path / "pids").read_text().split():
            while runs(pid):
                time.sleep(0.01)
        monkeypatch.setattr(bounded, "STALLED_S", 0)
        assert ended("import signal", "signal.pause()") == -signal.SIGKILL
        monkeypatch.setattr(bounded, "STALLED_S", 300)
        monkeypatch.setattr(bounded, "LIMIT_WALL_S", 0)
        assert ended("import time", "[time.sleep(0.001) for _ in iter(int, 1)]") == -signal.SIGKILL
        assert ended("pass") == 0


def runs(pid: str) -> bool:
    """Return whether a process uses the processor: a killed one that nobody waits for has no command line."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_text())
    except OSError:
        return False


EVERY_KIND = '''
LIMIT = 3


class Shop:
    def sold(self, rows: list[int], more: int = 1) -> int | None:
        """Return a count."""
        self.count = 0
        for row in rows:
            if row in (1, 2) and not more:
                continue
            self.count += row
        self.note()
        if self.count < 0:
            raise ValueError(f"too few: {self.count + 1}" + "!")
        return self.count
'''


def test_which_changes_are_made() -> None:
    found = [
        (resources.kind, ast.unparse(resources.node), resources.after)
        for resources in mutants.sites(ast.parse(EVERY_KIND))
    ]
    assert sorted(found) == [
        ("and/or", "row in (1, 2) and (not more)", "(row in (1, 2) or not more)"),
        ("arithmetic", "self.count += row", "self.count -= row"),
        ("comparison", "row in (1, 2)", "(row not in (1, 2))"),
        ("comparison", "self.count < 0", "(self.count <= 0)"),
        ("condition", "row in (1, 2) and (not more)", "(not (row in (1, 2) and (not more)))"),
        ("condition", "self.count < 0", "(not (self.count < 0))"),
        ("constant", "0", "1"),
        ("constant", "0", "1"),
        ("constant", "1", "2"),
        ("constant", "2", "3"),
        ("return", "return self.count", "return None"),
        ("statement", "continue", "pass"),
        ("statement", "raise ValueError(f'too few: {self.count + 1}' + '!')", "pass"),
        ("statement", "self.count += row", "pass"),
        ("statement", "self.count = 0", "pass"),
        ("statement", "self.note()", "pass"),
    ]


def test_an_edit_elsewhere_and_a_move_leave_the_sample(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "a.py").write_text(EVERY_KIND)
    before = mutants.sample(tmp_path, 7, 5, ("one",))
    (tmp_path / "one" / "a.py").rename(tmp_path / "one" / "b.py")
    (tmp_path / "one" / "b.py").write_text("import os\n" + EVERY_KIND.replace("LIMIT = 3", "LIMIT = 4"))
    after = mutants.sample(tmp_path, 7, 5, ("one",))
    assert [each.key for each in before] == [each.key for each in after]
    assert [each.key for each in before] != [each.key for each in mutants.sample(tmp_path, 8, 5, ("one",))]
    assert all(compile(each.text(tmp_path), each.file, "exec") for each in after)


COMPILED = """
@helper
def less(value):
    return value - 1


@kernel(int64(int64))
def least(value):
    return less(value) + 1


def least_of(value):
    return least(value)
"""


def test_calls_that_note_a_mutant_stand_outside_of_compiled_code() -> None:
    source = COMPILED.encode()
    starts = mutants.line_starts(source)
    sites = [resources for resources in mutants.sites(ast.parse(source)) if resources.kind in ("arithmetic", "return")]
    numbers = {(*mutants.span(resources.node, starts), resources.after): at for at, resources in enumerate(sites)}
    text = mutants.probed(source, numbers)
    assert [resources.function for resources in sites] == ["less", "less", "least", "least", "least_of"]
    assert text.count("reached__") == 2
    assert text.endswith("least = __kernel_reached__(0, 1, 2, 3)(least)\n")
    assert "__reached__(4)\n    return least(value)" in text
    numbers = {place: number for place, number in numbers.items() if number < 4}
    assert mutants.probed(source, numbers).startswith(COMPILED), "lines keep their numbers"


def test_what_the_run_names_is_there() -> None:
    """A renamed folder must not drop out without a word."""
    assert all((ROOT / folder).is_dir() for folder in (*mutants.FOLDERS, *mutants.MAPPED, command.KERNELS))
    assert all(any(command.test_files(ROOT / "tests" / each)) for each in command.IN_PROCESS)


def test_tests_of_many_files_are_chosen_cheapest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "TESTS_S", 10.0)
    tests = [(4.0, "a::1"), (2.0, "a::2"), (1.0, "a::3"), (1.0, "b::1"), (6.0, "c::1"), (9.0, "d::1")]
    assert chosen(tests) == [["b::1"], ["a::3", "a::2"], ["c::1"]]
    assert chosen([(99.0, "d::1")]) == [["d::1"]], "a mutant has one test at least"
    assert chosen([]) == []


def of(*outcomes: str) -> Score:
    made = [
        Outcome(key=name, file="dbsp/a/b.py", line=1, function="f", kind="k", before="1", after="2", outcome=outcome)
        for name, outcome in (each.split(" ", 1) for each in outcomes)
    ]
    return Score(seed=1, wanted=len(made), commit="c", test_files=1, outcomes=tuple(made))


def test_a_mutant_that_tests_no_longer_find_fails_the_check() -> None:
    before = of("a killed", "b timed out", "c survived", "d not reached")
    assert before.share == 0.5
    assert before.folders() == {"dbsp/a": {"killed": 1, "timed out": 1, "survived": 1, "not reached": 1}}
    assert score.fallen(before, before) == []
    assert score.fallen(before, of("a not reached", "b killed", "c survived", "d survived")) == [
        "no longer found: dbsp/a/b.py:1 f '2'"
    ]
    other = of("a survived", "b killed", "c killed")
    assert score.fallen(before, other) == [], "one for another: the score is equal"
    part = replace(before, wanted=200)
    assert score.fallen(part, other) == ["no longer found: dbsp/a/b.py:1 f '2'"], "more tests may find the others"


def test_mutants_of_edited_lines_may_differ_by_chance_alone() -> None:
    before = of(*(f"{number} {'killed' if number < 15 else 'survived'}" for number in range(20)))
    assert before.share == 0.75
    new = [f"n{number} {'killed' if number < 12 else 'survived'}" for number in range(20)]
    assert score.fallen(before, of(*new)) == []
    worse = replace(of(*new), outcomes=tuple(replace(each, outcome="survived") for each in of(*new).outcomes[:12]))
    assert score.fallen(before, worse) == ["of 12 mutants of edited lines the tests find 0; before 0.750 of all"]
    assert score.fallen(replace(before, wanted=200), worse) == [], "a part of the sample does not speak for the others"
