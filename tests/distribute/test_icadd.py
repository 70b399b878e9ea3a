"""The message sequences, rules and corner cases of `icadd`, one worker at a time."""

from __future__ import annotations

import numpy as np
import pytest

from dbsp.distribute.icadd import IcaddDistributor
from dbsp.distribute.keys import keys_of
from dbsp.distribute.messages import (
    Acquire,
    AddKeys,
    BeginMessage,
    Collect,
    Collected,
    Done,
    Drop,
    Enter,
    Interrogate,
    Interrogated,
    Local,
    Move,
    Received,
    Take,
)
from dbsp.errors import InternalError
from tests.distribute.small import from_, h, layout, passed, rows, sent, told

F = layout(0, 0, 0, 0, 1, 1, 1, 2, 2, more=(3,))
"""Keys 0, 1, 2 at worker 0; 3, 4, 5 at worker 1; 6, 7 at worker 2."""
F_NEW = layout(1, 0, 1, 1, 1, 0, 3, 2, 3)
"""Keys 1, 2 go from 0 to 1, key 4 from 1 to 0, keys 5 and 7 to worker 3, which is new."""


def steady(worker: int) -> IcaddDistributor:
    return IcaddDistributor(worker=worker, old=F)


def interrogating(worker: int) -> IcaddDistributor:
    return told(steady(worker), BeginMessage(layout=F_NEW))[0]


def collecting(worker: int, *keys: int) -> IcaddDistributor:
    """A worker in the second phase whose operators hold these keys."""
    return told(interrogating(worker), AddKeys(keys=h(*keys)), Interrogated(), Enter())[0]


def test_before_a_migration_rows_go_by_f() -> None:
    _, out = told(steady(0), rows(0, 3, 1, 6))
    assert out == [passed(0, 1), sent(1, 0, 3), sent(2, 0, 6)]


def test_interrogation_fills_the_whitelist_with_what_passes_and_what_is_held() -> None:
    distributor, out = told(steady(0), BeginMessage(layout=F_NEW))
    assert out == [("Interrogate", {})]
    distributor, out = told(distributor, rows(0, 1, 3))  # rules 1.2, 1.1, 2
    assert passed(0, 1) in out
    assert sent(1, 0, 3) in out
    assert distributor.whitelist.tolist() == h(1).tolist()
    distributor, out = told(distributor, from_(2, 0, 2))  # the same rules for a row from a worker
    assert out == [passed(2)]
    distributor, _ = told(distributor, AddKeys(keys=h(0, 2)), AddKeys(keys=h(2)), AddKeys(keys=h()), Interrogated())
    assert distributor.whitelist.tolist() == h(0, 1, 2).tolist()
    distributor, out = told(distributor, Enter())
    assert distributor.whitelist.tolist() == h(1, 2).tolist(), "what stays is taken out"
    assert distributor.version == 1
    assert out == []


def test_keys_do_not_move_before_all_are_known() -> None:
    with pytest.raises(InternalError, match="before all are known"):
        told(interrogating(0), Enter())
    assert told(interrogating(0), Move(budget=5))[1] == []


def test_the_rules_of_the_second_phase() -> None:
    distributor = collecting(0, 0, 1, 2)
    distributor, _ = told(distributor, Move(budget=1))  # key 1 is on hold, 2 on the whitelist
    distributor, out = told(distributor, rows(2))
    assert out == [passed(2)], "rule 1.1"
    distributor, out = told(distributor, rows(1))
    assert out == [], "rule 1.2"
    assert distributor.stored.rows.tolist() == [1]
    assert told(distributor, rows(7))[1] == [sent(3, 1, 7)], "rule 2"
    assert told(distributor, rows(4))[1] == [sent(1, 1, 4)], "rule 3: to the old owner"
    assert told(distributor, from_(1, 1, 4))[1] == [passed(4)], "rule 3: given back by the old owner"
    assert told(distributor, rows(0), from_(2, 1, 0))[1] == [passed(0), passed(0)], "before and after"


def test_a_new_key_comes_back_from_the_old_owner() -> None:
    """A.3.2 and case B are the same: no game of ping-pong."""
    new_owner, old_owner = collecting(0), collecting(1)
    _, out = told(new_owner, rows(4))
    assert out == [sent(1, 1, 4)]
    _, out = told(old_owner, from_(0, 1, 4))
    assert out == [sent(0, 1, 4)]
    assert told(new_owner, from_(1, 1, 4))[1] == [passed(4)]


def test_an_old_owner_that_is_late_processes_the_row() -> None:
    """A.1 and A.2."""
    assert told(steady(1), from_(0, 1, 4))[1] == [passed(4)]
    asked, out = told(interrogating(1), from_(0, 1, 4))
    assert out == [passed(4)]
    assert asked.whitelist.tolist() == h(4).tolist()


def test_the_other_game_of_ping_pong() -> None:
    """Rule 2 sends to a worker that is late, and would send it back: the old owner is the sender, so it takes it."""
    assert told(collecting(1), rows(4))[1] == [sent(0, 1, 4)]
    assert told(steady(0), from_(1, 1, 4))[1] == [passed(4)]
    assert told(interrogating(0), from_(1, 1, 4))[1] == [passed(4)]


def test_a_key_moves() -> None:
    """Collect, Acquire, the rows that waited, Drop; nothing of the key is left."""
    distributor, out = told(collecting(0, 0, 1, 2), Move(budget=1))
    assert out == [("Collect", {"keys": [1]})]
    distributor, out = told(distributor, rows(1, 1), from_(2, 0, 1), Collected(keys=h(1), state="S1"))
    waited = {"version": 1, "keys": [1, 1, 1], "rows": [1, 1, 1]}
    assert out == [
        ("Send", {"to": 1, "message": ("Acquire", {"version": 1, "owner": 0, "keys": [1], "state": "S1"})}),
        ("Send", {"to": 1, "message": ("RowsMessage", waited)}),
        ("Drop", {"keys": [1]}),
    ]
    assert distributor.at_rest
    assert distributor.whitelist.tolist() == h(2).tolist()
    assert told(distributor, rows(1))[1] == [sent(1, 1, 1)], "from now on by F'"


def test_the_new_owner_takes_a_state_once() -> None:
    acquire = Received(sender=0, message=Acquire(version=1, owner=0, keys=h(1, 2), state="S"))
    for before in (steady(1), interrogating(1), collecting(1)):
        distributor, out = told(before, acquire)
        assert out == [("Take", {"keys": [1, 2], "state": "S"})]
        assert told(distributor, acquire)[1] == []


def test_n_keys_at_once_to_several_workers() -> None:
    distributor, out = told(collecting(1, 3, 4, 5), Move(budget=10))
    assert out == [("Collect", {"keys": [4, 5]})]
    _, out = told(distributor, Collected(keys=h(4, 5), state="S"))
    acquires = [item[1] for item in out if item[0] == "Send" and item[1]["message"][0] == "Acquire"]
    assert [(item["to"], item["message"][1]["keys"]) for item in acquires] == [(0, [4]), (3, [5])]


def test_done_is_said_once_all_is_given_and_ends_the_migration_when_all_have_said_it() -> None:
    distributor, out = told(collecting(0, 1), Move(budget=5), Collected(keys=h(1), state="S"))
    done = ("Done", {"version": 1, "worker": 0})
    assert [item for item in out if item[0] == "Send" and item[1]["message"] == done] == [
        ("Send", {"to": to, "message": done}) for to in (1, 2, 3)
    ]
    assert told(distributor, rows(4))[1] == [sent(1, 1, 4)], "others may still have what will be ours"
    messages = [Received(sender=w, message=Done(version=1, worker=w)) for w in (1, 1, 2)]
    distributor, out = told(distributor, *messages)
    assert distributor.migrating, "worker 3 is among the workers of F here"
    distributor, out = told(distributor, Received(sender=3, message=Done(version=1, worker=3)))
    assert out == [("FinishedMessage", {"version": 1})]
    assert told(distributor, rows(4, 1))[1] == [passed(4), sent(1, 1, 1)]
    assert distributor.new is None, "F and its workers are forgotten"


def test_who_is_done_early_is_remembered() -> None:
    early = [Received(sender=w, message=Done(version=1, worker=w)) for w in (1, 2, 3)]
    distributor, _ = told(steady(0), *early, BeginMessage(layout=F_NEW), Interrogated())
    assert told(distributor, Enter())[1][-1] == ("FinishedMessage", {"version": 1})


def test_messages_of_another_region_are_discarded() -> None:
    other = [Interrogate(region=1), Collect(keys=h(1), region=1), Take(keys=h(1), state="S", region=1)]
    other += [Drop(keys=h(1), region=1), AddKeys(keys=h(1), region=1), Interrogated(region=1)]  # type: ignore[list-item]
    distributor, out = told(interrogating(0), *other)
    assert out == []
    assert not len(distributor.whitelist)
    assert not distributor.known
    done = Received(sender=1, message=Done(version=1, worker=1), region=1)
    assert told(distributor, done)[0].finished == frozenset()


def test_keys_that_share_a_hash_move_together() -> None:
    """A distributor knows hashes alone: three rows of two keys with one hash are stored and sent as one."""
    distributor, _ = told(collecting(0, 1), Move(budget=1))
    distributor, _ = distributor.handle(Local(keys=h(1, 1, 1), rows=np.array([10, 11, 12], np.int64)))
    _, out = told(distributor, Collected(keys=keys_of(h(1, 1)), state="S"))
    assert out[1][1]["message"][1]["rows"] == [10, 11, 12]


def test_what_was_not_on_hold_cannot_be_collected() -> None:
    with pytest.raises(InternalError, match="not on hold"):
        told(collecting(0, 1), Collected(keys=h(1), state="S"))


def test_one_migration_at_a_time() -> None:
    with pytest.raises(InternalError, match="under way"):
        told(interrogating(0), BeginMessage(layout=F_NEW))


def test_at_a_pace_of_its_own_it_needs_no_commands() -> None:
    distributor, _ = told(steady(0), BeginMessage(layout=F_NEW, pace=1), AddKeys(keys=h(1, 2)))
    distributor, out = told(distributor, Interrogated())
    assert out == [("Collect", {"keys": [1]})]
    distributor, out = told(distributor, Collected(keys=h(1), state="S1"))
    assert out[-1] == ("Collect", {"keys": [2]})
