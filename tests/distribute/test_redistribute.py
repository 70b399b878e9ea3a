"""Worked examples and corner cases of `redistribute`, one worker at a time and together."""

from __future__ import annotations

from typing import Any

import numpy as np

from dbsp.distribute.messages import (
    Acquire,
    AddKeys,
    BeginMessage,
    Collected,
    Event,
    FinalMessage,
    Interrogated,
    KeySetsMessage,
    Local,
    Move,
    Received,
    RedistributeMessage,
    ScaleUp,
    ShutdownMessage,
)
from dbsp.distribute.redistribute import RedistributeDistributor
from dbsp.layout import Layout
from tests.distribute.small import from_, h, layout, passed, rows, sent, told

X, Y, Z, U = 0, 1, 2, 3


F = layout(0, Y, Y, Y, Y, Z, Z, Z, Z, more=(X,))
"""Y: 1, 2, 3; Z: 4, 5, 6."""
WITHOUT_Z = layout(1, Y, Y, Y, Y, Y, Y, Y, Y, more=(X,))
WITH_U = layout(1, Y, Y, Y, U, Z, U, U, Z, more=(X,))


def at(worker: int, before: Layout = F) -> RedistributeDistributor:
    return RedistributeDistributor(worker=worker, old=before)


def heard(senders: tuple[int, ...], message: Any) -> list[Event]:
    """The same message from several workers."""
    return [Received(sender=sender, message=message) for sender in senders]


def to_all(name: str, **values: Any) -> list[Any]:
    """A message to all senders but Z itself."""
    return [("Send", {"to": to, "message": (name, {"version": 1, **values})}) for to in (X, Y)]


def test_scaling_down_as_the_owner_sees_it() -> None:
    """Steps 2 and 5 of the example."""
    z, out = told(at(Z), BeginMessage(layout=WITHOUT_Z, pace=1))
    z, out = told(z, *heard((X,), ShutdownMessage(version=1, layout=WITHOUT_Z)))
    assert out == [], "not before all senders have said so"
    z, out = told(z, *heard((Y,), ShutdownMessage(version=1, layout=WITHOUT_Z)))
    assert out == [("Interrogate", {})]
    z, out = told(z, AddKeys(keys=h(4, 5)), AddKeys(keys=h(5, 6)), Interrogated())
    assert out == to_all("KeySetsMessage", whitelist=[5, 6], hold=[4])
    for key, following in ((4, [5]), (5, [6]), (6, [])):
        z, out = told(z, *heard((X,), FinalMessage(version=1, keys=h(key))))
        assert out == [], "not before FINAL of all senders"
        z, out = told(z, *heard((Y,), FinalMessage(version=1, keys=h(key))))
        assert out == [("Collect", {"keys": [key]})]
        z, out = told(z, Collected(keys=h(key), state=f"S{key}"))
        dropped = ("Drop", {"keys": [key]})
        assert out[0] == dropped
        redistribute = to_all("RedistributeMessage", keys=[key], state=f"S{key}", following=following)
        assert [item for item in out if item in redistribute] == redistribute
    assert not z.migrating
    assert z.layout is WITHOUT_Z


def test_scaling_down_as_a_sender_sees_it() -> None:
    """Steps 1, 3, 4 and 6 of the example."""
    x, out = told(at(X), rows(1, 4))
    assert out == [sent(Y, 0, 1), sent(Z, 0, 4)]
    x, out = told(x, BeginMessage(layout=WITHOUT_Z, pace=1))
    assert [(item[1]["to"], item[1]["message"][0]) for item in out] == [(Z, "ShutdownMessage")]
    x, out = told(x, rows(4, 5, 7, 1))
    assert out == [sent(Y, 1, 1)], "rows for Z wait for its sets"
    x, out = told(x, *heard((Z,), KeySetsMessage(version=1, whitelist=h(5, 6), hold=h(4))))
    assert sent(Z, 1, 5) in out, "whitelist: forwarded"
    assert sent(Y, 1, 7) in out, "in neither: by F'"
    assert out[-1] == ("Send", {"to": Z, "message": ("FinalMessage", {"version": 1, "keys": [4]})})
    assert x.stored.rows.tolist() == [4], "hold: stored"
    x, out = told(x, *heard((Z,), RedistributeMessage(version=1, keys=h(4), state="S4", following=h(5))))
    assert out == [
        ("Send", {"to": Y, "message": ("Acquire", {"version": 1, "owner": Z, "keys": [4], "state": "S4"})}),
        sent(Y, 1, 4),
        ("Send", {"to": Z, "message": ("FinalMessage", {"version": 1, "keys": [5]})}),
    ]
    x, _ = told(x, *heard((Z,), RedistributeMessage(version=1, keys=h(5), state="S5", following=h(6))))
    x, out = told(x, *heard((Z,), RedistributeMessage(version=1, keys=h(6), state="S6", following=h())))
    assert out[-1] == ("FinishedMessage", {"version": 1})
    assert not len(x.whitelist)
    assert not len(x.hold)
    assert told(x, rows(4, 5, 6))[1] == [sent(Y, 1, 4, 5, 6)]


def test_scaling_up() -> None:
    """SCALEUP to both owners that lose keys; each answers for itself, also with empty sets."""
    x, out = told(at(X), BeginMessage(layout=WITH_U, pace=1))
    assert [(item[1]["to"], item[1]["message"][0]) for item in out] == [(Y, "ScaleUp"), (Z, "ScaleUp")]
    x, out = told(x, rows(1, 3, 5))
    assert out == [sent(Y, 1, 1)], "stays where it is"
    x, out = told(x, *heard((Y,), KeySetsMessage(version=1, whitelist=h(), hold=h())))
    assert out == [sent(U, 1, 3)], "Y has nothing to give, so the key is new"
    assert x.new is not None, "F' holds only when all hold sets are empty"
    x, out = told(x, *heard((Z,), KeySetsMessage(version=1, whitelist=h(6), hold=h(5))))
    x, out = told(x, *heard((Z,), RedistributeMessage(version=1, keys=h(5), state="S5", following=h(6))))
    assert sent(U, 1, 5) in out
    x, out = told(x, *heard((Z,), RedistributeMessage(version=1, keys=h(6), state="S6", following=h())))
    assert out[-1] == ("FinishedMessage", {"version": 1})


def test_an_owner_that_scales_up_gives_only_what_leaves() -> None:
    z, _ = told(at(Z), BeginMessage(layout=WITH_U, pace=1))
    z, out = told(z, *heard((X, Y, U), ScaleUp(version=1, layout=WITH_U)), AddKeys(keys=h(4, 5, 6, 7)), Interrogated())
    assert out[-1][1]["message"] == ("KeySetsMessage", {"version": 1, "whitelist": [6], "hold": [5]})
    assert [item[1]["to"] for item in out if item[0] == "Send"] == [X, Y, U]


def test_an_owner_hears_of_the_migration_before_it_begins_here() -> None:
    z, out = told(at(Z), *heard((X, Y), ShutdownMessage(version=1, layout=WITHOUT_Z)))
    assert out == []
    _, out = told(z, BeginMessage(layout=WITHOUT_Z, pace=1))
    assert out == [("Interrogate", {})], "its own word was the last"


def test_a_worker_that_joins_is_waited_for() -> None:
    """U sends rows too, perhaps before the owner knows of it: SCALEUP names the layout that U is in."""
    z, _ = told(at(Z), BeginMessage(layout=WITH_U, pace=1), *heard((X, Y), ScaleUp(version=1, layout=WITH_U)))
    assert told(z, *heard((U,), ScaleUp(version=1, layout=WITH_U)))[1] == [("Interrogate", {})]


def test_repeated_messages_change_nothing() -> None:
    x, _ = told(at(X), BeginMessage(layout=WITHOUT_Z, pace=1))
    sets = heard((Z,), KeySetsMessage(version=1, whitelist=h(5), hold=h(4)))
    first = heard((Z,), RedistributeMessage(version=1, keys=h(4), state="S4", following=h(5)))
    x, _ = told(x, *sets)
    assert told(x, *sets)[1] == []
    x, _ = told(x, *first)
    assert told(x, *sets, *first)[1] == []
    y, out = told(at(Y), *heard((X, Z), Acquire(version=1, owner=Z, keys=h(4), state="S4")))
    assert out == [("Take", {"keys": [4], "state": "S4"})]
    assert told(y, *heard((X,), Acquire(version=1, owner=Z, keys=h(4), state="S4")))[1] == []


def test_n_keys_at_once() -> None:
    z, _ = told(
        at(Z), BeginMessage(layout=WITHOUT_Z, pace=2), *heard((X, Y), ShutdownMessage(version=1, layout=WITHOUT_Z))
    )
    z, out = told(z, AddKeys(keys=h(4, 5, 6)), Interrogated())
    assert out == to_all("KeySetsMessage", whitelist=[6], hold=[4, 5])


def test_by_command_nothing_is_on_hold_between_moves() -> None:
    z, _ = told(at(Z), BeginMessage(layout=WITHOUT_Z), *heard((X, Y), ShutdownMessage(version=1, layout=WITHOUT_Z)))
    z, out = told(z, AddKeys(keys=h(4, 5, 6)), Interrogated())
    assert out == to_all("KeySetsMessage", whitelist=[4, 5, 6], hold=[])
    assert z.at_rest
    z, out = told(z, Move(budget=2))
    assert out == to_all("RedistributeMessage", keys=[], state=None, following=[4, 5])
    z, out = told(z, *heard((X, Y), FinalMessage(version=1, keys=h(4, 5))), Collected(keys=h(4, 5), state="S"))
    assert to_all("RedistributeMessage", keys=[4, 5], state="S", following=[])[0] in out
    assert z.at_rest
    assert z.left == 1


def test_a_row_that_was_sent_here_always_passes() -> None:
    """Only senders decide: an owner, a leaving one too, processes what it gets."""
    z, _ = told(at(Z), BeginMessage(layout=WITHOUT_Z, pace=1))
    row = Local(keys=h(4), rows=np.array([4], np.int64))
    assert told(z, row)[1] == []
    assert told(z, from_(X, 1, 4))[1] == [passed(4)]
