"""The coordinator's process for the crash tests: the real service, with a point where it kills itself.

`Child(pipeline.toml, "part.method:before|after:n", out)` kills itself with SIGKILL at the n-th call of a method of the runtime,
the logs or the ledger. The product knows nothing of this: the parts are wrapped on their way in.

A child is forked from a server that has loaded the service and its kernels (`tests.crash.preloads`) and done nothing else, since
the tests start some eighty of them and that would take most of a start. The command itself is started by
`tests.coordinator.shop` and `tests.kafka.shop`.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from dbsp.coordinator.config import load_config
from dbsp.coordinator.serve import guarded, run
from dbsp.coordinator.upgrades import Restart


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


def _serve(pipeline: Path, point: str, out: Path, restart: Restart | None, evolve: bool) -> None:
    """In the child: lead a session of its own, as a command does, and run the service until it ends."""
    os.setsid()
    with out.open("ab") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)

    def serve() -> None:
        config = load_config(pipeline)
        deadly = partial(run, config, progress=False, wrap=lambda name, part: Deadly(name, part, point))
        sys.exit(deadly(restart=restart, evolve=evolve))

    sys.exit(guarded(serve))


class Child:
    """One such process; as much of `subprocess.Popen` as the tests need."""

    def __init__(
        self, pipeline: Path, point: str, out: Path, restart: Restart | None = None, *, evolve: bool = False
    ) -> None:
        """Start it; what it says is added to `out`; by `restart` it becomes another version in an upgrade."""
        self._process = _SERVER.Process(target=_serve, args=(pipeline, point, out, restart, evolve), daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        """Its exit code once it has ended, negative for a signal."""
        return self._process.exitcode

    def wait(self, timeout_s: float | None = None) -> int:
        """Its exit code, when it has ended."""
        self._process.join(timeout_s)
        code = self.poll()
        assert code is not None, f"it did not end: pid={self.pid} timeout_s={timeout_s}"
        return code

    def kill(self) -> None:
        """End its whole session."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:  # it has ended, or has not come so far as to lead a session
            self._process.kill()


def changed_by_who_dies(folder: Path, point: str) -> None:
    """The circuit of the pipeline in the folder is changed by a process that is killed at this point."""
    child = Child(folder / "pipeline.toml", point, folder / "said.txt", evolve=True)
    try:
        assert child.wait(120) == -9, (folder / "said.txt").read_text()
    finally:
        child.kill()
    (folder / "data" / "coordinator.json").unlink(missing_ok=True)


_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload([__name__, "tests.crash.preloads"])
