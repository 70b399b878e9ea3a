"""A drawing per benchmark from its history: `python -m benchmarks.plots [NAME ...]` writes `benchmarks/history/<name>.svg`.

For every figure of the last run that has a target, how many times the target it reached (1 or more is met, also where less is
better); earlier runs are the pale dots. Needs matplotlib: `pip install -e '.[bench]'`.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import report

WIDTH_IN, BAR_IN, EDGE_IN = 9.0, 0.24, 1.1
MET, MISSED, EARLIER = "#3b7dd8", "#d8643b", "#bbbbbb"
SHOWN_MAX = 1000.0
"""The largest ratio that a plot shows; a figure of zero or less, as extra bytes may be, would give an infinite one."""
NEEDED = "drawing needs matplotlib: pip install -e '.[bench]'"


def ratios(line: Mapping[str, Any]) -> dict[str, float]:
    """How many times its target each figure of a run reached, `SHOWN_MAX` at most."""
    return {
        name: min(report.Target(value, at_most).ratio(float(line[name])), SHOWN_MAX)
        for name, (value, at_most) in line.get(report.TARGETS, {}).items()
    }


def draw(plt: Any, file: Path) -> Path | None:
    """One drawing; none where no run of the history has targets."""
    runs = [found for text in file.read_text().splitlines() if (found := ratios(json.loads(text)))]
    if not runs:
        return None
    newest = runs[-1]
    names = list(newest)[::-1]
    figure, axes = plt.subplots(figsize=(WIDTH_IN, EDGE_IN + BAR_IN * len(names)), layout="constrained")
    axes.barh(names, [newest[name] for name in names], color=[MET if newest[name] >= 1 else MISSED for name in names])
    for run in runs[:-1]:
        known = [name for name in names if name in run]
        axes.scatter([run[name] for name in known], known, color=EARLIER, s=12, zorder=3)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlabel("times the target")
    axes.set_title(file.stem)
    made = file.with_suffix(".svg")
    figure.savefig(made, metadata={"Date": None})
    plt.close(figure)
    return made


def main(arguments: list[str]) -> int:
    """Draw what is asked for, or all there is."""
    try:
        matplotlib = importlib.import_module("matplotlib")
    except ImportError:
        print(NEEDED, file=sys.stderr)
        return 2
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "benchmarks", "font.size": 8})
    plt = importlib.import_module("matplotlib.pyplot")
    for file in sorted(report.HISTORY.glob("*.jsonl")):
        if not arguments or file.stem in arguments:
            made = draw(plt, file)
            if made is not None:
                print(made)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
