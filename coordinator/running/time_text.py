"""Waterlines as people read them; whoever only shows what a service answers imports this without the engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def waterline_text(found: Mapping[str, Any]) -> str:
    """Say where a waterline is, and why it is not further.

    **Example**

    >>> waterline_text({"table": "clicks", "column": "at", "node": "watermark#1", "waterline": "2024-01-01T09:00:20.000000",
    ...     "partitions": 3, "idle": [2], "held_back_by": {"partition": 1, "reached": "2024-01-01T09:00:20.000000"}})
    'clicks.at: waterline 2024-01-01T09:00:20.000000, held back by partition 1; idle: 2'
    """
    name = f"{found['table'] or found['node']}.{found['column']}"
    text = f"{name}: waterline {found['waterline'] or 'none yet'}"
    held = found["held_back_by"]
    if found["partitions"] > 1 and held is not None:
        text += f", held back by partition {held['partition']}" + ("" if held["reached"] else ", which has no rows yet")
    return text + (f"; idle: {', '.join(map(str, found['idle']))}" if found["idle"] else "")
