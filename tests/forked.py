"""Processes for tests that start and kill many: forks of a server that has loaded the service and its kernels, and no more.

Loading would take most of what such a process costs. The commands themselves are started by `tests.coordinator.shop` and
`tests.kafka.shop`.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Forked:
    """A process that runs a function; as much of `subprocess.Popen` as the tests need.

    The function must be at the top of a module; what it says is added to the file `out`. It leads a session of its own.
    """

    def __init__(self, out: Path, function: Callable[..., Any], *arguments: Any) -> None:
        """Start it."""
        self._process = _SERVER.Process(target=_run, args=(out, function, arguments), daemon=True)
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
        """End it, and what is left in its process group."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:  # it has ended, or has not come so far as to lead a group
            self._process.kill()


def _run(out: Path, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """In the child."""
    os.setsid()
    with out.open("ab") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    function(*arguments)


def ended(
    module: str, *arguments: str, folder: Path | None = None, given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the `main` of a module to its end, as `python -m module arguments` does, with a text on its standard input."""
    with tempfile.TemporaryDirectory(prefix="dbsp-said-") as place:
        out, err, standard_in = Path(place) / "out", Path(place) / "err", Path(place) / "in"
        standard_in.write_text(given)
        process = Forked(out, _main, module, arguments, folder or Path.cwd(), standard_in, err)
        try:
            code = process.wait(120)
        finally:
            process.kill()
        return subprocess.CompletedProcess([module, *arguments], code, out.read_text(), err.read_text())


def _main(module: str, arguments: tuple[str, ...], folder: Path, standard_in: Path, err: Path) -> None:
    """Run the module's `main` in the child."""
    os.chdir(folder)
    with err.open("wb") as stream:
        os.dup2(stream.fileno(), 2)
    with standard_in.open("rb") as stream:
        os.dup2(stream.fileno(), 0)
    sys.stdin = open(0)  # noqa: SIM115 - multiprocessing has put an empty one in its place
    sys.argv = [module, *arguments]
    importlib.import_module(module).main()


_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload([__name__, "tests.preloads"])
