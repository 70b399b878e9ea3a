"""Choose the hosts of standbys: never the worker's own, in another zone if there is one, spread evenly, with few moves.

Placing is an assignment of least cost. The costs are compared in this order:

1. standbys that are not placed, because too few other hosts are there;
2. standbys in the zone of their worker;
3. the balance: the sum over hosts of n * n / weight, for n standbys on a host;
4. standbys that are not where they were.

`place_standbys` moves standbys along chains of hosts until no chain lowers the cost. This is the min-cost flow of Busacker and
Gowen. Its graph has a node for each host. The edge from host g to host h is the cheapest standby that can move there.

Source: docs/design/0056-standbys-on-other-hosts.md. No I/O here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from dbsp.errors import InternalError
from dbsp.hosts import zone_of

LOAD_UNIT = 1_000_000_007
"""Loads are integers, so that sums of costs are exact: a standby on an empty host of weight 1 costs this much."""

Cost = tuple[int, int, int]
"""Standbys in their worker's zone, load, and standbys that moved; compared in this order."""
NOTHING: Cost = (0, 0, 0)
_ANY = -1
"""The node of the graph at which a chain ends: the load of the last host grows by one standby."""


def place_standbys(
    homes: Mapping[int, str],
    offered: Sequence[tuple[str, float]],
    per_worker: int,
    zones: Mapping[str, str] | None = None,
    before: Mapping[int, Collection[str]] | None = None,
) -> dict[int, tuple[str, ...]]:
    """Return the hosts of the standbys of every worker, sorted; fewer than `per_worker` where too few other hosts are offered.

    **Shape** `homes` has the host of each worker. `offered` are the hosts that may have standbys, with their weights. A host
    without an entry in `zones` is a zone of its own. `before` are the hosts that the standbys are on now.
    **Law** no standby is on its worker's own host, and no two of a worker are on one host. Of all such placements the result
    has the least cost, as the head of this module says. So with equal weights the numbers of standbys of two hosts differ by
    at most one, unless a host may not have more. A second call with the result as `before` changes nothing.
    **Cost** about standbys * hosts * (standbys + hosts) operations for new standbys, less for placed ones.

    >>> place_standbys({0: "a", 1: "b", 2: "c"}, [("a", 1.0), ("b", 1.0), ("c", 1.0)], 1)
    {0: ('b',), 1: ('c',), 2: ('a',)}
    """
    placing = _Placing(homes=homes, weights=dict(offered), zones=zones or {}, before=before or {})
    for worker in sorted(homes):
        known = [host for host in sorted(placing.before.get(worker, ())) if placing.allows(worker, host)]
        for host in known[:per_worker]:
            placing.put(worker, host)
    for worker in sorted(homes):
        for _ in range(min(per_worker, placing.room(worker)) - len(placing.at[worker])):
            placing.add(worker)
    while placing.improved():
        pass
    return {worker: tuple(sorted(placing.at[worker])) for worker in sorted(homes)}


@dataclass(slots=True, kw_only=True)
class _Placing:
    """The standbys that are placed so far: `at` has the hosts of each worker's, `there` the workers of each host's."""

    homes: Mapping[int, str]
    weights: Mapping[str, float]
    zones: Mapping[str, str]
    before: Mapping[int, Collection[str]]
    at: dict[int, set[str]] = field(init=False)
    there: dict[str, set[int]] = field(init=False)
    hosts: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.at = {worker: set() for worker in self.homes}
        self.there = {host: set() for host in sorted(self.weights)}
        self.hosts = sorted(self.weights)

    def allows(self, worker: int, host: str) -> bool:
        """Return whether a standby of the worker may be on this host."""
        return host in self.weights and host != self.homes[worker]

    def room(self, worker: int) -> int:
        """Return the number of hosts that may have a standby of the worker."""
        return len(self.hosts) - (self.homes[worker] in self.weights)

    def put(self, worker: int, host: str) -> None:
        self.at[worker].add(host)
        self.there[host].add(worker)

    def take(self, worker: int, host: str) -> None:
        self.at[worker].discard(host)
        self.there[host].discard(worker)

    def _of(self, worker: int, host: str) -> Cost:
        """Return the cost of a standby of the worker on this host, without its load."""
        home = self.homes[worker]
        near = zone_of(host, self.zones) == zone_of(home, self.zones)
        return int(near), 0, int(host not in self.before.get(worker, ()))

    def _load(self, host: str, number: int) -> Cost:
        """Return what the standby number `number` of a host, from 0 on, adds to the balance."""
        return 0, round((2 * number + 1) * LOAD_UNIT / self.weights[host]), 0

    def _edges(self) -> dict[tuple[int, int], tuple[Cost, int | None]]:
        """Return for each pair of nodes the cost of moving one standby from the first to the second, and its worker."""
        found = dict[tuple[int, int], tuple[Cost, int | None]]()
        for here, host in enumerate(self.hosts):
            count = len(self.there[host])
            found[here, _ANY] = self._load(host, count), None
            if count:
                found[_ANY, here] = _minus(NOTHING, self._load(host, count - 1)), None
            for worker in sorted(self.there[host]):
                for other, aim in enumerate(self.hosts):
                    if aim not in self.at[worker] and self.allows(worker, aim):
                        cost = _minus(self._of(worker, aim), self._of(worker, host))
                        if (here, other) not in found or cost < found[here, other][0]:
                            found[here, other] = cost, worker
        return found

    def add(self, worker: int) -> None:
        """Place one more standby of the worker, and move others if that is better."""
        starts = {
            here: self._of(worker, host)
            for here, host in enumerate(self.hosts)
            if host not in self.at[worker] and self.allows(worker, host)
        }
        edges = self._edges()
        came = _shortest(starts, edges, len(self.hosts) + 1)
        chain = [_ANY]
        while (previous := came.get(chain[-1])) is not None:
            chain.append(previous)
        chain.reverse()
        self._move(chain, edges)
        self.put(worker, self.hosts[chain[0]])

    def improved(self) -> bool:
        """Move standbys along a ring that lowers the cost; return False if there is none."""
        edges = self._edges()
        nodes = [*range(len(self.hosts)), _ANY]
        ring = cheaper_ring(nodes, edges)
        if ring is None:
            return False
        self._move([*ring, ring[0]], edges)
        return True

    def _move(self, chain: Sequence[int], edges: Mapping[tuple[int, int], tuple[Cost, int | None]]) -> None:
        """Move one standby along each edge of a chain."""
        moves = [(edges[pair][1], *pair) for pair in pairwise(chain)]
        for worker, here, _ in moves:
            if worker is not None:
                self.take(worker, self.hosts[here])
        for worker, _, aim in moves:
            if worker is not None:
                self.put(worker, self.hosts[aim])


def _plus(one: Cost, other: Cost) -> Cost:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _minus(one: Cost, other: Cost) -> Cost:
    return one[0] - other[0], one[1] - other[1], one[2] - other[2]


def _shortest(
    starts: Mapping[int, Cost], edges: Mapping[tuple[int, int], tuple[Cost, int | None]], nodes: int
) -> dict[int, int | None]:
    """Return the node before each node on its cheapest way from the starts (Bellman and Ford); None at a start."""
    costs, came = dict(starts), dict[int, int | None].fromkeys(starts)
    for _ in range(nodes):
        changed = False
        for (here, aim), (cost, _worker) in edges.items():
            if here in costs and here != _ANY:
                new = _plus(costs[here], cost)
                if aim not in costs or new < costs[aim]:
                    costs[aim], came[aim], changed = new, here, True
        if not changed:
            break
    return came


def cheaper_ring(nodes: Sequence[int], edges: Mapping[tuple[int, int], tuple[Cost, int | None]]) -> list[int] | None:
    """Return the nodes of a ring of edges whose sum is below nothing, in order; None if there is none (Bellman and Ford)."""
    costs, came = dict.fromkeys(nodes, NOTHING), dict[int, int]()
    for _ in nodes:
        improved = False
        for (here, aim), (cost, _worker) in edges.items():
            new = _plus(costs[here], cost)
            if new < costs[aim]:
                costs[aim], came[aim], improved = new, here, True
        if not improved:
            return None
        ring = _ring_of(came)  # its sum is below nothing: else no cost would have been lowered around it
        if ring is not None:
            return ring
    raise InternalError(f"costs fall for ever, and no ring is there: nodes={list(nodes)}")


def _ring_of(came: Mapping[int, int]) -> list[int] | None:
    """Return a ring of nodes, each of which came from the one before; None if there is none."""
    seen = set[int]()
    for start in came:
        path, node = dict[int, None](), start
        while node in came and node not in seen:
            seen.add(node)
            path[node] = None
            node = came[node]
        if node in path:
            ring = list(path)
            return ring[ring.index(node) :][::-1]
    return None
