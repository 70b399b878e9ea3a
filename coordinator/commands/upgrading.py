"""`coordinator upgrade`, the client's side: ask for the upgrade, then wait until the new version takes steps or fails."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from dbsp.coordinator.address import NOTE_FILE
from dbsp.errors import DbspError, EngineError, UnavailableError

POLL_S = 0.1
SETTLED = ("Running", "Paused", "Halted")
Ask = Callable[..., Any]


def upgraded(
    ask: Ask, data_dir: Path | None, timeout_s: float, python: str | None = None, *, accepts_pause: bool = False
) -> dict[str, Any]:
    """Upgrade the service and return the result: `before`, `to`, `step`, `pause_seconds`, `proof`.

    `data_dir` is known if the service is on this host. Then the wait can distinguish a process that has ended from one that is
    still starting.
    **Errors** those of the service; `EngineError` if the other version did not start; `UnavailableError` if it takes too long.
    """
    body: dict[str, Any] = {} if python is None else {"python": python}
    body |= {"accepts_pause": True} if accepts_pause else {}
    left = ask("POST", "/v1/upgrade", json=body) if body else ask("POST", "/v1/upgrade")
    if left["before"] == left["to"]:
        return {**left, "pause_seconds": 0.0}
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        found = _arrived(ask, left)
        if found is not None:
            return {**found, "proof": left.get("proof")}
        if data_dir is not None:
            _refuse_ended(data_dir, left)
        time.sleep(POLL_S)
    raise UnavailableError(
        f"the other version takes no steps yet: version={left['to']} timeout_s={timeout_s}",
        "look at `coordinator status`",
    )


def _arrived(ask: Ask, left: dict[str, Any]) -> dict[str, Any] | None:
    """Return the upgrade as the new version reports it; None while the new version does not respond yet."""
    try:
        status = ask("GET", "/v1/status")
    except DbspError:
        return None
    if status["epoch"] <= left["epoch"] or status["state"] not in SETTLED or status["upgrade"] is None:
        return None
    return dict(status["upgrade"])


def _refuse_ended(data_dir: Path, left: dict[str, Any]) -> None:
    """Raise `EngineError` with the words of the other version, if its process has ended."""
    with suppress(OSError, ValueError):
        note = json.loads((data_dir / NOTE_FILE).read_text())
        if "failed" in note:
            raise _failed(left, str(note["failed"]), goes_on=note.get("goes_on", False))
    try:
        os.kill(left["pid"], 0)
    except ProcessLookupError:
        raise _failed(left, "its process has ended; its error is where the service writes its errors") from None
    except PermissionError:  # another user's process, so it lives
        pass


def _failed(left: dict[str, Any], words: str, *, goes_on: bool = False) -> EngineError:
    return EngineError(
        f"the other version did not start: version={left['to']}\n{words}",
        f"version {left['before']} goes on"
        if goes_on
        else f"repair it and start the service, or install {left['before']} again: no step was logged since the checkpoint",
    )
