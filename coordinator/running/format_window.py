"""The rollback window: the time after an upgrade in which the older version can continue from the stored state.

A pipeline that an older version has made keeps its level of formats (`dbsp.stored.levels`). The level rises with the first
checkpoint that is published `rollback_window_s` after this version's first one. The process that publishes it writes
the old formats until it ends; the next start writes the new ones.

Within the window a user may use a feature whose state the older version would misread. Meanwhile the ledger has the
newer form, and the older version refuses it (`beyond`). Source: docs/design/0062.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dbsp.stored.levels import NEWEST

if TYPE_CHECKING:
    from dbsp.coordinator.running.control import Ledger


def risen(ledger: Ledger, wall_us: int, window_us: int) -> Ledger:
    """Return the ledger after a checkpoint of this version was published at `wall_us`: the level rises after the window."""
    if ledger.level >= NEWEST:
        return ledger
    since = wall_us if ledger.own_since_us is None else ledger.own_since_us
    level = NEWEST if wall_us - since >= window_us else ledger.level
    return replace(ledger, own_since_us=since, level=level)


def window_ends_us(ledger: Ledger, window_us: int) -> int | None:
    """Return the end of the rollback window; None if the older version cannot continue, or before the first checkpoint."""
    if ledger.own_since_us is None or beyond(ledger):
        return None
    return ledger.own_since_us + window_us


def beyond(ledger: Ledger) -> tuple[str, ...]:
    """Describe the features of a ledger that the older version must not ignore; empty if it can continue."""
    found = {
        "new formats are written": ledger.level >= NEWEST,
        f"views began anew: {', '.join(sorted(ledger.began))}": bool(ledger.began),
        "a step that fills a changed circuit may have to run again": ledger.fill is not None,
        "copies of checkpoints lag behind": ledger.copied is not None,
        "workers have left lost hosts": bool(ledger.moved),
        "workers have returned to the copies": bool(ledger.returned) or bool(ledger.given_up),
        "another host has been the coordinator": bool(ledger.own_disk_since),
        "workers read input partitions by a table": any(layout.readers for layout in ledger.layouts.values()),
    }
    return tuple(words for words, is_so in found.items() if is_so)
