"""Check the hosts that a layout may use, and find out whether a host is this machine."""

from __future__ import annotations

import functools
import socket
from collections.abc import Sequence
from contextlib import suppress

from dbsp.errors import ConfigError


def check_hosts(offered: Sequence[tuple[str, float]]) -> None:
    """Raise `ConfigError` if a host is named twice, or if its weight is not positive and finite."""
    names = [name for name, _ in offered]
    if len(set(names)) < len(names):
        raise ConfigError(f"a host is named twice: hosts={names}", "name each host once in [layout] hosts")
    for name, weight in offered:
        if not 0 < weight < float("inf"):
            raise ConfigError(f"a host must weigh more than nothing: host={name} weight={weight}")


@functools.cache
def is_here(host: str) -> bool:
    """Return whether a host name resolves to an address of this machine: only such an address can be bound here."""
    try:
        for family, _, _, _, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM):
            with suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as found:
                found.bind(address)
                return True
    except OSError:
        return False
    return False
