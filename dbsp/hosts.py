"""The hosts that a layout may use."""

from __future__ import annotations

from collections.abc import Sequence

from dbsp.errors import ConfigError


def check_hosts(offered: Sequence[tuple[str, float]]) -> None:
    """Refuse a host that is named twice or weighs nothing."""
    names = [name for name, _ in offered]
    if len(set(names)) < len(names):
        raise ConfigError(f"a host is named twice: hosts={names}", "name each host once in [layout] hosts")
    for name, weight in offered:
        if not 0 < weight < float("inf"):
            raise ConfigError(f"a host must weigh more than nothing: host={name} weight={weight}")
