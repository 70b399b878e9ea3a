"""The hosts of standbys: the laws of `place_standbys`, against a search through all placements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp import standby_places
from dbsp.standby_places import LOAD_UNIT, place_standbys

Places = Mapping[int, tuple[str, ...]]
HOSTS = ("a", "b", "c", "d")
homes_drawn = st.dictionaries(st.integers(0, 9), st.sampled_from("abcde"), min_size=1, max_size=4)
zones_drawn = st.dictionaries(st.sampled_from("abcde"), st.sampled_from(["north", "south"]))
weights_drawn = st.dictionaries(st.sampled_from(HOSTS), st.sampled_from([1.0, 2.0, 0.5]), max_size=4)


def all_places(homes: Mapping[int, str], hosts: list[str], per_worker: int) -> Iterator[Places]:
    """Every placement that keeps off the workers' own hosts, with as many standbys as there can be."""
    choices = []
    for home in homes.values():
        others = [host for host in hosts if host != home]
        choices.append(list(combinations(others, min(per_worker, len(others)))))
    for chosen in product(*choices):
        yield dict(zip(homes, chosen, strict=True))


def cost(
    homes: Mapping[int, str], places: Places, weights: Mapping[str, float], zones: Mapping[str, str], before: Places
) -> tuple[int, int, int]:
    near = moved = 0
    for worker, hosts in places.items():
        home = homes[worker]
        near += sum(zones.get(host, f"host {host}") == zones.get(home, f"host {home}") for host in hosts)
        moved += sum(host not in before.get(worker, ()) for host in hosts)
    counts = Counter(host for hosts in places.values() for host in hosts)
    load = sum(round((2 * number + 1) * LOAD_UNIT / weights[host]) for host, n in counts.items() for number in range(n))
    return near, load, moved


@given(homes=homes_drawn, weights=weights_drawn, zones=zones_drawn, per_worker=st.integers(0, 2), data=st.data())
def test_a_placement_is_the_best_of_all(
    homes: dict[int, str], weights: dict[str, float], zones: dict[str, str], per_worker: int, data: st.DataObject
) -> None:
    """Never the own host, never twice on one; then another zone, then balance, then the fewest moves."""
    before = data.draw(st.dictionaries(st.sampled_from(sorted(homes)), st.sets(st.sampled_from("abcde")).map(tuple)))
    found = place_standbys(homes, list(weights.items()), per_worker, zones, before)
    assert list(found) == sorted(homes)
    for worker, hosts in found.items():
        others = weights.keys() - {homes[worker]}
        assert len(set(hosts)) == len(hosts) == min(per_worker, len(others))
        assert set(hosts) <= others
    best = min(cost(homes, each, weights, zones, before) for each in all_places(homes, sorted(weights), per_worker))
    assert cost(homes, found, weights, zones, before) == best
    assert place_standbys(homes, list(weights.items()), per_worker, zones, found) == found


@given(workers=st.integers(1, 24), hosts=st.integers(2, 8), per_worker=st.integers(1, 3))
def test_even_hosts_have_even_standbys(workers: int, hosts: int, per_worker: int) -> None:
    names = [f"h{number}" for number in range(hosts)]
    homes = {worker: names[worker % hosts] for worker in range(workers)}
    found = place_standbys(homes, [(name, 1.0) for name in names], per_worker)
    counts = Counter(dict.fromkeys(names, 0))
    counts.update(host for places in found.values() for host in places)
    if workers >= hosts:
        assert max(counts.values()) - min(counts.values()) <= 1


@given(workers=st.integers(1, 16), hosts=st.integers(3, 6), data=st.data())
def test_few_standbys_move_when_a_host_leaves_and_comes_back(workers: int, hosts: int, data: st.DataObject) -> None:
    """A host without workers leaves: only its standbys move, along short chains. It is back: only its share moves."""
    names = [f"h{number}" for number in range(hosts)]
    homes = {worker: names[worker % (hosts - 1)] for worker in range(workers)}
    offered = [(name, 1.0) for name in names]
    first = place_standbys(homes, offered, 1)
    after = place_standbys(homes, offered[:-1], 1, before=first)
    moved = [worker for worker in homes if first[worker] != after[worker]]
    lost = [worker for worker in homes if names[-1] in first[worker]]
    if hosts > 3:
        assert len(moved) <= 2 * len(lost), "a chain of more than two moves for each lost standby"
    back = place_standbys(homes, offered, 1, before=after)
    assert Counter(place for places in back.values() for place in places)[names[-1]] == sum(
        back[worker] != after[worker] for worker in homes
    ), "one moved that did not go to the host that is back"


def test_zones_come_before_balance() -> None:
    zones = {"a": "north", "b": "north", "c": "south"}
    found = place_standbys({0: "a", 1: "a", 2: "b", 3: "b"}, [(host, 1.0) for host in "abc"], 1, zones)
    assert found == {0: ("c",), 1: ("c",), 2: ("c",), 3: ("c",)}


def test_the_search_finds_a_placement_that_ignores_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """The law is red when rings of moves are left out: standbys stay where they were."""
    monkeypatch.setattr(standby_places, "cheaper_ring", lambda _nodes, _edges: None)
    before = {0: ("b",), 1: ("b",), 2: ("a",)}
    homes, weights = {0: "a", 1: "a", 2: "d"}, {"a": 1.0, "b": 1.0, "c": 1.0}
    found = place_standbys(homes, list(weights.items()), 1, {}, before)
    best = min(cost(homes, each, weights, {}, before) for each in all_places(homes, sorted(weights), 1))
    assert cost(homes, found, weights, {}, before) > best
