"""Read the last lines of the event log from its end, whatever the size of the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

BLOCK_BYTES = 1 << 16
READ_BYTES_MAX = 32 << 20
"""The most bytes of the log that one call reads, even if no line contains the wanted text."""


def last_events(path: Path, files_kept: int, count: int, contains: str = "") -> list[dict[str, Any]]:
    """Return the last events whose line contains a text, the newest first; a line that is no event is one with `text`."""
    files = [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, files_kept + 1))]
    wanted = contains.casefold()
    found = (line for line in _backward(files) if wanted in line.casefold())
    return [_event(line) for line in islice(found, count)]


def _backward(files: list[Path]) -> Iterator[str]:
    """Yield the lines of files, each from its end, within the bound."""
    left = READ_BYTES_MAX
    for file in files:
        if left <= 0:
            return
        try:
            size = file.stat().st_size
            yield from _lines_backward(file, size, max(0, size - left))
        except FileNotFoundError:
            return  # there are no older files, or this one was renamed meanwhile
        left -= size


def _lines_backward(file: Path, end: int, begin: int) -> Iterator[str]:
    """Yield the lines of a part of a file, the last one first; a line whose beginning lies before the part is left out."""
    with file.open("rb") as opened:
        rest = b""
        while end > begin:
            size = min(BLOCK_BYTES, end - begin)
            end -= size
            opened.seek(end)
            rest, *lines = (opened.read(size) + rest).split(b"\n")
            yield from (line.decode("utf-8", "replace") for line in reversed(lines) if line)
        if begin == 0 and rest:
            yield rest.decode("utf-8", "replace")


def _event(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"at": None, "event": "text", "text": line}
