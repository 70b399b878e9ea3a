"""Backups of a running service, one at a time, each by a process of its own (`child`); reported in status, log and metrics.

The process is started while the checkpoint is taken, so that steps wait only for its pins. If an error, a kill or the end
of the service ends it early, the pipeline goes on: the pins end with the process. Its folder keeps the name of an
unfinished backup, or is deleted here.
"""

from __future__ import annotations

import base64
import json
import pickle
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from dbsp.coordinator.backup.manifests import bytes_in, refuse_kinds, refuse_place
from dbsp.coordinator.children import ChildProcess, put
from dbsp.coordinator.exits import error_of
from dbsp.coordinator.running.notices import BackupFailed, BackupMade, Notify
from dbsp.coordinator.settings.config import Config
from dbsp.errors import DbspError, UnavailableError

COMMAND = [sys.executable, "-P", "-m", "dbsp.coordinator.backup.child"]
PIN_S = 20.0
"""The time limit of a pin, while which no step runs; it normally takes milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupProgress:
    """A backup under way; `bytes_max` is the largest size that it can have, 0 while unknown."""

    phase: str
    folder: str
    bytes: int = 0
    bytes_max: int = 0
    seconds: float = 0.0


class Backups:
    """The backups of one running pipeline, one at a time, and the progress of the backup under way."""

    def __init__(self, config: Config, note: Notify, *, command: Sequence[str] = COMMAND) -> None:
        """Start no process before the first backup; `note` receives how each ends."""
        self._config, self._note, self._command = config, note, list(command)
        self._turn = threading.Lock()
        self._progress: BackupProgress | None = None
        self._made: Path | None = None
        self._started_s = 0.0
        self._process: _Process | None = None
        self._closed = False
        self.last: dict[str, Any] | None = None

    @property
    def progress(self) -> BackupProgress | None:
        """Return the progress of the backup under way; None if there is none."""
        found, made = self._progress, self._made
        if found is None:
            return None
        copied = bytes_in(made) if made is not None else 0
        return replace(found, bytes=copied, seconds=time.monotonic() - self._started_s)

    def make(
        self, folder: Path, checkpoint: Callable[[], Any], between_steps: Callable[[Callable[[], Any]], Any]
    ) -> dict[str, Any]:
        """Make a backup in `folder`; `between_steps(action)` runs an action while no step and no command runs.

        **Errors** `UnavailableError` while another backup is made, or if this one cannot be written; `ConfigError` for Kafka.
        A folder that cannot be used raises `ConfigError`, too. `DataError` means that the pipeline's files are broken.
        """
        refuse_kinds(self._config)
        refuse_place(self._config, folder)
        if not self._turn.acquire(blocking=False):
            raise UnavailableError("a backup is under way", "`coordinator status` says how far it is; ask again later")
        self._started_s = time.monotonic()
        self._progress = BackupProgress(phase="checkpoint", folder=str(folder))
        try:
            found = self._run(folder, checkpoint, between_steps)
        except DbspError as error:
            self._note(BackupFailed(folder=str(folder), code=error.code, error=str(error)))
            raise
        finally:
            self._progress, self._made = None, None
            self._turn.release()
        self._note(BackupMade(**found))
        self.last = found
        return found

    def _run(
        self, folder: Path, checkpoint: Callable[[], Any], between_steps: Callable[[Callable[[], Any]], Any]
    ) -> dict[str, Any]:
        process = self._process = _Process(self._command, self._config)
        if self._closed:
            process.kill()
        try:
            checkpoint()
            process.answer()
            pause_s = between_steps(lambda: self._pin(process, folder))
            found = process.answer()
            if "phase" in found:
                self._progress = replace(cast(BackupProgress, self._progress), phase=found["phase"])
                found = process.answer()
        except DbspError as error:
            if not self._closed:
                raise
            raise UnavailableError(
                "the backup was interrupted: the service has ended", "give the same command again: it needs no service"
            ) from error
        else:
            seconds = time.monotonic() - self._started_s
            return {**found["done"], "seconds": round(seconds, 3), "pause_seconds": round(pause_s, 4)}
        finally:
            process.close()
            if not process.over:
                self._tidy()

    def _pin(self, process: _Process, folder: Path) -> float:
        """Let the process pin the files, on the event loop's thread; return the seconds it took."""
        at = time.monotonic()
        process.put({"folder": str(folder)})
        timer = threading.Timer(PIN_S, process.kill)
        timer.daemon = True
        timer.start()
        try:
            found = process.answer()["pinned"]
        finally:
            timer.cancel()
        self._made = Path(found["made"])
        progress = cast(BackupProgress, self._progress)
        self._progress = replace(progress, phase="copying", folder=found["made"], bytes_max=found["bytes"])
        return time.monotonic() - at

    def _tidy(self) -> None:
        """Delete the remains of a killed process, and free its reader slots: until then its pins keep pages."""
        if self._made is not None:
            shutil.rmtree(self._made, ignore_errors=True)
        if self._closed:
            return
        with suppress(DbspError):
            process = _Process(self._command, self._config)
            try:
                process.answer()
                process.put({})
                process.answer()
            finally:
                process.close()

    def close(self) -> None:
        """Cancel the backup that is being made, and refuse others, because the service has ended."""
        self._closed = True
        if self._process is not None:
            self._process.kill()


class _Process(ChildProcess):
    """The service's side of one process that makes one backup."""

    def __init__(self, command: Sequence[str], config: Config) -> None:
        """Start the process, shielded from interrupts at the terminal."""
        self.over = False  # the process has sent its last message, and pins no file
        super().__init__(command)
        self._write(base64.b64encode(pickle.dumps(config)) + b"\n")

    def _write(self, line: bytes) -> None:
        with suppress(OSError):  # the process has ended: reading its result fails with the reason
            self._in.write(line)
            self._in.flush()

    def put(self, header: dict[str, Any]) -> None:
        """Send a message to the process."""
        with suppress(OSError):
            put(self._in, header)

    def answer(self) -> dict[str, Any]:
        """Return the next message of the process; raise if it reports an error or ends early."""
        line = self._out.readline()
        if not line:
            raise UnavailableError(
                f"the backup was interrupted: its process ended: {self._ended()}", "ask again; the pipeline goes on"
            )
        found: dict[str, Any] = json.loads(line)
        self.over = "done" in found or "error" in found
        if "error" in found:
            raise error_of(**found["error"])
        return found
