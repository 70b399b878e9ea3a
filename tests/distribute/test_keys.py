"""Laws of the pure parts: sets of keys, dealing rows, rules, marks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dbsp.distribute.distributor import HERE, STORE, Marks, Stored, dealt, routed
from dbsp.distribute.icadd import collect_places
from dbsp.distribute.keys import contains, keys_of, losing, owner_of, union, without
from dbsp.distribute.messages import Pass, RowsMessage, Send
from dbsp.layout import initial, moved_shards, rescaled

hashes = st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 5), max_size=20)


@given(hashes, hashes)
def test_sets_are_sets(some: list[int], others: list[int]) -> None:
    left, right = keys_of(some), keys_of(others)
    assert union(left, right).tolist() == sorted({*some, *others})
    assert without(left, right).tolist() == sorted(set(some) - set(others))
    assert contains(left, right).tolist() == [key in set(some) for key in right.tolist()]


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(-2, 6)), max_size=40))
def test_rows_are_dealt_each_once_and_in_order(pairs: list[tuple[int, int]]) -> None:
    keys = np.array([key for key, _ in pairs], np.uint64)
    places = np.array([place for _, place in pairs], np.int64)
    numbers = np.arange(len(pairs))
    found = {place: (k.tolist(), n.tolist()) for place, k, n in dealt(keys, numbers, places)}
    for place in set(places.tolist()):
        chosen = places == place
        assert found[place] == (keys[chosen].tolist(), numbers[chosen].tolist())
    assert len(found) == len(set(places.tolist()))
    out, stored = routed(keys, numbers, places, 3, 0)
    passed = [item.rows.tolist() for item in out if isinstance(item, Pass)]
    sent = {item.to: item.message for item in out if isinstance(item, Send)}
    assert passed == ([found[HERE][1]] if HERE in found else [])
    assert stored.rows.tolist() == found.get(STORE, ([], []))[1]
    assert {to for to, message in sent.items() if isinstance(message, RowsMessage)} == {p for p in found if p >= 0}


@given(
    st.integers(0, 3),
    st.lists(st.tuples(*[st.integers(0, 3)] * 2, *[st.booleans()] * 3), max_size=30),
)
def test_every_row_of_the_second_phase_has_one_rule(
    worker: int, cases: list[tuple[int, int, bool, bool, bool]]
) -> None:
    """The table of the seed, row by row, with our deviations."""
    cases = [(b, a, w and not h, h, r) for b, a, w, h, r in cases if not ((w or h) and a == worker)]
    before, after = (np.array([case[i] for case in cases], np.int64) for i in (0, 1))
    whitelisted, held, returned = (np.array([case[i] for case in cases], bool) for i in (2, 3, 4))
    places = collect_places(worker, before, after, whitelisted, held, returned)
    for (b, a, w, h, r), place in zip(cases, places.tolist(), strict=True):
        if a == worker:
            assert place == (HERE if b == worker or r else b)
        else:
            assert place == (HERE if w else STORE if h else a)


@given(st.lists(st.tuples(st.integers(0, 2), st.sets(st.integers(0, 2**64 - 1), max_size=4)), max_size=10))
def test_marks_take_each_key_once(pieces: list[tuple[int, set[int]]]) -> None:
    """Givers give in hash order; copies of what was given come again at any later time."""
    ordered: dict[int, list[int]] = {}
    for owner, keys in pieces:
        ordered.setdefault(owner, []).extend(keys)
    taken: list[tuple[int, int]] = []
    marks = Marks()
    sent: list[tuple[int, list[int]]] = []
    for owner, keys in ordered.items():
        rest = sorted(set(keys))
        sent += [(owner, rest[at : at + 2]) for at in range(0, len(rest), 2)]
    for at, (owner, some) in enumerate(sent):
        for again_owner, again in [(owner, some), *sent[:at]]:
            marks, fresh = marks.new(1, again_owner, keys_of(again))
            taken += [(again_owner, key) for key in keys_of(again)[fresh].tolist()]
    assert sorted(taken) == sorted((owner, key) for owner, keys in ordered.items() for key in set(keys))
    assert not sent or not marks.new(0, 0, keys_of([2**64 - 1]))[1].any(), "of a migration before"
    assert marks.new(2, 0, keys_of([0]))[1].all(), "of the next one"


@given(st.integers(1, 20), st.integers(1, 20), hashes)
def test_who_loses(before: int, after: int, some: list[int]) -> None:
    old = initial(before)
    new = rescaled(old, after, step=1)
    keys = keys_of(some)
    moved = owner_of(old, keys) != owner_of(new, keys)
    assert set(owner_of(old, keys)[moved].tolist()) <= losing(old, new)
    assert bool(losing(old, new)) == bool(moved_shards(old, new))
    leaving = set(old.workers) - set(new.workers)
    assert leaving & set(old.owners) <= losing(old, new)


def test_stored_rows_part_in_order() -> None:
    stored = Stored().plus(keys_of([1, 5]), np.array([10, 11])).plus(keys_of([1]), np.array([12]))
    chosen, rest = stored.parted(stored.keys == np.uint64(1))
    assert chosen.rows.tolist() == [10, 12]
    assert rest.rows.tolist() == [11]
