"""Groups of pushes that one step must take together, with their ranges of rows, in order of arrival.

They are stored in a part of the input log's file that the first group creates, so a log without groups keeps its old
format. Only the cutting of steps reads them, and only if a step cannot take all waiting rows.

**State** one record per group until all its rows are trimmed. Source: design record 0030.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dbsp.io.environment import LogEnvironment
from dbsp.io.spans import OFFSET, Place
from dbsp.io.step_codec import seal, unseal
from dbsp.logs import Range

PART = "transactions"


class Transactions:
    """The groups of one input log; the appending process owns this object."""

    def __init__(self, env: LogEnvironment) -> None:
        """Store the log's environment."""
        self._env = env
        self._from = 0  # every group below this number is done

    def prepare(self) -> None:
        """Create the part of the file if it is absent; to be called before the transaction of the first `add`."""
        self._env.add(PART)

    def add(self, txn: Any, ranges: Sequence[Range]) -> None:
        """Note ranges of rows that belong together."""
        db = self._env.db(PART)
        cursor = txn.cursor(db=db)
        number = OFFSET.unpack(cursor.key())[0] + 1 if cursor.last() else 0
        value = {"ranges": [[each.table, each.partition, each.first, each.last] for each in ranges]}
        txn.put(OFFSET.pack(max(number, self._from)), seal(value), db=db)

    def waiting(self, done: Mapping[Place, int]) -> list[tuple[Range, ...]]:
        """Return the groups with rows that are not done, the oldest first.

        **Cost** a Python loop over all waiting groups.
        """
        if not self._env.has(PART):
            return []
        found = []
        with self._env.read() as txn:
            cursor = txn.cursor(db=self._env.db(PART))
            more = cursor.set_range(OFFSET.pack(self._from))
            while more:
                ranges = ranges_of(cursor.value(), self._where)
                if any(each.last > done.get((each.table, each.partition), 0) for each in ranges):
                    found.append(ranges)
                elif not found:
                    self._from = OFFSET.unpack(cursor.key())[0] + 1
                more = cursor.next()
        return found

    def trim(self, txn: Any, is_trimmed: Callable[[Range], bool]) -> None:
        """Drop the oldest groups whose rows are all trimmed."""
        if not self._env.has(PART):
            return
        cursor = txn.cursor(db=self._env.db(PART))
        cursor.first()
        while cursor.key() and all(map(is_trimmed, ranges_of(cursor.value(), self._where))):
            cursor.delete()

    @property
    def _where(self) -> str:
        return f"{self._env.where} part={PART}"


def ranges_of(value: bytes, where: str) -> tuple[Range, ...]:
    """Decode the ranges of a group from its record; raise a `DataError` with `where` if damaged."""
    return tuple(
        Range(table=table, partition=partition, first=first, last=last)
        for table, partition, first, last in unseal(value, where)["ranges"]
    )
