"""Child processes that a service starts for queries and backups, and exchanges lines of JSON with."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, cast

from dbsp.errors import DbspError

STORY_BYTES_MAX = 2000


def failure(error: DbspError) -> dict[str, Any]:
    """Return an error as a message header."""
    return {"error": {"code": error.code, "message": error.message, "hint": error.hint}}


def put(sink: BinaryIO, header: Mapping[str, Any]) -> None:
    """Write a message header to a pipe as a line of JSON."""
    sink.write(json.dumps(header).encode() + b"\n")
    sink.flush()


class ChildProcess:
    """A child process for one task, as its parent holds it."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start the process, in a process group of its own, so that an interrupt at the terminal does not reach it."""
        self._story = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._story, process_group=0
        )

    @property
    def _in(self) -> BinaryIO:
        return cast(BinaryIO, self._process.stdin)

    @property
    def _out(self) -> BinaryIO:
        return cast(BinaryIO, self._process.stdout)

    def _ended(self) -> str:
        """Kill the process; return its exit code and the last line of its standard error."""
        self._process.kill()
        code = self._process.wait()
        self._story.seek(0)
        words = self._story.read()[-STORY_BYTES_MAX:].decode(errors="replace").split("\n")
        return " ".join([f"exit={code}", *[word.strip() for word in words if word.strip()][-1:]])

    def kill(self) -> None:
        """Kill the process; may be called from any thread."""
        self._process.kill()

    def close(self) -> None:
        """Kill the process, wait for its end, and close its pipes."""
        self._process.kill()
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._story):
            with suppress(OSError):  # the buffer holds bytes that the ended process cannot take
                cast(BinaryIO, file).close()
