"""The kind of rows in a body, for clients, which load no engine."""

from __future__ import annotations

from dbsp.errors import ConfigError


def kind_of(body: bytes) -> str:
    """Return the content type of rows by their first bytes.

    **Errors** `ConfigError` for an Arrow file, which cannot be read from its beginning.

    >>> kind_of(b'{"id": 1}')
    'application/json'
    """
    if body.startswith(b"ARROW1"):
        raise ConfigError("an Arrow IPC file is not read here", "write it as a stream: pyarrow.ipc.new_stream")
    return "application/vnd.apache.arrow.stream" if body.startswith(b"\xff\xff\xff\xff") else "application/json"
