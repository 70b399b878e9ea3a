"""Check the hosts that a layout may use, and find out whether a host is this machine."""

from __future__ import annotations

import functools
import socket
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from dbsp.errors import ConfigError

Offered = tuple[tuple[str, float], ...]
"""Hosts on which workers may be placed, each with its weight: its share of the state against the others."""


Zones = tuple[tuple[str, str], ...]
"""Pairs of a host and its zone, sorted: hosts of one zone may fail together, such as those of one rack."""


def zone_of(host: str, zones: Mapping[str, str]) -> str:
    """Return the zone of a host; a host without an entry is a zone of its own.

    >>> zone_of("a", {"a": "north"}), zone_of("b", {"a": "north"})
    ('north', 'host b')
    """
    return zones.get(host, f"host {host}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostChoice:
    """The hosts that a rescale named, and those of the settings (`[layout] hosts`) at that time.

    The later choice counts: hosts that a rescale named are on offer until the settings name others.
    """

    settings: Offered
    named: Offered | None = None

    @property
    def offered(self) -> Offered:
        """Return the hosts on offer."""
        return self.settings if self.named is None else self.named


def remaining(offered: Offered, excluded: Collection[str] | None) -> Offered:
    """Return the hosts on offer without the excluded ones; all of them if none would remain.

    >>> remaining((("a", 1.0), ("b", 2.0)), ["a"]), remaining((("a", 1.0),), ["a"])
    ((('b', 2.0),), (('a', 1.0),))
    """
    return tuple((host, weight) for host, weight in offered if host not in (excluded or ())) or offered


def check_hosts(offered: Sequence[tuple[str, float]]) -> None:
    """Raise `ConfigError` if a host is named twice, or if its weight is not positive and finite."""
    names = [name for name, _ in offered]
    if len(set(names)) < len(names):
        raise ConfigError(f"a host is named twice: hosts={names}", "name each host once in [layout] hosts")
    for name, weight in offered:
        if not 0 < weight < float("inf"):
            raise ConfigError(
                f"a host's weight must be positive and finite: host={name} weight={weight}",
                "remove the host from the list if it should have no workers",
            )


def hosts_of_text(text: str) -> dict[str, float]:
    """Return the hosts, with their weights, that a text on the command line names.

    **Errors** `ConfigError` for a weight that is no number, and for a host that is named twice or not at all.

    >>> hosts_of_text("a, b=2")
    {'a': 1.0, 'b': 2.0}
    """
    found: dict[str, float] = {}
    for part in text.split(","):
        host, has_weight, weight = (piece.strip() for piece in part.partition("="))
        if len(host.split()) != 1 or host in found:
            raise ConfigError(f"not a list of different hosts: hosts={text!r}", "write them as a,b or a=1,b=2")
        try:
            found[host] = float(weight) if has_weight else 1.0
        except ValueError:
            raise ConfigError(f"a weight is a number: host={host} weight={weight!r}", "write it as a=1,b=2") from None
    return found


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
