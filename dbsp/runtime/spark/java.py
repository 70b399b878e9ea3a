"""Find the Java that Spark needs, so that a missing one is reported clearly before Spark starts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from dbsp.errors import ConfigError

JAVA_MIN = 17
_PROBE_TIMEOUT_S = 30
_HINT = (
    "install Java 17 or newer (Debian, Ubuntu: `apt install openjdk-17-jre-headless`; macOS: `brew install openjdk@17`;"
    " conda: `conda install -c conda-forge openjdk=17`) and put it on the PATH or name its folder in JAVA_HOME"
)


def java_version(text: str) -> int | None:
    """Return the major version in the output of `java -version`; None if there is none.

    >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('java version "1.8.0_402"')
    (17, 8)
    >>> java_version("The operation couldn't be completed. Unable to locate a Java Runtime.")
    """
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None


def java_command(environment: Mapping[str, str] = os.environ) -> str:
    """Return the Java that Spark will start; raise `ConfigError` with the command to install one if there is none."""
    home = environment.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environment.get("PATH"))
    if command is None:
        raise ConfigError("Spark needs Java, and there is no `java` on the PATH", _HINT)
    if home and not Path(command).is_file():
        raise ConfigError(f"Spark needs Java, and it cannot be run: java={command} JAVA_HOME={home}", _HINT)
    return command


def require_java(environment: Mapping[str, str] = os.environ) -> int:
    """Return the version of the Java that Spark will start; raise `ConfigError` if it is absent or too old."""
    command = java_command(environment)
    try:
        probe = subprocess.run(  # noqa: S603  (the user's own java)
            [command, "-version"], capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"Spark needs Java, and it cannot be run: java={command} reason={error}", _HINT) from error
    version = java_version(probe.stderr + probe.stdout)
    if version is None:
        raise ConfigError(f"Spark needs Java, and this one does not tell its version: java={command}", _HINT)
    if version < JAVA_MIN:
        raise ConfigError(f"Spark needs a newer Java: java={command} version={version} version_min={JAVA_MIN}", _HINT)
    return version
