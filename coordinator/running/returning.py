"""Return all workers to the newest version that is whole among copies that lag, as a database was lost with its disk.

In this order, so that a crash in between is followed by the same return, or by an ordinary start:

1. Find the newest checkpoint object from which all logs are kept, and whose version every worker's copies have whole.
2. Put the object again under this epoch, and look whether the old one is still there: then no worker drops its manifests.
3. Mark the version under this epoch for every worker: later versions of older epochs do not count, and their owners are refused.
4. Note the return in the ledger. The next epoch makes the databases again that do not have the version.

Source: docs/design/0055-copies-that-lag.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dbsp.coordinator.decisions import commands, events
from dbsp.coordinator.running import control as ledgers
from dbsp.coordinator.running import lagging
from dbsp.coordinator.running.control import Ledger
from dbsp.coordinator.running.lagging import CopiedVersion
from dbsp.coordinator.running.ledger_file import decode_ledger
from dbsp.coordinator.running.published_copies import PublishedParts, nothing_saved, read_back
from dbsp.errors import DataError, InternalError
from dbsp.storage.copied_checkpoints import CheckpointName
from dbsp.store import CheckpointId, VersionInfo

Change = Callable[[Callable[[Ledger], Ledger]], Ledger]


def return_to_copies(
    parts: PublishedParts | None, ledger: Ledger, command: commands.ReturnToCopies, change: Change
) -> events.ReturnedToCopies | events.NothingCopied:
    """Make the newest whole version of the copies the published one; if there is none, report the lost state.

    **Errors** `AwayError` while the place does not answer; `FencedError` if a newer owner has used the place.
    """
    if parts is None:
        raise InternalError("all workers are to return to the copies, and there are none")
    while True:
        names, reasons = parts.checkpoints.check_owner(command.epoch), list[str]()
        tried = ((name, _usable(parts, ledger, name, reasons)) for name in reversed(names))
        found = next(((name, usable) for name, usable in tried if usable is not None), None)
        if found is None:
            return events.NothingCopied(message=_story(parts, ledger, command, reasons))
        if _held(parts, found[0], command.epoch):
            return _returned(parts, ledger, command, names, *found, change)


def _returned(
    parts: PublishedParts,
    ledger: Ledger,
    command: commands.ReturnToCopies,
    names: list[CheckpointName],
    name: CheckpointName,
    usable: tuple[CopiedVersion, CheckpointId],
    change: Change,
) -> events.ReturnedToCopies:
    """Discard all newer versions, and note the return in the ledger."""
    (version, checkpoint), epoch = usable, command.epoch
    owners = ledger.layouts[checkpoint.layout_version].workers
    for worker in sorted({*owners, *ledger.members}):
        parts.copies(worker).mark(name.version, epoch)
    parts.checkpoints.delete(each for each in names if each.version > name.version)
    wanted = VersionInfo(version=name.version, checkpoint=checkpoint)
    stale = [worker for worker in owners if wanted not in command.held.get(worker, ())]
    ledger = change(lambda now: lagging.returned(now, version, owners, stale, epoch))
    return events.ReturnedToCopies(version=name.version, step=version.step, standing=ledgers.standing(ledger))


def _usable(
    parts: PublishedParts, ledger: Ledger, name: CheckpointName, reasons: list[str]
) -> tuple[CopiedVersion, CheckpointId] | None:
    """Return a checkpoint to which all workers can return; add the reason if they cannot."""
    least = ledger.copied
    if least is None or name.version < least:
        reasons.append(f"version {name.version}: the logs were not kept from there")
        return None
    if name.version > least and name.epoch <= ledger.given_up:
        return None
    try:
        stored = decode_ledger(parts.checkpoints.get(name)["ledger"])
        saved = stored.saved.get(name.version)
        checkpoint = nothing_saved(ledger) if saved is None else saved.checkpoint
        layout = ledger.layouts.get(checkpoint.layout_version)
        if layout is None or (stored.run, checkpoint.fingerprint) != (ledger.run, ledger.fingerprint):
            reasons.append(f"version {name.version}: it is of another circuit or layout")
            return None
        lacking = (parts.copies(worker).lacks(*name.state) for worker in layout.workers)
        if lack := next(filter(None, lacking), None):
            reasons.append(f"version {name.version}: {lack}")
            return None
    except DataError as error:
        reasons.append(f"version {name.version}: {error.message}")
        return None
    wall_us = name.second * 1_000_000 if saved is None else saved.wall_us
    return CopiedVersion(version=name.version, saved=saved, wall_us=wall_us), checkpoint


def _held(parts: PublishedParts, name: CheckpointName, epoch: int) -> bool:
    """Put the object again under this epoch; return False if the old one was deleted before that."""
    again = replace(name, made=epoch)
    body = parts.checkpoints.get(name)
    parts.checkpoints.put(again, {key: value for key, value in body.items() if key != "format"})
    read_back(parts.checkpoints, again)
    if name in parts.checkpoints.names():
        return True
    parts.checkpoints.delete([again])
    return False


def _story(parts: PublishedParts, ledger: Ledger, command: commands.ReturnToCopies, reasons: list[str]) -> str:
    """Describe the lost state, and the fault of each copy."""
    saved = ledger.saved.get(ledger.published)
    step = 0 if saved is None else saved.checkpoint.step
    hosts = f" hosts={', '.join(sorted(set(command.hosts)))}" if any(command.hosts) else ""
    why = "; ".join(reasons) or "no checkpoint is there"
    return (
        f"the state of workers is lost, and no version is whole among the copies: workers={list(command.lost)}{hosts}"
        f" published={ledger.published} step={step} place={parts.checkpoints.where} ({why})"
    )
