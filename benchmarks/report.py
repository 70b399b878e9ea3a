"""How every benchmark reports: figures with their targets on the screen, one JSON line per run in `benchmarks/history/`.

A figure may have a target: at least or at most so much. `keep` prints each with its ratio to the target and whether it was
met, and tells the same to `python -m benchmarks`, which ends in one table of them all.

History is kept of quiet machines only: while a benchmark runs, the processor time that other processes took is counted, and
above 10 % of the machine the line is not written (`--history always` writes it all the same, `--history never` none).

This module knows nothing of what is measured.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HISTORY = Path(__file__).parent / "history"
HISTORY_SWITCH, SUMMARY_SWITCH = "BENCHMARKS_HISTORY", "BENCHMARKS_SUMMARY"
RUNS = 3
BUSY_SHARE = 0.10
TARGETS = "targets"
TICKS = os.sysconf("SC_CLK_TCK")
WIDTH = 58


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure should be: at least `value`, or at most."""

    value: float
    at_most: bool = False

    def ratio(self, found: float) -> float:
        """1 or more where the target is met, whichever way it points."""
        if self.at_most:
            return self.value / found if found > 0 else math.inf
        return found / self.value

    def met(self, found: float) -> bool:
        """Whether the figure is good enough."""
        return found <= self.value if self.at_most else found >= self.value

    def __str__(self) -> str:
        """As it stands in the tables."""
        return f"{'<=' if self.at_most else '>='} {shown(self.value)}"


def at_least(value: float) -> Target:
    """The figure should be so much or more."""
    return Target(value)


def at_most(value: float) -> Target:
    """The figure should be so much or less."""
    return Target(value, at_most=True)


def parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser with what all benchmarks understand: `--history`."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument(
        "--history", choices=("quiet", "always", "never"), action=_History, default="quiet",
        help="whether the figures are added to benchmarks/history/: on a quiet machine, always, never",
    )  # fmt: skip
    return made


class _History(argparse.Action):
    """Puts the choice where child processes find it too."""

    def __call__(self, _parser: Any, namespace: argparse.Namespace, value: Any, _option: Any = None) -> None:
        os.environ[HISTORY_SWITCH] = value
        setattr(namespace, self.dest, value)


def median(measure: Callable[[], float], runs: int = RUNS) -> float:
    """The median of some runs."""
    return statistics.median(measure() for _ in range(runs))


def medians(measures: Mapping[str, Callable[[], float]], runs: int = RUNS) -> dict[str, float]:
    """The median of each; they take turns, so that what slows the machine for a while slows them all."""
    found: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(runs):
        for name, measure in measures.items():
            found[name].append(measure())
    return {name: statistics.median(values) for name, values in found.items()}


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    memory_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return {"cpu": model, "cores": os.cpu_count(), "memory_mb": memory_mb, "python": platform.python_version()}


def keep(name: str, figures: Mapping[str, object], targets: Mapping[str, Target] | None = None) -> None:
    """Print the figures beside their targets, tell them to the summary, and append them to the benchmark's history."""
    wanted = targets or {}
    lines = [line_of(name, key, value, wanted.get(key)) for key, value in figures.items()]
    others = others_share()
    print("\n".join(table(lines)))
    print(f"{name}: other processes took {100 * others:.0f} % of the machine{', busy' if others > BUSY_SHARE else ''}")
    _summarize(lines)
    choice = os.environ.get(HISTORY_SWITCH, "quiet")
    if choice == "never" or (choice == "quiet" and others > BUSY_SHARE):
        return
    HISTORY.mkdir(exist_ok=True)
    at = {"at": time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime())}
    line: dict[str, object] = {**at, **machine(), "others_share": round(others, 3), **figures}
    judged = {key: [wanted[key].value, wanted[key].at_most] for key in figures if key in wanted}
    if judged:
        line[TARGETS] = judged
    with (HISTORY / f"{name}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def skipped(name: str, what: str, reason: str) -> None:
    """Say that something was not measured, and why; it stands in the summary too."""
    line = {"suite": name, "figure": what, "skipped": reason}
    print("\n".join(table([line], head=False)), flush=True)
    _summarize([line])


def line_of(suite: str, figure: str, value: object, target: Target | None) -> dict[str, Any]:
    """A line of the tables."""
    line: dict[str, Any] = {"suite": suite, "figure": figure, "value": value}
    if target is not None and isinstance(value, int | float):
        line |= {"target": str(target), "ratio": target.ratio(value), "met": target.met(value)}
    return line


def table(lines: Iterable[Mapping[str, Any]], *, head: bool = True) -> list[str]:
    """The lines of a table as text."""
    titles = f"{'benchmark':<20} {'figure':<{WIDTH}} {'value':>14} {'target':>14} {'ratio':>7}  met"
    made = [titles] if head else []
    for line in lines:
        if "skipped" in line:
            made.append(f"{line['suite']:<20} {line['figure']:<{WIDTH}} left out: {line['skipped']}")
            continue
        text = f"{line['suite']:<20} {line['figure']:<{WIDTH}} {shown(line['value']):>14}"
        if "target" in line:
            text += f" {line['target']:>14} {line['ratio']:>7.2f}  {'yes' if line['met'] else 'NO'}"
        made.append(text)
    return made


def shown(value: object) -> str:
    """A value as text."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.3f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _summarize(lines: Sequence[Mapping[str, Any]]) -> None:
    """Tell the runner of all benchmarks."""
    place = os.environ.get(SUMMARY_SWITCH)
    if place:
        with Path(place).open("a") as file:
            file.writelines(json.dumps(line, default=str) + "\n" for line in lines)


@dataclass(frozen=True, slots=True)
class Moment:
    """Processor seconds so far: of the whole machine, and of this process with its children."""

    at: float
    machine_s: float
    own_s: float

    @classmethod
    def now(cls) -> Moment:
        """Read `/proc`; a machine without it counts as quiet."""
        try:
            numbers = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        except OSError:
            return cls(time.monotonic(), 0.0, 0.0)
        idle = numbers[3] + numbers[4]
        times = os.times()
        own = times.user + times.system + times.children_user + times.children_system
        return cls(time.monotonic(), (sum(numbers) - idle) / TICKS, own + _living_children_s())


def _living_children_s() -> float:
    """Processor seconds of all descendants that still run, and of those that they waited for."""
    parents: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            parents.setdefault(int(fields[1]), []).append(int(folder.name))
            used[int(folder.name)] = sum(map(int, fields[11:15])) / TICKS
    found, open_ = 0.0, list(parents.get(os.getpid(), ()))
    while open_:
        child = open_.pop()
        found += used.get(child, 0.0)
        open_ += parents.get(child, ())
    return found


STARTED = Moment.now()


def others_share() -> float:
    """The share of the machine's processors that other processes took since this one began to measure."""
    now = Moment.now()
    whole = (now.at - STARTED.at) * (os.cpu_count() or 1)
    others = (now.machine_s - STARTED.machine_s) - (now.own_s - STARTED.own_s)
    return min(max(others / whole, 0.0), 1.0) if whole > 0 else 0.0
