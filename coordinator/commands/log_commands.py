"""`coordinator logs`: the last lines of a service's event log, and the lines that follow."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from dbsp.coordinator.commands.command_context import CommandContext
from dbsp.coordinator.settings.config import load_config
from dbsp.errors import ConfigError, UnavailableError

LOOK_S = 0.25
"""Seconds between two reads of a followed log."""


@click.command()
@click.option(
    "-n", "--lines", type=click.IntRange(min=0), default=20, show_default=True, help="How many of the last lines."
)
@click.option("-f", "--follow", is_flag=True, help="Continue with each new line, until interrupted.")
@click.pass_obj
def logs(context: CommandContext, lines: int, follow: bool) -> None:
    """Print the last lines of the service's log, which may be running or stopped; --json: as they are in the file."""
    if context.client.connection.url is not None:
        raise ConfigError(
            "the log is a file on the service's host", "log in there, and name its settings with --pipeline"
        )
    config = load_config(context.pipeline)
    file = config.log_file
    if not file.exists() and not follow:
        raise UnavailableError(f"there is no log yet: file={file}", "a service writes it from its first start on")
    followed = FollowedLog(file)
    for line in last_lines(file, config.log.files_kept, lines, followed):
        click.echo(line if context.as_json else as_text(line))
    while follow:
        for line in followed.more():
            click.echo(line if context.as_json else as_text(line))
        time.sleep(LOOK_S)  # polling a file that another process writes


def as_text(line: str) -> str:
    """Return a line of the log for people; a line that is no event is returned as it is.

    **Example**

    >>> as_text('{"at": "2026-01-02T10:00:00.000+00:00", "event": "rolled-back", "failures": 2, "why": "no room", "last": null}')
    '2026-01-02T10:00:00.000+00:00 rolled-back failures=2 why="no room"'
    """
    try:
        found: dict[str, Any] = json.loads(line)
        at, event = found.pop("at"), found.pop("event")
    except (ValueError, KeyError, TypeError, AttributeError):
        return line
    fields = (f"{name}={_shown(value)}" for name, value in found.items() if value not in (None, "", [], {}))
    return " ".join([str(at), str(event), *fields])


def _shown(value: Any) -> str:
    if isinstance(value, str) and value.isprintable() and " " not in value and '"' not in value:
        return value
    return json.dumps(value, ensure_ascii=False)


class FollowedLog:
    """A log file that grows, and that is renamed when it is large."""

    def __init__(self, path: Path) -> None:
        """Keep the path of the file; `more` does the first read."""
        self._path = path
        self._place = 0
        self._inode: int | None = None
        self._rest = b""

    def more(self) -> Iterator[str]:
        """Yield the lines that were added since the last call, those of a renamed file first."""
        renamed = self._path.with_name(f"{self._path.name}.1")
        now = _inode(self._path)
        if self._inode is not None and now != self._inode and _inode(renamed) == self._inode:
            yield from self._lines(renamed)
        if now != self._inode:
            self._place, self._rest, self._inode = 0, b"", now
        if now is not None:
            yield from self._lines(self._path)

    def _lines(self, path: Path) -> Iterator[str]:
        with path.open("rb") as file:
            file.seek(self._place)
            found = self._rest + file.read()
            self._place = file.tell()
        *whole, self._rest = found.split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace")


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def last_lines(path: Path, files_kept: int, count: int, followed: FollowedLog) -> list[str]:
    """Return the last lines of a log, the oldest of them from renamed files; `followed` then yields the lines after them."""
    newest = deque(followed.more(), maxlen=count)
    found: list[str] = list(newest)
    for number in range(1, files_kept + 1):
        older = path.with_name(f"{path.name}.{number}")
        if len(found) >= count or not older.exists():
            break
        lines = older.read_text("utf-8", "replace").splitlines()
        found = [*lines[-(count - len(found)) :], *found]
    return found
