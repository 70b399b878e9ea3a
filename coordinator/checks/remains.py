"""Refuse to begin a new pipeline if an old one in the same place has lost its ledger.

The ledger (`<data_dir>/control`) is one copy. A start without it would make a new pipeline. That pipeline would delete or
contradict the old one's databases, logs, outputs, standbys, and step records in a topic. So an absent ledger means a new
pipeline only where nothing of any pipeline is there.

Invariant: a start makes the ledger before all else. So files without a ledger mean that a ledger was lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dbsp.coordinator.checks.doctor import read_ledger
from dbsp.coordinator.settings.config import Config
from dbsp.disk import numbered
from dbsp.errors import DataError
from dbsp.logs import StepLog
from dbsp.storage.copied_checkpoints import MADE

HINT = (
    "put the folder `control` back as it was at the same moment, or move all of this away and restore a backup"
    " (`coordinator restore`); a new pipeline needs a `data_dir` of its own, and a `name` of its own for topics and standbys"
)


def refuse_remains(config: Config) -> None:
    """Refuse the remains on this host of a pipeline without a ledger; write nothing.

    **Errors** `DataError` names the remains, and what to do.
    """
    found = list(_found(config))  # looked up before the ledger: a concurrent start makes the ledger before these
    if found and not has_ledger(config.data_dir):
        raise _gone(config, found)


def refuse_logged(config: Config, steps: StepLog) -> None:
    """Refuse a step log with records if the ledger has never had an owner; the log may be a topic.

    **Errors** `DataError`, as above.
    """
    newest = steps.last()
    if newest is not None:
        raise _gone(config, [f"a step log up to step {newest.step} (input.kind={config.input.kind})"])


def has_ledger(data_dir: Path) -> bool:
    """Return whether there is a ledger; a damaged ledger counts."""
    if not (data_dir / "control").exists():
        return False
    try:
        read_ledger(data_dir)
    except DataError as error:
        return error.message != "the ledger is empty"
    return True


def _gone(config: Config, found: list[str]) -> DataError:
    """Return the error for a missing ledger, with the remains that are there."""
    story = f"folder={config.data_dir / 'control'}; found: {'; '.join(found)}"
    hint = HINT
    if config.copies is not None and config.copies.has_any(f"{config.pipeline.name}/{MADE}"):
        away = f"move {config.data_dir} away, and " if config.data_dir.exists() else ""
        hint = f"{away}restore the newest copy: `coordinator restore {config.copies.address}`; or {HINT}"
    return DataError(f"the ledger of a pipeline is missing, but other files of it exist: {story}", hint)


def _found(config: Config) -> Iterator[str]:
    """Yield the remains of a pipeline on this host's disks and in the place for copies, as text."""
    data_dir = config.data_dir
    progress = config.output.progress(config.residence)
    places = [("databases", data_dir / "workers"), *([] if progress is None else [("outputs", progress)])]
    places += [("standbys", folder) for folder in config.standbys]
    for what, folder in places:
        workers = numbered(folder)
        if workers:
            yield f"{what} of workers {', '.join(map(str, workers))} ({folder})"
    if config.copies is not None and config.copies.has_any(config.pipeline.name):
        yield f"copies of checkpoints ({config.copies.address}/{config.pipeline.name})"
    for what, folder in (("the input log", data_dir / "input"), ("the step log", data_dir / "steps")):
        if folder.exists():
            yield f"{what} ({folder})"
