"""Replay the dead letters of topics and files: each replay is a step of its own, whose record has the rows.

Law: each letter is replayed at most once, whatever is killed or repeated. Only the record of the step says that it replays a
letter. The letter log notes that when the step has run (design record 0066). Nothing is written to the user's topics and
folders.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from itertools import groupby
from typing import TypeAlias

from dbsp.coordinator.build import Built, resources_of
from dbsp.coordinator.running.letters import Letter
from dbsp.coordinator.running.replays import WaitingReplay
from dbsp.coordinator.running.status import Snapshot
from dbsp.coordinator.serving import letter_rows
from dbsp.coordinator.serving.core import refuse_halted
from dbsp.coordinator.serving.ingest import Ingest
from dbsp.coordinator.serving.replay_total import ReplayTotal
from dbsp.coordinator.settings.config import Config
from dbsp.errors import ConfigError, UnavailableError
from dbsp.io.letter_log import ELSEWHERE
from dbsp.io.pushed import Push
from dbsp.logs.replays import LetterRows, of_letters
from dbsp.stored.levels import REPLAYS_SINCE

REPLAY_PIECE = 1_000
"""How many letters one transaction, or one step, replays."""
COMMAND_CHARS_MAX = 512 << 10
"""Characters of the rows in one step record: Kafka's brokers take messages of 1 MB."""
LOOK_S, PATIENCE_S = 0.5, 60.0
"""How often a replay that waits for its step looks at the state, and how long it waits while steps run."""

LetterPlace: TypeAlias = tuple[str | None, int | None, int | None]
"""Table, partition and offset of a letter."""
Plan: TypeAlias = Sequence[tuple[Letter, Push | str | None]]
"""What is to be done with each letter: its rows, why there are none, or None if it was replayed before."""


class ReplaysInSteps(Ingest):
    """The part of the interface for dead letters that makes steps."""

    def __init__(self, config: Config, built: Built | None = None) -> None:
        """Prepare the turn of requests: one replays at a time."""
        super().__init__(config, built)
        self._replaying = threading.Lock()

    def _replay_in_steps(self, letters: Sequence[Letter], total: ReplayTotal) -> None:
        """Replay letters, in steps of those of one table."""
        self._refuse_replays()
        log = self.built.letters
        at_place = Counter((each.table, each.partition, each.offset) for each in log.below(self.snapshot.step))
        resources = resources_of(self.config, self.built.plan, self.built.parts.level)
        rows = letter_rows.RowsOfLetters(
            tables=self._tables, source=self.config.input, open_input=resources.open_input
        )  # fmt: skip
        with self._replaying, rows:
            ordered = sorted(letters, key=lambda each: each.table or "")
            for _, group in groupby(ordered, lambda each: each.table):
                mine = list(group)
                for first in range(0, len(mine), REPLAY_PIECE):
                    self._replay_unit(mine[first : first + REPLAY_PIECE], rows, at_place, total)

    def _refuse_replays(self) -> None:
        """Refuse a replay that no step could take."""
        source = self.config.input
        if self.built.parts.level < REPLAYS_SINCE:
            raise ConfigError(
                f"letters of this input cannot be replayed while version 0.1.0 may continue the pipeline:"
                f" input.kind={source.kind}",
                f"{source.push_elsewhere}; or replay them after the first start that follows `rollback_window_s` of [upgrade]",
            )

    def _replay_unit(
        self,
        letters: Sequence[Letter],
        rows: letter_rows.RowsOfLetters,
        at_place: Mapping[LetterPlace, int],
        total: ReplayTotal,
    ) -> None:
        """Replay some letters of one table in one step; in several if their rows are too many for one record."""
        while True:
            plan = self._planned(letters, rows, at_place)
            good = [(letter, found) for letter, found in plan if isinstance(found, Push) and not found.bad]
            step = None
            if good and not total.dry_run:
                command = _command(good)
                if len(command) > COMMAND_CHARS_MAX and len(good) > 1:
                    middle = len(letters) // 2
                    for half in (letters[:middle], letters[middle:]):
                        self._replay_unit(half, rows, at_place, total)
                    return
                positions = tuple((letter.step, letter.number) for letter, _ in good)
                step = self._logged(WaitingReplay(letters=positions, command=command))
                if step is None:  # one of them was replayed meanwhile: look again
                    continue
            _count(plan, total)
            total.add_step(step, len(good))
            return

    def _planned(
        self, letters: Sequence[Letter], rows: letter_rows.RowsOfLetters, at_place: Mapping[LetterPlace, int]
    ) -> Plan:  # fmt: skip
        """Return what is to be done with each letter now."""
        done = self.built.letters.replayed([(each.step, each.number) for each in letters])
        plan: list[tuple[Letter, Push | str | None]] = []
        for letter, step in zip(letters, done, strict=True):
            if step is not None:
                plan.append((letter, None))
                continue
            found: Push | str | None = letter_rows.never(letter, self._tables) or self._read_meanwhile(letter)
            if found is None:
                alone = at_place[letter.table, letter.partition, letter.offset] == 1
                found = rows.of(letter, alone=alone)
            if isinstance(found, Push) and not found.bad and _is_too_large(letter, found):
                found = f"its row is too large for a step record: chars_max={COMMAND_CHARS_MAX}"
            plan.append((letter, found))
        return plan

    def _read_meanwhile(self, letter: Letter) -> str | None:
        """Return why a letter is refused if a changed circuit, or another coordinator, may have used its row; None if not."""
        log = self.built.letters.log
        if letter.step < log.read_again(ELSEWHERE):
            return "another coordinator has run the pipeline since, and may have replayed it"
        step = log.read_again(letter.table or "")
        if letter.step >= step:
            return None
        return (
            f"a changed circuit has read its table once more, in step {step}: new views have its row if it can be read"
        )

    def _logged(self, replay: WaitingReplay) -> int | None:
        """Let a step take a replay; return the step when its record is durable, None if a letter was replayed meanwhile."""
        replays, until_s = self._loop.runner.replays, time.monotonic() + PATIENCE_S
        self._refuse_resting(self.snapshot)
        replays.add(replay)
        self._loop.wake()
        while True:
            try:
                return replay.logged.result(LOOK_S)
            except FutureTimeoutError:
                if replay.logged.done():
                    continue
            now, late = self.snapshot, time.monotonic() > until_s
            is_resting = now.ended or now.halt is not None or now.state == "Paused"
            if (late or is_resting) and replays.withdraw(replay):
                self._refuse_resting(now)
                raise UnavailableError(
                    f"no step has taken the rows in time: timeout_s={PATIENCE_S} state={now.state}", "repeat the replay"
                )
            if now.ended or time.monotonic() > until_s + PATIENCE_S:
                raise UnavailableError(
                    f"it is not known whether the rows were replayed: state={now.state}",
                    "repeat the replay when the service runs: each letter is replayed at most once",
                )

    def _refuse_resting(self, now: Snapshot) -> None:
        """Raise `UnavailableError` if no step runs until a user decides."""
        self._refuse_ended()
        refuse_halted(now.halt)
        if now.state == "Paused":
            raise UnavailableError("the pipeline is paused, and no step takes the rows", "`coordinator resume` first")


def _command(good: Sequence[tuple[Letter, Push]]) -> str:
    """Return the command of a step that takes the rows of these letters of one table."""
    rows = [(_named(letter, push), push.batch, push.operations) for letter, push in good]
    return of_letters(good[0][0].table or "", rows).to_text()


def _named(letter: Letter, push: Push) -> LetterRows:
    place = (letter.partition or 0, letter.offset or 0)
    return LetterRows(position=(letter.step, letter.number), partition=place[0], offset=place[1], rows=push.rows)


def _is_too_large(letter: Letter, push: Push) -> bool:
    return push.batch.nbytes > COMMAND_CHARS_MAX // 2 and len(_command([(letter, push)])) > COMMAND_CHARS_MAX


def _count(plan: Plan, total: ReplayTotal) -> None:
    """Add the letters that no step takes to the results."""
    for letter, found in plan:
        if found is None:
            total.before += 1
        elif isinstance(found, str):
            total.refuse(letter, found)
        elif found.bad:
            total.keep(letter, found.bad[0].reason)
