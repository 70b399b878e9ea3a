"""Replays of dead letters that wait for a step: requests of other threads, taken by the event loop's thread.

A replay becomes a step of its own: the record of the step has the rows (`dbsp.logs.replays`). It is cut when every logged
step has finished. So the letter log then knows each letter that was replayed before, and no letter is replayed twice.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from dbsp.logs.replays import LetterPosition


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WaitingReplay:
    """The command of a step that replays these letters.

    `logged` becomes the number of the step when its record is durable, or None if one of the letters was replayed meanwhile.
    """

    letters: tuple[LetterPosition, ...]
    command: str
    logged: Future[int | None] = field(default_factory=Future)


class WaitingReplays:
    """The replays that no step has taken yet; any thread may call."""

    def __init__(self) -> None:
        """Begin with none."""
        self._waiting: deque[WaitingReplay] = deque()
        self._lock = threading.Lock()

    def add(self, replay: WaitingReplay) -> None:
        """Let the next step take the replay."""
        with self._lock:
            self._waiting.append(replay)

    def withdraw(self, replay: WaitingReplay) -> bool:
        """Take a replay back; return False if a step has taken it."""
        with self._lock:
            if replay not in self._waiting:
                return False
            self._waiting.remove(replay)
            return True

    def __bool__(self) -> bool:
        """Return whether a replay waits."""
        with self._lock:
            return bool(self._waiting)

    def take(self, replayed: Callable[[Sequence[LetterPosition]], Sequence[int | None]]) -> WaitingReplay | None:
        """Return the oldest replay of whose letters none was `replayed`; None if there is none. Answer the others."""
        while True:
            with self._lock:
                if not self._waiting:
                    return None
                found = self._waiting.popleft()
            if all(step is None for step in replayed(found.letters)):
                return found
            found.logged.set_result(None)
