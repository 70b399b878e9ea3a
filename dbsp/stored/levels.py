"""Levels of stored formats: which version of dbsp can open what is written, as one number for all kinds together.

A pipeline has one level, which its ledger keeps. Every version reads the level before its own and its own. It writes the
level that it finds, so that the version before it can continue, until the ledger says otherwise
(`dbsp.coordinator.running.format_window`). A level never falls.

| level | written by | what is new |
| --- | --- | --- |
| 1 | 0.1.0 | |
| 2 | 0.2.0 | checksums of small records; readers of partitions; headers of bad CSV rows; steps that replay dead letters |

Invariants
1. The level is read from the ledger at a start, and is constant until the process ends.
2. The ledger has a level before anything of that level is written. The form of its file then has another number. So an
   older version refuses the ledger before it opens anything else.

Source: docs/design/0062.
"""

from __future__ import annotations

BEFORE = 1
"""The level of version 0.1.0."""
NEWEST = 2
"""The level that new pipelines begin with."""
SEALED_SINCE = 2
"""The first level whose small records have checksums."""
READERS_SINCE = 2
"""The first level whose layouts have the readers of input partitions; below it partition p belongs to worker p mod W."""
REPLAYS_SINCE = 2
"""The first level whose step records may have rows of dead letters."""
HEADERS_SINCE = 2
"""The first level whose records of input have the headers of bad rows, which replays of dead letters need."""
