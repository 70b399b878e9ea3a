"""Layouts: invariant 2, balance, minimal movement, stability, convergence (docs/concepts/rescale.md)."""

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dbsp.errors import ConfigError
from dbsp.hosts import Zones
from dbsp.layout import (
    Layout,
    dynamic_shards,
    initial,
    is_balanced,
    least_moved,
    moved_shards,
    moves,
    quotas,
    rescaled,
)

counts = st.integers(1, 24)
walks = st.lists(counts, min_size=1, max_size=6)


def walk(first: int, rest: list[int], **kind: object) -> list[Layout]:
    layouts = [initial(first, **kind)]
    for step, workers in enumerate(rest):
        layouts.append(rescaled(layouts[-1], workers, step=step))
    return layouts


@given(counts, walks, st.booleans())
def test_every_hash_has_one_owner(first: int, rest: list[int], dynamic: bool) -> None:
    kind = {"dynamic_k": 0.1} if dynamic else {"shards": 64}
    hashes = np.random.default_rng(0).integers(0, 2**64, 500, dtype=np.uint64)
    for layout in walk(first, rest, **kind):
        owner = np.asarray(layout.workers)[layout.slot_of(hashes)]
        covered = np.zeros(len(hashes), dtype=int)
        for worker in layout.workers:
            for low, high in layout.ranges_of(worker):
                inside = (hashes >= np.uint64(low)) & (hashes <= np.uint64(high - 1))
                covered += inside
                assert (owner[inside] == worker).all()
        assert (covered == 1).all()


@given(counts, walks)
def test_balance_within_one_shard(first: int, rest: list[int]) -> None:
    for layout in walk(first, rest, dynamic_k=0.1):
        sizes = layout.shard_counts().values()
        assert max(sizes) - min(sizes) <= 1
        assert layout.shards == dynamic_shards(len(layout.workers), 0.1)


@given(st.integers(1, 40))
def test_one_more_worker_moves_its_share_and_no_more(workers: int) -> None:
    old = initial(workers, shards=256)
    new = rescaled(old, workers + 1, step=7)
    assert moved_shards(old, new) == 256 // (workers + 1)
    assert new.first_steps[-1] == 7
    assert new.version == old.version + 1


@given(counts, walks)
def test_same_input_same_layout_and_no_change_moves_nothing(first: int, rest: list[int]) -> None:
    once, again = walk(first, rest), walk(first, rest)
    assert once == again
    last = once[-1]
    assert moved_shards(last, rescaled(last, len(last.workers), step=0)) == 0


@given(counts, counts)
def test_shrinking_moves_only_what_the_leavers_had(first: int, second: int) -> None:
    old = initial(first, shards=64)
    new = rescaled(old, second, step=0)
    if second <= first:
        leaving = set(old.workers) - set(new.workers)
        assert moved_shards(old, new) == sum(owner in leaving for owner in old.owners)


def test_refusals_name_the_setting() -> None:
    with pytest.raises(ConfigError, match="worker count out of range: workers=0"):
        initial(0)
    with pytest.raises(ConfigError, match="more workers than shards: workers=9 shards=8"):
        initial(9, shards=8)
    with pytest.raises(ConfigError, match="power of two"):
        initial(2, shards=12)
    with pytest.raises(ConfigError, match="dynamic_k"):
        initial(2, dynamic_k=1.5)


names = st.lists(st.sampled_from("abcde"), min_size=1, max_size=5, unique=True)
offers = st.builds(
    lambda found, weights: tuple(zip(found, weights, strict=False)),
    names,
    st.lists(st.sampled_from([0.5, 1.0, 2.0, 8.0]), min_size=5, max_size=5),
)


@given(counts, walks, st.floats(0.02, 0.9))
def test_no_share_is_off_by_more_than_k(first: int, rest: list[int], k: float) -> None:
    for layout in walk(first, rest, dynamic_k=k):
        even = layout.shards / len(layout.workers)
        assert all(abs(shards - even) / even <= k for shards in layout.shard_counts().values())


@given(counts, walks, offers, st.booleans())
def test_nothing_moves_that_need_not(first: int, rest: list[int], offered: object, dynamic: bool) -> None:
    """Fixed sharding: what moves is what somebody lacks. Dynamic: halving may have to bring neighbours together first."""
    kind = {"dynamic_k": 0.1} if dynamic else {"shards": 256}
    for old, new in pairwise(walk(first, rest, hosts=offered, **kind)):
        least = round(least_moved(old, new) * max(old.shards, new.shards))
        moved = moved_shards(old, new)
        assert moved == sum(moves(old, new).values())
        if new.shards >= old.shards:
            assert moved == least
        else:
            assert moved >= least


@given(counts, walks, offers)
def test_shares_follow_the_weights_of_the_hosts(
    first: int, rest: list[int], offered: tuple[tuple[str, float], ...]
) -> None:
    weights = dict(offered)
    for layout in walk(first, rest, hosts=offered, shards=256):
        assert set(layout.hosts) <= set(weights)
        sizes = [layout.shard_counts()[worker] for worker in layout.workers]
        assert Counter(sizes) == Counter(quotas(256, layout.hosts, offered))
        if len(set(weights.values())) > 1:
            used = {
                host: sum(s for s, h in zip(sizes, layout.hosts, strict=True) if h == host) for host in layout.hosts
            }
            total = sum(weights[host] for host in used)
            for host, shards in used.items():
                slack = layout.hosts.count(host) + len(sizes)
                assert abs(shards - 256 * weights[host] / total) <= slack


@given(counts, counts, offers)
def test_a_worker_never_changes_its_host(first: int, second: int, offered: object) -> None:
    old = initial(first, hosts=offered)
    new = rescaled(old, second, step=3)
    before, after = (dict(zip(each.workers, each.hosts, strict=True)) for each in (old, new))
    assert all(before[worker] == after[worker] for worker in set(before) & set(after))


@given(counts, walks, offers)
def test_going_on_to_the_same_count_changes_nothing(first: int, rest: list[int], offered: object) -> None:
    """Convergence: a layout that is as it should be stays, however it came about."""
    last = walk(first, rest, hosts=offered, shards=256)[-1]
    again = rescaled(last, len(last.workers), step=9)
    assert (again.owners, again.workers, again.hosts) == (last.owners, last.workers, last.hosts)


@pytest.mark.parametrize("hosts", [[("a", 1.0), ("a", 2.0)], [("a", 0.0)], [("a", -1.0)]])
def test_wrong_hosts_are_refused(hosts: list[tuple[str, float]]) -> None:
    with pytest.raises(ConfigError, match="host"):
        initial(2, hosts=hosts)


hosts = st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True)


@given(counts, counts, hosts, hosts)
def test_hosts_that_are_not_offered_lose_their_workers_first(
    first: int, second: int, before: list[str], after: list[str]
) -> None:
    old = replace(initial(first, hosts=[(host, 1.0) for host in before]), offered=tuple((host, 1.0) for host in after))
    new = rescaled(old, second, step=3)
    homes, then = (dict(zip(each.workers, each.hosts, strict=True)) for each in (old, new))
    assert all(then[worker] == homes[worker] for worker in homes.keys() & then.keys()), "who stays stays at home"
    assert {then[worker] for worker in then.keys() - homes.keys()} <= set(after), "who joins goes where it may"
    gone = homes.keys() - then.keys()
    if any(homes[worker] in after for worker in gone):
        assert all(homes[worker] in after for worker in homes.keys() & then.keys())


visits = st.lists(st.tuples(offers, counts), min_size=1, max_size=5)


def wander(first: int, offered: object, rest: list[tuple[object, int]], **kind: object) -> list[Layout]:
    """Layouts of rescales that also change the offered hosts."""
    layouts = [initial(first, hosts=offered, **kind)]
    for step, (hosts, workers) in enumerate(rest):
        layouts.append(rescaled(replace(layouts[-1], offered=hosts), workers, step=step))
    return layouts


@given(counts, offers, visits, st.booleans())
def test_hosts_are_added_removed_and_replaced(first: int, offered: object, rest: list, dynamic: bool) -> None:
    """All workers are on offered hosts, nobody changes its host or number, and a second rescale finds nothing to do."""
    for old, new in pairwise(wander(first, offered, rest, **({"dynamic_k": 0.1} if dynamic else {"shards": 256}))):
        assert set(new.hosts) <= {host for host, _ in new.offered}
        before, after = (dict(zip(each.workers, each.hosts, strict=True)) for each in (old, new))
        assert all(before[worker] == after[worker] for worker in before.keys() & after.keys())
        assert is_balanced(new, len(new.workers))
        if new.shards >= old.shards:
            assert moved_shards(old, new) == round(least_moved(old, new) * max(old.shards, new.shards))


zones = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["north", "south"])).map(
    lambda found: tuple(sorted(found.items()))
)


@given(counts, hosts, st.lists(st.tuples(hosts, counts, zones), min_size=1, max_size=5))
@example(1, ["a"], [(["a", "b", "c"], 2, (("a", "north"), ("b", "north")))])
@example(2, ["a", "b"], [(["a", "b", "c"], 2, (("a", "north"), ("b", "north")))])
def test_workers_are_spread_over_zones_where_hosts_leave_the_choice(first: int, offered: list[str], rest: list) -> None:
    """Hosts of equal weight stay even, and no other choice of the hosts with one more spreads workers better over zones."""
    layout = initial(first, hosts=[(host, 1.0) for host in offered])
    for step, (names, workers, found) in enumerate(rest):
        layout = rescaled(
            replace(layout, offered=tuple((host, 1.0) for host in names), zones=found), workers, step=step
        )
        least, extra = divmod(workers, len(names))
        there = Counter(layout.hosts)
        assert all(there[host] in (least, least + 1) for host in names)

        def unequal(chosen: Collection[str], names: list[str] = names, least: int = least, found: Zones = found) -> int:
            """The sum of squares of the workers in each zone, if these hosts have one more."""
            counted = Counter[str]()
            for host in names:
                counted[dict(found).get(host, host)] += least + (host in chosen)
            return sum(count * count for count in counted.values())

        best = min(unequal(chosen) for chosen in combinations(names, extra))
        assert unequal([host for host in names if there[host] > least]) == best
        assert is_balanced(layout, workers), "a second rescale changes nothing"


@given(counts, hosts, st.lists(st.tuples(hosts, counts), min_size=1, max_size=5))
def test_equal_hosts_have_as_many_workers_and_the_fewest_move(first: int, offered: list[str], rest: list) -> None:
    visited = [(tuple((host, 1.0) for host in names), workers) for names, workers in rest]
    for old, new in pairwise(wander(first, [(host, 1.0) for host in offered], visited)):
        names, present, there = [host for host, _ in new.offered], Counter(old.hosts), Counter(new.hosts)
        least, extra = divmod(len(new.workers), len(names))
        assert all(there[host] in (least, least + 1) for host in names)
        room = sum(present[host] > least for host in names)
        most = sum(min(present[host], least) for host in names) + min(room, extra)
        assert len({*old.workers} & {*new.workers}) == most
