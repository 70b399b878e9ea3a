"""How every benchmark reports: one line per figure on the screen, one JSON line per run in `benchmarks/history/`."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path

HISTORY = Path(__file__).parent / "history"


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
    return {"cpu": model, "cores": os.cpu_count(), "python": platform.python_version()}


def keep(name: str, figures: Mapping[str, object]) -> None:
    """Print the figures and append them to the benchmark's history."""
    for key, value in figures.items():
        shown = f"{value:,.3f}" if isinstance(value, float) else str(value)
        print(f"{name:>16}  {key:<44} {shown}")
    HISTORY.mkdir(exist_ok=True)
    line = {"at": time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime()), **machine(), **figures}
    with (HISTORY / f"{name}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
