"""Where rows of a step pass is a function of their keys: what the distributors' rounds find, they find without a round.

Whole migrations are played as the engine plays them, with bytes between the steps and the next keys alone. After the start of
every step rows of any key on any worker are run through the rounds, and pass where `KeyPlaces` says.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp.distribute.commands import (
    BeginCommand,
    CancelCommand,
    EnterCommand,
    MigrateCommand,
    MoveCommand,
    event_of,
)
from dbsp.distribute.encoding import decode, encode
from dbsp.distribute.keys import NO_KEYS, Keys, Numbers, keys_of, owner_of
from dbsp.distribute.messages import (
    AddKeys,
    Collect,
    Collected,
    Downstream,
    Drop,
    Event,
    Interrogate,
    Interrogated,
    Local,
    Take,
)
from dbsp.distribute.migration_plan import MigrationPlan
from dbsp.distribute.names import ICADD, STRATEGIES
from dbsp.distribute.places import KeyPlaces, all_keys, finds_out, places_of, with_keys, yet_to_give
from dbsp.distribute.rounds import run_rounds
from dbsp.distribute.strategies import AnyDistributor, distributor
from dbsp.layout import Layout, initial, rescaled
from tests.distribute.world import key_pool
from tests.pace import examples


@dataclass
class Holder:
    """A worker's operators: the keys they have state for."""

    held: set[int] = field(default_factory=set)
    left_behind: set[int] = field(default_factory=set)
    elsewhere: set[int] = field(default_factory=set)
    passed_rows: dict[int, int] = field(default_factory=dict)

    def ordered(self, order: Downstream) -> Sequence[Event]:
        match order:
            case Interrogate():
                return [AddKeys(keys=self.told()), Interrogated()]
            case Collect(keys=keys):
                return [Collected(keys=keys, state=None)]
            case Take(keys=keys):
                assert self.held.isdisjoint(keys.tolist())
                self.held |= set(keys.tolist())
            case Drop(keys=keys):
                self.held -= set(keys.tolist())
                self.left_behind |= set(keys.tolist())
        return []

    def told(self) -> Keys:
        """What is found in traces: also rows that add up to nothing, but of no key that is known to be elsewhere."""
        return keys_of(sorted((self.held | self.left_behind) - self.elsewhere))

    def passed(self, keys: Keys, rows: Numbers) -> None:
        self.passed_rows |= dict(zip(rows.tolist(), keys.tolist(), strict=True))


class Rounds:
    """A cluster that migrates in steps; every step checks the law for its rows."""

    def __init__(self, strategy: str, rng: random.Random, layout: Layout) -> None:
        self.strategy, self.rng, self.layout = strategy, rng, layout
        self.holders: dict[int, Holder] = {worker: Holder() for worker in layout.workers}
        self.pool = np.array(key_pool(rng, 40), np.uint64)
        for key in self.pool[:25].tolist():
            self.holders[int(owner_of(layout, keys_of([key]))[0])].held.add(key)
        self.parts: dict[int, AnyDistributor] = {}
        self.left: dict[int, Keys] = {}
        self.moving = NO_KEYS

    def rescale(self, migration_plan: MigrationPlan) -> bool:
        """A migration, perhaps turned round; whether it was."""
        turned, number = False, migration_plan.first
        while not self.step(migration_plan, migration_plan.command(number)):
            number += 1
            if not turned and self.rng.random() < 0.2:
                migration_plan, turned = migration_plan.turned_round(number), True
        self.layout = migration_plan.new
        assert not any(self.holders[worker].held for worker in set(self.holders) - set(self.layout.workers))
        self.holders = {worker: self.holders[worker] for worker in self.layout.workers}
        return turned

    def step(self, migration_plan: MigrationPlan, command: MigrateCommand) -> bool:
        """State moves at the start, as the engine has it; then rows pass. Whether it was the last step."""
        workers, moves, enters = (
            migration_plan.layout.workers,
            isinstance(command, MoveCommand),
            isinstance(command, EnterCommand),
        )
        if isinstance(command, BeginCommand):
            self.parts = {worker: distributor(self.strategy, worker, migration_plan.old) for worker in workers}
            self.holders |= {worker: Holder() for worker in workers if worker not in self.holders}
        ahead = migration_plan.budget + 1 if moves else 0
        coming = {worker: left[:ahead] for worker, left in self.left.items()}
        self.tell_holders(command)
        told = event_of(command, migration_plan.new)
        after, _ = run_rounds(
            {worker: with_keys(part, coming) for worker, part in self.parts.items()},
            self.holders,
            {w: [*([AddKeys(keys=self.holders[w].told())] if enters else []), told] for w in workers},
        )
        behind = {worker: left[ahead:] if moves else NO_KEYS for worker, left in self.left.items()}
        self.left = {w: all_keys([yet_to_give(part), behind.get(w, NO_KEYS)]) for w, part in after.items()}
        if not moves:
            self.moving = all_keys(self.left.values())
        self.rows_pass(after, places_of(after, migration_plan.old, migration_plan.new, self.moving))
        self.parts = {worker: decode(encode(with_keys(part, {}))) for worker, part in after.items()}
        return not any(part.migrating for part in after.values())

    def tell_holders(self, command: MigrateCommand) -> None:
        """What the operators must not tell: of icadd all before it enters, at a turn what never moved."""
        turns = isinstance(command, CancelCommand)
        nothing_yet = isinstance(command, BeginCommand) and self.strategy == ICADD
        turns_at_once = turns and any(map(finds_out, self.parts.values()))
        stayed = all_keys(self.left.values()).tolist() if turns else []
        for holder in self.holders.values():
            holder.elsewhere = set(self.pool.tolist() if nothing_yet or turns_at_once else stayed)

    def rows_pass(self, after: dict[int, AnyDistributor], places: KeyPlaces) -> None:
        """The law; and some keys that had no state have it from then on, where their rows passed."""
        count = 3 * len(self.pool)
        rows = np.arange(count)
        keys = self.pool[np.array([self.rng.randrange(len(self.pool)) for _ in range(count)])]
        makers = np.array([self.rng.choice(list(after)) for _ in range(count)])
        whole = {worker: with_keys(part, self.left) for worker, part in after.items()}
        run_rounds(whole, self.holders, {w: [Local(keys=keys[makers == w], rows=rows[makers == w])] for w in whole})
        found = {row: worker for worker, holder in self.holders.items() for row in holder.passed_rows}
        assert [found[row] for row in range(count)] == places.owner_of(keys).tolist()
        assert [places.workers[slot] for slot in places.slot_of(keys)] == places.owner_of(keys).tolist()
        for row, worker in found.items():
            key = int(keys[row])
            owners = [w for w, holder in self.holders.items() if key in holder.held]
            assert owners in ([], [worker]), "a row passes where the state of its key is not"
            if key % 3 == 0:
                self.holders[worker].held.add(key)
        for holder in self.holders.values():
            holder.passed_rows = {}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rows_pass_where_the_rounds_bring_them(strategy: str) -> None:
    @settings(max_examples=examples(100), deadline=None)
    @given(st.integers(0, 2**32), st.integers(1, 5), st.lists(st.integers(1, 6), min_size=1, max_size=4))
    def law(seed: int, first: int, counts: list[int]) -> None:
        rng = random.Random(seed)
        rounds = Rounds(strategy, rng, initial(first))
        for workers in counts:
            new = rescaled(rounds.layout, workers, step=0)
            budget = rng.choice((1, 2, 5, 100))
            migration_plan = MigrationPlan.towards(new, rounds.layout, strategy=strategy, first=0, budget=budget)
            seen.append(rounds.rescale(migration_plan))

    seen: list[bool] = []
    law()
    assert any(seen), "no migration was turned round"
    assert not all(seen), "no migration came to its end"
