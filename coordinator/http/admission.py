"""Whether a push may come in: the rows that wait are bounded, so that a producer that is too fast waits, and not the disk fills.

Pure arithmetic on offsets; the service asks before it appends. A refused push leaves nothing behind and is sent again later. One
that is let in may take the backlog over the bound by its own size: a push larger than the bound is not refused for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dbsp.coordinator.config import InputSection
from dbsp.coordinator.decisions.cutting import Place
from dbsp.errors import OverloadedError
from dbsp.logs import Range
from dbsp.sizes import Sizes

HINT = "send it again later; or raise `max_backlog_rows`, `max_backlog_bytes` in [input]"


def refuse_overload(
    waiting: Sequence[Range],
    sizes: Callable[[Sequence[Range]], Mapping[Place, Sizes]],
    limits: InputSection,
) -> None:
    """Refuse a push while more waits than the settings allow; `sizes` is the log's.

    **Errors** `OverloadedError` with the backlog and the bound that it exceeds.
    """
    total = sum(each.last - each.first for each in waiting)
    if total >= limits.max_backlog_rows:
        raise OverloadedError(
            f"too many rows wait: backlog_rows={total} max_backlog_rows={limits.max_backlog_rows}", HINT
        )
    known = sizes(waiting)
    size = sum(known[each.table, each.partition].between(each.first, each.last) for each in waiting)
    if size >= limits.max_backlog_bytes:
        raise OverloadedError(
            f"too many bytes wait: backlog_bytes={size} max_backlog_bytes={limits.max_backlog_bytes}", HINT
        )
