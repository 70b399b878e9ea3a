"""What a step of a migration moves between workers that hold sets of rows: the rule of the strategies, without their messages.

A row's key is its shard of the finer layout. The keys that a worker has yet to give away are those of its rows that the new
layout gives to another: a row comes to such a worker only while its key is one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dbsp.distribute.commands import BeginCommand, MigrateCommand, MoveCommand
from dbsp.distribute.names import ICADD
from dbsp.layout import Layout
from dbsp.runtime.runtime import MigrationReport
from tests.coordinator.fakes import Row, must, owner, row_hash, rows_at


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeMove:
    """One step: what every worker gives away at its start, which keys stay where they are, where rows go."""

    command: MigrateCommand
    old: Layout
    new: Layout
    given: Mapping[int, frozenset[Row]]
    staying: Mapping[int, frozenset[int]]
    moved_keys: int

    @staticmethod
    def of(command: MigrateCommand, old: Layout, new: Layout, states: Mapping[int, frozenset[Row]]) -> FakeMove:
        """From the states of all workers before the step."""
        bits = max(old.shard_bits, new.shard_bits)
        budget = command.budget if isinstance(command, MoveCommand) else 0
        given, staying, moved = {}, {}, 0
        held = [frozenset(row_hash(row) >> (64 - bits) for row in state) for state in states.values()]
        must(sum(map(len, held)) == len(frozenset().union(*held)), "2: a key has one owner")
        for worker, state in states.items():
            leaving = {row: row_hash(row) >> (64 - bits) for row in state if owner(new, row) != worker}
            keys = sorted(set(leaving.values()))
            going = frozenset(keys[:budget])
            given[worker] = frozenset(row for row, key in leaving.items() if key in going)
            staying[worker] = frozenset(keys[budget:])
            moved += len(going)
        return FakeMove(command=command, old=old, new=new, given=given, staying=staying, moved_keys=moved)

    @property
    def finds_out(self) -> bool:
        """Whether keys are only found out, and rows go as before."""
        return isinstance(self.command, BeginCommand) and self.command.strategy == ICADD

    def place(self, row: Row) -> int:
        """Where a row of the step goes."""
        before = owner(self.old, row)
        key = row_hash(row) >> (64 - max(self.old.shard_bits, self.new.shard_bits))
        return before if self.finds_out or key in self.staying.get(before, ()) else owner(self.new, row)

    def arriving(self, worker: int, rows: frozenset[Row]) -> frozenset[Row]:
        """Return those of a step's rows that go to a worker."""
        return frozenset(row for row in rows if self.place(row) == worker)

    def after(self, worker: int, state: frozenset[Row], mine: frozenset[Row]) -> frozenset[Row]:
        """A worker's state after the step."""
        taken = frozenset().union(*(rows_at(self.new, worker, rows) for rows in self.given.values()))
        must(not taken & state, "2: a key that moves is not there already")
        return (state - self.given[worker]) | taken | mine

    def report(self) -> MigrationReport:
        """What it says of itself."""
        left = sum(map(len, self.staying.values()))
        rows = sum(map(len, self.given.values()))
        return MigrationReport(
            strategy=self.command.strategy, moved_keys=self.moved_keys, moved_rows=rows, moved_bytes=rows, left_keys=left,
            rounds=1, over=not left and not self.finds_out,
        )  # fmt: skip
