"""The kinds and columns of dead letters, apart from the modules that read them, so that commands load no engine.

| code | the row |
| --- | --- |
| `unreadable` | could not be read |
| `skipped` | was left out by a decision, because it ended the process of its step |
| `late` | was late for a watermark |
| `second-row` | is a second row of its key in an append-only table |
| `taken-back` | was deleted before a lookup join |
| `failed` | failed at a node |
"""

from __future__ import annotations

from typing import Literal, get_args

Code = Literal["unreadable", "skipped", "late", "second-row", "taken-back", "failed"]
CODES: tuple[str, ...] = get_args(Code)
COLUMNS = (
    "position", "step", "code", "table_name", "partition", "row_offset", "unplaced", "node", "reason", "count", "is_delete",
    "replayed", "header", "text",
)  # fmt: skip
"""The columns of a letter, everywhere. None of these names needs quotes in SQL.

The relation `dead_letters` has a row for each of the `count`. Changes of letters have a weight in place of `count` and
`is_delete`, and leave out what later steps or other letters decide: `position`, `replayed`, `header`.
"""
