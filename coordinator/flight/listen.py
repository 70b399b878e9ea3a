"""Listen for Flight SQL; the port is bound before any other resource is touched, as HTTP's is."""

from __future__ import annotations

import socket
from importlib import import_module

from dbsp.coordinator.flight.section import FlightSection
from dbsp.coordinator.http.listen import listen_beside
from dbsp.errors import ConfigError

QUEUE = 128
PACKAGES = ("google.protobuf", "sqlglot", "pyarrow.flight")
"""Two of an extra; and a part of pyarrow that some builds lack."""


def bind_flight(section: FlightSection, *, has_tokens: bool, inherited: int | None = None) -> socket.socket | None:
    """Listen on the configured address, or go on with an `inherited` socket; None where no port is set.

    **Errors** `UnavailableError` if it is taken. `ConfigError` if it is not of this host, if strangers could read without
    a token, or if a package is not installed.
    """
    if section.port is None:
        return None
    _refuse_without_packages()
    return listen_beside(section, section.port, QUEUE, has_tokens=has_tokens, inherited=inherited)


def _refuse_without_packages() -> None:
    for package in PACKAGES:
        try:
            import_module(package)
        except ImportError:
            raise ConfigError(
                f"[flight] needs a package that is not installed: package={package}",
                "pip install 'dbsp-engine[flight]'",
            ) from None
