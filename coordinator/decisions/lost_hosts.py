"""Choose new hosts for the workers of hosts that are lost for ever, and of disks that are lost while their hosts answer.

**Law** a worker whose host answers and whose disk is there stays where it is, so the fewest workers move. The moved workers
are spread over the remaining hosts, by their weights. Shards keep their owners: only the host of a worker changes.

Source: docs/design/0049-lost-hosts.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from dbsp.coordinator.decisions import commands, events, states
from dbsp.coordinator.decisions.recovery import needed
from dbsp.hosts import Zones
from dbsp.layout import Layout, homes, placed

Decided = tuple[states.Recovering | states.Broken, tuple[commands.Command, ...]]

HINT = "start the host again, add another one to [layout] hosts, or restore a backup"


def decided(facts: states.Facts, event: events.HostsLost | events.DisksLost) -> Decided | events.Failed:
    """Return the next state and commands after the loss of hosts, or of disks whose hosts still answer.

    If no worker of a lost disk can move, the event counts as an ordinary failure: somebody may put the disk back.
    """
    if isinstance(event, events.HostsLost):
        return _of_hosts(facts, event)
    return _of_disks(facts, event) or _without_state(facts, event)


def _of_hosts(facts: states.Facts, event: events.HostsLost) -> Decided:
    """Move the needed workers of lost hosts to other hosts; end with an error that names what is lost if they cannot move."""
    there = homes(facts.layouts.values())
    moving = workers_on(there, needed(facts), event.hosts)
    saved = {worker for worker, _ in event.standbys}
    anew = _begin_again(facts, moving - saved, movable=event.movable)
    gone = [] if event.movable else sorted(moving - saved - anew - facts.forming)
    away = {*event.hosts, *event.silent}
    places = None if gone else _elsewhere(facts, there, moving, away, event.standbys)
    if places is not None:
        return _moved(facts, places, anew, event.hosts)
    why = "there are no copies of it" if gone else "no other host is left"
    if facts.only_published and gone:
        why = "no standby that answers has the published version, and there are no copies"
    message = (
        f"a host is lost, and with it the state of its workers, as {why}:"
        f" hosts={', '.join(event.hosts)} workers={gone or sorted(moving)} published={facts.published}"
    )
    end = commands.Shutdown(code="unavailable", message=message, hint=HINT)
    return states.Broken(facts=facts, code="unavailable", message=message), (end,)


def _of_disks(facts: states.Facts, event: events.DisksLost) -> Decided | None:
    """Continue with workers whose disks are lost while their hosts answer; None if that is impossible now.

    - A worker goes to a host whose standby has the published version.
    - Else it stays, if its disk can be written: where there are copies, the fence has made its database again from these.
    - Else it moves to another host, if it has no state yet, or if its state is among the copies.
    - Before the first checkpoint a worker without any of these begins again from version 0.
    """
    there = homes(facts.layouts.values())
    lost = needed(facts).intersection(event.workers)
    saved = {worker for worker, _ in event.standbys}
    bad = workers_on(there, lost - saved, event.unwritable)
    anew = _begin_again(facts, lost - saved, movable=event.movable)
    if not event.movable:
        bad &= anew | facts.forming
    moving = (lost & saved) | bad
    away = {*event.unwritable, *event.silent}
    places = _elsewhere(facts, there, moving, away, event.standbys) if moving else {}
    return _moved(facts, places, anew, event.unwritable) if places or (places is not None and anew) else None


def _without_state(facts: states.Facts, event: events.DisksLost) -> events.Failed:
    """Return the failure that names the workers whose disks are lost, and the hosts."""
    there = homes(facts.layouts.values())
    hosts = sorted({there.get(worker, "") for worker in event.workers})
    unwritable = f" cannot_be_written={', '.join(event.unwritable)}" if event.unwritable else ""
    story = f"workers={list(event.workers)} hosts={', '.join(hosts)}{unwritable} published={facts.published}"
    why = "no standby that answers has their state, and neither have copies"
    message = f"the disks of workers are lost, and {why}: {story} cause={event.message}"
    return events.Failed(code="data", message=message)


def _begin_again(facts: states.Facts, lost: frozenset[int], *, movable: bool) -> frozenset[int]:
    """Return the workers that begin again from version 0: before the first checkpoint the logs have all of their state."""
    return lost - facts.forming if not (movable or facts.published) else frozenset()


def _elsewhere(
    facts: states.Facts,
    there: Mapping[int, str],
    moving: Collection[int],
    away: Collection[str],
    standbys: Collection[tuple[int, str]],
) -> dict[int, str] | None:
    return relocated(there, needed(facts), moving, away, facts.offered, standbys, facts.layout.zones)


def _moved(facts: states.Facts, places: Mapping[int, str], anew: Collection[int], excluded: tuple[str, ...]) -> Decided:
    command = commands.MoveWorkers(
        epoch=facts.epoch, places=tuple(places.items()), anew=tuple(sorted(anew)), excluded=excluded
    )
    return states.Recovering(facts=facts, awaits="moved"), (command,)


def workers_on(there: Mapping[int, str], workers: Collection[int], hosts: Collection[str]) -> frozenset[int]:
    """Return those of these workers that are on one of the hosts; `there` are the hosts of all workers."""
    return frozenset(worker for worker in workers if there.get(worker) in hosts)


def relocated(
    there: Mapping[int, str],
    workers: Collection[int],
    moving: Collection[int],
    away: Collection[str],
    offered: Sequence[tuple[str, float]],
    standbys: Collection[tuple[int, str]] = (),
    zones: Zones = (),
) -> dict[int, str] | None:
    """Return the new host of each worker in `moving`, none of them in `away`; None if no host is left.

    `there` are the hosts of all workers. Where no offered host is left, the hosts of the other ones of `workers` are used.
    `standbys` are pairs of a worker and a host. A worker that has some goes to one of their hosts, to an offered one if it can.
    Of hosts that are equal otherwise, one in the zone with the fewest workers is chosen.

    >>> relocated({0: "a", 1: "b", 2: "c"}, [0, 1, 2], [1], ["b"], [("a", 1.0), ("b", 1.0), ("c", 2.0)])
    {1: 'c'}
    >>> relocated({0: "a", 1: "b", 2: "c"}, [1], [1], ["b"], [("a", 1.0), ("c", 9.0)], [(1, "a")])
    {1: 'a'}
    >>> relocated({0: "a"}, [0], [0], ["a", "b"], [("a", 1.0), ("b", 1.0)]) is None
    True
    """
    left = [(host, weight) for host, weight in offered if host not in away]
    left = left or [(host, 1.0) for host in sorted({there[worker] for worker in workers}.difference(away))]
    places = {worker: host for worker, host in there.items() if worker not in moving}
    ready = {worker: {host for of, host in standbys if of == worker}.difference(away) for worker in moving}
    if not left and not (moving and all(ready.values())):
        return None
    for worker in sorted(moving, key=lambda worker: (not ready[worker], worker)):
        found = ready[worker]
        choice = [(host, weight) for host, weight in left if not found or host in found]
        choice = choice or [(host, 1.0) for host in sorted(found)]
        places = placed(places, [worker], choice, zones=zones)
    return {worker: places[worker] for worker in sorted(moving)}


def with_hosts(layout: Layout, places: Mapping[int, str]) -> Layout:
    """Return the layout with other hosts for the workers in `places`."""
    hosts = (places.get(worker, host) for worker, host in zip(layout.workers, layout.hosts, strict=True))
    return replace(layout, hosts=tuple(hosts))
