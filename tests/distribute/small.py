"""Small keys for tests of single distributors: eight shards, key k has a hash in shard k; messages as plain values."""

from __future__ import annotations

from typing import Any

import numpy as np

from dbsp.distribute.messages import Event, Local, Received, RowsMessage, shown
from dbsp.layout import Layout


def layout(version: int, *owners: int, more: tuple[int, ...] = ()) -> Layout:
    """Eight shards and their owners; `more` workers own nothing."""
    names = tuple(sorted({*owners, *more}))
    return Layout(
        version=version, owners=owners, workers=names, hosts=("",) * len(names), first_steps=(0,) * len(names)
    )


def h(*keys: int) -> Any:
    """The hashes of small keys, each in the shard of its number."""
    return np.array([key << 61 for key in keys], np.uint64)


def told(distributor: Any, *events: Event) -> tuple[Any, list[Any]]:
    """What comes of some events; key hashes are shown as the small keys."""
    out: list[Any] = []
    for event in events:
        distributor, wanted = distributor.handle(event)
        out += wanted
    return distributor, [_small(shown(item)) for item in out]


def _small(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_small(item) for item in value)
    if isinstance(value, dict):
        return {
            name: [key >> 61 for key in item] if name in ("keys", "whitelist", "hold", "following") else _small(item)
            for name, item in value.items()
        }
    return value


def rows(*keys: int) -> Local:
    """Rows of these keys from upstream, numbered by their keys."""
    return Local(keys=h(*keys), rows=np.array(keys, np.int64))


def from_(sender: int, version: int, *keys: int) -> Received:
    """The same from another worker."""
    return Received(sender=sender, message=RowsMessage(version=version, keys=h(*keys), rows=np.array(keys, np.int64)))


def passed(*keys: int) -> Any:
    """They go downstream here."""
    return "Pass", {"keys": list(keys), "rows": list(keys)}


def sent(to: int, version: int, *keys: int) -> Any:
    """They go to another worker."""
    return "Send", {"to": to, "message": ("RowsMessage", {"version": version, "keys": list(keys), "rows": list(keys)})}
