"""The migration plan gives the command of each step of a migration, until the migration ends or is cancelled.

A plan is a value, for the writers of step records: a coordinator's state machine, or a run in one process. A step's
command follows from the step's number alone, so recovery after a crash needs only the plan. The report of a step says
whether the migration is over, and a replay reports the same at the same step.

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
class MigrationPlan:
    """The plan of a migration from layout `old` to `new` from step `first` on, at most `budget` keys of every owner per step.

    `version` is the version of the layout in which its steps run. A plan with `turned` cancels another plan, whose new
    layout is `old` here.

    **Example**

    >>> from dbsp.layout import initial, rescaled
    >>> two, one = rescaled(initial(1), 2, step=3), initial(1)
    >>> plan = MigrationPlan.towards(two, one, strategy="redistribute", first=3, budget=100)
    >>> plan.command(3)
    BeginCommand(strategy='redistribute', old=0, new=2)
    >>> plan.command(4), plan.layout.workers
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
        """Refuse a plan that would never end."""
        if self.strategy not in STRATEGIES:
            raise ConfigError(f"no such strategy: strategy={self.strategy}", f"choose one of {', '.join(STRATEGIES)}")
        if self.budget < 1:
            raise ConfigError(f"no key would ever move: keys_per_step={self.budget}", "give at least 1")

    @classmethod
    def towards(cls, new: Layout, old: Layout, *, strategy: str, first: int, budget: int) -> MigrationPlan:
        """Return the plan of a migration to `new`, with the version of `new` increased by one.

        The version that `new` has now becomes the version of the layout in which the steps run.
        """
        ahead = replace(new, version=new.version + 1)
        return cls(strategy=strategy, version=new.version, old=old, new=ahead, first=first, budget=budget)

    @property
    def layout(self) -> Layout:
        """Return the layout in which steps run: the workers of both layouts, and the old owners of shards.

        Keys that have moved are exceptions to these owners. The distributors know the exceptions.
        """
        return replace(joint(self.old, self.new), version=self.version, owners=self.old.owners)

    def command(self, step: int) -> MigrateCommand:
        """Return the command of a step from `first` on."""
        if step == self.first and self.turned:
            return CancelCommand(strategy=self.strategy, version=self.new.version)
        if step == self.first:
            return BeginCommand(strategy=self.strategy, old=self.old.version, new=self.new.version)
        if step == self.first + 1 and self.strategy == ICADD and not self.turned:
            return EnterCommand(strategy=self.strategy)
        return MoveCommand(strategy=self.strategy, budget=self.budget)

    def turned_round(self, step: int) -> MigrationPlan:
        """Return the plan that cancels this plan from `step` on: back to the old layout, under a new version.

        **Errors** `ConfigError` before the plan's first step has run.
        """
        if step <= self.first:
            state = "turns round already" if self.turned else "has not begun"
            raise ConfigError(f"a rescale that {state} cannot be cancelled", "run a step first")
        version = self.new.version + 1
        back = replace(self.old, version=version + 1)
        return replace(self, version=version, old=self.new, new=back, first=step, turned=True)
