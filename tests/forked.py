"""Processes for tests that start and kill many: forks of a server that has loaded the service and its kernels, and no more.

Loading would take most of what such a process costs. The commands themselves are started by `tests.coordinator.shop` and
`tests.kafka.shop`.
"""

from __future__ import annotations

import functools
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager
from multiprocessing import context, forkserver
from pathlib import Path
from typing import Any
from unittest import mock

PRELOADS = "tests.preloads"
ROOT = Path(__file__).parents[1]
_ONE_AT_A_TIME = threading.Lock()


class Forks:
    """A server of forks: it has loaded the service, as it is found with some variables of the environment."""

    def __init__(self, variables: Mapping[str, str], *kept: Any) -> None:
        """Start the server; it may read what is `kept` as long as it runs."""
        self._kept = kept
        self._server = forkserver.ForkServer()
        self._server.set_forkserver_preload([__name__, PRELOADS])
        with mock.patch.dict(os.environ, variables), chdir(ROOT):  # where the server finds what it loads
            self._server.ensure_running()

    @contextmanager
    def forking(self) -> Iterator[None]:
        """Have `multiprocessing`, which knows one server, fork by this one."""
        with (
            _ONE_AT_A_TIME,
            mock.patch.object(forkserver, "connect_to_new_process", self._server.connect_to_new_process),
        ):
            yield


@functools.cache
def usual() -> Forks:
    """The server of this process whose forks are of what is under test."""
    return Forks({})


class Forked:
    """A process that runs a function; as much of `subprocess.Popen` as the tests need.

    The function must be at the top of a module; what it says is added to the file `out`. It leads a session of its own.
    """

    def __init__(self, out: Path, function: Callable[..., Any], *arguments: Any, by: Forks | None = None) -> None:
        """Start it, by the usual server or that one."""
        self._process = context.ForkServerProcess(target=_run, args=(out, function, arguments), daemon=True)
        with (by or usual()).forking():
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
        except ProcessLookupError:  # it has ended, or has not reached this step as to lead a group
            self._process.kill()


def _run(out: Path, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """In the child."""
    os.setsid()
    if PRELOADS not in sys.modules:  # the server passes over what it cannot import, and each child would take 2 s more
        raise RuntimeError(f"the server was started where {PRELOADS} is not found: folder={Path.cwd()}")
    with out.open("ab") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    function(*arguments)


def ended(
    module: str,
    *arguments: str,
    folder: Path | None = None,
    given: str = "",
    by: Forks | None = None,
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the `main` of a module to its end, as `python -m module arguments` does, with a text on its standard input."""
    with tempfile.TemporaryDirectory(prefix="dbsp-said-") as place:
        out, err, standard_in = Path(place) / "out", Path(place) / "err", Path(place) / "in"
        standard_in.write_text(given)
        process = Forked(out, main, module, arguments, folder or Path.cwd(), variables or {}, standard_in, err, by=by)
        try:
            code = process.wait(120)
        finally:
            process.kill()
        return subprocess.CompletedProcess([module, *arguments], code, out.read_text(), err.read_text())


def main(
    module: str,
    arguments: tuple[str, ...],
    folder: Path,
    variables: Mapping[str, str],
    standard_in: Path | None = None,
    err: Path | None = None,
) -> None:
    """Run the module's `main` in the child."""
    os.chdir(folder)
    os.environ.update(variables)
    if err is not None:
        with err.open("wb") as stream:
            os.dup2(stream.fileno(), 2)
    with (standard_in or Path(os.devnull)).open("rb") as stream:
        os.dup2(stream.fileno(), 0)
    sys.stdin = open(0)  # noqa: SIM115 - multiprocessing has put an empty one in its place
    found = importlib.import_module(module)
    sys.argv = [str(found.__file__), *arguments]
    sys.orig_argv = [sys.executable, "-m", module, *arguments]
    found.main()
