"""A line of JSON for every request and every statement of PostgreSQL's protocol: time, client, request, status, duration.

The log never contains tokens, bodies, parameters or texts of statements.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from io import TextIOWrapper
from logging import LogRecord
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import cast

from dbsp.coordinator.http.section import HttpSection
from dbsp.errors import ConfigError

BYTES_MAX, FILES_MAX = 16 << 20, 4


class _PrivateFile(RotatingFileHandler):
    """Files that only their owner may read."""

    def _open(self) -> TextIOWrapper:
        opened = open(  # noqa: SIM115 - the handler closes it
            self.baseFilename, self.mode, encoding=self.encoding, opener=lambda path, flags: os.open(path, flags, 0o600)
        )
        return cast(TextIOWrapper, opened)


class AccessLog:
    """The file of `access_log`; a full file (`BYTES_MAX`) is renamed, and `FILES_MAX` older ones are kept."""

    def __init__(self, file: Path) -> None:
        """Open the file; `ConfigError` if that is not possible."""
        try:
            self._handler = _PrivateFile(file, maxBytes=BYTES_MAX, backupCount=FILES_MAX, encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"the access log cannot be written: file={file} error={error.strerror}", "set `access_log` in [http]"
            ) from None

    def write(self, *, client: str, method: str, path: str, status: int | str, milliseconds: float) -> None:
        """Write the line of one request."""
        line = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"), "client": client, "method": method[:20],
            "path": path[:400], "status": status, "ms": round(milliseconds, 1),
        }  # fmt: skip
        self._handler.emit(LogRecord("access", 20, "", 0, json.dumps(line), None, None))

    def close(self) -> None:
        """Close the file."""
        self._handler.close()


def open_log(section: HttpSection, folder: Path) -> AccessLog | None:
    """Open the log that the settings name; return None if they name none."""
    return AccessLog(folder / section.access_log) if section.access_log else None
