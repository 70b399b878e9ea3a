"""Measures the mutation score and compares it with the recorded one: `python -m tools.mutation [--record] [--fresh]`.

The run works on a copy of the tree in `.mutation/`, so that edits change nothing. Tests run over the copy first, and note which
mutants they reach. Then each mutant is tried with the tests that reach it, for at most 60 processor seconds. A run that was
stopped goes on where it was; `--fresh` begins anew. The exit code is 1 if the tests find less than `tests/mutation.json` says.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from signal import SIGKILL, SIGXCPU
from typing import Any

from tools.mutation import score
from tools.mutation.bounded import run_bounded
from tools.mutation.mutants import FOLDERS, MAPPED, Mutant, module_name, probed, sample
from tools.mutation.score import Outcome, Score

ROOT = Path(__file__).parents[2]
SEED = 31
COUNT = 200
TESTS_S = 30.0
"""The chosen tests of a mutant take at most this long without the mutant, so a mutant that reaches the limit is slow."""
FILE_S = 5.0
"""The most seconds of chosen tests per file; at least one test is chosen. Many files find more than similar tests do."""
KERNELS = "dbsp/zset/kernels/"
IN_PROCESS = (
    "core", "distribute", "dsl", "exchange", "laws", "layout", "operators", "plan", "recursion", "runtime", "sim", "sql",
    "storage", "timing", "tpch", "trace", "zset", "coordinator/test_machine*", "coordinator/test_layouts*",
    "coordinator/test_timers*", "coordinator/test_kept_data*", "tidy/test_doctests*",
)  # fmt: skip
"""Test files that run the product in their own process: Spark, Kafka, kills and service processes are left out."""
PLAIN = ("-p", "no:cacheprovider", "-p", "no:tests.seconds", "-o", "timeout=0")
"""Options of pytest: no files written, tests in the order of the command, no limit by the clock."""
MARKS = "not (spark or kafka or crash or soak)"


@dataclass(slots=True)
class Measuring:
    """A run: the copy of the tree, the sample, what was noted so far."""

    root: Path
    jobs: int
    seed: int = SEED
    count: int = COUNT
    folders: tuple[str, ...] = FOLDERS
    tests: tuple[str, ...] = IN_PROCESS
    mutants: list[Mutant] = field(default_factory=list)

    @property
    def work(self) -> Path:
        """Return the folder of the run; git ignores it."""
        return self.root / ".mutation"

    @property
    def tree(self) -> Path:
        """Return the copy of the tree."""
        return self.work / "tree"

    def begin(self, fresh: bool) -> None:
        """Copy the tree, or go on with the copy of a run that was stopped; draw the sample."""
        if fresh:
            shutil.rmtree(self.work, ignore_errors=True)
        if not (self.work / "commit").exists():
            shutil.rmtree(self.work, ignore_errors=True)
            copy_tree(self.root, self.tree)
            self._compile_kernels()
            commit = git(self.root, "describe", "--always", "--dirty").strip()
            (self.work / "commit").write_text(commit)
        self.mutants = sample(self.tree, self.seed, self.count, self.folders)

    def _compile_kernels(self) -> None:
        """Compile the kernels of the copy, so that no test does."""
        if (self.tree / KERNELS).exists():
            command = [sys.executable, "-m", "dbsp.zset.kernels.compile"]
            subprocess.run(command, cwd=self.tree, env=self.environment(), check=True)  # noqa: S603

    def record(self) -> None:
        """Run the tests over the copy, with calls that note which mutants they reach."""
        texts = self.work / "probed"
        texts.mkdir(exist_ok=True)
        places: defaultdict[str, dict[tuple[int, int, str], int]] = defaultdict(dict)
        for number, mutant in enumerate(self.mutants):
            places[mutant.file][*mutant.at, mutant.after] = number
        overlay = {}
        for number, (file, numbers) in enumerate(places.items()):
            text = texts / f"{number}.py"
            text.write_text(probed((self.tree / file).read_bytes(), numbers), encoding="utf-8")
            overlay[module_name(file)] = str(text)
        (self.work / "overlay.json").write_text(json.dumps(overlay))
        waiting = self._files_to_record()
        with ThreadPoolExecutor(self.jobs) as pool:
            list(pool.map(self._record_files, range(self.jobs), (waiting[at :: self.jobs] for at in range(self.jobs))))
        (self.work / "recorded").touch()

    def _files_to_record(self) -> list[str]:
        """Return the test files that have not run whole, cheapest first."""
        tests = self.tree / "tests"
        found = {path for each in self.tests for path in test_files(tests / each)}
        names = {path.relative_to(self.tree).as_posix() for path in found}
        done = {each["file"] for each in self._recorded() if "file" in each}
        seconds = costs(tests / "seconds.json")
        return sorted(names - done, key=lambda name: (seconds.get(name, 0.0), name))

    def _record_files(self, number: int, files: Sequence[str]) -> None:
        """Run some test files, one after the other, in one process each time it ends."""
        if not files:
            return
        reached = self.work / f"reached-{number}"
        environment = self.environment(self.work / "overlay.json") | {
            "DBSP_REACHED": str(reached),
            "DBSP_RECORD": str(self.work / f"covers-{time.time_ns()}-{number}.jsonl"),
        }
        options = ("-q", "--tb=no", "-p", "tools.mutation.recorder", *PLAIN)
        command = [sys.executable, "-m", "pytest", *options, "-m", MARKS, *files]
        with (self.work / f"record-{number}.log").open("w") as log:
            subprocess.run(command, cwd=self.tree, env=environment, stdout=log, stderr=log, check=False)  # noqa: S603

    def _recorded(self) -> list[dict[str, Any]]:
        """Return the lines of the recorder; the last one of a stopped run may be cut off."""
        lines = []
        for path in sorted(self.work.glob("covers-*.jsonl")):
            for line in path.read_text().splitlines():
                with suppress(json.JSONDecodeError):
                    lines.append(json.loads(line))
        return lines

    def environment(self, overlay: Path | None = None) -> dict[str, str]:
        """Return the environment of a process that runs code of the copy, with other text under some modules."""
        path = os.pathsep.join((str(self.tree / "tools" / "mutation" / "overlay"), str(self.tree)))
        # Hundreds of processes start: none compiles again what the one before it has, however the machine is set up.
        unset = ("DBSP_", "PYTHONDONTWRITEBYTECODE")
        given = {name: value for name, value in os.environ.items() if not name.startswith(unset)}
        other = {"DBSP_OVERLAY": str(overlay)} if overlay else {}
        own = {"PYTHONPATH": path, "DBSP_TEST_PART": "0", "NUMBA_CACHE_DIR": str(self.work / "numba")}
        return given | own | other

    def try_all(self, told: Callable[[str], None]) -> Score:
        """Try every mutant that has no outcome yet; return the score of those that have one."""
        tests = covering(self._recorded())
        kept = self.work / "outcomes.jsonl"
        done = {each.key: each for each in self._outcomes()}
        waiting = [(number, each) for number, each in enumerate(self.mutants) if each.key not in done]

        whole = (self.work / "recorded").exists()

        def attempt(numbered: tuple[int, Mutant]) -> None:
            number, mutant = numbered
            groups = chosen(tests.get(number, []))
            if not groups and not whole:
                return
            outcome, by = self.attempt(number, mutant, groups) if groups else ("not reached", "")
            line = json.dumps(asdict(Outcome(**mutant.described(), outcome=outcome, by=by)))
            with kept.open("a") as file:
                file.write(line + "\n")
            told(f"{number}: {outcome}: {mutant.file}:{mutant.line} {mutant.before!r} -> {mutant.after!r} {by}")

        with ThreadPoolExecutor(self.jobs) as pool:
            list(pool.map(attempt, waiting))
        return self.score()

    def score(self) -> Score:
        """Return the score of the mutants that have an outcome."""
        done = {each.key: each for each in self._outcomes()}
        outcomes = tuple(done[each.key] for each in self.mutants if each.key in done)
        commit = (self.work / "commit").read_text()
        files = len({each["file"] for each in self._recorded() if "file" in each})
        return Score(seed=self.seed, wanted=self.count, commit=commit, test_files=files, outcomes=outcomes)

    def _outcomes(self) -> list[Outcome]:
        path = self.work / "outcomes.jsonl"
        return [Outcome(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []

    def attempt(self, number: int, mutant: Mutant, groups: list[list[str]]) -> tuple[str, str]:
        """Run the tests with one mutant; return its outcome and the test that found it."""
        place = self.work / f"mutant-{number}"
        place.mkdir(exist_ok=True)
        (place / "text.py").write_bytes(mutant.text(self.tree))
        (place / "overlay.json").write_text(json.dumps({module_name(mutant.file): str(place / "text.py")}))
        (place / "tests.json").write_text(json.dumps(groups))
        result = place / "result"
        result.write_text("")
        environment = self.environment(place / "overlay.json")
        if mutant.file.startswith(
            KERNELS
        ):  # numba's cache does not see a changed constant: hide what it has of this module
            cache = environment["NUMBA_CACHE_DIR"] = str(place / "numba")
            hidden = shutil.ignore_patterns(f"{Path(mutant.file).stem}.*")
            shutil.copytree(self.work / "numba", cache, ignore=hidden)
        command = [sys.executable, "-m", "tools.mutation.trial", str(place / "tests.json"), str(result)]
        with (place / "log").open("w") as log:
            code = run_bounded(command, self.tree, environment, log)
        by = result.read_text()
        shutil.rmtree(place / "numba", ignore_errors=True)
        if code in (-SIGXCPU, -SIGKILL):
            return "timed out", ""
        if code != 0 and not by:
            return "killed", f"the process ended with {code}"
        return ("killed", by) if by else ("survived", "")


def git(root: Path, *arguments: str) -> str:
    """Return what a command of git prints."""
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603


def copy_tree(root: Path, tree: Path) -> None:
    """Copy what git knows or would add, with mapped folders linked to where their packages are imported from."""
    for name in filter(None, git(root, "ls-files", "-co", "--exclude-standard", "-z").split("\0")):
        if (root / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, tree / name)
    for folder in (*MAPPED, "io"):
        if (tree / folder).exists():
            (tree / "dbsp" / folder).symlink_to(tree / folder)
    if (root / ".venv").exists():
        (tree / ".venv").symlink_to(root / ".venv")


def test_files(place: Path) -> Iterable[Path]:
    """Return the test files of a folder, or those of a pattern."""
    return place.rglob("test_*.py") if place.is_dir() else place.parent.glob(place.name + ".py")


def costs(path: Path) -> dict[str, float]:
    """Return the processor seconds of test files in `make test`."""
    if not path.exists():
        return {}
    figures: dict[str, list[float]] = json.loads(path.read_text())["all"]
    return {name: processor for name, (_, processor) in figures.items()}


def covering(lines: Iterable[dict[str, Any]]) -> dict[int, list[tuple[float, str]]]:
    """Return, by number of a mutant, the passed tests that reach it with their seconds."""
    found: defaultdict[int, dict[str, float]] = defaultdict(dict)
    for line in lines:
        if line.get("passed"):
            for number in line["reached"]:
                found[number][line["test"]] = line["seconds"]
    return {number: [(seconds, test) for test, seconds in tests.items()] for number, tests in found.items()}


def chosen(tests: list[tuple[float, str]]) -> list[list[str]]:
    """Return the tests to run for a mutant, by file, cheapest file first, within `TESTS_S` seconds and one test at least."""
    files: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
    for seconds, test in sorted(tests):
        taken = files[test.partition("::")[0]]
        if not taken or sum(each for each, _ in taken) + seconds <= FILE_S:
            taken.append((seconds, test))
    groups, left = [], TESTS_S
    for taken in sorted(files.values(), key=lambda taken: sum(each for each, _ in taken)):
        left -= sum(each for each, _ in taken)
        if left < 0 and groups:
            break
        groups.append([test for _, test in taken])
    return groups


def main() -> int:
    """Measure, report and compare."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=__doc__)
    parser.add_argument("--fresh", action="store_true", help="begin anew, not where the last run stopped")
    parser.add_argument("--record", action="store_true", help="write the score to tests/mutation.json")
    parser.add_argument("--report", action="store_true", help="run nothing; report what a stopped run found")
    parser.add_argument("--partly", action="store_true", help="try mutants with the tests that were recorded so far")
    parser.add_argument("--jobs", type=int, default=2, help="so many processes side by side")
    given = parser.parse_args()
    measuring = Measuring(root=ROOT, jobs=given.jobs)
    measuring.begin(given.fresh)
    if not given.report:
        if not (given.partly or (measuring.work / "recorded").exists()):
            measuring.record()
        measuring.try_all(lambda line: print(line, flush=True))
    now = measuring.score()
    print(now.report())
    kept = ROOT / "tests" / "mutation.json"
    before = score.read(kept)
    if given.record or before is None:
        now.write(kept)
        print(f"written: {kept.relative_to(ROOT)}")
        return 0
    wrong = score.fallen(before, now)
    print("\n".join(wrong) or "the tests find as much as before")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
