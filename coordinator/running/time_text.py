"""Format waterlines for people; a client that only shows responses of a service imports this module without the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

PARTITIONS_SHOWN: Final = 16


def waterline_text(found: Mapping[str, Any]) -> str:
    """Describe a waterline: the time it has reached, the partition that holds it back, and the time of each partition.

    **Example**

    >>> print(waterline_text({"table": "clicks", "column": "at", "node": "watermark#1", "waterline": "2024-01-01T09:00:20",
    ...     "partitions": 3, "idle": [2], "held_back_by": {"partition": 1, "reached": "2024-01-01T09:00:20"},
    ...     "by_partition": [{"partition": 0, "reached": "2024-01-01T09:07:00", "idle": False},
    ...         {"partition": 1, "reached": "2024-01-01T09:00:20", "idle": False},
    ...         {"partition": 2, "reached": None, "idle": True}]}))
    clicks.at: waterline 2024-01-01T09:00:20, held back by partition 1; idle: 2
      partition 0: 2024-01-01T09:07:00
      partition 1: 2024-01-01T09:00:20
      partition 2: no rows yet
    """
    name = f"{found['table'] or found['node']}.{found['column']}"
    text = f"{name}: waterline {found['waterline'] or 'none yet'}"
    held = found["held_back_by"]
    if found["partitions"] > 1 and held is not None:
        text += f", held back by partition {held['partition']}" + ("" if held["reached"] else ", which has no rows yet")
    text += f"; idle: {', '.join(map(str, found['idle']))}" if found["idle"] else ""
    return "\n".join([text, *_partition_lines(found.get("by_partition", ()))])


def _partition_lines(each: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each of the first partitions of a table that has several."""
    if len(each) < 2:  # noqa: PLR2004 - one partition says what the waterline says
        return []
    lines = [f"  partition {one['partition']}: {one['reached'] or 'no rows yet'}" for one in each[:PARTITIONS_SHOWN]]
    more = len(each) - PARTITIONS_SHOWN
    return [*lines, f"  {more} more: see `waterlines` in `coordinator --json status`"] if more > 0 else lines
