"""The service of any version of dbsp, killed before one of its commands. Only what every version has is imported here."""

from __future__ import annotations

import importlib
import itertools
import os
import signal
import sys
from pathlib import Path
from typing import Any

RUNNERS = {"0.1.0": ("dbsp.coordinator.running.hands", "Hands")}
"""Where the class is that carries out commands, in versions that call it otherwise."""
RUNNER = ("dbsp.coordinator.running.command_runner", "CommandRunner")


def serve(folder: Path, arguments: tuple[str, ...], dies_at: int | None) -> None:
    """Run the service in a folder until it ends, or until the command of this number, counted from one."""
    os.chdir(folder)
    version = importlib.import_module("dbsp.version").VERSION
    module, name = RUNNERS.get(version, RUNNER)
    runner: Any = getattr(importlib.import_module(module), name)
    perform, numbers = runner.perform, itertools.count(1)

    def dying(self: Any, command: Any) -> Any:
        if next(numbers) == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return perform(self, command)

    runner.perform = dying
    sys.argv = ["dbsp-coordinator", "pipeline.toml", "--no-progress", *arguments]
    importlib.import_module("dbsp.coordinator.serve").main()
