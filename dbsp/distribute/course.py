"""The course of one migration: which command each of its steps gets, until it is over or turned round.

A value, for whoever writes step records: a coordinator's machine, a run in one process. A step's command follows from its number
alone, so whoever goes on after a crash needs nothing but the course; that it is over is said by a step's report, which a
replay says again at the same step.

Source: docs/concepts/rescale.md; design record 0015.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dbsp.distribute.commands import BeginCommand, CancelCommand, EnterCommand, MigrateCommand, MoveCommand
from dbsp.distribute.names import ICADD, STRATEGIES
from dbsp.distribute.strategies import joint
from dbsp.errors import ConfigError
from dbsp.layout import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """A migration from layout `old` to `new` from step `first` on, at most `budget` keys of every owner per step.

    `version` is that of the layout its steps run in. `turned`: it takes back another one, whose new layout is `old` here.

    **Example**

    >>> from dbsp.layout import initial, rescaled
    >>> course = Course.towards(rescaled(initial(1), 2, step=3), initial(1), strategy="redistribute", first=3, budget=100)
    >>> course.command(3)
    BeginCommand(strategy='redistribute', old=0, new=2)
    >>> course.command(4), course.layout.workers
    (MoveCommand(strategy='redistribute', budget=100), (0, 1))
    """

    strategy: str
    version: int
    old: Layout
    new: Layout
    first: int
    budget: int
    turned: bool = False

    def __post_init__(self) -> None:
        """Refuse what would never end."""
        if self.strategy not in STRATEGIES:
            raise ConfigError(f"no such strategy: strategy={self.strategy}", f"choose one of {', '.join(STRATEGIES)}")
        if self.budget < 1:
            raise ConfigError(f"no key would ever move: keys_per_step={self.budget}", "give at least 1")

    @classmethod
    def towards(cls, new: Layout, old: Layout, *, strategy: str, first: int, budget: int) -> Course:
        """The course to `new`, which gets the version after the one it has: its own is that of the steps between."""
        ahead = replace(new, version=new.version + 1)
        return cls(strategy=strategy, version=new.version, old=old, new=ahead, first=first, budget=budget)

    @property
    def layout(self) -> Layout:
        """What steps run in: the workers of both; shards are still their old owners', but for the keys that have moved."""
        return replace(joint(self.old, self.new), version=self.version, owners=self.old.owners)

    def command(self, step: int) -> MigrateCommand:
        """That of a step from `first` on."""
        if step == self.first and self.turned:
            return CancelCommand(strategy=self.strategy, version=self.new.version)
        if step == self.first:
            return BeginCommand(strategy=self.strategy, old=self.old.version, new=self.new.version)
        if step == self.first + 1 and self.strategy == ICADD and not self.turned:
            return EnterCommand(strategy=self.strategy)
        return MoveCommand(strategy=self.strategy, budget=self.budget)

    def turned_round(self, step: int) -> Course:
        """The way back from `step` on: to the old layout under a new version.

        **Errors** `ConfigError` before its first step, and before the step that turns it round.
        """
        if step <= self.first:
            state = "turns round already" if self.turned else "has not begun"
            raise ConfigError(f"a rescale that {state} cannot turn round", "run a step first")
        version = self.new.version + 1
        back = replace(self.old, version=version + 1)
        return replace(self, version=version, old=self.new, new=back, first=step, turned=True)
