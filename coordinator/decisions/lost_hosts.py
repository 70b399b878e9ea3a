"""Choose new hosts for the workers of hosts that are lost for ever.

Law: a worker whose host answers stays where it is, so the fewest workers move. The moved workers are spread over the hosts that
are left, by their weights. Shards keep their owners: only the host of a worker changes.

Source: docs/design/0049-lost-hosts.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from dbsp.coordinator.decisions import commands, events, states
from dbsp.coordinator.decisions.recovery import needed
from dbsp.hosts import Zones
from dbsp.layout import Layout, homes, placed

HINT = "start the host again, add another one to [layout] hosts, or restore a backup"


def decided(
    facts: states.Facts, event: events.HostsLost
) -> tuple[states.Recovering | states.Broken, tuple[commands.Command, ...]]:
    """Move the needed workers of lost hosts to other hosts; end with an error that names what is lost if they cannot move."""
    there = homes(facts.layouts.values())
    gone = sorted(worker for worker in needed(facts) if there.get(worker) in event.hosts)
    if not event.movable:
        saved = {worker for worker, _ in event.standbys}
        gone = [worker for worker in gone if worker not in saved]
    places = None
    if event.movable or not gone:
        places = relocated(
            there, needed(facts), event.hosts, event.silent, facts.offered, event.standbys, facts.layout.zones
        )
    if places is not None:
        command = commands.MoveWorkers(epoch=facts.epoch, places=tuple(places.items()))
        return states.Recovering(facts=facts, awaits="moved"), (command,)
    why = "no other host is left" if event.movable else "there are no copies of it"
    if facts.only_published and not event.movable:
        why = "no standby that answers has the published version, and there are no copies"
    message = (
        f"a host is lost, and with it the state of its workers, as {why}:"
        f" hosts={', '.join(event.hosts)} workers={gone} published={facts.published}"
    )
    end = commands.Shutdown(code="unavailable", message=message, hint=HINT)
    return states.Broken(facts=facts, code="unavailable", message=message), (end,)


def relocated(
    there: Mapping[int, str],
    workers: Collection[int],
    lost: Collection[str],
    silent: Collection[str],
    offered: Sequence[tuple[str, float]],
    standbys: Collection[tuple[int, str]] = (),
    zones: Zones = (),
) -> dict[int, str] | None:
    """Return the new host of each of these workers whose host is lost; None if no host is left that answers.

    `there` are the hosts of all workers. Where no offered host is left, the hosts of the other workers are used. `standbys` are
    pairs of a worker and a host. A worker that has some goes to one of their hosts, to an offered one if it can. Of hosts that
    are equal otherwise, one in the zone with the fewest workers is chosen.

    >>> relocated({0: "a", 1: "b", 2: "c"}, [0, 1, 2], ["b"], ["b"], [("a", 1.0), ("b", 1.0), ("c", 2.0)])
    {1: 'c'}
    >>> relocated({0: "a", 1: "b", 2: "c"}, [1], ["b"], ["b"], [("a", 1.0), ("c", 9.0)], [(1, "a")])
    {1: 'a'}
    >>> relocated({0: "a"}, [0], ["a"], ["a", "b"], [("a", 1.0), ("b", 1.0)]) is None
    True
    """
    away = {*lost, *silent}
    left = [(host, weight) for host, weight in offered if host not in away]
    left = left or [(host, 1.0) for host in sorted({there[worker] for worker in workers} - away)]
    moving = [worker for worker in sorted(workers) if there.get(worker) in lost]
    places = {worker: host for worker, host in there.items() if worker not in moving}
    ready = {worker: {host for of, host in standbys if of == worker} - away for worker in moving}
    if not left and not (moving and all(ready.values())):
        return None
    for worker in sorted(moving, key=lambda worker: (not ready[worker], worker)):
        found = ready[worker]
        choice = [(host, weight) for host, weight in left if not found or host in found]
        choice = choice or [(host, 1.0) for host in sorted(found)]
        places = placed(places, [worker], choice, zones=zones)
    return {worker: places[worker] for worker in moving}


def with_hosts(layout: Layout, places: Mapping[int, str]) -> Layout:
    """Return the layout with other hosts for the workers in `places`."""
    hosts = (places.get(worker, host) for worker, host in zip(layout.workers, layout.hosts, strict=True))
    return replace(layout, hosts=tuple(hosts))
