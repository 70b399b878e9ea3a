"""The kind of rows in a body, for clients, which load no engine."""

from __future__ import annotations

JSON, JSON_LINES, ARROW = "application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream"
CSV, TSV = "text/csv", "text/tab-separated-values"


def kind_of(body: bytes) -> str:
    """Return the content type of rows, JSON or an Arrow IPC stream, by their first bytes.

    >>> kind_of(b'{"id": 1}')
    'application/json'
    """
    return ARROW if body.startswith(b"\xff\xff\xff\xff") else JSON
