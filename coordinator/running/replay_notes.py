"""Drop the notes of replayed letters of pushed rows when nothing can refer to them any more.

A note is needed while its letter is kept, and while a recovery may make the letter again. So it is dropped below the offset to
which the input is trimmed, and below the first kept letter of its partition. The letters are looked at one checkpoint before. A
backup pins the letters before the input, and begins anew if a checkpoint is published meanwhile. So it has the note of every
letter that it has.
"""

from __future__ import annotations

from dbsp.coordinator.decisions.cutting import Positions
from dbsp.coordinator.running.letters import KeepsLetters
from dbsp.io.pushed import NotesReplays
from dbsp.logs import InputLog


class ReplayNotes:
    """The notes of replays in one input log.

    **State** the offsets below which the next trim drops notes.
    """

    def __init__(self, inputs: InputLog, letters: KeepsLetters) -> None:
        """Look at nothing yet."""
        self._inputs, self._letters = inputs, letters
        self._kept_from = 0
        self._below: Positions = {}

    def trimmed(self, positions: Positions) -> None:
        """Drop notes after the input was trimmed to these positions.

        **Cost** reads the letters if some were dropped since the last call.
        """
        if not isinstance(self._inputs, NotesReplays):
            return
        if self._below:
            self._inputs.forget_replayed(self._below)
            self._below = {}
        kept_from = self._letters.kept_from
        if kept_from > self._kept_from:
            first = self._letters.first_offsets()
            self._below = {place: min(to, first.get(place, to)) for place, to in positions.items()}
            self._kept_from = kept_from
