"""The records of a worker that left a lost host, and of a place where a worker has a standby."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedWorker:
    """A worker that is on `host` since epoch `epoch`, because host `lost` was lost.

    - `made_again`: its database on `host` was made from copies, so an older one there is stale.
    - `stray`: an old database may still be on `lost`.
    """

    worker: int
    host: str
    lost: str
    epoch: int
    wall_us: int
    made_again: bool
    stray: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyPlace:
    """A host on which a standby of a worker may be; `kept`: it follows the worker, else it is to be deleted."""

    worker: int
    host: str
    kept: bool
