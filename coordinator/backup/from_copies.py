"""Restore a pipeline from its copies of checkpoints: make its data folder again, so that a start continues from one of them.

The checkpoint's object has the ledger, and the numbers of producers in the input log. Workers' databases are made again
from their own copies when the service starts, on whatever hosts the settings name. Logs in the data folder are made
again without rows and records. So with embedded logs the rows that arrived after the checkpoint are lost; the result
names them.

The order of the writes, and why a coordinator that still runs with the lost disk does no harm:

1. An object of the same checkpoint is put under an epoch far above all that were there. Owners of older epochs see it before they
   publish, and are refused. Then the old object must still be there: so no manifest of it was deleted meanwhile
   (`dbsp.storage.copied_checkpoints`, invariant 4).
2. Each worker's manifest is put again under that epoch, with a mark. So later versions of older epochs do not count.
3. The data folder is made aside and renamed into place.

A restore that breaks off can be repeated: each attempt takes a greater epoch.

Left out: pipelines whose logs are on Kafka, which have their ledger in the step log; a start finds it there.
Source: docs/design/0053-copied-checkpoints.md.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from dbsp.coordinator.backup.copied import owners_of
from dbsp.coordinator.backup.restoring import refuse_taken, sync_all
from dbsp.coordinator.build import difference, load_plan
from dbsp.coordinator.decisions.cutting import Positions
from dbsp.coordinator.decisions.moved_workers import MovedWorker
from dbsp.coordinator.running.control import (
    Ledger,
    forget_layouts,
    request_rescale,
)
from dbsp.coordinator.running.ledger_file import LmdbControl, decode_ledger, encode_ledger
from dbsp.coordinator.running.relocations import with_places
from dbsp.coordinator.settings.config import Config
from dbsp.coordinator.worker_resources import worker_copies
from dbsp.disk import PRIVATE_FOLDER, make_folder, sync_path
from dbsp.errors import CircuitError, ConfigError, DataError, UnavailableError
from dbsp.io.connectors.kind import ResumePoint
from dbsp.layout import homes, placed
from dbsp.object_places import FolderPlace, ObjectPlace
from dbsp.plan.plan import Plan
from dbsp.storage.copied_checkpoints import REMEDY, CheckpointName, CopiedCheckpoints
from dbsp.stored.levels import NEWEST

EPOCHS_ABOVE = 1000
"""A restored pipeline's epochs begin this far above all others, since an old owner raises its own with each rollback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRows:
    """Rows of one partition that were acknowledged and are lost: from `first` on, at least up to `known_end`."""

    table: str
    partition: int
    first: int
    known_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TornPush:
    """A numbered push whose first rows are in the restored state, and whose rows from offset `first` on are lost."""

    table: str
    producer: str
    sequence: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FromCopies:
    """The result of a restore: the version, its step and time, the positions at which inputs go on, and what is lost."""

    version: int
    step: int
    wall_us: int
    workers: int
    positions: Positions
    lost: tuple[LostRows, ...]
    torn: tuple[TornPush, ...]

    @property
    def at(self) -> str:
        """Return the time of the checkpoint's publication."""
        return datetime.fromtimestamp(self.wall_us / 1e6, UTC).isoformat(timespec="seconds")

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "version": self.version, "step": self.step, "at": self.at, "workers": self.workers,
            "positions": [[table, partition, offset] for (table, partition), offset in sorted(self.positions.items())],
            "lost": [
                {"table": each.table, "partition": each.partition, "first": each.first, "known_end": each.known_end}
                for each in self.lost
            ],
            "torn": [
                {
                    "table": each.table, "producer": each.producer, "sequence": each.sequence, "first": each.first,
                    "last": each.last,
                }
                for each in self.torn
            ],
        }  # fmt: skip


def restore_from_copies(
    place: ObjectPlace,
    config: Config,
    *,
    version: int | None = None,
    workers: int | None = None,
    plan: Plan | None = None,
) -> FromCopies:
    """Make the data folder of the settings from a checkpoint in the place: the newest, or the one of `version`.

    With `workers` the pipeline is rescaled to so many when it starts.

    **Errors**

    - `ConfigError` for settings of another pipeline or place, and for a data folder that is taken
    - `ConfigError` for kinds of inputs and outputs that cannot go on
    - `CircuitError` for another circuit
    - `DataError` if the checkpoint is absent, damaged or not whole
    - `AwayError` if the place does not answer
    """
    _refuse_settings(place, config)
    plan = plan or load_plan(config)
    checkpoints = CopiedCheckpoints(place, config.pipeline.name)
    name, kept = chosen(checkpoints, version)
    body = checkpoints.get(name, kept=kept)
    ledger, owners = decode_ledger(body["ledger"]), owners_of(body, name)
    _refuse_other(ledger, plan, config, checkpoints.where)
    refuse_taken(config, int(body["step"]))
    epoch = _epoch_above(place, config, checkpoints, body, ledger)
    ledger = rewound(ledger, config, name, owners, epoch)
    if workers is not None:
        ledger = request_rescale(ledger, workers if workers != len(owners) else None)
    _hold(checkpoints, name, kept, {**body, "ledger": encode_ledger(ledger)}, epoch)
    for worker in owners:
        worker_copies(place, config.pipeline.name, worker).rewind(name.version, name.epoch, epoch)
    positions, known = _positions(ledger, name), body["input"]
    _put_in_place(config, plan, ledger, ResumePoint(epoch=epoch, step=body["step"], positions=positions, known=known))
    return FromCopies(
        version=name.version, step=body["step"], wall_us=body["wall_us"], workers=len(owners),
        positions=positions, lost=tuple(_lost(positions, known)),
        torn=tuple(TornPush(**dict(zip(("table", "producer", "sequence", "first", "last"), each, strict=True)))
                   for each in (known or {}).get("torn", ())),
    )  # fmt: skip


def chosen(checkpoints: CopiedCheckpoints, version: int | None) -> tuple[CheckpointName, bool]:
    """Return the newest checkpoint, or the newest of a version, and whether it is a kept one.

    **Errors** `DataError` if there is none.
    """
    names, kept = checkpoints.names(), checkpoints.kept()
    every = [*((name, True) for name in kept), *((name, False) for name in names)]
    if version is None:
        every = [(name, False) for name in names] or every
    else:
        every = [found for found in every if found[0].version == version]
    if not every:
        wanted = "" if version is None else f" version={version}"
        raise DataError(f"there is no such checkpoint among the copies: place={checkpoints.where}{wanted}", REMEDY)
    return max(every)


# --- refusals -------------------------------------------------------------------------------------------------------


def _refuse_settings(place: ObjectPlace, config: Config) -> None:
    """Refuse a place that the settings do not name, and inputs and outputs that cannot go on."""
    if config.copies is None or _real(config.copies) != _real(place):
        named = "none" if config.copies is None else config.copies.address
        raise ConfigError(
            f"the settings name another place for copies: copies={named} wanted={place.address}",
            f'write copies = "{place.address}" in [checkpoint]: a start makes the databases again from there',
        )
    kinds = f"input.kind={config.input.kind} output.kind={config.output.kind}"
    if config.input.logs_elsewhere is not None:
        raise ConfigError(
            f"nothing needs to be restored: {config.input.logs_elsewhere}, and the ledger is there, too: {kinds}",
            "start the service: it finds the ledger in the step log, and the state among the copies",
        )
    if config.input.no_resume is not None:
        raise ConfigError(f"{config.input.no_resume[0]}: {kinds}", config.input.no_resume[1])
    if config.output.no_backup is not None:
        raise ConfigError(
            f"the output has steps that the copies do not know: {kinds}",
            "its topics would get other changes under numbers of steps that they have: give the pipeline another name",
        )


def _real(place: ObjectPlace) -> str:
    """Return the address of a place; of a folder, without links and "..", as it may be named in several ways."""
    return str(place.folder.resolve()) if isinstance(place, FolderPlace) else place.address


def _refuse_other(ledger: Ledger, plan: Plan, config: Config, where: str) -> None:
    for name, ours, theirs in (
        ("kind in [input]", config.input.kind, ledger.input),
        ("kind in [output]", config.output.kind, ledger.output),
    ):
        if theirs and ours != theirs:
            raise ConfigError(
                f"the copies are of another pipeline: {name}={theirs} here={ours} place={where}",
                "name the settings that they belong to",
            )
    if plan.fingerprint != ledger.fingerprint:
        raise CircuitError(
            f"the circuit is not the one that these copies belong to: place={where}\n"
            f"{difference(ledger.nodes, plan.circuit)}",
            "put the circuit back as it was; nothing was restored",
        )


# --- the ledger -----------------------------------------------------------------------------------------------------


def _positions(ledger: Ledger, name: CheckpointName) -> Positions:
    saved = ledger.saved.get(name.version)
    return {} if saved is None else dict(saved.positions)


def _epoch_above(
    place: ObjectPlace, config: Config, checkpoints: CopiedCheckpoints, body: Mapping[str, Any], ledger: Ledger
) -> int:
    """Return an epoch far above all that are among the copies."""
    found = [ledger.epoch, *(name.made for name in (*checkpoints.names(), *checkpoints.kept()))]
    for worker in body["workers"]:
        found.extend(worker_copies(place, config.pipeline.name, worker).epochs())
    return max(found) + EPOCHS_ABOVE


def rewound(ledger: Ledger, config: Config, name: CheckpointName, owners: tuple[int, ...], epoch: int) -> Ledger:
    """Return the ledger as of the checkpoint, with its workers (`owners`) on the hosts of the settings."""
    kept = {number: replace(saved, published=True) for number, saved in ledger.saved.items() if number == name.version}
    there, offered = homes(ledger.layouts.values()), config.layout.offered()
    hosts = {host for host, _ in offered} or {""}
    staying = {worker: host for worker, host in there.items() if host in hosts}
    leaving = [worker for worker in sorted(there) if worker not in staying]
    places = placed(staying, leaving, offered, zones=config.layout.zone_pairs())
    moved = tuple(
        MovedWorker(
            worker=worker, host=places[worker], lost=there[worker], epoch=epoch, wall_us=name.second * 1_000_000,
            made_again=True, stray=False,
        )
        for worker in owners
        if places[worker]
    )  # fmt: skip
    ledger = replace(
        with_places(ledger, places), saved=kept, epoch=epoch, members=frozenset(owners), forming=frozenset(),
        deaths=None, moved=moved, hosts=None, copied=None, returned={}, given_up=0, level=NEWEST,
    )  # fmt: skip
    return forget_layouts(ledger)


def _hold(checkpoints: CopiedCheckpoints, name: CheckpointName, kept: bool, body: dict[str, Any], epoch: int) -> None:
    """Put the checkpoint under the new epoch; refuse if the old object was deleted before."""
    again = replace(name, made=epoch)
    checkpoints.put(again, {key: value for key, value in body.items() if key != "format"})
    if name not in (checkpoints.kept() if kept else checkpoints.names()):
        checkpoints.delete([again])
        raise DataError(
            f"the checkpoint was deleted meanwhile: place={checkpoints.where} version={name.version}", REMEDY
        )


def _lost(positions: Positions, known: Mapping[str, Any] | None) -> list[LostRows]:
    """Return the rows that had arrived when the checkpoint was copied, and are in no step of the restored state."""
    ends = {} if known is None else {(table, partition): end for table, partition, end in known["ends"]}
    return [
        LostRows(table=table, partition=partition, first=positions.get((table, partition), 0), known_end=end)
        for (table, partition), end in sorted(ends.items())
        if end > positions.get((table, partition), 0)
    ]


# --- the data folder ------------------------------------------------------------------------------------------------


def _put_in_place(config: Config, plan: Plan, ledger: Ledger, at: ResumePoint) -> None:
    """Make the data folder aside, then rename it."""
    data_dir = config.data_dir
    aside = data_dir.with_name(f".{data_dir.name}.restoring")
    residence = replace(config.residence, data_dir=aside)
    try:
        make_folder(data_dir.parent)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(mode=PRIVATE_FOLDER)
        control = LmdbControl(aside)
        control.begin(ledger)
        control.close()
        config.input.resume(residence, plan.tables, at)
        config.output.resume(residence, sorted(ledger.members), at.step)
        sync_all(aside)
        with suppress(FileNotFoundError):
            data_dir.rmdir()  # an empty one
        aside.rename(data_dir)
        sync_path(data_dir.parent)
    except BaseException as error:
        progress = config.output.progress(config.residence)
        if progress is not None and not data_dir.exists():
            shutil.rmtree(progress, ignore_errors=True)  # it was not there before
        if not isinstance(error, OSError):
            raise
        raise UnavailableError(
            f"the pipeline cannot be restored: data_dir={data_dir} error={error.strerror}",
            "free space or repair the disk, and give the same command again",
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
