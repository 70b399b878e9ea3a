"""Another version of dbsp beside this one, as if it were installed: only its number differs, or what a test adds to it.

An installation is a folder on `PYTHONPATH` whose `sitecustomize.py` has `dbsp.version` read from that folder; all other modules
are the ones under test. `current` is a link to one of them: what is installed is changed under a running service by changing the
link, as `pip install` changes files. The product knows nothing of this.
"""

from __future__ import annotations

import functools
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dbsp.coordinator.address import read_address
from tests import plain_http
from tests.coordinator.shop import MODULES
from tests.forked import Forked, Forks, ended, main
from tests.spark.waiting import until

NO_CHECKPOINTS = "[checkpoint]\ninterval_s = 3600"
RECOVERING = ("Starting", "Recovering", "Replaying")
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


def make(folder: Path, version: str, more: str = "") -> None:
    """Make the folder that stands for an installation."""
    folder.mkdir(parents=True)
    (folder / "sitecustomize.py").write_text(SITE)
    (folder / "version.py").write_text(f'VERSION = "{version}"\n{more}\n')


def path_of(folder: Path) -> dict[str, str]:
    """The variable with which a process is of an installation."""
    return {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}


@functools.cache
def loaded(version: str) -> Forks:
    """Processes of a version, which have loaded it."""
    folder = tempfile.TemporaryDirectory(prefix="dbsp-version-")
    make(Path(folder.name) / version, version)
    return Forks(path_of(Path(folder.name) / version), folder)


class Installations:
    """Versions in a folder, one of which is installed."""

    def __init__(self, folder: Path) -> None:
        """None is, yet."""
        self._folder = folder
        self._loaded: Forks | None = None
        self.current = folder / "current"

    def install(self, version: str, more: str = "") -> None:
        """From now on every new process is of this version; `more` is run when it is imported."""
        resources = self._folder / f"dbsp-{version}-{len(list(self._folder.iterdir()))}"
        make(resources, version, more)
        self._loaded = None if more else loaded(version)
        link = self._folder / "new"
        link.symlink_to(resources.name)
        link.rename(self.current)

    def environment(self) -> Mapping[str, str]:
        """That of a process that runs what is installed."""
        return os.environ | path_of(self.current)

    def python(self, version: str, more: str = "") -> Path:
        """The interpreter of an environment of its own, in which a version is installed beside the others."""
        folder = self._folder / f"python-{version}-{len(list(self._folder.iterdir()))}"
        make(folder, version, more)
        script = folder / "python"
        path = shlex.quote(path_of(folder)["PYTHONPATH"])
        script.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {shlex.quote(sys.executable)} "$@"\n')
        script.chmod(0o755)
        return script

    def run(self, name: str, *arguments: str, folder: Path, given: str = "") -> subprocess.CompletedProcess[str]:
        """A command line of what is installed, to its end."""
        module, variables = MODULES[name], self.environment()
        if self._loaded is not None:
            return ended(module, *arguments, folder=folder, given=given, by=self._loaded, variables=variables)
        return subprocess.run(
            [sys.executable, "-m", module, *arguments],
            cwd=folder, input=given, capture_output=True, text=True, timeout=120, check=False, env=variables,
        )  # fmt: skip

    @contextmanager
    def serving(self, folder: Path, *arguments: str) -> Iterator[Forked | subprocess.Popen[bytes]]:
        """The service of what is installed, recovered and answering; it ends with the block."""
        module, variables = "dbsp.coordinator.serve", self.environment()
        options = ("pipeline.toml", "--no-progress", *arguments)
        said = folder / "said.txt"
        said.touch()
        begin = said.stat().st_size
        process: Forked | subprocess.Popen[bytes]
        if self._loaded is not None:
            process = Forked(said, main, module, options, folder, variables, by=self._loaded)
        else:
            with said.open("ab") as stream:
                process = subprocess.Popen(
                    [sys.executable, "-m", module, *options], cwd=folder, stderr=stream, env=variables
                )
        try:
            until(
                lambda: (
                    process.poll() is not None
                    or (b"answering at" in said.read_bytes()[begin:] and state(folder) not in RECOVERING)
                ),
                "the service has recovered",
            )
            yield process
        finally:
            process.kill()
            process.wait()


def state(folder: Path) -> str:
    """The state of the service in the folder."""
    url = read_address(folder / "data")["url"]
    return str(plain_http.ask("GET", f"{url}/v1/status", timeout_s=60).json()["state"])
