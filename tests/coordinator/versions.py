"""Another version of dbsp beside this one, as if it were installed: only its number differs, or what a test adds to it.

An installation is a folder on `PYTHONPATH` whose `sitecustomize.py` has `dbsp.version` read from that folder; all other modules
are the ones under test. `current` is a link to one of them: what is installed is changed under a running service by changing the
link, as `pip install` changes files. The product knows nothing of this.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

NO_CHECKPOINTS = "[checkpoint]\ninterval_s = 3600"
SITE = """
import importlib.util, sys
from pathlib import Path

FILE = Path(__file__).with_name("version.py")

class Installed:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return importlib.util.spec_from_file_location(name, FILE) if name == "dbsp.version" else None

sys.meta_path.insert(0, Installed)
"""


class Installations:
    """Versions in a folder, one of which is installed."""

    def __init__(self, folder: Path) -> None:
        """None is, yet."""
        self._folder = folder
        self.current = folder / "current"

    def install(self, version: str, more: str = "") -> None:
        """From now on every new process is of this version; `more` is run when it is imported."""
        resources = self._folder / f"dbsp-{version}-{len(list(self._folder.iterdir()))}"
        resources.mkdir(parents=True)
        (resources / "sitecustomize.py").write_text(SITE)
        (resources / "version.py").write_text(f'VERSION = "{version}"\n{more}\n')
        link = self._folder / "new"
        link.symlink_to(resources.name)
        link.rename(self.current)

    def environment(self) -> Mapping[str, str]:
        """That of a process that runs what is installed."""
        return {**os.environ, "PYTHONPATH": os.pathsep.join([str(self.current), *sys.path])}

    def python(self, version: str, more: str = "") -> Path:
        """The interpreter of an environment of its own, in which a version is installed beside the others."""
        before = self.current.readlink() if self.current.is_symlink() else None
        self.install(version, more)
        folder = self.current.resolve()
        if before is not None:
            (self._folder / "new").symlink_to(before)
            (self._folder / "new").rename(self.current)
        script = folder / "python"
        path = shlex.quote(os.pathsep.join([str(folder), *sys.path]))
        script.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {shlex.quote(sys.executable)} "$@"\n')
        script.chmod(0o755)
        return script

    def run(
        self, name: str, *arguments: str, folder: Path, given: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A command line of what is installed, to its end."""
        command = [sys.executable, "-m", f"dbsp.coordinator.{name}", *arguments]
        return subprocess.run(
            command, cwd=folder, input=given, capture_output=True, text=True, timeout=120, check=False,
            env=self.environment(),
        )  # fmt: skip

    @contextmanager
    def serving(self, folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """The service of what is installed, answering; it ends with the block."""
        command = [sys.executable, "-m", "dbsp.coordinator.serve", "pipeline.toml", "--no-progress", *arguments]
        said = folder / "said.txt"
        with said.open("a") as stream:
            process = subprocess.Popen(command, cwd=folder, stderr=stream, text=True, env=self.environment())
        try:
            begin = said.stat().st_size
            while b"answering at" not in said.read_bytes()[begin:] and process.poll() is None:
                with_patience(process)
            yield process
        finally:
            process.kill()
            process.wait()


def with_patience(process: subprocess.Popen[str], pause_s: float = 0.05) -> None:
    """Give the process a moment; less if it ends."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(pause_s)
