"""Which version to go back to: the greatest that every worker of its own layout holds, under one checkpoint id.

Versions are intersected over the workers of the version's own layout, which the checkpoint id names
(docs/concepts/coordinator.md). Databases of other workers are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dbsp.coordinator.decisions import commands, events, states
from dbsp.distribute.course import Course
from dbsp.errors import AwayError, CapacityError, OverloadedError, UnavailableError
from dbsp.layout import Layout, homes
from dbsp.store import CheckpointId, VersionInfo

PASSING = frozenset({UnavailableError.code, AwayError.code, OverloadedError.code, CapacityError.code})
"""Kinds of errors that waiting may cure. Any other kind is tried once more, as a rollback makes all workers anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The version to open, the checkpoint it holds, and the layout to open it in."""

    version: int
    checkpoint: CheckpointId
    layout: Layout


def choose(
    held: Mapping[int, Sequence[VersionInfo]], layouts: Mapping[int, Layout], *, run: str, fingerprint: str
) -> Choice | None:
    """The greatest complete version of this run and fingerprint, or None.

    **Law** the result's version v is held, with one and the same checkpoint id, by every worker of the id's layout; no
    greater v is. Versions of another run or fingerprint, or of a layout nobody logged, do not count.
    """
    candidates = {
        (info.version, info.checkpoint)
        for infos in held.values()
        for info in infos
        if info.checkpoint.run == run
        and info.checkpoint.fingerprint == fingerprint
        and info.checkpoint.layout_version in layouts
    }
    complete = [
        Choice(version=version, checkpoint=checkpoint, layout=layouts[checkpoint.layout_version])
        for version, checkpoint in candidates
        if _is_held(held, layouts[checkpoint.layout_version], version, checkpoint)
    ]
    return max(complete, key=lambda choice: (choice.version, choice.checkpoint.epoch), default=None)


def learned(facts: states.Facts, standing: events.LedgerState) -> states.Facts:
    """The facts with what the ledger says; the hosts that are offered are ours, and so is what was asked of us but a rescale."""
    layouts = {number: replace(layout, offered=facts.layout.offered) for number, layout in standing.layouts.items()}
    courses = {number: under_way(course, layouts) for number, course in standing.courses.items()}
    requested = replace(facts.requested, rescale=standing.rescale, strategy=standing.strategy)
    return replace(
        facts, layouts=layouts, layout=layouts[standing.used], members=standing.members, forming=standing.forming,
        published=standing.published, accepted=standing.accepted, fill=standing.fill, requested=requested, courses=courses,
        course=courses.get(standing.used),
    )  # fmt: skip


def needed(facts: states.Facts) -> frozenset[int]:
    """Return the workers that a start cannot do without: those of the layout of the published version.

    Others may hold a newer version, which nobody was told of; with them or without them the pipeline goes on.
    """
    return frozenset(facts.layout.workers)


def fence(facts: states.Facts) -> commands.FenceWorkers:
    """The command that fences all members, and waits for those that are needed alone."""
    wanted = tuple(sorted(needed(facts)))
    others = tuple(sorted(facts.members - needed(facts)))
    return commands.FenceWorkers(
        epoch=facts.epoch, workers=wanted, hosts=hosts_of(facts, wanted), others=others,
        other_hosts=hosts_of(facts, others),
    )  # fmt: skip


def without_choice(
    facts: states.Facts, held: Mapping[int, Sequence[VersionInfo]], found: int | None
) -> events.Failed | None:
    """Return why there is no version to open, where workers that were not reached may hold one; else None."""
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


def under_way(course: Course, layouts: Mapping[int, Layout]) -> Course:
    """The course between these layouts, as they are offered hosts now."""
    return replace(course, old=layouts[course.old.version], new=layouts[course.new.version])


def destined(layout: Layout, courses: Mapping[int, Course]) -> int:
    """How many workers there are, or will be when the migration whose steps run in this layout is over."""
    course = courses.get(layout.version)
    return len((layout if course is None else course.new).workers)


def hosts_of(facts: states.Facts, workers: Iterable[int]) -> tuple[str, ...]:
    """Where these workers live, as the newest layout that has each says; nothing where no host is named."""
    places = homes(facts.layouts.values())
    found = tuple(places.get(worker, "") for worker in workers)
    return found if any(found) else ()


def story(held: Mapping[int, Sequence[VersionInfo]]) -> str:
    """What every worker holds, for the message when nothing fits."""
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
    """Return the story by which an error that waiting does not cure is known again; None for one that may pass.

    Numbers are left out: epochs, process ids and sizes differ from try to try.
    """
    if event.code in PASSING:
        return None
    return f"{event.code}: {re.sub('[0-9]+', '#', event.message.partition(chr(10))[0])}"
