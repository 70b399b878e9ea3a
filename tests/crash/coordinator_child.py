"""The coordinator's process for the crash tests: the real service, with a point where it kills itself.

`Child(pipeline.toml, "part.method:before|after:n", out)` kills itself with SIGKILL at the n-th call of a method of the runtime,
the logs or the ledger. The product knows nothing of this: the parts are wrapped on their way in.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from dbsp.coordinator.exits import guarded
from dbsp.coordinator.serve import run
from dbsp.coordinator.settings.config import load_config
from dbsp.coordinator.takeover.upgrades import Restart
from tests.forked import Forked


class Deadly:
    """Stands before a part and dies at the named call."""

    def __init__(self, name: str, part: Any, point: str) -> None:
        self._name, self._part, self._point = name, part, point
        self._calls: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __getattr__(self, method: str) -> Any:
        found = getattr(self._part, method)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            number = self._numbered(method)
            place = f"{self._name}.{method}"
            if self._point == f"{place}:before:{number}":
                os.kill(os.getpid(), signal.SIGKILL)
            result = found(*args, **kwargs)
            if self._point == f"{place}:after:{number}":
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call

    def _numbered(self, method: str) -> int:
        """Which call this is; several threads call at once, and each must have a number of its own."""
        with self._lock:
            self._calls[method] += 1
            return self._calls[method]


def serve(pipeline: Path, point: str, restart: Restart | None, evolve: bool) -> None:
    """In the child: run the service until it ends, or is killed at the point, if one is named."""

    def served() -> None:
        config = load_config(pipeline)
        deadly = partial(run, config, progress=False, wrap=lambda name, part: Deadly(name, part, point))
        sys.exit(deadly(restart=restart, evolve=evolve))

    sys.exit(guarded(served))


class Child(Forked):
    """One such process; by `restart` it becomes another version in an upgrade, with `evolve` it changes the circuit."""

    def __init__(
        self, pipeline: Path, point: str, out: Path, restart: Restart | None = None, *, evolve: bool = False
    ) -> None:
        """Start it; what it says is added to `out`."""
        super().__init__(out, serve, pipeline, point, restart, evolve)


def changed_by_who_dies(folder: Path, point: str) -> None:
    """The circuit of the pipeline in the folder is changed by a process that is killed at this point."""
    child = Child(folder / "pipeline.toml", point, folder / "said.txt", evolve=True)
    try:
        assert child.wait(120) == -9, (folder / "said.txt").read_text()
    finally:
        child.kill()
    (folder / "data" / "coordinator.json").unlink(missing_ok=True)
