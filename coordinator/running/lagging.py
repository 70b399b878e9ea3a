"""The changes of the ledger while copies lag behind the checkpoints (`copies_required = 0`).

`Ledger.copied` is the version to which all workers can return: the newest one that is known to be whole among the copies. Logs,
output progress and layouts are kept from there. It may be older than the newest one that is there, never newer.

Invariant: no step runs in a layout or a circuit of which no version is whole in the copies. So whatever was logged since the
version of `copied` can be run again from there.

Source: docs/design/0055-copies-that-lag.md.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from dbsp.coordinator.running import control as ledgers
from dbsp.coordinator.running.control import Ledger, Saved
from dbsp.store import CheckpointId


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedVersion:
    """A version that is whole among the copies; `saved` is None for the empty state."""

    version: int
    saved: Saved | None
    wall_us: int

    @property
    def step(self) -> int:
        """Return the first step that is not in the version."""
        return 0 if self.saved is None else self.saved.checkpoint.step


def note_copied(ledger: Ledger, found: CopiedVersion) -> Ledger:
    """Note that logs are kept from this copied version on; a version older than the noted one changes nothing."""
    if ledger.copied is not None and ledger.copied > found.version:
        return ledger
    saved = dict(ledger.saved)
    if found.saved is not None:
        saved[found.version] = replace(found.saved, published=True)
    return replace(ledger, saved=saved, copied=found.version)


def copied_in(ledger: Ledger) -> CopiedVersion | None:
    """Return the version from which the ledger keeps logs; None if there is none."""
    if ledger.copied is None or (ledger.copied and ledger.copied not in ledger.saved):
        return None
    saved = ledger.saved.get(ledger.copied)
    return CopiedVersion(version=ledger.copied, saved=saved, wall_us=0 if saved is None else saved.wall_us)


def can_return(ledger: Ledger, opened: CheckpointId) -> bool:
    """Return whether steps after the opened version can run again from the version of `copied`: same layout, same circuit."""
    found = copied_in(ledger)
    if found is None:
        return False
    if found.saved is None:
        return opened.layout_version == min(ledger.layouts) and opened.fingerprint == ledger.fingerprint
    there = found.saved.checkpoint
    return (there.layout_version, there.fingerprint) == (opened.layout_version, opened.fingerprint)


def returned(
    ledger: Ledger, found: CopiedVersion, owners: Collection[int], stale: Collection[int], epoch: int
) -> Ledger:
    """Return the ledger as of a version among the copies, from which all steps that are logged run again under a later epoch.

    The databases of the `stale` workers do not have the version: they are made again, whatever older epochs left there. A
    rescale that was published since is requested again.
    """
    newest = ledger.saved.get(ledger.published)
    wanted = None if newest is None else ledger.layouts[newest.checkpoint.layout_version]
    saved = {} if found.saved is None else {found.version: replace(found.saved, published=True)}
    here = min(ledger.layouts) if found.saved is None else found.saved.checkpoint.layout_version
    ledger = replace(
        ledger, saved=saved, copied=found.version, members=ledger.members | frozenset(owners), deaths=None,
        forming=ledger.forming - frozenset(owners), given_up=epoch,
        returned={**ledger.returned, **dict.fromkeys(stale, epoch + 1)},
    )  # fmt: skip
    if (
        wanted is not None
        and len(wanted.workers) != len(ledger.layouts[here].workers)
        and here not in ledger.migration_plans
    ):
        ledger = ledgers.request_rescale(ledger, len(wanted.workers))
    return ledgers.forget_layouts(ledger)
