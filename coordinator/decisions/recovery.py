"""Choose the version to return to: the greatest that every worker of its layout holds, under one checkpoint id.

Versions are intersected over the workers of the version's own layout, which the checkpoint id names
(docs/concepts/coordinator.md). Databases of other workers are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dbsp.coordinator.decisions import commands, events, states
from dbsp.distribute.migration_plan import MigrationPlan
from dbsp.errors import AwayError, CapacityError, OverloadedError, UnavailableError
from dbsp.hosts import Offered, remaining
from dbsp.layout import Layout, homes, is_balanced
from dbsp.store import CheckpointId, VersionInfo

PASSING = frozenset({UnavailableError.code, AwayError.code, OverloadedError.code, CapacityError.code})
"""Kinds of errors that may pass with time. Another error gets one retry, because a rollback creates all workers anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The version to open, its checkpoint id, and the layout to open it in."""

    version: int
    checkpoint: CheckpointId
    layout: Layout


def choose(
    held: Mapping[int, Sequence[VersionInfo]], layouts: Mapping[int, Layout], *, run: str, fingerprint: str
) -> Choice | None:
    """Return the greatest complete version of this run and fingerprint, or None: see `complete`."""
    found = complete(held, layouts, run=run, fingerprint=fingerprint)
    return found[-1] if found else None


def complete(
    held: Mapping[int, Sequence[VersionInfo]], layouts: Mapping[int, Layout], *, run: str, fingerprint: str
) -> list[Choice]:
    """Return the complete versions of this run and fingerprint, least first.

    **Law** every worker of the checkpoint id's layout holds the version under the same id. Versions of another run or
    fingerprint, or of a layout that was never logged, do not count.
    """
    candidates = {
        (info.version, info.checkpoint)
        for infos in held.values()
        for info in infos
        if info.checkpoint.run == run
        and info.checkpoint.fingerprint == fingerprint
        and info.checkpoint.layout_version in layouts
    }
    choices = [
        Choice(version=version, checkpoint=checkpoint, layout=layouts[checkpoint.layout_version])
        for version, checkpoint in candidates
        if _is_held(held, layouts[checkpoint.layout_version], version, checkpoint)
    ]
    return sorted(choices, key=lambda choice: (choice.version, choice.checkpoint.epoch))


def chosen(facts: states.Facts, held: Mapping[int, Sequence[VersionInfo]]) -> Choice | None:
    """Return the greatest complete version (`choose`), but none above the published one that standbys on other hosts may lack.

    When a version is opened, workers discard the one before it. If a host is lost then, its workers' state is lost,
    too. Before the first checkpoint the workers of a lost host begin again from version 0, which the others must still
    have.
    """
    if facts.only_published or (not facts.published and any(facts.layout.hosts)):
        held = {worker: [info for info in infos if info.version <= facts.published] for worker, infos in held.items()}
    return choose(held, facts.layouts, run=facts.run, fingerprint=facts.fingerprint)


def learned(facts: states.Facts, standing: events.LedgerState) -> states.Facts:
    """Return the facts updated by the ledger; the requests other than a rescale are kept."""
    offered = facts.offered if standing.offered is None else standing.offered
    zones = facts.layout.zones
    layouts = {number: replace(layout, offered=offered, zones=zones) for number, layout in standing.layouts.items()}
    migration_plans = {
        number: under_way(migration_plan, layouts) for number, migration_plan in standing.migration_plans.items()
    }
    requested = replace(
        facts.requested, rescale=standing.rescale, strategy=standing.strategy, hosts=None,
        excluded=standing.rescale_excluded, silent=None,
    )  # fmt: skip
    partitions = facts.partitions if standing.rescale is None else standing.rescale_rows
    return replace(
        facts, layouts=layouts, layout=layouts[standing.used], members=standing.members, forming=standing.forming,
        published=standing.published, accepted=standing.accepted, fill=standing.fill, requested=requested,
        moved=standing.moved, partitions=partitions,
        migration_plans=migration_plans,
        migration_plan=migration_plans.get(standing.used),
    )  # fmt: skip


def counted(facts: states.Facts, seen: Mapping[str, tuple[int, ...]] | None) -> Mapping[str, tuple[int, ...]] | None:
    """Return the recent rows of each input partition; `seen` are those that were counted now.

    A requested rescale keeps the rows of its request, because after a restart no rows are counted; newer partitions have 0.
    """
    asked = facts.partitions or {}
    if facts.requested.rescale is None or not any(any(rows) for rows in asked.values()):
        return seen or facts.partitions
    more = {table: (0,) * (len(rows) - len(asked.get(table, ()))) for table, rows in (seen or {}).items()}
    return {table: (*asked.get(table, ()), *more.get(table, ())) for table in sorted({*asked, *more})}


def needed(facts: states.Facts) -> frozenset[int]:
    """Return the workers that every start needs: those of the layout of the published version.

    Other workers may hold a newer version that was never acknowledged to anyone. The pipeline goes on with or without
    them.
    """
    return frozenset(facts.layout.workers)


def fence(facts: states.Facts) -> commands.FenceWorkers:
    """Return the command that fences all members, but waits only for the needed ones."""
    wanted = tuple(sorted(needed(facts)))
    others = tuple(sorted(facts.members - needed(facts)))
    return commands.FenceWorkers(
        epoch=facts.epoch, workers=wanted, hosts=hosts_of(facts, wanted), others=others,
        other_hosts=hosts_of(facts, others), offered=tuple(host for host, _ in facts.offered),
    )  # fmt: skip


def read_versions(facts: states.Facts, others: tuple[int, ...]) -> commands.ReadVersions:
    """Return the command that asks the needed workers, and the reachable others, for their versions."""
    workers = tuple(sorted(needed(facts) | frozenset(others)))
    return commands.ReadVersions(epoch=facts.epoch, workers=workers, hosts=hosts_of(facts, workers))


def return_to_copies(facts: states.Facts, held: Mapping[int, Sequence[VersionInfo]]) -> commands.ReturnToCopies:
    """Return the command that goes back to the copies; it names the needed workers that lack the published version."""
    there = {worker: {info.version for info in infos} for worker, infos in held.items()}
    lost = tuple(sorted(worker for worker in needed(facts) if facts.published not in there.get(worker, ())))
    found = {worker: tuple(infos) for worker, infos in held.items()}
    return commands.ReturnToCopies(epoch=facts.epoch, held=found, lost=lost, hosts=hosts_of(facts, lost))


def none_fits(facts: states.Facts, held: Mapping[int, Sequence[VersionInfo]], choice: Choice | None) -> str:
    """Return the error message for a recovery that finds no version as new as the published one."""
    found = "none" if choice is None else choice.version
    return f"no version that every worker of its layout holds: published={facts.published} found={found} {story(held)}"


def without_choice(
    facts: states.Facts, held: Mapping[int, Sequence[VersionInfo]], found: int | None
) -> events.Failed | None:
    """Return a failure if a worker that was not reached may hold a version to open; None if all were reached."""
    missing = tuple(sorted(facts.members - held.keys()))
    if not missing:
        return None
    hosts = hosts_of(facts, missing)
    shown = "none" if found is None else found
    message = (
        f"no version that every worker of its layout holds, and some workers were not reached: workers={list(missing)}"
        f" hosts={list(hosts)} published={facts.published} found={shown} {story(held)}"
    )
    return events.Failed(code="unavailable", message=message)


def under_way(migration_plan: MigrationPlan, layouts: Mapping[int, Layout]) -> MigrationPlan:
    """Return the migration plan with its layouts replaced by these, which offer the present hosts."""
    return replace(migration_plan, old=layouts[migration_plan.old.version], new=layouts[migration_plan.new.version])


def serves(
    layout: Layout,
    migration_plans: Mapping[int, MigrationPlan],
    workers: int | None,
    offered: Offered | None,
    partitions: Mapping[str, Sequence[int]] | None = None,
    excluded: Collection[str] | None = None,
) -> bool:
    """Return whether a layout is what a rescale to this many workers on these hosts asks for; False without a rescale.

    If a migration's steps run in the layout, the layout at its end decides. With None the hosts of the layout count.
    `partitions` has the rows of each input partition by which the rescale chooses their readers. `excluded` are the hosts
    that it leaves out.
    """
    if workers is None:
        return False
    migration_plan = migration_plans.get(layout.version)
    final = layout if migration_plan is None else migration_plan.new
    usable = remaining(final.offered if offered is None else offered, excluded)
    return is_balanced(replace(final, offered=usable), workers, partitions)


def hosts_of(facts: states.Facts, workers: Iterable[int]) -> tuple[str, ...]:
    """Return the host of each worker, by the newest layout that has the worker; empty if no host is named."""
    places = homes(facts.layouts.values())
    found = tuple(places.get(worker, "") for worker in workers)
    return found if any(found) else ()


def story(held: Mapping[int, Sequence[VersionInfo]]) -> str:
    """Describe the versions that every worker has, for the error message if no version is complete."""
    shown = {
        worker: [
            f"v{i.version}@step{i.checkpoint.step}/layout{i.checkpoint.layout_version}/epoch{i.checkpoint.epoch}"
            for i in infos
        ]
        for worker, infos in sorted(held.items())
    }
    return f"held={shown}"


def _is_held(held: Mapping[int, Sequence[VersionInfo]], layout: Layout, version: int, checkpoint: CheckpointId) -> bool:
    return all(
        any(info.version == version and info.checkpoint == checkpoint for info in held.get(worker, ()))
        for worker in layout.workers
    )


def lasting_story(event: events.Failed) -> str | None:
    """Return a text that identifies an error which waiting does not cure; None for an error that may pass.

    Numbers are masked: epochs, process ids and sizes differ from try to try.
    """
    if event.code in PASSING:
        return None
    return f"{event.code}: {re.sub('[0-9]+', '#', event.message.partition(chr(10))[0])}"


def without_copy(facts: states.Facts) -> states.Facts:
    """Forget the checkpoint in flight because of a rollback, and request it again."""
    if facts.copying is None:
        return facts
    return replace(facts, copying=None, requested=replace(facts.requested, checkpoint=True))


def without_upgrade(facts: states.Facts, reason: str) -> states.Facts:
    """Drop a requested upgrade after a failure: steps above the next checkpoint are logged, and this version must run them."""
    if not facts.requested.upgrade:
        return facts
    return replace(facts, requested=replace(facts.requested, upgrade=False), upgrade_error=reason)
