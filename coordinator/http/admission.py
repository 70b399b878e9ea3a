"""Whether a push may come in: the rows that wait are bounded, so that a producer that is too fast waits, and not the disk fills.

Pure arithmetic on offsets; the service asks before it appends. A refused push leaves nothing behind and is sent again later. One
that is let in may take the backlog over the bound by its own size: a push larger than the bound is not refused for ever.
"""

from __future__ import annotations

from collections.abc import Callable

from dbsp.coordinator.config import InputSection
from dbsp.coordinator.decisions.cutting import Positions
from dbsp.errors import OverloadedError

HINT = "send it again later; or raise `max_backlog_rows`, `max_backlog_bytes` in [input]"


def refuse_overload(
    ends: Positions, done: Positions, bytes_per_row: Callable[[str], float], limits: InputSection
) -> None:
    """Refuse a push while more waits than the settings allow.

    **Cost** one look per partition, and one at the mean size of the rows of each table that waits.
    **Errors** `OverloadedError` with the backlog and the bound that it exceeds.
    """
    waiting: dict[str, int] = {}
    for place, end in ends.items():
        rows = end - done.get(place, 0)
        if rows > 0:
            waiting[place[0]] = waiting.get(place[0], 0) + rows
    total = sum(waiting.values())
    if total >= limits.max_backlog_rows:
        raise OverloadedError(
            f"too many rows wait: backlog_rows={total} max_backlog_rows={limits.max_backlog_rows}", HINT
        )
    size = int(sum(rows * bytes_per_row(table) for table, rows in waiting.items()))
    if size >= limits.max_backlog_bytes:
        raise OverloadedError(
            f"too many bytes wait: backlog_bytes={size} max_backlog_bytes={limits.max_backlog_bytes}", HINT
        )
