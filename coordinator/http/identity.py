"""The identity of a service: a client compares the pipeline's name and run before it sends any request.

A service that was killed leaves its address file, and another pipeline may listen there by now. The run is made with
the ledger and never changes, so two pipelines of one name differ in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dbsp.coordinator.address import read_address
from dbsp.coordinator.settings.config import Config
from dbsp.errors import ConfigError, DataError
from dbsp.processes import notes_of_others

OTHER = "another pipeline answers there"
"""The beginning of the error's message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The address and identity of a pipeline's service; `run` is None if no file on this host tells it."""

    url: str
    name: str
    run: str | None
    pid: int | None = None

    def refuse_other(self, status: Mapping[str, Any]) -> None:
        """Raise `ConfigError` if the status is another pipeline's."""
        found_name, found_run = status.get("name"), status.get("run")
        known = self.run is not None and found_run is not None
        if found_name != self.name or (known and found_run != self.run):
            raise ConfigError(
                f"{OTHER}: url={self.url} pipeline={found_name} run={found_run}"
                f" expected={self.name} expected_run={self.run}",
                f"start the service of {self.name}, or name the other one's settings with --pipeline",
            )


def expected_of(config: Config) -> Expected | None:
    """Return the expected address of the pipeline's service; None if it left no address and the settings name no port."""
    found = read_address(config.data_dir)
    if found:
        run = found.get("run") or run_of(config.data_dir)
        return Expected(url=str(found["url"]), name=config.pipeline.name, run=run, pid=found.get("pid"))
    if not (config.http.enabled and config.http.port and config.data_dir.is_dir()):
        return None
    host = f"[{config.http.host}]" if ":" in config.http.host else config.http.host
    scheme = "https" if config.http.is_encrypted else "http"
    url = f"{scheme}://{host}:{config.http.port}"
    return Expected(url=url, name=config.pipeline.name, run=run_of(config.data_dir))


def run_of(data_dir: Path) -> str | None:
    """Return the run that a pipeline's ledger on this host names; None if no ledger can be read."""
    from dbsp.coordinator.checks.doctor import read_ledger  # noqa: PLC0415 - the engine, of no use to a client
    from dbsp.lmdb_environments import BROKEN_FILE  # noqa: PLC0415 - as above

    try:
        return read_ledger(data_dir).run
    except (DataError, *BROKEN_FILE):
        return None


def is_written(data_dir: Path) -> bool:
    """Return whether another process, a running service, has the pipeline's ledger open for writing."""
    folder = data_dir / "control" / "writers"
    return folder.is_dir() and any(note.process() is not None for note in notes_of_others(folder))
