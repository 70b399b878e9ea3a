"""Listening for Flight SQL: the port is bound before anything else is touched, as HTTP's is."""

from __future__ import annotations

import socket
from importlib import import_module

from dbsp.coordinator.flight.section import FlightSection
from dbsp.coordinator.http.listen import listen_at
from dbsp.coordinator.http.section import LOOPBACK
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
    if section.host not in LOOPBACK and not has_tokens:
        raise ConfigError(
            f"refusing to listen beyond this host without a token: flight.host={section.host}",
            "set `read_token` in [http] or DBSP_HTTP_READ_TOKEN, or listen on 127.0.0.1",
        )
    if inherited is not None:
        return socket.socket(fileno=inherited)
    found = socket.socket(socket.AF_INET6 if ":" in section.host else socket.AF_INET, socket.SOCK_STREAM)
    listen_at(found, "flight", section.host, section.port, QUEUE)
    return found


def _refuse_without_packages() -> None:
    for package in PACKAGES:
        try:
            import_module(package)
        except ImportError:
            raise ConfigError(
                f"[flight] needs a package that is not installed: package={package}",
                "pip install 'dbsp-engine[flight]'",
            ) from None
