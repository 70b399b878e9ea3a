"""Files that a service writes into its data folder: its address (`coordinator.json`), an upgrade (`upgrade.json`)."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from dbsp.disk import PRIVATE_FILE
from dbsp.errors import UnavailableError

ADDRESS_FILE = "coordinator.json"
NOTE_FILE = "upgrade.json"
SETTINGS_FILE = "settings.json"
"""The file of the last start's settings; a start reports which of them have changed."""


def write_whole(file: Path, text: str) -> None:
    """Replace the content of `file`, so that a reader sees the old or the new content; a write that fails leaves no part.

    **Errors** `OSError` of a full disk.
    """
    temporary = file.with_suffix(f".{os.getpid()}.new")
    try:
        temporary.touch(PRIVATE_FILE)
        temporary.write_text(text)
        temporary.rename(file)
    finally:
        temporary.unlink(missing_ok=True)


def read_address(data_dir: Path) -> dict[str, Any]:
    """Return the content of a running service's address file; empty if there is none.

    **Errors** `UnavailableError` if the file cannot be read.
    """
    try:
        found = json.loads((data_dir / ADDRESS_FILE).read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UnavailableError(
            f"cannot read the service's address: file={data_dir / ADDRESS_FILE} error={error}"
        ) from error
    return found if isinstance(found, dict) else {}


def changed_setting(data_dir: Path, name: str, value: int) -> int | None:
    """Store a setting of this start; return the value of the previous start, None if unknown."""
    file = data_dir / SETTINGS_FILE
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError):
        found = {}
    before = found.get(name) if isinstance(found, dict) else None
    if before != value:
        with suppress(OSError):  # the next start prints the changed setting once more, which is harmless
            write_whole(file, json.dumps({name: value}) + "\n")
    return before if isinstance(before, int) else None
