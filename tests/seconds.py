"""Pytest plug-in that measures every test file, orders files by what was measured, and holds each area to a budget.

Each process that runs tests measures each of its files twice: by the clock, and in processor seconds of the process and of all
processes below it. The figures are merged into `.test_seconds.json` at the end of a run; a fresh clone begins with those in
`tests/seconds.json`. `make` deals whole files to processes as they become free, so the longest file runs first; a file without a
figure counts as one of `UNKNOWN_S` (`--no-loadscope-reorder` leaves the order to this plug-in).

An area is a folder of `tests/`. `BUDGETS` has the processor seconds of each in `make test`; the run names the areas that take
more. It does not fail: machines differ, and the figures of a busy machine are larger.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.pace import PART, anew, few, turn

ROOT = Path(__file__).parents[1]
SEED = ROOT / "tests" / "seconds.json"
KEPT = ROOT / ".test_seconds.json"
SLOWEST = 25
UNKNOWN_S = 20.0
"""A file without a figure runs after those that are known to be long, and before short ones, which fill the gaps at the end."""
SHARED = {"spark"}
"""Fixtures that one file hands to the next one in the same process (`tests/spark/conftest.py`): a JVM takes seconds to start."""

BUDGETS = {
    "coordinator": 290,
    "spark": 180,
    "laws": 115,
    "kafka": 110,
    "sim": 90,
    "storage": 70,
    "sql": 85,
    "crash": 85,
    "io": 65,
    "examples": 60,
    "dsl": 40,
    "operators": 40,
    "postgres": 28,
    "packaging": 28,
    "timing": 28,
    "zset": 27,
    "distribute": 25,
    "background": 25,
    "planted": 25,
    "docs": 25,
    "trace": 22,
    "flight": 20,
    "recursion": 17,
    "tidy": 16,
    "plan": 15,
}
"""Processor seconds of an area in `make test`.

Two processors have 1,800 in a quarter of an hour. The start takes some 130 of them, types 45, and four processes that import and
collect 50. These lines add up to 1,531, and areas without a line take some 22 together.
"""
OTHERS = 8
"""The same for each area that has no line of its own; most take less."""
QUICK_S = 400
"""Processor seconds that the files of `make quick` may take together: on two processors, with its start, four minutes."""


@dataclass(slots=True)
class Seconds:
    """What a file took: by the clock, and of processors."""

    wall: float = 0.0
    processor: float = 0.0

    def add(self, wall: float, processor: float) -> None:
        """Add what one more stretch of the file took."""
        self.wall += wall
        self.processor += processor


Figures = dict[str, Seconds]


def kind() -> str:
    """Return the name under which the figures of a run are kept: runs that draw fewer examples take less."""
    return "few" if few() else "new" if anew() else "all"


def load(path: Path) -> dict[str, Figures]:
    """Return the figures in a file by kind of run; nothing if the file is absent or is not what this plug-in writes."""
    try:
        found = json.loads(path.read_text())
        return {name: {file: Seconds(*pair) for file, pair in files.items()} for name, files in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def save(path: Path, figures: dict[str, Figures]) -> None:
    """Write the figures, one file a line, and replace the file in one move: other runs may read it."""
    kinds = []
    for name in sorted(figures):
        lines = [
            f'    "{file}": [{s.wall:.2f}, {s.processor:.2f}]'
            for file, s in sorted(figures[name].items())
            if (ROOT / file).exists()
        ]
        kinds.append(f'  "{name}": {{\n' + ",\n".join(lines) + "\n  }")
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.write_text("{\n" + ",\n".join(kinds) + "\n}\n")
    beside.replace(path)


def known() -> dict[str, Figures]:
    """Return the newest figure of every file: what runs in this checkout measured, else what was committed."""
    seed, kept = load(SEED), load(KEPT)
    return {name: seed.get(name, {}) | kept.get(name, {}) for name in seed.keys() | kept.keys()}


def processor_seconds() -> float:
    """Return the processor seconds of this process, of its dead children that were waited for, and of its living descendants."""
    own = os.times()
    return own.user + own.system + own.children_user + own.children_system + _of_descendants()


def _of_descendants() -> float:
    """Return what living descendants took, with their own dead children; nothing where there is no `/proc`."""
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parts = entry.read_text(errors="replace").rpartition(")")[2].split()
            pid = int(entry.parent.name)
            ticks[pid] = sum(map(int, parts[11:15]))
            children.setdefault(int(parts[1]), []).append(pid)
    waiting, total = [os.getpid()], 0
    while waiting:
        below = children.get(waiting.pop(), [])
        total += sum(ticks[pid] for pid in below)
        waiting += below
    return total / os.sysconf("SC_CLK_TCK")


@dataclass
class Measuring:
    """What one process measures, and in the process that reports, what all of them measured."""

    config: pytest.Config
    figures: Figures = field(default_factory=dict)
    partial: set[str] = field(default_factory=set)
    collecting: list[float] = field(default_factory=list)
    running: str | None = None
    began: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        """Start the clock of the collection."""
        self.began = (time.monotonic(), processor_seconds())

    # --- in each process that runs tests ----------------------------------------------------------------------------

    def pytest_deselected(self, items: Iterable[pytest.Item]) -> None:
        """Note the files of which a test is left out that `make` runs."""
        left_out = {"soak", "spark", "kafka", "crash"} if few() else {"soak"}
        for item in items:
            if not left_out & {mark.name for mark in item.iter_markers()}:
                self.partial.add(file_of(item))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put the longest files first where several processes share them; `make quick` leaves out those that do not fit."""
        if not hasattr(self.config, "workerinput"):
            return
        if few():
            committed = load(SEED)
            figures = committed.get("all", {}) | committed.get(
                "few", {}
            )  # without one of its own, what it takes at most
            gone = too_long(set(map(file_of, items)), figures, QUICK_S)
            items[:] = [item for item in items if file_of(item) not in gone]
        items[:] = in_order(items, known().get(kind(), {}))

    def pytest_collection_finish(self) -> None:
        """Note what imports and collection took."""
        wall, processor = self._since()
        self.collecting = [wall, processor]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
        """Measure each stretch of tests of one file, with the fixtures that begin and end there."""
        if self.running is None:
            self.running = file_of(item)
            self.began = (time.monotonic(), processor_seconds())
        outcome = yield
        if nextitem is None or file_of(nextitem) != self.running:
            self.figures.setdefault(self.running, Seconds()).add(*self._since())
            self.running = None
        return outcome

    def _since(self) -> tuple[float, float]:
        """Return the seconds since `began`; processes that nobody waited for may have taken theirs along."""
        wall, processor = self.began
        return time.monotonic() - wall, max(processor_seconds() - processor, 0.0)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand the figures to the process that reports, or keep them where this is the one."""
        if hasattr(self.config, "workerinput"):
            found = {file: [s.wall, s.processor] for file, s in self.figures.items()}
            self.config.workeroutput["seconds"] = [found, sorted(self.partial), self.collecting]  # type: ignore[attr-defined]
        elif not (any("::" in given for given in self.config.args) or session.shouldstop or session.shouldfail):
            self._keep()

    # --- in the process that reports --------------------------------------------------------------------------------

    def pytest_testnodedown(self, node: Any) -> None:
        """Add what one of several processes measured."""
        found, partial, collecting = getattr(node, "workeroutput", {}).get("seconds", ({}, [], []))
        for file, pair in found.items():
            self.figures.setdefault(file, Seconds()).add(*pair)
        self.partial |= set(partial)
        self.collecting += collecting

    def _keep(self) -> None:
        """Merge the figures of the files that ran whole."""
        whole = {file: seconds for file, seconds in self.figures.items() if file not in self.partial}
        if whole:
            kept = load(KEPT)
            kept[kind()] = kept.get(kind(), {}) | whole
            with suppress(OSError):  # a checkout that cannot be written is tested all the same
                save(KEPT, kept)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the slowest files, the areas, and which of those exceed their budget."""
        if len(self.figures) > 1:
            terminalreporter.section("seconds by the clock, and of processors")
            for line in report(self.figures, self.collecting, judged=kind() == "all"):
                terminalreporter.line(line)
            terminalreporter.line(f"rotating cases: {PART}={turn()}")


def report(figures: Figures, collecting: list[float], judged: bool) -> list[str]:
    """Return the lines of the table: the slowest files, every area, the sum; and a warning for each area over its budget."""
    slowest = sorted(figures.items(), key=lambda pair: -pair[1].processor)[:SLOWEST]
    lines = [f"{s.wall:8.1f} {s.processor:8.1f}  {file}" for file, s in slowest]
    areas: Figures = {}
    for file, seconds in figures.items():
        areas.setdefault(area_of(file), Seconds()).add(seconds.wall, seconds.processor)
    lines += ["", "areas"]
    over = []
    for area, s in sorted(areas.items(), key=lambda pair: -pair[1].processor):
        budget = BUDGETS.get(area, OTHERS)
        lines.append(f"{s.wall:8.1f} {s.processor:8.1f}  {area} (budget {budget})")
        if judged and s.processor > budget:
            over.append(f"WARNING: {area} takes {s.processor:.0f} processor seconds, budget {budget}")
    total = Seconds(sum(s.wall for s in areas.values()), sum(s.processor for s in areas.values()))
    lines += [f"{sum(collecting[::2]):8.1f} {sum(collecting[1::2]):8.1f}  imports and collection of all processes"]
    lines += [f"{total.wall:8.1f} {total.processor:8.1f}  all tests"]
    return lines + over


def in_order(items: list[pytest.Item], figures: Figures) -> list[pytest.Item]:
    """Return the tests with the longest files first; files that share a `SHARED` fixture stand together, as one long file.

    Files that are equally long follow by how many tests they have.
    """
    sizes = Counter(map(file_of, items))
    group = {file_of(item): "" for item in items}
    for item in items:
        for name in SHARED & set(getattr(item, "fixturenames", ())):
            group[file_of(item)] = name
    walls = {file: figures[file].wall if file in figures else UNKNOWN_S for file in sizes}
    together = {name: sum(walls[file] for file in group if group[file] == name) for name in group.values()}

    def place(item: pytest.Item) -> tuple[float, str, float, int, str]:
        file = file_of(item)
        name = group[file]
        return (-(together[name] if name else walls[file]), name, -walls[file], -sizes[file], file)

    return sorted(items, key=place)


def too_long(files: set[str], figures: Figures, budget_s: float) -> set[str]:
    """Return the files to leave out, those that take most first, so that the others fit the budget."""
    left = sorted((figures[file].processor, file) for file in files if file in figures)
    gone = set()
    while sum(seconds for seconds, _ in left) > budget_s:
        gone.add(left.pop()[1])
    return gone


def file_of(item: pytest.Item) -> str:
    """Return the file of a test, relative to the root."""
    return item.nodeid.partition("::")[0]


def area_of(file: str) -> str:
    """Return the folder of `tests/` in which a file is."""
    parts = Path(file).parts
    return parts[1] if len(parts) > 2 else "."


def pytest_configure(config: pytest.Config) -> None:
    """Begin to measure; choose the part of the rotating cases before other processes start, which then choose alike."""
    turn()
    config.pluginmanager.register(Measuring(config), "dbsp-seconds")
