"""The two console scripts, which say what to install where the service's packages are missing."""

from __future__ import annotations

import importlib
import sys

from dbsp.errors import ConfigError

PACKAGES = frozenset({"fastapi", "starlette", "pydantic", "uvicorn", "httpx", "prometheus_client", "duckdb"})
MISSING_EXIT = ConfigError.exit_code


def service() -> None:
    """`dbsp-coordinator`."""
    _run("dbsp.coordinator.serve")


def client() -> None:
    """`coordinator`."""
    _run("dbsp.coordinator.cli")


def _run(module: str) -> None:
    try:
        main = importlib.import_module(module).main
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PACKAGES:
            raise
        sys.stderr.write(f"error: the service needs a package that is not installed: package={error.name}\n")
        sys.stderr.write("hint: pip install 'dbsp[service]' (with Spark: 'dbsp[service,spark]')\n")
        sys.exit(MISSING_EXIT)
    main()
