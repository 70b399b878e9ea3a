"""Track the transaction of a session, as clients expect it: open, failed or none, and its places (`SAVEPOINT`).

A transaction has no effect on reads, and nothing is written. Every statement reads the views as of one step of its own,
as READ COMMITTED promises.
"""

from __future__ import annotations

from collections.abc import Sequence

from dbsp.coordinator.postgres.refusals import NOT_SUPPORTED, PostgresRefusal
from dbsp.coordinator.postgres.statements import Statement, pieces_of, unquoted

IDLE, OPEN, FAILED = "I", "T", "E"
FAILED_TRANSACTION = "25P02"
_SAVEPOINTS_MAX = 1000
_ENDS = ("ROLLBACK", "ABORT", "COMMIT", "END")


class TransactionBlock:
    """The transaction of one session. Methods that carry out a statement return its tag, and a warning or None."""

    def __init__(self) -> None:
        """Create the tracker without an open transaction."""
        self.status = IDLE
        self._savepoints: list[str] = []

    def refuse_failed(self, statement: Statement) -> None:
        """Raise `PostgresRefusal` for a statement that a failed transaction does not run."""
        if self.status == FAILED and statement.verb not in _ENDS:
            raise PostgresRefusal(
                FAILED_TRANSACTION, "current transaction is aborted, commands ignored until end of transaction block"
            )

    def fail(self) -> None:
        """Note an error: an open transaction has failed."""
        if self.status == OPEN:
            self.status = FAILED

    def begin(self, statement: Statement) -> tuple[str, tuple[str, str] | None]:
        """Begin a transaction."""
        refuse_isolation(pieces_of(statement.text))
        warning = ("25001", "there is already a transaction in progress") if self.status == OPEN else None
        self.status = OPEN
        return "START TRANSACTION" if statement.verb == "START" else "BEGIN", warning

    def commit(self) -> tuple[str, tuple[str, str] | None]:
        """End the transaction."""
        tag = "ROLLBACK" if self.status == FAILED else "COMMIT"
        return tag, self._end()

    def roll_back(self, statement: Statement) -> tuple[str, tuple[str, str] | None]:
        """End the transaction, or return to a place in it (`ROLLBACK TO`)."""
        words = [word for word in statement.words if word not in ("WORK", "TRANSACTION", "SAVEPOINT")]
        if words[1:2] == ["TO"]:
            place = self._place_of(words[2:3])
            del self._savepoints[place + 1 :]
            self.status = OPEN
            return "ROLLBACK", None
        return "ROLLBACK", self._end()

    def _end(self) -> tuple[str, str] | None:
        warning = ("25P01", "there is no transaction in progress") if self.status == IDLE else None
        self.status = IDLE
        self._savepoints.clear()
        return warning

    def note_place(self, statement: Statement) -> str:
        """Carry out `SAVEPOINT`: add a named place in the transaction."""
        self._refuse_outside("SAVEPOINT")
        if len(self._savepoints) >= _SAVEPOINTS_MAX:
            raise PostgresRefusal("53400", f"too many savepoints: most={_SAVEPOINTS_MAX}")
        self._savepoints.append(unquoted(statement.words[1]) if len(statement.words) > 1 else "")
        return "SAVEPOINT"

    def release(self, statement: Statement) -> str:
        """Carry out `RELEASE`: forget a named place, and those after it."""
        self._refuse_outside("RELEASE SAVEPOINT")
        words = [word for word in statement.words[1:] if word != "SAVEPOINT"]
        del self._savepoints[self._place_of(words) :]
        return "RELEASE"

    def _refuse_outside(self, what: str) -> None:
        if self.status == IDLE:
            raise PostgresRefusal("25P01", f"{what} can only be used in transaction blocks")

    def _place_of(self, words: Sequence[str]) -> int:
        name = unquoted(words[0]) if words else ""
        if name not in self._savepoints:
            raise PostgresRefusal("3B001", f'SAVEPOINT "{name[:60]}" does not exist')
        return len(self._savepoints) - 1 - self._savepoints[::-1].index(name)


def refuse_isolation(pieces: Sequence[str]) -> None:
    """Raise `PostgresRefusal` for a stricter isolation than READ COMMITTED."""
    text = " ".join(pieces)
    if "SERIALIZABLE" in text or "REPEATABLE READ" in text:
        raise PostgresRefusal(
            NOT_SUPPORTED, "every statement reads the views as of its own step: only READ COMMITTED is supported",
            "use READ COMMITTED, and one statement where values must fit together",
        )  # fmt: skip
