"""The packages of optional extras that sections of the settings ask for.

Listeners refuse to start without them, and `--check` names what is missing before anything starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from dbsp.coordinator.settings.config import Config
from dbsp.errors import ConfigError

PACKAGES: Mapping[str, tuple[str, ...]] = {
    "postgres": ("sqlglot",),
    "flight": ("google.protobuf", "sqlglot", "pyarrow.flight"),  # some builds of pyarrow lack their part
    "traces": ("opentelemetry.sdk.trace.export", "opentelemetry.exporter.otlp.proto.http.trace_exporter"),
}
"""The packages that each section of the settings needs; the extra to install has the section's name."""


def refuse_missing(section: str) -> None:
    """Raise `ConfigError` with the line to install if a package of the section cannot be imported."""
    for package in PACKAGES[section]:
        try:
            import_module(package)
        except ImportError:
            raise ConfigError(
                f"[{section}] needs a package that is not installed: package={package}",
                f"pip install 'dbsp-engine[{section}]'",
            ) from None


def check_extras(config: Config) -> None:
    """Raise `ConfigError` for the first section in use whose packages are missing."""
    used = {
        "postgres": config.postgres.port is not None, "flight": config.flight.port is not None,
        "traces": bool(config.traces.endpoint),
    }  # fmt: skip
    for section in PACKAGES:
        if used[section]:
            refuse_missing(section)
