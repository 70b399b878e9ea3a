"""The command line: this module has the two console scripts, `cli` has the commands of `coordinator`.

The scripts print what to install if the service's packages are missing. They refuse to run if the distribution called
`dbsp` on Python's index is installed: another project owns that name, so it was installed by mistake.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from dbsp.errors import ConfigError

PACKAGES = frozenset({"fastapi", "starlette", "pydantic", "uvicorn", "httpx", "prometheus_client", "duckdb"})
MISSING_EXIT = ConfigError.exit_code


def service() -> None:
    """Run the console script `dbsp-coordinator`."""
    _run("dbsp.coordinator.serve")


def client() -> None:
    """Run the console script `coordinator`."""
    _run("dbsp.coordinator.commands.cli")


def foreign() -> str | None:
    """Return the summary of an installed distribution called `dbsp` that is not this project's; None without one.

    Version 0.1.0 of this project was installed under that name, too, and brings the same commands.
    """
    installed = [found for folder in sys.path for found in Path(folder).glob("dbsp-*.dist-info")]
    if not installed:  # the usual case, without a slow import
        return None
    metadata = importlib.import_module("importlib.metadata")
    try:
        found = metadata.distribution("dbsp")
    except metadata.PackageNotFoundError:
        return None
    ours = any(each.value.startswith("dbsp.coordinator") for each in found.entry_points)
    return None if ours else str(found.metadata["Summary"])


def _run(module: str) -> None:
    other = foreign()
    if other is not None:
        sys.stderr.write(f"error: another project's package named dbsp is installed here: summary={other!r}\n")
        sys.stderr.write(
            "hint: pip uninstall dbsp; pip install --force-reinstall --no-deps WHEEL, the wheel of dbsp-engine\n"
        )
        sys.exit(MISSING_EXIT)
    try:
        main = importlib.import_module(module).main
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PACKAGES:
            raise
        sys.stderr.write(f"error: the service needs a package that is not installed: package={error.name}\n")
        sys.stderr.write("hint: pip install 'dbsp-engine[service]' (with Spark: 'dbsp-engine[service,spark]')\n")
        sys.exit(MISSING_EXIT)
    main()
