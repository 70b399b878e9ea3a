"""The results of a replay of dead letters, counted while it goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from dbsp.coordinator.running.letters import Letter
from dbsp.coordinator.serving.answers import LetterRefused, LetterReplay
from dbsp.io.pushed import Position

SHOWN_MAX = 20


class ReplayTotal:
    """The results of a replay so far."""

    def __init__(self, dry_run: bool, matched: int) -> None:
        """Begin with nothing replayed of the `matched` letters."""
        self.dry_run, self._matched = dry_run, matched
        self.before = self._good = self._bad = 0
        self._reasons: Counter[str] = Counter()
        self._refused: list[LetterRefused] = []
        self._again: list[LetterRefused] = []
        self._positions: list[Position] = []
        self._steps: list[int] = []

    def refuse(self, letter: Letter, why: str) -> None:
        """Note a letter that cannot be replayed."""
        self._reasons[why] += 1
        self._show(self._refused, letter, why)

    def keep(self, letter: Letter, why: str) -> None:
        """Note a letter whose row still cannot be read."""
        self._bad += 1
        self._show(self._again, letter, why)

    def add(self, position: Position | None) -> None:
        """Note a letter that was replayed to a position; None for a dry run."""
        if position is not None and position.repeated:  # another request has replayed the letter meanwhile
            self.before += 1
            return
        self._good += 1
        if position is not None:
            self._positions.append(position)

    def add_step(self, step: int | None, letters: int) -> None:
        """Note letters whose rows a step takes; None for a dry run."""
        self._good += letters
        if step is not None:
            self._steps.append(step)

    def _show(self, where: list[LetterRefused], letter: Letter, why: str) -> None:
        if len(where) < SHOWN_MAX:
            where.append(LetterRefused(position=letter.at, reason=why))

    def answer(self) -> LetterReplay:
        """Return the results."""
        return LetterReplay(
            dry_run=self.dry_run, matched=self._matched, replayed=self._good, failed_again=self._bad,
            replayed_before=self.before, not_replayable=dict(self._reasons), again=tuple(self._again),
            refused=tuple(self._refused), positions=tuple(_merged(self._positions)),
            steps=tuple(sorted(set(self._steps))),
        )  # fmt: skip


def _merged(positions: Sequence[Position]) -> Iterator[Position]:
    """Yield the positions of replayed rows, with neighbours joined."""
    found: dict[tuple[str, int], list[Position]] = {}
    for each in positions:
        held = found.setdefault((each.table, each.partition), [])
        if held and held[-1].last == each.first:
            held[-1] = replace(held[-1], last=each.last)
        else:
            held.append(each)
    for held in found.values():
        yield from held
