"""The course of one migration: which command the next step gets, until it is over or turned round.

A value, for whoever writes step records: a coordinator's machine, a run in one process. It sees only whether a step's report
said that the migration is over, which a replay says again at the same step.

Source: design section 9; design record 0015.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from dbsp.distribute.commands import BeginCommand, CancelCommand, EnterCommand, MigrateCommand, MoveCommand
from dbsp.distribute.strategies import ICADD, STRATEGIES, joint
from dbsp.errors import ConfigError
from dbsp.layout import Layout


class Stage(Enum):
    """What the next step does."""

    BEGIN = "begin"
    ENTER = "enter"
    MOVE = "move"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """A migration from layout `old` to `new`, at most `budget` keys of every owner per step.

    **Example**

    >>> from dbsp.layout import initial, rescaled
    >>> course = Course(strategy="redistribute", old=initial(1), new=rescaled(initial(1), 2, step=3), budget=100)
    >>> course.command
    BeginCommand(strategy='redistribute', old=0, new=1)
    >>> course.next().command
    MoveCommand(strategy='redistribute', budget=100)
    """

    strategy: str
    old: Layout
    new: Layout
    budget: int
    stage: Stage = Stage.BEGIN

    def __post_init__(self) -> None:
        """Refuse what would never end."""
        if self.strategy not in STRATEGIES:
            raise ConfigError(f"no such strategy: strategy={self.strategy}", f"choose one of {', '.join(STRATEGIES)}")
        if self.budget < 1:
            raise ConfigError(f"no key would ever move: keys_per_step={self.budget}", "give at least 1")

    @property
    def layout(self) -> Layout:
        """What steps run on: the workers of both."""
        return joint(self.old, self.new)

    @property
    def command(self) -> MigrateCommand:
        """The next step's."""
        match self.stage:
            case Stage.BEGIN:
                return BeginCommand(strategy=self.strategy, old=self.old.version, new=self.new.version)
            case Stage.ENTER:
                return EnterCommand(strategy=self.strategy)
            case Stage.MOVE:
                return MoveCommand(strategy=self.strategy, budget=self.budget)
            case Stage.CANCEL:
                return CancelCommand(strategy=self.strategy, version=self.new.version)

    def next(self) -> Course:
        """After a step with this command that did not end the migration."""
        to_enter = self.stage is Stage.BEGIN and self.strategy == ICADD
        return replace(self, stage=Stage.ENTER if to_enter else Stage.MOVE)

    def cancelled(self) -> Course:
        """The way back, once it has begun: to the old layout under a new version.

        **Errors** `ConfigError` before its first step, and before the step that turns it round.
        """
        if self.stage in (Stage.BEGIN, Stage.CANCEL):
            state = "has not begun" if self.stage is Stage.BEGIN else "turns round already"
            raise ConfigError(f"a rescale that {state} cannot turn round", "run a step first")
        back = replace(self.old, version=self.new.version + 1)
        return replace(self, old=self.new, new=back, stage=Stage.CANCEL)
