"""Put an object among the copies for each published checkpoint: the ledger, and what a new input log needs.

So a start needs nothing of the coordinator's disk but, with embedded logs, the rows and steps after the checkpoint. The object is
put in a thread, when all workers hold the version and before it is published. A place that does not answer delays the
checkpoint alone. Then retention deletes the objects of older checkpoints; each worker's next manifest deletes what only they
kept (`dbsp.storage.copied_checkpoints`).

Source: docs/design/0053-copied-checkpoints.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dbsp.coordinator.running import control as ledgers
from dbsp.coordinator.running.clock import Clock, SystemClock
from dbsp.coordinator.running.control import Control, Ledger
from dbsp.coordinator.running.ledger_file import encode_ledger
from dbsp.errors import AwayError, ConfigError, DataError, InternalError, UnavailableError
from dbsp.logs import InputLog, ResumableInput
from dbsp.runtime.copying import AWAY_RETRY_S
from dbsp.storage.copied_checkpoints import CheckpointName, CopiedCheckpoints, dismissed
from dbsp.storage.copies import WorkerCopies
from dbsp.store import CheckpointId
from dbsp.version import VERSION

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiesRetention:
    """The number of newest checkpoints that stay among the copies, and the seconds for which older ones stay."""

    newest: int = 1
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedParts:
    """The parts of the pipeline that an object is made of; `copies(worker)` are the copies of a worker's versions.

    With `lags` a checkpoint is published before its copies are whole.
    """

    checkpoints: CopiedCheckpoints
    control: Control
    inputs: InputLog
    copies: Callable[[int], WorkerCopies]
    retention: CopiesRetention = field(default_factory=CopiesRetention)
    lags: bool = False
    clock: Clock = field(default_factory=SystemClock)


class PublishedCopies:
    """The checkpoints of this pipeline among its copies; without `parts` there are no copies, and nothing is done."""

    def __init__(self, parts: PublishedParts | None = None) -> None:
        """Store the parts; send no request yet."""
        self._parts = parts
        self._ended = threading.Event()
        self._workers: frozenset[int] = frozenset()
        self._lock = threading.Lock()
        self.trouble: str | None = None
        """Why the object of the running checkpoint cannot be put; any thread may read it."""

    def after(self, copied: Future[T], version: int, epoch: int) -> Future[T]:
        """Return a future with the result of `future`, set when the version's object is in the place, too."""
        if self._parts is None or self._parts.lags:
            return copied
        parts, ended, whole = self._parts, threading.Event(), Future[T]()
        self._ended = ended

        def run() -> None:
            try:
                result = copied.result()
                while not self._tried(parts, version, epoch):
                    if ended.wait(AWAY_RETRY_S):
                        raise UnavailableError("the copying was stopped")
            except BaseException as error:  # noqa: BLE001 - the event loop judges it
                whole.set_exception(error)
            else:
                whole.set_result(result)

        threading.Thread(target=run, name="dbsp-published", daemon=True).start()
        return whole

    def opened(self, ledger: Ledger, epoch: int) -> None:
        """Put the object of the opened version, and delete the remaining objects of workers that have left.

        **Errors** `AwayError` while the place does not answer; `FencedError` if a newer owner has used the place.
        """
        if self._parts is None or self._parts.lags:
            return
        with self._lock:
            names = self._parts.checkpoints.check_owner(epoch)
            if names and not self._workers:
                self._workers = self._before(self._parts, names)
            members = ledger.members
            self._workers = members | {w for w in self._workers - members if self._parts.copies(w).collect()}
            self._put(self._parts, ledger, epoch, names)

    # ---- copies that lag behind the checkpoints

    @property
    def parts(self) -> PublishedParts | None:
        """Return the parts of the pipeline; None if there are no copies."""
        return self._parts

    @property
    def lags(self) -> bool:
        """Return whether a checkpoint is published before its copies are whole."""
        return self._parts is not None and self._parts.lags

    def ledger(self) -> Ledger:
        """Return the present ledger."""
        ledger = None if self._parts is None else self._parts.control.load()
        if ledger is None:
            raise DataError("the ledger is gone")
        return ledger

    def put_behind(self, ledger: Ledger, epoch: int) -> None:
        """Put the object of the ledger's published version, whose copies are whole; read it back before older ones go.

        **Errors** `AwayError` while the place does not answer, or if it has lost or cut the object. `FencedError` if a newer
        owner has used the place.
        """
        if self._parts is None:
            raise InternalError("an object is to be put where there are no copies")
        with self._lock:
            names = self._parts.checkpoints.check_owner(epoch)
            if names and not self._workers:
                self._workers = self._before(self._parts, names)
            self._workers |= ledger.members
            self._put(self._parts, ledger, epoch, names)

    def collect(self, epoch: int) -> None:
        """Delete the objects of workers that have left, unless a checkpoint names them; errors as `put_behind`."""
        if self._parts is None:
            return
        with self._lock:
            members = self.ledger().members
            if gone := self._workers - members:
                self._parts.checkpoints.check_owner(epoch)
                self._workers = members | {worker for worker in gone if self._parts.copies(worker).collect()}

    def end(self) -> None:
        """Ask a running thread to end; its object may still arrive, which is harmless."""
        self._ended.set()
        self.trouble = None

    def refuse_none(self) -> None:
        """Raise `ConfigError` where the settings name no place for copies."""
        if self._parts is None:
            raise ConfigError(
                "there are no copies of checkpoints",
                "name a place as `copies` in [checkpoint]; or name a folder for the backup: `coordinator backup FOLDER`",
            )

    @property
    def where(self) -> str:
        """Return the address of the copies; "" if there are none."""
        return "" if self._parts is None else self._parts.checkpoints.where

    def keep(self) -> tuple[CheckpointName, Mapping[str, Any]]:
        """Keep the newest published checkpoint until a command deletes it; return its name and its object.

        **Errors** `UnavailableError` where nothing is published yet.
        """
        if self._parts is None:
            raise InternalError("a version is to be kept where there are no copies")
        checkpoints = self._parts.checkpoints
        if self._parts.lags:
            return self._keep_whole(self._parts)
        while True:
            published = _published(self._parts.control)
            found = [name for name in checkpoints.names() if name.version == published]
            if not found:
                if _published(self._parts.control) != published:
                    continue
                raise UnavailableError(f"no copy of the published version is there: version={published}", "try again")
            body = checkpoints.get(found[-1])
            checkpoints.put(found[-1], body, kept=True)
            if _published(self._parts.control) == published:  # so no worker has dropped its manifest yet
                return found[-1], body
            checkpoints.delete([found[-1]], kept=True)

    def _keep_whole(self, parts: PublishedParts) -> tuple[CheckpointName, Mapping[str, Any]]:
        """Keep the newest checkpoint that is whole among copies that lag; see `keep`."""
        checkpoints = parts.checkpoints
        while names := checkpoints.names():
            body = checkpoints.get(names[-1])
            checkpoints.put(names[-1], body, kept=True)
            if names[-1] in checkpoints.names():  # so a worker that drops manifests sees one of the two
                return names[-1], body
            checkpoints.delete([names[-1]], kept=True)
        raise UnavailableError("no checkpoint is whole among the copies yet", "try again")

    def _tried(self, parts: PublishedParts, version: int, epoch: int) -> bool:
        """Put the object of a version that all workers hold; return False while the place does not answer."""
        try:
            with self._lock:
                ledger = parts.control.load()
                if ledger is None:
                    raise DataError("the ledger is gone")
                names = parts.checkpoints.check_owner(epoch)
                self._put(parts, ledgers.publish(ledger, version, ends_rescale=False), epoch, names)
        except AwayError as error:
            self.trouble = str(error)
            return False
        self.trouble = None
        return True

    def _put(self, parts: PublishedParts, ledger: Ledger, epoch: int, names: list[CheckpointName]) -> None:
        """Put the object of the ledger's published version, then delete those that retention does not keep."""
        saved = ledger.saved.get(ledger.published)
        checkpoint = nothing_saved(ledger) if saved is None else saved.checkpoint
        positions = {} if saved is None else dict(saved.positions)
        inputs = parts.inputs
        wall_us = parts.clock.wall_us()
        body = {
            "pipeline": ledger.name, "engine": VERSION, "wall_us": wall_us, "step": checkpoint.step,
            "ledger": encode_ledger(ledger), "workers": sorted(self._workers | ledger.members),
            "input": inputs.remembered(positions) if isinstance(inputs, ResumableInput) else None,
        }  # fmt: skip
        name = CheckpointName(
            made=epoch, version=ledger.published, epoch=checkpoint.epoch, second=wall_us // 1_000_000
        )  # fmt: skip
        parts.checkpoints.put(name, body)
        if parts.lags:
            read_back(parts.checkpoints, name)
        rule, now_s = parts.retention, wall_us / 1e6
        gone = dismissed([*names, name], newest=rule.newest, seconds=rule.seconds, now_s=now_s)
        parts.checkpoints.delete(gone)

    def _before(self, parts: PublishedParts, names: list[CheckpointName]) -> frozenset[int]:
        """Return the workers of earlier checkpoints, which may have objects still."""
        for name in reversed(names):
            try:
                return frozenset(parts.checkpoints.get(name)["workers"])
            except DataError:
                if not parts.lags:
                    raise
        return frozenset()


def read_back(checkpoints: CopiedCheckpoints, name: CheckpointName) -> None:
    """Delete an object that the place has lost or cut, and raise `AwayError`: it is put again."""
    try:
        checkpoints.get(name)
    except DataError as error:
        checkpoints.delete([name])
        raise AwayError(f"the place for copies has lost or cut an object: {error.message}") from error


def _published(control: Control) -> int:
    ledger = control.load()
    return 0 if ledger is None else ledger.published


def nothing_saved(ledger: Ledger) -> CheckpointId:
    """Return the checkpoint of a pipeline that has taken no step."""
    return CheckpointId(
        run=ledger.run, epoch=0, step=0, layout_version=min(ledger.layouts), fingerprint=ledger.fingerprint
    )
