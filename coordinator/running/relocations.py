"""The changes of the ledger when workers of lost hosts move (docs/design/0049-lost-hosts.md)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from dbsp.coordinator.decisions.lost_hosts import with_hosts
from dbsp.coordinator.decisions.moved_workers import MovedWorker
from dbsp.coordinator.decisions.recovery import under_way
from dbsp.coordinator.running.control import Ledger
from dbsp.layout import homes as homes_of
from dbsp.runtime.runtime import Stray


def move_workers(ledger: Ledger, places: Mapping[int, str], epoch: int, wall_us: int, *, common_disk: bool) -> Ledger:
    """Note other hosts for these workers, in every layout; their databases there count from this epoch on.

    The databases on the lost hosts are deleted when these answer again, unless all hosts share one disk.
    """
    homes = homes_of(ledger.layouts.values())
    fresh = (
        MovedWorker(
            worker=worker, host=host, lost=homes[worker], epoch=epoch, wall_us=wall_us, made_again=not common_disk,
            stray=not common_disk,
        )
        for worker, host in places.items()
    )  # fmt: skip
    kept = (moved for moved in ledger.moved if moved.stray or moved.worker not in places)
    return replace(with_places(ledger, places), moved=(*kept, *fresh))


def with_places(ledger: Ledger, places: Mapping[int, str]) -> Ledger:
    """Return the ledger with other hosts for these workers, in every layout."""
    layouts = {number: with_hosts(layout, places) for number, layout in ledger.layouts.items()}
    migration_plans = {number: under_way(plan, layouts) for number, plan in ledger.migration_plans.items()}
    return replace(ledger, layouts=layouts, migration_plans=migration_plans)


def forget_strays(ledger: Ledger, gone: Collection[tuple[int, str]]) -> Ledger:
    """Note that the databases that workers left on lost hosts are deleted; `gone` are pairs of worker and host."""
    moved = (replace(moved, stray=moved.stray and (moved.worker, moved.lost) not in gone) for moved in ledger.moved)
    return replace(ledger, moved=tuple(moved))


def strays(ledger: Ledger) -> tuple[Stray, ...]:
    """Return the databases that workers left on lost hosts, except on a host to which the worker has moved back."""
    homes = homes_of(ledger.layouts.values())
    newest = {(moved.worker, moved.lost): moved.epoch for moved in ledger.moved if moved.stray}
    return tuple(
        Stray(worker=worker, host=host, since=epoch)
        for (worker, host), epoch in newest.items()
        if homes.get(worker) != host or worker not in ledger.members
    )


def counts_since(ledger: Ledger) -> dict[int, int]:
    """Return for each worker with state the epoch since which its database counts: one of an older epoch is stale.

    That is `moved_since`, or the epoch of the published version, in which every database with that version was fenced. An older
    one is of an old disk that was put back. Or a late task made an empty one where a disk was lost.
    """
    found, saved = moved_since(ledger), ledger.saved.get(ledger.published)
    if saved is None:
        return found
    checkpoint = saved.checkpoint
    layout = ledger.layouts.get(checkpoint.layout_version)
    had = () if layout is None else sorted(set(layout.workers) & (ledger.members - ledger.forming))
    return found | {worker: max(checkpoint.epoch, found.get(worker, 0)) for worker in had}


def moved_since(ledger: Ledger) -> dict[int, int]:
    """Return for each worker whose database was made again the epoch since which it counts: one of an older epoch is stale.

    That is the epoch of its move, or of a return of all workers to the copies. For workers on the coordinator's own disk it may
    be the epoch in which the coordinator came to this host.
    """
    homes = homes_of(ledger.layouts.values())
    had = ledger.members - ledger.forming
    own = {worker: ledger.own_disk_since for worker in had if not homes[worker] and ledger.own_disk_since}
    moved_to = {
        moved.worker: moved.epoch
        for moved in ledger.moved
        if moved.made_again and moved.worker in had and homes[moved.worker] == moved.host
    }
    returned = {worker: epoch for worker, epoch in ledger.returned.items() if worker in had}
    kinds = (own, moved_to, returned)
    return {worker: max(kind.get(worker, 0) for kind in kinds) for worker in sorted({*own, *moved_to, *returned})}
