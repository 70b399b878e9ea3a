"""Layouts: invariant 2, balance, minimal movement, stability, convergence (design section 9)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp.errors import ConfigError
from dbsp.layout import Layout, dynamic_shards, initial, moved_shards, rescaled

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


@given(counts, st.integers(1, 50))
def test_every_partition_is_read_by_one_worker(workers: int, partitions: int) -> None:
    layout = initial(workers)
    read = [p for worker in layout.workers for p in layout.partitions_of(worker, partitions)]
    assert sorted(read) == list(range(partitions))


def test_refusals_name_the_setting() -> None:
    with pytest.raises(ConfigError, match="worker count out of range: workers=0"):
        initial(0)
    with pytest.raises(ConfigError, match="more workers than shards: workers=9 shards=8"):
        initial(9, shards=8)
    with pytest.raises(ConfigError, match="power of two"):
        initial(2, shards=12)
    with pytest.raises(ConfigError, match="dynamic_k"):
        initial(2, dynamic_k=1.5)
