"""The rows of dead letters of topics and files, decoded with the table's format and schema of today.

A letter of JSON has the text of its row. For any other letter the message, or the row of the file, is read again. That is
possible while the topic or the file still has it. Of several rows in a message the letter may be one. The others were
used before, and nothing but the letter's own text says which row it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from dbsp.algebra.table import Table
from dbsp.coordinator.running.letters import Letter
from dbsp.coordinator.serving.letter_codes import Code
from dbsp.errors import AwayError, DataError, DbspError, RowsError, UnavailableError
from dbsp.io.chunk import join_pushes
from dbsp.io.connectors import InputKind
from dbsp.io.connectors.messages import ReadsTopics
from dbsp.io.formats import decode_json
from dbsp.io.formats.json_rows import bad_row
from dbsp.io.pushed import PAYLOAD_CHARS_MAX, Push
from dbsp.io.texts import decode_record
from dbsp.logs import Changes, InputLog, Range

NO_STREAM = "not an Arrow stream of this table"
WHOLE_MESSAGES = ("debezium", "debezium-flat", "avro", "debezium-avro")
"""The formats whose messages are used whole or not at all."""
ESCAPE = "\\x"
"""The beginning of a byte in a text that was not UTF-8."""
REPLACED = "\ufffd"
"""The character in place of bytes that are not UTF-8."""
NO_ROW = (
    "its text is no JSON object: correct the row, and push it (a row of CSV can be replayed if its header is kept with the"
    " letter, as this version does)"
)


NOT_REPLAYED: Mapping[Code, str] = {
    "late": "it was late for a watermark, and would be late again",
    "second-row": "the first row of its key stays in an append-only table",
    "taken-back": "a lookup join takes no row back",
    "skipped": "it ended the process of its step, and would end it again",
    "failed": "a node failed on it, and its table has the row: correct the row there, or change the circuit",
}


def never(letter: Letter, tables: Mapping[str, Table]) -> str | None:
    """Return why no letter of this kind, or of this table, can be replayed; None if it can."""
    if letter.code != "unreadable":
        return NOT_REPLAYED[letter.code]
    return None if letter.table in tables else "the circuit has no table of this name any more"


def unreadable(letter: Letter) -> str | None:
    """Return why the text of a letter does not say what its row was; None if it does."""
    if not letter.header:
        return None if letter.text.lstrip().startswith("{") else NO_ROW
    if len(letter.text) >= PAYLOAD_CHARS_MAX:
        return "only the beginning of its text is kept: correct the row, and push it"
    if REPLACED in letter.text:
        return "its text was not UTF-8, and is not kept as it was: correct the row, and push it"
    has_delimiter = any(sign in letter.header for sign in ",\t")
    if not has_delimiter and any(sign in letter.text for sign in ",\t"):
        return "its header has one column, so its delimiter is not known: correct the row, and push it"
    return None


def decode_text(letter: Letter, table: Table, source: InputKind) -> Push:
    """Return the rows of a letter's text; `DataError` if its header does not fit the table any more."""
    if letter.header:
        return decode_record(letter.text, letter.header, table)
    return decode_json(letter.text.encode(), table, extras=source.ignores_unknown)


@dataclass(slots=True, kw_only=True)
class RowsOfLetters:
    """Reads the rows of letters; opens a handle on the input when the first one is read again."""

    tables: Mapping[str, Table]
    source: InputKind
    open_input: Callable[[], InputLog]
    _log: InputLog | None = None

    def __enter__(self) -> Self:
        """Return this object."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close the handle on the input."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def of(self, letter: Letter, *, alone: bool) -> Push | str:
        """Return the rows of a letter, bad if they still cannot be read, or why the rows are not known.

        `alone`: no other letter has its place in the input.

        **Errors** `UnavailableError` if a broker or a registry does not answer.
        """
        table = self.tables[letter.table or ""]
        if self._format(table.name) == "json" and _is_whole(letter):
            return self._of_text(letter, table)
        try:
            found = self._again(letter, table)
        except (AwayError, UnavailableError):
            raise
        except RowsError as error:
            return bad_row(error.message, letter.text.encode(), table)
        except DbspError as error:
            gone = f"{self._what} cannot be read again ({error.message})"
            if self._format(table.name) not in ("json", None) or not _is_whole(letter):
                return f"{gone}, and its text is not enough: {self._elsewhere(table.name)}"
            return self._of_text(letter, table)
        if found is None:
            return f"{self._what} has no row any more"
        if found.dead:
            return bad_row(found.dead[0].reason, letter.text.encode(), table)
        is_whole = self._format(table.name) in WHOLE_MESSAGES or NO_STREAM in letter.reason
        if not (alone and letter.count == 1 and (is_whole or len(found.batch) == 1)):
            return f"its message has several rows, and the letter does not say which one it is: {self._elsewhere(table.name)}"
        return Push(batch=found.batch, operations=found.operations)

    def _of_text(self, letter: Letter, table: Table) -> Push | str:
        try:
            push = decode_text(letter, table, self.source)
        except DataError as error:
            return f"its header, {letter.header}: {error}"
        if push.rows != 1:
            return f"its text has {push.rows} rows: {self._elsewhere(table.name)}"
        return push if push.bad else join_pushes([push] * letter.count, table.schema)

    def _again(self, letter: Letter, table: Table) -> Changes | None:
        """Read the place of a letter in the input once more; None if nothing is there."""
        if self._log is None:
            self._log = self.open_input()
        partition, offset = letter.partition or 0, letter.offset or 0
        range_ = Range(table=table.name, partition=partition, first=offset, last=offset + 1)
        found = [each for each in self._log.read(range_, letter.step) if len(each.batch) or each.dead]
        return found[0] if found else None

    def _format(self, table: str) -> str | None:
        """Return the format of the messages of a table's topic; None for files."""
        return self.source.formats.get(table, self.source.format) if isinstance(self.source, ReadsTopics) else None

    @property
    def _what(self) -> str:
        return "its message" if isinstance(self.source, ReadsTopics) else "its row of the file"

    def _elsewhere(self, table: str) -> str:
        if isinstance(self.source, ReadsTopics):
            return f"send a corrected message to topic {self.source.topic_of(table)}"
        return "put a file with the corrected row into the table's folder"


def _is_whole(letter: Letter) -> bool:
    """Return whether the text of a letter is that of its row, with all its bytes."""
    return unreadable(letter) is None and len(letter.text) < PAYLOAD_CHARS_MAX and ESCAPE not in letter.text
