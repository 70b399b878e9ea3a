"""Where the choices of a random query come from: a seed, or Hypothesis, which makes them smaller when a query fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from hypothesis import strategies as st

from tests.sql.kinds import Scope

Made = TypeVar("Made")
OUT_OF = 20


@dataclass(slots=True)
class Draw:
    """Choices, the first of which is the simplest; the names that a query has given so far, and the tables that it reads."""

    below: Callable[[int], int]
    named: dict[str, Scope] = field(default_factory=dict)
    views: dict[str, str] = field(default_factory=dict)
    tables: set[str] = field(default_factory=set)
    aliases: int = 0

    def pick(self, *cases: Made) -> Made:
        """One of these."""
        return self.of(cases)

    def of(self, cases: Sequence[Made]) -> Made:
        """One of a list."""
        return cases[self.below(len(cases))]

    def now_and_then(self, share: float) -> bool:
        """True in this share of cases; false is simpler."""
        return self.below(OUT_OF) >= OUT_OF - round(share * OUT_OF)

    def some(self, cases: Sequence[Made], least: int, most: int) -> list[Made]:
        """Several different ones, in any order."""
        left = list(cases)
        count = min(len(left), least + self.below(most - least + 1))
        return [left.pop(self.below(len(left))) for _ in range(count)]

    def shuffled(self, cases: Sequence[Made]) -> list[Made]:
        """All of them, in any order."""
        return self.some(cases, len(cases), len(cases))

    def alias(self, letter: str = "r") -> str:
        """A name that nothing has."""
        self.aliases += 1
        return f"{letter}{self.aliases}"


def seeded(seed: int) -> Draw:
    """The choices of a seed."""
    return Draw(Random(seed).randrange)


@st.composite
def drawn(draw: Any, made: Callable[[Draw], Made]) -> Made:
    """What a function makes of choices of Hypothesis."""
    return made(Draw(lambda number: draw(st.integers(0, number - 1))))
