"""List, check and delete the checkpoints of a pipeline among its copies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dbsp.coordinator.running.ledger_file import decode_ledger
from dbsp.coordinator.settings.config import Config
from dbsp.coordinator.worker_resources import worker_copies
from dbsp.errors import DataError
from dbsp.object_places import FolderPlace, ObjectPlace, object_place
from dbsp.storage.copied_checkpoints import MADE, CheckpointName, CopiedCheckpoints


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedCheckpoint:
    """A checkpoint among the copies; `damage` lists the findings of a check, or why its object cannot be read."""

    name: CheckpointName
    kept: bool
    step: int | None
    workers: int | None
    damage: tuple[str, ...] = ()

    @property
    def at(self) -> str:
        """Return the time at which the checkpoint was published."""
        return datetime.fromtimestamp(self.name.second, UTC).isoformat(timespec="seconds")

    def as_json(self) -> dict[str, Any]:
        """Return the checkpoint as JSON values."""
        return {
            "version": self.name.version, "at": self.at, "kept": self.kept, "step": self.step, "workers": self.workers,
            "damage": list(self.damage),
        }  # fmt: skip


def place_of(text: str, config: Config) -> ObjectPlace | None:
    """Return the place for copies that a text names: an address, or a folder with copies of this pipeline; else None."""
    if "://" in text:
        return object_place(text, config.checkpoint.copies_options, config.folder)
    folder = Path(text).absolute()
    return FolderPlace(folder) if (folder / config.pipeline.name / MADE).is_dir() else None


def listed(
    place: ObjectPlace, config: Config, *, check: bool, report: Callable[[str], None] = lambda _text: None
) -> list[ListedCheckpoint]:
    """Return the checkpoints, oldest first; with `check` read all objects that they name.

    **Errors** `AwayError` while the place does not answer.
    """
    checkpoints = CopiedCheckpoints(place, config.pipeline.name)
    every = [*((name, True) for name in checkpoints.kept()), *((name, False) for name in checkpoints.names())]
    found = []
    for name, kept in sorted(every):
        report(f"version {name.version}")
        try:
            body = checkpoints.get(name, kept=kept)
        except DataError as error:
            found.append(ListedCheckpoint(name=name, kept=kept, step=None, workers=None, damage=(error.message,)))
            continue
        owners = owners_of(body, name)
        damage = [
            text
            for worker in (owners if check else ())
            for text in worker_copies(place, config.pipeline.name, worker).damage(name.version, name.epoch)
        ]
        found.append(
            ListedCheckpoint(name=name, kept=kept, step=body["step"], workers=len(owners), damage=tuple(damage))
        )
    return found


def owners_of(body: dict[str, Any], name: CheckpointName) -> tuple[int, ...]:
    """Return the workers of the layout of a checkpoint."""
    ledger = decode_ledger(body["ledger"])
    saved = ledger.saved.get(name.version)
    number = min(ledger.layouts) if saved is None else saved.checkpoint.layout_version
    return ledger.layouts[number].workers


def forget_kept(place: ObjectPlace, config: Config, version: int) -> None:
    """Delete a kept version; the next checkpoint of the pipeline deletes what only this version needed.

    **Errors** `DataError` if no such version is kept.
    """
    checkpoints = CopiedCheckpoints(place, config.pipeline.name)
    names = [name for name in checkpoints.kept() if name.version == version]
    if not names:
        kept = ", ".join(str(name.version) for name in checkpoints.kept()) or "none"
        raise DataError(f"this version is not kept: version={version} kept={kept} place={checkpoints.where}")
    checkpoints.delete(names, kept=True)
