"""Distributors as bytes: golden bytes, round trips, damage; commands as they stand in step records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dbsp.distribute import commands
from dbsp.distribute.encoding import decode, encode
from dbsp.distribute.keys import keys_of
from dbsp.distribute.messages import (
    AddKeys,
    BeginMessage,
    Cancel,
    Enter,
    Interrogated,
    Local,
    Move,
    Received,
    ShutdownMessage,
)
from dbsp.distribute.names import STRATEGIES
from dbsp.distribute.strategies import distributor, joint
from dbsp.errors import ConfigError, DataError, InternalError
from dbsp.layout import initial, rescaled
from tests.distribute.small import h, told

OLD = initial(1, shards=2)
NEW = rescaled(OLD, 2, step=7)


def migrating(strategy: str, **more: Any) -> Any:
    """Worker 0 in a migration from one worker to two, keys 4 and 6 known to leave."""
    start = replace(distributor(strategy, 0, OLD), **more)
    shutdown = Received(sender=1, message=ShutdownMessage(version=1, layout=NEW))
    answers = [AddKeys(keys=h(1, 4, 6)), Interrogated()]
    return told(
        start, BeginMessage(layout=NEW), *([shutdown] if strategy == "redistribute" else []), *answers, Enter()
    )[0]


LAYOUTS = (
    b'"new":{"first_steps":[0,7],"hosts":["",""],"owners":[0,1],"version":1,"workers":[0,1]},'
    b'"old":{"first_steps":[0],"hosts":[""],"owners":[0,0],"version":0,"workers":[0]},"pace":0,'
)
GOLDEN = {
    "icadd": bytes.fromhex("4442535044495300010001002b0100000200000000000000cea1410700000000")
    + b'{"finished":[],"finished_version":-1,"given":false,"known":true,'
    + LAYOUTS
    + b'"phase":2,"region":0,"sets":[2],"taken":[-1,[]],"worker":0}'
    + bytes.fromhex("000000000000008000000000000000c0"),
    "redistribute": bytes.fromhex("444253504449530001000200850100000400000000000000808b91bf00000000")
    + b'{"draining":[0],"given_version":-1,"giving":{"heard":[0,1],"layout":{"first_steps":[0,7],'
    + b'"hosts":["",""],"owners":[0,1],"version":1,"workers":[0,1]},"told":true},'
    + LAYOUTS
    + b'"region":0,"sets":[2,2],"taken":[-1,[]],"worker":0}'
    + bytes.fromhex("000000000000008000000000000000c0000000000000008000000000000000c0"),
}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_golden_bytes(strategy: str) -> None:
    """The format is stored: these bytes never change without a new format number."""
    assert encode(migrating(strategy)) == GOLDEN[strategy]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_same_again(strategy: str) -> None:
    before = migrating(strategy)
    for some in (
        distributor(strategy, 3, OLD),
        before,
        told(before, Cancel(version=2))[0] if strategy == "icadd" else before,
    ):
        assert encode(decode(encode(some))) == encode(some)
    again = decode(encode(before))
    assert told(again, Move(budget=1))[1] == told(before, Move(budget=1))[1]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_only_at_rest(strategy: str) -> None:
    moving = told(migrating(strategy), Move(budget=1))[0]
    with pytest.raises(InternalError, match="not at rest"):
        encode(moving)
    row = Local(keys=h(4), rows=np.array([1], np.int64))
    with pytest.raises(InternalError, match="not at rest"):
        encode(told(moving, row)[0])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_damage_is_named(strategy: str) -> None:
    good = GOLDEN[strategy]
    for at in range(len(good)):
        if 28 <= at < 32:
            continue  # not used
        bad = bytearray(good)
        bad[at] ^= 1
        with pytest.raises(DataError):
            decode(bytes(bad))
    for end in range(0, len(good), 7):
        with pytest.raises(DataError):
            decode(good[:end])


def test_commands_are_text_and_back() -> None:
    for strategy in STRATEGIES:
        for command in (
            commands.BeginCommand(strategy=strategy, old=3, new=4),
            commands.EnterCommand(strategy=strategy),
            commands.MoveCommand(strategy=strategy, budget=10),
            commands.CancelCommand(strategy=strategy, version=5),
        ):
            assert commands.from_text(commands.to_text(command)) == command
            assert commands.migration_of(["skip node=1", commands.to_text(command)]) == command


@pytest.mark.parametrize(
    "text",
    [
        "migrate",
        "migrate strategy=warm phase=enter",
        "migrate strategy=icadd phase=move",
        "migrate strategy=icadd phase=enter ",
    ],
)
def test_unknown_commands_are_refused(text: str) -> None:
    with pytest.raises(DataError, match="unknown command"):
        commands.from_text(text)


def test_one_command_at_a_time() -> None:
    one = commands.to_text(commands.EnterCommand(strategy="icadd"))
    with pytest.raises(DataError, match="more than one"):
        commands.migration_of([one, one])


def test_what_a_command_tells() -> None:
    begin = commands.event_of(commands.BeginCommand(strategy="icadd", old=0, new=1), NEW)
    assert isinstance(begin, BeginMessage)
    assert begin.layout is NEW
    assert begin.pace == 0
    with pytest.raises(DataError, match="another layout"):
        commands.event_of(commands.BeginCommand(strategy="icadd", old=0, new=2), NEW)
    move = commands.event_of(commands.MoveCommand(strategy="icadd", budget=4), NEW)
    assert isinstance(move, Move)
    assert move.budget == 4


def test_an_unknown_strategy() -> None:
    with pytest.raises(ConfigError, match="choose one of icadd, redistribute"):
        distributor("warmup", 0, OLD)


def test_the_joint_layout_names_all_workers_and_the_coming_owners() -> None:
    both = joint(OLD, NEW)
    assert both.workers == (0, 1)
    assert both.owners == NEW.owners
    assert both.first_steps == (0, 7)
    back = joint(NEW, rescaled(NEW, 1, step=9))
    assert back.workers == (0, 1)
    assert set(back.owners) == {0}
    assert len(keys_of(h(1, 1))) == 1
